"""From a client's reply to the sum that the server learns, and what is shown on the way.

A channel has a client half (`encode`, with a memory of its own a client), the one place where two
clients meet (`combine`), and a server half (`decode`, with a state of its own). Engines sum what
`combine` returns over groups of clients, so it must be additive. `fedmin.chain` puts several behind
each other. One that hides single replies from the server `hides` them by a `protocol`
(core/protocol.py): trips of its own around the exchange.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from fedmin.core import payload
from fedmin.core.method import Exchange, Now, Trip
from fedmin.core.protocol import Protocol


class Cohort(eqx.Module):
    """Who takes part in an exchange: numbers, who of them is present, and their p_i.

    >>> import jax.numpy as jnp, fedmin
    >>> some = fedmin.Cohort(jnp.array([3, 5]), jnp.array([True, False]), jnp.array([0.25, 0.0]))
    >>> int(some.count), float(some.weight)
    (1, 0.25)
    """

    ids: Array  # i[k]
    present: Array  # bool[k]
    shares: Array  # f[k], 0 where absent

    @property
    def count(self) -> Array:
        """How many are present."""
        return jnp.sum(self.present, dtype=jnp.int32)

    @property
    def weight(self) -> Array:
        """The sum of their p_i."""
        return jnp.sum(self.shares)


class Learns(NamedTuple):
    """What a server that follows the protocol sees of the replies; prints as a sentence.

    >>> import fedmin
    >>> print(fedmin.Plain().learns)
    each client's reply, as it is
    """

    each: bool = True  # single replies; else only sums
    least: int = 1  # of at least so many clients
    noisy: bool = False
    how: str = "as it is"  # what was done to a reply before
    blind: bool = False  # nothing: the clients take the sum in themselves

    def __str__(self) -> str:
        noise = " with noise" if self.noisy else ""
        if self.blind:
            return f"nothing: each reply is {self.how}, who open the sum and keep it"
        if self.each:
            return f"each client's reply{noise}, {self.how}"
        return f"the sum of at least {self.least} clients' replies{noise}, each {self.how}"


class Channel(eqx.Module):
    """A channel that changes nothing; subclasses override what they change.

    >>> import jax, jax.numpy as jnp, fedmin
    >>> now = fedmin.Now(jnp.int32(0), jax.random.key(0), jax.random.key(1))
    >>> wire, memory = fedmin.Channel().encode({"update": jnp.ones(2)}, (), now)
    >>> wire["update"]
    Array([1., 1.], dtype=float32)
    """

    # replies arrive as they were sent; so a sum that is finite proves that every reply was
    lossless: ClassVar[bool] = False
    # some of a reply arrives in later rounds only
    delays: ClassVar[bool] = False
    # some of a reply never arrives
    shortens: ClassVar[bool] = False
    # both ends add up what is sent: nothing may change it on its way
    remembers: ClassVar[bool] = False
    # single replies are hidden from the server, by a protocol
    hides: ClassVar[bool] = False
    # a round happens even if nobody came: who did is not to be seen
    goes_on: ClassVar[bool] = False
    # noise is added, by either half
    noises: ClassVar[bool] = False
    # sites sign what they send, with the keys that the roster pins
    signs: ClassVar[bool] = False
    # every site opens the sum and does the server's step itself: the server has no model
    blind: ClassVar[bool] = False
    # the sum has in it what it weighs: nobody needs to know how much a single reply counts
    weighs: ClassVar[bool] = False
    # a round for which fewer clients are drawn passes, and nobody is asked
    fewest: ClassVar[int] = 1

    def init(self, up: Any) -> Any:
        """A client's channel memory, from the shapes of the reply it will carry."""
        return ()

    def init_server(self, up: Any) -> Any:
        """What the server half remembers before the first reply."""
        return ()

    def encode(self, up: Any, memory: Any, now: Now) -> tuple[Any, Any]:
        """Client: the reply, not yet weighted, to what goes on the wire; and the new memory."""
        return up, memory

    def weigh(self, wire: Any, share: Array) -> Any:
        """Client: p_i times what goes on the wire, where the server is to learn a sum."""
        return payload.scaled(wire, share)

    def weigh_as(self, wire: Any, share: Array, told: dict[str, Array]) -> Any:
        """Client: the same, by what the server half `tells`."""
        return self.weigh(wire, share)

    def tells(self, state: Any) -> dict[str, Array]:
        """Server: what goes down with an exchange, from what the server half remembers."""
        return {}

    def waits(self, told: dict[str, Array]) -> Array | bool:
        """Whether this exchange is the channel's own: then neither half of the method changes."""
        return False

    def report(self, combined: Any) -> dict[str, Array]:
        """Server: what is recorded of an exchange; counts, which add up over the rounds."""
        return {}

    def concerns(self, info: Mapping[str, Any]) -> str:
        """What the user should hear of what was reported; "" if nothing."""
        return ""

    def combine(self, wires: Any) -> Any:
        """The sum over a leading client axis of what was on the wire."""
        return payload.total(wires)

    def decode(self, combined: Any, state: Any, cohort: Cohort, now: Now) -> tuple[Any, Any]:
        """Server: from the combined sum to the sum of p_i times the replies; and its new state."""
        return combined, state

    def weighing(self, cohort: Cohort) -> Array:
        """Server: what the decoded sum weighs, by which its mean is the sum divided."""
        return cohort.weight

    def weight_in(self, combined: Any, dtype: Any) -> Array | None:
        """Server: what a sum weighs by what is in it, where sizes are not told; None: they are."""
        return None

    def beside(self, sent: Any) -> str:
        """What else the server learns with a sum of such wires, in words; "" if nothing."""
        return ""

    def longest(self, entering: float | None) -> float | None:
        """The longest reply that leaves the client's half, if those that enter it are no longer
        than `entering`; None: any."""
        return entering if self.lossless else None

    def protocol(self, sent: Any) -> Protocol:
        """The trips that the channel itself needs around an exchange, for wires of such a form."""
        raise NotImplementedError(f"{type(self).__name__} hides replies and has no protocol")

    def for_evaluation(self) -> "Channel | None":
        """What carries the sites' sums when the model is looked at; None: they travel as they are.

        It may have no memory: looking changes nothing.
        """
        return None

    @property
    def learns(self) -> Learns:
        """What the server sees."""
        return Learns()

    def for_trip(self, trip: Trip) -> "Channel":
        """What carries the replies of a trip, where this channel carries a run's; mostly itself."""
        return self

    def refuses(self, trip: Trip) -> str:
        """Why this channel cannot carry the replies of a trip; "" if it can."""
        if self.hides and trip.embeds and not trip.summed:
            return "needs every embedding, and the channel brings nothing but their sum"
        if not isinstance(trip, Exchange):
            return ""
        if self.hides and trip.reduce == "gather":
            return "gathers every reply, and the channel brings nothing but their sum"
        if self.hides and trip.only is not None:
            return "asks a single client, whose reply no sum can hide"
        if self.delays and trip.prompt:
            return "takes replies for their own round's, and the channel brings some of them later"
        if self.shortens and trip.entire:
            return (
                "needs all of every reply (a model, or what both ends add up), and the channel "
                "shortens some"
            )
        return "sends its parts as they are" if trip.unchanged and not self.lossless else ""


class Among(Channel):
    """A channel that clients also use among themselves: what they send each other shows its sum
    only, to those who have got all of it.

    Engines add pads that two clients agree on, and that cancel in the sum of all (`covered`). All
    clients have the same share.
    """

    def relayed(self, up: Any, share: Array) -> Any:
        """A client's reply to others, as whole numbers that can be added up."""
        raise NotImplementedError

    def covered(self, wire: Any, pads: Sequence[tuple[bytes, int]]) -> Any:
        """The same under pads, each a key and a sign: on the host, as NumPy arrays."""
        raise NotImplementedError

    def joined(self, combined: Any, shares: Array) -> Any:
        """The sum of all clients' replies, from what `combine` made of what they sent."""
        raise NotImplementedError
