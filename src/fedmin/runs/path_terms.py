"""[path] of a file: what a run goes along, and how one of its models is chosen.

    sizes = [5, 10, 20, 50]         or radii = [..] and set = "l1ball", or limits = [..]
    choose = "folds", folds = 5     or "holdout", share = 0.2; or "bic"

[method], and `rounds` with it, may be left out.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fedmin.core import checks
from fedmin.core.problem import Problem
from fedmin.core.serialize import serialize
from fedmin.minimizing.along import CONVEX, SPARSE, Along, along, given_one
from fedmin.minimizing.paths import CHOICES
from fedmin.runs.document import Document
from fedmin.runs.registries import KINDS
from fedmin.runs.values import pick, record

Words = Mapping[str, Any]
EVERYONE = {"name": "everyone"}
ONCE = {"stop": None, "statistics": False, "every": 1}  # of [run]: what a path must leave as it is


@dataclass(frozen=True)
class PathTerms:
    """What `fedmin.path` is given, in words.

    >>> from fedmin.runs.path_terms import PathTerms
    >>> PathTerms(sizes=(5, 10)).choose
    'folds'
    """

    sizes: tuple[int, ...] | None = None
    radii: tuple[float, ...] | None = None
    limits: tuple[float, ...] | None = None
    set: str | None = None
    constraint: int = 0
    choose: Literal["folds", "holdout", "bic"] = "folds"
    folds: int = 5
    share: float = 0.2
    one_standard_error: bool = True

    def __post_init__(self):
        given_one(self.sizes, self.radii, self.limits)
        checks.known("choose", self.choose, CHOICES)
        checks.at_least("folds", self.folds, 2)
        checks.between("share", self.share, 0.0, 1.0, open_low=True, open_high=True)

    def along(self, problem: Problem, within: Any) -> Along:
        """What the path of a problem goes along."""
        return along(problem, self.sizes, self.radii, self.limits, within, self.constraint)

    @property
    def said(self) -> str:
        """How many runs a path takes, in words."""
        kind, values = given_one(self.sizes, self.radii, self.limits)
        divided = {"folds": self.folds, "holdout": 1, "bic": 0}[self.choose]
        once = f"{len(values)} {kind} on all rows"
        often = "once" if divided == 1 else f"{divided} times"
        more = f" and {often} with rows held out" if divided else ""
        again = "; each size but the last twice" if kind == "sizes" and len(values) > 1 else ""
        return f"a path: {once}{more}{again}; the bytes above are of the last of them, once"

    @property
    def options(self) -> dict[str, Any]:
        """What else `fedmin.path` is given."""
        words = asdict(self)
        return {k: v for k, v in words.items() if k != "set"}


def path_terms(document: Document, words: Words) -> PathTerms | None:
    """The path that a file asks for, if it does."""
    if "path" not in words:
        return None
    terms = record(document, "path", words["path"], PathTerms)
    if terms.set is not None:
        pick(document, "path.set", terms.set, KINDS["domains"])
    return terms


def prepare_path(document: Document) -> None:
    """Refuse what a path cannot have, and give it the method and rounds that are left out."""
    words = document.words
    if not isinstance(words.get("path"), dict):
        return  # there is none, or it is no section, which is what will be said
    terms = path_terms(document, words)
    if "federation" in words:
        document.fail(
            "federation", "a path is many runs, for a simulation: choose there without "
            "[federation], then give the machines the size, radius or limit that it chose"
        )  # fmt: skip
    if words.get("participation", EVERYONE) != EVERYONE:
        document.fail("participation", "a path asks all sites in every round: leave it out")
    run = words["run"] if isinstance(words.get("run"), dict) else {}
    for key, usual in ONCE.items():
        if run.get(key, usual) != usual:
            document.fail(f"run.{key}", f"{key} is of one run, and a path is many: leave it out")
    if terms is not None and "method" not in words:
        sparse = terms.sizes is not None and "constraint" not in words
        method, rounds = SPARSE if sparse else CONVEX
        words["method"] = {k: v for k, v in serialize(method).items() if v is not None}
        if isinstance(words.setdefault("run", {}), dict):
            words["run"].setdefault("rounds", rounds)


def along_of(document: Document, words: Words, problem: Problem) -> Along | None:
    """What the path of a run goes along, if it is one; refuses values that do not fit."""
    terms = path_terms(document, words)
    if terms is None:
        return None
    within = None if terms.set is None else KINDS["domains"].registry[terms.set]
    try:
        way = terms.along(problem, within)
        way.check()
        return way
    except (ValueError, TypeError) as error:
        document.refuse("path", words["path"], error)
