"""Auditing one round where columns are split: what follows of the columns of others.

    embeddings   h_i = X_i W_i^T: who reads h_i and has the block W_i computes h_i pinv(W_i^T),
                 which is X_i where the block has no more columns than h_i numbers
    sums         of embeddings, the same with the blocks of all side by side: far fewer equations
    gradients    G_i = S^T X_i of the own block, at the server. With the slopes S of the loss by h
                 they tell what h_i leaves open: X - X P = pinv(S^T) G (1 - P), P = pinv(W) W.
                 Without, all blocks together are the gradient of whole rows, as on rows

Unknowns and equations are linear but for the last case, so ranks are counted exactly: of B rows and
k columns all but (B - rank S)(k - rank W) are determined.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core.channel import Among
from fedmin.core.column_problem import FirstLayer
from fedmin.core.federation import Federation
from fedmin.core.matrix import Dense
from fedmin.core.rows import Rows
from fedmin.engines.auditing import AuditSettings
from fedmin.engines.observing import OBSERVER, flat
from fedmin.engines.round import Run, among
from fedmin.privacy.audit import inversion
from fedmin.privacy.audit.attack import Outcome, Rebuilt, Target, attacked
from fedmin.privacy.audit.findings import Finding
from fedmin.privacy.audit.inversion import Rank
from fedmin.privacy.policy import innermost


class Known(NamedTuple):
    """What some parties together have."""

    blocks: bool  # W
    reads: bool  # embeddings, or their sum
    slopes: bool  # S
    gradients: bool  # G


class ColumnScene:
    """One batch of one round at a model x: whole rows, and what is computed of them."""

    def __init__(
        self, run: Run, federation: Federation, x: Any, rounds: int, rows: tuple[Any, Any]
    ):
        self.run, self.roster = run, federation.roster()
        layer: Any = innermost(run.problem)
        problem: Any = run.problem
        if not isinstance(layer, FirstLayer) or not problem.inner.additive:
            raise ValueError(
                f"{type(layer).__name__} has no linear first layer with a sum of embeddings: on "
                f"columns an audit knows no other"
            )
        self.layer: Any = layer
        self.owners = self.roster.owners
        self.x, self.rounds, (self.z, self.y) = jnp.asarray(x), rounds, rows
        assert self.owners is not None
        starts, sizes = (np.asarray(a).tolist() for a in (self.owners.starts, self.owners.sizes))
        self.places = [np.arange(a, a + n) for a, n in zip(starts, sizes, strict=True)]
        head, blocks = (np.asarray(a) for a in problem.cut(self.x))
        blocks = blocks.reshape(len(sizes), layer.embedding, -1)
        each = [block[:, :n] for block, n in zip(blocks, sizes, strict=True)]
        self.W = np.concatenate(each, axis=1)
        self.slopes = self._slopes(problem, jnp.asarray(head))
        trips = run.method.exchanges(run.problem, self.roster)
        embeds = next(trip for trip in trips if trip.embeds)
        carrier = run.channel.for_trip(embeds)
        self.single = among(run.channel, embeds) is None and not isinstance(carrier, Among)
        first = np.asarray(run.origin.init(jax.random.key(0)))
        self.known_start = rounds == 0 and bool(np.any(first[: self.W.size]))

    def _batch(self, z: Any, y: Any) -> Rows:
        return Rows(Dense(z), y, jnp.ones(z.shape[0], z.dtype))

    def _slopes(self, problem: Any, head: Any) -> np.ndarray:
        """S, f[B, (1 + M) e]: the losses' slopes by the sum of the embeddings."""
        batch = self._batch(jnp.asarray(self.z), jnp.asarray(self.y))
        skipped = int(problem.bare)

        def means(h):
            return jnp.mean(problem.inner.head(head, h, batch)[:, skipped:], axis=0)

        found = jax.jacrev(means)(jnp.asarray(self.z @ self.W.T, self.x.dtype))
        return np.concatenate(np.asarray(found, float), axis=-1)

    def gradient(self, z: Any, y: Any) -> Any:
        """What the blocks' gradients, the head's and the values are together, of whole rows."""

        def means(x):
            found = self.run.problem.losses(x, self._batch(z, y))
            found = jnp.mean(found[:, int(self.run.problem.bare) :], axis=0)
            return found, found

        slopes, values = jax.jacrev(means, has_aux=True)(self.x.astype(z.dtype))
        return flat((slopes, values))

    def known(self, observers: Sequence[str]) -> Known:
        """What these parties have of the round."""
        server, labels = OBSERVER in observers, self.owners.labels  # type: ignore[union-attr]
        clients = [self.roster.names.index(each) for each in observers if each != OBSERVER]
        blocks = server or self.known_start
        if labels == "server":
            return Known(blocks, server, True, server)
        receivers = clients if labels == "everyone" else [i for i in clients if i == labels]
        return Known(blocks, bool(receivers), bool(clients), server)


def column_findings(scene: ColumnScene, settings: AuditSettings) -> tuple[Finding, ...]:
    """Every observer's view, attacked."""
    names = scene.roster.names
    labels = scene.owners.labels  # type: ignore[union-attr]
    reader = labels if isinstance(labels, int) else 0
    usual = [(OBSERVER,), (names[reader],), (OBSERVER, names[reader])]
    wanted = usual if settings.observers is None else [tuple(each) for each in settings.observers]
    return tuple(_finding(scene, each, settings) for each in wanted)


def _finding(scene: ColumnScene, observers: tuple[str, ...], settings: AuditSettings) -> Finding:
    names = scene.roster.names
    for each in observers:
        if each != OBSERVER and each not in names:
            raise ValueError(f"no observer {each!r}: there are {OBSERVER}, {', '.join(names)}")
    victims = [i for i, name in enumerate(names) if name not in observers]
    if not victims:
        raise ValueError("everybody together holds all columns: there is nothing to infer")
    known, who = scene.known(observers), tuple(names[i] for i in victims)
    columns = np.concatenate([scene.places[i] for i in victims])
    if known.gradients and not known.slopes:
        first = scene.layer.embedding, scene.layer.features
        seen = np.asarray(scene.gradient(jnp.asarray(scene.z), jnp.asarray(scene.y)))
        target = Target(scene.gradient, seen, scene.z, scene.y, layer=first)
        outcome = attacked(target, settings.public, settings.effort, settings.seed)
        return Finding(observers, who, "the gradients of all blocks", outcome, scene.z)
    reads = known.reads and known.blocks
    slopes = scene.slopes if known.gradients else np.zeros((len(scene.z), 0))
    span, mean = settings.public.span, settings.public.mean[columns]
    true = scene.z[:, columns]
    groups = [scene.places[i] for i in victims] if scene.single else [columns]
    parts = [_solved(scene.z[:, g], scene.W[:, g] * reads, slopes) for g in groups]
    rows = np.concatenate([part for part, _ in parts], axis=1)
    rank, unknowns = sum(n for _, n in parts), true.size
    guess = inversion.psnr(np.tile(mean, (len(true), 1)), true, span)
    found = [Rebuilt("average row", guess, np.tile(mean, (len(true), 1)), float("nan"))]
    if rank:
        found.append(Rebuilt("closed form, columns", inversion.psnr(rows, true, span), rows, 0.0))
    largest = float(np.linalg.norm(scene.W[:, columns], 2))
    outcome = Outcome(Rank(rank, unknowns, unknowns, largest, 0.0), guess, tuple(found),
                      *_labels(scene, observers, settings))  # fmt: skip
    return Finding(observers, who, _words(scene, known, reads), outcome, true)


def _solved(z: np.ndarray, W: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, int]:
    """The columns of least size that have these embeddings and gradients; how many numbers of them
    are determined."""
    h, G = z @ W.T, S.T @ z
    P = np.linalg.pinv(W) @ W
    left = np.linalg.pinv(S.T) @ (G - G @ P) if S.shape[1] else np.zeros_like(z)
    ranks = (int(np.linalg.matrix_rank(a)) if a.size else 0 for a in (S, W))
    open_rows, open_columns = (n - r for n, r in zip(z.shape, ranks, strict=True))
    return h @ np.linalg.pinv(W.T) + left, z.size - open_rows * open_columns


def _labels(
    scene: ColumnScene, observers: tuple[str, ...], settings: AuditSettings
) -> tuple[float | None, float | None]:
    """The labels that slopes tell those who do not have them."""
    labels, classes = scene.owners.labels, settings.public.classes  # type: ignore[union-attr]
    holder = OBSERVER if labels == "server" else labels
    holder = scene.roster.names[holder] if isinstance(holder, int) else holder
    told = labels != "everyone" and any(each != OBSERVER for each in observers)
    if classes is None or holder in observers or not told:
        return None, None
    e = scene.layer.embedding
    first = scene.slopes[:, :e]
    found = np.argmin(first, axis=1) if e == classes else (first[:, 0] < 0).astype(int)
    if e not in (1, classes):
        return None, None
    common = np.full(len(scene.y), settings.public.common)
    return tuple(float(np.mean(each == scene.y)) for each in (found, common))  # type: ignore[return-value]


def _words(scene: ColumnScene, known: Known, reads: bool) -> str:
    what = []
    if known.reads:
        each = "each embedding" if scene.single else "the sum of the embeddings"
        what.append(f"{each} and the blocks" if reads else f"{each}, without the blocks")
    if known.gradients:
        what.append("gradients of blocks and slopes")
    return ", ".join(what) or "slopes"
