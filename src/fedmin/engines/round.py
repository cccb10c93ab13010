"""One round, in pieces that every engine shares: keys, a client's part, the server's, measuring.

A key is the seed folded with the round, the exchange and the party, so that a client draws the same
numbers in every engine, whatever else runs.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.core import payload
from fedmin.core.channel import Channel
from fedmin.core.ledger import Ledger, Line
from fedmin.core.method import Aggregate, Exchange, Method, Now
from fedmin.core.metrics import Metric, numbered
from fedmin.core.participation import Participation
from fedmin.core.problem import Problem
from fedmin.core.result import Best
from fedmin.core.rows import Columns, Rows, Shard
from fedmin.core.stopping import Rule
from fedmin.engines.sessions import seal, wire

# parties that are not clients, as numbers no client has
SERVER, COHORT, START = (2**31 - 1 - i for i in range(3))
NOBODY = 2**31 - 1  # "no client is at fault"
AGGREGATE = 2**31 - 2  # "the sum is at fault, no single reply"


class Run(eqx.Module):
    """What is run; an argument of everything that is compiled."""

    problem: Problem
    method: Method
    channel: Channel
    participation: Participation
    record: tuple[Metric, ...]
    stop: Rule | None


class State(eqx.Module):
    """All that the future of a run depends on, but for its round and seed."""

    server: Any
    clients: Any  # a leading client axis on every leaf
    memory: tuple[Any, ...]  # the channel's, an entry an exchange, a leading client axis
    best: Best | None = None  # of what was recorded, where there are constraints


def key_of(key: Array, round: Array, exchange: int, party: Array | int) -> Array:
    """The random key of one party in one exchange of one round."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, round), exchange), party)


def start_key(key: Array, party: Array | int) -> Array:
    """The random key with which a party begins."""
    return jax.random.fold_in(jax.random.fold_in(key, START), party)


class Told(NamedTuple):
    """What clients were told in a round: every one of them, or one only."""

    parts: dict[str, Any]
    one: int | None = None
    addressed: bool = False  # a leading client axis, of which each knows its own slice


def known(exchange: Exchange, told: Sequence[Told], i: Any) -> dict[str, Any]:
    """What client i knows in an exchange of what was told in this round."""
    parts: dict[str, Any] = {}
    for each in told:
        # what one client knows is not there for code that all of them run
        if each.one is None or each.one == exchange.only:
            parts |= jax.tree.map(lambda a: a[i], each.parts) if each.addressed else each.parts
    return parts


def delivered(exchange: Exchange, combined: Any) -> dict[str, Any]:
    """What clients are told by the replies of others, once these have been combined."""
    return payload.dense_each(combined) if exchange.reduce == "gather" else combined


def client_part(
    run: Run,
    exchange: Exchange,
    rows: Shard | Columns,
    state: Any,
    memory: Any,
    down: Any,
    share: Array,
    now: Now,
    check: Array | bool = True,
) -> tuple[Any, Any, Any, Array]:
    """A client's whole part: what goes on the wire, its new state and memory, is it all finite.

    Without `check` nobody looks whether it is.
    """
    up, state = exchange.client(run.problem, rows, state, down, now)
    if isinstance(check, bool):
        fine = payload.all_finite(up) if check else jnp.array(True)
    else:
        fine = jax.lax.cond(check, payload.all_finite, lambda _: jnp.array(True), up)
    if exchange.private:  # a channel is the road to the server
        return up, state, memory, fine
    if exchange.reduce == "sum":
        up = payload.scaled(up, share)
    sent, memory = run.channel.encode(up, memory, jax.random.fold_in(now.key, COHORT))
    return sent, state, memory, fine


def server_part(
    run: Run,
    exchange: Exchange,
    server_rows: Rows | None,
    server: Any,
    combined: Any,
    shares: Array,
    present: Array,
    ids: Array,
    population: int,
    now: Now,
) -> tuple[Any, Array]:
    """The server's part: its new state, and whether what it learnt was finite.

    `combined` is the channel's sum, or every reply with `reduce="gather"`; `shares` are the
    cohort's p_i, 0 where absent, and `ids` their numbers. If nobody came or the sum is not finite
    the state stays.
    """
    count = jnp.sum(present, dtype=jnp.int32)
    weight = jnp.sum(shares)
    if exchange.reduce == "sum":
        learnt = Aggregate(run.channel.decode(combined), weight, count, population)
    else:
        replies = payload.dense_each(combined)
        learnt = Aggregate(None, weight, count, population, replies, shares, combined, ids)
    fine = payload.all_finite((learnt.total, learnt.sent))

    def step(server):
        assert exchange.server is not None
        return exchange.server(run.problem, server_rows, server, learnt, now)

    return jax.lax.cond(fine & (count > 0), step, lambda server: server, server), fine


def combine(run: Run, exchange: Exchange, wires: Any) -> Any:
    """The sum of replies along a leading client axis, by the channel or among clients."""
    return payload.total(wires) if exchange.private else run.channel.combine(wires)


def combined_zeros(run: Run, exchange: Exchange, sent: Any, cohort: int) -> Any:
    """What `combine` (or the gathered replies) look like before anyone has replied."""
    if exchange.reduce == "gather":
        return jax.tree.map(lambda a: jnp.zeros((cohort, *a.shape), a.dtype), sent)
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape), a.dtype), sent)
    like = jax.eval_shape(lambda wires: combine(run, exchange, wires), one)
    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)


class Shapes(eqx.Module):
    """The shapes of an exchange's messages."""

    down: Any  # what one client receives from the server, None if nothing
    up: Any  # what the method's client returns
    sent: Any  # what goes on the wire
    memory: Any  # one client's channel memory


def shapes(
    run: Run, rows: Shard | Columns, server: Any, client: Any, population: int
) -> tuple[Shapes, ...]:
    """The shapes of all messages of a round, found without computing anything."""
    now = Now(jnp.zeros((), jnp.int32), jax.random.key(0))
    found: list[Shapes] = []
    told: list[Told] = []
    for exchange in run.method.exchanges(run.problem):
        _check_parties(run.method, exchange, population)
        down = _down_shape(run, exchange, server, population, now)
        if down is not None:
            told.append(Told(down, exchange.only))
        heard = known(exchange, told, 0)
        up, after = jax.eval_shape(exchange.client, run.problem, rows, client, heard, now)
        same_form(run.method, client, after)
        if exchange.private:
            found.append(Shapes(down, up, up, ()))
            cohort = population if exchange.only is None else 1
            zeros = jax.eval_shape(lambda: combined_zeros(run, exchange, up, cohort))
            parts = jax.eval_shape(lambda: delivered(exchange, zeros))
            told.append(Told(parts, exchange.receiver))
            continue
        memory = jax.eval_shape(run.channel.init, up)
        sent, _ = jax.eval_shape(run.channel.encode, up, memory, now.key)
        found.append(Shapes(down, up, sent, memory))
    return tuple(found)


def _down_shape(run: Run, exchange: Exchange, server: Any, population: int, now: Now) -> Any:
    """The shape of what one client receives from the server, None if nothing."""
    if exchange.broadcast is None:
        return None
    down = jax.eval_shape(exchange.broadcast, run.problem, server, now)
    if not exchange.addressed:
        return down
    for leaf in jax.tree.leaves(down):
        if leaf.shape[:1] != (population,):
            raise ValueError(
                f"{type(run.method).__name__} addresses its broadcast to each client: "
                f"every part needs {population} slices, got shape {leaf.shape}"
            )
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), down)


def _check_parties(method: Method, exchange: Exchange, population: int) -> None:
    """Refuse an exchange with a client that does not exist."""
    for one in (exchange.only, exchange.receiver):
        if one is not None and not 0 <= one < population:
            raise ValueError(
                f"{type(method).__name__} speaks to client {one}; there are 0..{population - 1}"
            )


def same_form(method: Method, before: Any, after: Any) -> None:
    """Refuse a client function whose state changes shape: it could not be kept."""
    old, new = (
        (jax.tree.structure(s), [(a.shape, a.dtype) for a in jax.tree.leaves(s)])
        for s in (jax.eval_shape(lambda: before), after)
    )
    if old != new:
        raise ValueError(
            f"{type(method).__name__}: client state must keep its shape; it began as {old} "
            f"and came back as {new}"
        )


def ledger_of(run: Run, messages: tuple[Shapes, ...], population: int) -> Ledger:
    """An empty ledger that knows what each message weighs."""
    lines = []
    exchanges = run.method.exchanges(run.problem)
    for e, (exchange, message) in enumerate(zip(exchanges, messages, strict=True)):
        each = "client" if exchange.only is None else "one"
        if message.down is not None:
            lines.append(Line(e, "down", wire.sizes(message.down), each))
        if exchange.private:  # up to the server, and down from it
            ends = exchange.only is None and exchange.to == "clients"
            parts, each = wire.sealed_sizes(message.sent), "pair" if ends else "other"
            lines += [Line(e, way, parts, each, sealed=True) for way in ("up", "down")]
        else:
            lines.append(Line(e, "up", wire.sizes(message.sent), each))
    if not any(line.sealed for line in lines) or population == 1:
        return Ledger(lines)
    up, down = (wire.sizes(keys) for keys in seal.key_messages(population))
    ways = (("up", up), ("down", down))
    return Ledger(lines, [], [(Line(wire.SETUP, *way), population) for way in ways])


def columns(run: Run, train: Rows, test: Rows | None) -> tuple[str, ...]:
    """The names of what is recorded."""
    rows: dict[str, Any] = {"train": train, "test": test}
    names = [name for m in run.record for name in m.names(run.problem, rows[m.on])]
    server = jax.eval_shape(run.method.init_server, run.problem, jax.random.key(0))
    for name, like in sorted(jax.eval_shape(run.method.report, server).items()):
        names += numbered(name, math.prod(like.shape))
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise ValueError(f"record has the column {sorted(twice)[0]!r} more than once")
    return tuple(names)


def best_of(run: Run, columns: tuple[str, ...], old: Best | None, server, values, round) -> Any:
    """The better of the best so far and what was just measured; None without constraints."""
    if not run.problem.num_constraints or not {"objective", "violation"} <= set(columns):
        return None
    objective, violation = (values[columns.index(c)] for c in ("objective", "violation"))
    new = Best(run.method.solution(server), objective, violation, jnp.asarray(round, jnp.int32))
    if old is None:
        return new
    fits, did = (best.violation <= run.problem.tolerance for best in (new, old))
    better = jnp.where(did, fits & (objective < old.objective), violation < old.violation)
    return jax.tree.map(lambda a, b: jnp.where(better, a, b), new, old)


def measure(
    run: Run, server: Any, train: Rows, test: Rows | None, device: Array, devices: int, add_devices
) -> Array:
    """f[columns]: everything recorded at the solution, each device its part of the rows."""
    x = run.method.solution(server)
    sums: dict[int, Any] = {}
    for on, rows in (("train", train), ("test", test)):
        wanted = [i for i, metric in enumerate(run.record) if metric.on == on]
        if wanted and rows is not None:
            share = -(-rows.count // devices)
            size = jnp.clip(rows.count - device * share, 0, share)
            found = Shard(rows, device * share, size, share).sum(
                lambda part: [run.record[i].measure(run.problem, x, part) for i in wanted],
                run.problem.window,
            )
            sums.update(zip(wanted, add_devices(found), strict=True))
    reported = run.method.report(server)
    each = [m.finish(run.problem, x, sums[i], reported) for i, m in enumerate(run.record)]
    values = [*(v for some in each for v in some), *(reported[name] for name in sorted(reported))]
    return jnp.concatenate([jnp.ravel(value).astype(x.dtype) for value in values])
