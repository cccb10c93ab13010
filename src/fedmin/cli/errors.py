"""What a user's mistake becomes: one line, and no traceback."""

import warnings
from collections.abc import Callable
from functools import wraps

import typer
from rich.console import Console
from rich.text import Text


def plain_errors(command: Callable) -> Callable:
    """Bad input becomes one red line and exit code 2, not a traceback; a warning a yellow line."""

    @wraps(command)
    def run(*args, **options):
        with warnings.catch_warnings():
            warnings.showwarning = lambda words, *where: _tell("warning", "yellow", words)
            try:
                return command(*args, **options)
            except (ValueError, OSError) as error:
                _tell("error", "red", error)
                raise typer.Exit(2) from None

    return run


def _tell(what: str, tone: str, words: object) -> None:
    line = Text.assemble((f"{what}: ", f"bold {tone}"), (str(words), tone))
    Console(stderr=True, soft_wrap=True).print(line)
