"""The registries decide which names a file may use, and the type of a field which of them."""

import equinox as eqx
import jax
import pytest
import tomli_w

import fedmin
from fedmin.core.serialize import ACTIVATIONS, deserialize, own_classes, serialize
from fedmin.methods import METHODS
from fedmin.runs.config import Config, ConfigError
from fedmin.runs.costs import fitted
from fedmin.runs.fields import element_of, entry_of, fields_of, options_of
from fedmin.runs.folder import run_one
from fedmin.runs.grid import Job
from fedmin.runs.pieces import constraints, options, with_defaults
from fedmin.runs.reading import load_all
from fedmin.runs.registries import KINDS, kind_for

FILE = """\
[data]
name = "wine"
[partition]
name = "iid"
clients = 3
[problem]
name = "softmax"
[method]
{method}
[run]
rounds = 2
"""
# where a value of each kind can stand: a section, or a field of a method
SECTIONS = {
    "methods": "method", "problems": "problem", "partitioners": "partition", "domains": "domain",
    "constraints": "constraint", "channels": "channel", "participations": "participation",
}  # fmt: skip
FIELDS = {
    "batches": "fedavg.batches", "schedules": "fedavg.step", "compressors": "fednl.compress",
    "frank_wolfe_steps": "fedfw.steps", "curvatures": "fedsso.curvature",
    "second_moments": "fedopt.second", "tau_rules": "ssca.tau", "penalties": "ssca.penalty",
}  # fmt: skip
# what must be given, and lists, which must not be taken for grids
GIVEN = {
    "labelsperclient": "clients = 3, k = 2", "dirichlet": "clients = 3, alpha = 0.5",
    "quantityskew": "clients = 3, alpha = 0.5",
    "counttable": "counts = [[1, 2], [3, 4]]", "columnsizes": "sizes = [6, 7]",
    "columnnames": 'groups = {bank = ["age", "pay"], city = ["debt"]}',
    "bycolumn": 'ids = ["a", "b", "a"]',
    "l0ball": 'tau = 1, free = ["bias"], groups = [0, 0, 1]',
    "entries": "indices = [0, 2]", "rankball": "rank = 2",
    "box": "lower = [-1.0, 0.0], upper = 2.0", "ksparsepolytope": "k = 2, radius = 1",
    "product": 'sets = {weights = {name = "l1ball", radius = 1.0}, bias = {name = "free"}}',
    "intersection": 'sets = [{name = "l1ball", radius = 1.0}, {name = "l2ball", radius = 0.5}]',
    "groupl1ball": "radius = 1.0, group = 3", "nuclearball": "radius = 1, shape = [3, 2]",
    "lossatmost": "limit = 0.5", "grouplossatmost": "limits = [0.5, 0.6]",
    "topk": "k = 3", "ef21": "shape = [3, 2]", "clip": "norm = 1.0", "noise": "multiplier = 2.0",
    "privaterows": "rate = 0.5, multiplier = 1.0", "privatechoices": "epsilon = 3.0",
    "budget": "epsilon = 3.0",
    "chain": 'stages = [{name = "clip", norm = 1.0}, {name = "topk", k = 3}]',
    "uniform": "count = 2", "bernoulli": "probability = 0.5",
    "cyclic": "count = 2", "stop": 'column = "objective", below = 0.1', "gap": "tol = 0.1",
    "kkt": "tol = 0.1", "support": "truth = [0, 3]", "growing": "first = 4, factor = 2.0, most = 9",
    "power": "scale = 0.5, exponent = 1", "stages": "values = [3, 1], starts = [0, 2]",
    "nonconvexsteps": "rounds = 100", "toprank": "k = 1", "topentries": "k = 2",
    "cnn": "image = [4, 4, 1]", "lenet": "image = [28, 28, 1]", "mlp": "hidden = [5, 4]",
    "matrixcompletion": "rows = 3, columns = 2",
}  # fmt: skip
GIVEN |= dict.fromkeys(("iid", "shards", "clusters", "evencolumns"), "clients = 3")
GIVEN |= dict.fromkeys(("withreplacement", "withoutreplacement", "shuffled", "blocks"), "size = 4")
GIVEN |= {"bygroup": 'of = {name = "scores"}', "byclass": 'of = {name = "logloss"}'}
GIVEN |= {"bysite": 'of = {name = "logloss", on = "train"}'}
GIVEN |= {"l1penalty": "weight = 0.1", "nuclearpenalty": "weight = 0.1, shape = [3, 2]"}
GIVEN |= dict.fromkeys(("l1ball", "l2ball", "linfball", "simplex", "normatmost"), "radius = 2.0")
ALL = [(kind, name) for kind in KINDS for name in KINDS[kind].registry]


def file_with(kind: str, name: str) -> str:
    """A file with this value in it."""
    value = f'{{name = "{name}", {GIVEN.get(name, "")}}}'.replace(", }", "}")
    words = FILE.format(method='name = "fedavg"')
    if kind in SECTIONS:
        section = SECTIONS[kind]
        kept = [part for part in words.split("[") if not part.startswith(section)]
        many = f"[{value}]" if kind == "constraints" else value
        return f"{section} = {many}\n" + "[".join(kept)
    if kind in FIELDS:
        method, _, field = FIELDS[kind].partition(".")
        return FILE.format(method=f'name = "{method}"\n{field} = {value}')
    if kind == "activations":
        return words.replace('"softmax"', f'"mlp"\nactivation = "{name}"')
    line = {"metrics": f"record = [{value}]", "rules": f"stop = {value}"}
    return words + line.get(
        kind, f'log = ["{name}"]' if kind == "loggers" else f'engine = "{name}"'
    )


def built(job: Job) -> list:
    """All values of a run that need no data, in words."""
    found = options(job.document, job.words)
    measured = [found.get(key) for key in ("record", "stop")]
    values = [measured, constraints(job.document, job.words)]
    return [with_defaults(job.document, job.words), serialize(values)]


def words_in(value) -> set:
    if isinstance(value, dict):
        return {word for each in value.values() for word in words_in(each)}
    if isinstance(value, list):
        return {word for each in value for word in words_in(each)}
    return {value}


@pytest.mark.parametrize(("kind", "name"), ALL, ids=lambda word: word)
def test_every_name_is_read_and_written_back(kind, name):
    (job,) = Config(file_with(kind, name)).jobs()
    written = job.resolved()
    assert name in words_in(written)
    (again,) = Config(tomli_w.dumps(written)).jobs()
    assert again.id == job.id
    assert again.resolved() == written
    assert built(again) == built(job)


def taken(hint) -> list[type]:
    """The modules that a field may be, or may have in it."""
    inside = [each for each in (element_of(hint), entry_of(hint)) if each not in (None, hint)]
    own = [o for o in options_of(hint) if isinstance(o, type) and issubclass(o, eqx.Module)]
    return own + [kind for each in inside for kind in taken(each)]


def test_every_field_that_takes_a_value_has_names_for_it():
    """All type hints of all that is registered; a LargerSet has a function in it: Python only."""
    nameless = set()
    for kind in KINDS.values():
        for thing in kind.registry.values():
            for field in fields_of(thing).values():
                for option in taken(field.hint):
                    if kind_for(field._replace(hint=option)) is None:
                        nameless.add(option)
    assert nameless == {fedmin.LargerSet}


def test_a_fields_type_decides():
    names = {
        (method, field): set(kind_for(fields_of(KINDS["methods"].registry[method])[field]).registry)
        for method, field in (
            ("fedavg", "step"), ("fedavg", "local_steps"), ("fedavg", "batches"),
            ("fedopt", "second"), ("ssca", "tau"), ("ssca", "rho"), ("fedfw", "steps"),
        )
    }  # fmt: skip
    assert list(names.values()) == [
        {"power", "stages", "auto"}, {"stages"}, set(KINDS["batches"].registry),
        {"adagrad", "adam", "yogi"}, {"tuned"}, {"power", "stages", "auto"},
        {"convexsteps", "nonconvexsteps", "stochasticsteps"},
    ]  # fmt: skip


METHOD = 'name = "fedsso"\nstep = 0.1\nlocal_steps = 2\nbatches = {name = "full"}\ncurvature = {}'
PRODUCT = '[domain]\nname = "product"\nsets = {a = {name = "full"}}'


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("0.1", '{name = "identity"}', "line 10: step: 'identity' is an activation, not a sched"),
        ("0.1", '{name = "layernorm"}', "line 10: step: unknown schedule 'layernorm'; there is"),
        ("0.1", '{name = "powr"}', "line 10: step: unknown schedule 'powr'; did you mean 'power'"),
        ("0.1", '{name = "fedavg"}', "line 10: step: 'fedavg' is a method, not a schedule; there"),
        ("0.1", '{name = ["power"]}', "line 10: step: unknown schedule ..power"),
        ("0.1", "{scale = 1.0}", "line 10: .*step needs a table with a name; there is 'power'"),
        ("= 2", '= {name = "power"}', "line 11: local_steps: 'power' is a schedule that cannot"),
        ('"full"', '"topk"', "line 12: batches: 'topk' is a channel, not a way to draw batches"),
        ('"full"', '"ful"', "line 12: batches: unknown way to draw batches 'ful'; did you mean"),
        ("{}", '{name = "lstm"}', "line 13: curvature: unknown form of curvature 'lstm'; there"),
        ("{}", '{name = "lbfg"}', "line 13: curvature: .* 'lbfg'; did you mean 'lbfgs'"),
        ("{}", '{name = "lbfgs", memory = {name = "full"}}', "line 13: memory must be a whole"),
        ("softmax", 'mlp"\nactivation = "one_hot', "line 8: activation: unknown activation 'one"),
        (
            "softmax",
            'mlp"\nactivation = {name = "power"}\n#"',
            "line 8: activation must be the name of",
        ),
        ("rounds = 2", 'rounds = 2\nengine = "loop"', "line 16: engine: unknown engine 'loop';"),
        ("rounds = 2", 'rounds = 2\nlog = ["mlflo"]', "line 16: log: unknown logger 'mlflo'; d"),
        ("rounds = 2", 'rounds = 2\nstop = {name = "wolfegap"}', "line 16: stop: 'wolfegap' is a"),
        ("[run]", f"{PRODUCT}\n[run]", "line 16: a: 'full' is a way to draw batches, not a domain"),
        ('"iid"', '"idd"', "line 4: unknown partitioner 'idd'; did you mean 'iid'"),
    ],
)
def test_any_other_name_is_refused_with_its_field_and_line(old, new, words):
    text = FILE.format(method=METHOD if old in METHOD else METHOD.replace("curvature = {}", ""))
    with pytest.raises(ConfigError, match=words):
        [fitted(job) for job in Config(text.replace(old, new, 1)).jobs()]


def test_a_value_with_a_function_in_it_is_for_python():
    text = FILE.format(method='name = "fedfw"\nsplit = {name = "split"}')
    with pytest.raises(
        ConfigError, match="line 10: split takes no table; a LargerSet is given in Py"
    ):
        Config(text).jobs()[0].resolved()


# ---------------------------------------------------------------- from words to values


class Mine(fedmin.FedAvg):
    """A method of a user's own."""


def test_only_fedmins_own_classes_are_made():
    import equinox.nn  # noqa: F401  what must not be found

    assert all(kind.__module__.startswith("fedmin.") for kind in own_classes().values())
    assert own_classes()["mlp"] is fedmin.MLP
    for name in ("identity", "lstm", "linear", "mine"):
        with pytest.raises(ValueError, match=f"unknown class of fedmin '{name}'"):
            deserialize({"name": name})
    with pytest.raises(ValueError, match="unknown class of fedmin 'lambda'"):
        deserialize({"name": "fedavg", "step": {"name": "lambda"}})
    with pytest.raises(ValueError, match="unknown activation 'save'"):
        deserialize({"name": "mlp", "features": 1, "classes": 2, "activation": "jax.numpy.save"})


def test_a_class_of_ones_own_is_made_if_it_is_given(tmp_path):
    mine = Mine(0.3)
    assert deserialize(serialize(mine), also=[Mine]) == mine
    wine = fedmin.data.load("wine").standardized()
    federation = fedmin.data.partition(wine, fedmin.data.IID(3))
    result = fedmin.minimize(fedmin.Softmax(13, 3), federation, mine, rounds=1)
    result.save(tmp_path)
    assert fedmin.Result.load(tmp_path, also=[Mine]).method == mine
    with pytest.raises(ValueError, match="unknown class of fedmin 'mine'"):
        fedmin.Result.load(tmp_path)


def test_a_method_that_a_user_has_registered_runs_and_is_found_again(tmp_path, monkeypatch):
    text = FILE.format(method='name = "mine"\nstep = 0.2')
    text = text.replace("[partition]", "standardize = true\n[partition]")
    with pytest.raises(ConfigError, match="unknown method 'mine'"):
        fitted(Config(text).jobs()[0])
    monkeypatch.setitem(METHODS, "mine", Mine)
    (job,) = Config(text).jobs()
    assert not run_one(job, tmp_path / "mine").found
    again = run_one(job, tmp_path / "mine")
    assert again.found
    assert again.result.method == Mine(0.2)
    assert list(load_all([tmp_path])) == ["mine"]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_found_again(name):
    function = getattr(jax.nn, name)
    assert deserialize(serialize(function)) is function


def test_a_table_of_values_is_found_again():
    sets = fedmin.Product({"weights": fedmin.L1Ball(1.0), "bias": fedmin.Free()})
    assert deserialize(serialize(sets)) == sets
