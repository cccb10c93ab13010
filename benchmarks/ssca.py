"""SSCA's rounds a second beside FedSGD's with the same batches, in one run.

    python -m benchmarks.ssca

The network of the SSCA papers, 60,000 x 784, 10 clients, batches of 100 without replacement. Each
takes turns of 100 rounds with FedSGD; the ratio is the median over turns next to each other.
"""

import time
from statistics import median

import jax
import numpy as np

from benchmarks.workloads import W2, dense

ROUNDS, TURNS = 100, 11


def contenders():
    """Name -> (problem, method)."""
    import fedmin

    network = fedmin.MLP(W2.features, W2.classes)
    batches = fedmin.WithoutReplacement(W2.batch)
    ssca = fedmin.SSCA(batches=batches)
    groups = fedmin.GroupLossAtMost({str(label): 10.0 for label in range(5)})
    return {
        "FedSGD": (network, fedmin.FedSGD(0.1, batches=batches)),
        "SSCA, M = 0": (network, ssca),
        "SSCA, M = 1, |w|^2": (fedmin.smallest(network, loss_at_most=1.0), ssca),
        "SSCA, M = 1": (fedmin.subject_to(network, fedmin.LossAtMost(10.0)), ssca),
        "SSCA, M = 5": (fedmin.subject_to(network, groups), ssca),
    }


def solver_milliseconds(count: int, d: int = 100_000) -> float:
    """One solution of the server's convex problem."""
    from fedmin.server import qcqp

    rng = np.random.default_rng(count)
    vectors = rng.standard_normal((1 + count, d))
    # ten times the size at which the constraints are met where g alone leads
    a = rng.standard_normal(count) * 3e4
    problem = [jax.numpy.asarray(part, np.float32) for part in (vectors, 1.0, a, 0.5, 1e3)]
    solve = jax.jit(qcqp.solve)
    jax.block_until_ready(solve(*problem))
    times = []
    for _ in range(50):
        clock = time.perf_counter()
        jax.block_until_ready(solve(*problem))
        times.append(time.perf_counter() - clock)
    return 1e3 * median(times)


def main() -> None:
    """Run and print."""
    import jax.numpy as jnp

    import fedmin

    x, y = dense(W2)
    parts = [range(i * W2.rows, (i + 1) * W2.rows) for i in range(W2.clients)]
    federation = fedmin.Federation.from_parts(x, y, parts, classes=W2.classes)
    cheap = [fedmin.Measure("size", lambda problem, w: jnp.linalg.norm(w))]

    def seconds(problem, method) -> float:
        return fedmin.minimize(
            problem, federation, method, rounds=ROUNDS, every=ROUNDS, record=cheap,
            progress=False, certificate=False,
        ).run_seconds  # fmt: skip

    sgd, *rivals = contenders().items()
    print(f"{'':22}{'rounds/s':>9}{sgd[0]:>9}{'ratio':>8}")
    for name, rival in rivals:
        pairs = [(seconds(*sgd[1]), seconds(*rival)) for _ in range(TURNS + 1)][1:]  # one compiles
        theirs, ours = (ROUNDS / median(times) for times in zip(*pairs, strict=True))
        ratio = median(a / b for a, b in pairs)
        print(f"{name:22}{ours:9.0f}{theirs:9.0f}{ratio:8.2f}")
    print("\nthe server's problem alone, d = 100,000, milliseconds")
    for count in (0, 1, 2, 5):
        print(f"M = {count}  {solver_milliseconds(count):8.2f}")


if __name__ == "__main__":
    main()
