"""site.toml: a site's own file, read, checked, and its rows read by it; nobody is called.

What is accepted means what it says: every key of the file is found again in what was made of it.
"""

import functools
import tempfile
import tomllib
from pathlib import Path
from random import Random
from typing import Any

from fedmin.data import DataFileError
from fedmin.runs.document import ConfigError
from fedmin.runs.own_rows import read_own
from fedmin.runs.registries import KINDS
from fedmin.runs.site_file import NAMED, SiteFile
from fedmin.runs.site_template import site_template

from .campaign import DifferentError, Target
from .mutation import change_text, change_tree
from .reducing import reduced_text
from .toml import LONGEST, _says, _written

SOURCE = "case.toml"
ROWS = "id,age,dose,ill,sex\n1,50,0.1,1,f\n2,61,-2e-3,0,m\n3,7,1,1,m\n"
HEAD = 'name = "a"\nserver = "fed.example.org:8443"\nkeys = "keys/a"\n'
# every key, and the ways to write those that have several
RICH = (
    HEAD
    + """
log = "left.log"
state = "kept"
[data]
file = "rows.csv"
outcome = "ill"
features = ["age", "dose"]
groups = "sex"
separator = ","
[policy]
methods = ["fedavg", "scaffold"]
problems = ["logistic"]
constraints = ["normatmost"]
channels = ["plain", "clip"]
metrics = ["objective", "certificate"]
smallest_roster = 3
smallest_cohort = 2
smallest_sum = 2
most_rounds = 100
largest_epsilon = 2.5
columns = ["age", "dose", "ill", "sex"]
modules = ["ours"]
runs = ["00ff00ff00ff00ff"]
""",
    HEAD + '[data]\nfile = ["rows.csv", "more.csv"]\nfeatures = ["dose"]\n',
    HEAD + '[data]\nfile = "rows.csv"\noutcome = "ill"\n[policy]\nconstraints = []\n',
    HEAD.replace("fed.example.org", "[::1]") + '[data]\nfile = "rows.npz"\n',
)


@functools.cache
def corpus() -> tuple[list[str], list[dict[str, Any]], list[str]]:
    """Texts of valid files, their trees, and the words that mean something in them."""
    starter = site_template("a").replace('"outcome"', '"ill"').replace("# features", "features")
    texts = [starter, *RICH]
    words = [name for key in NAMED for name in KINDS[key].registry]
    words += ["age", "dose", "ill", "sex", "rows.csv", "more.csv", "objective", "certificate", ";"]
    return texts, [tomllib.loads(text) for text in texts], words


@functools.cache
def folder() -> tempfile.TemporaryDirectory:
    """A site's folder with rows in it; it goes with the process."""
    place = tempfile.TemporaryDirectory()
    for name in ("rows.csv", "more.csv"):
        (Path(place.name) / name).write_text(ROWS, "utf-8")
    (Path(place.name) / "rows.npz").write_bytes(b"PK, and no more")
    return place


def case(rng: Random) -> str:
    """A file with one to four changes, of its tree or of its text."""
    texts, trees, words = corpus()
    chosen = rng.randrange(len(texts))
    changes = rng.choice((1, 1, 2, 4))
    if rng.random() < 0.3:
        text = texts[chosen]
        for _ in range(changes):
            text = change_text(rng, text)
        return text
    tree = trees[chosen]
    for _ in range(changes):
        changed = change_tree(rng, tree, trees, words, dates=True)
        tree = changed if isinstance(changed, dict) else {"data": changed}
    return _written(tree)


def attempt(text: str) -> str:
    """Refused with its file and in few words, or accepted with the meaning that it says."""
    place = Path(folder().name)
    try:
        site = SiteFile.of(text, place, SOURCE)
    except ConfigError as error:
        _few(error, SOURCE)
        return "refused"
    _means(tomllib.loads(text), site, place)
    try:
        read_own(site)
    except ValueError as error:  # what `fedmin join` says in one line, with the file
        named = any(file.name in str(error) for file in site.data.files)
        _few(error, "" if named or isinstance(error, DataFileError) else "its file")
        return "refused"
    return "accepted"


def _few(error: Exception, begins: str) -> None:
    words = str(error)
    if not words.startswith(begins) or len(words) > LONGEST:
        raise DifferentError(f"an error of {len(words)} letters: {words[:300]!r}") from error


def _means(words: dict[str, Any], site: SiteFile, place: Path) -> None:
    """Every word of the file, in what was made of it: paths from its folder, lists as tuples."""
    at = lambda name: (
        [str(place / each) for each in name] if isinstance(name, list) else str(place / name)
    )
    paths = {key: at(words[key]) for key in ("keys", "log", "state") if words.get(key)}
    data = {**words["data"], "file": at(words["data"]["file"])}
    _says({**words, **paths, "data": data}, _plain(site), "site")


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value


TARGET = Target(case, attempt, reduced_text, str)
