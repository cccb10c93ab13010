"""A gradient estimate on columns: the trips that methods share when columns are split.

    server      draws a batch; to client i: the batch, the head's numbers w_0, its own block w_i
    client i    h_i = embed(w_i, its columns of the batch) -> the other clients, sealed
    client 0    batch means of the 1 + M losses and of their gradients by w_0 -> server
    client i    batch means of the losses' gradients by w_i, through h -> server
    server      values f[1 + M] and gradients f[1 + M, d]: all that a method needs

Of an additive head only the sum of the h_i is used. If one client alone knows the labels, the h_i
go to it only (sealed), it does client 0's part, and it sends the slopes of the losses by h to the
others (sealed). If the server alone knows them, it computes the head: the h_i go to the server, in
the clear, and the slopes come from it.

With a secure sum clients send each other the h_i of an additive head under pads that cancel in the
sum (`core.channel.Among`), and a server that has the labels gets their sum.

What that gives away: whoever reads h_i = X_i w_i^T and has w_i, as the server always does, computes
the columns X_i wherever they are no more than the numbers of h_i, and from the messages of several
rounds also where they are more (`privacy/exposures.py` warns of the first). Whoever is told the
slopes of a softmax or logistic loss is told the labels of the batch. With a head that is not
additive, clients are told the slopes by all h_i.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.client.batches import Batches, Full
from fedmin.core import payload
from fedmin.core.column_problem import OnColumns
from fedmin.core.matrix import Dense
from fedmin.core.method import Exchange, Relay, Reported, Trip
from fedmin.core.metrics import summed
from fedmin.core.rows import Rows, Shard

TO_SERVER: Any = {"addressed": True, "unchanged": True, "embeds": True}
OWN: Any = {"unchanged": True, "open": True}  # of a client's own block, or of the head
ALL = Full()  # the batch of those who look at the model on all rows


class Estimate(eqx.Module):
    """Batch means, of the losses and of their gradients; the regularizer is not in them.

    Nor is the objective, where it has no data in it (`Problem.bare`).
    """

    values: Array  # f[1 + M]
    gradients: Array  # f[1 + M, d]; of those who look without them, None
    scores: dict[str, Array]  # means of the problem's scores, or counts f[2], where looked at


class Pending(NamedTuple):
    """What the server keeps from one trip of a round to the next."""

    values: Array  # f[1 + M]
    head: Array  # f[1 + M, head] gradients by w_0
    slopes: Any  # f[1 + M, ..., n, e] gradients by h, if the server knows the labels
    scores: dict[str, Array]


class Server(NamedTuple):
    """A server's state on columns."""

    own: Any  # the method's own
    pending: Pending


def own(server: Any) -> Any:
    """A method's own state, on rows and on columns."""
    return server.own if isinstance(server, Server) else server


def start(problem: OnColumns, batches: Batches, own: Any, scores: bool = False) -> Server:
    """The state before round 0, around the method's own."""
    like = jax.eval_shape(lambda: _seen_of_nothing(problem, batches, scores))
    values, head, slopes, found = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)
    known = slopes if problem.owners.labels == "server" else ()
    return Server(own, Pending(values, head, known, found))


def no_estimate(problem: OnColumns) -> Estimate:
    """An estimate of zeros, for the shapes of what is made of it."""

    def make():
        seen = _seen_of_nothing(problem, ALL, True)
        x = problem.init(jax.random.key(0))
        gradients = jnp.zeros((problem.num_sums, len(x)), x.dtype)
        return Estimate(seen.values, gradients, seen.scores)

    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(make))


def _seen_of_nothing(problem: OnColumns, batches: Batches, scores: bool) -> Pending:
    head, blocks = problem.cut(problem.init(jax.random.key(0)))
    batch = _nobody(problem, batches)
    h = jax.vmap(lambda block: problem.inner.embed(block, batch))(blocks)
    return _look(problem, head, h[0] if problem.inner.additive else h, batch, scores)


def exchanges(
    problem: OnColumns,
    batches: Batches,
    model: Callable[[Any], Array],
    step: Callable[[Any, Any, Estimate, Any], Any],
) -> tuple[Trip, ...]:
    """The trips of a round, which end in own <- step(problem, own, estimate, now).

    `model(own)` is the flat x at which the losses are looked at.
    """
    return _trips(problem, _Trips(batches, model, step))


def looks(
    problem: OnColumns,
    model: Callable[[Any], Array],
    done: Callable[[Any, Any, Estimate, Any], Any],
    gradients: bool,
    scores: bool,
) -> tuple[Trip, ...]:
    """The trips of a look at the model on all rows, which end like those of `exchanges`.

    Without `gradients` one client that knows the labels (or the server) computes the losses, and
    nobody else needs the embeddings.
    """
    trips = _Trips(ALL, model, done, scores)
    if gradients:
        return _trips(problem, trips)
    reduce: Any = "sum" if problem.inner.additive else "gather"
    labels = problem.owners.labels
    if labels == "server":
        return (Exchange(trips.deal, trips.embed, trips.look_only, reduce, **TO_SERVER),)
    one: Any = 0 if labels == "everyone" else labels
    return (
        Relay(trips.deal, trips.embed, reduce, addressed=True, to=one, embeds=True),
        Exchange(trips.send_head, trips.head, trips.keep_only, "gather", only=one, **OWN),
    )


def _trips(problem: OnColumns, trips: "_Trips") -> tuple[Trip, ...]:
    reduce: Any = "sum" if problem.inner.additive else "gather"
    labels = problem.owners.labels
    up: Any = (trips.gradient, trips.finish, "gather")
    if labels == "server":
        return (
            Exchange(trips.deal, trips.embed, trips.look, reduce, **TO_SERVER),
            Exchange(trips.slopes, *up, **OWN),
        )
    if labels == "everyone":
        return (
            Relay(trips.deal_all, trips.embed, reduce, addressed=True, embeds=True),
            Exchange(None, trips.head, trips.keep, "gather", only=0, **OWN),
            Exchange(None, *up, **OWN),
        )
    one: Any = labels
    return (
        Relay(trips.deal, trips.embed, reduce, addressed=True, to=one, embeds=True),
        Relay(trips.send_head, trips.slope, only=one, open=True),
        Exchange(None, trips.head, trips.keep, "gather", only=one, **OWN),
        Exchange(None, *up, **OWN),
    )


@dataclass(frozen=True)
class _Trips:
    """What the server and the clients do on each trip."""

    batches: Batches
    model: Callable[[Any], Array]
    step: Callable[[Any, Any, Estimate, Any], Any]
    scores: bool = False

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
        return {"slope": server.pending.slopes}

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
        found = _look(problem, down["head"], down["embedding"], batch, self.scores)
        scores = {"scores": found.scores} if self.scores else {}
        return {"head": found.head, "values": found.values, **scores}, state

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

    def look(self, problem, server_rows, server, learnt, now):
        """The head, by a server that knows the labels."""
        batch = self.batches.read(Shard.whole(server_rows), _draw(problem, self.batches, now))
        if problem.inner.additive:  # everyone weighs 1/N in a sum
            h = problem.owners.clients * learnt.total["embedding"]
        else:
            h = learnt.replies["embedding"]
        head, _ = problem.cut(self.model(server.own))
        return Server(server.own, _look(problem, head, h, batch, self.scores))

    def look_only(self, problem, server_rows, server, learnt, now):
        looked = self.look(problem, server_rows, server, learnt, now)
        return self._without_gradients(problem, looked, now)

    def keep(self, problem, server_rows, server, learnt, now):
        found = jax.tree.map(lambda a: a[0], learnt.replies)
        return Server(server.own, server.pending._replace(**found))

    def keep_only(self, problem, server_rows, server, learnt, now):
        kept = self.keep(problem, server_rows, server, learnt, now)
        return self._without_gradients(problem, kept, now)

    def _without_gradients(self, problem, server, now):
        pending = server.pending
        estimate = Estimate(pending.values, None, pending.scores)  # type: ignore[arg-type]
        return _stepped(self.step(problem, server.own, estimate, now), pending)

    def finish(self, problem, server_rows, server, learnt, now):
        """Put the blocks' gradients together, and let the method do its step."""
        blocks = jnp.swapaxes(learnt.replies["gradient"], 0, 1)  # [1 + M, N, block]
        pending = server.pending
        gradients = jax.vmap(problem.join)(pending.head, blocks)
        estimate = Estimate(pending.values, gradients, pending.scores)
        return _stepped(self.step(problem, server.own, estimate, now), pending)


def _stepped(found: Any, pending: Pending) -> Any:
    """What a method's step returned, with what the server keeps of the round around it."""
    if isinstance(found, Reported):
        return Reported(Server(found.state, pending), found.info)
    return Server(found, pending)


class _Size(NamedTuple):
    """How many rows there are, for those who draw from them."""

    size: Array
    capacity: int


def _draw(problem: OnColumns, batches: Batches, now) -> Any:
    count = problem.owners.rows
    rows: Any = _Size(jnp.int32(count), count)
    return batches.draw(rows, now.secret, jnp.int32(0))


def _nobody(problem: OnColumns, batches: Batches) -> Rows:
    """A batch of the right shape, with nothing in it."""
    owners = problem.owners
    y = jnp.zeros(owners.rows, jnp.int32)
    rows = Rows(Dense(jnp.zeros((owners.rows, owners.width))), y, jnp.ones(owners.rows), y)
    drawn = batches.draw(Shard.whole(rows), jax.random.key(0), jnp.int32(0))
    return batches.read(Shard.whole(rows), drawn)


def _to_each(problem: OnColumns, parts: Any) -> Any:
    """The same for each client, along a leading client axis."""
    count = problem.owners.clients
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (count, *a.shape)), parts)


def _means(problem: OnColumns, head: Array, h: Array, rows: Rows) -> Array:
    losses = problem.inner.head(head, h, rows)[:, int(problem.bare) :]
    return jnp.dot(rows.weight, losses) / jnp.sum(rows.weight)


def _slopes(problem: OnColumns, head: Array, h: Array, rows: Rows) -> Array:
    return jax.jacrev(lambda h: _means(problem, head, h, rows))(h)


def _look(problem: OnColumns, head: Array, h: Array, rows: Rows, scores: bool = False) -> Pending:
    """The losses' means, their gradients by the head's numbers and by the embeddings, scores."""

    def means(head, h):
        values = _means(problem, head, h, rows)
        return values, values

    (by_head, by_h), values = jax.jacrev(means, argnums=(0, 1), has_aux=True)(head, h)
    each = problem.inner.head_scores(head, h, rows) if scores else {}
    found = {name: summed(one, rows.weight) for name, one in each.items()}
    return Pending(values, by_head, by_h, payload.means(found, jnp.sum(rows.weight)))
