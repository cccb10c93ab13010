"""The routes of FedFW: what travels, so that the server has xbar, the mean of all x_i.

    Atoms        atoms up, xbar down                   everyone is always there
    SharedAtoms  atoms up, and all atoms down again    so too, and n atoms are smaller than xbar
    Copies       atoms up; the server keeps all x_i    some are absent, or choose their own steps
    Moves        x_i after - before up, xbar down      so too, and an atom is no smaller than x, or
                                                       steps are pairwise, or sums must be enough

Some being absent and keeping their x_i,  xbar <- xbar + eta_t sum over present of p_i (s_i - x_i).
The server cannot know the x_i of those present: each is a mean of all atoms this client ever sent,
so nothing smaller than d numbers says it anew. But it was told those atoms: so it keeps a copy of
every x_i (n d numbers), clients still send an atom only, and it must know whose it is. With moves
the server learns their sum and keeps nothing. A pairwise move is two entries.

A route is a value; `Route` says what it does for both ends.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedmin.client.atoms import Sets, weights
from fedmin.core import payload
from fedmin.core.method import Gathered, Sum
from fedmin.core.payload import Sparse


@dataclass(frozen=True)
class Pace:
    """How far the local steps of a round go, where a schedule says it."""

    steps: Any  # a schedule with `eta` and `growth`
    count: int  # K

    def at(self, round: Array) -> tuple[Array, Array]:
        """eta and the penalty's growth in each of the round's steps, f[K]."""
        first = self.count * round + 1
        t = (first + jnp.arange(self.count, dtype=jnp.int32)).astype(float)
        one = jnp.ones_like(t)
        return self.steps.eta(t) * one, self.steps.growth(t) * one

    def left(self, round: Array) -> Array:
        """The share of x_i that is left after the round's steps."""
        return weights(self.at(round)[0])[1]


class Walk(NamedTuple):
    """The K steps of a client in a round."""

    before: Array  # x_i
    after: Array
    atoms: Any  # what each step went to, or if it was pairwise its move: a leading axis of K
    etas: Array  # f[K], how far


class Route(ABC):
    """What both ends do; as far as it is not abstract, with xbar sent down and nothing kept."""

    reduce: ClassVar[Literal["sum", "gather"]] = "sum"

    def server_memory(self, x: Array) -> Any:
        """What the server keeps besides xbar, before round 0."""
        return ()

    def client_memory(self, x: Array) -> Any:
        """What a client keeps besides x_i, before round 0."""
        return ()

    def down(self, x: Array, kept: Any) -> dict[str, Any]:
        """What the server sends, given xbar and what it keeps."""
        return {"model": x}

    def mean(self, kept: Any, down: dict[str, Any], round: Array) -> tuple[Array, Any]:
        """xbar, as a client learns it, and what the client keeps from now on."""
        return down["model"], ()

    @abstractmethod
    def up(self, walk: Walk) -> dict[str, Any]:
        """What a client sends of its steps."""

    @abstractmethod
    def take(self, x: Array, kept: Any, learnt: Any, round: Array) -> tuple[Array, Any]:
        """xbar after the round, and what the server keeps from now on."""


@dataclass(frozen=True)
class Atoms(Route):
    """xbar <- left xbar + sum p_i (atoms of client i): all x_i lose the same share in a round."""

    sets: Sets
    pace: Pace

    def up(self, walk):
        return {"atom": _weighted(walk)}

    def take(self, x, kept, learnt, round):
        left = self.pace.left(round)
        return left * x + self.sets.point(learnt.total["atom"], 1 - left), ()


@dataclass(frozen=True)
class SharedAtoms(Route):
    """As `Atoms`; and clients are sent the atoms of the last round, and do the same to an xbar."""

    sets: Sets
    pace: Pace
    clients: int

    reduce = "gather"

    def server_memory(self, x):
        like = self.sets.like(x)
        none = jax.tree.map(lambda a: jnp.zeros((self.clients, *a.shape), a.dtype), like)
        return [none] * self.pace.count  # atoms, each times p_i and what is left of it

    def client_memory(self, x):
        return x  # xbar

    def down(self, x, kept):
        return {"atoms": kept}

    def mean(self, kept, down, round):
        left = self.pace.left(jnp.maximum(round - 1, 0))
        new = left * kept + self.sets.point(payload.total(down["atoms"]), 1 - left)
        new = jnp.where(round == 0, kept, new)  # no atoms are known before the first round
        return new, new

    def up(self, walk):
        return {"atom": _weighted(walk)}

    def take(self, x, kept, learnt, round):
        atoms = jax.vmap(payload.scaled)(learnt.sent["atom"], learnt.shares)
        left = self.pace.left(round)
        return left * x + self.sets.point(payload.total(atoms), 1 - left), atoms


@dataclass(frozen=True)
class Copies(Route):
    """The server takes every step of those who are there in a copy of their x_i, and so in xbar."""

    sets: Sets
    pace: Pace
    clients: int
    own_steps: bool  # whether clients choose how far they go, and say so

    reduce = "gather"

    def server_memory(self, x):
        return jnp.tile(x, (self.clients, 1))

    def up(self, walk):
        also = {"keep": weights(walk.etas)[1]} if self.own_steps else {}
        return {"atom": _weighted(walk), **also}

    def take(self, x, kept, learnt, round):
        shares, sent, old = learnt.shares, learnt.sent, kept[learnt.ids]
        left = sent["keep"] if self.own_steps else jnp.full_like(shares, self.pace.left(round))
        # x_i lose what the steps take, all p_i of it, and get their atoms
        taken = shares * (1 - left)
        atoms = payload.total(jax.vmap(payload.scaled)(sent["atom"], shares))
        each = jax.vmap(self.sets.point)(payload.dense_each(sent["atom"]), 1 - left)
        there = jnp.where(shares > 0, learnt.ids, self.clients)  # a number that nobody has
        copies = kept.at[there].set(left[:, None] * old + each, mode="drop")
        return x - taken @ old + self.sets.point(atoms, jnp.sum(taken)), copies


@dataclass(frozen=True)
class Moves(Route):
    """xbar <- xbar + sum p_i (x_i after - before), whoever is there."""

    pairwise: bool = False  # whether each step has changed two entries only

    def up(self, walk):
        if not self.pairwise:
            return {"move": walk.after - walk.before}
        moves = walk.atoms
        return {"move": Sparse(moves.indices.ravel(), moves.values.ravel(), moves.size)}

    def take(self, x, kept, learnt, round):
        return x + learnt.total["move"], ()


def _weighted(walk: Walk) -> list[Any]:
    """The atoms of a walk, each times what is left of it at the end."""
    shares, _ = weights(walk.etas)
    each = [jax.tree.map(lambda a, k=k: a[k], walk.atoms) for k in range(len(walk.etas))]
    return [payload.scaled(atom, shares[k]) for k, atom in enumerate(each)]


def total(learnt: Sum | Gathered, name: str) -> Array:
    """The sum of p_i times a number of each reply, whichever way the server has learnt it."""
    if isinstance(learnt, Sum):
        return learnt.total[name]
    return learnt.shares @ learnt.sent[name]
