"""A gradient estimate on columns: the trips that methods share when columns are split.

    server      draws a batch; to client i: the batch, the head's numbers w_0, its own block w_i
    client i    h_i = embed(w_i, its columns of the batch) -> the other clients, sealed
    client 0    batch means of the 1 + M losses and of their gradients by w_0 -> server
    client i    batch means of the losses' gradients by w_i, through h -> server
    server      values f[1 + M] and gradients f[1 + M, d]: all that a method needs

Of an additive head only the sum of the h_i is used. If one client alone knows the labels, the h_i
go to it only (sealed), it does client 0's part, and it sends the slopes of the losses by h to the
others (sealed). If the server alone knows them, it computes the head: the h_i go to the server, in
the clear, and the slopes come from it. That is what this choice means: the server never sees a
column, but it does see the h_i. Whoever is told the slopes learns something of the labels; with a
head that is not additive, clients are told the slopes by all h_i.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.client.batches import Batches
from fedmin.core.column_problem import OnColumns
from fedmin.core.matrix import Dense
from fedmin.core.method import Exchange
from fedmin.core.rows import Rows, Shard


class Estimate(eqx.Module):
    """Batch means, of the losses and of their gradients; the regularizer is not in them.

    Nor is the objective, where it has no data in it (`Problem.bare`).
    """

    values: Array  # f[1 + M]
    gradients: Array  # f[1 + M, d]


class Held(NamedTuple):
    """What the server keeps from one trip of a round to the next."""

    values: Array  # f[1 + M]
    head: Array  # f[1 + M, head] gradients by w_0
    slopes: Any  # f[1 + M, ..., n, e] gradients by h, if the server knows the labels


class Server(NamedTuple):
    """A server's state on columns."""

    own: Any  # the method's own
    held: Held


def own(server: Any) -> Any:
    """A method's own state, on rows and on columns."""
    return server.own if isinstance(server, Server) else server


def start(problem: OnColumns, batches: Batches, own: Any) -> Server:
    """The state before round 0, around the method's own."""
    key, count = jax.random.key(0), problem.num_sums

    def embedded(key):
        head, blocks = problem.cut(problem.init(key))
        h = jax.vmap(lambda block: problem.inner.embed(block, _nobody(problem, batches)))(blocks)
        return head, h[0] if problem.inner.additive else h

    head, h = jax.eval_shape(embedded, key)
    values, by_head, by_h = (
        jnp.zeros((count, *shape), head.dtype) for shape in ((), head.shape, h.shape)
    )
    return Server(own, Held(values, by_head, by_h if problem.holders.labels == "server" else ()))


def exchanges(
    problem: OnColumns,
    batches: Batches,
    model: Callable[[Any], Array],
    step: Callable[[Any, Any, Estimate, Any], Any],
) -> tuple[Exchange, ...]:
    """The trips of a round, which end in own <- step(problem, own, estimate, now).

    `model(own)` is the flat x at which the losses are looked at.
    """
    trips = _Trips(batches, model, step)
    reduce: Any = "sum" if problem.inner.additive else "gather"
    labels = problem.holders.labels
    up: Any = (trips.gradient, trips.finish, "gather")
    if labels == "server":
        return (
            Exchange(trips.deal, trips.embed, trips.look, reduce, addressed=True),
            Exchange(trips.slopes, *up),
        )
    if labels == "everyone":
        return (
            Exchange(trips.deal_all, trips.embed, None, reduce, addressed=True, to="clients"),
            Exchange(None, trips.head, trips.keep, "gather", only=0),
            Exchange(None, *up),
        )
    one: Any = labels
    return (
        Exchange(trips.deal, trips.embed, None, reduce, addressed=True, to=one),
        Exchange(trips.send_head, trips.slope, None, to="clients", only=one),
        Exchange(None, trips.head, trips.keep, "gather", only=one),
        Exchange(None, *up),
    )


@dataclass(frozen=True)
class _Trips:
    """What the server and the clients do on each trip."""

    batches: Batches
    model: Callable[[Any], Array]
    step: Callable[[Any, Any, Estimate, Any], Any]

    # the server speaks

    def deal(self, problem, server, now):
        """To each client: which rows, and its own block."""
        _, blocks = problem.cut(self.model(server.own))
        return {"indices": _to_each(problem, _draw(problem, self.batches, now)), "block": blocks}

    def deal_all(self, problem, server, now):
        """The same, and the head's numbers."""
        head, _ = problem.cut(self.model(server.own))
        return {**self.deal(problem, server, now), "head": _to_each(problem, head)}

    def send_head(self, problem, server, now):
        return {"head": problem.cut(self.model(server.own))[0]}

    def slopes(self, problem, server, now):
        return {"slope": server.held.slopes}

    # a client answers

    def embed(self, problem, rows, state, down, now):
        batch = self.batches.read(rows, down["indices"])
        return {"embedding": problem.inner.embed(down["block"], batch)}, state

    def slope(self, problem, rows, state, down, now):
        """The losses' gradients by the embeddings, for those who do not know the labels."""
        batch = self.batches.read(rows, down["indices"])
        return {"slope": _slopes(problem, down["head"], down["embedding"], batch)}, state

    def head(self, problem, rows, state, down, now):
        batch = self.batches.read(rows, down["indices"])
        found = _look(problem, down["head"], down["embedding"], batch)
        return {"head": found.head, "values": found.values}, state

    def gradient(self, problem, rows, state, down, now):
        """The losses' gradients by the own block: the slopes, through the embedding."""
        batch = self.batches.read(rows, down["indices"])
        slopes = down.get("slope")
        if slopes is None:
            slopes = _slopes(problem, down["head"], down["embedding"], batch)
        if not problem.inner.additive:
            slopes = slopes[:, rows.client]
        back = jax.vjp(lambda block: problem.inner.embed(block, batch), down["block"])[1]
        return {"gradient": jax.vmap(lambda slope: back(slope)[0])(slopes)}, state

    # the server listens

    def look(self, problem, server_rows, server, aggregate, now):
        """The head, by a server that knows the labels."""
        batch = self.batches.read(Shard.whole(server_rows), _draw(problem, self.batches, now))
        if problem.inner.additive:  # everyone weighs 1/N in a sum
            h = problem.holders.clients * aggregate.total["embedding"]
        else:
            h = aggregate.replies["embedding"]
        head, _ = problem.cut(self.model(server.own))
        return Server(server.own, _look(problem, head, h, batch))

    def keep(self, problem, server_rows, server, aggregate, now):
        values, head = (aggregate.replies[name][0] for name in ("values", "head"))
        return Server(server.own, server.held._replace(values=values, head=head))

    def finish(self, problem, server_rows, server, aggregate, now):
        """Put the blocks' gradients together, and let the method do its step."""
        blocks = jnp.swapaxes(aggregate.replies["gradient"], 0, 1)  # [1 + M, N, block]
        estimate = Estimate(server.held.values, jax.vmap(problem.join)(server.held.head, blocks))
        return Server(self.step(problem, server.own, estimate, now), server.held)


class _Size(NamedTuple):
    """How many rows there are, for those who draw from them."""

    size: Array
    capacity: int


def _draw(problem: OnColumns, batches: Batches, now) -> Any:
    count = problem.holders.rows
    rows: Any = _Size(jnp.int32(count), count)
    return batches.draw(rows, now.key, jnp.int32(0))


def _nobody(problem: OnColumns, batches: Batches) -> Rows:
    """A batch of the right shape, with nothing in it."""
    held = problem.holders
    y = jnp.zeros(held.rows, jnp.int32)
    rows = Rows(Dense(jnp.zeros((held.rows, held.width))), y, jnp.ones(held.rows))
    drawn = batches.draw(Shard.whole(rows), jax.random.key(0), jnp.int32(0))
    return batches.read(Shard.whole(rows), drawn)


def _to_each(problem: OnColumns, parts: Any) -> Any:
    """The same for each client, along a leading client axis."""
    count = problem.holders.clients
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (count, *a.shape)), parts)


def _means(problem: OnColumns, head: Array, h: Array, rows: Rows) -> Array:
    losses = problem.inner.head(head, h, rows)[:, int(problem.bare) :]
    return jnp.dot(rows.weight, losses) / jnp.sum(rows.weight)


def _slopes(problem: OnColumns, head: Array, h: Array, rows: Rows) -> Array:
    return jax.jacrev(lambda h: _means(problem, head, h, rows))(h)


def _look(problem: OnColumns, head: Array, h: Array, rows: Rows) -> Held:
    """The losses' means and their gradients by the head's numbers and by the embeddings."""

    def means(head, h):
        values = _means(problem, head, h, rows)
        return values, values

    (by_head, by_h), values = jax.jacrev(means, argnums=(0, 1), has_aux=True)(head, h)
    return Held(values, by_head, by_h)
