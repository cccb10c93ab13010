"""What an observer sees of one round, as a function of the rows that it does not have.

A `Scene` is a round of a run with all that was before it: the states of server and clients, who
holds which rows. It says what the server, a client or a coalition really sees (`seen`), through the
run's own channel, and gives the same as a differentiable function of the rows of the others
(`view`), which is what an attacker works with. Where a channel hides single replies in integers, or
adds noise that the attacker does not know, that function is of the replies themselves.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core import payload
from fedmin.core.channel import Channel, Cohort
from fedmin.core.federation import Federation
from fedmin.core.matrix import Dense
from fedmin.core.method import Exchange
from fedmin.core.rows import Rows, Shard
from fedmin.engines.messages import messages_of, reports_of
from fedmin.engines.round import (
    SERVER,
    Notice,
    Run,
    fluid,
    known,
    now_of,
    server_part,
    site_part,
    start_key,
)

OBSERVER = "server"


class WholeShard(Shard):
    """A client's rows that are read in one piece: a loop of unknown length has no derivative."""

    def sum(self, function, most):
        return function(self.pool)

    def block(self, j, count):
        return self.pool if count == self.pool.count else super().block(j, count)


class Before(NamedTuple):
    """What the parties remember before the round."""

    server: Any  # the method's, at the server
    clients: Any  # and at the clients, along a leading axis
    memory: Any  # the channel's at the clients, so too


class View(NamedTuple):
    """What some parties together see in a round of what others hold."""

    observers: tuple[str, ...]  # "server", and names of clients
    victims: tuple[int, ...]  # the clients whose rows it depends on
    single: bool  # a single client's reply; else a sum
    seen: np.ndarray  # f[m], what was really there
    message: Callable[[Any, Any], Any]  # f[v, B, k], [v, B] -> f[m]
    behind: Callable[[Any, Any], Any] | None  # the same for what an atom was chosen by


def flat(message: Any) -> Any:
    """The real numbers of a message in one vector; compact parts as what they stand for."""
    parts = jax.tree.leaves(message, is_leaf=payload.is_payload)
    dense = [jnp.asarray(p.dense() if payload.is_payload(p) else p) for p in parts]
    real = [p.ravel() for p in dense if jnp.issubdtype(p.dtype, jnp.floating)]
    return jnp.concatenate(real) if real else jnp.zeros(0)


def first_states(run: Run, federation: Federation, seed: int) -> Before:
    """What the parties remember before round 0."""
    roster, key = federation.roster(run.participation.everyone), jax.random.key(seed)
    run = fluid(run)
    server = run.method.init_server(run.origin, roster, start_key(key, SERVER))
    clients = [
        run.method.init_client(
            run.origin, roster, roster.view(i, federation.client(i)), start_key(key, i)
        )
        for i in range(roster.clients)
    ]
    memory = tuple(
        jax.tree.map(lambda a: jnp.zeros((roster.clients, *a.shape), a.dtype), form.memory)
        for form in messages_of(run, roster).training.forms
    )
    return Before(server, jax.tree.map(lambda *a: jnp.stack(a), *clients), memory)


class Scene:
    """One round of a run on rows, `federation` with the rows that clients use in it."""

    def __init__(self, run: Run, federation: Federation, before: Before, round: int, seed: int):
        self.run, self.federation, self.before = fluid(run), federation, before
        self.roster = federation.roster(run.participation.everyone)
        self.trips: tuple[Any, ...] = run.method.exchanges(run.problem, self.roster)
        if not all(isinstance(trip, Exchange) for trip in self.trips):
            raise ValueError(f"{type(run.method).__name__} sends between clients: no audit of that")
        self.round, self.key = jnp.int32(round), jax.random.key(seed)
        self.own = [federation.client(i) for i in range(self.roster.clients)]
        channel = run.channel
        # an attacker does not know the noise, and cannot differentiate integers
        smooth = not (channel.hides or channel.learns.noisy)
        self.model: Channel = channel if smooth else Channel()
        self.notices: list[Notice] = []
        self._play()

    @property
    def single(self) -> bool:
        """Whether the server sees each reply."""
        gathered = any(trip.reduce == "gather" for trip in self.trips)
        return gathered or self.run.channel.learns.each

    def _play(self) -> None:
        """The round as it is: what clients were told, what they sent, what came of it."""
        server, self.sums = self.before.server, []
        for e, trip in enumerate(self.trips):
            now = now_of(self.key, self.key, self.round, e, SERVER)
            if trip.broadcast is not None:
                down = trip.broadcast(self.run.problem, server, now)
                self.notices.append(Notice(down, trip.only, trip.addressed))
            sent = [self._replies(self.run.channel, i, *self._rows(i), e)[-1]
                    for i in range(self.roster.clients)]  # fmt: skip
            server, total = self._learnt(self.run.channel, trip, server, sent, now)
            self.sums.append(total)
        self.wires = [self._replies(self.run.channel, i, *self._rows(i), len(self.trips) - 1)
                      for i in range(self.roster.clients)]  # fmt: skip
        self.after = server

    def _rows(self, i: int) -> tuple[Any, Any]:
        rows: Any = self.own[i]
        return jnp.asarray(rows.x.values), jnp.asarray(rows.y)

    def _shard(self, i: int, z: Any, y: Any) -> WholeShard:
        # an attacker is told which group each row is in
        group = None if self.own[i].group is None else jnp.asarray(self.own[i].group)
        rows = Rows(Dense(z), y, jnp.ones(z.shape[0], z.dtype), group)
        count = jnp.int32(z.shape[0])
        return WholeShard(rows, jnp.int32(0), count, self.roster.capacity, self.roster.even)

    def _replies(self, channel: Channel, i: int, z: Any, y: Any, last: int) -> list[Any]:
        """What client i sends on the trips up to `last` if it holds the rows z, y."""
        state = jax.tree.map(lambda a: a[i], self.before.clients)
        share, sent = jnp.asarray(self.roster.share(i)), []
        for e, trip in enumerate(self.trips[: last + 1]):
            now = now_of(self.key, self.key, self.round, e, i)
            memory = jax.tree.map(lambda a: a[i], self.before.memory[e])
            if channel is not self.run.channel:
                memory = ()
            down = known(trip, self.notices[: e + 1], i)
            wire, state, _, _ = site_part(
                self.run, channel, trip, self._shard(i, z, y), state, memory, down, share, now,
                check=False,
            )  # fmt: skip
            sent.append(wire)
        return sent

    def _learnt(self, channel: Channel, trip: Any, server: Any, sent: list, now: Any) -> Any:
        """The server's state after a trip, and the sum that it was told."""
        many = jax.tree.map(lambda *a: jnp.stack(a), *sent)
        cohort = Cohort(
            jnp.arange(len(sent), dtype=jnp.int32), jnp.ones(len(sent), bool),
            jnp.asarray(self.roster.shares, self.roster.dtype),
        )  # fmt: skip
        combined = many if trip.reduce == "gather" else channel.combine(many)
        like = jax.eval_shape(lambda: jax.tree.map(lambda a: a[0], many))
        state = channel.init_server(like)
        total = None
        if trip.reduce == "sum":
            total = channel.decode(combined, state, cohort, now)[0]
        rows = jax.tree.map(jnp.asarray, self.federation.server_rows)
        info = reports_of(self.run, self.roster, self.federation.server_rows).info
        server, *_ = server_part(
            self.run, channel, trip, rows, server, state, info, combined, cohort, now
        )
        return server, total

    def _joined(self, messages: Sequence[Any]) -> Any:
        return jnp.concatenate([flat(each) for each in messages])

    # ------------------------------------------------------------ views

    def server_sees(self, i: int) -> View:
        """A single client's reply, where the server sees it."""
        seen = self._joined(self.wires[i])

        def message(z, y):
            return self._joined(self._replies(self.model, i, z[0], y[0], len(self.trips) - 1))

        if self.model is not self.run.channel:  # noise: the attacker takes it for what it hides
            seen = seen.astype(jax.eval_shape(message, *self._held((i,))).dtype)
        return View((OBSERVER,), (i,), True, np.asarray(seen), message, self._behind(i))

    def server_sums(self, with_clients: Sequence[int] = ()) -> View:
        """The sum of the replies; less what the server's accomplices sent themselves."""
        others = tuple(i for i in range(self.roster.clients) if i not in with_clients)
        last = len(self.trips) - 1

        def part(i, z, y):
            return self._joined(self._replies(self.model, i, z, y, last))

        own = sum(part(i, *self._rows(i)) for i in with_clients)
        seen = np.asarray(self._joined(self.sums) - own)

        def message(z, y):
            return sum(part(i, z[k], y[k]) for k, i in enumerate(others))

        names = (OBSERVER, *(self.roster.names[i] for i in with_clients))
        return View(names, others, False, seen, message, None)

    def client_sees(self, clients: Sequence[int]) -> View:
        """What clients are told at the beginning of the next round, who know their own rows."""
        others = tuple(i for i in range(self.roster.clients) if i not in clients)
        first, count = self.trips[0], self.roster.clients
        now = now_of(self.key, self.key, self.round, len(self.trips) - 1, SERVER)

        def told(server):
            down = first.broadcast(self.run.problem, server, now)
            if first.addressed:
                down = jax.tree.map(lambda a: a[clients[0]], down)
            return flat(down)

        def message(z, y):
            rows = {i: (z[k], y[k]) for k, i in enumerate(others)}
            sent = [self._replies(self.model, i, *rows.get(i, self._rows(i)), len(self.trips) - 1)
                    for i in range(count)]  # fmt: skip
            server = self.before.server
            for e, each in enumerate(self.trips):
                wires = [one[e] for one in sent]
                at = now_of(self.key, self.key, self.round, e, SERVER)
                server, _ = self._learnt(self.model, each, server, wires, at)
            return told(server)

        names = tuple(self.roster.names[i] for i in clients)
        return View(names, others, False, np.asarray(told(self.after)), message, None)

    def _behind(self, i: int) -> Callable[[Any, Any], Any] | None:
        """What the client's atom was chosen by, where its reply is one."""
        method, run = self.run.method, self.run
        if not run.problem.domain.has_atoms:
            return None
        state = jax.tree.map(lambda a: a[i], self.before.clients)
        down = known(self.trips[0], self.notices[:1], i)
        now = now_of(self.key, self.key, self.round, 0, i)

        def slope(z, y):
            rows = self._shard(i, z[0], y[0])
            return method.behind(run.problem, self.roster, rows, state, down, now)

        like = jax.eval_shape(slope, *self._held((i,)))
        return None if like is None else slope

    def _held(self, who: Sequence[int]) -> tuple[Any, Any]:
        rows = [self._rows(i) for i in who]
        return jnp.stack([z for z, _ in rows]), jnp.stack([y for _, y in rows])

    def held(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """The true rows that a view depends on, f[v, B, k] and [v, B]."""
        z, y = self._held(view.victims)
        return np.asarray(z), np.asarray(y)
