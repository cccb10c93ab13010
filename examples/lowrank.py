"""Many regressions that share few directions, at twenty parties: rank-one atoms or full SVDs.

    python examples/lowrank.py [--tasks 200] [--features 300] [--rounds 200]

Every party has rows z with one target a task, y = W z + noise, and W has low rank. The W of least
squared error with a bounded nuclear norm is found by `FedFW`, whose clients find one singular pair
and send it, and by projected FedAvg (`FedMid`), which sends whole matrices and projects them by a
full singular value decomposition. Both stop at the same loss; time and bytes are what they took.
"""

import argparse
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import fedmin

PARTIES, ROWS = 20, 100  # and rows of each
RANK = 3
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)  # c_0, tried over a quarter of the rounds
STEPS = (0.1, 0.2, 0.3, 0.5)  # of projected FedAvg, tried likewise


class Tasks(fedmin.Problem):
    """|W z - y|^2 / 2: least squares with a target a task."""

    shape: tuple[int, int] = eqx.field(static=True)  # tasks, features

    def init(self, key):
        return jnp.zeros(self.shape[0] * self.shape[1])

    @property
    def parts(self):
        return {"W": self.shape}

    @property
    def convex(self):
        return True

    def losses(self, x, rows):
        found = rows.x @ x.reshape(self.shape).T
        return 0.5 * jnp.sum((found - rows.y) ** 2, axis=1, keepdims=True)


def made(tasks: int, features: int, seed: int = 0) -> tuple[fedmin.Federation, float, np.ndarray]:
    """The parties' rows, the truth's nuclear norm, and the truth."""
    rng = np.random.default_rng(seed)
    left, right = rng.standard_normal((tasks, RANK)), rng.standard_normal((features, RANK))
    truth = left @ right.T / np.sqrt(features * RANK)
    z = rng.standard_normal((PARTIES, ROWS, features)).astype(np.float32)
    y = (z @ truth.T + 0.1 * rng.standard_normal((PARTIES, ROWS, tasks))).astype(np.float32)
    federation = fedmin.Federation.from_clients(list(zip(z, y, strict=True)))
    return federation, float(np.linalg.svd(truth, compute_uv=False).sum()), truth


def best(problem, federation, methods: list[fedmin.Method], rounds: int) -> fedmin.Method:
    """The method with the lowest loss after these rounds."""
    ends = [
        fedmin.minimize(problem, federation, method, rounds=rounds, every=rounds, progress=False,
                        record=[fedmin.Objective()], certificate=False).final("objective")
        for method in methods
    ]  # fmt: skip
    return methods[int(np.nanargmin(ends))]


def study(tasks: int, features: int, rounds: int) -> list[dict[str, Any]]:
    """Both methods to the loss that FedFW has after its rounds."""
    federation, norm, truth = made(tasks, features)
    problem = fedmin.over(Tasks((tasks, features)), fedmin.NuclearBall(norm))
    atoms = [fedmin.FedFW(c) for c in PENALTIES]
    whole = [fedmin.FedMid(s, batches=fedmin.Full(), locally=False) for s in STEPS]
    level, found = np.inf, []
    for methods in (atoms, whole):
        method = best(problem, federation, methods, max(1, rounds // 4))
        stop = fedmin.Stop("objective", below=float(level)) if found else None
        result = fedmin.minimize(
            problem, federation, method, rounds=rounds, stop=stop, progress=False,
            record=[fedmin.Objective()], certificate=False,
        )  # fmt: skip
        level = result.final("objective")
        wrong = np.linalg.norm(result.solution.reshape(truth.shape) - truth)
        found.append({
            "method": type(method).__name__, "rounds": result.rounds, "loss": level,
            "error": wrong / np.linalg.norm(truth), "seconds": result.run_seconds,
            "MB up": result.ledger.bytes("up") / 1e6, "MB down": result.ledger.bytes("down") / 1e6,
        })  # fmt: skip
    return found


def show(found: list[dict[str, Any]]) -> str:
    """A table."""
    lines = [" | ".join(found[0])]
    for one in found:
        lines.append(" | ".join(v if isinstance(v, str) else f"{v:.4g}" for v in one.values()))
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--tasks", type=int, default=200)
    words.add_argument("--features", type=int, default=300)
    words.add_argument("--rounds", type=int, default=200)
    given = words.parse_args()
    print(show(study(given.tasks, given.features, given.rounds)))


if __name__ == "__main__":
    main()
