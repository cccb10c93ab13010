"""A run from a file that is a path: its models one after the other, and the one that is chosen.

The folder has the chosen model as that of any run, and path.json, path.csv, path.npy and path.png.
What is done is kept in path/ until the end: the same command goes on from there.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from fedmin.core.result import Result
from fedmin.engines.progress import Show
from fedmin.engines.sessions.checkpoint import Checkpoint
from fedmin.minimizing import path
from fedmin.minimizing.paths import PathStoppedError
from fedmin.runs.grid import Job
from fedmin.runs.path_terms import path_terms
from fedmin.runs.pieces import Pieces

KEPT = "path"  # a folder within the run's, while it is going on
TAKEN = ("rounds", "seed", "channel", "record", "engine")  # of what `minimize` is given


def following(
    job: Job, pieces: Pieces, interrupt: Callable[[], str] | None
) -> Callable[[Checkpoint, Show], Result] | None:
    """What carries a path out in its folder; None where the run is no path."""
    terms = path_terms(job.document, job.words)
    if terms is None:
        return None
    chosen = {k: v for k, v in pieces.options.items() if k in TAKEN} | terms.options

    def carry(checkpoint: Checkpoint, heard: Show) -> Result:
        folder = Path(checkpoint.folder)
        try:
            # the problem is at the path's last value: it is the example of all others
            found = path(
                pieces.problem, pieces.federation, method=pieces.method, interrupt=interrupt,
                checkpoint=folder / KEPT, **chosen,
            )  # fmt: skip
        except PathStoppedError as stopped:
            return stopped.result
        found.write(folder)
        forget(folder)
        return found.result

    return carry


def forget(folder: Path) -> None:
    """Take away what a path would go on from."""
    if (folder / KEPT).exists():
        shutil.rmtree(folder / KEPT)
