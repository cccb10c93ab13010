"""Fed-HT on sparse rows of E2006's shape against scipy.sparse, and top-tau against NumPy.

    python -m benchmarks.fedht           16,087 x 150,360, 1,240 non-zeros a row: 160 MB
    python -m benchmarks.fedht --small   a tenth of the rows

FedIter-HT with 10 clients, tau = 200, K = 5 full local steps; SciPy does the same arithmetic, its
CSR and its transpose kept. Turns next to each other, the ratio as a median. Memory is the pool that
the clients' rows lie in, and the process's peak beyond what it had before: in a first run, which
compiles, and in a second, which does not; each over the CSR.
"""

import argparse
import time
from functools import partial
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

ROWS, FEATURES, NONZEROS, CLIENTS, TAU, K, STEP = 16_087, 150_360, 1_240, 10, 200, 5, 0.5
TURNS = 5


def keep(x: np.ndarray, tau: int) -> np.ndarray:
    """H_tau by numpy.argpartition."""
    kept = np.argpartition(np.abs(x), len(x) - tau)[-tau:]
    y = np.zeros_like(x)
    y[kept] = x[kept]
    return y


def scipy_rounds(parts, shares, rounds: int) -> np.ndarray:
    """FedIter-HT in SciPy, from 0."""
    x = np.zeros(FEATURES, np.float32)
    for _ in range(rounds):
        mean = np.zeros_like(x)
        for share, (z, zt, y) in zip(shares, parts, strict=True):
            w = x
            for _ in range(K):
                w = keep(w - np.float32(STEP / len(y)) * (zt @ (z @ w - y)), TAU)
            mean += np.float32(share) * w
        x = keep(mean, TAU)
    return x


def peak_beyond(do):
    """The bytes that a call takes at most beyond what is there before it (Linux), and its value."""

    def status(word: str) -> int:
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(word))

    Path("/proc/self/clear_refs").write_text("5", "utf-8")  # the peak begins anew
    before = status("VmRSS:")
    value = do()
    return status("VmHWM:") - before, value


def against_scipy(rows: int) -> None:
    """Rounds a second, the same work on both sides."""
    import fedmin

    made = fedmin.data.sparse_regression(rows, FEATURES, TAU, nonzeros=NONZEROS, clients=CLIENTS)
    csr, y = made.x, np.asarray(made.y)
    parts = [(csr[p], csr[p].T.tocsr(), y[p]) for p in made.parts]
    shares = np.array([len(p) for p in made.parts]) / rows
    federation = fedmin.data.partition(made)
    size = csr.data.nbytes + csr.indices.nbytes + csr.indptr.nbytes
    pool = sum(np.asarray(a).nbytes for a in jax.tree.leaves(federation.pool))
    problem = fedmin.over(fedmin.LeastSquares(FEATURES), fedmin.L0Ball(TAU))
    method = fedmin.FedIterHT(STEP, local_steps=K, batches=fedmin.Full())
    count = fedmin.Measure("count", lambda problem, x: jnp.sum(x != 0))

    def ours(rounds=4):
        result = fedmin.minimize(
            problem, federation, method, rounds=rounds, every=rounds, record=[count], progress=False
        )
        return result.run_seconds / rounds, result.solution

    def theirs(rounds=4):
        clock = time.perf_counter()
        x = scipy_rounds(parts, shares, rounds)
        return (time.perf_counter() - clock) / rounds, x

    first, found = peak_beyond(lambda: ours()[1])
    second, _ = peak_beyond(ours)
    gap = np.linalg.norm(found - theirs()[1]) / np.linalg.norm(found)
    pairs = [(ours()[0], theirs()[0]) for _ in range(TURNS)]
    mine, other = (median(times) for times in zip(*pairs, strict=True))
    ratio = median(b / a for a, b in pairs)
    print(f"FedIter-HT, {rows:,} x {FEATURES:,}: rounds/s {1 / mine:.2f}, SciPy {1 / other:.2f}, "
          f"ratio {ratio:.2f}; solutions differ by {gap:.1e}")  # fmt: skip
    print(f"memory over the CSR's {size / 1e6:.0f} MB: pool {pool / size:.2f}, and with a run "
          f"{(pool + second) / size:.2f}, the first {(pool + first) / size:.2f}")  # fmt: skip


def top_tau() -> None:
    """Milliseconds of one selection among a million."""
    from fedmin.domains.largest import largest

    x = np.random.default_rng(0).standard_normal(1_000_000).astype(np.float32)
    for tau in (200, 1_000, 10_000):
        ways = {
            "fedmin": partial(jax.jit(lambda a, n: largest(jnp.abs(a), n), static_argnums=1),
                              jnp.asarray(x), tau),
            "argpartition": lambda tau=tau: np.argpartition(np.abs(x), len(x) - tau)[-tau:],
        }  # fmt: skip
        spent = {}
        for name, way in ways.items():
            jax.block_until_ready(way())
            times = []
            for _ in range(25):
                clock = time.perf_counter()
                jax.block_until_ready(way())
                times.append(time.perf_counter() - clock)
            spent[name] = 1e3 * median(times)
        print(
            f"top {tau:6,} of 1,000,000: " + ", ".join(f"{k} {v:.2f} ms" for k, v in spent.items())
        )


def main() -> None:
    """Run and print."""
    words = argparse.ArgumentParser("benchmarks.fedht", description=__doc__)
    words.add_argument("--small", action="store_true", help="a tenth of the rows")
    small = words.parse_args().small
    top_tau()
    against_scipy(ROWS // 10 if small else ROWS)


if __name__ == "__main__":
    main()
