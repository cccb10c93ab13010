"""Federated Frank-Wolfe: the paper's pseudo-code, its theorems, and what it is compared with."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import fedmin
import known
from agreement import assert_same, run
from fedmin import FedDR, FedDualAvg, FedFW, FedFWPlus, FedFWSto, FedMid, Full, L1Ball, L2Ball
from fedmin.client.differences import rms
from fedmin.client.routes import Atoms, Copies, SharedAtoms
from test_oracles import cohorts

pytestmark = [
    # the paper's steps, with everybody and with some: what they compute is what is tested
    pytest.mark.filterwarnings("ignore:FedFW.*its steps are for clients:RuntimeWarning"),
]
RADIUS = 0.7
KINDS = {"fedfw": FedFW, "fedfw+": FedFWPlus, "fedfw-sto": FedFWSto}
ROUNDS = 5


def over(world: known.World, domain: fedmin.Domain) -> known.World:
    return replace(world, problem=fedmin.over(world.core, domain))


def corner(g: np.ndarray) -> np.ndarray:
    """The atom of the l1 ball."""
    s, j = np.zeros_like(g), np.abs(g).argmax()
    s[j] = -RADIUS * np.sign(g[j])
    return s


def algorithm_1(world, kind, first_penalty, drawn, lmo=corner):
    """[dadras2024federated] Algorithm 1 with p_i for 1/n in the means; x_i and xbar every round."""
    n = len(world.clients)
    x, y, d = (np.zeros((n, world.dim)) for _ in range(3))
    mean, lambda_0, trace = np.zeros(world.dim), first_penalty / n, []
    for t, cohort in enumerate(drawn, start=1):
        sto = kind == "fedfw-sto"
        eta = 9 / (t + 8) if sto else 2 / (t + 1)
        penalty, rho = lambda_0 * np.sqrt(t + (8 if sto else 1)), 4 / (t + 7) ** (2 / 3)
        for i in cohort:
            g = world.gradient(i, x[i]) / n
            if kind == "fedfw+":
                y[i] += lambda_0 * (x[i] - mean)
                g = g + y[i]
            if sto:
                g = d[i] = (1 - rho) * d[i] + rho * g
            x[i] = (1 - eta) * x[i] + eta * lmo(g + penalty * (x[i] - mean))
        mean = world.shares @ x  # the mean of all x_i, by the definition
        trace.append((x.copy(), mean))
    return trace


def method_of(kind: str, **changes) -> FedFW:
    full = {"batches": Full()} if kind == "fedfw-sto" else {}
    return KINDS[kind].printed(1.5, **full, **changes)


@pytest.mark.parametrize("participation", [fedmin.Everyone(), fedmin.Uniform(2)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_algorithm_1_and_the_mean_of_all(kind, participation):
    """Also where clients are absent: the server's xbar is the mean of all x_i in every round."""
    world = over(known.apart(), L1Ball(RADIUS))
    trace = algorithm_1(world, kind, 1.5, cohorts(participation, 0, 5))
    for rounds in (1, 2, ROUNDS):
        result = run(world, method_of(kind), rounds=rounds, participation=participation)
        x, mean = trace[rounds - 1]
        np.testing.assert_allclose(result.clients.x, x, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(result.solution, mean, rtol=1e-10, atol=1e-14)
    everyone = participation == fedmin.Everyone()
    route = result.method.route(result.problem, world.federation.roster(everyone))
    assert isinstance(route, Atoms if everyone else Copies)


def test_the_penalty_that_is_measured():
    """rms |grad f_i(0) - grad F(0)| / diameter, by 16 random combinations of entries, one a round;
    and the steps of the participation. Loss and rows in other units make no difference."""
    world = over(known.apart(), L1Ball(RADIUS))
    options = {"rounds": 20, "participation": fedmin.Uniform(4)}
    result = run(world, FedFW(), **options)
    assert result.method.steps == fedmin.ConvexSteps(0.8)
    gradients = np.array([world.gradient(i, np.zeros(3)) for i in range(5)])
    own = np.asarray(result.clients.sketch)
    signs = own.T @ np.linalg.pinv(gradients.T)  # own = gradients @ signs.T, and they span all
    np.testing.assert_allclose(np.abs(signs), 1, atol=1e-9)
    true = np.sqrt(world.shares @ np.sum((gradients - world.shares @ gradients) ** 2, axis=1))
    drawn = cohorts(fedmin.Uniform(4), 0, 5, rounds=20)
    sums, squares, weight = np.zeros((3, 16))
    for t, cohort in enumerate(drawn):
        j, p = int(0.8 * t) % 16, world.shares[cohort]
        sums[j] += p @ own[cohort, j]
        squares[j] += p @ own[cohort, j] ** 2
        weight[j] += p.sum()
    found = np.sqrt(np.mean(squares / weight - (sums / weight) ** 2))
    assert float(rms(result.server.apart)) == pytest.approx(found)
    assert 0.6 * true < found < 1.4 * true

    z = tuple((3 * z, 30 * y) for z, y in world.clients)
    problem = fedmin.LeastSquares(3, l2=0.9)  # nine times f, of x ten times as long
    other = over(replace(world, clients=z, problem=problem), L1Ball(10 * RADIUS))
    np.testing.assert_allclose(run(other, FedFW(), **options).solution, 10 * result.solution)
    assert_same(result, run(world, FedFW(), engine=fedmin.Loopback(), **options))
    sizes = result.ledger.by_kind()
    assert sizes["up sketch"] == 20 * 4 * 2 * 8
    assert sizes["down penalty"] == 20 * 4 * 8


VARIANTS = {
    "local steps": FedFW(1.0, local_steps=2, sums_only=True),
    "own steps": FedFW(1.0, smoothness=1.1),
    "sums only": FedFWPlus(1.0, sums_only=True),
    "pairwise": FedFWPlus(1.0, smoothness=1.1, pairwise=True, local_steps=2),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_mean_of_all_in_every_variant(name):
    world = over(known.apart(), L1Ball(RADIUS))
    problem = world.problem
    for rounds in (1, 3, 8):
        result = run(world, VARIANTS[name], rounds=rounds, participation=fedmin.Bernoulli(0.5))
        own = np.asarray(result.clients.x)
        np.testing.assert_allclose(world.shares @ own, result.solution, atol=1e-14)
        assert all(problem.domain.contains(x) for x in [*own, result.solution])
    assert ("up move" in result.ledger.by_kind()) == (name != "own steps")


def wide(clients: int = 2, dim: int = 40) -> known.World:
    """More features than atoms have numbers: two atoms are smaller than a model."""
    rng = np.random.default_rng(3)
    z = rng.standard_normal((clients, 5, dim)) / np.sqrt(dim)
    made = tuple((one, one[:, 0] + 0.1 * rng.standard_normal(5)) for one in z)
    return over(known.World(fedmin.LeastSquares(dim), made), L1Ball(RADIUS))


@pytest.mark.parametrize("participation", [fedmin.Everyone(), fedmin.Uniform(1)], ids=str)
@pytest.mark.parametrize("each", [lambda box: box, fedmin.Product], ids=["box", "product"])
@pytest.mark.filterwarnings("ignore:FedFW. the objective ended at:RuntimeWarning")  # four rounds
def test_a_box_with_its_own_numbers_sends_bits(each, participation):
    """Both ends know the numbers: what travels of a corner is on which side it is, both ways."""
    low, high = -np.linspace(0.1, 1, 40), np.linspace(1, 0.2, 40)
    world = over(wide(), each(fedmin.Box(low, high)))
    drawn = cohorts(participation, 0, 2)[:4]
    x, mean = algorithm_1(
        world, "fedfw", 1.5, drawn, lmo=lambda g: np.where(g > 0, low, high)
    )[-1]  # fmt: skip
    result = run(world, method_of("fedfw"), rounds=4, participation=participation)
    np.testing.assert_allclose(result.solution, mean, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(result.clients.x, x, rtol=1e-9, atol=1e-13)
    everyone = participation == fedmin.Everyone()
    route = result.method.route(result.problem, world.federation.roster(everyone))
    assert isinstance(route, SharedAtoms if everyone else Copies)
    replies = sum(map(len, drawn))
    assert result.ledger.by_kind()["up atom"] == replies * (40 / 8 + 2 * 8)


def test_atoms_go_down_where_they_are_smaller():
    world = wide()
    everyone = [[0, 1]] * 4
    x, mean = algorithm_1(world, "fedfw+", 1.5, everyone)[-1]
    result = run(world, method_of("fedfw+"), rounds=4)
    np.testing.assert_allclose(result.solution, mean, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(result.clients.x, x, rtol=1e-9, atol=1e-14)
    sizes = result.ledger.by_kind()
    assert sizes["down atoms"] == 4 * 2 * 2 * 12  # rounds, clients, atoms of an index and a number
    assert sizes["up atom"] == 4 * 2 * 12
    assert "down model" not in sizes
    assert_same(result, run(world, method_of("fedfw+"), rounds=4, engine=fedmin.Loopback()))


def test_one_client_is_the_classic_method():
    world = wide(clients=1)
    x = np.zeros(world.dim)
    for t in range(1, 7):
        eta = 2 / (t + 1)
        x = (1 - eta) * x + eta * corner(world.gradient(0, x))
        if t in (1, 3, 6):
            found = run(world, FedFW(1.0), rounds=t).solution
            np.testing.assert_allclose(found, x, rtol=1e-10, atol=1e-14)


# ---------------------------------------------------------------- the theorems


class Averaging(fedmin.FedSGD):
    """Plain Frank-Wolfe steps at the clients, averaged: what Appendix A shows to fail."""

    handles = frozenset({"rows", "domain"})

    def client(self, problem, rows, state, down, now):
        return {"atom": problem.domain.lmo(problem.grad(down["model"], rows))}, state

    def server(self, problem, server_rows, x, learnt, now):
        eta = 2 / (now.round.astype(float) + 2)
        return (1 - eta) * x + eta * learnt.mean["atom"]


def test_counterexample_of_appendix_a():
    """min over [-1, 1] of (x - 3)^2/2 + (x + 1)^2/2: averaging stays at 0, FedFW goes to 1."""
    one = np.ones((1, 1))
    clients = ((one, np.array([3.0])), (one, np.array([-1.0])))
    world = over(known.World(fedmin.LeastSquares(1), clients), fedmin.LinfBall(1.0))
    with pytest.warns(RuntimeWarning, match="Averaging: the model did not move from the start"):
        assert run(world, Averaging(), rounds=300, every=300).solution == 0.0
    # where the two penalized problems balance, 1 - xbar is 2/c_t: it falls as t^(-1/2), no faster
    for rounds in (300, 3000):
        result = run(world, FedFW(1.0), rounds=rounds, every=rounds)
        assert 1 - result.solution[0] == pytest.approx(2 / np.sqrt(rounds + 1), rel=0.1)
    plus = run(world, FedFWPlus(1.0), rounds=300, every=300)
    assert plus.solution == pytest.approx(1.0, abs=0.02)
    with pytest.warns(UserWarning, match="nothing keeps the clients' x_i together"):
        apart = run(world, FedFW(0.0), rounds=300, every=300)
    assert apart.solution == pytest.approx(0.0, abs=0.02)
    assert apart.final("drift") == pytest.approx(1.0, abs=0.02)
    assert result.final("drift") < 0.1


def slope(t, values) -> float:
    """The exponent of the power that fits best."""
    return np.polyfit(np.log(t), np.log(values), 1)[0]


@pytest.mark.parametrize("kind", ["fedfw", "fedfw+"])
def test_theorem_1(kind):
    """Convex: F(xbar) - F* falls at least as t^(-1/2), and is never above the gap."""
    world = known.confined()
    result = run(world, method_of(kind), rounds=3000, every=50)
    best = world.objective(world.minimizer)
    history = {k: np.asarray(v)[1:] for k, v in result.history.items()}
    over_best = history["objective"] - best
    assert (over_best > 0).all()
    assert (history["gap"] >= over_best).all()
    assert slope(history["round"], over_best) < -0.5
    assert world.problem.domain.contains(result.solution)
    assert result.certificate.gap == pytest.approx(result.final("gap"), rel=1e-6)
    assert "within this gap of the optimum" in str(result.certificate)
    assert result.certificate.check(world.problem, world.federation) == []


class Sigmoid(fedmin.LeastSquares):
    """(sigmoid(z.x) - y)^2 / 2, which is not convex."""

    def loss(self, prediction, y):
        return 0.5 * (1 / (1 + jnp.exp(-prediction)) - y) ** 2

    @property
    def convex(self):
        return False


def test_theorem_2():
    """Not convex, T known: the least gap of T rounds falls at least as T^(-1/3).

    The bound's constants grow with c_0 and with the radius; for c_0 >= 1 the power does not show
    before T = 3000 (a NumPy run: -0.25 at c_0 = 1), so both are small here.
    """
    free = known.logistic()
    problem = fedmin.over(Sigmoid(known.FEATURES), L2Ball(1.0))
    world = known.World(problem, free.clients)
    lengths, gaps = (30, 100, 300, 1000), []
    for T in lengths:
        method = FedFW(0.1, fedmin.NonconvexSteps(float(T)))
        gaps.append(min(run(world, method, rounds=T, certificate=False).history["gap"]))
    assert slope(lengths, gaps) < -1 / 3
    assert gaps[-1] > 0


def test_a_matrix_is_recovered_by_rank_one_atoms():
    """Entries of a rank-one matrix at three clients; each sends 8 + 6 numbers a round."""
    rng = np.random.default_rng(0)
    truth = np.outer(rng.standard_normal(8), rng.standard_normal(6))
    truth /= np.linalg.norm(truth)
    places = rng.permutation(48)[:42]
    cells = np.stack(np.divmod(places, 6), axis=1).astype(float)
    clients = [(cells[i::3], truth.ravel()[places[i::3]]) for i in range(3)]

    def loss(matrix, z, y):
        return 24.0 * (matrix[z[0].astype(int), z[1].astype(int)] - y) ** 2

    problem = fedmin.from_loss(loss, jnp.zeros((8, 6)))
    federation = fedmin.Federation.from_clients(clients)
    result = fedmin.minimize(
        fedmin.over(problem, fedmin.NuclearBall(1.0)), federation, FedFW(1.0),
        rounds=600, every=600, progress=False,
    )  # fmt: skip
    assert np.linalg.norm(result.solution.reshape(8, 6) - truth) < 0.1
    assert result.ledger.by_kind()["up atom"] == 600 * 3 * (8 + 6) * 8


def test_a_larger_set_for_some_clients():
    world = over(known.apart(), L1Ball(0.5))
    split = fedmin.LargerSet(L2Ball(0.5), whose=lambda rows: rows.size > 4)
    result = run(world, FedFW(1.0, split=split), rounds=1500, every=1500)
    np.testing.assert_allclose(world.shares @ result.clients.x, result.solution, atol=1e-13)
    assert np.asarray(result.clients.slow).tolist() == [False, True, False, True, False]
    best = run(world, fedmin.CentralFW(), rounds=1500, every=1500)
    assert np.abs(result.solution).sum() < 0.5 * 1.05  # in the limit in the problem's set
    assert result.final("objective") == pytest.approx(best.final("objective"), abs=0.01)
    smaller = FedFW(1.0, split=fedmin.LargerSet(L2Ball(0.3), whose=split.whose))
    with pytest.raises(ValueError, match="must contain the problem's"):
        run(world, smaller)


# ---------------------------------------------------------------- what it is compared with


def ball(x: np.ndarray) -> np.ndarray:
    return x / max(1.0, np.linalg.norm(x) / 0.5)


def test_feddr():
    """[trandinh2021feddr] Algorithm 1, three gradient steps for each prox, two clients a round."""
    world, participation = known.confined(), fedmin.Uniform(2)
    x, y, hat = (np.zeros((5, world.dim)) for _ in range(3))
    mean, tilde = np.zeros(world.dim), np.zeros(world.dim)
    for cohort in cohorts(participation, 0, 5):
        for i in cohort:
            y[i] = y[i] + 0.9 * (mean - x[i])
            for _ in range(3):
                x[i] = x[i] - 0.3 * (world.gradient(i, x[i]) + (x[i] - y[i]) / 2.0)
            new = 2 * x[i] - y[i]
            tilde, hat[i] = tilde + world.shares[i] * (new - hat[i]), new
        mean = ball(tilde)
    method = FedDR(eta=2.0, alpha=0.9, step=0.3, local_steps=3)
    result = run(world, method, rounds=ROUNDS, participation=participation)
    np.testing.assert_allclose(result.solution, mean, rtol=1e-10)


def test_feddr_stops_at_its_accuracy():
    result = run(known.confined(), FedDR(step=0.3, local_steps=500, accuracy=1e-3), rounds=3)
    assert 0 < result.final("residual") <= 1e-3


def test_fedmid_and_fedavg_projected():
    """[yuan2021composite] with a set: steps are projected at the clients, or only at the server."""
    world = known.confined()
    for locally in (True, False):
        x = np.zeros(world.dim)
        for _ in range(ROUNDS):
            total = np.zeros(world.dim)
            for i, p in enumerate(world.shares):
                v = x
                for _ in range(2):
                    v = v - 0.4 * world.gradient(i, v)
                    v = ball(v) if locally else v
                total += p * (v - x)
            x = ball(x + 0.9 * total)
        method = FedMid(0.4, local_steps=2, batches=Full(), server_step=0.9, locally=locally)
        np.testing.assert_allclose(run(world, method, rounds=ROUNDS).solution, x, rtol=1e-10)


def test_feddualavg():
    """[yuan2021composite] Algorithm 2: the dual is averaged and never projected."""
    world, z = known.confined(), np.zeros(known.FEATURES)
    for _ in range(ROUNDS):
        total = np.zeros_like(z)
        for i, p in enumerate(world.shares):
            v = z
            for _ in range(2):
                v = v - 0.4 * world.gradient(i, ball(v))
            total += p * (v - z)
        z = z + 0.9 * total
    method = FedDualAvg(0.4, local_steps=2, batches=Full(), server_step=0.9)
    np.testing.assert_allclose(run(world, method, rounds=ROUNDS).solution, ball(z), rtol=1e-10)


# ---------------------------------------------------------------- stopping, and bad input


def test_a_gap_stops_a_run():
    world = known.confined()
    result = run(world, fedmin.CentralFW(), rounds=500, stop=fedmin.Gap(1e-2))
    assert result.status == "stopped"
    assert result.final("gap") <= 1e-2 < result.history["gap"][-2]
    assert result.final("objective") - world.objective(world.minimizer) <= 1e-2


class Outside(fedmin.LeastSquares):
    def init(self, key):
        return jnp.ones(self.features)

    @property
    def domain(self):
        return L1Ball(0.5)


class Corners(fedmin.Domain):
    """A bounded convex set that has no way to find an atom."""

    bounded = True
    convex = True

    def contains(self, x, tolerance=1e-6):
        return jnp.array(True)


@pytest.mark.parametrize(
    ("problem", "method", "options", "words"),
    [
        (fedmin.LeastSquares(3), FedFW(1.0), {}, "needs the problem's set to be bounded"),
        (fedmin.over(fedmin.LeastSquares(3), Corners()), FedFW(1.0), {}, "a linear minimizer"),
        (fedmin.over(fedmin.LeastSquares(3), Corners()), FedDR(), {}, "a set with a projection"),
        (Outside(3), FedFW(1.0), {}, "begins outside of"),
        (None, FedFW(1.0), {"channel": fedmin.TopK(1)}, "sends its parts as they are"),
        (None, FedFWSto(batches=fedmin.PrivateRows(0.5, multiplier=1.0)), {}, "needs a penalty"),
        (None, FedFW(1.0), {"stop": fedmin.Gap(0.1), "record": [fedmin.Objective()]},
         "Gap needs WolfeGap"),
        (fedmin.LeastSquares(3), fedmin.FedSGD(), {"record": [fedmin.WolfeGap()]},
         "WolfeGap needs a set with atoms"),
        (None, fedmin.FedAvg(), {}, "FedAvg does not handle a domain"),
    ],
)  # fmt: skip
def test_bad_pieces_are_refused(problem, method, options, words):
    world = known.confined()
    world = world if problem is None else replace(world, problem=problem)
    with pytest.raises(ValueError, match=words):
        run(world, method, **options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FedFW(-1.0), "penalty must be at least 0"),
        (lambda: FedFW(steps=0.1), "steps must have eta and growth"),
        (lambda: FedFWSto(steps=fedmin.ConvexSteps()), "steps must have eta and growth and rho"),
        (lambda: FedFW(local_steps=0), "local_steps must be at least 1"),
        (lambda: FedFW(smoothness=0.0), "smoothness must be more than 0"),
        (lambda: FedFW(split=L2Ball(1.0)), "split must be like"),
        (lambda: fedmin.LargerSet(L2Ball(1.0), whose=3), "whose must be a function"),
        (lambda: fedmin.ConvexSteps(0.0), "p must be more than 0"),
        (lambda: fedmin.NonconvexSteps(0.5), "rounds must be at least 1"),
        (lambda: FedDR(alpha=3.0), "alpha must be more than 0 and below 2"),
        (lambda: FedDR(alpha=2.0), "alpha must be more than 0 and below 2, got 2"),
        (lambda: fedmin.Gap(0.0), "tol must be more than 0"),
    ],
)
def test_bad_settings_are_refused(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()


def test_schedules_are_the_papers():
    convex, part = fedmin.ConvexSteps(), fedmin.ConvexSteps(0.5)
    never, sto = fedmin.NonconvexSteps(27.0), fedmin.StochasticSteps()
    half = fedmin.NonconvexSteps(52.0, p=0.5)
    for t in (1.0, 7.0, 100.0):
        assert convex.eta(t) == pytest.approx(2 / (t + 1))
        assert float(convex.growth(t)) == pytest.approx(np.sqrt(t + 1))
        assert part.eta(t) == pytest.approx(2 / (0.5 * (t - 1) + 2))
        assert float(part.growth(t)) == pytest.approx(np.sqrt(0.5 * (t - 1) + 2))
        assert float(never.eta(t)) == pytest.approx(1 / 9)
        assert float(never.growth(t)) == pytest.approx(3)
        assert float(half.eta(t)) == pytest.approx(1 / 9)
        assert sto.eta(t) == pytest.approx(9 / (t + 8))
        assert float(sto.rho(t)) == pytest.approx(4 / (t + 7) ** (2 / 3))
