"""What is said of runs that ended: higher than they began, or where they began."""

import dataclasses
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import fedmin
import known
from agreement import run
from fedmin.judging import judged
from fedmin.methods import METHODS


def test_a_run_that_ends_above_where_it_began_says_so(apart):
    step = fedmin.constants(apart.problem, apart.federation, iterations=10).step
    with pytest.warns(
        RuntimeWarning, match=r"FedSGD: the objective ended at .*, above .* began; try"
    ):
        result = run(apart, fedmin.FedSGD(2.5 * step), rounds=25)
    assert result.status == "risen"
    assert f"the objective ended at {result.final('objective'):.4g}, above" in result.reason
    assert result.reason in repr(result)
    assert result.reason in result._repr_html_()
    assert f"1/L is {step:.3g}" in result.reason
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(apart, fedmin.FedSGD(step), rounds=25).status == "done"  # the step it said


def test_a_sweep_says_it_too_and_measures_nothing(apart):
    steps = [k * fedmin.constants(apart.problem, apart.federation).step for k in (1, 2.5)]
    pieces = (apart.problem, apart.federation, fedmin.FedSGD())
    found = fedmin.sweep(*pieces, rounds=25, over={"step": steps})
    assert [each.status for each in found] == ["done", "risen"]
    assert "fedmin.constants(problem, federation) measures one" in found[1].reason


@pytest.fixture(scope="module")
def plain() -> fedmin.Result:
    return run(known.shared(), fedmin.FedSGD(0.5), rounds=2)


def verdict(result: fedmin.Result, values, rounds: int = 100, **changes) -> str:
    """What is said of such a history."""
    world = known.shared()
    values = np.asarray(values, float)
    at = np.linspace(0, rounds, len(values)).astype(int)
    history = {"round": at, "objective": values}
    result = dataclasses.replace(result, history=history, rounds=rounds, **changes)
    parts = fedmin.Everyone(), fedmin.Plain(), (fedmin.Objective(),), None
    from fedmin.assembling import assemble

    made = assemble(world.problem, world.federation, result.method, *parts)
    return judged(result, made, world.federation, measure=False).status


NOISE = np.random.default_rng(0).normal(size=40)


@pytest.mark.parametrize(
    ("values", "rounds", "status"),
    [
        ([1.0, 0.5, 0.1], 100, "done"),
        ([1.0, 0.5, 1.2], 100, "risen"),
        ([1.0, 0.2, 0.1, 0.7], 100, "risen"),  # most of what was won is lost
        ([1.0, 0.1, 0.25], 100, "risen"),  # the double and more
        ([1.0, 0.1, 0.15], 100, "done"),
        ([1.0, 1e-9, 1e-7], 100, "done"),  # a hundredfold, of nothing
        ([-1.0, -3.0, -1.5], 100, "risen"),
        ([-1.0, -3.0, -2.9], 100, "done"),
        ([1.0, 1.2], 5, "done"),  # the first rounds of a Frank-Wolfe method
        ([1.0, 2.5], 5, "risen"),
        ([1.0, *(0.01 + 0.003 * np.abs(NOISE))], 100, "done"),  # noise at the minimum
        ([1.0, *(0.01 * np.exp(NOISE))], 100, "done"),
        ([0.01, *(0.01 + 0.001 * NOISE)], 100, "done"),  # from the start
        ([1.0, *(1.0 + 0.01 * np.abs(NOISE) + 0.05)], 100, "risen"),
    ],
)
def test_what_is_risen_and_what_is_noise(plain, values, rounds, status):
    assert verdict(plain, values, rounds) == status


@pytest.mark.parametrize("status", ["stopped", "interrupted", "diverged"])
def test_runs_that_ended_otherwise_keep_their_status(plain, status):
    assert verdict(plain, [1.0, 5.0], status=status) == status


class Refuses(fedmin.FedSGD):
    """A method whose server takes no step after the first few."""

    after: int = 0

    def server(self, problem, server_rows, x, learnt, now):
        moved = super().server(problem, server_rows, x, learnt, now)
        return jnp.where(now.round < self.after, moved, x)


def test_a_method_that_stands_still_says_so(apart):
    with pytest.warns(
        RuntimeWarning, match="Refuses: the model did not move from the start: every"
    ):
        result = run(apart, Refuses(0.1), rounds=3)
    assert result.status == "stalled"
    assert "would lower the objective from" in result.reason
    with pytest.warns(RuntimeWarning, match="did not move from round 2 on"):
        assert run(apart, Refuses(0.1, after=2), rounds=14).status == "stalled"
    # at the minimum standing still is all there is to do
    assert run(apart, Refuses(0.1), rounds=3, start=apart.minimizer).status == "done"
    with pytest.warns(RuntimeWarning, match="nobody took part in any round"):
        run(apart, fedmin.FedSGD(0.1), rounds=3, participation=fedmin.Bernoulli(1e-9))


def test_pairs_that_are_all_refused_are_told():
    method = fedmin.FedSSO()
    assert method.concerns({"pairs_accepted": 0, "pairs_repaired": 0, "pairs_skipped": 2}) == ""
    assert method.concerns({"pairs_accepted": 1, "pairs_repaired": 0, "pairs_skipped": 9}) == ""
    told = method.concerns({"pairs_accepted": 0, "pairs_repaired": 0, "pairs_skipped": 9})
    assert "all 9 pairs were refused" in told


def test_constraints_may_let_the_objective_rise(apart):
    """|x|^2 from 0: it must rise, or the loss stays above its limit."""
    problem = fedmin.smallest(fedmin.LeastSquares(apart.dim), loss_at_most=10.0)
    parts = [(z, y) for z, y in apart.clients]
    rows = fedmin.Federation.from_clients(parts)
    start = np.full(apart.dim, 1e-3)
    result = fedmin.minimize(problem, rows, fedmin.SSCA(), rounds=30, start=start)
    assert result.status in ("done", "infeasible")


@pytest.mark.parametrize("name", METHODS)
def test_no_method_has_concerns_before_anything_happened(name):
    assert METHODS[name]().concerns({}) == ""
