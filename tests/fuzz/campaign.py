"""Many cases of a target, in several processes, each case with a limit of time and memory."""

import importlib
import math
import multiprocessing
import os
import resource
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

SECONDS = 20.0  # of processor time for one case; the slowest valid one takes less than a tenth
WAITING = 200.0  # by the clock, which a busy machine makes long
MEMORY = 2 << 30  # bytes beyond what a process has when it begins
BATCH = 200  # cases that a process is given at once

TARGETS = {
    "toml": "a configuration file, from the starters of `fedmin init`",
    "sites": "a site's own file, site.toml, and the rows that it names",
    "folders": "a folder of a run, read by `report` and `compare`",
    "readers": "files of data, each by its reader",
    "wire": "messages between the halves of a run",
    "checkpoints": "checkpoints of a server and of a site",
}
QUICK = {
    "toml": 120, "sites": 300, "folders": 120, "readers": 400, "wire": 2000, "checkpoints": 30,
}  # fmt: skip


class Hang(BaseException):
    """A case that took too long."""


class DifferentError(AssertionError):
    """A case that was accepted with another meaning than it says."""


class Target(NamedTuple):
    """What is fuzzed."""

    case: Callable[[Random], Any]  # a changed one
    attempt: Callable[[Any], str]  # "accepted", or "refused" by an error of fedmin's own
    reduce: Callable[[Any, Callable[[Any], bool]], Any]  # the least that still fails
    show: Callable[[Any], str]


class Failure(NamedTuple):
    """A case that ended as none may."""

    number: int
    kind: str  # the exception, and where it was raised
    words: str  # the whole traceback


@dataclass
class Outcome:
    """What became of many cases."""

    name: str
    seed: int
    ended: Counter = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, ended: Counter, failures: list[Failure]) -> None:
        """Take in what a process has done."""
        self.ended += ended
        self.failures += failures

    @property
    def count(self) -> int:
        """How many cases there were."""
        return sum(self.ended.values())

    def __str__(self) -> str:
        rate = self.count / self.seconds if self.seconds else 0.0
        ended = ", ".join(f"{n:,} {word}" for word, n in sorted(self.ended.items()))
        return f"{self.name}: {self.count:,} cases, {ended}; {rate:,.0f} a second, seed {self.seed}"


def target(name: str) -> Target:
    """A target by its name; its room is imported here, in the process that uses it."""
    return importlib.import_module(f".{name}", __package__).TARGET


def case_of(chosen: Target, name: str, seed: int, number: int) -> Any:
    """Case `number`: the same one every time."""
    return chosen.case(Random(f"{name} {seed} {number}"))


def tried(chosen: Target, case: Any) -> tuple[str, str, str]:
    """How a case ends: "accepted", "refused" or "failed", and if so, its kind and its traceback."""
    try:
        with _limit(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return chosen.attempt(case), "", ""
    except (Exception, Hang) as error:
        return "failed", _kind(error), "".join(traceback.format_exception(error))


def some(name: str, seed: int, numbers: range) -> tuple[Counter, list[Failure]]:
    """Cases of a range of numbers, one after the other."""
    chosen = target(name)
    ended: Counter = Counter()
    failures = []
    for number in numbers:
        how, kind, words = tried(chosen, case_of(chosen, name, seed, number))
        ended[how] += 1
        if how == "failed":
            failures.append(Failure(number, kind, words))
    return ended, failures


def many(
    name: str,
    count: int,
    seed: int,
    processes: int,
    say: Callable[[str], None],
    seconds: float = math.inf,
) -> Outcome:
    """Cases 0 to count - 1, in several processes; a process that dies is a failure too.

    After so many seconds no more are begun: what was tried until then is what is told.
    """
    found, begin, told = Outcome(name, seed), time.monotonic(), time.monotonic()
    ranges = [range(k, min(k + BATCH, count)) for k in range(0, count, BATCH)]
    context = multiprocessing.get_context("spawn")  # JAX has threads, which do not fork
    with context.Pool(processes, _begin, maxtasksperchild=200) as pool:
        waiting = [pool.apply_async(some, (name, seed, each)) for each in ranges]
        for each, one in zip(ranges, waiting, strict=True):
            left = begin + seconds - time.monotonic()
            if left < 0 and not one.ready():
                break
            try:
                ended, failures = one.get(timeout=min(BATCH * WAITING, max(left, 1.0)))
                found.add(ended, failures)
                for failure in failures:
                    say(f"  case {failure.number}: {failure.kind}")
            except multiprocessing.TimeoutError:
                if time.monotonic() - begin > seconds:
                    break
                words = f"a process died, or hung, in cases {each.start} to {each.stop - 1}"
                found.add(Counter(failed=len(each)), [Failure(each.start, "dead", words)])
            if time.monotonic() - told > 30:
                told, found.seconds = time.monotonic(), time.monotonic() - begin
                say(f"  {found}")
    found.seconds = time.monotonic() - begin
    return found


def smallest(name: str, seed: int, failure: Failure) -> str:
    """The case of a failure, reduced to what it takes to fail in the same way."""
    chosen = target(name)
    case = case_of(chosen, name, seed, failure.number)
    same = lambda other: tried(chosen, other)[1] == failure.kind
    return chosen.show(chosen.reduce(case, same) if same(case) else case)


def _begin() -> None:
    """In each process: a bound on memory, and quiet."""
    os.environ["MPLBACKEND"] = "Agg"
    import jax
    import jax.numpy as jnp

    jnp.zeros(2).block_until_ready()  # JAX has taken what it takes
    del jax
    with open("/proc/self/statm", encoding="ascii") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Of processor time, which others on the machine do not use up; and of the clock, for waits."""

    def ring(*_: Any) -> None:
        raise Hang(f"more than {seconds:g} s")

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, seconds),
              (signal.SIGALRM, signal.ITIMER_REAL, seconds * WAITING / SECONDS))  # fmt: skip
    before = [signal.signal(number, ring) for number, _, _ in timers]
    for _, timer, length in timers:
        signal.setitimer(timer, length)
    try:
        yield
    finally:
        for (number, timer, _), old in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, old)


def _kind(error: BaseException) -> str:
    """The exception, and the last line of fedmin's (or of the fuzzer's) that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "fedmin" in f.filename or "fuzz" in f.filename] or frames
    last = own[-1]
    place = f"{os.path.basename(last.filename)}:{last.lineno} {last.name}"
    return f"{type(error).__name__} at {place}"
