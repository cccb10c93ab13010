"""FedSSO's server step beside reading its memory, and beside one round of the clients, in one run.

    python -m benchmarks.fedsso

A dense step (d = 7,850) beside one pass that reads and writes the matrix; an L-BFGS step of ten
pairs (d = 7,850, 100,000 and 1,000,000) beside reading them twice; both beside what the clients do
in a round of W1 (softmax, 20 clients, 5 steps of 100 rows). A turn is four steps: of the
dense ones every fourth writes its matrix. Turns alternate, ratios are of the medians.
"""

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.workloads import W1, dense

TURNS = 15
MEMORY = 10


def vectors(d: int) -> list[jax.Array]:
    """s, y and g with y.s > 0."""
    rng = np.random.default_rng(d)
    s, g = rng.standard_normal((2, d)).astype(np.float32)
    return [jnp.asarray(v) for v in (s, s + 0.1 * g, g)]


def server_step(form, s, y, g) -> Callable[[], float]:
    """The mean of some steps of a form, its memory given up each time as in a run."""
    from fedmin.server.quasi_newton import bfgs
    from fedmin.server.quasi_newton.forms import WAIT, Start

    @partial(jax.jit, donate_argnums=0)
    def step(state, s, y, g):
        pair = bfgs.mend("damp", s, y, s, 1e-4, 9999.0)
        start = Start(jnp.float32(1), jnp.array(False), jnp.float32(1e4))
        found = form.advance(state, pair, g, start)
        return found.state, found.p

    held = [jax.jit(lambda x: form.first(x, 1.0))(s)]

    def turn() -> float:
        clock = time.perf_counter()
        for _ in range(WAIT):
            held[0], p = step(held[0], s, y, g)
            jax.block_until_ready((held[0], p))
        return (time.perf_counter() - clock) / WAIT

    return turn


def read_and_write(d: int) -> Callable[[], None]:
    """One pass over a d x d matrix, in place."""
    scale = jax.jit(lambda M: M * 1.0001, donate_argnums=0)
    held = [jnp.ones((d, d), jnp.float32)]

    def turn() -> None:
        held[0] = scale(held[0]).block_until_ready()

    return turn


def read_twice(d: int) -> Callable[[], None]:
    """All pairs times a vector, twice."""
    both = [jnp.ones((MEMORY, d), jnp.float32), jnp.ones((MEMORY, d), jnp.float32)]
    g = jnp.ones(d, jnp.float32)
    product = jax.jit(lambda s, y, g: (s @ g, y @ g))

    def turn() -> None:
        jax.block_until_ready(product(*both, g))
        jax.block_until_ready(product(*both, g))

    return turn


def client_round() -> Callable[[], None]:
    """A round of W1 by FedAvg: 20 rounds in one call."""
    import fedmin

    x, y = dense(W1)
    parts = [range(i * W1.rows, (i + 1) * W1.rows) for i in range(W1.clients)]
    federation = fedmin.Federation.from_parts(x, y, parts, classes=W1.classes)
    cheap = [fedmin.Measure("size", lambda problem, w: jnp.linalg.norm(w))]
    problem = fedmin.Softmax(W1.features, W1.classes, bias=True)
    method = fedmin.FedAvg(0.1, W1.steps, batches=fedmin.Blocks(W1.batch))

    def turn() -> float:
        return fedmin.minimize(
            problem, federation, method, rounds=20, every=20, record=cheap, progress=False
        ).run_seconds / 20  # fmt: skip

    return turn


def milliseconds(turns: list[Callable]) -> list[float]:
    """The median of each, taking turns; a turn that returns a number says its time itself."""
    times: list[list[float]] = [[] for _ in turns]
    for number in range(TURNS + 2):
        for some, turn in zip(times, turns, strict=True):
            clock = time.perf_counter()
            said = turn()
            took = said if said is not None else time.perf_counter() - clock
            if number >= 2:
                some.append(took)
    return [1e3 * median(some) for some in times]


def main() -> None:
    """Run and print."""
    from fedmin import LBFGS, DenseInverse

    clients = client_round()
    print(f"{'':24}{'step ms':>9}{'floor ms':>10}{'ratio':>7}{'round ms':>10}{'memory MB':>11}")
    for name, form, d, floor, memory in (
        ("dense, d = 7,850", DenseInverse(), 7850, read_and_write, 7850**2),
        ("L-BFGS, d = 7,850", LBFGS(MEMORY), 7850, read_twice, 2 * MEMORY * 7850),
        ("L-BFGS, d = 100,000", LBFGS(MEMORY), 100_000, read_twice, 2 * MEMORY * 100_000),
        ("L-BFGS, d = 1,000,000", LBFGS(MEMORY), 1_000_000, read_twice, 2 * MEMORY * 1_000_000),
    ):
        step, least, round_ = milliseconds([server_step(form, *vectors(d)), floor(d), clients])
        print(
            f"{name:24}{step:9.2f}{least:10.2f}{step / least:7.2f}{round_:10.2f}"
            f"{4 * memory / 1e6:11.1f}"
        )


if __name__ == "__main__":
    main()
