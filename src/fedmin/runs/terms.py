"""[federation] of a file: who takes part on real machines, and how long anybody waits for whom.

A simulation gives its clients the sites' names and needs nothing else of it.
"""

from dataclasses import dataclass, replace
from typing import Literal

from fedmin.core import checks
from fedmin.core.federation import Federation
from fedmin.privacy.certificates import check_name


@dataclass(frozen=True)
class Terms:
    """The sites of a federation, and what a round needs of them.

    >>> from fedmin.runs.terms import Terms
    >>> print(Terms(("a", "b", "c"), quorum=0.6, deadline=30))
    sites a, b, c; a round counts if 0.6 of the asked answer within 30 s; it begins when all are \
there, or after 600 s with as many; sites draw from secrets of their own
    """

    sites: tuple[str, ...]  # as in their certificates, in the order of the clients
    quorum: float = 1.0  # the least share of the asked sites that must answer
    deadline: float = 60.0  # seconds for a reply
    wait: float = 600.0  # seconds for all sites to come before the first round
    secrets: Literal["system", "seed"] = "system"  # where sites draw from; "seed": tests only

    def __post_init__(self):
        if not self.sites:
            raise ValueError("sites is an empty list; name at least one")
        for site in self.sites:
            try:
                check_name(site)
            except ValueError as error:
                raise ValueError(f"sites: {error}") from None
        twice = [s for s in self.sites if [o.lower() for o in self.sites].count(s.lower()) > 1]
        if twice:
            raise ValueError(f"sites has {twice[0]!r} twice; a name has one holder")
        checks.between("quorum", self.quorum, 0.0, 1.0, open_low=True)
        checks.positive("deadline", self.deadline)
        checks.positive("wait", self.wait)
        checks.known("secrets", self.secrets, ("system", "seed"))

    def __str__(self) -> str:
        return (
            f"sites {', '.join(self.sites)}; a round counts if {self.quorum:g} of the asked answer "
            f"within {self.deadline:g} s; it begins when all are there, or after {self.wait:g} s "
            f"with as many; {self.drawing}"
        )

    @property
    def drawing(self) -> str:
        """Where sites draw their batches and noise from, in words."""
        if self.secrets == "system":
            return "sites draw from secrets of their own"
        return (
            "sites draw batches and noise from the run's seed, which everybody knows: for tests "
            "and repeats only, and refused by a site whose policy does not say seeded = true"
        )

    def named(self, federation: Federation) -> Federation:
        """The same clients under the sites' names."""
        if len(self.sites) != federation.num_clients:
            raise ValueError(
                f"sites has {len(self.sites)} names, and the data are of {federation.num_clients} "
                f"clients; name as many sites as [partition] makes clients"
            )
        places, labels = list(federation.names), federation.labels
        if labels in places:
            labels = self.sites[places.index(labels)]
        return replace(federation, names=tuple(self.sites), labels=labels)
