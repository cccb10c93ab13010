"""A progress bar with rounds a second, objective and bytes, for people at a terminal."""

import signal
import sys
import threading
from types import TracebackType
from typing import Any


class Progress:
    """Shows a run while it goes, if asked to or if standard error is a terminal."""

    def __init__(self, title: str, rounds: int, show: bool | None):
        self.bar: Any = None
        self.task: Any = None
        if show or (show is None and sys.stderr.isatty()):
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
        return self.bar is not None

    def update(self, done: int, speed: float, objective: float | None, bytes: int) -> None:
        """Show how far the run is."""
        if self.bar is None:
            return
        value = "" if objective is None else f"objective {objective:.5g}  "
        note = f"{speed:,.0f} rounds/s  {value}{bytes / 1e6:,.1f} MB"
        self.bar.update(self.task, completed=done, note=note)


class Interrupt:
    """Turns the first Ctrl-C or SIGTERM into a flag that is read between segments.

    A second one ends the program at once.
    """

    def __init__(self) -> None:
        self.asked = ""  # by what
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._hear)
        return self

    def _hear(self, number: int, frame: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
