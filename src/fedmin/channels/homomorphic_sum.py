"""HomomorphicSum: the server adds up what it cannot read.   [cheon2017ckks], CKKS by tenseal

keys        each site sends a public key of this exchange (X25519), signed (Ed25519)
secret      one site in turn makes a CKKS key, and sends it sealed to each other site
exchange    each site sends p_i up, encrypted; the server adds the ciphertexts
open        one site in turn decrypts the sum, and sends it to the server
sum         or, with blind=True: every site decrypts it, and does the server's step itself
bytes       262,656 for every 4,096 numbers, up and to the site that opens; 8 a number from it;
            197,268 to every site for the key, and 48 a site
"""

from typing import Any

import equinox as eqx
import jax

from fedmin.channels import ckks
from fedmin.channels.homomorphic.legs import Encrypted
from fedmin.core import checks, payload
from fedmin.core.channel import Channel, Learns
from fedmin.core.method import Trip
from fedmin.core.protocol import Protocol


class HomomorphicSum(Channel):
    """The server adds ciphertexts; a site in turn opens their sum, if it is of `least` or more.

    The sites share a key, made anew for every exchange; the server never has it. A simulation adds
    the same numbers in the clear: what it finds differs by rounding, and by noise of 1.5e-11 that
    the site which opens a sum puts on it. Every site that has the key could read replies that
    somebody showed to it: no site may collude with the server. Public keys are signed with the keys
    that the roster pins, so that a server cannot put its own in their place.

    With `blind=True` the server never sees a sum or a model: every site opens the sum, and does the
    step that the server would do. All sites take part in every round; the server is told what is
    recorded, and the model stays at the sites. There is no certificate, and the server's own rows
    and test rows cannot be used.

    >>> import fedmin
    >>> print(fedmin.HomomorphicSum().learns)
    the sum of at least 3 clients' replies, each encrypted under a key of the sites
    """

    least: int = eqx.field(default=3, static=True)  # clients in a sum that is opened
    looks: bool = eqx.field(default=True, static=True)  # what is recorded goes through it too
    # sites take the sum in themselves, and the server has no model
    blind: bool = eqx.field(default=False, static=True)  # type: ignore[misc]

    hides = True
    signs = True

    def __check_init__(self):
        checks.at_least("least", self.least, 2)
        if self.blind and not self.looks:
            raise ValueError(
                "with blind=True the server has no model to ask about: looks must be True"
            )

    @property
    def fewest(self) -> int:  # type: ignore[override]
        return self.least

    def weigh(self, wire: Any, share: Any) -> Any:
        """Compact parts become arrays: ciphertexts are added slot by slot."""
        dense = lambda part: part.dense() if payload.is_payload(part) else part
        return payload.scaled(jax.tree.map(dense, wire, is_leaf=payload.is_payload), share)

    def refuses(self, trip: Trip) -> str:
        ckks.library()  # whoever lacks it hears so before anything runs
        return super().refuses(trip)

    def protocol(self, sent: Any) -> Protocol:
        return Encrypted(sent, self.least, self.blind)

    def for_evaluation(self) -> Channel | None:
        return self if self.looks else None

    @property
    def learns(self) -> Learns:
        how = "encrypted under a key of the sites"
        return Learns(each=False, least=self.least, how=how, blind=self.blind)
