"""What a run will cost, known before it is run; and whether its pieces fit at all."""

from typing import Any, NamedTuple

import jax

from fedmin.channels import Plain
from fedmin.core.participation import Everyone
from fedmin.engines import round as part
from fedmin.engines.simulator.simulator import messages_of
from fedmin.minimizing import assemble
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


def fitted(job: Job) -> tuple[Pieces, part.Run]:
    """The pieces of a run and what they make; refuses those that do not fit, before any work."""
    found = pieces(job.document, job.words)
    problem, federation, method, options = found
    try:
        return found, assemble(
            problem, federation, method, options.get("participation", Everyone()),
            options.get("channel", Plain()), options.get("record"), options.get("stop"),
        )  # fmt: skip
    except (ValueError, TypeError) as error:
        named = str(error).startswith(type(method).__name__)  # else of two sections at once
        job.document.fail("method" if named else "", str(error))


def costs(job: Job) -> Costs:
    """Sizes and bytes of a run that is not run."""
    found, run = fitted(job)
    problem, federation, _, options = found
    messages, _ = messages_of(run, federation)
    ledger = part.ledger_of(run, messages, federation.num_clients)
    present = _most_present(run.participation, federation.num_clients)
    down, up = (
        sum(line.messages(present) * line.bytes for line in ledger.lines if line.direction == way)
        for way in ("down", "up")
    )
    rows = federation.pool.count
    return Costs(problem.size(), rows, federation.num_clients, present, down, up, options["rounds"])


def _most_present(participation: Any, population: int) -> int:
    ids, _ = jax.eval_shape(
        lambda key: participation.cohort(key, jax.numpy.int32(0), population), jax.random.key(0)
    )
    return ids.shape[0]
