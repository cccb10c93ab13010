"""The site half of a run: its own rows, memory and secrets, and nothing of anybody else.

A site answers messages. Each is compared with what must come: the run, the sender, a round and trip
that have not been yet, every shape, every number finite; whatever does not fit is refused and
changes nothing. Asked the same thing twice, a site gives the same reply; asked another thing under
the same name, it refuses. What it must know to do so after it was killed is in `diary.py`.
"""

import hashlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core.environment import __version__
from fedmin.core.inference import site_sums
from fedmin.core.method import Relay
from fedmin.core.metrics_by import lined
from fedmin.core.protocol import Occasion, Protocol, ProtocolError, SiteRole
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows
from fedmin.core.serialize import digest
from fedmin.engines.forms import ALONG, Purpose
from fedmin.engines.messages import DIGEST, FITTING, VALUES, Messages, messages_of, of_session
from fedmin.engines.round import (
    SERVER,
    Notice,
    Run,
    SiteState,
    drawn,
    fluid,
    known,
    now_at,
    start_key,
)
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.diary import Answered, Diary
from fedmin.engines.sessions.files import Files
from fedmin.engines.sessions.keeping import hear_again, keep_or_go_back
from fedmin.engines.sessions.packets import ClientError, Packets
from fedmin.engines.sessions.places import Place, check_place, refusing, run_name
from fedmin.engines.sessions.programs import Programs, site_program
from fedmin.engines.sessions.replica import Replica
from fedmin.engines.sessions.wire import Envelope, MessageError

LOOK_AHEAD = 10_000  # rounds in which a client looks for the next one that it is in


class SiteSession:
    """One site of a run.

    `seed` is the run's, `secret` a key of the site's own (from the seed in a simulation),
    `fingerprint` what it says of its rows in a certificate (their hash in a simulation), and
    `identity` the Ed25519 key that it signs with, whose public half the roster has (none there).
    With `folder` the site keeps its state there when the server asks for it; with `diary` also
    before every reply, so that it can be killed at any moment. Where a round may count without some
    of its sites (`gaps`), rounds that it was to be in may pass it by.
    """

    def __init__(
        self,
        run: Run,
        roster: Roster,
        me: int,
        rows: Rows,
        *,
        seed: int,
        secret: Any = None,
        fingerprint: bytes | None = None,
        folder: str | Path | None = None,
        gaps: bool = False,
        diary: bool = False,
        messages: Messages | None = None,
        identity: bytes | None = None,
    ):
        roster.check(me, rows)
        self.identity = identity
        self.run, self.roster, self.me = fluid(run), roster, me
        self.name, self.run_name = roster.names[me], run_name(run, roster, seed)
        self.messages = messages_of(run, roster) if messages is None else messages
        self.key = jax.random.key(seed)
        self.secret = self.key if secret is None else secret
        self.unnamed, self.own_rows = roster.unnamed(), rows
        self.rows = roster.view(me, lined(run.record, rows, me))
        self.programs = Programs(self.run, self.unnamed, site_program)
        blind = self.run.channel.blind
        place = None if folder is None else Path(folder)
        self.replica = Replica(self.run, roster, self.messages, self.key, place) if blind else None
        self.packets = Packets(me, roster, self.run_name, self.messages.signed, identity)
        self.role: tuple[Any, SiteRole] | None = None  # the channel's, and in which exchange
        self.introduced: int | None = None  # the round before which it gave its public key
        self.notices: list[Notice] = []  # what it was told in this round
        self.own: dict[int, Any] = {}  # its own replies to others in this round
        self.digest = digest(rows)
        self.fingerprint = bytes.fromhex(self.digest) if fingerprint is None else fingerprint
        belongs = self._belongings()
        self.files = None if folder is None else Files(folder, belongs)
        self.diary = Diary(digest(belongs), self.first_state(), place if diary else None)
        self.gaps, self.due = gaps, self.next_round(self.round_after(self.place))
        hear_again(self)

    @property
    def state(self) -> SiteState:
        """What it remembers from round to round."""
        return self.diary.state

    @property
    def place(self) -> Place:
        """Where it answered last."""
        return self.diary.place

    @property
    def sealed(self) -> bool:
        """Whether clients seal messages for each other."""
        return self.messages.sealed and self.roster.clients > 1

    def first_state(self) -> SiteState:
        """What it remembers before the first round."""
        run, roster = self.run, self.roster
        key = start_key(self.key, self.me)
        client = run.method.init_client(run.origin, roster, self.rows, key)
        memory = tuple(
            jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), form.memory)
            for form in self.messages.training.forms
        )
        return SiteState(client, memory, None if self.replica is None else self.replica.first())

    @property
    def model(self) -> np.ndarray | None:
        """Where sites do the server's step: the model. None elsewhere: the server has it."""
        return None if self.replica is None else self.replica.model(self.state.server)

    def _belongings(self) -> dict[str, Any]:
        """What this site's checkpoints belong to: the run (its seed with it), and its own rows."""
        return {
            "fedmin": __version__, "run": self.run_name.hex(), "site": self.name,
            "devices": jax.default_backend(), "x64": bool(jax.config.read("jax_enable_x64")),
            "rows": self.digest,
            "secret": digest(np.asarray(jax.random.key_data(self.secret)).tolist()),  # by its hash
        }  # fmt: skip

    # ------------------------------------------------------------ answering

    def answer(self, data: bytes) -> bytes:
        """The reply to a message; `MessageError` if it must not be answered."""
        envelope = wire.envelope_of(data)
        for what, found, right in (
            ("run", envelope.run, self.run_name),
            ("sender", envelope.sender, SERVER),
            ("receiver", envelope.receiver, self.me),
        ):
            if found != right:
                raise MessageError(f"{envelope}: its {what} is {found!r}, not {right!r}")
        if envelope.kind in ("keep", "back"):
            return keep_or_go_back(self, envelope, data)
        if envelope.kind != "ask":
            raise MessageError(f"a site is asked; this is a {envelope}")
        place, mark = Place.of(envelope), hashlib.sha256(data).digest()
        if place.phase == -1:
            return self._introduce(place, envelope, data)
        if self.diary.marks.get(place, mark) != mark:
            raise MessageError(f"{envelope}: it was asked before, with other words")
        stands = self.diary.found(place)
        if stands is not None:
            return stands.reply
        check_place(self, envelope, place)
        kind, body, state = self._reply(place, envelope, data)
        reply = wire.encode(envelope._replace(kind=kind, sender=self.me, receiver=SERVER), body)
        self.diary.add(Answered(place, mark, data, reply, state))
        if place.phase == 1 and place.round >= self.due:
            self.due = self.next_round(place.round + 1)
        return reply

    def _introduce(self, place: Place, envelope: Envelope, data: bytes) -> bytes:
        """The exchange of keys: before the first round, and after any party has begun anew; a round
        that had begun is then begun again, with other packets in questions of the same names."""
        if place.round < self.place.round or not self.sealed:
            raise MessageError(f"{envelope}: no keys are exchanged here, at {self.place}")
        if place.trip != 0 and place.round != self.introduced:
            raise MessageError(f"{envelope}: trip 0 of it must come first")
        if place.trip == 0:
            self.packets.renew()
            self.introduced = place.round
        body = self.packets.introduce(place.round, place.trip, data)
        self.diary.begin_again()
        self.notices, self.own, self.due = [], {}, min(self.due, self.next_round(place.round))
        return wire.encode(envelope._replace(kind="reply", sender=self.me, receiver=SERVER), body)

    @staticmethod
    def round_after(place: Place) -> int:
        """The first round that can come after a place."""
        return max(place.round + (place.phase == 1), 0)

    def next_round(self, first: int) -> int:
        """The first round from `first` on that this client is drawn for."""
        part, count = self.run.participation, self.roster.clients
        if part.everyone:
            return first
        for t in range(first, first + LOOK_AHEAD):
            ids, present = drawn(self.run, self.key, t, count)
            if self.me in ids[present]:
                return t
        return first + LOOK_AHEAD

    def purpose(self, place: Place) -> str:
        """The name of what a place is a trip of."""
        return place.within(self.messages)[0].name

    def _reply(self, place: Place, envelope: Envelope, data: bytes) -> tuple[str, Any, Any]:
        """The kind of the reply, what is in it, and the state after it."""
        notices, own = self.notices, self.own
        fresh = place[:2] != self.place[:2] or self.purpose(self.place) != self.purpose(place)
        self.notices, self.own = ([], {}) if fresh else (list(notices), dict(own))
        found: tuple[str, Any, Any] = ("fault", {}, None)
        try:
            found = self._answered(place, envelope, data)
            return found
        finally:
            if found[0] == "fault":
                self.notices, self.own = notices, own

    def _answered(self, place: Place, envelope: Envelope, data: bytes) -> tuple[str, Any, Any]:
        purpose, step = place.within(self.messages)
        e, leg = purpose.steps[step]
        if leg is DIGEST:
            wire.decode(data, {})
            return "reply", {"digest": np.frombuffer(self.fingerprint, np.uint8)}, self.state
        if leg is not None and leg.name == VALUES:
            wire.decode(data, {})
            with refusing(envelope):
                if self.replica is None or self.role is None:
                    raise ProtocolError("this site has no sums to tell of")
                opened = self.role[1].opened(noisy=True)
                told = self.replica.told(purpose, place.round, e, opened, self.state.server)
            return "reply", {VALUES: told}, self.state
        if leg is not None and leg.name in FITTING:
            x = wire.decode(data, leg.form("down", 0), finite=True)[1]["model"]
            sums = site_sums(self.run.problem, x, self.own_rows, "meat" in leg.up)
            return "reply", sums, self.state
        protocol = purpose.forms[e].protocol
        clients = () if protocol is None else self.drawn(place)
        if leg is not None and protocol is not None:
            said = wire.decode(data, leg.form("down", protocol.peers(len(clients))), finite=True)[1]
            with refusing(envelope):
                role = self._playing(protocol, place, e, clients)
                sent = role.answer(leg.name, said)
            if self.replica is None or leg is not protocol.after[-1]:
                return "reply", dict(sent), self.state
            return self.replica.stepped(purpose, place.round, e, role.opened(), self.state)
        along = self.hear(place, envelope, data)
        trip = purpose.forms[e].trip
        sent, state, fine = self._compute(purpose, place, e, known(trip, self.notices, self.me))
        if not fine:
            return "fault", {}, self.state
        if isinstance(trip, Relay):
            self.own[e] = sent = self.packets.covered(purpose, e, envelope, sent)
            sent = self.packets.sealed(purpose, e, envelope, sent)
        elif protocol is not None:
            with refusing(envelope):
                role = self._playing(protocol, place, e, clients)
                sent = role.hide(jax.device_get(sent), along)
        return "reply", sent, state if place.phase == 1 else self.state

    def hear(self, place: Place, envelope: Envelope, data: bytes) -> dict[str, Any]:
        """Add what a question says to what the site was told; what is in it for the channel."""
        (purpose, step), population = place.within(self.messages), self.roster.clients
        e, _ = purpose.steps[step]
        clients = () if purpose.forms[e].protocol is None else self.drawn(place)
        like = purpose.ask_like(e, self.me, population, len(clients))
        down = dict(wire.decode(data, like, finite=True)[1])
        along, packets = down.pop(ALONG, {}), down.pop("relayed", ())
        for r, sealed in zip(purpose.waiting(e, self.me, population), packets, strict=True):
            self.notices.append(self.packets.opened(purpose, r, envelope, sealed, self.own))
        parts = jax.tree.map(jnp.asarray, down)
        if self.replica is not None:  # nobody else says it
            parts |= self.replica.say(purpose, place.round, e, self.state.server)
        self.notices.append(Notice(parts, purpose.forms[e].trip.only))
        return along

    def drawn(self, place: Place) -> tuple[int, ...]:
        """Who was drawn for such a round; everybody is asked when the model is looked at."""
        population = self.roster.clients
        if place.phase != 1 or self.run.participation.everyone:
            return tuple(range(population))
        ids, present = drawn(self.run, self.key, place.round, population)
        return tuple(ids[present].tolist())

    def _playing(
        self, protocol: Protocol, place: Place, e: int, clients: tuple[int, ...]
    ) -> SiteRole:
        """The channel's role in this exchange: a new one for every exchange."""
        purpose, step = place.within(self.messages)
        trip = purpose.first + e
        if self.role is None or self.role[0] != (place.round, trip):
            before = purpose.steps[step - 1] if step else None
            if before is not None and before.e == e and not of_session(before.leg):
                raise ProtocolError("the site was started anew: its secrets of this sum are gone")
            occasion = Occasion(
                self.run_name, place.round, trip, clients, self.roster, self.identity
            )
            self.role = ((place.round, trip), protocol.site(occasion, self.me))
        return self.role[1]

    def _compute(
        self, purpose: Purpose, place: Place, e: int, down: dict[str, Any]
    ) -> tuple[Any, SiteState, bool]:
        """The method's own part."""
        me, training = self.me, place.phase == 1
        now = now_at(self.key, self.secret, jnp.int32(place.round), purpose.first + e, me)
        state = self.state
        held, memory = (), purpose.forms[e].memory  # which looking has none of
        if training:
            held, memory = state.client, state.memory[e]
        run, part = self.programs.of(purpose.name)
        share = jnp.asarray(self.roster.counted(me, self.own_rows))
        try:
            sent, held, memory, fine = part(
                run, self.unnamed, e, self.rows, held, memory, down, share, now
            )
            fine = bool(fine)
        except Exception as error:
            raise ClientError(
                f"client {self.name}, round {place.round}, exchange {e}: {error}"
            ) from error
        if training:
            memories = (*state.memory[:e], memory, *state.memory[e + 1 :])
            state = SiteState(held, memories, state.server)
        return sent, state, fine
