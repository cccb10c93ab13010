"""Configuration files: read, made into runs, fitted together and written again; nothing is run."""

import functools
import tomllib
import zlib
from contextlib import ExitStack
from random import Random
from typing import Any
from unittest import mock

import tomli_w

from fedmin import data
from fedmin.core.serialize import serialize
from fedmin.data import NotCachedError
from fedmin.data.catalogue import fetching
from fedmin.data.synthetic import synthetic
from fedmin.methods import METHODS
from fedmin.runs.config import Config, ConfigError
from fedmin.runs.costs import costs, fitted
from fedmin.runs.grid import Job
from fedmin.runs.registries import KINDS
from fedmin.runs.template import template

from .campaign import DifferentError, Target
from .mutation import change_text, change_tree
from .reducing import reduced_text

SOURCE = "case.toml"
MOST_JOBS = 3  # of a grid, that are fitted together
COSTED = 4  # one of so many is weighed too, which takes longer than all the rest
LONGEST = 1000  # letters of an error

# every kind of section and of nested value, beside the starters, on data that are small
RICH = (
    """
[data]
name = "wine"
standardize = true
test_fraction = 0.25
[partition]
name = "dirichlet"
clients = 4
alpha = 0.5
seed = 3
weights = "uniform"
[problem]
name = "mlp"
hidden = [8, 4]
activation = "tanh"
bias = true
[method]
name = ["fedavg", "fedprox"]
step = [0.1, {name = "power", scale = 0.5, exponent = 0.1}]
local_steps = {name = "stages", values = [3, 1], starts = [0, 2]}
batches = {name = "blocks", size = 8}
[channel]
name = "topk"
k = 5
[participation]
name = "uniform"
count = 2
[run]
rounds = 3
seeds = [0, 7]
every = 2
engine = "loopback"
record = ["objective", {name = "scores", on = "train"}]
stop = {name = "stop", column = "objective", below = 0.001}
checkpoint_rounds = 5
log = ["tensorboard"]
""",
    """
[data]
name = "breast_cancer"
[partition]
name = "labelsperclient"
clients = 4
k = 1
[problem]
name = "logistic"
l2 = 1e-3
[[constraint]]
name = "normatmost"
radius = 3.0
[[constraint]]
name = "lossatmost"
limit = 0.5
[method]
name = "ssca"
[run]
rounds = 5
""",
    """
[data]
name = "quadratics"
clients = 5
dim = 4
condition = 10.0
[problem]
name = "leastsquares"
[domain]
name = "l1ball"
radius = 2.0
[method]
name = "fedfw"
[run]
rounds = 2
seeds = [1]
""",
    """
[data]
name = "diabetes"
[partition]
name = "columnsizes"
sizes = [4, 6]
[problem]
name = "leastsquares"
[method]
name = "splitsgd"
[run]
rounds = 2
checkpoint_seconds = 1.5
""",
    """
[data]
name = "sparse_regression"
clients = 4
rows = 20
features = 30
support = 5
[problem]
name = "leastsquares"
[domain]
name = "l0ball"
tau = 5
[method]
name = "fedht"
[run]
rounds = 2
""",
    """
[data]
name = "fedprox"
[problem]
name = "softmax"
[method]
name = "feddr"
[participation]
name = "bernoulli"
probability = 0.5
[run]
rounds = 2
""",
)


@functools.cache
def corpus() -> tuple[list[str], list[dict[str, Any]], list[str]]:
    """Texts of valid files, their trees, and the words that mean something in them."""
    texts = [*map(template, METHODS), *RICH]
    words = [name for kind in KINDS.values() for name in kind.registry]
    words += [*data.DATASETS, "train", "test", "sizes", "name", "rounds", "domain"]
    return texts, [tomllib.loads(text) for text in texts], words


TABLES: dict[str, Any] = {}  # of the usual data sets, which are read once; nothing changes them
LOAD = data.load


def _loaded(name: str, **options: Any) -> Any:
    if options:
        return LOAD(name, **options)
    if name not in TABLES:
        TABLES[name] = LOAD(name)
    return TABLES[name]


def _no_network(name: str, *_: Any) -> None:
    raise NotCachedError(f"{name} is not here")


def _quick() -> ExitStack:
    """Each case is quick: nothing is downloaded, and what is made is small."""
    stack = ExitStack()
    stack.enter_context(mock.patch.object(data, "load", _loaded))
    stack.enter_context(mock.patch.object(fetching, "_download", _no_network))
    stack.enter_context(mock.patch.object(synthetic, "MOST_NUMBERS", 2**21))
    return stack


def case(rng: Random) -> str:
    """A file with one to four changes, of its tree or of its text."""
    texts, trees, words = corpus()
    # half of them from the rich ones, which have more to change
    chosen = rng.randrange(len(texts)) if rng.random() < 0.5 else -rng.randint(1, len(RICH))
    if rng.random() < 0.3:
        text = texts[chosen]
        for _ in range(rng.choice((1, 1, 2, 3))):
            text = change_text(rng, text)
        return text
    tree = trees[chosen]
    for _ in range(rng.choice((1, 1, 2, 4))):
        changed = change_tree(rng, tree, trees, words, dates=True)
        tree = changed if isinstance(changed, dict) else {"data": changed}
    return _written(tree)


def _written(tree: dict[str, Any]) -> str:
    try:
        return tomli_w.dumps(tree)
    except (TypeError, ValueError, RecursionError, AttributeError):  # no file can say this
        return "[data]\nname = " + repr(tree)[:2000]


def attempt(text: str) -> str:
    """Refused with its file and in few words, or accepted with the meaning that it says."""
    try:
        with _quick():
            for job in Config(text, SOURCE).jobs()[:MOST_JOBS]:
                found, _ = fitted(job)
                _says(job.words["method"], serialize(found.method), "method")
                _says_the_same_again(job)
            if zlib.crc32(text.encode()) % COSTED == 0:
                costs(job)
    except ConfigError as error:
        words = str(error)
        if not words.startswith(SOURCE) or len(words) > LONGEST:
            raise DifferentError(f"an error of {len(words)} letters: {words[:300]!r}") from error
        return "refused"
    except NotCachedError:
        return "refused"
    return "accepted"


def _says_the_same_again(job: Job) -> None:
    """What is written into the folder of a run is that run."""
    again = list(Config(tomli_w.dumps(job.resolved())).jobs())
    if [each.id for each in again] != [job.id]:
        raise DifferentError("run.toml is read as another run")


def _says(given: Any, made: Any, where: str) -> None:
    """Refuse a value in which something that the file says is not to be found."""
    if isinstance(given, dict):
        for key, value in given.items():
            if not isinstance(made, dict) or key not in made:
                raise DifferentError(f"{where}.{key} = {value!r} has become nothing")
            _says(value, made[key], f"{where}.{key}")
    elif isinstance(given, list):
        if not isinstance(made, list) or len(made) != len(given):
            raise DifferentError(f"{where} = {given!r} has become {made!r}")
        for k, (one, other) in enumerate(zip(given, made, strict=True)):
            _says(one, other, f"{where}[{k}]")
    else:
        named = isinstance(made, str) and isinstance(given, str) and made.endswith(given)
        kinds = isinstance(given, bool) == isinstance(made, bool)
        if not named and not (kinds and given == made):
            raise DifferentError(f"{where} = {given!r} has become {made!r}")


TARGET = Target(case, attempt, reduced_text, str)
