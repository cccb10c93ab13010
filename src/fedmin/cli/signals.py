"""Ctrl-C and SIGTERM while the command line runs a file: the run ends in order after a round.

Only the command line takes signals over. In a program that uses fedmin as a library they do what
they do in any Python program.
"""

import os
import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """Turns the first Ctrl-C or SIGTERM into a reason to stop, for `minimize(interrupt=...)`.

    A second one raises KeyboardInterrupt at once. `note` is written to standard error at the first.

    >>> with Interrupt() as interrupt:
    ...     interrupt()
    ''
    """

    def __init__(self, note: str = "") -> None:
        self.reason, self.note = "", note
        self._before: dict[int, Any] = {}

    def __call__(self) -> str:
        """Why to stop; nothing if no signal came."""
        return self.reason

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():  # others may not set handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._hear)
        return self

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.reason:
            raise KeyboardInterrupt
        self.reason = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
        os.write(
            2, self.note.encode()
        )  # print may be at work already, and must not be entered twice

    def __exit__(self, *failure: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
