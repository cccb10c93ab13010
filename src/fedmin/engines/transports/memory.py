"""Loopback: the same client code, one client at a time, every message through real bytes.

Slow and honest: what a client knows is its own rows, its own state and what it decodes; what the
server knows is what it decodes. Errors name the client and the round.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core import payload
from fedmin.core.federation import Federation
from fedmin.core.ledger import Ledger
from fedmin.core.method import Now
from fedmin.core.result import Result
from fedmin.core.rows import Columns, Shard
from fedmin.engines import round as part
from fedmin.engines.history import History, fault_reason, result_of
from fedmin.engines.progress import Progress, Show, why_stop
from fedmin.engines.round import AGGREGATE, COHORT, NOBODY, SERVER, Run, Shapes, State, Told
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.checkpoint import Checkpoint, Keeper
from fedmin.engines.sessions.seal import introduce
from fedmin.engines.simulator.layout import alone, lay_out


class ClientError(RuntimeError):
    """Something went wrong at a client; the message names it and the round.

    >>> import fedmin
    >>> issubclass(fedmin.ClientError, RuntimeError)
    True
    """


@eqx.filter_jit
def _client(
    run: Run, e: int, rows: Shard | Columns, state: Any, memory: Any, down: Any, share, now: Now
):
    return part.client_part(
        run, run.method.exchanges(run.problem)[e], rows, state, memory, down, share, now
    )


@eqx.filter_jit
def _broadcast(run: Run, e: int, server: Any, now: Now):
    broadcast = run.method.exchanges(run.problem)[e].broadcast
    assert broadcast is not None
    return broadcast(run.problem, server, now)


@eqx.filter_jit
def _server(run: Run, e: int, server_rows, server, sent, shares, present, ids, population, now):
    exchange = run.method.exchanges(run.problem)[e]
    combined = sent if exchange.reduce == "gather" else part.combine(run, exchange, sent)
    return part.server_part(
        run, exchange, server_rows, server, combined, shares, present, ids, population, now
    )


@eqx.filter_jit
def _measure(run: Run, server, train, test):
    return part.measure(run, server, train, test, jnp.int32(0), 1, lambda sums: sums)


@dataclass(frozen=True)
class Loopback:
    """Run every client apart and send real bytes, in one process.

    >>> import fedmin
    >>> fedmin.Loopback()
    Loopback()
    """

    def run(
        self,
        run: Run,
        federation: Federation,
        *,
        rounds: int,
        seed: int,
        every: int,
        progress: Show,
        checkpoint: Checkpoint | None = None,
        interrupt: Callable[[], str] | None = None,
    ) -> Result:
        """Run and return the result."""
        # numbers become arrays, so that a new step size does not compile anew
        run = jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, float) else a, run)
        clock = time.perf_counter()
        session = _Session(run, federation, jax.random.key(seed))
        start = session.measure()
        history = History(session.columns, start)
        session.best = part.best_of(run, session.columns, None, session.server, start, 0)
        ledger = session.ledger
        keeper = Keeper(checkpoint, run, federation, seed, every)
        done, before, status, reason, state = keeper.resume(rounds, session.state, history, ledger)
        session.state = state
        ready = time.perf_counter()
        spent = before
        with Progress(type(run.method).__name__, rounds, progress) as bar:
            while done < rounds and status == "done":
                count, culprit = session.round(done)
                due = (done + 1) % every == 0 or done + 1 == rounds
                values = session.measure() if due and culprit == NOBODY else None
                if values is not None and session.lost(values):
                    culprit = AGGREGATE
                if culprit != NOBODY:
                    status, reason = "diverged", fault_reason(done, culprit, federation.names)
                    break
                ledger.add_rounds([count])
                done += 1
                spent = before + time.perf_counter() - ready
                if values is not None:
                    history.add(done, spent, values)
                    session.best = part.best_of(
                        run, session.columns, session.best, session.server, values, done
                    )
                    if run.stop is not None and bool(run.stop(session.columns, values)):
                        status, reason = "stopped", f"the stopping rule held after round {done}"
                bar.update(done, spent, history, ledger)
                if status == "done" and done < rounds and (why := why_stop(interrupt)):
                    status, reason = "interrupted", f"{why} after round {done}"
                if keeper.due(done):
                    status, reason = keeper.keep(
                        done, spent, status, reason, session.state, history, ledger
                    )
        keeper.close(done, spent, status, reason, session.state, history, ledger)
        return result_of(
            run, history, ledger, session.state, federation.num_clients,
            rounds=done, seed=seed, status=status, reason=reason,
            compile_seconds=ready - clock, run_seconds=spent,
        )  # fmt: skip


class _Session:
    """The parties of one run and what each of them holds."""

    def __init__(self, run: Run, federation: Federation, key):
        self.run, self.key, self.federation = run, key, federation
        self.population = federation.num_clients
        self.shards = [alone(federation, i) for i in range(self.population)]
        method, problem = run.method, run.problem
        self.server = method.init_server(problem, part.start_key(key, SERVER))
        self.clients = [
            method.init_client(problem, rows, part.start_key(key, i))
            for i, rows in enumerate(self.shards)
        ]
        self.shapes: tuple[Shapes, ...] = part.shapes(
            run, self.shards[0], self.server, self.clients[0], self.population
        )
        self.memory = [
            [jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), s.memory) for s in self.shapes]
            for _ in range(self.population)
        ]
        self.best: Any = None
        self.exchanges = method.exchanges(problem)
        self.told: list[list[Told]] = []
        self.ledger: Ledger = part.ledger_of(run, self.shapes, self.population)
        self.weight = {(x.exchange, x.direction, x.sealed): x.bytes for x in self.ledger.lines}
        self.sealers = introduce(self.population, self._carry_key) if self.ledger.setup else []
        self.columns = part.columns(run, federation.pool, federation.test)
        self.data = lay_out(federation, 1)

    @property
    def state(self) -> State:
        """All that the future depends on, as one value."""
        stack = partial(jax.tree.map, lambda *a: jnp.stack(a))
        memory = tuple(stack(*m) for m in zip(*self.memory, strict=True))
        return State(self.server, stack(*self.clients), memory, self.best)

    @state.setter
    def state(self, state: State) -> None:
        def of(i, tree):
            return jax.tree.map(lambda a: a[i], tree)

        self.server, self.best = state.server, state.best
        self.clients = [of(i, state.clients) for i in range(self.population)]
        self.memory = [[of(i, m) for m in state.memory] for i in range(self.population)]

    def _carry_key(self, data: bytes) -> bytes:
        if len(data) not in [line.bytes for line, _ in self.ledger.setup]:
            raise AssertionError(f"the ledger does not know a key message of {len(data)} bytes")
        return self.carry(data)

    def measure(self) -> np.ndarray:
        return np.asarray(_measure(self.run, self.server, self.data.train, self.data.test))

    def lost(self, values: np.ndarray) -> bool:
        """Whether the objective was recorded and is not finite."""
        columns = self.columns
        return "objective" in columns and not np.isfinite(values[columns.index("objective")])

    def round(self, t: int) -> tuple[int, int]:
        """One round: how many clients took part, and who is at fault."""
        draw = part.key_of(self.key, jnp.int32(t), 0, COHORT)
        cohort = self.run.participation.cohort(draw, jnp.int32(t), self.population)
        ids, present = (np.asarray(a) for a in cohort)
        culprit = NOBODY
        self.told = [[] for _ in range(self.population)]
        for e, exchange in enumerate(self.exchanges):
            asked = (ids, present)
            if exchange.only is not None:
                asked = (np.array([exchange.only]), np.array([True]))
            culprit = min(culprit, self._exchange(t, e, *asked))
        return int(present.sum()), culprit

    def _exchange(self, t: int, e: int, ids: np.ndarray, present: np.ndarray) -> int:
        now = Now(jnp.int32(t), part.key_of(self.key, jnp.int32(t), e, SERVER))
        exchange, like = self.exchanges[e], self.shapes[e]
        down = None if exchange.broadcast is None else _broadcast(self.run, e, self.server, now)
        culprit, replies = NOBODY, {}
        for i in ids[present].tolist():
            if down is not None:
                own = jax.tree.map(lambda a, i=i: a[i], down) if exchange.addressed else down
                message = self._send(wire.Envelope("down", t, e, i), own, like.down)
                self.told[i].append(Told(message, exchange.only))
            reply, fine = self._client(t, e, i)
            culprit = culprit if fine else min(culprit, i)
            if not exchange.private:
                reply = self._send(wire.Envelope("up", t, e, i), reply, like.sent)
            replies[i] = reply
        if exchange.private:
            fine = self._pass_on(t, e, replies)
            return culprit if fine else min(culprit, AGGREGATE)
        blank = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), like.sent)
        wires = [replies.get(i, blank) if p else blank for i, p in zip(ids, present, strict=True)]
        sent = jax.tree.map(lambda *a: jnp.stack(a), *wires)
        dtype = self.federation.pool.weight.dtype
        shares = np.where(present, self.federation.weights[ids], 0.0).astype(dtype)
        self.server, fine = _server(
            self.run, e, self.federation.server_rows, self.server, sent, jnp.asarray(shares),
            jnp.asarray(present), jnp.asarray(ids, jnp.int32), self.population, now,
        )  # fmt: skip
        return culprit if fine else min(culprit, AGGREGATE)

    def _client(self, t: int, e: int, i: int) -> tuple[Any, bool]:
        now = Now(jnp.int32(t), part.key_of(self.key, jnp.int32(t), e, i))
        share = jnp.asarray(self.federation.weights[i], self.federation.pool.weight.dtype)
        down = part.known(self.exchanges[e], self.told[i], i)
        try:
            sent, self.clients[i], self.memory[i][e], fine = _client(
                self.run, e, self.shards[i], self.clients[i], self.memory[i][e], down, share, now
            )
        except Exception as error:
            name = self.federation.names[i]
            raise ClientError(f"client {name}, round {t}, exchange {e}: {error}") from error
        return sent, bool(fine)

    def _pass_on(self, t: int, e: int, replies: dict[int, Any]) -> bool:
        """Bring the clients' replies to those who get them, sealed; is their sum finite?"""
        exchange, fine = self.exchanges[e], True
        everyone = range(self.population)
        for r in everyone if exchange.receiver is None else [exchange.receiver]:
            got = [
                reply if s == r else self._pass_one(t, e, s, r, reply)
                for s, reply in sorted(replies.items())
            ]
            combined = jax.tree.map(lambda *a: jnp.stack(a), *got)
            if exchange.reduce == "sum":
                combined = part.combine(self.run, exchange, combined)
            self.told[r].append(Told(part.delivered(exchange, combined), exchange.receiver))
            fine = fine and bool(payload.all_finite(combined))
        return fine

    def _pass_one(self, t: int, e: int, s: int, r: int, reply: Any) -> Any:
        """One reply from client s to client r: sealed, up to the server, down to r, opened."""
        up, down = (wire.Envelope(way, t, e, i) for way, i in (("up", s), ("down", r)))
        like, form = self.shapes[e].sent, wire.sealed_like(self.shapes[e].sent)
        try:
            data = self.sealers[s].seal(r, t, e, wire.encode(up, reply))
            outer = {"peer": np.int32(r), "sealed": np.frombuffer(data, np.uint8)}
            outer = self._send(up, outer, form, sealed=True)
            outer = self._send(down, {**outer, "peer": np.int32(s)}, form, sealed=True)
            data = self.sealers[r].open(s, t, e, np.asarray(outer["sealed"]).tobytes())
            return jax.tree.map(jnp.asarray, wire.decode(data, like)[1])
        except ValueError as error:
            sender, receiver = (self.federation.names[i] for i in (s, r))
            raise ClientError(
                f"client {receiver}, round {t}, exchange {e}: message from client {sender}: {error}"
            ) from error

    def _send(self, envelope: wire.Envelope, message: Any, like: Any, sealed: bool = False) -> Any:
        """A message to bytes and back, as its receiver sees it; the ledger must agree."""
        data = wire.encode(envelope, message)
        expected = self.weight[envelope.exchange, envelope.kind, sealed]
        if len(data) != expected:
            raise AssertionError(f"{envelope}: the ledger says {expected} bytes, sent {len(data)}")
        return jax.tree.map(jnp.asarray, wire.decode(self.carry(data), like)[1])

    def carry(self, data: bytes) -> bytes:
        """The road between a client and the server: all that the server gets or gives is here."""
        return data
