"""What a user's mistake becomes: one line, and no traceback. And what a bug becomes."""

import errno
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from fedmin.engines.sessions.packets import ClientError
from fedmin.engines.sessions.phase import QuorumError
from fedmin.engines.sessions.transport import StoppedError

BUG = 70  # the exit code: EX_SOFTWARE of sysexits.h


def plain_errors(command: Callable) -> Callable:
    """Bad input becomes one red line and exit code 2, not a traceback; a warning a yellow line.

    Whoever is told to stop while it waits for others says so, with exit code 1.
    """

    @wraps(command)
    def run(*args, **options):
        with warnings.catch_warnings():
            warnings.showwarning = lambda words, *where: _tell("warning", "yellow", words)
            try:
                return command(*args, **options)
            except BrokenPipeError:  # of a pipe whose reader has gone: click ends quietly
                raise
            except StoppedError as error:
                _tell("stopped", "yellow", error)
                raise typer.Exit(1) from None
            except (QuorumError, ClientError) as error:
                _tell("error", "red", f"{error}; the same command goes on from there")
                raise typer.Exit(2) from None
            except (ValueError, OSError, MemoryError) as error:
                _tell("error", "red", _in_words(error))
                raise typer.Exit(2) from None
            except RuntimeError as error:  # XLA's word for a machine without enough of it
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                _tell("error", "red", _in_words(MemoryError(str(error).partition("\n")[0])))
                raise typer.Exit(2) from None

    return run


@contextmanager
def bugs_are_kept() -> Iterator[None]:
    """Around the command itself: an exception that nobody meant becomes one line, and a file."""
    try:
        yield
    except Exception as error:
        words = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
        with tempfile.NamedTemporaryFile(
            "w", prefix="fedmin-bug-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(f"fedmin {' '.join(sys.argv[1:])}\n\n{traceback.format_exc()}")
        _tell("error", "red", f"this is a bug of fedmin: {words}; its full trace is in {file.name}")
        raise SystemExit(BUG) from None


def check_out(path: Path, folder: bool = False) -> None:
    """Refuse what cannot be written to, before any work: a folder, which is made, or a file."""
    try:
        if folder:
            path.mkdir(parents=True, exist_ok=True)
        elif path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        with tempfile.TemporaryFile(dir=path if folder else path.parent):
            pass
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or error}") from None


def _in_words(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f"not enough memory for this: {error}" if str(error) else "not enough memory"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _tell(what: str, tone: str, words: object) -> None:
    # neither what a terminal would obey nor what no terminal can show
    plain = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in str(words))
    line = Text.assemble((f"{what}: ", f"bold {tone}"), (plain, tone))
    Console(stderr=True, soft_wrap=True).print(line)
