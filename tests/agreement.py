"""What tests of whole runs share: a small run, when two runs are the same, what was compiled."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np

import fedmin
import known

ONE_BY_ONE = fedmin.Simulator(chunk=1, devices=1)


def run(world: known.World, method: fedmin.Method, **options) -> fedmin.Result:
    settings = {"rounds": 6, "engine": ONE_BY_ONE, "progress": False} | options
    return fedmin.minimize(world.problem, world.federation, method, **settings)


def leaves(result: fedmin.Result) -> list[np.ndarray]:
    """Everything a run ends with: solution, all states, what was recorded (but the clock)."""
    history = {k: v for k, v in result.history.items() if k != "seconds"}
    ends = (result.solution, result.server, result.clients, result.memory, history)
    return [np.asarray(a) for a in jax.tree.leaves((ends, result.ledger.counts))]


def assert_same(a: fedmin.Result, b: fedmin.Result, rtol: float = 1e-9) -> None:
    """The two runs ended alike, to rounding (bit by bit with rtol = 0)."""
    assert (a.status, a.reason, a.rounds) == (b.status, b.reason, b.rounds)
    ours, theirs = leaves(a), leaves(b)
    assert [(u.shape, u.dtype) for u in ours] == [(u.shape, u.dtype) for u in theirs]
    for u, v in zip(ours, theirs, strict=True):
        if rtol == 0:
            np.testing.assert_array_equal(u, v)
        else:
            np.testing.assert_allclose(u, v, rtol=rtol, atol=1e-3 * rtol)


def assert_same_bits(one: fedmin.Result, other: fedmin.Result) -> None:
    """Everything that a server has, bit for bit; clients' states stay with them."""
    assert (one.status, one.rounds) == (other.status, other.rounds)
    np.testing.assert_array_equal(one.solution, other.solution)
    for name in one.history:
        if name != "seconds":
            np.testing.assert_array_equal(one.history[name], other.history[name])
    assert one.ledger.by_kind() == other.ledger.by_kind()
    assert [tuple(each) for each in one.absent] == [tuple(each) for each in other.absent]


@contextmanager
def compiling() -> Iterator[list[str]]:
    """The names of all programs that are compiled inside.

    JAX says so itself: no cache is asked, whose size depends on what other tests left in it.
    """
    names: list[str] = []

    def listen(event: str, seconds: float, **words) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(str(words["fun_name"]))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield names
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
