"""Loopback: the same client code, one client at a time, every message through real bytes.

Slow and honest: what a client knows is its own rows, its own state and what it decodes; what the
server knows is what it decodes. Errors name the client and the round.
"""

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedmin.engines import rounds as part
from fedmin.engines import wire
from fedmin.engines.history import History, fault_reason, result_of
from fedmin.engines.layout import lay_out
from fedmin.engines.progress import Interrupt, Progress
from fedmin.engines.rounds import AGGREGATE, COHORT, NOBODY, SERVER, Run, Shapes, State
from fedmin.federation import Federation
from fedmin.ledger import Ledger
from fedmin.method import Now
from fedmin.result import Result
from fedmin.rows import Rows, Shard


class ClientError(RuntimeError):
    """Something went wrong at a client; the message names it and the round.

    >>> import fedmin
    >>> issubclass(fedmin.ClientError, RuntimeError)
    True
    """


@eqx.filter_jit
def _client(run: Run, e: int, rows: Shard, state: Any, memory: Any, down: Any, share, now: Now):
    return part.client_part(
        run, run.method.exchanges(run.problem)[e], rows, state, memory, down, share, now
    )


@eqx.filter_jit
def _broadcast(run: Run, e: int, server: Any, now: Now):
    return run.method.exchanges(run.problem)[e].broadcast(run.problem, server, now)


@eqx.filter_jit
def _server(run: Run, e: int, server_rows, server, sent, shares, present, population, now):
    exchange = run.method.exchanges(run.problem)[e]
    combined = sent if exchange.reduce == "gather" else run.channel.combine(sent)
    return part.server_part(
        run, exchange, server_rows, server, combined, shares, present, population, now
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
        progress: bool | None,
    ) -> Result:
        """Run and return the result."""
        # numbers become arrays, so that a new step size does not compile anew
        run = jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, float) else a, run)
        clock = time.perf_counter()
        session = _Session(run, federation, jax.random.key(seed))
        start = session.measure()
        history = History(session.columns, start)
        best = part.best_of(run, session.columns, None, session.server, start, 0)
        ready = time.perf_counter()
        ledger, status, reason, done = session.ledger, "done", "", 0
        with Progress(type(run.method).__name__, rounds, progress) as bar, Interrupt() as interrupt:
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
                spent = time.perf_counter() - ready
                if values is not None:
                    history.add(done, spent, values)
                    best = part.best_of(run, session.columns, best, session.server, values, done)
                    if run.stop is not None and bool(run.stop(session.columns, values)):
                        status, reason = "stopped", f"the stopping rule held after round {done}"
                bar.update(done, done / spent, history.last("objective"), ledger.bytes())
                if interrupt.asked and done < rounds:
                    status, reason = "interrupted", f"Ctrl-C after round {done}"
        stack = partial(jax.tree.map, lambda *a: np.stack(a))
        memories = zip(*session.memory, strict=True)
        memory = tuple(stack(*m) for m in memories)
        state = State(session.server, stack(*session.clients), memory, best)
        return result_of(
            run, history, ledger, state, federation.num_clients,
            rounds=done, seed=seed, status=status, reason=reason,
            compile_seconds=ready - clock, run_seconds=time.perf_counter() - ready,
        )  # fmt: skip


class _Session:
    """The parties of one run and what each of them holds."""

    def __init__(self, run: Run, federation: Federation, key):
        self.run, self.key, self.federation = run, key, federation
        self.population = federation.num_clients
        self.shards = [_shard(federation, i) for i in range(self.population)]
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
        self.ledger: Ledger = part.ledger_of(self.shapes)
        self.columns = part.columns(run, federation.pool, federation.test)
        if run.stop is not None:
            run.stop.check(self.columns)
        self.data = lay_out(federation, 1)

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
        for e in range(len(self.shapes)):
            culprit = min(culprit, self._exchange(t, e, ids, present))
        return int(present.sum()), culprit

    def _exchange(self, t: int, e: int, ids: np.ndarray, present: np.ndarray) -> int:
        now = Now(jnp.int32(t), part.key_of(self.key, jnp.int32(t), e, SERVER))
        exchange = self.run.method.exchanges(self.run.problem)[e]
        down = _broadcast(self.run, e, self.server, now)
        culprit, wires = NOBODY, []
        for i, there in zip(ids.tolist(), present.tolist(), strict=True):
            if there:
                own = jax.tree.map(lambda a, i=i: a[i], down) if exchange.addressed else down
                message = self._send(wire.Envelope("down", t, e, i), own, self.shapes[e].down)
                reply, fine = self._client(t, e, i, message)
                wires.append(self._send(wire.Envelope("up", t, e, i), reply, self.shapes[e].sent))
                culprit = culprit if fine else min(culprit, i)
            else:
                blank = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), self.shapes[e].sent)
                wires.append(blank)
        sent = jax.tree.map(lambda *a: jnp.stack(a), *wires)
        dtype = self.federation.pool.weight.dtype
        shares = np.where(present, self.federation.weights[ids], 0.0).astype(dtype)
        self.server, fine = _server(
            self.run, e, self.federation.server_rows, self.server, sent, jnp.asarray(shares),
            jnp.asarray(present), self.population, now,
        )  # fmt: skip
        return culprit if fine else min(culprit, AGGREGATE)

    def _client(self, t: int, e: int, i: int, down: Any) -> tuple[Any, bool]:
        now = Now(jnp.int32(t), part.key_of(self.key, jnp.int32(t), e, i))
        share = jnp.asarray(self.federation.weights[i], self.federation.pool.weight.dtype)
        try:
            sent, self.clients[i], self.memory[i][e], fine = _client(
                self.run, e, self.shards[i], self.clients[i], self.memory[i][e], down, share, now
            )
        except Exception as error:
            name = self.federation.names[i]
            raise ClientError(f"client {name}, round {t}, exchange {e}: {error}") from error
        return sent, bool(fine)

    def _send(self, envelope: wire.Envelope, message: Any, like: Any) -> Any:
        """A message to bytes and back, as its receiver sees it; the ledger must agree."""
        data = wire.encode(envelope, message)
        lines = [x for x in self.ledger.lines if x.exchange == envelope.exchange]
        expected = next(x.bytes for x in lines if x.direction == envelope.kind)
        if len(data) != expected:
            raise AssertionError(f"{envelope}: the ledger says {expected} bytes, sent {len(data)}")
        return jax.tree.map(jnp.asarray, wire.decode(data, like)[1])


def _shard(federation: Federation, i: int) -> Shard:
    """Client i's own rows and nothing else, padded so that all clients share one program."""
    own = federation.client(i)
    missing = federation.capacity - own.count

    def pad(a):
        return jnp.asarray(np.concatenate([a, np.zeros((missing, *a.shape[1:]), a.dtype)]))

    rows: Rows = jax.tree.map(pad, own)
    number = jnp.int32
    return Shard(rows, number(0), number(own.count), federation.capacity, federation.even)
