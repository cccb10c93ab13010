"""How good the models of a path are on rows that they were not fitted on: by sums at the sites.

Every site deals its own rows out: to K folds, or a share of them to be held out; of each label as
evenly as may be, by a generator of its own. A row that is held out stays where it is and weighs 0
in the fit; in the look at the model the others weigh 0. So no row is in both, all shapes stay as
they are, and one compiled program serves all folds.

A look is an exchange like any other: the model goes down, each site's sums of losses come up.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin.assembling import assemble
from fedmin.core import checks
from fedmin.core.channel import Channel
from fedmin.core.federation import Federation
from fedmin.core.ledger import Ledger
from fedmin.core.metrics import Metric
from fedmin.core.participation import Everyone
from fedmin.core.problem import Problem
from fedmin.core.rows import Rows
from fedmin.engines.drive import Engine, Settings
from fedmin.methods import FedSGD
from fedmin.problems import LeastSquares

LIKELIHOODS = ("LeastSquares", "Logistic", "Poisson", "Softmax")


class RowLoss(Metric):
    """The mean of the rows' losses, without any regularizer, and of their squares."""

    on: Literal["train", "test"] = eqx.field(default="train", static=True)

    def names(self, problem: Problem, rows: Rows) -> tuple[str, ...]:
        return "row_loss", "row_loss_squared"

    def measure(self, problem: Problem, x: Array, rows: Rows) -> Any:
        each = problem.losses(x, rows)[:, 0]
        return rows.weight @ jnp.stack([each, each**2], axis=1)

    def finish(self, problem: Problem, x: Array, sums: Any, reported: dict[str, Any]) -> Any:
        return sums[0], sums[1]


class Seen(NamedTuple):
    """What a look at a model says of some rows."""

    loss: float  # the mean
    error: float  # its standard error, as of so many independent rows
    ledger: Ledger


class Looks(NamedTuple):
    """How models are looked at; nothing else is sent than what a recorded objective takes."""

    loss: Problem
    channel: Channel
    engine: Engine
    seed: int

    def at(self, x: np.ndarray, federation: Federation) -> Seen:
        """The mean loss of a model over rows, those of weight 0 left out."""
        method, record = FedSGD(), (RowLoss(),)
        run = assemble(
            self.loss, federation, method, Everyone(), self.channel, record, None, start=x
        )
        result = self.engine.run(run, federation, Settings(0, self.seed, 1))
        mean, square = (float(result.history[c][-1]) for c in ("row_loss", "row_loss_squared"))
        spread = max(square - mean**2, 0.0)
        return Seen(mean, float(np.sqrt(spread * shrinking(federation))), result.ledger)


def shrinking(federation: Federation) -> float:
    """By how much a mean over rows varies less than one row: sum p_i^2 / n_i."""
    weight = np.asarray(federation.pool.weight)
    owner = np.repeat(np.arange(federation.num_clients), federation.sizes)
    counts = np.bincount(owner, weight > 0, federation.num_clients)
    return float(np.sum(np.asarray(federation.weights) ** 2 / counts))


class Part(NamedTuple):
    """One division of the rows: what is fitted on, and what is looked at."""

    name: str
    fit: Federation
    held: Federation


def parts(
    federation: Federation, choose: str, folds: int, share: float, seed: int
) -> Iterator[Part]:
    """The divisions that a choice takes: K of folds, one of rows held out, none of BIC."""
    if choose == "folds":
        numbers = folds_of(federation, folds, seed)
        for k in range(folds):
            yield Part(f"fold {k + 1}", *_divided(federation, numbers == k))
    elif choose == "holdout":
        yield Part("holdout", *_divided(federation, held_out(federation, share, seed)))


def folds_of(federation: Federation, folds: int, seed: int) -> np.ndarray:
    """i[rows]: the fold that each row of the pool is in; of each site and label about as many."""
    checks.at_least("folds", folds, 2)
    numbers = np.full(federation.pool.count, -1)
    for i, mine in _rows_of(federation):
        if len(mine) < folds:
            raise ValueError(
                f"site {federation.names[i]} has {len(mine)} rows that count, too few for {folds} "
                f"folds; give folds={max(len(mine), 2)} or fewer, or choose='bic'"
            )
        dealt, first = _dealt(federation, i, mine, seed)
        numbers[dealt] = (first + np.arange(len(mine))) % folds
    return numbers


def held_out(federation: Federation, share: float, seed: int) -> np.ndarray:
    """bool[rows]: which rows of the pool are held out, a share of each site's and each label's."""
    checks.between("share", share, 0.0, 1.0, open_low=True, open_high=True)
    held = np.zeros(federation.pool.count, bool)
    for i, mine in _rows_of(federation):
        count = round(share * len(mine))
        if not 0 < count < len(mine):
            raise ValueError(
                f"site {federation.names[i]} has {len(mine)} rows that count: share={share:g} of "
                f"them leaves {'none to look at' if count == 0 else 'none to fit on'}"
            )
        dealt, _ = _dealt(federation, i, mine, seed)
        places = np.arange(len(mine))  # evenly among the rows, which are sorted by label
        held[dealt] = (places + 1) * count // len(mine) > places * count // len(mine)
    return held


def _rows_of(federation: Federation) -> Iterator[tuple[int, np.ndarray]]:
    """Where in the pool each site's rows are, those of weight 0 left out."""
    weight = np.asarray(federation.pool.weight)
    for i, (start, size) in enumerate(zip(federation.starts, federation.sizes, strict=True)):
        place = np.arange(start, start + size)
        yield i, place[weight[place] > 0]


def _dealt(federation: Federation, i: int, mine: np.ndarray, seed: int) -> tuple[np.ndarray, int]:
    """A site's rows in an order of its own, by labels where there are any; and the first fold."""
    rng = np.random.default_rng((seed, i))
    order = rng.permutation(mine)
    if federation.classes is not None:
        order = order[np.argsort(np.asarray(federation.pool.y)[order], kind="stable")]
    return order, int(rng.integers(2**31))


def _divided(federation: Federation, held: np.ndarray) -> tuple[Federation, Federation]:
    return weighing(federation, ~held), weighing(federation, held)


def weighing(federation: Federation, counts: np.ndarray) -> Federation:
    """The same rows, of which only these count; p_i follow them where they are shares of rows."""
    pool = federation.pool
    weight = np.where(counts, np.asarray(pool.weight), 0).astype(pool.weight.dtype)
    shares = federation.weights
    if federation.by_rows:
        owner = np.repeat(np.arange(federation.num_clients), federation.sizes)
        held = np.bincount(owner, weight, federation.num_clients)
        shares = held / held.sum()
    return replace(federation, pool=pool.weighing(weight), weights=shares)


def check_likelihood(loss: Problem) -> None:
    """Refuse a BIC of what is no likelihood."""
    if type(loss).__name__ not in LIKELIHOODS:
        raise ValueError(
            f"choose='bic' is for {', '.join(LIKELIHOODS)}, whose losses are minus a log-"
            f"likelihood; with {type(loss).__name__} take choose='folds'"
        )


def bic(problem: Problem, mean: float, rows: float, nonzeros: int) -> float:
    """n log(2 mean) + k log n of least squares, 2 n mean + k log n of other likelihoods.

    Terms that are the same for all models of these rows are left out.
    """
    if isinstance(problem, LeastSquares):
        deviance = rows * np.log(max(2 * mean, np.finfo(float).tiny))
    else:
        deviance = 2 * rows * mean
    return float(deviance + nonzeros * np.log(rows))
