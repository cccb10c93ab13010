"""Every site in a process of its own: the same bits as in one process, and only its own rows."""

import signal

import numpy as np
import pytest

import conftest
import fedmin
import known
import parted
import thorough
from agreement import assert_same_bits, run
from fedmin.engines.transports import processes
from fedmin.engines.transports.words import from_words, to_words

WORLD = known.apart(sizes=(4, 3, 5))
PAIR = known.apart(sizes=(4, 5))  # two sites are two processes to start
SPARSE = fedmin.over(WORLD.problem, fedmin.L0Ball(2))
BALL = fedmin.over(WORLD.problem, fedmin.L1Ball(0.7))
LIMITED = fedmin.subject_to(WORLD.problem, fedmin.NormAtMost(0.3), tolerance=100.0)
KINDS = {
    "client memory": (fedmin.Scaffold(0.3, local_steps=2, batches=fedmin.Blocks(2)), {}),
    "two exchanges": (fedmin.FedDANE(0.3, local_steps=2), {}),
    "server matrix": (fedmin.FedSSO(0.2, batches=fedmin.Full()), {}),
    "atoms": (fedmin.FedFW(1.0), {"problem": BALL}),
    "sparse": (fedmin.FedIterHT(0.3, local_steps=2), {"problem": SPARSE}),
    "constraints": (fedmin.SSCA(batches=fedmin.Full()), {"problem": LIMITED}),
    "channel memory": (
        fedmin.FedSGD(0.3),
        {"channel": fedmin.chain(fedmin.Clip(0.5), fedmin.TopK(1)),
         "participation": fedmin.Uniform(2)},
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def as_compiled_here(monkeypatch):
    """Sites compile as this process does: XLA's settings are read from the environment."""
    for name, value in conftest.QUICKLY.items():
        monkeypatch.setenv(name, value)


def both(world, method, **options) -> list[fedmin.Result]:
    settings = {"rounds": 3, **options}
    return [run(world, method, engine=e, **settings)
            for e in (fedmin.Loopback(), fedmin.Processes())]  # fmt: skip


@pytest.mark.filterwarnings("ignore:SSCA:RuntimeWarning")  # three rounds do not meet a constraint
@pytest.mark.parametrize("kind", thorough.first(KINDS, 3))
def test_bit_for_bit_as_in_one_process(kind):
    method, options = KINDS[kind]
    world = WORLD if "participation" in options else PAIR
    if "problem" in options:
        world = known.World(options["problem"], world.clients)
    found = both(world, method, **{k: v for k, v in options.items() if k != "problem"})
    assert_same_bits(*found)
    assert found[1].clients is None


@pytest.mark.parametrize("labels", ["b"])
def test_columns_bit_for_bit(labels):
    ends = [parted.run("swish", labels=labels, engine=e, rounds=2, seed=4)
            for e in (fedmin.Loopback(), fedmin.Processes(workers=1))]  # fmt: skip
    assert_same_bits(*ends)


def test_a_run_goes_on_and_every_site_finds_its_own_state(tmp_path):
    method, _ = KINDS["client memory"]
    whole = run(PAIR, method, rounds=4, engine=fedmin.Loopback())
    keep = fedmin.Checkpoint(tmp_path, rounds=2, seconds=1e4)
    first = run(PAIR, method, rounds=2, engine=fedmin.Processes(), checkpoint=keep)
    assert first.rounds == 2
    assert len(list(tmp_path.glob("sites/*/checkpoint-*.bin"))) == 2
    again = run(PAIR, method, rounds=4, engine=fedmin.Processes(), checkpoint=keep)
    assert_same_bits(whole, again)


def test_a_process_is_given_its_own_rows_only(monkeypatch):
    """Every byte that goes to a site's process, searched for the others' rows."""
    received: dict[int, bytes] = {}
    send = processes.pipes.send

    def watch(pipe, kind, data):
        received[id(pipe)] = received.get(id(pipe), b"") + data
        send(pipe, kind, data)

    monkeypatch.setattr(processes.pipes, "send", watch)
    run(WORLD, fedmin.FedSGD(0.3), rounds=1, engine=fedmin.Processes())
    rows = [[np.ascontiguousarray(row).tobytes() for row in z] for z, _ in WORLD.clients]
    for i, seen in enumerate(received.values()):
        assert all(row in seen for row in rows[i])
        assert not any(row in seen for k in range(3) if k != i for row in rows[k])


def test_a_process_that_dies_is_named(monkeypatch):
    started = processes._started

    def short_lived(name, words, rows):
        process = started(name, words, rows)
        if words["me"] == 1:
            process.send_signal(signal.SIGKILL)
        return process

    monkeypatch.setattr(processes, "_started", short_lived)
    with pytest.raises(fedmin.ClientError, match="client 1: its process ended with exit code -9"):
        run(WORLD, fedmin.FedSGD(0.3), rounds=1, engine=fedmin.Processes())


# ---------------------------------------------------------------- a run as words


@pytest.mark.parametrize("kind", thorough.first(KINDS, 3))
def test_words_say_everything(kind):
    method, options = KINDS[kind]
    for value in (method, *options.values()):
        assert to_words(from_words(to_words(value))) == to_words(value)
        assert from_words(to_words(value)) == value


def test_what_has_no_name_is_refused_before_any_process(monkeypatch):
    monkeypatch.setattr(processes, "_started", lambda *_: 1 / 0)
    size = fedmin.Measure("size", lambda problem, x: x[0])
    with pytest.raises(ValueError, match="cannot be given to another process"):
        run(WORLD, fedmin.FedSGD(0.3), engine=fedmin.Processes(), record=[size])


def test_workers_must_be_some():
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        fedmin.Processes(workers=0)
