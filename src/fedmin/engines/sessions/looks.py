"""The server's looks at the model: while it records, and once for a certificate."""

from typing import Any

import numpy as np

from fedmin.core.inference import Fit
from fedmin.core.measured import Measured, data_of
from fedmin.core.roster import Roster
from fedmin.engines.measuring import certifying, evaluation
from fedmin.engines.messages import Messages
from fedmin.engines.round import Run


class Looks:
    """What the server knows of the look that is going on."""

    def __init__(self, run: Run, roster: Roster, messages: Messages):
        self.roster = roster
        self.keyed = False  # clients name their rows under secrets of their own
        self.each = {"evaluation": evaluation(run, roster)}
        if messages.certificate is not None:
            self.each["certificate"] = evaluation(certifying(run), roster)
        self.name = "evaluation"
        self.state: Any = None
        self.digests: dict[int, bytes] = {}  # of each client's rows
        self.problem = run.problem
        self.fit: Any = None  # where statistics are looked for, and what they are

    def begin(self, name: str, x: Any) -> bool:
        """Look at this model; whether that takes any trip."""
        if name == "statistics":
            self.fit = Fit(self.problem, x, self.roster.clients, self.roster.by_rows)
            return True
        look = self.each[name]
        self.name, self.digests = name, {}
        self.state = look.start(x) if look.trips else None
        return bool(look.trips)

    def sums(self) -> dict[int, Any]:
        """The sums that were brought, by the metric's number."""
        look = self.each[self.name]
        return look.sums(self.state) if look.trips else {}

    def measured(self) -> Measured:
        """What a certificate is made of."""
        ((values, slopes),) = self.sums().values()
        digests = [self.digests[i].hex() for i in range(self.roster.clients)]
        how = f"by an exchange with {self.roster.clients} clients"
        if self.keyed:
            how += ", each of which names its rows under a secret of its own"
        return Measured(
            np.asarray(values, float), np.asarray(slopes, float), self.roster.dtype,
            data_of(self.roster, digests, self.keyed), how,
        )  # fmt: skip
