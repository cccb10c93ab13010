"""What is recorded: sums over the clients' rows, which the server finishes into numbers.

Between the halves of a run looking at the model is an exchange like any other: the server sends the
model, every site sends sums over its own rows, the server adds them up. Where columns are split it
takes the trips of `client/column_trips.py`, over all rows. Rows that the server holds itself (the
federation's test rows) it measures itself. The simulator computes the same sums from its pool.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedmin.channels import Plain
from fedmin.client import column_trips
from fedmin.core import payload
from fedmin.core.channel import Channel
from fedmin.core.method import Exchange, Trip
from fedmin.core.metrics import Metric, Optimality, numbered
from fedmin.core.payload import Tally
from fedmin.core.result import Best
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows, Shard
from fedmin.engines.compiled import SHAPES, form_of
from fedmin.engines.round import Run, ServerState


class Measured(NamedTuple):
    """What the server knows while the model is looked at."""

    x: Array
    sums: Any  # one entry for each metric of the clients' rows


# ---------------------------------------------------------------- between the halves


@dataclass(frozen=True)
class Evaluation:
    """The trips of one look at the model, and the metrics whose sums they bring."""

    run: Run
    roster: Roster
    metrics: tuple[int, ...]  # numbers of the metrics that need the clients' rows
    trips: tuple[Trip, ...]
    channel: Channel = Plain()  # that carries their replies

    @cached_property
    def blank(self) -> Any:
        """The server's state before the first trip, of a model of zeros."""
        run, roster = self.run, self.roster
        record = [run.record[m] for m in self.metrics]

        def make():
            x = _model(run)
            if roster.owners is None:
                sums = _site_sums(run, roster, record, x, _zeros(roster.blank()))
                return Measured(x, payload.total(jax.tree.map(lambda a: a[None], sums)))
            problem: Any = run.problem
            empty = column_trips.no_estimate(problem)
            own = Measured(x, [m.of_estimate(problem, empty) for m in record])
            return column_trips.start(problem, column_trips.ALL, own, _scores(record))

        return _zeros(jax.eval_shape(make))

    def start(self, x: Array) -> Any:
        """The server's state before the first trip."""
        if self.roster.owners is None:
            return self.blank._replace(x=x)
        return self.blank._replace(own=self.blank.own._replace(x=x))

    def sums(self, state: Any) -> dict[int, Any]:
        """The sums that the trips have brought, by the metric's number."""
        own = state.own if self.roster.owners is not None else state
        return dict(zip(self.metrics, own.sums, strict=True))


def evaluation(run: Run, roster: Roster) -> Evaluation:
    """How the model is looked at in such a run; without trips where no metric needs rows."""
    every = range(len(run.record))
    form = ("wanted", form_of(run, roster.unnamed()))
    wanted = SHAPES.get(
        form, lambda: tuple(m for m in every if needs_rows(run, roster, run.record[m]))
    )
    if not wanted:
        return Evaluation(run, roster, (), ())
    record = [run.record[m] for m in wanted]
    if roster.owners is None:
        one = _on_rows(run, roster, record)
        return Evaluation(run, roster, wanted, (one,), looking_channel(run))

    def done(problem, own: Measured, estimate, now) -> Measured:
        return Measured(own.x, [metric.of_estimate(problem, estimate) for metric in record])

    problem: Any = run.problem
    gradients = any("gradients" in metric.needs for metric in record)
    trips = column_trips.looks(problem, lambda own: own.x, done, gradients, _scores(record))
    return Evaluation(run, roster, wanted, trips, looking_channel(run))


def certifying(run: Run) -> Run:
    """The same run where it looks at the last model for a certificate: all sums and slopes."""
    return replace(run, record=(Optimality(),), stop=None)


def looking_channel(run: Run) -> Channel:
    """What carries the sites' sums; a run that only looks has it already."""
    channel = run.channel if run.method is None else run.channel.for_evaluation()
    return Plain() if channel is None else channel


def _zeros(like: Any) -> Any:
    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)


def _scores(record: list[Metric]) -> bool:
    return any("scores" in metric.needs for metric in record)


def needs_rows(run: Run, roster: Roster, metric: Metric) -> bool:
    """Whether a metric takes sums over the clients' rows."""
    if metric.on != "train":
        return False
    x, rows = jax.eval_shape(lambda: _model(run)), roster.rows_like()
    return bool(jax.tree.leaves(jax.eval_shape(metric.measure, run.problem, x, rows)))


def _model(run: Run) -> Array:
    """A model of the right shape; whose method it is does not matter."""
    return run.problem.init(jax.random.key(0))


def _on_rows(run: Run, roster: Roster, record: list[Metric]) -> Exchange:
    def broadcast(problem, server: Measured, now):
        return {"model": server.x}

    def client(problem, rows, state, down, now):
        return {"sums": _site_sums(run, roster, record, down["model"], rows)}, state

    def server(problem, server_rows, server: Measured, learnt, now) -> Measured:
        # of those who answered; multiplied by one if all did, so that no bit changes
        scale = jnp.where(learnt.count == roster.clients, 1, 1 / learnt.weight)
        sums = learnt.total["sums"]
        return Measured(server.x, jax.tree.map(lambda a: a * scale.astype(a.dtype), sums))

    return Exchange(broadcast, client, server)


def _site_sums(run: Run, roster: Roster, record: list[Metric], x: Array, rows: Any) -> Any:
    """Means over a site's rows, which the channel multiplies by p_i; and counts.

    Counts stay whole where clients count as their rows do; elsewhere they are shares as well, and
    so they are in a channel that knows no counts.
    """
    whole = roster.by_rows and isinstance(looking_channel(run), Plain)

    def part(some: Rows):
        return [metric.measure(run.problem, x, some) for metric in record], jnp.sum(some.weight)

    sums, weight = rows.sum(part, run.problem.window)

    def mean(part):
        if isinstance(part, Tally):
            return part if whole else part.dense() / weight
        return part / weight.astype(part.dtype)

    return jax.tree.map(mean, sums, is_leaf=payload.is_payload)


# ---------------------------------------------------------------- from sums to numbers


def recorded(run: Run, roster: Roster, info: dict[str, Any]) -> tuple[str, ...]:
    """The names of what is recorded."""
    rows: Any = roster.rows_like()
    names = [name for metric in run.record for name in metric.names(run.problem, rows)]
    server = jax.eval_shape(
        lambda key: run.method.init_server(run.origin, roster, key), jax.random.key(0)
    )
    reported = {**jax.eval_shape(run.method.report, server), **info}
    for name, like in sorted(reported.items()):
        names += numbered(name, math.prod(like.shape))
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise ValueError(f"record has the column {sorted(twice)[0]!r} more than once")
    return tuple(names)


def rows_sums(run: Run, x: Array, on: str, rows: Rows, device: Array, devices: int) -> Any:
    """The sums of the metrics on these rows, and the rows' weight: this device's part."""
    wanted = _wanted(run, on)
    share = -(-rows.count // devices)
    size = jnp.clip(rows.count - device * share, 0, share)

    def sums(part: Rows):
        found = [run.record[i].measure(run.problem, x, part) for i in wanted]
        return found, jnp.sum(part.weight)

    return Shard(rows, device * share, size, share).sum(sums, run.problem.window)


def rows_means(run: Run, on: str, sums: Any) -> dict[int, Any]:
    """From the sums of all devices to the metrics' means, by their numbers."""
    found, weight = sums
    return dict(zip(_wanted(run, on), payload.means(found, weight), strict=True))


def _wanted(run: Run, on: str) -> list[int]:
    return [i for i, metric in enumerate(run.record) if metric.on == on]


def finished(run: Run, server: ServerState, sums: dict[int, Any]) -> Array:
    """f[columns]: everything recorded, from the sums of all metrics."""
    x = run.method.solution(server.method)
    reported = {**run.method.report(server.method), **server.info}
    # a metric that needs no rows has no sums
    each = [m.finish(run.problem, x, sums.get(i, ()), reported) for i, m in enumerate(run.record)]
    values = [*(v for some in each for v in some), *(reported[name] for name in sorted(reported))]
    return jnp.concatenate([jnp.ravel(value).astype(x.dtype) for value in values])


def best_of(
    run: Run, names: tuple[str, ...], old: Best | None, server: ServerState, values, round
) -> Any:
    """The better of the best so far and what was just measured; None without constraints."""
    if not run.problem.num_constraints or not {"objective", "violation"} <= set(names):
        return None
    objective, violation = (values[names.index(c)] for c in ("objective", "violation"))
    x = run.method.solution(server.method)
    new = Best(x, objective, violation, jnp.asarray(round, jnp.int32))
    if old is None:
        return new
    fits, did = (best.violation <= run.problem.tolerance for best in (new, old))
    better = jnp.where(did, fits & (objective < old.objective), violation < old.violation)
    return jax.tree.map(lambda a, b: jnp.where(better, a, b), new, old)


def is_lost(names: tuple[str, ...], values: Any) -> Any:
    """Whether the objective was recorded and is not finite."""
    if "objective" not in names:
        return False
    return ~jnp.isfinite(values[names.index("objective")])
