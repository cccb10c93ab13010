"""The contract of a method: who says what to whom in a round, and what each side remembers.

A method is a frozen dataclass: floats are leaves (a new step size never recompiles, a grid of them
is one vmap), counts are static. It never sees an engine, two clients at once, or a transport.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.core.roster import Roster

Reduce = Literal["sum", "gather"]


class Now(eqx.Module):
    """The round (from 0), and the two sources of chance of the party that is being called.

    `key` is drawn from the run's seed, the same for every party: use it for what all must draw
    alike. `secret` is the party's own, from the operating system in a deployment and from the seed
    in a simulation: batches, noise and masks are drawn from it.

    >>> import jax, jax.numpy as jnp, fedmin
    >>> int(fedmin.Now(jnp.int32(3), jax.random.key(0), jax.random.key(1)).round)
    3
    """

    round: Array
    key: Array
    secret: Array


class Sum(eqx.Module):
    """All that the server learns from an exchange with `reduce="sum"`.

    `total` is the sum over the round's clients of p_i times their reply, where p_i are the roster's
    shares (they sum to one over ALL clients); `weight` is the sum of their p_i.

    >>> import jax.numpy as jnp, fedmin
    >>> half = fedmin.Sum({"update": jnp.ones(2)}, jnp.float32(0.5), jnp.int32(1))
    >>> half.mean["update"]
    Array([2., 2.], dtype=float32)
    """

    total: Any
    weight: Array
    count: Array  # clients that replied

    @property
    def mean(self) -> Any:
        """The weighted mean of the replies: `total` divided by `weight`."""
        return jax.tree.map(lambda a: a / self.weight.astype(a.dtype), self.total)


class Gathered(eqx.Module):
    """All that the server learns from an exchange with `reduce="gather"`: every reply.

    >>> import jax.numpy as jnp, fedmin
    >>> both = {"update": jnp.ones((2, 3))}
    >>> shares, ids = jnp.array([0.5, 0.0]), jnp.array([4, 7])
    >>> fedmin.Gathered(both, both, shares, ids).weight
    Array(0.5, dtype=float32)
    """

    replies: Any  # one a client along the leading axis, as arrays
    sent: Any  # the same as they came: compact parts stay compact
    shares: Array  # their p_i, 0 where absent
    ids: Array  # their numbers

    @property
    def weight(self) -> Array:
        """The sum of p_i of those that replied."""
        return jnp.sum(self.shares)

    @property
    def count(self) -> Array:
        """How many replied."""
        return jnp.sum(self.shares > 0, dtype=jnp.int32)


class Reported(NamedTuple):
    """A server's new state together with what is only looked at: norms, counts, by name.

    State is what the next round needs; `info` is recorded in the history and never read again.
    Whole numbers and booleans are counts, which add up over the rounds; of others the last is kept.

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.Reported(jnp.zeros(2), {"step_norm": jnp.float32(0.5)}).info["step_norm"].item()
    0.5
    """

    state: Any
    info: dict[str, Array]


@dataclass(frozen=True)
class Trip:
    """One trip from the server to clients and back: what an `Exchange` and a `Relay` share.

    broadcast(problem, server, now) -> down, a dict of named parts; None: nothing but the question
    client(problem, rows, state, down, now) -> (up, state)

    `addressed`: down has a leading client axis and each client gets its own slice.
    `only`: the number of the one client that is asked; nobody else sends or receives anything.

    `embeds`: replies are embeddings of the same rows by all clients, each of its own columns; with
    `reduce="sum"` nothing but their plain sum is used.
    `open`: replies are of one client's own, whoever adds them up; no channel hides them.

    What a client was told earlier in a round stays in its `down` until the round ends.
    """

    broadcast: Callable | None
    client: Callable
    addressed: bool = field(default=False, kw_only=True)
    only: int | None = field(default=None, kw_only=True)
    embeds: bool = field(default=False, kw_only=True)
    open: bool = field(default=False, kw_only=True)

    @property
    def summed(self) -> bool:
        """Whether nothing but the sum of the replies is used."""
        return getattr(self, "reduce", "sum") == "sum"

    def asks(self, i: int) -> bool:
        """Whether client i is asked."""
        return self.only is None or self.only == i


@dataclass(frozen=True)
class Exchange(Trip):
    """A trip whose replies go to the server.

    server(problem, server_rows, server, learnt, now) -> server, or `Reported(server, info)`

    `reduce="sum"`: the server learns the weighted sum of the replies only, a `Sum`; "gather": each
    of them, `Gathered`. `unchanged`: replies must arrive as they are sent; a channel that may
    change them is refused. `prompt`: they must arrive in their own round; a channel that brings
    some of a reply later is refused. `entire`: all of a reply must arrive, in its round or later,
    as it is a model, or added up at both ends for ever; a channel that shortens replies is refused.

    >>> import fedmin
    >>> roster = fedmin.data.partition(fedmin.data.load("wine"), fedmin.data.IID(3)).roster()
    >>> (only,) = fedmin.FedAvg().exchanges(fedmin.Softmax(13, 3), roster)
    >>> only.reduce, only.addressed
    ('sum', False)
    """

    server: Callable
    reduce: Reduce = "sum"
    unchanged: bool = field(default=False, kw_only=True)
    prompt: bool = field(default=False, kw_only=True)
    entire: bool = field(default=False, kw_only=True)

    def __post_init__(self):
        if not callable(self.server):
            raise ValueError(
                f"an Exchange needs a server function, got {self.server!r}; replies that go to "
                f"clients are a Relay's"
            )


@dataclass(frozen=True)
class Relay(Trip):
    """A trip whose replies go to other clients: sealed, through the server, which cannot read them.

    `to` is "clients", every other client, or the number of one. Replies are not weighted, and are
    in the receivers' `down` for the rest of the round: their sum, or all of them ("gather").

    >>> import fedmin
    >>> fedmin.Relay(None, lambda problem, rows, state, down, now: ({}, state), to=2).receivers(4)
    [2]
    """

    reduce: Reduce = "sum"
    to: Literal["clients"] | int = field(default="clients", kw_only=True)

    @property
    def receiver(self) -> int | None:
        """The one client that gets the replies, if it is one."""
        return self.to if isinstance(self.to, int) else None

    def receivers(self, population: int) -> list[int]:
        """The clients that get the replies."""
        return list(range(population)) if self.to == "clients" else [int(self.to)]


def complete(trip: Trip) -> bool:
    """Whether a trip makes sense only if every client takes part in the round."""
    return isinstance(trip, Relay) or trip.only is not None


class Method(eqx.Module):
    """How a federation minimizes: states, exchanges, solution. Subclass it, one file a method.

    >>> import fedmin
    >>> isinstance(fedmin.FedAvg(step=0.1), fedmin.Method), sorted(fedmin.FedAvg.handles)
    (True, ['rows'])
    """

    handles: ClassVar[frozenset[str]] = frozenset({"rows"})
    citation: ClassVar[str] = ""
    sums: ClassVar[str] = ""  # how to make it so that only sums are needed, if it gathers replies

    def check(self, problem) -> None:
        """Refuse a problem that these settings do not fit, before any work."""

    @abstractmethod
    def init_server(self, problem, roster: Roster, key: Array) -> Any:
        """What the server remembers before round 0."""

    def init_client(self, problem, roster: Roster, rows, key: Array) -> Any:
        """What a client remembers before round 0; the only place where client memory begins."""
        return ()

    @abstractmethod
    def exchanges(self, problem, roster: Roster) -> tuple[Trip, ...]:
        """The trips of one round for such a problem and such clients, in order."""

    @abstractmethod
    def solution(self, server: Any) -> Array:
        """The model, f[d], as the server knows it."""

    def report(self, server: Any) -> dict[str, Any]:
        """What else of the server's state is recorded: numbers, or vectors of a few, by name.

        A method that handles constraints reports their multipliers as "multiplier".
        """
        return {}

    def chance(self) -> float | None:
        """The chance of taking part in a round that these settings are made for, if they are."""
        return None

    def for_chance(self, chance: float) -> "Method":
        """The method for clients of whom each takes part with this chance in a round, in what its
        settings leave to be said by that."""
        return self

    def alone(self) -> str:
        """Why a sum of its replies may be a single client's, which nothing hides; "" if never."""
        return ""

    def concerns(self, info: Mapping[str, Any]) -> str:
        """What went wrong by what the method itself reported in the end; "" if nothing did."""
        return ""

    def behind(self, problem, roster: Roster, rows, state: Any, down: Any, now: Now) -> Any:
        """What a client's reply was chosen by, where it is an atom: the vector that the linear
        minimizer was asked; None where a reply is no such choice. Audits ask for it."""
        return None

    def notes(self) -> tuple[str, ...]:
        """What a reader of the result should know of these settings."""
        return ()


def starting_point(problem, key: Array) -> Array:
    """A method's first model; a copy, so that an engine may reuse its memory."""
    return jnp.array(problem.init(key))


def common_start(problem) -> Array:
    """A first model that every party knows without being told: it is the same in every run."""
    return starting_point(problem, jax.random.key(0))
