"""A whole run of the two halves: a server session, sites behind a transport, the common loop."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core.certificate import certificate_of
from fedmin.core.inference import SingularError
from fedmin.core.ledger import Trips
from fedmin.core.result import Result
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows
from fedmin.core.serialize import digest
from fedmin.engines.drive import Segment, Settings, Stepper, drive, result_of
from fedmin.engines.measuring import best_of, is_lost
from fedmin.engines.refusals import check_quorum
from fedmin.engines.round import NOBODY, SERVER, THE_SUM, Run, ServerState, SiteState, State
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.checkpoint import Keeper, belongings
from fedmin.engines.sessions.files import LostError
from fedmin.engines.sessions.phase import Absence, QuorumError
from fedmin.engines.sessions.server import ServerSession
from fedmin.engines.sessions.site import run_name
from fedmin.engines.sessions.tap import Tap, Tapped
from fedmin.engines.sessions.transport import Journaled, RestartedError, StoppedError, Transport
from fedmin.engines.weighing import ledger_of, lines_at_the_end


class Halves(Stepper):
    """A server session that drives its sites, one round at a time."""

    longest = 1

    def __init__(
        self, server: ServerSession, transport: Transport, every: int, rounds: int,
        deadline: float | None = None,
    ):  # fmt: skip
        self.server, self.transport, self.names = server, transport, server.names
        self.every, self.rounds, self.deadline = every, rounds, deadline
        self.sealed = server.messages.sealed and server.roster.clients > 1
        self.keyed = False  # clients have each other's keys
        self.control: Counter[str] = Counter()  # bytes of messages that serve checkpoints
        # sites that may be ahead: they hear how many replies the server has used before anything
        # else, and this is the round of the checkpoint that they may have to go back to
        self.goes_on = transport.replaying
        self.unsettled: dict[int, int] = self._everybody(0) if self.goes_on else {}

    def _everybody(self, done: int) -> dict[int, int]:
        return dict.fromkeys(range(self.server.roster.clients), done)

    # ------------------------------------------------------------ what survives a crash

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The server's own; sites keep theirs."""
        return {"server": self.server.state, "used": self.server.used}

    @state.setter
    def state(self, state: Any) -> None:
        self.server.state = jax.tree.map(jnp.asarray, state["server"])
        self.server.used = np.array(state["used"])

    def blank(self) -> np.ndarray:
        """What is recorded looks like this; the state as it is after it was recorded once."""
        server = self.server
        if server.blind:
            x = jax.eval_shape(server.run.problem.init, jax.random.key(0))
            return np.zeros(len(self.names), x.dtype)
        x = server.run.method.solution(server.state.method)
        row = np.zeros(len(self.names), x.dtype)
        best = best_of(server.run, self.names, None, server.state, row, 0)
        old = server.state
        server.state = ServerState(old.method, old.channel, old.info, best)
        return row

    def notes(self) -> dict[str, Any]:
        return {"absent": [list(each) for each in self.server.absent]}

    def take_notes(self, notes: dict[str, Any]) -> None:
        self.server.absent = [Absence(*each) for each in notes.get("absent", [])]

    def keep(self, done: int) -> None:
        """Sites that can be reached keep their state; the others have not moved since."""
        if not self.transport.replaying:
            self._tell_all("keep", done)

    def kept(self) -> None:
        self.transport.checkpointed()

    @property
    def full(self) -> bool:  # type: ignore[override]
        return self.transport.full

    def go_back(self, done: int, state: Any) -> None:
        """Sites in this process go back at once, the others as soon as they are asked something."""
        now = self.server.used
        self.server.used = np.array(state["used"])
        self.transport.go_on(done)
        self.unsettled = self._everybody(done)
        try:
            if self.transport.here() is None:
                self._tell_all("back", done)
        finally:
            self.server.used = now

    def control_sent(self) -> dict[str, int]:
        sent, self.control = dict(self.control), Counter()
        return sent

    def _tell_all(self, kind: str, done: int) -> None:
        """Every site that can be reached keeps a round or goes back to it, and says so; or that it
        has lost it."""
        server, there = self.server, self.transport.here()
        asks = {
            i: wire.Envelope(kind, done, 0, SERVER, i, server.name)
            for i in range(server.roster.clients)
            if there is None or i in there
        }
        sent = {i: self._with_used(ask) for i, ask in asks.items()}
        before = self._before(asks) if kind == "keep" else {}
        # one that has left since it was seen there is as one that was away: nobody waits for it
        least = len(asks) if there is None or self.deadline is None else 0
        replies = self.transport.deliver(sent, self.deadline, least, before)
        self._count(kind, sent, replies)
        lost = []
        for i, ask in asks.items():
            wanted = ask._replace(kind="kept", sender=i, receiver=SERVER)
            said = wire.decode(replies[i], {})[0] if i in replies else None
            if kind == "back" and said == wanted._replace(kind="lost"):
                lost.append(server.roster.names[i])
            elif said == wanted:
                self.unsettled.pop(i, None)
            elif there is None:
                raise QuorumError(f"client {server.roster.names[i]} did not {kind} round {done}")
        if lost:
            raise LostError(f"of round {done} there is nothing whole at client {', '.join(lost)}")

    def _with_used(self, ask: wire.Envelope) -> bytes:
        return wire.encode(ask, {"used": self.server.used[ask.receiver]})

    def _before(self, asked: Iterable[int]) -> dict[int, bytes]:
        """What some of those who are asked must hear first."""
        said = {
            i: self._with_used(
                wire.Envelope("back", self.unsettled[i], 0, SERVER, i, self.server.name)
            )
            for i in asked
            if i in self.unsettled
        }
        self._count("back", said, {})
        return said

    def _count(self, kind: str, down: dict[int, bytes], up: dict[int, bytes]) -> None:
        """Enter what serves checkpoints and nobody's method."""
        for way, some in (("down", down), ("up", up)):
            if some:
                self.control[f"{way} {kind}"] += sum(map(len, some.values()))

    # ------------------------------------------------------------ rounds

    def begin(self) -> list[Any]:
        values = self._evaluate(0)
        self.first_look = self.server.outcome.trips
        return [values]

    def advance(self, done: int, length: int) -> list[Segment]:
        self._phase(done, self.server.open_round)
        count, culprit, trips = self.server.outcome
        due = (done + 1) % self.every == 0 or done + 1 == self.rounds
        stopped, values = False, np.zeros((0, len(self.names)))
        look: Trips = ()
        if due and culprit == NOBODY:
            found = self._evaluate(done + 1)
            # what is not finite there is the model's doing, and no client's
            look = self.server.outcome.trips
            if self.server.outcome.culprit != NOBODY or is_lost(self.names, found):
                culprit = THE_SUM
            values = found[None]
            rule = self.server.run.stop
            stopped = rule is not None and bool(rule(self.names, found))
        fault = (NOBODY, NOBODY) if culprit == NOBODY else (done, culprit)
        at, recorded = [done + 1], len(values)
        return [Segment(values, at, recorded, [count], 1, fault, stopped, trips, look)]

    def _evaluate(self, t: int) -> np.ndarray:
        self._phase(t, self.server.open_evaluation)
        if self.server.values is None:
            raise ValueError("the model could not be measured before the first round")
        return self.server.values

    def look_back(self, name: str, t: int, interrupted: bool = False) -> Any:
        """What a look at the last model found, after t rounds; None if it failed, and why.

        A run that has ended is not lost because a site is.
        """
        try:
            self._phase(t, partial(self.server.open_last, name))
            measured, fit = self.server.measured, self.server.looks.fit
            found = measured if name == "certificate" else fit.found
            why = "the sums or slopes of the last model are not finite" if found is None else ""
        except (QuorumError, SingularError, StoppedError) as error:
            if isinstance(error, StoppedError) and not interrupted:  # started again it is taken
                raise
            found, why = None, str(error)
        if why:
            warnings.warn(f"no {name}: {why}", RuntimeWarning, stacklevel=2)
        return found

    def _phase(self, t: int, open: Callable[[int], None]) -> None:
        """Carry all trips of a phase; from its beginning again if clients need new keys."""
        server = self.server
        before = server.state, server.used.copy()
        while True:
            try:
                if self.sealed and not self.keyed and not self.transport.replaying:
                    self._exchange_keys(t)
                open(t)
                self._ask_and_take()
                return
            except RestartedError:
                server.state, server.used = before[0], before[1].copy()
                self.keyed = False
                self.unsettled = {**self._everybody(t), **self.unsettled}

    def _exchange_keys(self, t: int) -> None:
        self.keyed = True  # as soon as the last of them has what follows
        if self.goes_on:  # what a site sealed for a server that was killed, no key opens any more
            self.unsettled = {**self._everybody(t), **self.unsettled}
        self.server.open_setup(t)
        self._ask_and_take()

    def _ask_and_take(self) -> None:
        server = self.server
        while asks := server.asks():
            if self.sealed and not self.keyed and not self.transport.replaying:
                raise RestartedError  # this phase began before this server did
            found, before = len(server.absent), self._before(asks)
            server.took(self.transport.deliver(asks, self.deadline, server.enough, before))
            missing = {each.site: each.round for each in server.absent[found:]}
            for i in asks:
                if i not in missing:
                    self.unsettled.pop(i, None)
            self.unsettled = missing | self.unsettled


class Terms(NamedTuple):
    """On which terms a round counts without some of its sites, and what else a transport needs."""

    quorum: float = 1.0  # the least share of those who are asked that must answer
    deadline: float | None = None  # seconds after which a quorum is enough
    keyed: bool = False  # sites name their rows, in a certificate, under secrets of their own
    journal: bool = False  # the server can be killed at any moment, and goes on beside its sites
    secret: Any = None  # a JAX key from which the server draws, if not the seed


class Own(NamedTuple):
    """The rows that the server itself has."""

    server_rows: Rows | None = None
    test: Rows | None = None


Open = Callable[[ServerSession, list[Path | None]], Transport]  # given a folder a site


def run_halves(
    run: Run, roster: Roster, own: Own, open_sites: Open, settings: Settings, terms: Terms = Terms()
) -> Result:
    """Run, and return the result."""
    check_quorum(run.channel, roster, terms.quorum)
    checkpoint, seed, every = settings.checkpoint, settings.seed, settings.every
    server = ServerSession(
        run, roster, seed=seed, name=run_name(run, roster, seed), quorum=terms.quorum,
        server_rows=own.server_rows, test=own.test, secret=terms.secret,
    )  # fmt: skip
    server.looks.keyed = terms.keyed
    folders: list[Path | None] = [None] * roster.clients
    keeper, devices = None, jax.default_backend()
    # sites name their rows themselves
    belongs = belongings(run, own, roster, seed, every, engine="halves", devices=devices)
    if checkpoint is not None:
        folders = [Path(checkpoint.folder) / "sites" / str(i) for i in range(roster.clients)]
        keeper = Keeper(checkpoint, belongs, every)
    tap = None if settings.tap is None else Tap(settings.tap)  # refused before anybody is asked
    transport = open_sites(server, folders)
    if tap is not None:
        transport = Tapped(transport, tap)
    if terms.journal and checkpoint is not None:
        path = Path(checkpoint.folder) / "journal.bin"
        transport = Journaled(transport, path, digest(belongs))
    try:
        stepper = Halves(server, transport, every, settings.rounds, terms.deadline)
        driven = drive(
            stepper, ledger_of(server.messages, roster.clients), roster.names,
            title=type(run.method).__name__, settings=settings, keeper=keeper,
        )  # fmt: skip
        book, last = driven.books[0], {}
        for name, wanted in (("certificate", run.certify), ("statistics", run.statistics)):
            if wanted and book.status != "diverged":
                last[name] = stepper.look_back(name, book.done, book.status == "interrupted")
        states = transport.states()
    finally:
        transport.close()
    sites: Any = None
    ended = server.state
    if states is not None:
        if server.blind:  # all parties are one person's: the model is that of the first site
            ended = states[0].server
            states = [SiteState(each.client, each.memory) for each in states]
        sites = jax.tree.map(lambda *a: jnp.stack(a), *states)
    for name in [name for name, found in last.items() if found is not None]:
        look = getattr(server.messages, name)
        book.ledger.certificate += lines_at_the_end(look, roster.clients)
    result = result_of(
        run, book, State(ended, sites), roster.clients, seed=seed,
        compile_seconds=driven.compile_seconds, run_seconds=driven.run_seconds,
        absent=tuple(server.absent), inference=last.get("statistics"),
    )  # fmt: skip
    measured = last.get("certificate")
    if measured is None:
        return result
    return replace(result, certificate=certificate_of(result, measured))
