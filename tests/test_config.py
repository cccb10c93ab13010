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
        (
            "[0.1, 0.4]",
            '"big"',
            "line 16: step must be a number or .auto. or a table .*, got 'big'",
        ),
        ("[0.1, 0.4]", "[]", "line 16: step is an empty list"),
        ('"fedavg"', '"fedavgg"', "line 15: unknown method 'fedavgg'; did you mean 'fedavg'"),
        ("rounds = 3", "rounds = 2.5", "line 25: rounds must be a whole number, got 2.5"),
        ("rounds = 3", "", r"\[run\] needs rounds"),
        ("rounds = 3", "rounds = 0", "line 25: rounds must be at least 1, got 0"),
        ("rounds = 3", "rounds = 3\nevery = 0", "line 26: every must be at least 1, got 0"),
        ("seeds = [0, 7]", "seeds = []", "line 26: seeds is an empty list"),
        ("seeds = [0, 7]", "seeds = 7", "line 26: seeds must be a list of whole numbers, got 7"),
        ("seeds = [0, 7]", "seeds = [-1]", "line 26: seeds must be at least 0, got -1"),
        ("seeds = [0, 7]", "seeds = [7, 0, 7]", "line 26: seeds has 7 twice"),
        ("seeds = [0, 7]", f"seeds = [{2**32}]", "line 26: seeds must be below 2.32 = 4294967296"),
        ("seeds = [0, 7]", "seeds = [true]", "line 26: seeds must be a list of whole numbers"),
        ("[0.1, 0.4]", "[0.1, 0.4, 0.1]", "line 16: step has 0.1 twice"),
        (
            "[0.1, 0.4]",
            "true",
            "line 16: step must be a number or 'auto' or a table with a name, got True",
        ),
        ('"wine"', '"fedprox"', "line 3: standardize is not for fedprox: .* leave standardize out"),
        ("standardize = true", 'standardize = "no"', "line 3: standardize must be true or false"),
        ("standardize = true", "standardize = 0", "line 3: standardize must be true or false"),
        ("standardize = true", "test_fraction = true", "line 3: test_fraction must be a number"),
        (
            "clients = 4",
            "clients = 4\nseed = true",
            "line 8: seed must be a whole number, got True",
        ),
        (
            "clients = 4",
            'clients = 4\nweights = ["a", 1]',
            "line 8: weights must be a word or a list of",
        ),
        ("bias = true", 'bias = "no"', "line 12: bias must be true or false, got 'no'"),
        (
            "bias = true",
            'smallest_with_loss_at_most = "low"',
            "line 12: smallest.* must be a number",
        ),
        ('"softmax"', '"mlp"\nhidden = [3.5]', "line 12: hidden must be a list of whole numbers"),
        (
            'batches = {name = "blocks", size = 8}',
            'batches = "full"',
            'line 18: batches must be a table with a name, such as {name = "full"}, got',
        ),
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


def domain(words: str) -> str:
    text = FILE.replace('name = "fedavg"', 'name = "fedmid"').replace('name = "topk"\nk = 5', "")
    text = text.replace("[channel]", "[domain]\n" + words)
    return text.replace("step = [0.1, 0.4]", "step = 0.1").replace("[0, 7]", "[0]")


EACH = ", ".join(["-1.0"] * 42)  # a number for each entry of x
PARTS = 'weights = {name = "l1ball", radius = 1}, bias = {name = "l2ball", radius = 2.0}'


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        (domain(f'name = "l0ball"\ntau = 1\ngroups = [{", ".join(["0, 1, 2"] * 14)}]'), 1),
        (domain('name = "l0ball"\ntau = 1\nfree = ["bias"]'), 1),
        (domain('name = "entries"\nindices = [0, 1, 2]'), 1),
        (domain(f'name = "box"\nupper = 1\nlower = [{EACH}]'), 1),
        (domain('name = "l1ball"\nradius = [1.0, 2]'), 2),
        (domain(f'name = "product"\nsets = {{{PARTS}}}'), 1),
        (domain('name = "product"\nsets = {name = "l1ball", radius = 1.0}'), 1),
        (FILE.replace("clients = 4", "clients = 4\nweights = [1, 2, 3, 4]"), 4),
        (FILE.replace("clients = 4", 'clients = 4\nweights = ["sizes", "uniform"]'), 8),
        (FILE.replace("clients = 4", "clients = 4\nseed = [0, 1]"), 8),
        (FILE.replace("standardize = true", "standardize = [true, false]"), 8),
        (FILE.replace("standardize = true", "test_fraction = [0.1, 0.2]"), 8),
        (FILE.replace('"wine"', '["wine", "breast_cancer"]'), 8),
        (FILE.replace("bias = true", "bias = [true, false]"), 8),
        (FILE.replace('"softmax"', '"mlp"\nhidden = [4, 3]'), 4),
        (FILE.replace('"softmax"', '"mlp"\nhidden = [[4], [4, 3]]'), 8),
    ],
)
def test_a_list_is_one_value_where_the_field_takes_it_and_a_grid_elsewhere(text, runs):
    config = Config(text)
    jobs = config.jobs()
    assert len({job.id for job in jobs}) == runs == len(jobs)
    for job in (jobs[0], jobs[-1]):
        pieces = fitted(job)[0]
        (again,) = Config(tomli_w.dumps(job.resolved())).jobs()
        assert again.id == job.id
        found = fitted(again)[0]
        assert serialize((found.problem, found.method)) == serialize(
            (pieces.problem, pieces.method)
        )
        np.testing.assert_array_equal(
            found.federation.pool.x.values, pieces.federation.pool.x.values
        )
        np.testing.assert_array_equal(found.federation.weights, pieces.federation.weights)


def test_a_list_for_a_key_that_nobody_has_is_no_grid():
    text = domain('name = "groupl1ball"\nradius = 1\ngroups = [0, 0, 1]')
    with pytest.raises(ConfigError, match="groupl1ball has no 'groups'; did you mean 'group'"):
        fitted(Config(text).jobs()[0])


def test_standardizing_is_what_the_file_says():
    plain, scaled = (
        Config(FILE.replace("standardize = true", f"standardize = {word}"))
        for word in ("false", "true")
    )
    means = [c.pieces(c.jobs()[0]).federation.pool.x.values.mean(axis=0) for c in (plain, scaled)]
    assert np.abs(means[0]).max() > 100
    assert np.abs(means[1]).max() < 1e-4


TWO = '[[constraint]]\nname = "normatmost"\nradius = {}\n' * 2


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rounds = 3", "rounds = 2147483648", r"line 25: rounds must be below 2\^31"),
        ("local_steps = 2", "local_steps = 4294967297", r"line 17: local_steps must be below"),
        ("local_steps = 2", f"local_steps = 1{'0' * 30}", "line 17: local_steps is beyond the"),
        ("rounds = 3", "rounds = 1" + "0" * 5000, "limit .4300 digits. for integer"),
        ("k = 5", f"k = {'[' * 5000}{']' * 5000}", "nested too deeply; 16 levels may be"),
        ("k = 5", f"k.{'.'.join('a' * 500)} = 5", "line 20: lists and tables are nested too deep"),
        ("k = 5", f"k = {'[' * 40}{']' * 40}", "line 22: lists and tables are nested too deeply"),
        ("bias = true", f"bias = {[{}] * 3000}", r"line 12: bias has {} twice; they would"),
        ("rounds = 3", f"rounds = {[1] * 3000}", r"line 25: rounds must be .* \.\.\. .*1\]"),
        ("[run]", TWO.format("-1", "1") + "[run]", "line 26: radius must be more than 0"),
        ("[run]", TWO.format("1", "-1") + "[run]", "line 29: radius must be more than 0"),
        ("[run]", '[constraint]\nname = "normatmost"\n[run]', r"line 24: .* \[\[constraint\]\]"),
        ("[data]", "constraint = 3\n[data]", r"line 1: each constraint is a section \[\[constr"),
        ("[data]", f"# {'x' * 2**20}\n[data]", "longer than 1,048,576 letters"),
    ],
)  # fmt: skip
def test_what_no_one_means_is_refused_at_once(old, new, words):
    with pytest.raises(ConfigError, match=words) as refused:
        all_pieces(FILE.replace(old, new))
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("name", ["fedfw", "fedht"])
def test_a_method_that_needs_a_set_says_how_a_file_gives_it_one(name):
    text = FILE.replace('"fedavg"', f'"{name}"').replace("local_steps = 2\n", "")
    text = text.replace('batches = {name = "blocks", size = 8}\n', "").replace("[0.1, 0.4]", "0.1")
    text = text.replace("step = 0.1\n", "") if name == "fedfw" else text
    with pytest.raises(
        ConfigError, match=r'line 14: .*in a file: \[domain\] and below it name = "'
    ):
        all_pieces(text.replace('[channel]\nname = "topk"\nk = 5\n', ""))


def test_a_grid_is_counted_before_it_is_built():
    many = FILE.replace("[0.1, 0.4]", str([*range(1, 1001)])).replace("[0, 7]", str([*range(1000)]))
    words = "line 16: 1,000 of method.step x 1,000 of seed are 1,000,000 runs; a file may have"
    with pytest.raises(ConfigError, match=words):
        Config(many).jobs()
    jobs = Config(many.replace(str([*range(1000)]), "[3, 4]")).jobs()
    assert len(jobs) == 2000  # none of which is made yet
    assert jobs[-1].varied == {"method.step": 1000, "seed": 4}
    assert [job.varied["method.step"] for job in jobs[1:4]] == [1, 2, 2]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[data]\nname = '\xff'", "^case.toml: not a text in UTF-8: byte 15 is 0xff$"),
        (b"[data\n", "^case.toml: .*line 1"),
        (b" " * 2**21, "^case.toml: longer than"),
    ],
)
def test_a_file_that_is_no_configuration(content, words, tmp_path):
    (tmp_path / "case.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        Config.read(tmp_path / "case.toml")


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
