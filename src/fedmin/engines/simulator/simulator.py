"""The simulator: a whole federation in one process, at the speed of hand-written JAX."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core import checks
from fedmin.core.federation import Federation
from fedmin.core.ledger import Ledger
from fedmin.core.result import Result
from fedmin.engines import round as part
from fedmin.engines.history import History, fault_reason, result_of
from fedmin.engines.progress import Progress, Show, why_stop
from fedmin.engines.round import NOBODY, Run, Shapes
from fedmin.engines.sessions.checkpoint import Checkpoint, Keeper
from fedmin.engines.simulator.layout import Data, Form, bare, lay_out
from fedmin.engines.simulator.program import SEGMENT, Log, Plan, programs


@dataclass(frozen=True)
class Simulator:
    """Run all clients here, compiled; `devices` and `chunk` are chosen if not given.

    `devices` is how many of JAX's devices share the clients (a CPU has one a core); `chunk` is how
    many clients a device computes together (vmap), 1 meaning one after the other.

    >>> import fedmin
    >>> fedmin.Simulator(chunk=8)
    Simulator(chunk=8, devices=None)
    """

    chunk: int | None = None
    devices: int | None = None

    def __post_init__(self):
        for name in ("chunk", "devices"):
            if getattr(self, name) is not None:
                checks.at_least(name, getattr(self, name), 1)
        if self.devices is not None and self.devices > jax.device_count():
            raise ValueError(
                f"devices must be at most {jax.device_count()}, what JAX has, got {self.devices}; "
                f"FEDMIN_DEVICES sets how many there are, before fedmin is imported"
            )

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
        plan, data, ledger = self.prepare(run, federation)
        key = jax.random.key(seed)
        clock = time.perf_counter()
        begin, segment = programs(plan)
        state, start = begin(run, data, key)
        state, _ = segment(run, data, state, key, *_numbers(0, 0, every, rounds))
        jax.block_until_ready(state)
        compile_seconds = time.perf_counter() - clock
        history, length = History(plan.columns, start), 1
        keeper = Keeper(checkpoint, run, federation, seed, every)
        done, spent, status, reason, state = keeper.resume(rounds, state, history, ledger)
        with Progress(type(run.method).__name__, rounds, progress) as bar:
            while done < rounds and status == "done":
                length = min(length, SEGMENT, rounds - done, keeper.room(done))
                clock = time.perf_counter()
                state, log = segment(run, data, state, key, *_numbers(done, length, every, rounds))
                log = jax.device_get(jax.block_until_ready(log))
                took = time.perf_counter() - clock
                done, status, reason = _enter(log, history, ledger, spent, took, federation.names)
                spent += took
                bar.update(done, spent, history, ledger)
                if status == "done" and done < rounds and (why := why_stop(interrupt)):
                    status, reason = "interrupted", f"{why} after round {done}"
                status, reason = keeper.keep(done, spent, status, reason, state, history, ledger)
                # a watched run comes back to Python often enough for the bar to move
                length = int(length * (0.25 if bar.shown else 2.0) / max(took, 1e-4)) + 1
        keeper.close(done, spent, status, reason, state, history, ledger)
        return result_of(
            run, history, ledger, state, federation.num_clients,
            rounds=done, seed=seed, status=status, reason=reason,
            compile_seconds=compile_seconds, run_seconds=spent,
        )  # fmt: skip

    def prepare(
        self, run: Run, federation: Federation, lanes: bool = False
    ) -> tuple[Plan, Data, Ledger]:
        """What to compile, the data on the devices, and an empty ledger."""
        population = federation.num_clients
        devices = min(self.devices or jax.device_count(), population)
        draw = partial(run.participation.cohort, round=jnp.int32(0), population=population)
        (cohort,) = jax.eval_shape(draw, jax.random.key(0))[0].shape
        on_cpu = jax.default_backend() == "cpu"
        chunk = min(self.chunk or (1 if on_cpu else 64), -(-cohort // devices))
        columns = part.columns(run, federation.pool, federation.test)
        messages, client = messages_of(run, federation)
        owned = bool(jax.tree.leaves((client, [message.memory for message in messages])))
        plan = Plan(devices, chunk, population, Form.of(federation), columns, owned, lanes)
        return plan, lay_out(federation, devices), part.ledger_of(run, messages, population)


def messages_of(run: Run, federation: Federation) -> tuple[tuple[Shapes, ...], Any]:
    """The shapes of all messages of a round, and of a client's state."""
    rows = jax.eval_shape(lambda: Form.of(federation).view(bare(federation), 0))
    key = jax.random.key(0)
    server = jax.eval_shape(run.method.init_server, run.problem, key)
    client = jax.eval_shape(run.method.init_client, run.problem, rows, key)
    return part.shapes(run, rows, server, client, federation.num_clients), client


def _numbers(*values: int) -> tuple[np.int32, ...]:
    return tuple(np.int32(v) for v in values)


def _enter(
    log: Log, history: History, ledger: Ledger, spent: float, took: float, names: Any
) -> tuple[int, str, str]:
    """Enter a segment; rounds done, status and reason."""
    before, ran = len(ledger.counts), int(log.ran)
    fault, client = (int(v) for v in log.fault)
    good = ran if fault == NOBODY else fault - before
    ledger.add_rounds(log.counts[:good])
    for i in range(int(log.recorded)):
        at = int(log.at[i])
        if at <= before + good:
            history.add(at, spent + took * (at - before) / max(ran, 1), log.values[i])
    done = before + good
    if fault != NOBODY:
        return done, "diverged", fault_reason(fault, client, names)
    if log.stopped:
        return done, "stopped", f"the stopping rule held after round {done}"
    return done, "done", ""
