"""The papers' pseudo-code in plain NumPy, five rounds, against the library; and what it implies."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedmin
import known
from agreement import run
from fedmin import Adagrad, Adam, FedAvg, FedAvgM, FedOpt, FedProx, FedSGD, Full, Scaffold, Yogi
from fedmin.engines.round import COHORT, key_of

ROUNDS = 5
WEIGHTS = {"sizes": "sizes", "uniform": "uniform", "custom": [1.0, 4.0, 2.0, 0.5, 3.0]}


@pytest.fixture(params=WEIGHTS)
def world(request) -> known.World:
    return known.logistic().with_weights(WEIGHTS[request.param])


def cohorts(
    participation: fedmin.Participation, seed: int, population: int, rounds: int = ROUNDS
) -> list[list[int]]:
    """Who takes part in each round: drawn by the library, a list of ids a round."""
    drawn = []
    for t in range(rounds):
        key = key_of(jax.random.key(seed), jnp.int32(t), 0, COHORT)
        ids, there = participation.cohort(key, jnp.int32(t), population)
        drawn.append(np.asarray(ids)[np.asarray(there)].tolist())
    return drawn


def averaged(world: known.World, local, x: np.ndarray, cohort: list[int]) -> np.ndarray:
    """sum p_i (y_i - x) / sum p_i over the cohort."""
    p = world.shares[cohort]
    return sum(q * (local(i, x) - x) for q, i in zip(p, cohort, strict=True)) / p.sum()


def local_steps(gradient, step: float, count: int):
    def local(i, x):
        y = x
        for _ in range(count):
            y = y - step * gradient(i, y, x)
        return y

    return local


# ---------------------------------------------------------------- full batches, unequal clients


def test_fedsgd(world):
    x = np.zeros(world.dim)
    for _ in range(ROUNDS):
        x = x - 0.5 * sum(p * world.gradient(i, x) for i, p in enumerate(world.shares))
    result = run(world, FedSGD(0.5), rounds=ROUNDS)
    np.testing.assert_allclose(result.solution, x, rtol=1e-10)


def test_fedavg_steps(world):
    """[mcmahan2017fedavg] Algorithm 1, K = 3, with the server's step."""
    x = np.zeros(world.dim)
    local = local_steps(lambda i, y, _: world.gradient(i, y), 0.5, 3)
    for _ in range(ROUNDS):
        x = x + 0.8 * averaged(world, local, x, list(range(5)))
    method = FedAvg(0.5, local_steps=3, batches=Full(), server_step=0.8)
    np.testing.assert_allclose(run(world, method, rounds=ROUNDS).solution, x, rtol=1e-10)


def test_fedavgm(world):
    """[hsu2019measuring] section 4.3: v <- beta v + D, w <- w + v, here with a server's step."""
    x, v = np.zeros(world.dim), np.zeros(world.dim)
    local = local_steps(lambda i, y, _: world.gradient(i, y), 0.3, 3)
    for _ in range(ROUNDS):
        v = 0.7 * v + averaged(world, local, x, list(range(5)))
        x = x + 0.8 * v
    method = FedAvgM(0.3, local_steps=3, batches=Full(), server_step=0.8, beta=0.7)
    result = run(world, method, rounds=ROUNDS)
    np.testing.assert_allclose(result.solution, x, rtol=1e-10)
    np.testing.assert_allclose(result.server.v, v, rtol=1e-10)


def test_fedprox_stragglers():
    """Half of the clients do a part of their three steps: theirs are the library's draws."""
    world = known.logistic()
    method = FedProx(0.5, mu=0.7, local_steps=3, batches=Full(), stragglers=0.5)
    x, counts = np.zeros(world.dim), []
    for t in range(ROUNDS):
        key = jax.random.key(3)
        nows = [fedmin.Now(t, key, key_of(key, jnp.int32(t), 0, i)) for i in range(5)]
        counts.append([int(method.steps(None, now)) for now in nows])
        gradient = lambda i, y, x: world.gradient(i, y) + 0.7 * (y - x)
        local = lambda i, x, t=t: local_steps(gradient, 0.5, counts[t][i])(i, x)
        x = x + averaged(world, local, x, list(range(5)))
    assert {1, 2, 3} == set(np.ravel(counts))
    result = run(world, method, rounds=ROUNDS, seed=3)
    np.testing.assert_allclose(result.solution, x, rtol=1e-10)


def test_fedprox():
    """[li2020fedprox] Algorithm 2 with K gradient steps on f_i(y) + mu/2 |y - x|^2."""
    world, participation = known.logistic(), fedmin.Uniform(2)
    x = np.zeros(world.dim)
    local = local_steps(lambda i, y, x: world.gradient(i, y) + 0.7 * (y - x), 0.5, 3)
    for cohort in cohorts(participation, 0, 5):
        x = x + averaged(world, local, x, cohort)
    method = FedProx(0.5, mu=0.7, local_steps=3, batches=Full())
    result = run(world, method, rounds=ROUNDS, participation=participation)
    np.testing.assert_allclose(result.solution, x, rtol=1e-10)


def scaffold_in_numpy(world, step, server_step, K, drawn):
    """[karimireddy2020scaffold] Algorithm 1, option II; |S|/N mean becomes sum p_i with weights."""
    x, c, own = np.zeros(world.dim), np.zeros(world.dim), np.zeros((5, world.dim))
    for cohort in drawn:
        moves, changes = [], []
        for i in cohort:
            y = x
            for _ in range(K):
                y = y - step * (world.gradient(i, y) - own[i] + c)
            fresh = own[i] - c + (x - y) / (K * step)
            moves.append(y - x)
            changes.append(fresh - own[i])
            own[i] = fresh
        p = world.shares[cohort]
        x = x + server_step * (p @ np.array(moves)) / p.sum()
        c = c + p @ np.array(changes)
    return x, c, own


@pytest.mark.parametrize("participation", [fedmin.Everyone(), fedmin.Uniform(2)], ids=str)
def test_scaffold(world, participation):
    drawn = cohorts(participation, 4, 5)
    x, c, own = scaffold_in_numpy(world, 0.4, 0.9, 3, drawn)
    method = Scaffold(0.4, local_steps=3, batches=Full(), server_step=0.9)
    result = run(world, method, rounds=ROUNDS, participation=participation, seed=4)
    np.testing.assert_allclose(result.solution, x, rtol=1e-10)
    np.testing.assert_allclose(result.server.c, c, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(result.clients, own, rtol=1e-10, atol=1e-14)


def test_scaffold_is_the_papers_with_equal_weights():
    """With p_i = 1/N the weighted line is literally c + |S|/N mean(c_i+ - c_i)."""
    world, participation = known.logistic().with_weights("uniform"), fedmin.Cyclic(2)
    drawn = cohorts(participation, 0, 5)
    x, c, own = np.zeros(world.dim), np.zeros(world.dim), np.zeros((5, world.dim))
    for cohort in drawn:
        y = {i: x - 0.4 * (world.gradient(i, x) - own[i] + c) for i in cohort}
        fresh = {i: own[i] - c + (x - y[i]) / 0.4 for i in cohort}
        change = np.mean([fresh[i] - own[i] for i in cohort], axis=0)
        x = x + np.mean([y[i] - x for i in cohort], axis=0)
        c = c + len(cohort) / 5 * change
        for i in cohort:
            own[i] = fresh[i]
    method = Scaffold(0.4, batches=Full())
    result = run(world, method, rounds=ROUNDS, participation=participation)
    np.testing.assert_allclose(result.server.c, c, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(result.solution, x, rtol=1e-10)


SECOND = {
    "adagrad": (Adagrad(), lambda v, D: v + D**2),
    "adam": (Adam(0.8), lambda v, D: 0.8 * v + 0.2 * D**2),
    "yogi": (Yogi(0.8), lambda v, D: v - 0.2 * D**2 * np.sign(v - D**2)),
}


def fedopt(rule) -> FedOpt:
    return FedOpt(
        0.5, local_steps=2, batches=Full(), server_step=0.1, beta1=0.6, tau=0.05, second=rule
    )


@pytest.mark.parametrize("name", SECOND)
def test_fedopt(name):
    """[reddi2021fedopt] Algorithm 2."""
    rule, second = SECOND[name]
    world = known.logistic().with_weights(WEIGHTS["custom"])
    x, m, v = np.zeros(world.dim), np.zeros(world.dim), np.full(world.dim, 0.05**2)
    local = local_steps(lambda i, y, _: world.gradient(i, y), 0.5, 2)
    for _ in range(ROUNDS):
        D = averaged(world, local, x, list(range(5)))
        m = 0.6 * m + 0.4 * D
        v = second(v, D)
        x = x + 0.1 * m / (np.sqrt(v) + 0.05)
    result = run(world, fedopt(rule), rounds=ROUNDS)
    np.testing.assert_allclose(result.solution, x, rtol=1e-9)
    np.testing.assert_allclose(result.server.v, v, rtol=1e-9)


def optax_steps(transformation, updates: list[np.ndarray], change) -> np.ndarray:
    """The sum of what optax makes of these updates, seen as gradients -D."""
    state = change(transformation.init(jnp.zeros_like(updates[0])))
    total = jnp.zeros_like(updates[0])
    for D in updates:
        step, state = transformation.update(-jnp.asarray(D), state)
        total = total + step
    return np.asarray(total)


def moments(state, nu):
    """Every moment state in a chain with its second moment set, as the paper starts it at tau^2."""
    has = lambda s: hasattr(s, "_fields") and "nu" in s._fields
    set_nu = lambda s: s._replace(nu=jnp.full_like(s.nu, nu)) if has(s) else s
    return jax.tree.map(set_nu, state, is_leaf=has)


@pytest.mark.parametrize("name", ["adagrad", "adam", "yogi"])
def test_fedopt_against_optax(name):
    """The same updates D through optax, with beta1 = 0 so that only the second moment matters.

    optax divides v by 1 - beta2^t (bias correction); the paper does not. For Adam v = beta2 v +
    (1 - beta2) D^2 is linear, so the correction is undone by the step's own factor: with
    v_hat = v / (1 - beta2^t), D / (sqrt(v_hat) + eps) = D sqrt(1 - beta2^t) / (sqrt(v) +
    eps sqrt(1 - beta2^t)); hence the check divides by that factor and gives optax
    eps = tau / sqrt(1 - beta2^t), one transformation a round. Adagrad has no correction, and
    optax's scale_by_rss divides by sqrt(v + eps) with tau outside: tau is made negligible.
    """
    tau, beta2 = (1e-9, None) if name == "adagrad" else (0.05, 0.8)
    rule = dataclasses.replace(SECOND[name][0])
    world = known.logistic()
    local = local_steps(lambda i, y, _: world.gradient(i, y), 0.5, 1)
    x, updates = np.zeros(world.dim), []
    method = FedOpt(0.5, batches=Full(), server_step=0.1, beta1=0.0, tau=tau, second=rule)
    state = None
    for t in range(1, ROUNDS + 1):
        D = averaged(world, local, x, list(range(5)))
        updates.append(D)
        if name == "adagrad":
            step = optax.scale_by_rss(initial_accumulator_value=tau**2, eps=0.0)
            move = optax_steps(step, updates, lambda s: s) - (
                optax_steps(step, updates[:-1], lambda s: s) if t > 1 else 0.0
            )
            x = x - 0.1 * move
            continue
        correction = np.sqrt(1 - beta2**t)
        make = {"adam": optax.scale_by_adam, "yogi": optax.scale_by_yogi}[name]
        step = make(b1=0.0, b2=beta2, eps=tau / correction)
        if state is None:
            state = moments(step.init(jnp.zeros(world.dim)), tau**2)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes types
            move, state = step.update(-jnp.asarray(D), state)
        x = x - 0.1 * np.asarray(move) / correction
    result = run(world, method, rounds=ROUNDS)
    np.testing.assert_allclose(result.solution, x, rtol=1e-7)


# ---------------------------------------------------------------- mini-batches, the library's draws


draw_batch = eqx.filter_jit(
    lambda batches, shard, key, k: batches.read(shard, batches.draw(shard, key, k))
)


def batch_rows(world, batches, seed, t, i, count) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows that client i draws for its steps of round t, as NumPy arrays of weight 1 each."""
    federation = world.federation
    rows = federation.pool
    shard = fedmin.Shard(
        jax.tree.map(jnp.asarray, rows),
        jnp.int32(federation.starts[i]),
        jnp.int32(federation.sizes[i]),
        federation.capacity,
        federation.even,
    )
    key = key_of(jax.random.key(seed), jnp.int32(t), 0, i)
    drawn = []
    for k in range(count):
        batch = draw_batch(batches, shard, key, jnp.int32(k))
        keep = np.asarray(batch.weight) > 0
        drawn.append((np.asarray(batch.x.values)[keep], np.asarray(batch.y)[keep]))
    return drawn


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"local_steps": 3, "batches": fedmin.Blocks(2)}, 3),
        ({"epochs": 2, "batches": fedmin.Shuffled(2)}, None),
    ],
    ids=["steps", "epochs"],
)
def test_fedavg_batches(options, count):
    world, batches = known.logistic(), options["batches"]
    x = np.zeros(world.dim)
    for t in range(ROUNDS):

        def local(i, y, t=t):
            # an epoch is as many steps as it takes to see every row: unequal clients differ
            steps = count or 2 * -(-len(world.clients[i][1]) // batches.size)
            for z, labels in batch_rows(world, batches, 2, t, i, steps):
                slope = known.residual(world.problem, z @ y, labels) @ z / len(labels)
                y = y - 0.5 * (slope + world.l2 * y)
            return y

        x = x + averaged(world, local, x, list(range(5)))
    result = run(world, FedAvg(0.5, **options), rounds=ROUNDS, seed=2)
    np.testing.assert_allclose(result.solution, x, rtol=1e-10)


# ---------------------------------------------------------------- lemmas


@pytest.mark.parametrize("participation", [fedmin.Uniform(2), fedmin.Bernoulli(0.4)], ids=str)
def test_scaffold_controls_sum_to_the_servers(world, participation):
    """sum p_i c_i = c after every round, whoever was there and whatever the batches."""
    method = Scaffold(0.3, local_steps=2, batches=fedmin.Blocks(2))
    for rounds in range(1, ROUNDS + 1):
        result = run(world, method, rounds=rounds, participation=participation)
        mean = world.shares @ np.asarray(result.clients)
        np.testing.assert_allclose(mean, result.server.c, rtol=1e-10, atol=1e-13)
    assert np.linalg.norm(result.server.c) > 1e-3


def test_drift_stalls_fedavg_and_not_scaffold(apart):
    """K = 5 steps on heterogeneous quadratics: FedAvg has a wrong fixed point, SCAFFOLD the right.

    FedAvg's fixed point is solved in NumPy: x with mean of (M_i^K - I)(x - x_i) = 0 for
    M_i = I - eta H_i, so the test knows where it must stall, not only that it does.
    """
    eta, K = 0.5, 5
    lhs, rhs = np.zeros((3, 3)), np.zeros(3)
    for p, (z, y) in zip(apart.shares, apart.clients, strict=True):
        H = z.T @ z / len(y) + apart.l2 * np.eye(3)
        drop = np.eye(3) - np.linalg.matrix_power(np.eye(3) - eta * H, K)
        lhs += p * drop
        rhs += p * drop @ np.linalg.solve(H, z.T @ y / len(y))
    stall = np.linalg.solve(lhs, rhs)
    assert np.linalg.norm(stall - apart.minimizer) > 0.02
    options = {"step": eta, "local_steps": K, "batches": Full()}
    fedavg = run(apart, FedAvg(**options), rounds=600, every=600).solution
    scaffold = run(apart, Scaffold(**options), rounds=600, every=600).solution
    np.testing.assert_allclose(fedavg, stall, rtol=1e-8)
    np.testing.assert_allclose(scaffold, apart.minimizer, rtol=1e-8)


def test_fedprox_pull_limits_drift(apart):
    """A stronger pull ends nearer to the optimum, which is what mu is for."""
    ends = fedmin.sweep(
        apart.problem, apart.federation, FedProx(0.4, local_steps=10, batches=Full()),
        rounds=400, every=400, over={"mu": [0.0, 0.5, 2.0]}, engine=fedmin.Simulator(1, 1),
    )  # fmt: skip
    distance = [np.linalg.norm(r.solution - apart.minimizer) for r in ends]
    assert distance[0] > 1.2 * distance[1] > 1.2 * distance[2]
