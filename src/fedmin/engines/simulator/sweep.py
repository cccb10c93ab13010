"""Many runs at once: the simulator's program with a leading axis over method, key and state."""

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core import checks
from fedmin.core.federation import Federation
from fedmin.core.method import Method
from fedmin.core.result import Result
from fedmin.core.serialize import digest
from fedmin.engines.drive import Settings, drive, result_of
from fedmin.engines.round import Run
from fedmin.engines.simulator.simulator import Compiled, Simulator


class Sweep(list[Result]):
    """The results of a sweep, a list with a way to pick the best."""

    def best(self, column: str = "objective", largest: bool | None = None) -> Result:
        """The run whose last value is best; diverged runs do not count.

        The smallest or the largest, as the column's metric says, unless `largest` does.
        """
        fine = [r for r in self if r.status != "diverged" and np.isfinite(r.final(column))]
        if not fine:
            raise ValueError("every run of the sweep diverged; try smaller steps")
        largest = fine[0].rises(column) if largest is None else largest
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
    for name, values in zip(over, lists, strict=True):
        told = [digest(value) for value in values]
        if len(set(told)) < len(told):
            raise ValueError(f"over has a value of {name} twice: {values}; each of them is one run")
    return [
        dataclasses.replace(method, **dict(zip(over, values, strict=True)))
        for values in itertools.product(*lists)
    ]


def run_many(
    engine: Simulator,
    run: Run,
    federation: Federation,
    over: dict[str, Iterable[Any]],
    *,
    seeds: list[int],
    rounds: int,
    every: int,
) -> Sweep:
    """All combinations and seeds, side by side in one program."""
    methods = variants(run.method, over)
    if not methods:
        raise ValueError("over must give every field at least one value")
    pairs = [(method, seed) for method in methods for seed in seeds]
    stacked = jax.tree.map(
        lambda *a: jnp.stack([jnp.asarray(v) for v in a]), *[method for method, _ in pairs]
    )
    run = dataclasses.replace(run, method=methods[0])  # it may have fields that were None before
    batch = eqx.tree_at(lambda r: r.method, run, stacked)
    keys = jnp.stack([jax.random.key(seed) for _, seed in pairs])
    spec, shapes, data, ledger = engine.prepare(run, federation, batched=True)
    stepper = Compiled(spec, shapes, batch, data, keys, every, rounds)
    driven = drive(
        stepper, ledger, federation.names, title=type(run.method).__name__,
        settings=Settings(rounds, seeds[0], every),
    )  # fmt: skip
    return Sweep(
        result_of(
            dataclasses.replace(run, method=method), book,
            jax.tree.map(lambda a, i=i: a[i], stepper.state), federation.num_clients, seed=seed,
            compile_seconds=driven.compile_seconds,
            run_seconds=driven.run_seconds / len(pairs),
        )
        for i, ((method, seed), book) in enumerate(zip(pairs, driven.books, strict=True))
    )  # fmt: skip
