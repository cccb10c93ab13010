"""Ctrl-C and SIGTERM: the command line ends a run in order, the library leaves signals alone."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import typer

import doors
import fedmin
from agreement import run
from fedmin.cli.errors import plain_errors
from fedmin.cli.signals import Interrupt
from fedmin.engines.sessions.phase import QuorumError
from fedmin.engines.sessions.transport import StoppedError
from fedmin.runs import folder as runs
from fedmin.runs.config import Config

SRC = Path(__file__).resolve().parents[1] / "src"
FILE = """\
[data]
name = "wine"
standardize = true
[partition]
name = "iid"
clients = 3
[problem]
name = "softmax"
[method]
name = "fedsgd"
step = [1e-7, 1e-6]
[run]
rounds = {rounds}
engine = "{engine}"
checkpoint_rounds = 20
"""


def start(*words: object) -> subprocess.Popen:
    """Python with these arguments, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, *map(str, words)], env={**os.environ, "PYTHONPATH": str(SRC)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


# ---------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("engine", "number", "word"),
    [("simulator", signal.SIGINT, "Ctrl-C"), ("loopback", signal.SIGTERM, "SIGTERM")],
)
def test_the_command_line_ends_a_run_in_order(tmp_path, engine, number, word):
    """A real process gets a real signal in the middle of a run that would never end."""
    file, out = tmp_path / "file.toml", tmp_path / "out"
    file.write_text(FILE.format(rounds=1_000_000_000, engine=engine), "utf-8")
    process = start("-m", "fedmin.cli", "run", file, "--out", out, "--json")
    try:
        begin = time.monotonic()
        while not list(out.glob("*/checkpoint-*.bin")) and time.monotonic() - begin < 100:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        process.send_signal(number)
        said, err = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 1, err
    line = json.loads(said)  # one line: the second run of the file was not begun
    assert line["status"] == "interrupted"
    assert line["reason"] == f"{word} after round {line['rounds']}"
    (folder,) = out.iterdir()
    result = fedmin.Result.load(folder)
    history = result.history
    assert len({len(column) for column in history.values()}) == 1
    assert 0 < history["round"][-1] <= result.rounds == len(result.ledger.counts)
    assert np.isfinite(history["objective"]).all()
    assert np.isfinite(result.solution).all()
    assert (np.diff(history["bytes_up"]) >= 0).all()
    assert (folder / f"checkpoint-{result.rounds:09d}.bin").exists()


def test_the_first_signal_is_a_reason_and_the_second_ends_at_once(capfd):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupt("ending\n") as interrupt:
        assert interrupt() == ""
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupt() == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert capfd.readouterr().err == "ending\n"


def test_a_thread_takes_no_signals_over():
    before, found = signal.getsignal(signal.SIGINT), []

    def inside():
        with Interrupt() as interrupt:
            found.append((signal.getsignal(signal.SIGINT), interrupt()))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert found == [(before, "")]


def test_no_run_is_begun_after_a_signal(tmp_path):
    config = Config(FILE.format(rounds=1, engine="simulator"))
    asked: list[str] = []
    outcomes = []
    for outcome in runs.run(config, tmp_path, interrupt=lambda: "".join(asked)):
        outcomes.append(outcome)
        asked.append("Ctrl-C")
    assert [outcome.result.status for outcome in outcomes] == ["done"]
    assert len(config.jobs()) == 2


# ---------------------------------------------------------------- the library

SCRIPT = """
    import pathlib, signal, sys, numpy as np, fedmin
    # a shell that runs the tests in its background has it ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng = np.random.default_rng(0)
    federation = fedmin.Federation.from_clients(
        [(rng.standard_normal((40, 5)), rng.standard_normal(40)) for _ in range(3)]
    )
    engine = fedmin.Loopback() if sys.argv[1] == "loopback" else fedmin.Simulator(devices=1)
    keep = fedmin.Checkpoint(sys.argv[2], rounds=20)

    def minimize(rounds, **options):
        return fedmin.minimize(
            fedmin.LeastSquares(5), federation, fedmin.FedSGD(1e-7), rounds=rounds, every=20,
            engine=engine, **options,
        )

    def tell(news):
        if news.done > 20:  # a checkpoint was written
            print("running", flush=True)

    try:
        minimize(1_000_000_000, checkpoint=keep, progress=tell)
    except KeyboardInterrupt:
        done = max(int(path.stem[-9:]) for path in pathlib.Path(sys.argv[2]).glob("*.bin"))
        again, whole = minimize(done + 5, checkpoint=keep), minimize(done + 5)
        assert again.rounds == whole.rounds == done + 5
        assert (again.solution == whole.solution).all()
        assert (again.history["objective"] == whole.history["objective"]).all()
        print("raised after", done, flush=True)
"""


@pytest.mark.parametrize("engine", ["simulator", "loopback"])
def test_ctrl_c_in_a_program_raises_and_the_checkpoint_is_usable(engine, tmp_path):
    process = start("-c", textwrap.dedent(SCRIPT), engine, tmp_path)
    try:
        assert process.stdout.readline() == "running\n", process.stderr.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 0, err
    last = out.strip().splitlines()[-1]
    assert last.startswith("raised after"), out[-300:] + err
    assert int(last.rsplit(maxsplit=1)[1]) >= 20


@pytest.mark.parametrize("engine", [fedmin.Simulator(), fedmin.Loopback()], ids=str)
def test_a_run_takes_no_signals_over(apart, engine):
    numbers = (signal.SIGINT, signal.SIGTERM)
    before, during = [signal.getsignal(n) for n in numbers], []
    run(
        apart, fedmin.FedSGD(0.5), engine=engine,
        progress=lambda news: during.append([signal.getsignal(n) for n in numbers]),
    )  # fmt: skip
    assert during
    assert all(handlers == before for handlers in during)


@pytest.mark.parametrize("engine", [fedmin.Simulator(), fedmin.Loopback()], ids=str)
def test_a_caller_may_end_a_run(apart, engine):
    """Without a signal: any function that gives a reason."""
    result = run(apart, fedmin.FedSGD(0.5), rounds=500, engine=engine, interrupt=lambda: "enough")
    assert result.status == "interrupted"
    assert result.reason == f"enough after round {result.rounds}"
    assert 0 < result.rounds < 500


# ---------------------------------------------------------------- between machines

MACHINES = """\
[data]
name = "wine"
standardize = true
[partition]
name = "iid"
clients = 2
[problem]
name = "softmax"
[method]
name = "fedsgd"
step = 0.01
[run]
rounds = 4
every = 4
[federation]
sites = ["a", "b"]
secrets = "seed"
"""


def test_a_server_that_is_stopped_while_it_waits_goes_on_from_there(tmp_path):
    """Told to stop in round 2 and started again, it ends as if it had never been stopped."""

    def stop(count):
        if count == 4:
            raise StoppedError("SIGTERM", "b (away)")

    with pytest.raises(StoppedError, match="SIGTERM while waiting for b"):
        doors.served(MACHINES, tmp_path / "stopped", stop)
    found, _, _ = doors.served(MACHINES, tmp_path / "stopped")
    quiet, _, _ = doors.served(MACHINES, tmp_path / "quiet")
    assert found.result.status == "done"
    np.testing.assert_array_equal(found.result.solution, quiet.result.solution)
    assert found.result.ledger.by_kind() == quiet.result.ledger.by_kind()


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (StoppedError("SIGTERM", "b (away)"), 1, "stopped: SIGTERM while waiting for b (away): "),
        (QuorumError("round 3: too few sites"), 2, "error: round 3: too few sites; the same comm"),
        (fedmin.ClientError("b cannot go back"), 2, "error: b cannot go back; the same command"),
    ],
)
def test_what_others_do_is_no_bug_of_ours(error, code, words, capsys):
    @plain_errors
    def command():
        raise error

    with pytest.raises(typer.Exit) as end:
        command()
    assert end.value.exit_code == code
    assert capsys.readouterr().err.startswith(words)
