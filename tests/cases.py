"""One case a method. The table carries what differs between methods; the tests do not.

To add a method: one `Case` here, one oracle in test_oracles.py.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

import fedmin
import known
from contract import Addressed, Median
from fedmin import (
    DONE,
    EF21FW,
    LBFGS,
    SSCA,
    CentralFW,
    FedAC,
    FedAvg,
    FedAvgM,
    FedDANE,
    FedDR,
    FedDualAvg,
    FedFW,
    FedFWPlus,
    FedFWSto,
    FedMid,
    FedNL,
    FedNLPP,
    FedOpt,
    FedProx,
    FedSGD,
    FedSSO,
    Full,
    Method,
    Participation,
    Scaffold,
    TopEntries,
    TopRank,
)

Central = Callable[[np.ndarray, Callable[[np.ndarray], np.ndarray], int], np.ndarray]


def descent(step: float) -> Central:
    """Plain gradient descent, what a method becomes with one client and one step."""

    def run(x, gradient, rounds):
        for _ in range(rounds):
            x = x - step * gradient(x)
        return x

    return run


def keep(x: np.ndarray, tau: int) -> np.ndarray:
    """H_tau: the tau largest, the first of equal ones."""
    kept = np.argsort(-np.abs(x), kind="stable")[:tau]
    return np.where(np.isin(np.arange(len(x)), kept), x, 0.0)


def thresholding(step: float, tau: int = 2) -> Central:
    """Central iterative hard thresholding."""

    def run(x, gradient, rounds):
        for _ in range(rounds):
            x = keep(x - step * gradient(x), tau)
        return x

    return run


def sparse_newton(step: float, memory: int, tau: int = 2) -> Central:
    """SparseNewton with B as a matrix, by the BFGS update of each pair in turn."""

    def run(x, gradient, rounds):
        pairs, mu, z, g = [], 1.0, x, np.zeros_like(x)
        for _ in range(rounds):
            new = gradient(z)
            s, y = z - x, new - g
            # F(z) - F(x), by Gauss's rule for the integral of the slope on the way
            at, weight = np.polynomial.legendre.leggauss(40)
            slopes = [gradient(x + (1 + a) / 2 * s) @ s for a in at]
            if y @ s > 1e-6 * np.linalg.norm(s) * np.linalg.norm(y):
                pairs = [*pairs, (s, y)][-memory:]
            if weight @ slopes <= 0:
                x, g, mu = z, new, max(1, mu / 2)
            else:
                mu = 4 * mu
            sigma = mu * (pairs[-1][0] @ pairs[-1][1] / (pairs[-1][0] @ pairs[-1][0])
                          if pairs else 1 / step)  # fmt: skip
            B = sigma * np.eye(len(x))
            for s, y in pairs:
                B = B + np.outer(y, y) / (y @ s) - np.outer(B @ s, B @ s) / (s @ B @ s)
            z = min((x, *_minimizers(B, x, g, tau, sigma)), key=lambda z: _model(B, z - x, g))
        return x

    return run


def _model(B, s, g) -> float:
    return g @ s + s @ B @ s / 2


def _minimizers(B, x, g, tau, sigma):
    for k in range(5):
        T = np.flatnonzero(keep(x - 4.0**-k / sigma * g, tau))
        z = np.zeros_like(x)
        z[T] = np.linalg.solve(B[np.ix_(T, T)], (B @ x - g)[T])
        yield z


def guarded_descent(rise, shrink, grow) -> Central:
    """Gradient descent on a quadratic from 1/L on, its steps undone and made shorter if F rises."""

    def run(x, gradient, rounds):
        value = lambda u: (gradient(u) + gradient(0 * u)) @ u / 2  # of a quadratic, less F(0)
        v = gradient(x)
        for _ in range(11):  # the last for the length of H v
            length = np.linalg.norm(gradient(v / np.linalg.norm(v)) - gradient(0 * v))
            v = gradient(v / np.linalg.norm(v)) - gradient(0 * v)
        kept = tried = x
        first = lowest = value(x)
        step = 1 / length
        for _ in range(rounds - 1):
            if value(tried) <= lowest + rise * (first - lowest) + 1e-15 * abs(lowest):
                kept, lowest = tried, min(lowest, value(tried))
                tried, step = kept - step * gradient(kept), grow * step
            else:
                tried, step = kept + shrink * (tried - kept), shrink * step
        return kept

    return run


def heavy_ball(step, beta) -> Central:
    """Gradient descent with a velocity."""

    def run(x, gradient, rounds):
        v = np.zeros_like(x)
        for _ in range(rounds):
            v = beta * v - step * gradient(x)
            x = x + v
        return x

    return run


def adaptive(step, server_step, beta1, tau, second) -> Central:
    """Gradient descent whose steps go through a first and a second moment."""

    def run(x, gradient, rounds):
        m, v = np.zeros_like(x), np.full_like(x, tau**2)
        for _ in range(rounds):
            D = -step * gradient(x)
            m, v = beta1 * m + (1 - beta1) * D, second(v, D**2)
            x = x + server_step * m / (np.sqrt(v) + tau)
        return x

    return run


def nesterov(step: float, mu: float) -> Central:
    """Accelerated gradient descent of constant momentum, in Nesterov's two sequences."""

    def run(x, gradient, rounds):
        q = np.sqrt(step * mu)
        ahead = x
        for _ in range(rounds):
            old, x = x, ahead - step * gradient(ahead)
            ahead = x + (1 - q) / (1 + q) * (x - old)
        return x

    return run


def quasi_newton(step: float) -> Central:
    """BFGS with steps of one length: B and a solve."""

    def run(x, gradient, rounds):
        B, g = np.eye(len(x)), gradient(x)
        for _ in range(rounds):
            last, x = (x, g), x - step * np.linalg.solve(B, g)
            g = gradient(x)
            s, y, Bs = x - last[0], g - last[1], B @ (x - last[0])
            B = B + np.outer(y, y) / (y @ s) - np.outer(Bs, Bs) / (s @ Bs)
        return x

    return run


def frank_wolfe(radius: float, eta: Callable, rho: Callable = lambda t: 1.0) -> Central:
    """The classic method over an l2 ball; with rho, on a running gradient."""

    def run(x, gradient, rounds):
        d = np.zeros_like(x)
        for t in range(1, rounds + 1):
            d = (1 - rho(t)) * d + rho(t) * gradient(x)
            x = (1 - eta(t)) * x - eta(t) * radius * d / np.linalg.norm(d)
        return x

    return run


def short_frank_wolfe(radius: float) -> Central:
    """Frank-Wolfe over an l2 ball with steps by the gap and L, as ten turns of the power method
    from the first gradient on find it."""

    def run(x, gradient, rounds):
        H = np.array([gradient(e) - gradient(0 * e) for e in np.eye(len(x))])
        v = gradient(x)
        for _ in range(10):
            v = H @ v / np.linalg.norm(H @ v)
        L = np.linalg.norm(H @ v) / np.linalg.norm(v)
        for _ in range(rounds):
            g = gradient(x)
            way = x + radius * g / np.linalg.norm(g)
            x = x - min(1.0, g @ way / (L * way @ way)) * way
        return x

    return run


def newton(x, gradient, rounds):
    """Newton's method for a quadratic after one gradient step of length 1/|H|, to learn H."""
    H = np.array([gradient(e) - gradient(0 * e) for e in np.eye(len(x))])
    x = x - gradient(x) / np.linalg.norm(H)
    for _ in range(rounds - 1):
        x = x - np.linalg.solve(H, gradient(x))
    return x


def splitting(eta: float, alpha: float, step: float, radius: float) -> Central:
    """Douglas-Rachford with one client over an l2 ball, and one gradient step for its prox."""

    def run(x, gradient, rounds):
        mean, y = x, x
        for _ in range(rounds):
            y = y + alpha * (mean - x)
            x = x - step * (gradient(x) + (x - y) / eta)
            mean = 2 * x - y
            mean = mean / max(1.0, np.linalg.norm(mean) / radius)
        return mean

    return run


@dataclass(frozen=True, eq=False)
class Case:
    """A method with settings under which it reaches the world's minimiser."""

    name: str
    method: Method
    central: Central  # what N = 1, K = 1, full batches must give
    single: Method  # the method with K = 1 and full batches
    world: Callable[..., known.World] = known.shared  # apart: also with heterogeneous clients
    rounds: int = 400
    tolerance: float = 1e-8
    precision: float = 1e-12  # of the objective
    grid: tuple = (0.2, 0.4)  # step sizes of the sweep
    sweeps: str = "step"
    participation: Participation = fedmin.Uniform(3)  # one that leaves some out
    channel: fedmin.Channel = fedmin.TopK(1)  # one that changes what is sent
    symmetric: bool = True  # clients may be renumbered
    divisible: bool = True  # a client of equal halves may be cut in two
    layouts: tuple[tuple[int, int], ...] = ((2, 2),)  # (chunk, devices) to try

    @property
    def full(self) -> Method:
        """The same with full batches: nothing random is left."""
        if not hasattr(self.method, "batches"):
            return self.method
        return dataclasses.replace(self.method, batches=Full())

    @property
    def other(self) -> Method:
        """The same with other numbers in all fields that hold one, static by mistake or not."""

        def change(a):
            return a if isinstance(a, int | str) else 0.9 * a

        fields = {f.name: getattr(self.method, f.name) for f in dataclasses.fields(self.method)}
        changed = {k: jax.tree.map(change, v) for k, v in fields.items() if v is not None}
        return dataclasses.replace(self.method, **changed)

    def __str__(self) -> str:
        return self.name


def adaptive_case(name, rule, second) -> Case:
    settings = {"step": 0.5, "server_step": 0.2, "beta1": 0.5, "tau": 0.1}
    return Case(
        f"fedopt_{name}",
        FedOpt(local_steps=2, batches=Full(), second=rule, **settings),
        adaptive(**settings, second=second),
        FedOpt(batches=Full(), second=rule, **settings),
        grid=(0.3, 0.5),
    )


def atoms_case(name, method, single, central, **changes) -> Case:
    """Frank-Wolfe methods are slow to the end: their rates are in test_fedfw.py."""
    slow = {"world": known.confined, "tolerance": 0.05, "precision": 5e-3, "sweeps": "penalty"}
    slow |= {"grid": (0.5, 2.0), "channel": fedmin.Plain(), "layouts": ()}
    return Case(name, method, central, single, **{**slow, **changes})


EVERY_LAYOUT = ((1, 2), (2, 1), (5, 1), (2, 3))
STEPS = jnp.array([0.5, 0.4, 0.3, 0.6, 0.5])

CASES = [
    Case(
        "fedsgd",
        FedSGD(0.5),
        descent(0.5),
        FedSGD(0.5),
        world=known.apart,
        participation=fedmin.Bernoulli(0.25),
    ),
    Case(
        "fedsgd_batches",
        FedSGD(0.5, batches=fedmin.WithoutReplacement(2)),
        descent(0.5),
        FedSGD(0.5),
        participation=fedmin.Cyclic(2),
    ),
    Case(
        "fedavg",
        FedAvg(0.5, local_steps=3, batches=fedmin.Blocks(2)),
        descent(0.5),
        FedAvg(0.5, batches=Full()),
    ),
    Case(
        "fedavg_epochs",
        FedAvg(0.5, epochs=2, batches=fedmin.Shuffled(2), server_step=0.9),
        descent(0.45),
        FedAvg(0.5, batches=Full(), server_step=0.9),
        participation=fedmin.Cyclic(2),
    ),
    Case(
        "fedavg_schedule",
        FedAvg(fedmin.Power(0.8, 0.1), local_steps=2, batches=Full()),
        descent(0.8),
        FedAvg(fedmin.Power(0.8, 0.0), batches=Full()),
        grid=(fedmin.Power(0.8, 0.1), fedmin.Power(0.4, 0.0)),
        participation=fedmin.Bernoulli(0.25),
    ),
    Case(
        "fedavgm",
        FedAvgM(0.2, local_steps=3, batches=fedmin.Blocks(2), beta=0.5),
        heavy_ball(0.2, 0.5),
        FedAvgM(0.2, batches=Full(), beta=0.5),
        participation=fedmin.Cyclic(2),
    ),
    Case(
        "ssca",
        SSCA(rho=0.9, gamma=0.5, tau=0.5, batches=fedmin.WithoutReplacement(2)),
        descent(0.5),
        SSCA(rho=1.0, gamma=0.5, tau=0.5, batches=Full()),
        sweeps="gamma",
    ),
    Case(
        "fedsgm",
        fedmin.FedSGM(0.5, local_steps=3, batches=fedmin.Blocks(2)),
        descent(0.5),
        fedmin.FedSGM(0.5, batches=Full()),
        layouts=(),
    ),
    Case(
        "primaldualavg",
        fedmin.PrimalDualAvg(0.5, local_steps=3, batches=fedmin.Blocks(2)),
        descent(0.5),
        fedmin.PrimalDualAvg(0.5, batches=Full()),
        layouts=(),
    ),
    Case(
        "fedsso",
        FedSSO(0.3, local_steps=2, batches=Full(), server_step=0.8),
        quasi_newton(0.8),
        FedSSO(0.3, batches=Full(), server_step=0.8, scaled=False, bad_pairs="skip"),
        channel=fedmin.Clip(0.05),
    ),
    Case(
        "fedsso_same_clients",
        FedSSO(0.3, epochs=1, batches=fedmin.Blocks(2), curvature=LBFGS(4), pairs="same clients"),
        quasi_newton(1.0),
        FedSSO(0.3, batches=Full(), curvature=LBFGS(6), scaled=False, bad_pairs="skip"),
        participation=fedmin.Bernoulli(0.25),
        channel=fedmin.Plain(),
    ),
    Case(
        "fedsso_remembered",
        FedSSO(
            0.3,
            local_steps=fedmin.Stages((2, 1), (0, 9)),
            batches=Full(),
            curvature=LBFGS(4),
            server_step=0.5,
            pairs="both points",
            remember=True,
        ),
        quasi_newton(1.0),
        FedSSO(
            0.3,
            batches=Full(),
            curvature=LBFGS(6),
            scaled=False,
            bad_pairs="skip",
            pairs="both points",
            remember=True,
        ),
        participation=fedmin.Uniform(3),
        channel=fedmin.Plain(),
    ),
    Case(
        "fedprox",
        FedProx(0.5, mu=0.1, local_steps=3, batches=fedmin.WithReplacement(2)),
        descent(0.5),
        FedProx(0.5, mu=0.1, batches=Full()),
        rounds=800,
        participation=fedmin.Cyclic(3),
    ),
    Case(
        "scaffold",
        Scaffold(0.5, local_steps=3, batches=Full()),
        descent(0.5),
        Scaffold(0.5, batches=Full()),
        world=known.apart,
        layouts=EVERY_LAYOUT,
    ),
    Case(
        "scaffold_epochs",
        Scaffold(0.2, epochs=1, batches=fedmin.Blocks(3), server_step=0.9),
        descent(0.18),
        Scaffold(0.2, batches=Full(), server_step=0.9),
        rounds=800,
        grid=(0.1, 0.2),
        participation=fedmin.Bernoulli(0.25),
    ),
    Case(
        "distributediht",
        fedmin.DistributedIHT(0.5),
        thresholding(0.5),
        fedmin.DistributedIHT(0.5),
        world=known.sparse_logistic,
        participation=fedmin.Bernoulli(0.25),
    ),
    Case(
        "fedht",
        fedmin.FedHT(0.5, local_steps=3, batches=fedmin.Blocks(2)),
        thresholding(0.5),
        fedmin.FedHT(0.5, batches=Full()),
        world=known.sparse,
    ),
    Case(
        "fediterht",
        fedmin.FedIterHT(0.5, local_steps=3, batches=fedmin.Growing(2.0, 1.2, most=4)),
        thresholding(0.5),
        fedmin.FedIterHT(0.5, batches=Full()),
        world=known.sparse,
        participation=fedmin.Cyclic(2),
    ),
    Case(
        "scaffoldht",
        fedmin.ScaffoldHT(0.5, local_steps=3, batches=Full()),
        thresholding(0.5),
        fedmin.ScaffoldHT(0.5, batches=Full()),
        world=known.sparse,
    ),
    Case(
        "sparsenewton",
        fedmin.SparseNewton(0.5, memory=3),
        sparse_newton(0.5, 3),
        fedmin.SparseNewton(0.5, memory=3),
        world=known.sparse_logistic,
        rounds=60,
        channel=fedmin.Plain(),
    ),
    adaptive_case("adagrad", fedmin.Adagrad(), lambda v, s: v + s),
    adaptive_case("adam", fedmin.Adam(0.9), lambda v, s: 0.9 * v + 0.1 * s),
    adaptive_case("yogi", fedmin.Yogi(0.9), lambda v, s: v - 0.1 * s * np.sign(v - s)),
    Case(
        "fedac",
        FedAC(0.5, mu=0.1, local_steps=3, batches=fedmin.Blocks(2)),
        nesterov(0.5, 0.1),
        FedAC(0.5, mu=0.1, batches=Full()),
    ),
    Case(
        "feddane",
        FedDANE(0.3, mu=0.1, local_steps=3, batches=Full()),
        descent(0.3),
        FedDANE(0.3, mu=0.1, batches=Full()),
        world=known.apart,
        participation=fedmin.Bernoulli(0.25),
    ),
    Case(
        "fednl",
        FedNL(TopRank(1), alpha=0.5),
        newton,
        FedNL(TopRank(3)),
        world=known.apart,
        rounds=100,
        sweeps="alpha",
        grid=(0.5, 1.0),
        channel=fedmin.Plain(),
    ),
    Case(
        "fednlpp",
        FedNLPP(TopEntries(2), alpha=0.5),
        lambda x, gradient, rounds: newton(x, gradient, 2),  # it learns H before its first step
        FedNLPP(TopRank(3)),
        world=known.apart,
        rounds=100,
        sweeps="alpha",
        grid=(0.5, 1.0),
    ),
    Case(
        "done",
        DONE(alpha=0.5, local_steps=4, batches=fedmin.Blocks(2)),
        descent(0.5),
        DONE(alpha=0.5, local_steps=1),
        world=known.apart,
        grid=(0.5, 1.0),
        participation=fedmin.Cyclic(2),
    ),
    Case(
        "gather",
        Median(0.3),
        descent(0.3),
        Median(0.3),
        rounds=2000,
        divisible=False,
        channel=fedmin.Plain(),
        layouts=EVERY_LAYOUT,
    ),
    Case(
        "addressed",
        Addressed(STEPS),
        descent(0.5),
        Addressed(STEPS[:1]),
        sweeps="steps",
        grid=(STEPS, 0.5 * STEPS),
        symmetric=False,
        divisible=False,
    ),
    atoms_case(
        "fedfw",
        FedFW(1.0),
        FedFW(1.0),
        frank_wolfe(0.5, lambda t: 2 / (t + 1)),
        layouts=((2, 2),),
    ),
    atoms_case(
        "fedfwplus", FedFWPlus(1.0), FedFWPlus(1.0), frank_wolfe(0.5, lambda t: 2 / (t + 1))
    ),
    atoms_case(
        "fedfwsto",
        FedFWSto(1.0, batches=fedmin.Blocks(2)),
        FedFWSto(1.0, batches=Full()),
        frank_wolfe(0.5, lambda t: 9 / (t + 8), lambda t: 4 / (t + 7) ** (2 / 3)),
        participation=fedmin.Cyclic(2),
    ),
    atoms_case(
        "centralfw",
        CentralFW(),
        CentralFW(),
        frank_wolfe(0.5, lambda t: 2 / (t + 1)),
        sweeps="steps",
        grid=(fedmin.ConvexSteps(1.0), fedmin.ConvexSteps(0.5)),
        channel=fedmin.Clip(0.05),
    ),
    atoms_case(
        "ef21fw",
        EF21FW(smoothness=1.2),
        EF21FW(),
        short_frank_wolfe(0.5),
        sweeps="smoothness",
        grid=(1.0, 1.5),
    ),
    atoms_case(
        "dfwtrace",
        fedmin.DFWTrace(steps=fedmin.ConvexSteps()),
        fedmin.DFWTrace(steps=fedmin.ConvexSteps()),
        frank_wolfe(0.5, lambda t: 2 / (t + 1)),
        world=known.one_column,
        sweeps="steps",
        grid=(fedmin.ConvexSteps(1.0), fedmin.ConvexSteps(0.5)),
    ),
    Case(
        "feddr",
        FedDR(eta=2.0, alpha=0.9, step=0.4, local_steps=5),
        splitting(2.0, 0.9, 0.4, 0.5),
        FedDR(eta=2.0, alpha=0.9, step=0.4, local_steps=1),
        world=known.confined,
    ),
    Case(
        "fedmid",
        FedMid(0.5, local_steps=3, batches=fedmin.Blocks(2)),
        descent(0.5),
        FedMid(0.5, batches=Full()),
        layouts=(),
    ),
    Case(
        "feddualavg",
        FedDualAvg(0.5, local_steps=1, batches=Full()),
        descent(0.5),
        FedDualAvg(0.5, batches=Full()),
        layouts=(),
    ),
]
