"""Configuration files: what they make, and what is said of those that cannot be run."""

import tomllib

import numpy as np
import pytest
import tomli_w

import fedmin
from fedmin.core.serialize import deserialize, serialize
from fedmin.methods import METHODS
from fedmin.runs.config import Config, ConfigError
from fedmin.runs.costs import costs, fitted
from fedmin.runs.template import template

FILE = """\
[data]
name = "wine"
standardize = true

[partition]
name = "dirichlet"
clients = 4
alpha = 0.5

[problem]
name = "softmax"
bias = true

[method]
name = "fedavg"
step = [0.1, 0.4]
local_steps = 2
batches = {name = "blocks", size = 8}

[channel]
name = "topk"
k = 5

[run]
rounds = 3
seeds = [0, 7]
record = ["objective", {name = "scores", on = "train"}]
stop = {name = "stop", column = "objective", below = 0.001}
"""


def test_a_file_is_every_combination_of_its_values():
    config = Config(FILE)
    labels = [job.label for job in config.jobs()]
    assert labels == [f"fedavg step={s} seed={k}" for s in (0.1, 0.4) for k in (0, 7)]
    assert len({job.id for job in config.jobs()}) == 4
    assert [job.id for job in Config(FILE).jobs()] == [job.id for job in config.jobs()]
    problem, federation, method, options = config.pieces(config.jobs()[-1])
    assert problem == fedmin.Softmax(13, 3, bias=True)
    assert federation.num_clients == 4
    assert method == fedmin.FedAvg(0.4, local_steps=2, batches=fedmin.Blocks(8))
    assert options["channel"] == fedmin.TopK(5)
    assert options["seed"] == 7


def test_a_default_that_is_written_out_changes_nothing():
    plain = FILE.replace('[channel]\nname = "topk"\nk = 5\n', "")
    said = plain.replace("[run]", '[channel]\nname = "plain"\n\n[run]\nevery = 1')
    said = said.replace("local_steps = 2", "local_steps = 2\nserver_step = 1")
    said = said.replace("bias = true", "bias = true\n")
    ids = [[job.id for job in Config(text).jobs()] for text in (plain, said, FILE)]
    assert ids[0] == ids[1]
    assert not set(ids[0]) & set(ids[2])


NETWORK = FILE.replace('name = "softmax"', 'name = "mlp"')
STAGED = FILE.replace(
    "local_steps = 2", 'local_steps = {name = "stages", values = [3, 1], starts = [0, 2]}'
)


@pytest.mark.parametrize("text", [FILE, NETWORK, STAGED], ids=["softmax", "mlp", "stages"])
def test_what_was_run_is_a_file_again(text):
    config = Config(text)
    job = config.jobs()[1]
    pieces = config.pieces(job)
    written = tomli_w.dumps(job.resolved())
    again = Config(written)
    (only,) = again.jobs()
    assert only.id == job.id
    found = again.pieces(only)
    assert (found.problem, found.method) == (pieces.problem, pieces.method)
    assert {key: found.options[key] for key in pieces.options} == pieces.options
    said = tomllib.loads(written)
    assert said["method"]["server_step"] == 1.0
    assert said["partition"]["seed"] == 0
    assert "hidden" in said["problem"] or text is not NETWORK
    assert said["run"]["engine"] == "simulator"


def test_cost_is_what_the_run_then_sends():
    config = Config(FILE.replace("[0.1, 0.4]", "0.1").replace("[0, 7]", "[0]"))
    (job,) = config.jobs()
    cost = costs(job)
    pieces = config.pieces(job)
    result = fedmin.minimize(*pieces[:3], **pieces.options)
    assert cost.rounds * cost.down == result.ledger.bytes("down")
    assert cost.rounds * cost.up == result.ledger.bytes("up")


def all_pieces(text: str) -> list:
    return [fitted(job) for job in Config(text).jobs()]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("local_steps = 2", "local_step = 2", "line 17: fedavg has no 'local_step'; did you mean"),
        ("local_steps = 2", "local_steps = 0", "line 17: local_steps must be at least 1, got 0"),
        ("[0.1, 0.4]", '"big"', "line 16: step must be a number, got 'big'"),
        ("[0.1, 0.4]", "[]", "line 16: step is an empty list"),
        ('"fedavg"', '"fedavgg"', "line 15: unknown method 'fedavgg'; did you mean 'fedavg'"),
        ("rounds = 3", "rounds = 2.5", "line 25: rounds must be a whole number, got 2.5"),
        ("rounds = 3", "", r"\[run\] needs rounds"),
        ("rounds = 3", "rounds = 0", "line 25: rounds must be at least 1, got 0"),
        ("rounds = 3", "rounds = 3\nevery = 0", "line 26: every must be at least 1, got 0"),
        ("seeds = [0, 7]", "seeds = []", "line 26: seeds is an empty list"),
        ("seeds = [0, 7]", "seeds = 7", "line 26: seeds must be a list, got 7"),
        ("seeds = [0, 7]", "seeds = [-1]", "line 26: seeds must be at least 0, got -1"),
        ("rounds = 3", "rounds = 3\ncheckpoint_rounds = 0", "line 26: checkpoint_rounds must be"),
        ("rounds = 3", "rounds = 3\ncheckpoint_seconds = 0", "line 26: checkpoint_seconds must be"),
        (
            'record = ["objective", ',
            'record = "objective"\nlog = [',
            "line 27: record must be a list",
        ),
        (
            'column = "objective"',
            'column = "objectiv"',
            "configuration: .*did you mean 'objective'",
        ),
        ("k = 5", "k = 0", "line 22: k must be at least 1, got 0"),
        (
            "[channel]",
            '[domain]\nname = "l1ball"\nradius = 1\n[channel]',
            "line 14: FedAvg does not",
        ),
        ("size = 8", "siz = 8", "line 18: blocks has no 'siz'; did you mean 'size'"),
        ("clients = 4", "clients = 0", "line 7: .*clients must be at least 1, got 0"),
        ("[run]", "[runs]", r"line 24: unknown section \[runs\]; did you mean 'run'"),
        ("rounds = 3", "rounds = ", "at line 25"),
        ("bias = true", "bias = 3", "line 12: bias must be true or false, got 3"),
        ('"wine"', '"whine"', "line 2: unknown data set 'whine'; did you mean 'wine'"),
        (
            '"objective", {',
            '"objectve", {',
            "line 27: record: unknown metric 'objectve'; did you mean",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(old, new, words):
    with pytest.raises(ConfigError, match=words):
        all_pieces(FILE.replace(old, new))


@pytest.mark.parametrize("name", METHODS)
def test_init_writes_a_file_that_can_be_run(name):
    config = Config(template(name))
    (job,) = config.jobs()
    assert costs(job).up > 0
    assert config.pieces(job).method == METHODS[name]()
    fields = template(name).partition("[method]")[2].partition("[run]")[0].split("\n")[2:]
    assert [line for line in fields if line and "#" not in line] == []  # each is explained


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_restored_from_its_description(name):
    method = METHODS[name]()
    assert deserialize(serialize(method)) == method


def test_descriptions_of_problems_and_arrays():
    for problem in (fedmin.MLP(4, 3), fedmin.smallest(fedmin.Logistic(2), loss_at_most=0.5)):
        assert deserialize(serialize(problem)) == problem
    long = serialize(np.arange(100.0))
    assert long["array"] == [100]
    with pytest.raises(ValueError, match="by its hash only"):
        deserialize(long)
