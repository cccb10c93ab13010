"""One round, in pieces that every engine shares: keys, a site's part of a trip, the server's.

A key is the seed folded with the round, the trip and the party, so that a party draws the same
numbers in every engine, whatever else runs.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin.core import payload
from fedmin.core.channel import Among, Channel, Cohort
from fedmin.core.column_problem import starting_at
from fedmin.core.method import Exchange, Gathered, Method, Now, Relay, Reported, Sum, Trip
from fedmin.core.metrics import Metric
from fedmin.core.participation import Participation
from fedmin.core.problem import Problem
from fedmin.core.release import Release
from fedmin.core.result import Best
from fedmin.core.rows import Columns, Rows, Shard
from fedmin.core.stopping import Rule

# parties that are not clients, as numbers no client has
SERVER, COHORT, START, SHARED = (2**31 - 1 - i for i in range(4))
NOBODY = 2**31 - 1  # "no client is at fault"
THE_SUM = 2**31 - 2  # "the sum is at fault, no single reply"


class Run(eqx.Module):
    """What is run; an argument of everything that is compiled."""

    problem: Problem
    method: Method
    channel: Channel
    participation: Participation
    record: tuple[Metric, ...]
    stop: Rule | None
    start: Array | None = None  # the first model, if it is not the problem's own
    certify: bool = eqx.field(default=False, static=True)  # the last model, on all rows
    told: tuple[Release, ...] = eqx.field(default=(), static=True)  # with noise, before round 0
    statistics: bool = eqx.field(default=False, static=True)  # of the last model, on all rows

    @property
    def origin(self) -> Problem:
        """The problem as those see it who begin: its first x is that of the run."""
        return starting_at(self.problem, self.start)

    def before(self, unit: str) -> tuple[Release, ...]:
        """What was told of such a unit before round 0, with noise, by preparing columns."""
        return tuple(each._replace(once=True) for each in self.told if each.unit == unit)


def fluid(run: Run) -> Run:
    """Numbers as arrays, so that a new step size does not compile anew."""
    return jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, float) else a, run)


def looking(run: Run) -> Run:
    """What a look at the model takes of a run: the problem, the metrics, and what carries their
    sums. Runs that differ in their method only look alike, and use one program for it."""
    none: Any = None
    return Run(run.problem, none, run.channel.for_evaluation(), none, run.record, None)  # type: ignore[arg-type]


class SiteState(eqx.Module):
    """What a site remembers from round to round: its owner is the site, and nobody else.

    In the simulator there is one for all sites, with a leading client axis on every leaf.
    """

    client: Any  # the method's
    memory: tuple[Any, ...]  # the channel's, an entry a trip
    server: Any = None  # where sites do the server's step: what the server would remember


class ServerState(eqx.Module):
    """What the server remembers from round to round."""

    method: Any
    channel: tuple[Any, ...]  # the channel's server half, an entry a trip
    info: dict[str, Array]  # what the method reports of its last step; counts add up
    best: Best | None = None  # of what was recorded, where there are constraints


class State(eqx.Module):
    """All that the future of a run depends on, but for its round and seed."""

    server: ServerState
    sites: SiteState


def key_of(key: Array, round: Array, trip: int, party: Array | int) -> Array:
    """The random key of one party in one trip of one round."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, round), trip), party)


def cohort_of(run: Run, key: Array, t: Array, population: int) -> tuple[Array, Array]:
    """Who takes part in round t: ids and who is present; nobody, where too few are drawn for the
    channel."""
    ids, present = run.participation.cohort(key_of(key, t, 0, COHORT), t, population)
    fewest = run.channel.fewest
    return ids, present if fewest <= 1 else present & (jnp.sum(present) >= fewest)


def drawn(run: Run, key: Array, t: int, population: int) -> tuple[Any, Any]:
    """The same for one round, as all parties draw it from the seed."""
    ids, present = (np.asarray(a) for a in cohort_of(run, key, jnp.int32(t), population))
    return ids, present


def start_key(key: Array, party: Array | int) -> Array:
    """The random key with which a party begins."""
    return jax.random.fold_in(jax.random.fold_in(key, START), party)


def now_of(key: Array, secret: Array, round: Array, trip: int, party: Array | int) -> Now:
    """A party's view of the time: `key` begins what all share, `secret` what is its own."""
    return Now(round, key_of(key, round, trip, SHARED), key_of(secret, round, trip, party))


now_at = jax.jit(now_of)  # for those who ask once a trip


# ---------------------------------------------------------------- what clients know


class Notice(NamedTuple):
    """What clients were told in a round: every one of them, or one only."""

    parts: dict[str, Any]
    one: int | None = None
    addressed: bool = False  # a leading client axis, of which each knows its own slice


def known(trip: Trip, notices: Sequence[Notice], i: Any) -> dict[str, Any]:
    """What client i knows in a trip of what was told in this round."""
    parts: dict[str, Any] = {}
    for each in notices:
        # what one client knows is not there for code that all of them run
        if each.one is None or each.one == trip.only:
            parts |= jax.tree.map(lambda a: a[i], each.parts) if each.addressed else each.parts
    return parts


def among(channel: Channel, trip: Trip) -> Among | None:
    """What hides single replies of a relay from those who get them, if anything does."""
    carrier = channel.for_trip(trip) if isinstance(trip, Relay) else None
    return carrier if isinstance(carrier, Among) else None


def delivered(channel: Channel, relay: Relay, combined: Any, shares: Any) -> dict[str, Any]:
    """What clients are told by the replies of others, once these have been combined."""
    hidden = among(channel, relay)
    if hidden is not None:
        return hidden.joined(combined, jnp.asarray(shares))
    return payload.dense_each(combined) if relay.reduce == "gather" else combined


# ---------------------------------------------------------------- what a channel tells

TOLD = "agreed"  # what the part of a message down is called that is the channel's


def channel_words(channel: Channel, trip: Trip, memory: Any, held: Any = False) -> dict[str, Any]:
    """What the channel's server half tells all clients with an exchange.

    Where an exchange of the round before this one was the channel's own (`held`), this one is too,
    and what it would agree on is not known yet.
    """
    if not isinstance(trip, Exchange) or trip.reduce != "sum":
        return {}
    told = channel.for_trip(trip).tells(memory)
    return jax.tree.map(lambda a: jnp.where(held, jnp.zeros_like(a), a), told)


def with_channel_words(
    down: dict[str, Any], trip: Trip, told: dict[str, Any], population: int
) -> Any:
    """What goes down, with what the channel tells beside it."""
    if not told:
        return down
    if trip.addressed:
        told = jax.tree.map(lambda a: jnp.broadcast_to(a, (population, *a.shape)), told)
    return {**down, TOLD: told}


def waiting(channel: Channel, told: dict[str, Any]) -> Any:
    """Whether an exchange is the channel's own: nothing of the method changes."""
    return channel.waits(told) if told else False


# ---------------------------------------------------------------- a site's part, the server's


def site_part(
    run: Run,
    channel: Channel,
    trip: Trip,
    rows: Shard | Columns,
    state: Any,
    memory: Any,
    down: Any,
    share: Array,
    now: Now,
    check: Array | bool = True,
) -> tuple[Any, Any, Any, Array]:
    """A site's whole part: what it sends, its new state and memory, is the reply finite.

    Without `check` nobody looks whether it is.
    """
    down, before = dict(down), (state, memory)
    told = down.pop(TOLD, {})
    up, state = trip.client(run.problem, rows, state, down, now)
    if isinstance(check, bool):
        fine = payload.all_finite(up) if check else jnp.array(True)
    else:
        fine = jax.lax.cond(check, payload.all_finite, lambda _: jnp.array(True), up)
    if isinstance(trip, Relay):  # a channel leads to the server, and mostly nowhere else
        hidden = among(channel, trip)
        return up if hidden is None else hidden.relayed(up, share), state, memory, fine
    assert isinstance(trip, Exchange)
    channel = channel.for_trip(trip)
    own = Now(now.round, now.key, jax.random.fold_in(now.secret, COHORT))
    wire, memory = channel.encode(up, memory, own)
    if trip.reduce != "sum":
        return wire, state, memory, fine
    if told:
        stays = waiting(channel, told)
        after = (state, memory)
        state, memory = jax.tree.map(lambda a, b: jnp.where(stays, a, b), before, after)
    return channel.weigh_as(wire, share, told), state, memory, fine


def server_part(
    run: Run,
    channel: Channel,
    exchange: Exchange,
    server_rows: Rows | None,
    server: Any,
    memory: Any,
    info: dict[str, Array],
    combined: Any,
    cohort: Cohort,
    now: Now,
    held: Any = False,
) -> tuple[Any, Any, dict[str, Array], Array]:
    """The server's part: its new state, the channel's, what is reported; was it all finite.

    `combined` is the channel's sum, or every reply with `reduce="gather"`. If nobody came or the
    sum is not finite everything stays as it was.
    """
    learnt: Sum | Gathered
    channel = channel.for_trip(exchange)
    kept, told = memory, channel_words(channel, exchange, memory, held)
    said: dict[str, Array] = {}
    if exchange.reduce == "sum":
        total, kept = channel.decode(combined, memory, cohort, now)
        learnt = summed(channel, total, combined, cohort)
        fine = payload.all_finite(learnt.total)
        said = channel.report(combined)
    else:
        learnt = Gathered(payload.dense_each(combined), combined, cohort.shares, cohort.ids)
        fine = payload.all_finite(combined)

    def step(server, info):
        state, new = split_report(exchange.server(run.problem, server_rows, server, learnt, now))
        new = {**new, **said}
        return state, {**info, **{k: _merged(info[k], v) for k, v in new.items()}}, kept

    def stay(server, info):
        return server, info, memory

    happens = fine & ((cohort.count > 0) | channel.goes_on)
    if told:
        learns = happens & ~jnp.asarray(held)  # also where it is all that happens
        memory = jax.tree.map(lambda a, b: jnp.where(learns, a, b), kept, memory)
        happens = happens & ~jnp.asarray(waiting(channel, told))
    server, info, memory = jax.lax.cond(happens, step, stay, server, info)
    return server, memory, info, fine


def summed(channel: Channel, total: Any, combined: Any, cohort: Cohort) -> Sum:
    """What the server learns of a sum. Where sizes are not told everybody is in it: it is divided
    by the weight that it brought, so that all of them weigh one."""
    weight = channel.weight_in(combined, cohort.shares.dtype)
    if weight is None:
        return Sum(total, channel.weighing(cohort), cohort.count)
    mean = jax.tree.map(lambda a: a / weight.astype(a.dtype), total)
    return Sum(mean, jnp.ones_like(weight), cohort.count)


def split_report(found: Any) -> tuple[Any, dict[str, Array]]:
    """What a server function returned, as its state and what it reports; counts are integers."""
    if not isinstance(found, Reported):
        return found, {}
    info = {k: jnp.asarray(v) for k, v in found.info.items()}
    return found.state, {k: v.astype(jnp.int32) if _counts(v) else v for k, v in info.items()}


def _counts(value: Array) -> bool:
    return jnp.issubdtype(value.dtype, jnp.bool_) or jnp.issubdtype(value.dtype, jnp.integer)


def _merged(before: Array, after: Array) -> Array:
    """Counts add up; of other numbers the last one stays."""
    return before + after if _counts(after) else after


def combine(channel: Channel, trip: Trip, wires: Any) -> Any:
    """The sum of replies along a leading client axis, by the channel or among clients."""
    carrier = among(channel, trip) if isinstance(trip, Relay) else channel.for_trip(trip)
    return payload.total(wires) if carrier is None else carrier.combine(wires)


def combined_zeros(channel: Channel, trip: Any, sent: Any, cohort: int) -> Any:
    """What `combine` (or the gathered replies) look like before anyone has replied."""
    if trip.reduce == "gather":
        return jax.tree.map(lambda a: jnp.zeros((cohort, *a.shape), a.dtype), sent)
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape), a.dtype), sent)
    like = jax.eval_shape(lambda wires: combine(channel, trip, wires), one)
    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)
