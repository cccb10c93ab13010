"""The server half of a run: its own state and what arrives, and not a single row of a client.

    session.open_round(t)               or open_setup(), open_evaluation(t)
    while asks := session.asks():       a message for each site that is asked on this trip
        session.took(replies)           those that came; whatever does not fit is never used
    session.outcome                     who took part, who is at fault

No socket, no thread, no clock: a transport carries the messages, and says which replies came.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core import checks
from fedmin.core.channel import Cohort
from fedmin.core.measured import Measured
from fedmin.core.method import Relay
from fedmin.core.protocol import EXCHANGE
from fedmin.core.result import Best
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows
from fedmin.engines.forms import ALONG, Purpose
from fedmin.engines.measuring import best_of
from fedmin.engines.messages import DIGEST, VALUES, messages_of, of_session, reports_of
from fedmin.engines.round import (
    NOBODY,
    SERVER,
    THE_SUM,
    Run,
    ServerState,
    channel_words,
    drawn,
    fluid,
    now_at,
    start_key,
    waiting,
    with_channel_words,
)
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.looks import Looks
from fedmin.engines.sessions.phase import Absence, Outcome, Phase, QuorumError
from fedmin.engines.sessions.programs import Programs, server_programs, values_program
from fedmin.engines.sessions.seal import keys_like
from fedmin.engines.sessions.wire import Envelope, MessageError, NotFiniteError


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
        self.key, self.unnamed = jax.random.key(seed), roster.unnamed()
        self.secret = self.key if secret is None else secret
        info, self.names, _ = reports_of(run, roster, server_rows)
        self.looks = Looks(self.run, roster, self.messages)
        self.programs = Programs(self.run, self.unnamed, server_programs)
        self.finish = values_program(self.run)
        kept = tuple(
            jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), form.server_memory)
            for form in self.messages.training.forms
        )
        self.blind = run.channel.blind  # the sites do its step: it has no model
        start = start_key(self.key, SERVER)
        method = None if self.blind else run.method.init_server(self.run.origin, roster, start)
        self.state = ServerState(method, kept, info)
        self.refused: list[tuple[int, str]] = []  # replies that were not used, and why
        self.used = np.zeros(roster.clients, np.uint32)  # replies of rounds, a site
        self.absent: list[Absence] = []
        self.values: np.ndarray | None = None  # what the last evaluation found
        self._phase: Phase | None = None
        self.measured: Measured | None = None  # what the last look for a certificate found
        self._keys = keys_like(roster.clients, self.messages.signed)

    # ------------------------------------------------------------ phases

    @property
    def outcome(self) -> Outcome:
        """How the last phase went."""
        assert self._phase is not None
        return self._phase.outcome

    def open_setup(self, t: int = 0) -> None:
        """The exchange of keys before round t, where clients seal messages for each other."""
        self._open(None, t, *self._everyone())

    def open_round(self, t: int) -> None:
        """A round: who takes part is drawn from the run's seed."""
        self._open(self.messages.training, t, *drawn(self.run, self.key, t, self.roster.clients))

    def open_evaluation(self, t: int) -> None:
        """A look at the model after t rounds; `values` has it when there is no more to ask."""
        self._open(self.messages.evaluation, t, *self._everyone())
        if self.blind:
            self.values = None  # a site will tell them
        elif not self.looks.begin("evaluation", self.run.method.solution(self.state.method)):
            self._finish_evaluation()

    def open_last(self, name: str, t: int) -> None:
        """Look at the last model, for a "certificate" (`measured`) or "statistics" (`looks`)."""
        self.measured = None
        self.looks.begin(name, self.run.method.solution(self.state.method))
        self._open(getattr(self.messages, name), t, *self._everyone())

    def _everyone(self) -> tuple[np.ndarray, np.ndarray]:
        clients = self.roster.clients
        return np.arange(clients), np.ones(clients, bool)

    def _open(self, purpose: Purpose | None, t: int, ids: np.ndarray, present: np.ndarray) -> None:
        self._phase = Phase(purpose, t, ids, present, self.name, self.roster)

    # ------------------------------------------------------------ asking

    def asks(self) -> dict[int, bytes]:
        """The messages of the next trip, by site; none when the phase is over."""
        phase = self._phase
        assert phase is not None
        while not phase.over:
            said = self._down(phase)
            phase.asked = tuple(said)
            if said:
                return {i: wire.encode(phase.envelope("ask", i), m) for i, m in said.items()}
            if self.run.channel.goes_on and phase.trains:
                self._step(phase, phase.step.e, None, {})  # a round of noise
            self._move_on(phase, 0)  # nobody is there to be asked
        return {}

    def _down(self, phase: Phase) -> dict[int, Any]:
        """What each site is told that is asked on this trip."""
        (e, leg), purpose, there = phase.step, phase.purpose, phase.there
        if purpose is None:
            return {i: {} if e == 0 else self._keys for i in there}
        if leg is not None and leg.name == VALUES:
            return {there[phase.round % len(there)]: {}}
        if of_session(leg):
            said = {"model": self.looks.fit.x} if purpose.name == "statistics" else {}
            return dict.fromkeys(there, said)
        if leg is not None:
            return {i: dict(m) for i, m in phase.said(leg.name, there).items()}
        trip, down = purpose.forms[e].trip, {}
        asked = [i for i in there if trip.asks(i)]
        if not asked:
            return {}
        if trip.broadcast is not None and not self.blind:
            state = self.state.method if purpose is self.messages.training else self.looks.state
            run, (say, _) = self.programs.of(purpose.name)
            down = jax.device_get(say(run, self.unnamed, e, state, self._now(phase, e)))
        words = self._channel_words(phase, e)
        down = jax.device_get(with_channel_words(down, trip, words, self.roster.clients))
        along = {}
        if phase.protocol is not None and phase.protocol.along:
            along = phase.said(EXCHANGE, tuple(asked))
        found = {}
        for i in asked:
            own = jax.tree.map(lambda a, i=i: a[i], down) if trip.addressed else down
            relays = purpose.waiting(e, i, self.roster.clients)
            packets = tuple(phase.packets_of(r, i) for r in relays)
            found[i] = {**own, **({"relayed": packets} if packets else {})}
            if along:
                found[i][ALONG] = dict(along[i])
        return found

    def _channel_words(self, phase: Phase, e: int) -> dict[str, Any]:
        """What the channel tells all clients with an exchange."""
        purpose = phase.purpose
        assert purpose is not None
        training = purpose is self.messages.training
        memory = self.state.channel[e] if training else purpose.forms[e].server_memory
        return channel_words(purpose.channel, purpose.forms[e].trip, memory, phase.held)

    def _now(self, phase: Phase, e: int) -> Any:
        assert phase.purpose is not None
        t = jnp.int32(phase.round)
        return now_at(self.key, self.secret, t, phase.purpose.first + e, SERVER)

    # ------------------------------------------------------------ taking in

    def took(self, replies: dict[int, bytes]) -> None:
        """The replies that came on this trip; sites without one are absent from here on."""
        phase = self._phase
        assert phase is not None
        good: dict[int, Any] = {}
        missing: dict[int, str] = {}
        self.refused += [(i, "it was not asked") for i in replies if i not in phase.asked]
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
        if missing and len(good) < self.enough:
            words = "; ".join(f"{self.roster.names[i]}: {why}" for i, why in missing.items())
            all_of = " (behind a blind channel all must, in every round)" if phase.blind else ""
            raise QuorumError(f"round {phase.round}: too few sites answered{all_of}: {words}")
        self.absent += phase.without(missing)
        if phase.culprit == NOBODY:
            self._take_in(good)
            if phase.purpose is self.messages.training:
                self.used[list(good)] += 1
        self._move_on(phase, len(good))

    def _move_on(self, phase: Phase, answered: int) -> None:
        """The next trip, after what must be done before it."""
        e = phase.step.e
        if phase.move_on(answered):
            found = phase.revealed()
            if not self.blind:
                self._step(phase, e, *found)
        if not phase.over or phase.culprit != NOBODY or phase.purpose is None:
            return
        if phase.purpose.name == "evaluation" and not self.blind:
            self._finish_evaluation()
        if phase.purpose.name == "certificate":
            self.measured = self.looks.measured()

    @property
    def enough(self) -> int:
        """How many of those who are asked on this trip must answer."""
        assert self._phase is not None
        return math.ceil(self._phase.least(self.quorum) * len(self._phase.asked))

    def _checked(self, i: int, data: bytes) -> Any:
        """The reply of site i, if it is what was asked for."""
        phase = self._phase
        assert phase is not None
        envelope = wire.envelope_of(data)
        wanted = phase.envelope("reply", i)._replace(sender=i, receiver=SERVER)
        if envelope == wanted._replace(kind="fault"):
            wire.decode(data, {})
            raise NotFiniteError(f"{envelope}: the reply is not finite")
        for what, found, right in zip(Envelope._fields, envelope, wanted, strict=True):
            if found != right:
                raise MessageError(f"{envelope}: its {what} is {found!r}, not {right!r}")
        found = wire.decode(data, phase.reply_like(i, self.messages.signed), phase.finite)[1]
        return phase.leg_checked(i, found)

    def _take_in(self, replies: dict[int, Any]) -> None:
        phase = self._phase
        assert phase is not None
        if phase.purpose is None:
            for i, reply in replies.items():
                for name, part in reply.items():
                    self._keys[name][i] = part
            return
        e, leg = phase.step
        form = phase.purpose.forms[e]
        if leg is DIGEST:
            self.looks.digests = {i: reply["digest"].tobytes() for i, reply in replies.items()}
        elif leg is not None and leg.name == VALUES:
            (self.values,) = (reply[VALUES] for reply in replies.values())
        elif phase.purpose.name == "statistics":
            self.looks.fit.took([replies[i] for i in sorted(replies)])
        elif leg is not None:
            phase.playing().took(leg.name, replies)
        elif isinstance(form.trip, Relay):
            for s, reply in replies.items():
                receivers = [r for r in form.trip.receivers(self.roster.clients) if r != s]
                for r, packet in zip(receivers, reply["sealed"], strict=True):
                    phase.packets.setdefault((e, r), {})[s] = packet
        elif phase.protocol is not None:
            phase.playing().took_wires(replies)
            phase.summed = replies
        else:
            self._step(phase, e, None, replies)

    def _step(self, phase: Phase, e: int, hidden: Any, replies: dict[int, Any]) -> None:
        """The server's part of an exchange, with what came or, where it was hidden, its sum."""
        assert phase.purpose is not None
        form = phase.purpose.forms[e]
        ids, present = phase.ids, phase.at_first
        if form.trip.only is not None:
            ids, present = np.array([form.trip.only]), np.ones(1, bool)
        present = np.isin(ids, list(replies)) & present
        if hidden is None:
            blank = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), form.sent)
            wires = [replies[i] if p else blank for i, p in zip(ids.tolist(), present, strict=True)]
        else:
            wires = [hidden]  # one wire that is the sum of all, so their sum is this one
        sent = jax.tree.map(lambda *a: jnp.stack(a), *wires)
        shares = np.where(present, np.asarray(self.roster.shares)[ids], 0).astype(self.roster.dtype)
        cohort = Cohort(*map(jnp.asarray, (ids.astype(np.int32), present, shares)))
        training = phase.purpose is self.messages.training
        old = self.state
        state, memory, info = (self.looks.state, form.server_memory, {})
        if training:
            state, memory, info = old.method, old.channel[e], old.info
        run, (_, take_in) = self.programs.of(phase.purpose.name)
        told = self._channel_words(phase, e)
        state, memory, info, fine = take_in(
            run, self.unnamed, e, self.server_rows, state, memory, info, sent, cohort,
            self._now(phase, e), jnp.asarray(phase.held),
        )  # fmt: skip
        phase.held = phase.held or bool(waiting(phase.purpose.channel, told))
        if not fine:
            phase.culprit = THE_SUM
        elif training:
            channel = (*old.channel[:e], memory, *old.channel[e + 1 :])
            self.state = ServerState(state, channel, info, old.best)
        else:
            self.looks.state = state

    def _finish_evaluation(self) -> None:
        phase, state = self._phase, self.state
        assert phase is not None
        values = np.asarray(self.finish(self.run, state, self.looks.sums(), self.test))
        best: Best | None = best_of(self.run, self.names, state.best, state, values, phase.round)
        self.state = ServerState(state.method, state.channel, state.info, best)
        self.values = values
