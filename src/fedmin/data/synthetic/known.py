"""Synthetic sets with known answers: quadratics, sparse regression, a separating margin.

Convention: F(w) = sum_i p_i f_i(w) with p_i = n_i / n, and f_i the mean over client i's rows of
1/2 (x.w - y)^2 (least squares) or of the logistic or softmax loss. What `truth` says holds for the
data as stored: numbers are rounded to float32 first and the answers computed from them in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedmin.data.synthetic.papers import fedprox, simulation_one, simulation_two, softmax_fedfw
from fedmin.data.synthetic.synthetic import Synthetic, contiguous, require, require_room
from fedmin.data.table import Table

__all__ = ["SYNTHETIC", "logistic_margin", "matrix_completion", "quadratics", "sparse_regression"]


def quadratics(
    clients: int = 10,
    dim: int = 20,
    condition: float = 100.0,
    heterogeneity: float = 1.0,
    rows: int | None = None,
    seed: int = 0,
) -> Synthetic:
    """Least squares with a chosen condition number, client optima and global minimizer.

    The average Hessian has eigenvalues spaced evenly in logarithm from 1/condition to 1. Client i
    fits its own data exactly (f_i = 0 at its optimum w_i), with w_i = w* + heterogeneity c_i,
    sum_i H_i c_i = 0 and mean |c_i|^2 = 1: so w* minimizes F, and `heterogeneity` is the root mean
    square of |w_i - w*|. With heterogeneity 0 all clients share w*.

    Args:
        clients: number of clients, all of the same size.
        dim: number of features.
        condition: condition number of the average Hessian, at least 1.
        heterogeneity: root mean square distance of the clients' optima from the solution.
        rows: rows a client, at least `dim`; 2 dim by default.
        seed: of all draws.

    Truth: solution, optimum, client_solutions, condition, smoothness, strong_convexity,
    client_smoothness, heterogeneity, dissimilarity (root mean square of |grad f_i(w*)|).

    >>> from fedmin.data import quadratics
    >>> sample = quadratics(clients=4, dim=3, condition=10)
    >>> round(sample.truth["condition"], 3)
    10.0
    """
    rows = 2 * dim if rows is None else rows
    require(
        "quadratics",
        clients=(clients, clients >= 1, "at least 1"),
        dim=(dim, dim >= 1, "at least 1"),
        condition=(condition, condition >= 1, "at least 1"),
        heterogeneity=(heterogeneity, heterogeneity >= 0, "at least 0"),
        rows=(rows, rows >= dim, f"at least dim={dim}, or a client's optimum is not unique"),
    )
    require_room("quadratics", (clients, rows, dim), (clients, dim, dim))
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((clients, rows, dim))
    # whiten the average Hessian, then give it the wanted spectrum in a random basis
    values, basis = np.linalg.eigh(np.einsum("cnd,cne->de", x, x) / (clients * rows))
    whiten = basis / np.sqrt(values) @ basis.T
    spectrum = np.geomspace(1.0 / condition, 1.0, dim) if dim > 1 else np.ones(1)
    rotation = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    x = (x @ whiten * np.sqrt(spectrum) @ rotation.T).astype(np.float32)
    solution = rng.standard_normal(dim)
    hessians = np.einsum("cnd,cne->cde", x, x, dtype=np.float64) / rows
    apart = rng.standard_normal((clients, dim))
    apart -= np.linalg.solve(hessians.mean(0), np.einsum("cde,ce->d", hessians, apart) / clients)
    size = np.sqrt((apart**2).sum(axis=1).mean()) if clients > 1 else np.inf
    own = solution + heterogeneity / size * apart  # one client has nothing to differ from
    y = np.einsum("cnd,cd->cn", x, own).astype(np.float32)
    table = Table("quadratics", x.reshape(-1, dim), y.ravel(), meta={"source": "synthetic"})
    parts = contiguous([rows] * clients)
    return Synthetic(table, parts, _quadratic_truth(x.astype(np.float64), y.astype(np.float64)))


def _quadratic_truth(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    _, rows, dim = x.shape
    hessians = np.einsum("cnd,cne->cde", x, x) / rows
    slopes = np.einsum("cnd,cn->cd", x, y) / rows
    spectrum = np.linalg.eigvalsh(hessians.mean(axis=0))
    solution = np.linalg.lstsq(x.reshape(-1, dim), y.ravel(), rcond=None)[0]
    own = np.linalg.solve(hessians, slopes[..., None])[..., 0]
    gradients = hessians @ solution - slopes
    return {
        "solution": solution,
        "optimum": 0.5 * float(np.mean((x @ solution - y) ** 2)),
        "client_solutions": own,
        "condition": float(spectrum[-1] / spectrum[0]),
        "smoothness": float(spectrum[-1]),
        "strong_convexity": float(spectrum[0]),
        "client_smoothness": np.linalg.eigvalsh(hessians)[:, -1],
        "heterogeneity": float(np.sqrt(((own - solution) ** 2).sum(axis=1).mean())),
        "dissimilarity": float(np.sqrt((gradients**2).sum(axis=1).mean())),
    }


def sparse_regression(
    rows: int = 1000,
    features: int = 200,
    support: int = 10,
    nonzeros: int | None = None,
    noise: float = 0.1,
    clients: int = 10,
    seed: int = 0,
) -> Synthetic:
    """Linear regression on a model with few non-zeros, on dense or sparse rows.

    y = x.w + noise N(0, 1); w has `support` entries of magnitude 1 to 2 and random sign. With
    `nonzeros` the rows are CSR of unit length with that many entries each, made without ever going
    dense: sparse_regression(16087, 150360, 200, nonzeros=1240) has the shape of E2006-tfidf.

    Args:
        rows: number of rows over all clients.
        features: number of columns.
        support: number of non-zeros of the model.
        nonzeros: entries a row; None for a dense Gaussian design.
        noise: standard deviation of the noise.
        clients: number of clients, of equal size up to one row.
        seed: of all draws.

    Truth: model (w), support (its sorted indices), solution (least squares on that support),
    optimum (F at that solution).

    >>> from fedmin.data import sparse_regression
    >>> sample = sparse_regression(rows=50, features=1000, support=3, nonzeros=20, clients=5)
    >>> sample.x.nnz, len(sample.truth["support"])
    (1000, 3)
    """
    require(
        "sparse_regression",
        rows=(rows, rows >= 1, "at least 1"),
        clients=(clients, 1 <= clients <= rows, f"in 1..rows={rows}"),
        support=(support, 1 <= support <= features, f"in 1..features={features}"),
        nonzeros=(
            nonzeros,
            nonzeros is None or 1 <= nonzeros <= features,
            f"None or in 1..features={features}",
        ),
        noise=(noise, noise >= 0, "at least 0"),
    )
    require_room("sparse_regression", (rows, nonzeros or features), (rows, support), (features,))
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(features, support, replace=False))
    model = np.zeros(features)
    model[chosen] = rng.choice([-1.0, 1.0], support) * rng.uniform(1.0, 2.0, support)
    x: Any
    if nonzeros is None:
        x = rng.standard_normal((rows, features), dtype=np.float32)
    else:
        x = _sparse_rows(rng, rows, features, nonzeros)
    y = (x @ model + noise * rng.standard_normal(rows)).astype(np.float32)
    used = x[:, chosen].toarray() if sp.issparse(x) else x[:, chosen]
    used, target = used.astype(np.float64), y.astype(np.float64)
    fitted = np.linalg.lstsq(used, target, rcond=None)[0]
    solution = np.zeros(features)
    solution[chosen] = fitted
    truth = {
        "model": model,
        "support": chosen,
        "solution": solution,
        "optimum": 0.5 * float(np.mean((used @ fitted - target) ** 2)),
    }
    table = Table("sparse_regression", x, y, meta={"source": "synthetic"})
    return Synthetic(table, np.array_split(np.arange(rows), clients), truth)


def _sparse_rows(rng, rows: int, features: int, nonzeros: int) -> sp.csr_matrix:
    indices = np.empty((rows, nonzeros), np.int32)
    for row in range(rows):
        indices[row] = rng.choice(features, nonzeros, replace=False, shuffle=False)
    indices.sort(axis=1)
    data = rng.standard_normal((rows, nonzeros), dtype=np.float32)
    data /= np.linalg.norm(data, axis=1, keepdims=True)
    indptr = np.arange(rows + 1, dtype=np.int64) * nonzeros
    return sp.csr_matrix((data.ravel(), indices.ravel(), indptr), shape=(rows, features))


def logistic_margin(
    rows: int = 1000, dim: int = 20, margin: float = 0.5, clients: int = 10, seed: int = 0
) -> Synthetic:
    """Two classes that a hyperplane through 0 separates with at least the given margin.

    x = z + sign(z.u) margin u with z Gaussian and u a unit vector; the label is 1 where z.u > 0.
    The unregularized logistic loss has infimum 0, reached only at infinity along u.

    Truth: direction (u), margin (the smallest |x.u| as stored), optimum (0, an infimum).

    >>> from fedmin.data import logistic_margin
    >>> sample = logistic_margin(rows=100, dim=3, margin=1.0, clients=4)
    >>> bool(sample.truth["margin"] > 0.999)
    True
    """
    require(
        "logistic_margin",
        rows=(rows, rows >= 1, "at least 1"),
        dim=(dim, dim >= 1, "at least 1"),
        margin=(margin, margin >= 0, "at least 0"),
        clients=(clients, 1 <= clients <= rows, f"in 1..rows={rows}"),
    )
    require_room("logistic_margin", (rows, dim))
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal(dim)
    direction /= np.linalg.norm(direction)
    z = rng.standard_normal((rows, dim))
    side = np.where(z @ direction > 0, 1.0, -1.0)
    x = (z + margin * side[:, None] * direction).astype(np.float32)
    table = Table("logistic_margin", x, side > 0, classes=2, meta={"source": "synthetic"})
    truth = {
        "direction": direction,
        "margin": float((side * (x.astype(np.float64) @ direction)).min()),
        "optimum": 0.0,
    }
    return Synthetic(table, np.array_split(np.arange(rows), clients), truth)


def matrix_completion(
    rows: int = 60,
    columns: int = 40,
    rank: int = 3,
    seen: float = 0.3,
    noise: float = 0.0,
    clients: int = 10,
    seed: int = 0,
) -> Synthetic:
    """Some entries of a matrix of low rank; a client has those of a block of the matrix's rows.

    A row of the table is an entry: its row and column, counted from 0, and y, what it is. Entries
    have the variance 1, plus that of the noise N(0, noise^2) where they are seen.

    Truth: matrix, nuclear (the sum of its singular values), unseen (bool, the entries that nobody
    has).

    >>> from fedmin.data import matrix_completion
    >>> sample = matrix_completion(20, 12, rank=2, seen=0.5, clients=3)
    >>> sample.x.shape, sample.truth["unseen"].sum().item()
    ((120, 2), 120)
    """
    require(
        "matrix_completion",
        rows=(rows, rows >= 1, "at least 1"),
        columns=(columns, columns >= 1, "at least 1"),
        rank=(rank, 1 <= rank <= min(rows, columns), f"in 1..{min(rows, columns)}"),
        seen=(seen, 0 < seen <= 1, "in (0, 1]"),
        noise=(noise, noise >= 0, "at least 0"),
        clients=(clients, 1 <= clients <= rows, f"in 1..rows={rows}"),
    )
    require_room("matrix_completion", (rows, columns), (rows, rank), (columns, rank))
    rng = np.random.default_rng(seed)
    left, right = rng.standard_normal((rows, rank)), rng.standard_normal((columns, rank))
    matrix = left @ right.T / np.sqrt(rank)
    count = max(clients, round(seen * matrix.size))
    places = np.sort(rng.choice(matrix.size, count, replace=False))
    x = np.stack(np.divmod(places, columns), axis=1).astype(np.float32)
    y = matrix.ravel()[places] + noise * rng.standard_normal(count)
    owner = (x[:, 0] * clients // rows).astype(int)
    parts = [np.flatnonzero(owner == i) for i in range(clients)]
    if not all(map(len, parts)):
        parts = np.array_split(np.arange(count), clients)
    unseen = np.ones(matrix.size, bool)
    unseen[places] = False
    truth = {
        "matrix": matrix,
        "nuclear": float(np.linalg.svd(matrix, compute_uv=False).sum()),
        "unseen": unseen.reshape(matrix.shape),
    }
    table = Table("matrix_completion", x, y.astype(np.float32), meta={"source": "synthetic"})
    return Synthetic(table, parts, truth)


SYNTHETIC: dict[str, Callable[..., Synthetic]] = {
    make.__name__: make
    for make in (
        quadratics,
        sparse_regression,
        logistic_margin,
        matrix_completion,
        fedprox,
        softmax_fedfw,
        simulation_one,
        simulation_two,
    )
}
