"""step="auto": no number from the user, and no run that ends above its start."""

import numpy as np
import pytest

import cases
import fedmin
import known
import test_common
from agreement import run
from fedmin import Auto, FedAvg, FedOpt, FedProx, FedSSO, Full, Scaffold
from test_oracles import averaged, local_steps

CASE = cases.Case(
    "fedavg_auto",
    FedAvg(Auto(0.01, 0.4, 1.2), local_steps=2, batches=Full()),
    cases.guarded_descent(0.01, 0.4, 1.5),
    FedAvg(Auto(0.01, 0.4, 1.5), batches=Full()),
    grid=(Auto(), Auto(grow=2.0)),
    channel=fedmin.Plain(),
    tolerance=1e-5,
    precision=1e-11,
)

AUTOS = [
    FedAvg("auto", local_steps=3),
    Scaffold("auto", local_steps=3),
    FedProx("auto", local_steps=3),
    FedOpt("auto", local_steps=3),
    FedSSO("auto", local_steps=3),
]


def badly_scaled(factor: float = 1.0, seed: int = 0) -> known.World:
    """Logistic regression on columns of lengths from 1 to 1,000, all times a factor."""
    rng = np.random.default_rng(seed)
    scale = factor * np.array([1.0, 30.0, 1000.0])
    clients = []
    for size in (20, 30, 25):
        z = rng.standard_normal((size, 3)) * scale
        clients.append((z, (z @ (1 / scale) + rng.standard_normal(size) > 0).astype(int)))
    return known.World(fedmin.Logistic(3), tuple(clients))


def steepest(H: np.ndarray, g: np.ndarray) -> float:
    v = g / np.linalg.norm(g)
    for _ in range(10):
        v = H @ v / np.linalg.norm(H @ v)
    return np.linalg.norm(H @ v)


def test_fedavg_in_numpy():
    """The rule of server/guard.py around FedAvg, with unequal clients; some steps are undone."""
    world, x = known.logistic(), np.zeros(known.FEATURES)
    hessian = lambda i: np.array(
        [(world.gradient(i, 1e-5 * e) - world.gradient(i, -1e-5 * e)) / 2e-5 for e in np.eye(3)]
    )
    eta = 1 / sum(
        p * steepest(hessian(i), world.gradient(i, x)) for i, p in enumerate(world.shares)
    )
    kept = tried = x
    first = lowest = world.objective(x)
    scale, undone, move = 1.0, 0, 0 * x
    for _ in range(39):
        if world.objective(tried) <= lowest + 0.02 * (first - lowest):
            kept, lowest = tried, min(lowest, world.objective(tried))
            local = local_steps(lambda i, y, _, s=scale: world.gradient(i, y), eta * scale, 3)
            move = averaged(world, local, kept, list(range(5)))
            scale *= 1.5
        else:
            move, scale, undone = 0.3 * move, 0.3 * scale, undone + 1
        tried = kept + move
    method = FedAvg(Auto(shrink=0.3, grow=1.5), local_steps=3, batches=Full())
    result = run(world, method, rounds=40)
    assert result.info["undone"] == undone > 2
    # the Hessian above is by differences of gradients
    np.testing.assert_allclose(result.solution, kept, rtol=1e-5)
    np.testing.assert_allclose(result.final("objective"), world.objective(kept), rtol=1e-10)


@pytest.mark.parametrize("route", test_common.ROUTES)
def test_it_passes_the_common_suite(route):
    """Fixed shapes, simulator = loopback, ledger = encoded length: with all clients or some."""
    options = test_common.ROUTES[route](CASE)
    test_common.test_shapes_are_fixed(CASE, options)
    test_common.test_simulator_and_loopback_agree(CASE, options)
    test_common.test_ledger_is_the_encoded_length(CASE, options)


def test_one_client_is_guarded_gradient_descent():
    test_common.test_one_client_one_step_is_central(CASE)
    test_common.test_reaches_the_minimizer(CASE)
    test_common.test_no_retrace(CASE)
    test_common.test_sweep_is_single_runs(CASE)


@pytest.mark.parametrize("method", AUTOS, ids=lambda m: type(m).__name__)
def test_no_method_ends_above_its_start(method):
    """Columns a thousand times as long as others: every default number fails there."""
    world = badly_scaled()
    result = run(world, method, rounds=60)
    objective = np.asarray(result.history["objective"])
    gained = objective[0] - np.minimum.accumulate(objective)
    assert result.status == "done"
    assert objective[-1] < 0.85 * objective[0]
    assert np.all(objective <= objective[0] + 1e-12)
    assert np.all(objective[0] - objective >= gained - 0.02 * gained - 1e-12)
    if isinstance(method, FedOpt):  # its steps do not grow with the gradient
        return
    with pytest.warns(RuntimeWarning, match="above"):
        number = run(world, type(method)(local_steps=3), rounds=60)
    assert number.status in ("risen", "diverged")


@pytest.mark.parametrize("kind", [FedAvg, Scaffold, FedSSO])
def test_a_unit_makes_no_difference(kind):
    """All columns in a unit 1,000 times as large: the same predictions in every round."""
    method = kind("auto", local_steps=2, batches=Full())
    ends = [run(badly_scaled(factor), method, rounds=12) for factor in (1e-3, 1.0)]
    objectives = [end.history["objective"] for end in ends]
    np.testing.assert_allclose(*objectives, rtol=1e-6)
    np.testing.assert_allclose(1e-3 * ends[0].solution, ends[1].solution, rtol=1e-5)


def test_absent_clients_compare_the_same_rows():
    """Two clients of five a round: the kept model goes down too, and f_i there up."""
    world, some = known.shared(), fedmin.Uniform(2)
    method = FedAvg("auto", local_steps=2, batches=Full())
    result = run(world, method, rounds=300, participation=some)
    assert result.final("objective") < 1e-6 * result.history["objective"][0]
    kinds = result.ledger.by_kind()
    assert kinds["down kept"] == kinds["down model"]
    assert kinds["up before"] == kinds["up value"]
    with pytest.raises(ValueError, match=r"Scaffold with step=.auto. needs all clients"):
        run(world, Scaffold("auto"), participation=some)


@pytest.mark.parametrize("rounds", [5, 6, 7])
def test_controls_are_taken_back(rounds):
    """SCAFFOLD's c is the mean of the c_i whatever was undone, once clients have gone back."""
    world = known.apart()
    method = Scaffold(Auto(rise=0.0, grow=4.0), local_steps=2, batches=Full())
    result = run(world, method, rounds=rounds)
    server, clients = result.server, result.clients
    own = clients.before if bool(server.undone) else clients.own
    np.testing.assert_allclose(world.shares @ np.asarray(own), server.own.c, rtol=1e-10)
    assert result.info["undone"] > 0


def test_a_move_that_is_not_finite_is_not_made():
    """A huge growth: after some rounds the move overflows, and the model stays where it was."""
    world = known.apart()
    method = FedAvg(Auto(rise=0.0, shrink=0.5, grow=1e300), batches=Full())
    result = run(world, method, rounds=6)
    assert np.all(np.isfinite(result.solution))
    assert result.final("objective") <= result.history["objective"][0]
    assert result.info["undone"] > 0


def test_what_a_pace_makes_of_each_method():
    """eta = 1/L and a scale: of what is sent unscaled the step; FedOpt's server step; and FedSSO's
    bounds in units of L, whose step alone does not grow, since longer ones are the curvature's."""
    eta, few, many = (np.float64(number) for number in (0.5, 0.25, 3.0))
    for method in AUTOS[:3]:
        assert method.at_pace(eta, many).step == 1.5
    adam = FedOpt("auto", server_step=0.1)
    assert (adam.at_pace(eta, many).step, adam.at_pace(eta, many).server_step) == (0.5, 0.1 * 3)
    sso = FedSSO("auto", least=0.1, most=20.0, reach=7.0)
    for scale, step in ((few, 0.125), (many, 0.5)):
        paced = sso.at_pace(eta, scale)
        assert (paced.step, paced.reach) == (step, 7 * scale)
        assert (paced.least, paced.most) == (0.2, 40.0)


def test_the_words_of_a_refusal():
    with pytest.raises(ValueError, match='FedMid takes no step="auto"; give a number'):
        fedmin.FedMid("auto")
    with pytest.raises(TypeError, match="step must be a number, got Auto"):
        fedmin.FedAC("auto")
    with pytest.raises(TypeError, match="step must be a number, got 'fast'"):
        FedAvg("fast")
    with pytest.raises(ValueError, match="shrink must be more than 0 and below 1"):
        Auto(shrink=1.0)
    with pytest.raises(ValueError, match=r"unchanged|as they"):
        run(known.apart(), FedAvg("auto"), channel=fedmin.TopK(1))
    rows = fedmin.PrivateRows(0.5, clip=1.0, multiplier=1.0)
    with pytest.raises(ValueError, match="PrivateRows"):
        run(known.apart(), FedAvg("auto", batches=rows))
