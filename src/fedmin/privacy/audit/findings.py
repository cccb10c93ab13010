"""What an audit found, as data, in words and in files."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedmin.core.files import write_text
from fedmin.core.result import Result
from fedmin.privacy.audit.attack import Outcome

HEAD = ["who", "sees of", "what", "rank", "best attack", "PSNR", "guess", "labels", "guess"]


class Finding(NamedTuple):
    """What some parties together could infer from what they see in one round."""

    observers: tuple[str, ...]
    victims: tuple[str, ...]
    sees: str
    outcome: Outcome
    true: np.ndarray  # f[n, k], the rows

    def line(self) -> list[str]:
        """In the columns of `HEAD`."""
        found = self.outcome
        share = lambda value: "" if value is None else f"{value:.0%}"
        return [
            " and ".join(self.observers), ", ".join(self.victims), self.sees, str(found.rank),
            found.best.attack, f"{found.best.psnr:.1f}", f"{found.guess:.1f}", share(found.labels),
            share(found.labels_guess),
        ]  # fmt: skip

    def sentence(self) -> str:
        """The same in words, for `result.privacy`."""
        found = self.outcome
        unique = "has one solution" if found.rank.full else "has infinitely many solutions"
        unique = f"{unique} to first order (rank {found.rank})" if found.rank.tried else ""
        labels = "" if found.labels is None else f", {found.labels:.0%} of the labels"
        return (
            f"audit: {' and '.join(self.observers)} of {', '.join(self.victims)}, from "
            f"{self.sees}: "
            f"{unique + '; ' if unique else ''}rows to {found.best.psnr:.1f} dB by "
            f"{found.best.attack}{labels}; the average row has {found.guess:.1f} dB"
        )

    def words(self) -> dict[str, Any]:
        """As plain data, without rows."""
        found = self.outcome
        return {
            "observers": list(self.observers), "victims": list(self.victims), "sees": self.sees,
            "rank": found.rank.rank, "unknowns": found.rank.unknowns, "tried": found.rank.tried,
            "guess": found.guess, "labels": found.labels, "labels_guess": found.labels_guess,
            "attacks": [[each.attack, each.psnr, each.misfit] for each in found.found],
        }  # fmt: skip


@dataclass(frozen=True)
class Audit:
    """What `fedmin.audit` found, a finding for each observer; prints as a table."""

    title: str  # method and channel
    round: int  # from 1
    batch: int  # rows of a client in it
    findings: tuple[Finding, ...]
    image: tuple[int, int, int] | None = None

    def of(self, *observers: str) -> Finding:
        """What these parties together could infer."""
        for each in self.findings:
            if set(each.observers) == set(observers):
                return each
        known = "; ".join(" and ".join(each.observers) for each in self.findings)
        raise ValueError(f"no audit of {' and '.join(observers)}; there are {known}")

    def lines(self) -> list[str]:
        """A sentence a finding."""
        return [each.sentence() for each in self.findings]

    def beside(self, result: Result) -> Result:
        """A result whose report and `privacy` also say what was inferred here."""
        if result.shown is None:
            raise ValueError("this result does not say what left each site: it is of an older run")
        return replace(result, shown=result.shown.audited(self.lines()))

    def __str__(self) -> str:
        head = f"{self.title}, round {self.round}, {self.batch} rows a client"
        return "\n".join([head, *self.lines()])

    def save(self, path: str | Path) -> Path:
        """Write the numbers, without rows, as JSON."""
        words = {"title": self.title, "round": self.round, "batch": self.batch}
        words |= {"findings": [each.words() for each in self.findings]}
        write_text(Path(path), json.dumps(words, indent=1) + "\n")
        return Path(path)
