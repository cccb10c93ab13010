"""Files that are whole or not there, and folders that one process has at a time."""

import contextlib
import errno
import hashlib
import json
import os
import socket
import time
import warnings
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    # a name of this process's own: another one that is about to end may still write its last
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text whole or not at all."""
    write_whole(path, text.encode())


def write_words(path: Path, words: dict[str, Any]) -> None:
    """Write JSON whole or not at all, with a SHA-256 of all of its text as the last entry.

    >>> import pathlib, tempfile
    >>> from fedmin.core.files import write_words
    >>> from fedmin.core.kept import read_words
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "words.json"
    ...     write_words(path, {"rounds": 3})
    ...     read_words(path)["rounds"]
    3
    """
    write_text(path, text_of(words))


def text_of(words: dict[str, Any]) -> str:
    """The text of such a file."""
    said = {key: value for key, value in words.items() if key != "sha256"}
    text = json.dumps({**said, "sha256": ""}, indent=1) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    before, _, after = text.rpartition('""')
    return f'{before}"{digest}"{after}'


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class InUseError(ValueError):
    """A folder that another process has, and which."""


class FolderLock:
    """A folder for one process at a time: `with FolderLock(folder): ...`.

    The operating system holds the lock (flock), so that it is free as soon as the process that has
    it is gone, whatever ended it. The file in the folder says who has it and stays there, empty.

    >>> import tempfile
    >>> from fedmin.core.files import FolderLock, InUseError
    >>> with tempfile.TemporaryDirectory() as folder, FolderLock(folder):
    ...     try:
    ...         FolderLock(folder).take()
    ...     except InUseError as error:
    ...         print("is in use by process" in str(error))
    True
    """

    def __init__(self, folder: str | os.PathLike, name: str = "run.lock"):
        self.folder, self.path = Path(folder), Path(folder) / name
        self.file: Any = None

    def take(self) -> None:
        """Take the folder, which is made if it is not there; `InUseError` names who has it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.path.open("a+", encoding="utf-8")
        try:
            _flock(file)
        except BlockingIOError:
            who = _holder(file)
            file.close()
            raise InUseError(
                f"{self.folder} is in use by {who}; wait until it has ended, or end it: then the "
                f"same run goes on from there"
            ) from None
        except OSError as error:
            words = f"{self.folder} cannot be locked ({error.strerror}): see that nobody else runs"
            warnings.warn(f"{words} in it", RuntimeWarning, stacklevel=2)
        self.file = file
        since = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        said = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
        with contextlib.suppress(OSError):  # a full disk: the lock itself needs no room
            file.truncate(0)
            file.write(json.dumps(said) + "\n")
            file.flush()

    def free(self) -> None:
        """Others may have the folder."""
        if self.file is not None:
            with contextlib.suppress(OSError):
                self.file.truncate(0)
            self.file.close()
            self.file = None

    def __enter__(self) -> "FolderLock":
        self.take()
        return self

    def __exit__(self, *failure: Any) -> None:
        self.free()


def _flock(file: Any) -> None:
    if fcntl is None:
        raise OSError(errno.ENOTSUP, "this system has no flock")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _holder(file: Any) -> str:
    """Who wrote the file of a lock, in words."""
    try:
        file.seek(0)
        said = json.loads(file.read(1000))
        return f"process {said['process']} on {said['host']} since {said['since']}"
    except (ValueError, KeyError, TypeError):  # it has only just taken it
        return "another process"
