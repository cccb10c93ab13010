"""What a run will cost and who learns what, known before it is run; whether its pieces fit."""

from dataclasses import replace
from typing import NamedTuple

from fedmin.assembling import assemble
from fedmin.channels import Plain
from fedmin.core.domain import Free
from fedmin.core.participation import Everyone
from fedmin.engines import private
from fedmin.engines.messages import messages_of
from fedmin.engines.round import Run
from fedmin.engines.weighing import ledger_of
from fedmin.minimizing import exposed
from fedmin.privacy.observers import Disclosure, who_counts, who_learns
from fedmin.runs.grid import Job
from fedmin.runs.pieces import Pieces, pieces


class Costs(NamedTuple):
    """The sizes of a run and the bytes of one of its rounds."""

    size: int  # d
    rows: int
    clients: int
    present: int  # clients in a round, at most
    down: int  # bytes a round
    up: int
    rounds: int
    disclosures: list[Disclosure]  # who shows what to whom
    exposures: list[str]  # what follows exactly from single messages, in sentences
    epsilon: dict[str, tuple[float, float]]  # and delta, by unit, of all rounds
    ends: str  # why fewer rounds are run than were asked for

    def noise(self, label: str) -> list[str]:
        """What a run with noise costs, in sentences."""
        ends = f"; {self.ends}" if self.ends else ""
        return [
            f"{label}: epsilon = {epsilon:.4g} at delta = {delta:g} for a {unit}, after "
            f"{self.rounds} rounds{ends}"
            for unit, (epsilon, delta) in self.epsilon.items()
        ]


def takes_certificate(run: Run) -> bool:
    """Whether a run from a file ends with |grad F| of its last model: over all of space, without
    noise, and where the server has a model."""
    noisy = private.is_private(run.method, run.channel)
    return isinstance(run.problem.domain, Free) and not noisy and not run.channel.blind


def fitted(job: Job) -> tuple[Pieces, Run]:
    """The pieces of a run and what they make; refuses those that do not fit, before any work.

    A run from a file has a certificate also where `minimize` makes none: of a free problem,
    |grad F|.
    """
    found = pieces(job.document, job.words)
    problem, federation, method, options = found
    try:
        run = assemble(
            problem, federation, method, options.get("participation", Everyone()),
            options.get("channel", Plain()), options.get("record"), options.get("stop"),
            certificate=True, rounds=options["rounds"],
            statistics=options.get("statistics", False),
        )  # fmt: skip
        return found, replace(run, certify=run.certify or takes_certificate(run))
    except (ValueError, TypeError) as error:
        named = str(error).startswith(type(method).__name__)  # else of two sections at once
        lacks = "domain" not in job.words and "over(problem" in str(error)
        way = '; in a file: [domain] and below it name = "l1ball", radius = 10.0' if lacks else ""
        job.document.fail("method" if named else "", f"{error}{way}")


def costs(job: Job) -> Costs:
    """Sizes and bytes of a run that is not run, and what its parties show each other."""
    found, run = fitted(job)
    problem, federation, _, options = found
    roster = federation.roster(run.participation.everyone)
    messages = messages_of(run, roster)
    ledger = ledger_of(messages, roster.clients)
    present = run.participation.most(roster.clients)
    down, up = (
        sum(line.bytes(present) for line in ledger.lines if line.direction == way)
        for way in ("down", "up")
    )
    learns = [*who_counts(run.problem, roster), *who_learns(messages.purposes, roster.names)]
    sizes = problem.size(), federation.pool.count, roster.clients, present
    rounds, ends = private.affordable(run, roster, options["rounds"])
    noise = private.spent(run, roster, rounds)
    return Costs(*sizes, down, up, rounds, learns, exposed(run, roster), noise, ends)
