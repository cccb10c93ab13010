"""The paper's data: two simulations, text cut by clusters, digits cut by labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import fedmin
from fedmin import data


@dataclass(frozen=True, eq=False)
class World:
    """A problem over an l0 ball, who holds the rows, and what a step of the paper is for it."""

    name: str
    problem: fedmin.Problem
    federation: fedmin.Federation
    truth: Any = None  # the true support, where there is one
    scale: float = 1.0  # the paper's loss over fedmin's; a step of the paper is this much longer
    clusters: Any = None  # (rows, cluster of each row), where rows were clustered


def simulation_one(alpha: float, seed: int, **size) -> World:
    """Sparse linear regression; the paper's |Y - Zx|^2/B is twice fedmin's loss."""
    made = data.simulation_one(alpha, alpha, seed=seed, **size)
    tau = min(200, made.features // 2)
    problem = fedmin.over(fedmin.LeastSquares(made.features), fedmin.L0Ball(tau))
    return World(f"sim1-{alpha:g}", problem, data.partition(made), made.truth["support"], 2.0)


def simulation_two(alpha: float, seed: int, l2: float, **size) -> World:
    """Sparse logistic regression."""
    made = data.simulation_two(alpha, alpha, seed=seed, **size)
    tau = min(200, made.features // 2)
    problem = fedmin.over(fedmin.Logistic(made.features, l2=l2), fedmin.L0Ball(tau))
    return World(f"sim2-{alpha:g}", problem, data.partition(made), made.truth["support"])


def text(name: str, seed: int, l2: float, pieces: int, tau: int = 200, clusters=10) -> World:
    """Sparse rows of text, k-means into clusters, and two clusters a client."""
    from sklearn.cluster import KMeans

    table = made_text(seed) if name == "made" else data.load(name)
    found = KMeans(clusters, n_init=3, random_state=seed).fit_predict(table.x)
    federation = data.partition(table, two_parts_each(found, pieces, seed))
    if table.classes == 2:
        problem = fedmin.over(fedmin.Logistic(table.features, l2=l2), fedmin.L0Ball(tau))
    else:
        softmax = fedmin.Softmax(table.features, table.classes, l2=l2)
        problem = fedmin.over(softmax, fedmin.L0Ball(tau, each="row"))
    return World(f"text-{name}", problem, federation, clusters=(table.x, found))


def made_text(seed: int, rows: int = 300, words: int = 400, topics: int = 10) -> data.Table:
    """Rows of word counts that need no download: a topic has its own words, and a label."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, topics, rows)
    usual = rng.dirichlet(np.full(words, 0.05), topics)
    counts = np.stack([rng.multinomial(30, usual[t]) for t in topic]).astype(np.float32)
    return data.Table("made", sp.csr_matrix(counts / 30), topic % 2, classes=2)


def digits(name: str, seed: int, l2: float, tau: int, pieces: int) -> World:
    """Digits; the labels are the clusters. tau entries a class."""
    table = data.load(name)
    federation = data.partition(table, two_parts_each(np.asarray(table.y), pieces, seed))
    softmax = fedmin.Softmax(table.features, table.classes, l2=l2)
    return World(name, fedmin.over(softmax, fedmin.L0Ball(tau, each="row")), federation)


def two_parts_each(clusters: np.ndarray, pieces: int, seed: int) -> list[np.ndarray]:
    """Each cluster cut into pieces; each client gets two of different clusters, all are given."""
    rng = np.random.default_rng(seed)
    parts = []
    for cluster in np.unique(clusters):
        rows = rng.permutation(np.flatnonzero(clusters == cluster))
        parts += [(cluster, part) for part in np.array_split(rows, pieces) if len(part)]
    # a piece of the first half of the clusters beside one of the second: never the same cluster
    order = sorted(range(len(parts)), key=lambda i: parts[i][0])
    half = len(order) // 2
    clients = []
    for a, b in zip(order[:half], rng.permutation(order[half : 2 * half]), strict=True):
        clients.append(np.concatenate([parts[a][1], parts[b][1]]))
    clients += [parts[i][1] for i in order[2 * half :]]
    return clients
