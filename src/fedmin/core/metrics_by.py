"""A metric's own line for each label, each group of rows, or each site.

    record = ["objective", {name = "bygroup", of = {name = "scores"}},
              {name = "bysite", of = {name = "logloss", on = "train"}}]

The rows are cut by weights: a row counts in its own part and nowhere else, and what is summed of
each part travels as any sums do. A part without rows has no number (NaN in the history).
"""

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.core import payload
from fedmin.core.metrics import Metric, Objective, Scores
from fedmin.core.prediction_metrics import Confusion, OfPredictions, classes_of
from fedmin.core.rows import Rows

MOST_PARTS = 100  # a line each in the history


class By(Metric):
    """A metric of parts of the rows; a subclass says which parts there are."""

    of: Metric
    kind: ClassVar[str]  # what a part is, in the columns' names

    def __check_init__(self):
        name = type(self).__name__
        if isinstance(self.of, By) or not isinstance(self.of, Objective | Scores | OfPredictions):
            raise ValueError(f"{name} is of sums over rows, such as scores or logloss; "
                             f"{type(self.of).__name__} is none of them")  # fmt: skip

    @property  # type: ignore[misc]
    def on(self):  # type: ignore[override]
        return self.of.on

    @abstractmethod
    def parts(self, problem: Any) -> Sequence[str]:
        """What the parts are called."""

    @abstractmethod
    def masks(self, problem: Any, rows: Rows) -> Array:
        """f[parts, n]: 1 where a row is in a part."""

    def names(self, problem, rows):
        inside = self.of.names(problem, rows)
        return tuple(f"{name}_{self.kind}_{part}" for part in plain_words(self.parts(problem))
                     for name in inside)  # fmt: skip

    def rising(self, names):
        inside = lambda name: name.rpartition(f"_{self.kind}_")[0]
        better = self.of.rising(tuple(dict.fromkeys(map(inside, names))))
        return tuple(name for name in names if inside(name) in better)

    def measure(self, problem, x, rows):
        def one(mask):
            weight = rows.weight * mask.astype(rows.weight.dtype)
            sums = self.of.measure(problem, x, rows.weighing(weight))
            dense = lambda part: part.dense() if payload.is_payload(part) else part
            found = jax.tree.map(dense, sums, is_leaf=payload.is_payload)
            return found, jnp.sum(weight)

        return jax.vmap(one)(self.masks(problem, rows))

    def finish(self, problem, x, sums, reported):
        parts, weight = sums
        # the means over a part: its own sums by its own weight
        whole = jnp.where(weight > 0, weight, 1)
        means = jax.tree.map(lambda a: (a.T / whole.astype(a.dtype)).T, parts)
        each = jax.vmap(lambda one: self.of.finish(problem, x, one, reported))(means)
        table = jnp.where((weight > 0)[:, None], jnp.stack(each, axis=1), jnp.nan)
        return tuple(table.ravel())


class ByGroup(By):
    """A metric for each group of rows: columns such as accuracy_group_f.

    >>> import fedmin
    >>> fedmin.ByGroup(fedmin.LogLoss(), groups=("f", "m")).names(None, None)
    ('log_loss_group_f', 'log_loss_group_m')
    """

    of: Metric
    groups: tuple[str, ...] = eqx.field(default=(), static=True)  # the run knows their names
    kind = "group"

    def fitted(self, problem, roster):
        if not roster.groups:
            raise ValueError(f"{self} needs rows that are in groups: Table.grouped(...), or "
                             f"groups = ... in [data]")  # fmt: skip
        return replace(self, groups=roster.groups)

    def parts(self, problem):
        return self.groups

    def masks(self, problem, rows):
        if rows.group is None:
            raise ValueError(f"{self}: these rows are in no groups")
        return rows.group[None, :] == jnp.arange(len(self.groups), dtype=jnp.int32)[:, None]


class ByClass(By):
    """A metric for each label: of the rows that have it, and of `Auc`, `Roc` and `Calibration` the
    label against all others.

    The accuracy of a label is the share of its rows that are found (its recall).

    >>> import fedmin
    >>> fedmin.ByClass(fedmin.Scores()).parts(fedmin.Softmax(4, 3))
    ('0', '1', '2')
    """

    of: Metric
    kind = "class"

    def __check_init__(self):
        if isinstance(self.of, Confusion):
            raise ValueError("a confusion matrix has a line for each label itself")

    def fitted(self, problem, roster):
        if roster.classes is None:
            raise ValueError(f"{self} is of labels, and the rows have numbers to predict")
        return self

    def parts(self, problem):
        return tuple(map(str, range(classes_of(problem))))

    def masks(self, problem, rows):
        return rows.y[None, :] == jnp.arange(classes_of(problem), dtype=rows.y.dtype)[:, None]

    def _against(self, problem: Any) -> list[Any]:
        of: Any = self.of
        return [replace(of, label=k) for k in range(classes_of(problem))]

    def measure(self, problem, x, rows):
        if not hasattr(self.of, "label"):
            return By.measure(self, problem, x, rows)
        return [each.measure(problem, x, rows) for each in self._against(problem)]

    def finish(self, problem, x, sums, reported):
        if not hasattr(self.of, "label"):
            return By.finish(self, problem, x, sums, reported)
        each = zip(self._against(problem), sums, strict=True)
        return tuple(v for one, s in each for v in one.finish(problem, x, s, reported))


class BySite(By):
    """A metric for each site, of its own rows: columns such as train_log_loss_site_north.

    A site whose policy says `own_line = false` has no number there; it counts in all other sums.

    >>> import fedmin
    >>> fedmin.BySite(fedmin.LogLoss(on="train"), sites=("a", "b")).names(None, None)
    ('train_log_loss_site_a', 'train_log_loss_site_b')
    """

    of: Metric
    sites: tuple[str, ...] = eqx.field(default=(), static=True)  # the run knows their names
    kind = "site"
    by_site = True

    def __check_init__(self):
        if self.of.on != "train":
            raise ValueError(
                f"BySite is of the sites' own rows: {type(self.of).__name__}(on='train'), in a "
                f'file {{name = "bysite", of = {{..., on = "train"}}}}'
            )

    def fitted(self, problem, roster):
        if roster.clients > MOST_PARTS:
            raise ValueError(f"BySite is of at most {MOST_PARTS} sites, got {roster.clients}")
        return replace(self, sites=roster.names)

    def parts(self, problem):
        return self.sites

    def masks(self, problem, rows):
        if rows.site is None:  # shapes only: nobody's rows
            return jnp.zeros((len(self.sites), rows.count), bool)
        return rows.site[None, :] == jnp.arange(len(self.sites), dtype=jnp.int32)[:, None]


def lined(record: Sequence[Metric], rows: Rows, site: int) -> Rows:
    """A site's rows with its number, if a metric has a number for each site; -1: it has none."""
    return rows.of_site(site) if any(metric.by_site for metric in record) else rows


def check_by_site(record: Sequence[Metric], channel: Any, noisy: bool) -> None:
    """Refuse a number for each site where single sites are hidden, or where there is noise."""
    found = [metric for metric in record if metric.by_site]
    if found and (channel.hides or channel.blind or noisy):
        raise ValueError(
            f"{found[0]} shows each site by itself, and {type(channel).__name__} is to hide that: "
            f"leave it out, or take a channel that shows single replies"
        )


def plain_words(names: Sequence[str]) -> list[str]:
    """Names that can stand in the head of a table; two that would be alike are numbered.

    >>> from fedmin.core.metrics_by import plain_words
    >>> plain_words(["f", "a, b", "a; b"])
    ['f', 'a_b_2', 'a_b_3']
    """
    found = [re.sub(r"[^\w.+<>=-]+", "_", name) for name in names]
    return [f"{name}_{i + 1}" if found.count(name) > 1 else name for i, name in enumerate(found)]


METRICS_BY: dict[str, type[Metric]] = {"bygroup": ByGroup, "byclass": ByClass, "bysite": BySite}
