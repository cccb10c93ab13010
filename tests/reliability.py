"""The figures of docs/reliability.md, each written by the command that measures it.

    python -m tests.reliability kills      runs in processes of their own, killed; kills=4: fewer
    python -m tests.reliability flips      every flipped bit and every truncation of a checkpoint
    python -m tests.reliability results    the same of the files of a result
    python -m tests.reliability cost       what checkpoints cost
    python -m tests.reliability halves     100,000 changed messages to each half; halves=1000: fewer
    python -m tests.reliability pairs      every method with every channel
    python -m tests.reliability page       the page, from the figures in docs/reliability.json
    python -m tests.reliability landed     which commit brought figures whose own was rebased away

Fuzzers write theirs by `python -m tests.fuzz NAME --count N --json docs/reliability.json`, and
`make mutants` its own into docs/mutants.json; `page` then makes the page from all of them.
"""

import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "reliability.json"
MUTANTS = ROOT / "docs" / "mutants.json"  # of tests/mutants.py
PAGE = ROOT / "docs" / "reliability.md"
KILLS = 8  # of each kind of run
MESSAGES = 100_000  # to each half of a run
RUNS = 1500  # of the flipped bits after which a whole run is gone on with; all others are read only
SECONDS = 20.0  # of a run whose checkpoints are timed


class Promise(NamedTuple):
    """A row of the page."""

    key: str  # of its figures
    words: str
    tests: str
    figures: str  # a form that the figures fill in
    command: str


def _fuzzed(key: str, words: str, tests: str = "test_fuzz.py: test_no_case_fails") -> Promise:
    form = (
        "{cases:,} cases: {refused:,} refused, {accepted:,} accepted, **{failed:,} failed**{later}"
    )
    command = f"python -m tests.fuzz {key} --count 1000000 --json docs/reliability.json"
    return Promise(key, words, tests, form, command)


PROMISES = [
    Promise(
        "kills",
        "A run that is killed at any moment (`kill -9`) and started again ends bit for bit as if "
        "it had never stopped: model, history, ledger.",
        "test_checkpoint.py: test_killed_at_any_moment_it_ends_the_same, test_goes_on_bit_for_bit",
        "{kills} kills of {kinds} kinds of runs, **{differences} differences**",
        "python -m tests.reliability kills",
    ),
    Promise(
        "deployed",
        "Sites and servers that are real processes, over gRPC with TLS, killed at any moment and "
        "started again: the run ends bit for bit as one in loopback with the same presence: model, "
        "history, ledger.",
        "test_deploy.py: test_killed_sites_and_a_killed_server_change_nothing, test_presence.py: "
        "test_whoever_is_killed_it_ends_as_if_nobody_had_been, "
        "test_keys_are_exchanged_anew_when_anybody_was_killed",
        "{kills} kills ({server} of servers, {site} of sites) of {kinds} kinds of runs, {absent} "
        "absences on the way, **{differences} differences**",
        "python -m tests.kills_deployed --count 30 --record",
    ),
    Promise(
        "deployed columns",
        "The same where clients hold columns and seal messages for each other.",
        "test_presence.py: test_keys_are_exchanged_anew_when_anybody_was_killed",
        "{kills} kills ({server} of servers, {site} of sites), **{differences} differences**",
        "python -m tests.kills_deployed --only columns --count 5 --record",
    ),
    Promise(
        "soak",
        "Many sites, each a process of its own, for many rounds: no round is lost, nobody's "
        "memory, threads or open files grow, and the run ends bit for bit as one in loopback.",
        "test_soak.py: test_no_round_is_lost_and_nobody_grows",
        "{sites} sites, {rounds:,} rounds in {seconds:,} s: **{lost} rounds lost**; from round "
        "{after} on the server ({server_mb} MB) grew by {server:,} bytes a round, a site "
        "({site_mb} MB) by {site:,} (median; the largest {largest:,})",
        "python -m tests.soak --sites 50 --rounds 1000 --record",
    ),
    Promise(
        "networks",
        "On a bad network a run goes on and ends, or says for whom it waits; its bits are those of "
        "one in loopback with the same presence.",
        "test_grpc.py: test_a_site_that_comes_when_the_run_is_over_is_told_so",
        "{cases} networks in namespaces, under load, **{failed} failed**. {said}",
        "python -m tests.networks --record",
    ),
    Promise(
        "flips",
        "A damaged checkpoint, of a server or of a site, is noticed, named and passed over for the "
        "next older whole one; the run ends bit for bit the same.",
        "test_damage.py: test_every_flipped_bit_and_every_cut_is_noticed, "
        "test_one_site_cannot_go_back_and_all_go_further, test_the_newest_whole_ones_are_kept",
        "{flips:,} flipped bits (all) and {cuts:,} truncations (all) of checkpoints of a server "
        "and a site: **{unnoticed} unnoticed**; {runs:,} of them with a whole run after it: "
        "**{differences} differences**",
        "python -m tests.reliability flips",
    ),
    _fuzzed("checkpoints", "Whatever is done to a run's checkpoints, it ends the same."),
    Promise(
        "results",
        "A damaged file of a result is refused and named, and `fedmin run` makes it again from the "
        "last checkpoint, the same.",
        "test_run_life.py: test_every_flipped_bit_of_a_result_is_noticed, "
        "test_a_damaged_result_is_made_again_and_is_the_same",
        "{flips:,} flipped bits (all) and {cuts:,} truncations (all) of {files} files: "
        "**{unnoticed} unnoticed**",
        "python -m tests.reliability results",
    ),
    Promise(
        "cost",
        "Checkpoints cost next to nothing: one every 5 seconds, never more than 2 % of the time.",
        "test_damage.py: test_what_takes_long_is_done_less_often",
        "W1 (softmax, 60,000 x 784, 20 clients): {W1_percent} % of the time, {W1_milliseconds} ms "
        "and {W1_bytes:,} bytes each; a run of {small_rounds:,} tiny rounds: {small_percent} %, "
        "{small_milliseconds} ms and {small_bytes:,} bytes each",
        "python -m tests.reliability cost",
    ),
    Promise(
        "",
        "A folder is one process's at a time; who has it is named, and a process that dies frees "
        "it.",
        "test_locks.py, test_run_life.py: test_a_second_run_is_told_who_has_the_folder",
        "by test only",
        "make test ARGS=tests/test_locks.py",
    ),
    _fuzzed("toml", "No configuration file ends in a traceback, or means what it does not say."),
    _fuzzed("sites", "No site's own file does, nor the rows that it names."),
    _fuzzed("folders", "No folder of a run breaks a report or a comparison."),
    _fuzzed("readers", "No file of data breaks its reader, or is read as what it is not."),
    _fuzzed("wire", "No message crashes a party or is taken for what it is not."),
    Promise(
        "halves",
        "Neither half of a run takes a message that was damaged, cut, replayed or re-addressed.",
        "test_sessions.py: test_mutants_of_what_a_site_is_asked, "
        "test_mutants_of_what_a_server_is_answered",
        "{each:,} such messages to each half: **{failed} tests failed**, {passed} passed",
        "python -m tests.reliability halves",
    ),
    Promise(
        "pairs",
        "Every method comes near the minimum through every channel, refuses it, or says that it "
        "does not get there.",
        "test_pairs.py: test_a_pair_works_or_says_that_it_does_not, test_who_refuses_what",
        "{worked} pairs of a case and a channel work or say that they do not, {refused} are "
        "refused, **{failed} do neither**",
        "python -m tests.reliability pairs",
    ),
    Promise(
        "mutants",
        "A change of the code is noticed by a test.",
        "the whole suite",
        "{tried} changes (seed {seed}; {where}) against {against}, {that count} of them not "
        "equivalent: **{noticed} noticed**{later}",
        "make mutants",
    ),
]


# ---------------------------------------------------------------- the page

HEAD = """\
# Reliability

What fedmin promises, the test behind each promise, and the figures of the last full run. CI runs a
quick number of each; the commands run the full one and write the figures, none of which is typed
by hand (`docs/reliability.json`, and this page by `python -m tests.reliability page`).

| promise | tests | the last full run | when |
|---|---|---|---|
"""
TAIL = """
Bit for bit is promised on the same machine with the same versions and the same number of devices.
SHA-256 protects files against chance, not against somebody who may write into the folder and makes
the digests fit. `run.toml` has no digest: reports take the names of runs from it, and nothing else.

A commit is the one that was measured; a + says that the library was not yet committed as it was
then. Where a rebase has made that commit anew, or none was written down, the one by which the
figures came into the history is named too (`python -m tests.reliability landed` looks it up).

The commands:

"""


# of a sample of which no test was written beforehand
_FRESH = (
    "; of a fresh sample (seed {seed}, {against}, `{commit}`, landed by `{landed}`), stopped for "
    "want of time after {tried} of {drawn} changes, **{noticed} of {that count}** at first, "
    "{unclear} unclear, and {since} more since, by tests that were written for them or once a "
    "broken one was mended: too few for a rate"
)


def page() -> str:
    """The page, from the figures that there are."""
    known = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    if MUTANTS.exists():
        known["mutants"] = json.loads(MUTANTS.read_text("utf-8"))
    rows = [f"| {p.words} | {_tests(p.tests)} | {_said(p, known)} |" for p in PROMISES]
    commands = "".join(f"    {command}\n" for command in dict.fromkeys(p.command for p in PROMISES))
    return HEAD + "\n".join(rows) + "\n" + TAIL + commands


def _tests(words: str) -> str:
    return ", ".join(f"`{word.strip()}`" for word in words.replace(": ", ",").split(","))


def _said(promise: Promise, known: dict[str, Any]) -> str:
    if not promise.key:
        return f"{promise.figures} |"
    if promise.key not in known:
        return "**not measured yet** |"
    figures = {"accepted": 0, "refused": 0, "later": "", **known[promise.key]}
    if mended := figures.get("mended"):
        figures["later"] = f" (mended since: {mended})"
    if first := figures.get("at first"):
        figures["later"] = f" after tests were written for survivors (at first {first})"
    if fresh := figures.get("fresh"):
        figures["later"] += _FRESH.format(**fresh)
    when = figures.pop("date") + (f", `{figures['commit']}`" if "commit" in figures else "")
    if landed := figures.get("landed"):
        when += f", landed by `{landed}`"
    return f"{promise.figures.format(**figures)} | {when}"


def keep(key: str, figures: dict[str, Any], path: Path | None = None) -> None:
    """Write figures down, with the day and the commit; those of the page, and the page anew."""
    path = path or FIGURES
    with path.open("a+", encoding="utf-8") as file:  # campaigns beside each other wait here
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = json.loads(file.read() or "{}")
        known[key] = {**figures, "date": time.strftime("%Y-%m-%d"), "commit": commit()}
        file.truncate(0)
        file.write(json.dumps(known, indent=1, sort_keys=True) + "\n")
    if path.resolve() == FIGURES:
        PAGE.write_text(page(), "utf-8")
    print(key, figures, flush=True)


def commit() -> str:
    """The commit that is measured; with a + if the library was changed since."""
    told = lambda *words: subprocess.run(
        ["git", *words], cwd=ROOT, text=True, capture_output=True, check=False
    ).stdout.strip()
    changed = told("status", "--porcelain", "--", "src")
    return told("rev-parse", "--short=8", "HEAD") + ("+" if changed else "")


def in_history(name: str) -> bool:
    """Whether a commit is in the history of this checkout."""
    words = ["git", "merge-base", "--is-ancestor", name.rstrip("+"), "HEAD"]
    return not subprocess.run(words, cwd=ROOT, capture_output=True, check=False).returncode


def landed() -> None:
    """Write down by which commit figures came into the history, where a rebase (or none written
    down) has left no commit of it beside them."""
    told = lambda *words: (
        subprocess.run(["git", *words], cwd=ROOT, text=True, capture_output=True, check=True).stdout
    )
    path = str(FIGURES.relative_to(ROOT))
    known, since = json.loads(FIGURES.read_text("utf-8")), dict[str, str]()
    for name in told("log", "--reverse", "--format=%h", "--abbrev=8", "--", path).split():
        then = json.loads(told("show", f"{name}:{path}"))
        same = {key for key, figures in known.items() if bare(then.get(key, {})) == bare(figures)}
        since = {key: since.get(key, name) for key in same}
    for key, name in since.items():
        known[key] = bare(known[key])
        if not in_history(known[key].get("commit", "none")):
            known[key]["landed"] = name
    FIGURES.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", "utf-8")


def bare(figures: dict[str, Any]) -> dict[str, Any]:
    """Figures as they were measured, without where they landed."""
    return {key: value for key, value in figures.items() if key != "landed"}


# ---------------------------------------------------------------- what is measured


def kills(each: str = "") -> dict[str, Any]:
    """Every kind of run, killed again and again."""
    from .kills import kill

    with tempfile.TemporaryDirectory() as place:
        return kill(Path(place), int(each or KILLS), seed=1)


def _broken(promise: Callable[..., Any], *given: Any) -> int:
    """1 if a promise does not hold, said in words; else 0."""
    import pytest

    try:
        promise(*given)
    except (Exception, pytest.fail.Exception) as error:
        print(f"{promise.__name__}: {type(error).__name__}: {error}", flush=True)
        return 1
    return 0


def flips() -> dict[str, Any]:
    """Every bit and every length of a server's newest checkpoint and of a site's."""
    import numpy as np

    from .fuzz import damage

    found = {"flips": 0, "cuts": 0, "runs": 0, "unnoticed": 0, "differences": 0}
    rng = np.random.default_rng(1)
    for engine, share in ((damage.SIMULATOR, 0.9), (damage.LOOPBACK, 0.1)):
        kept = damage.kept(engine)
        name = kept.newest[-1]  # of the loopback, a site's
        data = kept.files[name]
        changes = [(damage.flipped, bit) for bit in range(8 * len(data))]
        changes += [(lambda data, n: data[:n], n) for n in range(len(data))]
        with tempfile.TemporaryDirectory() as place:
            for change, where in changes:
                path = Path(place) / Path(name).name
                found["unnoticed"] += _broken(damage.read, path, change(data, where))
        for i in rng.choice(len(changes), int(share * RUNS), replace=False):
            change, where = changes[i]
            found["differences"] += _broken(damage.end, kept, {name: change(data, where)})
        found["flips"] += 8 * len(data)
        found["cuts"] += len(data)
        found["runs"] += int(share * RUNS)
    return found


def results() -> dict[str, Any]:
    """Every bit and every length of the files of a result."""
    import pytest

    import fedmin
    from fedmin.core.kept import DamagedError
    from fedmin.core.result_files import result_words

    def refused(folder: Path, name: str) -> None:
        with pytest.raises(DamagedError, match=name):
            result_words(folder)

    from .fuzz import damage

    found = {"files": 0, "flips": 0, "cuts": 0, "unnoticed": 0}
    result = damage.kept().result
    with tempfile.TemporaryDirectory() as place:
        folder = result.save(place)
        for name in ["result.json", *result_words(folder)["files"]]:
            data = (folder / name).read_bytes()
            changed = [damage.flipped(data, bit) for bit in range(8 * len(data))]
            for content in [*changed, *(data[:n] for n in range(len(data)))]:
                (folder / name).unlink()
                (folder / name).write_bytes(content)
                found["unnoticed"] += _broken(refused, folder, name)
            (folder / name).write_bytes(data)
            found["files"] += 1
            found["flips"] += 8 * len(data)
            found["cuts"] += len(data)
        assert fedmin.Result.load(folder).status == result.status
    return found


def _tested(words: list[str], **settings: str) -> dict[str, int]:
    """How many tests passed, failed and were skipped in a run of their own, with these settings."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", *words],
        cwd=ROOT, text=True, capture_output=True, check=False, env={**os.environ, **settings},
    )  # fmt: skip
    print(done.stdout[-4000:], flush=True)
    last = (done.stdout.strip().splitlines() or [""])[-1]
    found = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|error)", last)}
    if not found:
        raise RuntimeError(f"pytest said {done.stdout[-300:]!r} {done.stderr[-300:]!r}")
    return {"passed": 0, "failed": 0, "skipped": 0, "error": 0, **found}


def halves(count: str = "") -> dict[str, Any]:
    """So many messages to each half of a run, damaged, cut, replayed or re-addressed."""
    each = int(count or MESSAGES)
    words = ["tests/test_sessions.py", "-k", "test_mutants_of_what"]
    found = _tested(words, FEDMIN_MUTANTS=str(2 * each))
    return {"each": each, "passed": found["passed"], "failed": found["failed"] + found["error"]}


def pairs() -> dict[str, Any]:
    """Every method with every channel."""
    words = ["tests/test_pairs.py", "-k", "test_a_pair_works"]
    found = _tested(words, FEDMIN_PAIRS="all")
    failed = found["failed"] + found["error"]
    return {"worked": found["passed"], "refused": found["skipped"], "failed": failed}


def cost() -> dict[str, Any]:
    """What part of a run's time goes into its checkpoints, as they are by default."""
    import fedmin
    from benchmarks.ours import prepared
    from benchmarks.workloads import W1

    table = fedmin.data.load("wine").standardized()
    small = fedmin.data.partition(table, fedmin.data.IID(4))
    runs = {
        "W1": prepared(W1),
        "small": (fedmin.Softmax(13, 3), small, fedmin.FedAvg(0.1, local_steps=2)),
    }
    found: dict[str, Any] = {}
    for name, (problem, federation, method) in runs.items():
        share, each, size, rounds = _timed(problem, federation, method)
        found |= {
            f"{name}_percent": round(100 * share, 2), f"{name}_milliseconds": round(1000 * each, 1),
            f"{name}_bytes": size, f"{name}_rounds": rounds,
        }  # fmt: skip
    return found


def _timed(problem: Any, federation: Any, method: Any) -> tuple[float, float, int, int]:
    """The share of the time that checkpoints take, seconds and bytes of one, and the rounds."""
    import fedmin
    from fedmin.engines.sessions import checkpoint as module

    took: list[float] = []
    save, ends = module.Keeper.save, [0.0]

    def timed(self: Any, *args: Any) -> None:
        save(self, *args)
        took.append(self.took)

    def interrupt() -> str:
        ends[0] = ends[0] or time.monotonic() + SECONDS
        return "enough" if time.monotonic() > ends[0] else ""

    with tempfile.TemporaryDirectory() as folder:
        module.Keeper.save = timed  # type: ignore[method-assign]
        try:
            result = fedmin.minimize(
                problem, federation, method, rounds=10**7, progress=False, interrupt=interrupt,
                checkpoint=fedmin.Checkpoint(folder),
            )  # fmt: skip
        finally:
            module.Keeper.save = save  # type: ignore[method-assign]
        size = max(path.stat().st_size for path in Path(folder).glob("*.bin"))
    # the last one is written because it is the end
    share = sum(took[:-1]) / result.run_seconds
    return share, sum(took) / len(took), size, result.rounds


def main() -> int:
    """Measure what is asked for."""
    known: dict[str, Callable[..., Any]]
    known = {
        "kills": kills, "flips": flips, "results": results, "cost": cost, "halves": halves,
        "pairs": pairs,
    }  # fmt: skip
    for word in sys.argv[1:]:
        name, _, more = word.partition("=")
        if name in ("page", "landed"):
            landed() if name == "landed" else None
            PAGE.write_text(page(), "utf-8")
        else:
            keep(name, known[name](*[more] if more else []))
    return 0


if __name__ == "__main__":
    sys.exit(main())
