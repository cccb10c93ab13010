"""The server half of a run: its own state and what arrives, and not a single row of a client.

    session.open_round(t)               or open_setup(), open_evaluation(t)
    while asks := session.asks():       a message for each site that is asked on this trip
        session.took(replies)           those that came; whatever does not fit is never used
    session.outcome                     who took part, who is at fault

No socket, no thread, no clock: a transport carries the messages, and says which replies came.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core import checks
from fedmin.core.channel import Cohort
from fedmin.core.method import Relay, complete
from fedmin.core.result import Best
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows
from fedmin.engines.measuring import best_of, evaluation
from fedmin.engines.messages import Purpose, messages_of, reports_of
from fedmin.engines.round import (
    COHORT,
    NOBODY,
    SERVER,
    THE_SUM,
    Run,
    ServerState,
    fluid,
    key_of,
    looking,
    now_at,
    start_key,
)
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.programs import server_programs, values_program
from fedmin.engines.sessions.seal import key_like
from fedmin.engines.sessions.wire import Envelope, MessageError, NotFiniteError


class QuorumError(RuntimeError):
    """Too few sites answered for a round to count; the message says who did not, and why."""


class Outcome(NamedTuple):
    """How a phase went."""

    clients: int  # that took part
    culprit: int  # who sent what is not finite, THE_SUM, or NOBODY


class _Phase:
    """What is going on: the trips of a setup, of a round or of an evaluation."""

    def __init__(self, purpose: Purpose | None, round: int, ids: np.ndarray, present: np.ndarray):
        self.purpose, self.round, self.ids, self.present = purpose, round, ids, present.copy()
        self.trip = 0
        self.culprit = NOBODY
        self.packets: dict[tuple[int, int], dict[int, np.ndarray]] = {}  # (relay, receiver)
        self.asked: tuple[int, ...] = ()


class ServerSession:
    """The server of a run. `quorum` is the least share of the asked sites that must answer."""

    def __init__(
        self,
        run: Run,
        roster: Roster,
        *,
        seed: int,
        name: bytes,
        server_rows: Rows | None = None,
        test: Rows | None = None,
        secret: Any = None,
        quorum: float = 1.0,
    ):
        checks.between("quorum", quorum, 0.0, 1.0, open_low=True)
        self.run, self.roster, self.name, self.quorum = fluid(run), roster, name, quorum
        self.server_rows, self.test = jax.tree.map(jnp.asarray, (server_rows, test))
        self.messages = messages_of(run, roster)
        self.evaluation = evaluation(self.run, roster)
        self.key, self.unnamed = jax.random.key(seed), roster.unnamed()
        self.secret = self.key if secret is None else secret
        info, self.names = reports_of(run, roster, server_rows)
        # of a look at the model, and of a round
        self.programs = [
            (run, server_programs(run, self.unnamed)) for run in (looking(self.run), self.run)
        ]
        self.finish = values_program(self.run)
        kept = tuple(
            jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), form.server_memory)
            for form in self.messages.training.forms
        )
        method = self.run.method.init_server(self.run.problem, roster, start_key(self.key, SERVER))
        self.state = ServerState(method, kept, info)
        self.refused: list[tuple[int, str]] = []  # replies that were not used, and why
        self.values: np.ndarray | None = None  # what the last evaluation found
        self._phase: _Phase | None = None
        self._look: Any = None  # the server's state while it looks at the model
        self._keys = np.zeros((roster.clients, 32), np.uint8)

    # ------------------------------------------------------------ phases

    @property
    def outcome(self) -> Outcome:
        """How the last phase went."""
        assert self._phase is not None
        return Outcome(int(self._phase.present.sum()), self._phase.culprit)

    def open_setup(self) -> None:
        """The exchange of keys, where clients seal messages for each other."""
        self._open(None, 0, *self._everyone())

    def open_round(self, t: int) -> None:
        """A round: who takes part is drawn from the run's seed."""
        draw = key_of(self.key, jnp.int32(t), 0, COHORT)
        cohort = self.run.participation.cohort(draw, jnp.int32(t), self.roster.clients)
        ids, present = (np.asarray(a) for a in cohort)
        self._open(self.messages.training, t, ids, present)

    def open_evaluation(self, t: int) -> None:
        """A look at the model after t rounds; `values` has it when there is no more to ask."""
        x = self.run.method.solution(self.state.method)
        self._look = self.evaluation.start(x) if self.evaluation.trips else None
        self._open(self.messages.evaluation, t, *self._everyone())
        if not self.evaluation.trips:
            self._finish_evaluation()

    def _everyone(self) -> tuple[np.ndarray, np.ndarray]:
        clients = self.roster.clients
        return np.arange(clients), np.ones(clients, bool)

    def _open(self, purpose: Purpose | None, t: int, ids: np.ndarray, present: np.ndarray) -> None:
        self._phase = _Phase(purpose, t, ids, present)

    # ------------------------------------------------------------ asking

    def asks(self) -> dict[int, bytes]:
        """The messages of the next trip, by site; none when the phase is over."""
        phase = self._phase
        assert phase is not None
        count = 2 if phase.purpose is None else len(phase.purpose.forms)
        while phase.trip < count and phase.culprit == NOBODY:
            trip = None if phase.purpose is None else phase.purpose.forms[phase.trip].trip
            there = phase.ids[phase.present].tolist()
            phase.asked = tuple(i for i in there if trip is None or trip.asks(i))
            if phase.asked:
                return {i: wire.encode(self._envelope("ask", i), m) for i, m in self._down()}
            phase.trip += 1  # nobody is there to be asked
        return {}

    def _envelope(self, kind: str, i: int) -> Envelope:
        phase = self._phase
        assert phase is not None
        first = wire.SETUP if phase.purpose is None else phase.purpose.first
        return Envelope(kind, phase.round, first + phase.trip, SERVER, i, self.name)

    def _down(self) -> list[tuple[int, Any]]:
        """What each asked site is told."""
        phase = self._phase
        assert phase is not None
        e, purpose = phase.trip, phase.purpose
        if purpose is None:
            return [(i, {} if e == 0 else {"key": self._keys}) for i in phase.asked]
        trip, down = purpose.forms[e].trip, {}
        if trip.broadcast is not None:
            training = purpose is self.messages.training
            state = self.state.method if training else self._look
            run, (say, _) = self.programs[training]
            down = jax.device_get(say(run, self.unnamed, e, state, self._now()))
        found = []
        for i in phase.asked:
            own = jax.tree.map(lambda a, i=i: a[i], down) if trip.addressed else down
            relays = purpose.waiting(e, i, self.roster.clients)
            packets = tuple(self._packets(r, i) for r in relays)
            found.append((i, {**own, **({"relayed": packets} if packets else {})}))
        return found

    def _packets(self, relay: int, i: int) -> np.ndarray:
        """The packets of a relay that wait for client i, in the order of their senders."""
        phase = self._phase
        assert phase is not None
        assert phase.purpose is not None
        waiting = phase.packets.get((relay, i), {})
        like = phase.purpose.packets(relay, i, self.roster.clients)
        return np.stack([waiting[s] for s in sorted(waiting)]) if waiting else like

    def _now(self) -> Any:
        phase = self._phase
        assert phase is not None
        first = 0 if phase.purpose is None else phase.purpose.first
        t = jnp.int32(phase.round)
        return now_at(self.key, self.secret, t, first + phase.trip, SERVER)

    # ------------------------------------------------------------ taking in

    def took(self, replies: dict[int, bytes]) -> None:
        """The replies that came on this trip; sites without one are absent from here on."""
        phase = self._phase
        assert phase is not None
        good: dict[int, Any] = {}
        missing: dict[int, str] = {}
        strangers = [i for i in replies if i not in phase.asked]
        self.refused += [(i, "it was not asked") for i in strangers]
        for i in phase.asked:
            if i not in replies:
                missing[i] = "no reply came"
                continue
            try:
                good[i] = self._checked(i, replies[i])
            except NotFiniteError:
                phase.culprit = min(phase.culprit, i)
            except MessageError as error:
                missing[i] = str(error)
                self.refused.append((i, str(error)))
        quorum = 1.0 if self._needs_all(phase) else self.quorum
        if missing and len(good) < quorum * len(phase.asked):
            words = "; ".join(f"{self.roster.names[i]}: {why}" for i, why in missing.items())
            raise QuorumError(f"round {phase.round}: too few sites answered: {words}")
        phase.present &= ~np.isin(phase.ids, list(missing))
        if phase.culprit == NOBODY:
            self._take_in(good)
        phase.trip += 1
        over = phase.purpose is not None and phase.trip == len(phase.purpose.forms)
        if over and phase.purpose is self.messages.evaluation and phase.culprit == NOBODY:
            self._finish_evaluation()

    def _needs_all(self, phase: _Phase) -> bool:
        """Whether nobody may be missing: a part of every row, or of what clients seal, would be."""
        if phase.purpose is None or self.roster.owners is not None:
            return True
        return any(complete(form.trip) for form in phase.purpose.forms)

    def _checked(self, i: int, data: bytes) -> Any:
        """The reply of site i, if it is what was asked for."""
        phase = self._phase
        assert phase is not None
        envelope = wire.envelope_of(data)
        wanted = self._envelope("reply", i)._replace(sender=i, receiver=SERVER)
        if envelope == wanted._replace(kind="fault"):
            wire.decode(data, {})
            raise NotFiniteError(f"{envelope}: the reply is not finite")
        for what, found, right in zip(Envelope._fields, envelope, wanted, strict=True):
            if found != right:
                raise MessageError(f"{envelope}: its {what} is {found!r}, not {right!r}")
        if phase.purpose is None:
            like: Any = key_like() if phase.trip == 0 else {}
        else:
            like = phase.purpose.reply_like(phase.trip, i, self.roster.clients)
        return wire.decode(data, like, finite=True)[1]

    def _take_in(self, replies: dict[int, Any]) -> None:
        phase = self._phase
        assert phase is not None
        if phase.purpose is None:
            for i, reply in replies.items():
                if phase.trip == 0:
                    self._keys[i] = reply["key"]
            return
        form = phase.purpose.forms[phase.trip]
        if isinstance(form.trip, Relay):
            for s, reply in replies.items():
                receivers = [r for r in form.trip.receivers(self.roster.clients) if r != s]
                for r, packet in zip(receivers, reply["sealed"], strict=True):
                    phase.packets.setdefault((phase.trip, r), {})[s] = packet
            return
        self._step(phase, form, replies)

    def _step(self, phase: _Phase, form: Any, replies: dict[int, Any]) -> None:
        """The server's part of an exchange."""
        ids, present = phase.ids, phase.present
        if form.trip.only is not None:
            ids = np.array([form.trip.only])
        present = np.isin(ids, list(replies)) & (present if len(ids) == len(present) else True)
        blank = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), form.sent)
        wires = [replies[i] if p else blank for i, p in zip(ids.tolist(), present, strict=True)]
        sent = jax.tree.map(lambda *a: jnp.stack(a), *wires)
        shares = np.where(present, np.asarray(self.roster.shares)[ids], 0).astype(self.roster.dtype)
        cohort = Cohort(*map(jnp.asarray, (ids.astype(np.int32), present, shares)))
        training, e = phase.purpose is self.messages.training, phase.trip
        old = self.state
        state, memory, info = (self._look, (), {})
        if training:
            state, memory, info = old.method, old.channel[e], old.info
        run, (_, take_in) = self.programs[training]
        state, memory, info, fine = take_in(
            run, self.unnamed, e, self.server_rows, state, memory, info, sent, cohort, self._now()
        )
        if not fine:
            phase.culprit = THE_SUM
        elif training:
            channel = (*old.channel[:e], memory, *old.channel[e + 1 :])
            self.state = ServerState(state, channel, info, old.best)
        else:
            self._look = state

    def _finish_evaluation(self) -> None:
        phase, state = self._phase, self.state
        assert phase is not None
        sums = self.evaluation.sums(self._look) if self.evaluation.trips else {}
        values = np.asarray(self.finish(self.run, state, sums, self.test))
        best: Best | None = best_of(self.run, self.names, state.best, state, values, phase.round)
        self.state = ServerState(state.method, state.channel, state.info, best)
        self.values = values
