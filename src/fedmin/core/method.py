"""The contract of a method: who says what to whom in a round, and what each side remembers.

A method is a frozen dataclass: floats are leaves (a new step size never recompiles, a grid of them
is one vmap), counts are static. It never sees an engine, two clients at once, or a transport.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array


class Now(eqx.Module):
    """The round (from 0) and the random key of the party that is being called.

    >>> import jax, jax.numpy as jnp, fedmin
    >>> int(fedmin.Now(jnp.int32(3), jax.random.key(0)).round)
    3
    """

    round: Array
    key: Array


class Aggregate(eqx.Module):
    """All that the server learns from one exchange.

    `total` is the sum over the round's clients of p_i times their reply, where p_i are the
    federation's weights (they sum to one over ALL clients); `weight` is the sum of their p_i.
    With `reduce="gather"`, `replies` has one reply a client instead, `sent` the same as they came
    (compact parts stay compact), `shares` their p_i, 0 where absent, and `ids` their numbers.

    >>> import jax.numpy as jnp, fedmin
    >>> half = fedmin.Aggregate({"update": jnp.ones(2)}, jnp.float32(0.5), jnp.int32(1), 2)
    >>> half.mean["update"]
    Array([2., 2.], dtype=float32)
    """

    total: Any
    weight: Array
    count: Array  # clients that replied
    population: int = eqx.field(static=True)
    replies: Any = None
    shares: Array | None = None
    sent: Any = None
    ids: Array | None = None

    @property
    def mean(self) -> Any:
        """The weighted mean of the replies: `total` divided by `weight`."""
        return jax.tree.map(lambda a: a / self.weight.astype(a.dtype), self.total)


@dataclass(frozen=True)
class Exchange:
    """One trip from the server to the clients and back, or to other clients.

    broadcast(problem, server, now) -> down, a dict of named parts; None: nothing is sent down
    client(problem, rows, state, down, now) -> (up, state)
    server(problem, server_rows, server, aggregate, now) -> server

    `reduce="sum"`: the server learns the weighted sum of the replies only; "gather": each of them.
    `addressed`: down has a leading client axis and each client gets its own slice.
    `only`: the number of the one client that is asked; nobody else sends or receives anything.
    `exact`: replies must arrive as they are sent; a channel that may change them is refused.
    `to`: who gets the replies. "clients" is every other client, a number is that client: they
    travel sealed through the server, which cannot read them (`server` is None), are not weighted,
    and are in the `down` of the round's next exchanges: their sum, or all of them ("gather").

    What a client was told earlier in a round stays in its `down` until the round ends.

    >>> import fedmin
    >>> (only,) = fedmin.FedAvg().exchanges(fedmin.Logistic(2))
    >>> only.reduce, only.addressed
    ('sum', False)
    """

    broadcast: Callable | None
    client: Callable
    server: Callable | None = None
    reduce: Literal["sum", "gather"] = "sum"
    addressed: bool = False
    to: Literal["server", "clients"] | int = "server"
    only: int | None = None
    exact: bool = False

    def __post_init__(self):
        if (self.server is None) == (self.to == "server"):
            raise ValueError(
                f"an exchange to the server needs a server function and one to clients has none: "
                f"got to={self.to!r} and server={self.server}"
            )

    @property
    def private(self) -> bool:
        """Whether the replies go to clients, and the server must not read them."""
        return self.to != "server"

    @property
    def receiver(self) -> int | None:
        """The one client that gets the replies, if it is one."""
        return self.to if isinstance(self.to, int) else None

    @property
    def complete(self) -> bool:
        """Whether it makes sense only if every client takes part in the round."""
        return self.private or self.only is not None


class Method(eqx.Module):
    """How a federation minimizes: states, exchanges, solution. Subclass it, one file a method.

    >>> import fedmin
    >>> isinstance(fedmin.FedAvg(step=0.1), fedmin.Method), sorted(fedmin.FedAvg.handles)
    (True, ['rows'])
    """

    handles: ClassVar[frozenset[str]] = frozenset({"rows"})
    citation: ClassVar[str] = ""

    def check(self, problem) -> None:
        """Refuse a problem that these settings do not fit, before any work."""

    def fitted(self, clients: int, everyone: bool) -> "Method":
        """This method for so many clients, of whom everyone takes part in every round, or not."""
        return self

    @abstractmethod
    def init_server(self, problem, key: Array) -> Any:
        """What the server remembers before round 0."""

    def init_client(self, problem, rows, key: Array) -> Any:
        """What a client remembers before round 0; the only place where client memory begins."""
        return ()

    @abstractmethod
    def exchanges(self, problem) -> tuple[Exchange, ...]:
        """The trips of one round for such a problem, in order."""

    @abstractmethod
    def solution(self, server: Any) -> Array:
        """The model, f[d], as the server knows it."""

    def report(self, server: Any) -> dict[str, Any]:
        """What else of the server's state is recorded: numbers, or vectors of a few, by name.

        A method that handles constraints reports their multipliers as "multiplier".
        """
        return {}

    def notes(self) -> tuple[str, ...]:
        """What a reader of the result should know of these settings."""
        return ()


def starting_point(problem, key: Array) -> Array:
    """A method's first model; a copy, so that an engine may reuse its memory."""
    return jnp.array(problem.init(key))


def common_start(problem) -> Array:
    """A first model that every party knows without being told: no two have the same key, so it is
    the same in every run."""
    return starting_point(problem, jax.random.key(0))
