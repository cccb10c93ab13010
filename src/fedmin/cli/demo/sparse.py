"""At most 20 non-zeros of 64, over 20 sites: how diabetes progressed in a year.   [SparseNewton]

The ten measurements, their squares and products. A model with all 64 coefficients follows the noise
of 354 patients; one with 20 does not, and says which measurements it uses.
"""

from itertools import combinations_with_replacement

import numpy as np

from fedmin.cli.demo.card import BLUE, RED, Card, Setting, plain
from fedmin.core.federation import Federation
from fedmin.core.metrics import Objective
from fedmin.domains import L0Ball
from fedmin.methods import SparseNewton
from fedmin.minimizing import minimize
from fedmin.problems import LeastSquares, over

SITES, NONZEROS = 20, 20
MEANINGS = {"s1": "chol", "s2": "ldl", "s3": "hdl", "s4": "tch", "s5": "ltg", "s6": "glucose"}
CODE = """\
federation = fedmin.Federation.from_clients(sites)      # 20 pairs (x, y), 17 or 18 patients each
problem = fedmin.over(fedmin.LeastSquares(64), fedmin.L0Ball(20))
result = fedmin.minimize(problem, federation, fedmin.SparseNewton(), rounds=60)
print(np.flatnonzero(result.solution))"""


def card(setting: Setting) -> Card:
    """The sparse model beside the one with all coefficients, on patients that neither has seen."""
    x, y, names = patients()
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[: len(y) * 4 // 5], order[len(y) * 4 // 5 :]
    federation = Federation.from_clients([(x[p], y[p]) for p in np.array_split(train, SITES)])
    problem = over(LeastSquares(x.shape[1]), L0Ball(NONZEROS))
    rounds = setting.rounds(60)
    result = minimize(
        problem, federation, SparseNewton(), rounds=rounds, every=rounds, record=[Objective()]
    )
    w = np.asarray(result.solution, float)
    dense = np.linalg.lstsq(x[train], y[train], rcond=None)[0]
    scores = [1 - np.mean((x[test] @ v - y[test]) ** 2) / np.var(y[test]) for v in (w, dense)]
    kept = sorted(np.flatnonzero(w), key=lambda k: -abs(w[k]))
    sentence = (
        f"{SITES} sites with 17 or 18 patients each agree on {len(kept)} of {len(w)} terms. On "
        f"{len(test)} other patients that model explains {scores[0]:.0%} of the variance; the one "
        f"with all {len(w)} terms, fitted to pooled rows, {scores[1]:.0%}."
    )

    def draw(ax) -> None:
        sizes = w[kept]
        colors = [BLUE if v > 0 else RED for v in sizes]
        ax.barh(np.arange(len(kept)), sizes, color=colors, height=0.7)
        ax.set_yticks(np.arange(len(kept)), [names[k] for k in kept], fontsize="small")
        ax.invert_yaxis()
        ax.axvline(0, color="0.5", linewidth=0.8)
        ax.set_xlabel("coefficient, standard deviations of the outcome")
        plain(ax)
        ax.grid(False, axis="y")

    found = {"nonzeros": len(kept), "kept": [names[k] for k in kept], "scores": scores}
    return Card("20 coefficients over 20 sites", sentence, draw, CODE, {"sparse": result}, found)


def patients() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The measurements with their squares and products, and the outcome, standardized; names."""
    from sklearn.datasets import load_diabetes

    loaded = load_diabetes()
    columns = {MEANINGS.get(n, n): loaded.data[:, k] for k, n in enumerate(loaded.feature_names)}
    names, terms = list(columns), list(columns.values())
    for a, b in combinations_with_replacement(columns, 2):
        if (a, b) != ("sex", "sex"):  # two values: its square says nothing new
            names.append(f"{a}²" if a == b else f"{a} x {b}")
            terms.append(columns[a] * columns[b])
    x = np.stack(terms, axis=1)
    x = (x - x.mean(0)) / x.std(0)
    y = (loaded.target - loaded.target.mean()) / loaded.target.std()
    return x.astype(np.float32), y.astype(np.float32), names
