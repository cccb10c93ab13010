"""Many runs at once: the simulator's program with a leading axis over method, key and state."""

import dataclasses
import itertools
import time
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core import checks
from fedmin.core.federation import Federation
from fedmin.core.ledger import Ledger
from fedmin.core.method import Method
from fedmin.core.result import Result
from fedmin.engines.history import History, result_of
from fedmin.engines.round import Run, State
from fedmin.engines.simulator.program import SEGMENT, programs
from fedmin.engines.simulator.simulator import Simulator, _enter, _numbers


class Sweep(list[Result]):
    """The results of a sweep, a list with a way to pick the best."""

    def best(self, column: str = "objective", largest: bool = False) -> Result:
        """The run whose last value is smallest (or largest); diverged runs do not count."""
        fine = [r for r in self if r.status != "diverged" and np.isfinite(r.final(column))]
        if not fine:
            raise ValueError("every run of the sweep diverged; try smaller steps")
        return (max if largest else min)(fine, key=lambda r: r.final(column))


def variants(method: Method, over: dict[str, Iterable[Any]]) -> list[Method]:
    """The method with every combination of these values."""
    fields = {f.name: f for f in dataclasses.fields(method)}
    for name in over:
        checks.known(f"field of {type(method).__name__}", name, fields)
        if fields[name].metadata.get("static"):
            raise ValueError(
                f"{name} is a count or a shape, a program of its own for each value: "
                f"run them one by one; sweep takes numbers such as step sizes"
            )
    lists = [list(values) for values in over.values()]
    return [
        dataclasses.replace(method, **dict(zip(over, values, strict=True)))
        for values in itertools.product(*lists)
    ]


def run_lanes(
    engine: Simulator,
    run: Run,
    federation: Federation,
    over: dict[str, Iterable[Any]],
    *,
    seeds: list[int],
    rounds: int,
    every: int,
) -> Sweep:
    """All combinations and seeds, as lanes of one program."""
    methods = variants(run.method, over)
    if not methods:
        raise ValueError("over must give every field at least one value")
    lanes = [(method, seed) for method in methods for seed in seeds]
    stacked = jax.tree.map(
        lambda *a: jnp.stack([jnp.asarray(v) for v in a]), *[m for m, _ in lanes]
    )
    batch = eqx.tree_at(lambda r: r.method, run, stacked)
    keys = jnp.stack([jax.random.key(seed) for _, seed in lanes])
    plan, data, ledger = engine.prepare(run, federation, lanes=True)
    clock = time.perf_counter()
    begin, segment = programs(plan)
    state, start = begin(batch, data, keys)
    state, _ = segment(batch, data, state, keys, *_numbers(0, 0, every, rounds))
    jax.block_until_ready(state)
    compile_seconds = time.perf_counter() - clock
    books = [
        (History(plan.columns, values), Ledger(ledger.lines, setup=ledger.setup))
        for values in start
    ]
    ends: list[tuple[int, str, str]] = [(0, "done", "")] * len(lanes)
    done, spent = 0, 0.0
    while done < rounds:
        length = min(SEGMENT, rounds - done)
        clock = time.perf_counter()
        numbers = _numbers(done, length, every, rounds)
        state, log = segment(batch, data, state, keys, *numbers)
        log = jax.device_get(jax.block_until_ready(log))
        took = time.perf_counter() - clock
        for i, (history, ledger) in enumerate(books):
            if ends[i][1] == "done":
                one = jax.tree.map(lambda a, i=i: a[i], log)
                ends[i] = _enter(one, history, ledger, spent, took, federation.names)
        done, spent = done + length, spent + took
    return Sweep(
        result_of(
            dataclasses.replace(run, method=method), history, ledger, _lane(state, i),
            federation.num_clients,
            rounds=end[0], seed=seed, status=end[1], reason=end[2],
            compile_seconds=compile_seconds, run_seconds=spent / len(lanes),
        )
        for i, ((method, seed), (history, ledger), end) in enumerate(
            zip(lanes, books, ends, strict=True)
        )
    )  # fmt: skip


def _lane(state: State, i: int) -> State:
    return jax.tree.map(lambda a: a[i], state)
