"""Synthetic sets of the papers: FedProx's synthetic(alpha, beta), FedFW's, Fed-HT's Simulations.

All draw features x ~ N(v, Sigma) with Sigma diagonal, Sigma_jj = j^-1.2.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedmin.data.synthetic.synthetic import Synthetic, contiguous, require, require_room
from fedmin.data.table import Table

__all__ = ["fedprox", "simulation_one", "simulation_two", "softmax_fedfw"]


def _deviations(features: int) -> np.ndarray:
    return np.arange(1, features + 1) ** -0.6  # square roots of j^-1.2


def fedprox(
    alpha: float = 1.0,
    beta: float = 1.0,
    clients: int = 30,
    features: int = 60,
    classes: int = 10,
    iid: bool = False,
    max_rows: int | None = None,
    test_fraction: float = 0.1,
    seed: int = 0,
) -> Synthetic:
    """FedProx's synthetic(alpha, beta): a softmax model and a feature mean of each client's own.

    u_k ~ N(0, alpha), W_k and b_k ~ N(u_k, 1); B_k ~ N(0, beta), v_k ~ N(B_k, 1),
    x ~ N(v_k, Sigma); y = argmax softmax(W_k x + b_k). Sizes are lognormal(4, 2) + 50. As in the
    authors' program, alpha and beta are standard deviations. [li2020fedprox]

    Args:
        alpha: how much the clients' models differ.
        beta: how much the clients' features differ.
        clients: number of clients.
        features: number of features.
        classes: number of labels.
        iid: one model and v = 0 for all (synthetic-iid).
        max_rows: cut a client's rows at this; lognormal sizes have a long tail.
        test_fraction: share of each client's rows held out, at least one row stays.
        seed: of all draws.

    Truth: client_weights [clients, classes, features], client_biases, separable (True: no noise).

    >>> from fedmin.data import fedprox
    >>> sample = fedprox(0.5, 0.5, clients=5, max_rows=100)
    >>> sample.features, sample.classes, len(sample.parts)
    (60, 10, 5)
    """
    require(
        "fedprox",
        alpha=(alpha, alpha >= 0, "at least 0"),
        beta=(beta, beta >= 0, "at least 0"),
        clients=(clients, clients >= 1, "at least 1"),
        features=(features, features >= 1, "at least 1"),
        classes=(classes, classes >= 1, "at least 1"),
        max_rows=(max_rows, max_rows is None or max_rows >= 2, "None or at least 2"),
        test_fraction=(test_fraction, 0 <= test_fraction < 1, "in [0, 1)"),
    )
    require_room("fedprox", (clients, classes, features))
    rng = np.random.default_rng(seed)
    sizes = rng.lognormal(4.0, 2.0, clients).astype(int) + 50
    sizes = sizes if max_rows is None else np.minimum(sizes, max_rows)
    require_room("fedprox", (int(sizes.sum()), features))
    models = 1 if iid else clients
    u = np.zeros(models) if iid else rng.normal(0.0, alpha, models)
    weights = rng.normal(u[:, None, None], 1.0, (models, classes, features))
    biases = rng.normal(u[:, None], 1.0, (models, classes))
    centers = rng.normal(0.0, beta, clients)
    means = rng.normal(centers[:, None], 1.0, (clients, features)) * (0.0 if iid else 1.0)
    weights, biases = (np.broadcast_to(a, (clients, *a.shape[1:])) for a in (weights, biases))
    train, held, deviations = [], [], _deviations(features)
    for client, size in enumerate(sizes):
        x = rng.normal(means[client], deviations, (size, features)).astype(np.float32)
        y = np.argmax(x @ weights[client].T + biases[client], axis=1)
        keep = size - int(size * test_fraction)
        train.append((x[:keep], y[:keep]))
        held.append((x[keep:], y[keep:]))
    truth = {"client_weights": weights, "client_biases": biases, "separable": True}
    return _stacked("fedprox", train, held, classes, truth)


def _stacked(name, train, held, classes, truth) -> Synthetic:
    def table(name, rows):
        x, y = (np.concatenate(column) for column in zip(*rows, strict=True))
        return Table(name, x, y, classes=classes, meta={"source": "synthetic"})

    test = table(f"{name} test", held) if any(len(y) for _, y in held) else None
    whole = replace(table(name, train), test=test)
    return Synthetic(whole, contiguous([len(y) for _, y in train]), truth)


def softmax_fedfw(
    rows: int = 10000,
    clients: int = 10,
    features: int = 60,
    classes: int = 10,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Synthetic:
    """FedFW's synthetic set: Gaussian features, labels from one softmax model, clients IID.

    x ~ N(0, Sigma), W and b ~ N(0, 1), y = argmax softmax(W x + b). The paper gives 60 features and
    10 labels and leaves the rest open. For its 3 labels a client use
    partition(made.table, LabelsPerClient(10, 3)). [dadras2024federated]

    Truth: weights [classes, features], biases, separable (True: no noise).

    >>> from fedmin.data import softmax_fedfw
    >>> sample = softmax_fedfw(rows=200, clients=4)
    >>> sample.features, sample.classes, sample.test.rows
    (60, 10, 40)
    """
    require(
        "softmax_fedfw",
        test_fraction=(test_fraction, 0 <= test_fraction < 1, "in [0, 1)"),
        features=(features, features >= 1, "at least 1"),
        classes=(classes, classes >= 1, "at least 1"),
    )
    held = round(rows * test_fraction)
    require(
        "softmax_fedfw",
        clients=(clients, 1 <= clients <= rows - held, f"in 1..{rows - held} (training rows)"),
    )
    require_room("softmax_fedfw", (rows, features), (classes, features), (rows, classes))
    rng = np.random.default_rng(seed)
    weights, biases = rng.standard_normal((classes, features)), rng.standard_normal(classes)
    x = (rng.standard_normal((rows, features)) * _deviations(features)).astype(np.float32)
    y = np.argmax(x @ weights.T + biases, axis=1)
    cut = rows - held
    train = [(x[part], y[part]) for part in np.array_split(np.arange(cut), clients)]
    truth = {"weights": weights, "biases": biases, "separable": True}
    return _stacked("softmax_fedfw", train, [(x[cut:], y[cut:])], classes, truth)


def simulation_one(
    alpha: float = 0.1,
    beta: float = 0.1,
    clients: int = 100,
    rows: int = 100,
    features: int = 1000,
    support: int = 100,
    seed: int = 0,
) -> Synthetic:
    """Fed-HT's Simulation I: sparse linear regression, every client with a model of its own.

    u_i ~ N(0.1, alpha); the first `support` entries of x_i ~ N(u_i, 1), the rest 0;
    B_i ~ N(0, beta), v_i ~ N(B_i, 1), z ~ N(v_i, Sigma); y = z.x_i + b, b ~ N(u_i, 1). alpha and
    beta are variances, as N is written in the paper. [tong2022federated] section 5.1

    Args:
        alpha: variance of u_i, how much the clients' models differ.
        beta: variance of B_i, how much the clients' features differ.
        clients: number of clients.
        rows: rows a client.
        features: dimension.
        support: non-zeros of every client's model.
        seed: of all draws.

    Truth: client_models [clients, features], support, client_offsets (u_i).

    >>> from fedmin.data import simulation_one
    >>> sample = simulation_one(clients=3, rows=5, features=20, support=4)
    >>> sample.truth["support"].tolist()
    [0, 1, 2, 3]
    """
    x, scores, truth = _simulation(
        "simulation_one", alpha, beta, clients, rows, features, support, seed
    )
    table = Table("simulation_one", x, scores.ravel(), meta={"source": "synthetic"})
    return Synthetic(table, contiguous([rows] * clients), truth)


def simulation_two(
    alpha: float = 0.1,
    beta: float = 0.1,
    clients: int = 100,
    rows: int = 1000,
    features: int = 1000,
    support: int = 100,
    positives: int = 100,
    seed: int = 0,
) -> Synthetic:
    """Fed-HT's Simulation II: sparse logistic regression on the scores of Simulation I.

    As Simulation I, but client i's label is 1 for its `positives` rows of largest
    sigmoid(z.x_i + b), else 0. At the paper's size the features take 400 MB.

    >>> from fedmin.data import simulation_two
    >>> sample = simulation_two(clients=3, rows=20, features=30, support=4, positives=5)
    >>> [int(sample.y[part].sum()) for part in sample.parts]
    [5, 5, 5]
    """
    require("simulation_two", positives=(positives, 0 <= positives <= rows, f"in 0..rows={rows}"))
    x, scores, truth = _simulation(
        "simulation_two", alpha, beta, clients, rows, features, support, seed
    )
    # the sigmoid grows with its argument: the largest scores have the largest probabilities
    order = np.argsort(-scores, axis=1, kind="stable")
    y = np.zeros(scores.shape, np.int32)
    np.put_along_axis(y, order[:, :positives], 1, axis=1)
    table = Table("simulation_two", x, y.ravel(), classes=2, meta={"source": "synthetic"})
    return Synthetic(table, contiguous([rows] * clients), truth)


def _simulation(name, alpha, beta, clients, rows, features, support, seed):
    require(
        name,
        alpha=(alpha, alpha >= 0, "a variance, at least 0"),
        beta=(beta, beta >= 0, "a variance, at least 0"),
        clients=(clients, clients >= 1, "at least 1"),
        rows=(rows, rows >= 1, "at least 1"),
        support=(support, 1 <= support <= features, f"in 1..features={features}"),
    )
    require_room(name, (clients, rows, features))
    rng = np.random.default_rng(seed)
    u = rng.normal(0.1, np.sqrt(alpha), clients)
    models = np.zeros((clients, features))
    models[:, :support] = rng.normal(u[:, None], 1.0, (clients, support))
    centers = rng.normal(0.0, np.sqrt(beta), clients)
    means = rng.normal(centers[:, None], 1.0, (clients, features)).astype(np.float32)
    # float32 from the start: at the paper's size a float64 copy would take 800 MB
    x = rng.standard_normal((clients, rows, features), dtype=np.float32)
    x *= _deviations(features).astype(np.float32)
    x += means[:, None, :]
    scores = np.stack([x[i] @ models[i].astype(np.float32) for i in range(clients)])
    scores = scores + rng.normal(u[:, None], 1.0, scores.shape)
    truth = {"client_models": models, "support": np.arange(support), "client_offsets": u}
    return x.reshape(-1, features), scores, truth
