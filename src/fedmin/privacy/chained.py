"""An append-only file of lines, chained so that a change is seen.

A line is a JSON object. Its last key, "chain", is SHA-256 over the line's other words and the chain
of the line before; the first line has a random beginning. So a line that was changed, removed, put
elsewhere or put in does not fit, nor does anything behind it. A cut at the end leaves a chain that
fits: FILE.head, beside the file, has the number of its lines and the last chain.

What it does not show: whoever may write both files can write others from the beginning. Someone
else who has kept a head notices that: it must be a line of every later state of the file. `chattr
+a FILE` makes the operating system itself refuse anything but a new line: nothing here rewrites it.

When it is on disk: a line is with the operating system when `write` returns, so it is there even if
the process is killed at once; the disk is told to keep it once a second (`SYNC_SECONDS`) and at the
end, so a power failure may cost the last second of lines. That is seen too: the head counts them. A
line that was half written stays, and the next line says so.
"""

import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

SYNC_SECONDS = 1.0
TORN, MISSING = "torn", "missing"  # what a line says of what is before it
CUT = "its end was cut off, or a power failure took it"


class LogError(ValueError):
    """A log that cannot be read or written, or does not fit its chain; its words say where."""


class Head(NamedTuple):
    """How long a log is and the chain of its last line; as words, "12 3f5a..."."""

    lines: int
    chain: str

    def __str__(self) -> str:
        return f"{self.lines} {self.chain}"

    @classmethod
    def of(cls, words: str) -> "Head":
        """From such words.

        >>> from fedmin.privacy.chained import Head
        >>> Head.of("3 " + "0" * 64).lines
        3
        """
        count, _, chain = words.strip().partition(" ")
        if not count.isdecimal() or len(chain) != 64 or set(chain) - set("0123456789abcdef"):
            raise LogError(f"a head is a count and 64 hexadecimal digits, got {words.strip()!r}")
        return cls(int(count), chain)


class Verdict(NamedTuple):
    """What is in a log, whether it fits together, and what was noted on the way."""

    head: Head
    lines: list[dict[str, Any]]  # as far as they fit
    wrong: str  # the first thing that does not fit, and where; "" if all does
    notes: list[str]  # what is right, and worth knowing
    torn: bytes = b""  # the half line at its end, as a process that was killed leaves it
    ended: bool = True  # whether its last line ends with a line feed
    missing: int = 0  # lines that the head counts and that are not there
    broken: bool = False  # it does not fit together, and cannot be gone on with


def now() -> str:
    """The time as a line has it, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


# ---------------------------------------------------------------- writing


class Chained:
    """A log that is open for writing, by one process at a time; `first` is its first line.

    >>> import tempfile
    >>> from fedmin.privacy.chained import Chained, verify
    >>> path = tempfile.mkdtemp() + "/log"
    >>> with Chained(path, {"log": "example"}) as log:
    ...     log.write({"said": "hello"})
    >>> verify(path).lines[1]
    {'said': 'hello'}
    """

    def __init__(self, path: str | Path, first: Mapping[str, Any]):
        self.path, self.first, self.head = Path(path), dict(first), Head(0, "")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: int | None = None
        self._synced, self._before = 0.0, b""
        self._open()

    def write(self, words: Mapping[str, Any]) -> None:
        """Add a line. After an error the next call opens the file anew and repairs what is torn."""
        if self._file is None:
            self._open()
        self._write(words)

    def _open(self) -> None:
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._go_on()
        except BlockingIOError:
            self._drop()
            raise LogError(f"{self.path} is being written by another process") from None
        except BaseException:
            self._drop()
            raise

    def _go_on(self) -> None:
        """Begin, or go on after the last whole line, and say what happened to those before it."""
        found = verify(self.path)
        if found.broken:
            raise LogError(f"{self.path}: {found.wrong}; keep it, and begin another one")
        if found.lines:
            self._check_first(found.lines[0])
        self.head, self._before = found.head, b"" if found.ended else b"\n"
        words: dict[str, Any] = {}
        if found.torn:
            words = {TORN: len(found.torn), "sha256": hashlib.sha256(found.torn).hexdigest()}
            self._before = b"\n"
        if found.missing:
            words[MISSING] = found.missing
        if not found.lines:
            words |= {**self.first, "begin": secrets.token_hex(16)}
        if words:
            self._write({**words, "time": now()})

    def _check_first(self, words: Mapping[str, Any]) -> None:
        for key, value in self.first.items():
            if words.get(key) != value:
                raise LogError(f"{self.path} is a log of {key} {words.get(key)!r}, not {value!r}")

    def _write(self, words: Mapping[str, Any]) -> None:
        line, chain = _line(self.head.chain, words)
        data = self._before + line + b"\n"
        assert self._file is not None
        try:
            if os.write(self._file, data) != len(data):
                raise OSError(f"{self.path}: the disk took only a part of a line: is it full?")
            self.head, self._before = Head(self.head.lines + 1, chain), b""
            _write_head(self.path, self.head)
            if time.monotonic() - self._synced > SYNC_SECONDS:
                self._sync()
        except OSError:
            self._drop()
            raise

    def _sync(self) -> None:
        assert self._file is not None
        os.fsync(self._file)
        self._synced = time.monotonic()

    def _drop(self) -> None:
        if self._file is not None:
            os.close(self._file)  # and with it the lock
            self._file = None

    def close(self) -> None:
        """Tell the disk to keep everything; the next `write` would open it again."""
        if self._file is not None:
            self._sync()
            self._drop()

    def __enter__(self) -> "Chained":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _line(before: str, words: Mapping[str, Any]) -> tuple[bytes, str]:
    """A line after the one with this chain, and its own chain."""
    said = json.dumps(words, separators=(",", ":"))
    chain = hashlib.sha256(f"{before}\n{said}".encode()).hexdigest()
    return json.dumps({**words, "chain": chain}, separators=(",", ":")).encode(), chain


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def _write_head(path: Path, head: Head) -> None:
    """One write of one small line of a fixed length: never half of it."""
    number = os.open(_beside(path), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(number, f"{head.lines:020d} {head.chain}\n".encode(), 0)
    finally:
        os.close(number)


# ---------------------------------------------------------------- reading


def verify(path: str | Path, known: Head | None = None) -> Verdict:
    """Follow the chain of a log from its first line to its last, and compare it with its head.

    `known` is a head that someone has kept: it must be a line of this log.
    """
    path = Path(path)
    try:
        *whole, rest = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise LogError(f"there is no log {path}") from None
    way = _Way()
    for line in whole:
        way.take(line)
    ended = not (rest and not way.wrong and way.fits(rest))
    if not ended:  # all of it is there but the line feed
        way.take(rest)
    torn = b"" if way.wrong or not ended else b"\n".join([*way.broken, rest])
    head = Head(len(way.chains), way.chains[-1] if way.chains else "")
    if way.wrong:
        return Verdict(head, way.lines, way.wrong, way.notes, broken=True)
    missing, wrong = _beside_it(path, way)
    broken = bool(wrong) and not missing
    if known is not None:
        wrong = wrong or _compare(known, way.chains, "the head that was kept")
    wrong = wrong or _gap(way.lines)
    if not wrong and torn:
        way.notes.append(f"its end is half written ({len(torn)} bytes); the next start says so")
    return Verdict(head, way.lines, wrong, way.notes, torn, ended, missing, broken)


class _Way:
    """The way along a chain, line by line."""

    def __init__(self) -> None:
        self.chains: list[str] = []
        self.lines: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.broken: list[bytes] = []  # no lines, since the last one
        self.number, self.wrong = 0, ""

    def fits(self, line: bytes) -> bool:
        """Whether a line is the next of the chain."""
        words = _parsed(line)
        if words is None:
            return False
        words.pop("chain")
        # letter by letter: a key twice, say, would read otherwise to a person than to a parser
        return line == _line(self.chains[-1] if self.chains else "", words)[0]

    def take(self, line: bytes) -> None:
        """Go one line further; not over one that does not fit."""
        self.number += 1
        words = _parsed(line)
        if self.wrong or words is None:
            self.broken.append(line)
            return
        if not self.fits(line):
            self.wrong = (
                f"line {self.number} does not fit what is before it: something was changed, put "
                f"in or taken out there"
            )
            return
        if self.broken:
            torn = hashlib.sha256(b"\n".join(self.broken)).hexdigest()
            if TORN not in words or words["sha256"] != torn:
                before = f"line {self.number - 1} is no line of a log"
                self.wrong = f"{before}, and the next one does not say that it was half written"
                return
            self.notes.append(f"line {self.number - 1} was half written, as the next one says")
        self.broken = []
        self.chains.append(words.pop("chain"))
        self.lines.append(words)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        words = json.loads(line)
    except ValueError:
        return None
    return words if isinstance(words, dict) and isinstance(words.get("chain"), str) else None


def _gap(lines: list[dict[str, Any]]) -> str:
    """Lines that were missing when the log was opened: it went on, and says so for ever."""
    for words in lines:
        if MISSING in words:
            return f"{words[MISSING]} lines are missing before {words['time']}: {CUT}"
    return ""


def _compare(head: Head, chains: list[str], whose: str) -> str:
    if head.lines > len(chains):
        return f"{whose} counts {head.lines} lines and there are {len(chains)}: {CUT}"
    if head.lines < 1 or chains[head.lines - 1] != head.chain:
        return f"{whose} has another line {head.lines}: this is not the log it was of"
    return ""


def _beside_it(path: Path, way: _Way) -> tuple[int, str]:
    """How many lines the head beside a log counts that are not there, and what is wrong with it."""
    beside, there = _beside(path), len(way.chains)
    if not beside.exists():  # killed before it was first written, or taken away
        return 0, "" if there <= 1 else f"there is no {beside.name} beside it: a cut is not seen"
    try:
        head = Head.of(beside.read_text("ascii"))
    except (LogError, UnicodeDecodeError) as error:
        return 0, f"{beside.name} is damaged: {error}"
    wrong, behind = _compare(head, way.chains, beside.name), there - head.lines
    if not wrong and behind == 1:
        way.notes.append(f"{beside.name} is one line behind: the process was killed as it wrote")
    elif not wrong and behind:
        wrong = f"{beside.name} is {behind} lines behind: something else has written them"
    return max(-behind, 0), wrong
