"""What a terminal shows while runs go on: a table that is kept up to date; in a log, lines."""

import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any

from fedmin.engines.progress import News
from fedmin.runs.folder import Outcome
from fedmin.runs.grid import Job

HEAD = ("run", "round", "rounds/s", "objective", "violation", "gap", "MB", "time left", "")
EVERY = 5.0  # seconds between lines in a log
TONES = {"diverged": "bold red"} | dict.fromkeys(
    ("interrupted", "infeasible", "risen", "stalled"), "yellow"
)


class RunTable:
    """A table with a line a run at a terminal; else a line now and then; or nothing at all."""

    def __init__(self, jobs: Sequence[Job], quiet: bool = False):
        self.quiet = quiet
        self.news: dict[str, News | None] = {job.label: None for job in jobs}
        self.words: dict[str, str] = dict.fromkeys(self.news, "waiting")
        self.screen: Any = None
        self.reasons: list[tuple[str, str]] = []  # words and tones that a table has no room for
        self.last = 0.0

    def __enter__(self) -> "RunTable":
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            self.screen = Live(self._table(), console=console, refresh_per_second=8)
            self.screen.start()
        return self

    def __exit__(self, *failure: Any) -> None:
        if self.screen is not None:
            self.screen.stop()
            for words, tone in self.reasons:
                self.screen.console.print(words, style=tone, soft_wrap=True, markup=False)

    def watch(self, job: Job):
        """What is to be done with the news of a run."""
        self.words[job.label] = "compiling"
        self._say(job.label, f"{job.label}: {job.folder}", at_once=True)

        def hear(news: News) -> None:
            self.news[job.label], self.words[job.label] = news, "running"
            self._say(job.label, f"{job.label}: {news.done}/{news.rounds} rounds  {news.words()}")

        return hear

    def ended(self, outcome: Outcome) -> None:
        """A run has come to its end, or was there already."""
        result, label = outcome.result, outcome.job.label
        self.words[label] = f"{result.status}, found" if outcome.found else result.status
        why = f": {result.reason}" if result.reason else ""
        if result.status == "interrupted":
            why += "; the same command goes on from there"
        if result.status in TONES:
            self.reasons.append((f"{label}: {result.status}{why}", TONES[result.status]))
        self._say(label, f"{label}: {self.words[label]}{why}; {outcome.folder}", at_once=True)

    def _say(self, label: str, words: str, at_once: bool = False) -> None:
        if self.quiet:
            return
        if self.screen is not None:
            self.screen.update(self._table())
        elif at_once or time.monotonic() - self.last > EVERY:
            self.last = time.monotonic()
            print(words, file=sys.stderr)

    def _table(self) -> Any:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for i, name in enumerate(HEAD):
            table.add_column(name, justify="left" if i in (0, len(HEAD) - 1) else "right")
        labels = list(self.news)
        begun = sum(words != "waiting" for words in self.words.values())
        # of more runs than there are lines, the newest and what comes next
        room = max(3, shutil.get_terminal_size().lines - 4)
        first = max(0, min(begun + 1, len(labels)) - room)
        for label in labels[first : first + room]:
            table.add_row(label, *_cells(self.news[label]), self.words[label])
        if len(labels) > room:
            table.caption = f"{begun} of {len(labels)} runs begun"
        return table


def _cells(news: News | None) -> list[str]:
    if news is None:
        return [""] * (len(HEAD) - 2)
    left = (news.rounds - news.done) / news.speed if news.speed > 0 else 0.0
    last = news.last
    numbers = [f"{last[k]:.5g}" if k in last else "" for k in ("objective", "violation", "gap")]
    return [
        f"{news.done}/{news.rounds}", f"{news.speed:,.0f}", *numbers,
        f"{news.bytes / 1e6:,.1f}", f"{left:,.0f} s",
    ]  # fmt: skip
