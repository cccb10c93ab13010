"""What an atom costs: the linear minimizer of each set against one gradient, and bytes of a round.

    python -m benchmarks.fedfw

Vectors of a million entries against the gradient of least squares on 100 rows; a 2,000 x 2,000
matrix against a full SVD in NumPy and scipy.sparse.linalg.svds. Ratios within one run, the least of
several calls each.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse.linalg

import fedmin
from fedmin.engines.sessions import wire

SIZE, SIDE, ROWS = 1_000_000, 2000, 100


def least(call, times: int = 5) -> float:
    """Seconds of the fastest of some calls."""
    jax.block_until_ready(call())
    taken = []
    for _ in range(times):
        clock = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - clock)
    return min(taken)


def vectors() -> None:
    """Sets of vectors against a gradient."""
    rng = np.random.default_rng(0)
    rows = fedmin.rows(rng.standard_normal((ROWS, SIZE)).astype(np.float32), np.ones(ROWS))
    problem, g = fedmin.LeastSquares(SIZE), jnp.asarray(rng.standard_normal(SIZE), jnp.float32)
    rows = jax.tree.map(jnp.asarray, rows)
    gradient = jax.jit(problem.grad)
    base = least(lambda: gradient(g, rows))
    print(f"one gradient, {ROWS} rows, d = {SIZE:,}: {1e3 * base:.1f} ms")
    print("set | atom / gradient | projection / gradient | bytes of an atom (with header)")
    sets = [
        fedmin.L1Ball(1.0), fedmin.L2Ball(1.0), fedmin.LinfBall(1.0), fedmin.Box(0.0, 1.0),
        fedmin.Simplex(), fedmin.KSparsePolytope(100), fedmin.GroupL1Ball(1.0, group=100),
    ]  # fmt: skip
    for domain in sets:
        lmo, project = (jax.jit(lambda a, f=f: f(a)) for f in (domain.lmo, domain.project))
        sizes = wire.sizes({"atom": jax.eval_shape(lmo, g)})
        atom, near = least(lambda lmo=lmo: lmo(g)), least(lambda project=project: project(g), 2)
        print(
            f"{type(domain).__name__} | {atom / base:.3f} | {near / base:.3f} | "
            f"{sizes['atom']} ({sum(sizes.values())})"
        )


def matrices() -> None:
    """The leading pair, by three ways, at the same accuracy."""
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((SIDE, SIDE)).astype(np.float32)  # close singular values
    decaying = (np.linalg.qr(dense)[0] * (0.9 ** np.arange(SIDE)).astype(np.float32)) @ dense
    print(
        f"leading pair of {SIDE} x {SIDE} | ours ms | warm | svds / ours | full SVD / ours | error"
    )
    for name, matrix in (("Gaussian", dense), ("decaying", decaying)):
        ball = fedmin.NuclearBall(1.0, shape=(SIDE, SIDE))
        g = jnp.asarray(matrix).ravel()
        lmo = jax.jit(lambda g, near, ball=ball: ball.lmo(g, near))
        cold = jax.jit(lambda g, ball=ball: ball.lmo(g))
        ours = least(lambda cold=cold, g=g: cold(g), 3)
        near = cold(g)
        warm = least(lambda lmo=lmo, g=g, near=near: lmo(g, near), 3)
        svds = least(lambda m=matrix: scipy.sparse.linalg.svds(m, k=1, tol=1e-3)[1], 1)
        clock = time.perf_counter()
        first = np.linalg.svd(matrix)[1][0]
        full = time.perf_counter() - clock
        error = 1 + float(near.inner(g)) / first
        print(f"{name} | {1e3 * ours:.0f} | {1e3 * warm:.0f} | {svds / ours:.2f} | "
              f"{full / ours:.0f} | {error:.1e}")  # fmt: skip


def round_of_atoms() -> None:
    """Bytes of a round of FedFW over an l1 ball with a million entries."""
    rng = np.random.default_rng(0)
    clients = [(rng.standard_normal((2, SIZE)).astype(np.float32), np.ones(2)) for _ in range(4)]
    problem = fedmin.over(fedmin.LeastSquares(SIZE), fedmin.L1Ball(1.0))
    federation = fedmin.Federation.from_clients(clients)
    result = fedmin.minimize(problem, federation, fedmin.FedFW.printed(), rounds=1, progress=False,
                             record=[fedmin.Objective()], certificate=False)  # fmt: skip
    print(f"FedFW, l1, d = {SIZE:,}, 4 clients, bytes a client and round:")
    print({kind: size // 4 for kind, size in result.ledger.by_kind().items()})


def main() -> None:
    """All of it."""
    round_of_atoms()
    vectors()
    matrices()


if __name__ == "__main__":
    main()
