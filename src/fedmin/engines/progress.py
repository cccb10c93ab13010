"""A progress bar with rounds a second, objective and bytes, for people at a terminal."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

SHOWN = ("objective", "violation", "gap", "accuracy")


class News(NamedTuple):
    """How far a run is."""

    done: int
    rounds: int
    spent: float  # seconds
    history: Any  # what was recorded so far
    ledger: Any

    @property
    def speed(self) -> float:
        """Rounds a second."""
        return self.done / self.spent if self.spent > 0 else 0.0

    @property
    def bytes(self) -> int:
        """All bytes so far."""
        return self.ledger.bytes()

    @property
    def last(self) -> dict[str, float]:
        """What was recorded last."""
        values = map(float, self.history.values[-1])
        return dict(zip(self.history.columns, values, strict=True))

    def words(self) -> str:
        """The same in a few words."""
        last = self.last
        shown = [f"{k} {last[k]:.5g}" for k in SHOWN if k in last]
        return "  ".join([f"{self.speed:,.0f} rounds/s", *shown, f"{self.bytes / 1e6:,.1f} MB"])


Show = bool | Callable[[News], None] | None


def why_stop(interrupt: Callable[[], str] | None) -> str:
    """Why the caller of a run wants it to stop now; "" if it is to go on."""
    return "" if interrupt is None else interrupt()


class Progress:
    """Shows a run while it goes: a bar, if asked to or at a terminal, or whatever a caller does."""

    def __init__(self, title: str, rounds: int, show: Show):
        self.rounds = rounds
        self.bar: Any = None
        self.task: Any = None
        self.tell = show if callable(show) else None
        if show is True or (show is None and sys.stderr.isatty()):
            self._open(title, rounds)

    def _open(self, title: str, rounds: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f} rounds"),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.task = self.bar.add_task(title, total=rounds, note="compiling")

    def __enter__(self) -> "Progress":
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *failure: Any) -> None:
        if self.bar is not None:
            self.bar.stop()

    @property
    def shown(self) -> bool:
        """Whether anyone is watching."""
        return self.bar is not None or self.tell is not None

    def update(self, done: int, spent: float, history: Any, ledger: Any) -> None:
        """Show how far the run is."""
        if not self.shown:
            return
        news = News(done, self.rounds, spent, history, ledger)
        if self.tell is not None:
            self.tell(news)
        else:
            self.bar.update(self.task, completed=done, note=news.words())
