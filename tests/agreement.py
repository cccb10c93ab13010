"""What tests of whole runs share: a small run, and when two runs are the same."""

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
