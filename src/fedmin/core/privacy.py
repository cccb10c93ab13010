"""What a run has shown to whom: who learnt what, of how many at once, and what its noise spent."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedmin.core.kept import DamagedError, check_words


class Shown(NamedTuple):
    """A kind of message that left a party: its parts, who got it, and what that one sees."""

    when: str  # "setup", "training" (in every round), "evaluation" or "certificate"
    trip: int
    sender: str
    parts: str  # names and shapes
    receiver: str
    sees: str
    individual: bool  # one party's own values; else a sum over several, or what all are told


FORM: dict[str, Any] = {
    "shown": list[tuple[str, int, str, str, str, str, bool]], "cohort": int | None,
    "sums": bool, "exposures": list[str], "audit": list[str],
}  # fmt: skip


@dataclass(frozen=True)
class Privacy:
    """What a run has shown to whom; `result.privacy`. Prints as a table.

    `cohort` is the smallest number of clients whose replies were added up in a round, and `sums`
    whether the server saw nothing but such sums in training. `epsilon` is by unit, "client" or
    "row"; empty where nothing was made private by noise. `audit` has what an audit inferred.

    >>> import fedmin
    >>> table = fedmin.data.load("wine").standardized()
    >>> federation = fedmin.data.partition(table, fedmin.data.IID(3))
    >>> result = fedmin.minimize(fedmin.Softmax(13, 3), federation, fedmin.FedSGD(0.01), rounds=2)
    >>> result.privacy.cohort, result.privacy.sums, result.privacy.epsilon
    (3, False, {})
    """

    shown: tuple[Shown, ...]
    cohort: int | None = None
    sums: bool = False
    exposures: tuple[str, ...] = ()  # what follows exactly from single messages
    audit: tuple[str, ...] = ()
    epsilon: Mapping[str, float] = field(default_factory=dict)

    @property
    def leaving(self) -> tuple[Shown, ...]:
        """What left clients."""
        return tuple(each for each in self.shown if each.sender != "server")

    def spending(self, history: Mapping[str, Any]) -> "Privacy":
        """With the epsilons that a history ends with."""
        spent = {k: v for k, v in history.items() if k.startswith("epsilon_")}
        found = {k.removeprefix("epsilon_"): float(v[-1]) for k, v in spent.items()}
        return replace(self, epsilon=found)

    def audited(self, words: Iterable[str]) -> "Privacy":
        """With what an audit inferred."""
        return replace(self, audit=tuple(words))

    def lines(self) -> list[str]:
        """All of it but the messages, a sentence each."""
        what = "sums only" if self.sums else "single replies"
        if any(s.when == "training" and s.sees.startswith("nothing:") for s in self.shown):
            what = "no reply, no sum and no model"
        found = [f"in training the server saw {what}"]
        if self.cohort is not None:
            found.append(f"the fewest clients in a round: {self.cohort}")
        spent = ", ".join(f"{value:.4g} for a {unit}" for unit, value in self.epsilon.items())
        found.append(f"epsilon: {spent}" if spent else "epsilon: none, no noise was added")
        return [*found, *self.exposures, *self.audit]

    def __str__(self) -> str:
        table = [
            f"{s.when} {s.trip}: {s.sender} -> {s.receiver}: {s.parts}: {kind_of(s)}: {s.sees}"
            for s in self.shown
        ]
        return "\n".join([*table, *self.lines()])

    def words(self) -> dict[str, Any]:
        """As plain data for a file; epsilon is in the history."""
        found = asdict(self)
        found.pop("epsilon")
        return {k: list(v) if isinstance(v, tuple) else v for k, v in found.items()}

    @classmethod
    def of(cls, path: Path, words: Any) -> "Privacy | None":
        """What `words` said; None where an earlier fedmin said nothing."""
        if words is None:
            return None
        check_words(path, words, FORM)
        try:
            shown = tuple(Shown(*line) for line in words["shown"])
        except TypeError:
            raise DamagedError(path, "its list of what was shown has a line that is none") from None
        exposures, audit = (tuple(words[key]) for key in ("exposures", "audit"))
        return cls(shown, words["cohort"], words["sums"], exposures, audit)


def kind_of(shown: Shown) -> str:
    """Whether it is one party's values, in a word or two."""
    if shown.sender == "server":
        return "what the server says"
    return "an individual value" if shown.individual else "a sum"
