"""A whole run of the two halves: a server session, sites behind a transport, the common loop."""

import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core.certificate import certificate_of
from fedmin.core.federation import Federation
from fedmin.core.ledger import Trips
from fedmin.core.measured import Measured
from fedmin.core.result import Result
from fedmin.core.roster import Roster
from fedmin.engines.drive import Segment, Settings, Stepper, drive, result_of
from fedmin.engines.measuring import is_lost
from fedmin.engines.messages import Messages
from fedmin.engines.round import NOBODY, SERVER, THE_SUM, Run, SiteState, State
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.checkpoint import Keeper, belongings
from fedmin.engines.sessions.files import LostError
from fedmin.engines.sessions.phase import QuorumError
from fedmin.engines.sessions.server import ServerSession
from fedmin.engines.sessions.site import run_name
from fedmin.engines.weighing import certificate_lines, ledger_of


class Transport(ABC):
    """A road between the server and its sites: it carries bytes and knows nothing of them."""

    @abstractmethod
    def deliver(
        self, messages: dict[int, bytes], deadline: float | None = None
    ) -> dict[int, bytes]:
        """Bring each site its message; the replies that came, within `deadline` seconds."""

    def states(self) -> list[SiteState] | None:
        """The sites' states where this process has them; None where they stay with their owners."""
        return None

    def close(self) -> None:
        """No more messages will come."""
        return


class Halves(Stepper):
    """A server session that drives its sites, one round at a time."""

    longest = 1

    def __init__(self, server: ServerSession, transport: Transport, every: int, rounds: int):
        self.server, self.transport, self.names = server, transport, server.names
        self.every, self.rounds = every, rounds
        self.control: Counter[str] = Counter()  # bytes of messages that serve checkpoints
        self.carried: Counter[str] = Counter()  # of all others
        self.start: Counter[str] = Counter()  # before round 0: whoever goes on sends them again

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The server's own; sites keep theirs."""
        return self.server.state

    @state.setter
    def state(self, state: Any) -> None:
        self.server.state = jax.tree.map(jnp.asarray, state)

    def begin(self) -> list[Any]:
        if self.server.messages.sealed and self.server.roster.clients > 1:
            self.server.open_setup()
            self._carry()
        values = self._evaluate(0)
        self.start = Counter(self.carried)
        self.first_look = self.server.outcome.trips
        return [values]

    def advance(self, done: int, length: int) -> list[Segment]:
        self.server.open_round(done)
        self._carry()
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
        self.server.open_evaluation(t)
        self._carry()
        if self.server.values is None:
            raise ValueError("the model could not be measured before the first round")
        return self.server.values

    def certify(self, t: int) -> Measured | None:
        """Look at the last model, after t rounds, for a certificate; None if that fails, and why.

        A run that has ended is not lost because a site is.
        """
        try:
            self.server.open_certificate(t)
            self._carry()
        except QuorumError as error:
            warnings.warn(f"no certificate: {error}", RuntimeWarning, stacklevel=2)
            return None
        if self.server.measured is None:
            words = "no certificate: the sums or slopes of the last model are not finite"
            warnings.warn(words, RuntimeWarning, stacklevel=2)
        return self.server.measured

    def _carry(self) -> None:
        while asks := self.server.asks():
            replies = self.transport.deliver(asks)
            self.carried.update(_weight("again", asks, replies))
            self.server.took(replies)

    def keep(self, done: int) -> None:
        self._tell_all("keep", done)

    def go_back(self, done: int) -> None:
        self._tell_all("back", done)
        if done:
            self.control += self.start
            self.start = Counter()

    def told(self) -> dict[str, int]:
        sent, self.control = dict(self.control), Counter()
        return sent

    def _tell_all(self, kind: str, done: int) -> None:
        """Every site keeps a round or goes back to it, and says so; or that it has lost it."""
        server = self.server
        asks = {
            i: wire.Envelope(kind, done, 0, SERVER, i, server.name)
            for i in range(server.roster.clients)
        }
        sent = {i: wire.encode(a, {}) for i, a in asks.items()}
        replies = self.transport.deliver(sent)
        self.control.update(_weight(kind, sent, replies))
        lost = []
        for i, ask in asks.items():
            wanted = ask._replace(kind="kept", sender=i, receiver=SERVER)
            said = wire.decode(replies[i], {})[0] if i in replies else None
            if kind == "back" and said == wanted._replace(kind="lost"):
                lost.append(server.roster.names[i])
            elif said != wanted:
                raise QuorumError(f"client {server.roster.names[i]} did not {kind} round {done}")
        if lost:
            raise LostError(f"of round {done} there is nothing whole at client {', '.join(lost)}")


def _weight(kind: str, down: dict[int, bytes], up: dict[int, bytes]) -> dict[str, int]:
    """The bytes of messages and of their replies, under such a name."""
    return {f"down {kind}": sum(map(len, down.values())), f"up {kind}": sum(map(len, up.values()))}


def run_halves(
    run: Run,
    federation: Federation,
    roster: Roster,
    open_sites: Callable[[Messages, list[Path | None]], Transport],
    settings: Settings,
) -> Result:
    """Run, and return the result; `open_sites` is given the messages and a folder a site."""
    test, checkpoint = federation.test, settings.checkpoint
    seed, every = settings.seed, settings.every
    server = ServerSession(
        run, roster, seed=seed, name=run_name(run, roster, seed),
        server_rows=federation.server_rows,
        test=test,
    )  # fmt: skip
    folders: list[Path | None] = [None] * roster.clients
    keeper = None
    if checkpoint is not None:
        folders = [Path(checkpoint.folder) / "sites" / str(i) for i in range(roster.clients)]
        # sites name their rows themselves
        devices = jax.default_backend()
        belongs = belongings(run, federation, roster, seed, every, engine="halves", devices=devices)
        keeper = Keeper(checkpoint, belongs, every)
    transport = open_sites(server.messages, folders)
    try:
        stepper = Halves(server, transport, every, settings.rounds)
        driven = drive(
            stepper, ledger_of(server.messages, roster.clients), roster.names,
            title=type(run.method).__name__, settings=settings, keeper=keeper,
        )  # fmt: skip
        book, measured = driven.books[0], None
        if run.certify and book.status != "diverged":
            measured = stepper.certify(book.done)
        states = transport.states()
    finally:
        transport.close()
    sites: Any = None
    if states is not None:
        sites = jax.tree.map(lambda *a: jnp.stack(a), *states)
    look = server.messages.certificate
    if measured is not None and look is not None:
        book.ledger.certificate = certificate_lines(look, roster.clients)
    result = result_of(
        run, book, State(server.state, sites), roster.clients, seed=seed,
        compile_seconds=driven.compile_seconds, run_seconds=driven.run_seconds,
    )  # fmt: skip
    if measured is None:
        return result
    return replace(result, certificate=certificate_of(result, measured))
