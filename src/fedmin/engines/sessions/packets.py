"""What the clients of a run tell each other, through a server that cannot read it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.channels.secure import derivations
from fedmin.core.protocol import Occasion, ProtocolError
from fedmin.core.roster import Roster
from fedmin.engines.forms import Purpose
from fedmin.engines.round import Notice, among, combine, delivered
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.seal import Sealer, keys_like, statement
from fedmin.engines.sessions.wire import Envelope, MessageError


class ClientError(RuntimeError):
    """Something went wrong at a client; the message names it and the round.

    >>> import fedmin
    >>> issubclass(fedmin.ClientError, RuntimeError)
    True
    """


class Packets:
    """One client's packets to and from the others."""

    def __init__(
        self, me: int, roster: Roster, run_name: bytes, signed: bool = False,
        identity: bytes | None = None,
    ):  # fmt: skip
        self.me, self.roster, self.run_name = me, roster, run_name
        self.signed, self.identity = signed, identity
        self.sealer = Sealer(me)

    def renew(self) -> None:
        """A new key pair, with which nothing was sealed yet."""
        if self.ready:
            self.sealer = Sealer(self.me)

    @property
    def ready(self) -> bool:
        """Whether keys were exchanged."""
        return bool(self.sealer.fingerprint)

    def introduce(self, round: int, trip: int, data: bytes) -> dict[str, Any]:
        """The exchange of public keys: first the own one up, then everybody's down."""
        if trip == 0:
            wire.decode(data, {})
            return {"key": self.sealer.public, **self._signature(round)}
        said = wire.decode(data, keys_like(self.roster.clients, self.signed))[1]
        keys = said["key"]
        if not np.array_equal(keys[self.me], self.sealer.public):
            raise MessageError("the list of public keys has another one for this client")
        if self.signed:
            self._believe(round, keys, said["signature"])
        self.sealer.agree(keys)
        return {}

    def _occasion(self, round: int) -> Occasion:
        everyone = tuple(range(self.roster.clients))
        return Occasion(self.run_name, round, wire.SETUP, everyone, self.roster, self.identity)

    def _signature(self, round: int) -> dict[str, np.ndarray]:
        if not self.signed:
            return {}
        try:
            signer = derivations.signer(self._occasion(round), self.me)
        except ProtocolError as error:
            raise MessageError(str(error)) from error
        words = statement(self.run_name, round, self.me, self.sealer.public)
        return {"signature": np.frombuffer(signer.sign(words), np.uint8)}

    def _believe(self, round: int, keys: np.ndarray, signatures: np.ndarray) -> None:
        """Refuse a public key that its client has not signed."""
        occasion = self._occasion(round)
        for i, (key, signature) in enumerate(zip(keys, signatures, strict=True)):
            words = statement(self.run_name, round, i, key)
            if not derivations.verified(occasion, i, signature.tobytes(), words):
                raise MessageError(f"client {self.roster.names[i]} has not signed its public key")

    def _envelope(self, round: int, trip: int, sender: int, receiver: int) -> Envelope:
        return Envelope("packet", round, trip, sender, receiver, self.run_name)

    def covered(self, purpose: Purpose, e: int, ask: Envelope, sent: Any) -> Any:
        """What the others are sent: where they may know the sum only, under pads."""
        hidden = among(purpose.channel, purpose.forms[e].trip)
        if hidden is None:
            return sent
        pads = self.sealer.pads(ask.round, purpose.first + e)
        return hidden.covered(jax.device_get(sent), pads)

    def sealed(self, purpose: Purpose, e: int, ask: Envelope, sent: Any) -> dict[str, Any]:
        """One sealed packet for each receiver but oneself."""
        trip: Any = purpose.forms[e].trip
        packets = []
        for r in trip.receivers(self.roster.clients):
            if r != self.me:
                inner = self._envelope(ask.round, purpose.first + e, self.me, r)
                data = self.sealer.seal(r, inner.round, inner.trip, wire.encode(inner, sent))
                packets.append(np.frombuffer(data, np.uint8))
        size = purpose.packet_size(e)
        return {"sealed": np.stack(packets) if packets else np.zeros((0, size), np.uint8)}

    def opened(
        self, purpose: Purpose, relay: int, ask: Envelope, sealed: np.ndarray, own: dict[int, Any]
    ) -> Notice:
        """What the others' packets of a relay tell this client, its own reply among them."""
        form = purpose.forms[relay]
        replies: dict[int, Any] = {self.me: own[relay]} if relay in own else {}
        senders = [s for s in range(self.roster.clients) if s != self.me and form.trip.asks(s)]
        for sender, packet in zip(senders, sealed, strict=True):
            inner = self._envelope(ask.round, purpose.first + relay, sender, self.me)
            replies[sender] = self._open(inner, relay, packet.tobytes(), form.sent)
        trip: Any = form.trip
        stacked = jax.tree.map(lambda *a: jnp.stack(a), *[replies[s] for s in sorted(replies)])
        if trip.reduce == "sum":
            stacked = combine(purpose.channel, trip, stacked)
        told = delivered(purpose.channel, trip, stacked, self.roster.shares)
        return Notice(told, trip.receiver)

    def _open(self, wanted: Envelope, relay: int, packet: bytes, like: Any) -> Any:
        try:
            data = self.sealer.open(wanted.sender, wanted.round, wanted.trip, packet)
            found, reply = wire.decode(data, like, finite=True)
            if found != wanted:
                raise MessageError(f"it says it is a {found}")
        except MessageError as error:
            mine, theirs = (self.roster.names[i] for i in (self.me, wanted.sender))
            raise ClientError(
                f"client {mine}, round {wanted.round}, exchange {relay}: message from client "
                f"{theirs}: {error}"
            ) from error
        return jax.tree.map(jnp.asarray, reply)
