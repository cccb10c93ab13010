"""The site half of a run: its own rows, memory and secrets, and nothing of anybody else.

A site answers messages. Each is compared with what must come: the run, the sender, a round and trip
that have not been yet, every shape, every number finite; whatever does not fit is refused and
changes nothing. Asked the same thing twice, a site gives the same reply; asked another thing under
the same name, it refuses.
"""

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core.environment import __version__
from fedmin.core.method import Relay
from fedmin.core.protocol import Occasion, Protocol, ProtocolError, SiteRole
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows
from fedmin.core.serialize import digest
from fedmin.engines.forms import ALONG, Purpose
from fedmin.engines.messages import DIGEST, Messages, messages_of
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
from fedmin.engines.sessions.files import DamagedCheckpointError, Files
from fedmin.engines.sessions.packets import ClientError, Packets
from fedmin.engines.sessions.places import BEGINNING, Place, must_come
from fedmin.engines.sessions.programs import Programs, site_program
from fedmin.engines.sessions.wire import Envelope, MessageError


def run_name(run: Run, roster: Roster, seed: int) -> bytes:
    """Eight bytes that name a run: both halves compute them from what they were told."""
    return bytes.fromhex(digest([run, roster, seed]))[:8]


LOOK_AHEAD = 10_000  # rounds in which a client looks for the next one that it is in


@contextmanager
def _refusing(envelope: Envelope) -> Iterator[None]:
    """What the channel does not accept is refused as any other message is."""
    try:
        yield
    except ProtocolError as error:
        raise MessageError(f"{envelope}: {error}") from error


class SiteSession:
    """One site of a run.

    `seed` is the run's, `secret` a key of the site's own (from the seed in a simulation). With
    `folder` the site keeps its state there when the server asks for it. Where a round may count
    without some of its sites (`gaps`), rounds that it was to be in may pass it by.
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
        folder: str | Path | None = None,
        gaps: bool = False,
        messages: Messages | None = None,
    ):
        roster.check(me, rows)
        self.run, self.roster, self.me = fluid(run), roster, me
        self.name, self.run_name = roster.names[me], run_name(run, roster, seed)
        self.messages = messages_of(run, roster) if messages is None else messages
        self.key = jax.random.key(seed)
        self.secret = self.key if secret is None else secret
        self.rows, self.unnamed = roster.view(me, rows), roster.unnamed()
        self.programs = Programs(self.run, self.unnamed, site_program)
        self.state = self._first_state()
        self.packets = Packets(me, roster, self.run_name)
        self.role: tuple[Any, SiteRole] | None = None  # the channel's, and in which exchange
        self.place = BEGINNING
        self.notices: list[Notice] = []  # what it was told in this round
        self.own: dict[int, Any] = {}  # its own replies to others in this round
        self.gaps, self.due = gaps, self._due(0)  # the next round that it takes part in
        self.answers: dict[Place, tuple[bytes, bytes]] = {}
        self.kept = 0  # the round that the server has kept; answers since then stay
        self.digest = digest(rows)
        self.files = None if folder is None else Files(folder, self._belongings())

    def _first_state(self) -> SiteState:
        run, roster = self.run, self.roster
        key = start_key(self.key, self.me)
        client = run.method.init_client(run.origin, roster, self.rows, key)
        memory = tuple(
            jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), form.memory)
            for form in self.messages.training.forms
        )
        return SiteState(client, memory)

    def _belongings(self) -> dict[str, Any]:
        """What this site's checkpoints belong to: the run (its seed with it), and its own rows."""
        return {
            "fedmin": __version__, "run": self.run_name.hex(), "site": self.name,
            "devices": jax.default_backend(), "x64": bool(jax.config.read("jax_enable_x64")),
            "rows": self.digest,
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
            return self._keep_or_go_back(envelope, data)
        if envelope.kind != "ask":
            raise MessageError(f"a site is asked; this is a {envelope}")
        place, mark = Place.of(envelope), hashlib.sha256(data).digest()
        if place in self.answers:
            asked, reply = self.answers[place]
            if asked != mark:
                raise MessageError(f"{envelope}: it was asked before, with other words")
            return reply
        self._check_place(envelope, place)
        kind, body = self._reply(place, envelope, data)
        reply = wire.encode(envelope._replace(kind=kind, sender=self.me, receiver=SERVER), body)
        self._remember(place, mark, reply)
        return reply

    def _check_place(self, envelope: Envelope, place: Place) -> None:
        """Refuse what has been, and what cannot come yet."""
        if place <= self.place:
            raise MessageError(f"{envelope}: it has been; the site is at {self.place}")
        goes_on = place[:2] == self.place[:2]
        early = place.round > self.due if place.phase < 1 else place.round != self.due
        if early and not goes_on and not self.gaps:
            raise MessageError(f"{envelope}: round {self.due} must come first")
        if place.phase == -1:
            if self.packets.ready:
                raise MessageError(f"{envelope}: keys are exchanged once, and were")
            step, wanted = place.trip, [self.place.trip + 1 if self.place.phase == -1 else 0]
        else:
            step = place.within(self.messages)[1]
            wanted = must_come(self.me, self.place, place, self.messages)
            if self.messages.sealed and self.roster.clients > 1 and not self.packets.ready:
                raise MessageError(f"{envelope}: keys must be exchanged first")
        if step not in wanted:
            must = f"trip {wanted[0]} of it must come first" if wanted else "there is no such trip"
            raise MessageError(f"{envelope}: {must}")

    def _remember(self, place: Place, mark: bytes, reply: bytes) -> None:
        if place.phase == 1 and place.round >= self.due:
            self.due = self._due(place.round + 1)
        self.place = place
        self.answers[place] = (mark, reply)
        since = self.kept if self.files is not None else place.round
        for old in [p for p in self.answers if p.round < since]:
            del self.answers[old]

    def _due(self, first: int) -> int:
        """The first round from `first` on that this client is drawn for."""
        part, count = self.run.participation, self.roster.clients
        if part.everyone:
            return first
        for t in range(first, first + LOOK_AHEAD):
            ids, present = drawn(part, self.key, t, count)
            if self.me in ids[present]:
                return t
        return first + LOOK_AHEAD

    def _reply(self, place: Place, envelope: Envelope, data: bytes) -> tuple[str, Any]:
        if place.phase == -1:
            return "reply", self.packets.introduce(place.trip, data)
        purpose, step = place.within(self.messages)
        e, leg = purpose.steps[step]
        fresh = place[:2] != self.place[:2] or self.place.within(self.messages)[0] is not purpose
        notices, own = ([], {}) if fresh else (list(self.notices), dict(self.own))
        if leg is DIGEST:
            wire.decode(data, {})
            self.notices, self.own = notices, own
            return "reply", {"digest": np.frombuffer(bytes.fromhex(self.digest), np.uint8)}
        protocol = purpose.forms[e].protocol
        clients = () if protocol is None else self.drawn(place)
        if leg is not None and protocol is not None:
            said = wire.decode(data, leg.form("down", protocol.peers(len(clients))), finite=True)[1]
            with _refusing(envelope):
                sent = self._playing(protocol, place, e, clients).answer(leg.name, said)
            self.notices, self.own = notices, own
            return "reply", dict(sent)
        like = purpose.ask_like(e, self.me, self.roster.clients, len(clients))
        down = dict(wire.decode(data, like, finite=True)[1])
        along = down.pop(ALONG, {})
        packets = down.pop("relayed", ())
        for r, sealed in zip(
            purpose.waiting(e, self.me, self.roster.clients), packets, strict=True
        ):
            notices.append(self.packets.opened(purpose, r, envelope, sealed, own))
        trip = purpose.forms[e].trip
        notices.append(Notice(jax.tree.map(jnp.asarray, down), trip.only))
        sent, state, fine = self._compute(purpose, place, e, known(trip, notices, self.me))
        if not fine:
            return "fault", {}
        if isinstance(trip, Relay):
            own[e] = sent
            sent = self.packets.sealed(purpose, e, envelope, sent)
        elif protocol is not None:
            with _refusing(envelope):
                role = self._playing(protocol, place, e, clients)
                sent = role.hide(jax.device_get(sent), along)
        if place.phase == 1:
            self.state = state
        self.notices, self.own = notices, own
        return "reply", sent

    def drawn(self, place: Place) -> tuple[int, ...]:
        """Who was drawn for such a round; everybody is asked when the model is looked at."""
        population = self.roster.clients
        if place.phase != 1 or self.run.participation.everyone:
            return tuple(range(population))
        ids, present = drawn(self.run.participation, self.key, place.round, population)
        return tuple(ids[present].tolist())

    def _playing(
        self, protocol: Protocol, place: Place, e: int, clients: tuple[int, ...]
    ) -> SiteRole:
        """The channel's role in this exchange: a new one for every exchange."""
        trip = place.within(self.messages)[0].first + e
        if self.role is None or self.role[0] != (place.round, trip):
            occasion = Occasion(self.run_name, place.round, trip, clients, self.roster)
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
        share = jnp.asarray(self.roster.share(me))
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
            state = SiteState(held, memories)
        return sent, state, fine

    # ------------------------------------------------------------ what survives a crash

    def _keep_or_go_back(self, envelope: Envelope, data: bytes) -> bytes:
        """Keep the state after so many rounds, before the server does; or be there again."""
        wire.decode(data, {})
        done, said = envelope.round, "kept"
        if envelope.kind == "keep":
            if done < self.place.round:
                raise MessageError(f"{envelope}: the site is in round {self.place.round} already")
            if self.files is not None:
                self.files.write(done, {}, {"state": self.state})
            self.kept = done
        else:
            if self.place >= Place(0, 1, 0):
                raise MessageError(f"{envelope}: only before the first round of a session")
            said = self._go_back(done)
        return wire.encode(envelope._replace(kind=said, sender=self.me, receiver=SERVER), {})

    def _go_back(self, done: int) -> str:
        """Be where it was after so many rounds: "kept", or "lost" if nothing whole is there."""
        if self.files is None:
            raise ClientError(f"client {self.name} keeps nothing: it cannot go back to {done}")
        try:
            state = self._first_state() if done == 0 else self._kept_state(done)
        except DamagedCheckpointError as error:
            words = f"client {self.name}: {error}"
            warnings.warn(words, RuntimeWarning, stacklevel=5)
            return "lost"
        self.state, self.kept, self.due = state, done, self._due(done)
        return "kept"

    def _kept_state(self, done: int) -> SiteState:
        assert self.files is not None
        _, arrays = self.files.at(done, lambda words: {"state": self.state})
        return jax.tree.map(jnp.asarray, arrays["state"])
