"""A run as a TOML file: what is minimized, over whose data, by which method, for how long.

    [data]           name = "digits"                    and the options of fedmin.data.load
                     files = ["a.csv", "b.csv"], outcome = "died"    or of fedmin.data.read
    [prepare]        scale = "standard", missing = "mean"            of such files
    [partition]      name = "labelsperclient"           clients = 10, k = 2, seed = 0
    [problem]        name = "softmax"                   what the data decide is filled in
    [domain]         name = "l1ball"                    optional, as are the next three
    [[constraint]]   name = "lossatmost"
    [channel]        name = "topk"
    [participation]  name = "uniform"
    [method]         name = "fedavg", step = [0.1, 0.2]   a list of values is a grid
    [path]           sizes = [5, 10, 20]                a path in place of one run (path_terms.py)
    [run]            rounds = 100, seeds = [0, 1, 2], every = 1, record = [..], stop = {..}
    [federation]     sites = ["a", "b"], quorum = 1.0, deadline = 60.0    on machines (terms.py)

Names are those of the registries (`runs/registries.py`): the lower-case names of the classes, whose
fields are the keys. Whatever is wrong is said with its file, its line and the nearest right thing,
before any work.
"""

from collections.abc import Sequence
from typing import Any

from fedmin.core import checks
from fedmin.runs import grid
from fedmin.runs.document import ConfigError, Document
from fedmin.runs.fields import fits, said
from fedmin.runs.grid import Job
from fedmin.runs.path_terms import prepare_path
from fedmin.runs.pieces import Pieces, pieces, terms
from fedmin.runs.registries import KINDS
from fedmin.runs.sections import SECTIONS
from fedmin.runs.values import pick

RUN_KEYS: dict[str, Any] = {
    "rounds": int, "seeds": list[int], "every": int, "record": list[str | dict], "stop": dict,
    "engine": str, "checkpoint_rounds": int, "checkpoint_seconds": float, "log": list[str],
    "statistics": bool,
}  # fmt: skip
RUN_COUNTS = ("rounds", "every", "checkpoint_rounds")  # 1 at least


class Config(Document):
    """A configuration file, read and checked as far as it can be without its data.

    >>> from fedmin.runs.config import Config, ConfigError
    >>> try:
    ...     Config('[data]\\nname = "digits"\\n[methd]\\n')
    ... except ConfigError as error:
    ...     print(error)
    configuration, line 3: unknown section [methd]; did you mean 'method'?
    """

    def __init__(self, text: str, source: str = "configuration"):
        super().__init__(text, source)
        sections = {**SECTIONS, "prepare": None, "path": None, "run": None, "federation": None}
        for key in self.words:
            if key not in sections:
                self.fail(key, f"unknown section [{key}]; {checks.nearest(key, sections)}")
            if key == "constraint":
                several = self.words[key] if isinstance(self.words[key], list) else [None]
                if not all(isinstance(each, dict) for each in several):
                    self.fail(key, "each constraint is a section [[constraint]], in two brackets")
            elif not isinstance(self.words[key], dict):
                self.fail(key, f"{key} must be a section, [{key}] and its keys below it")
        prepare_path(self)
        for section in ("data", "problem", "method", "run"):
            if section not in self.words:
                raise ConfigError(f"{source}: there is no [{section}]")
        self._check_run()
        self.terms = terms(self, self.words)  # None if the file has no [federation]

    def _check_run(self) -> None:
        run = self.words["run"]
        for key, value in run.items():
            if key not in RUN_KEYS:
                near = checks.nearest(key, RUN_KEYS)
                self.fail(f"run.{key}", f"unknown key {key!r} in [run]; {near}")
            if not fits(value, RUN_KEYS[key]):
                words = f"{key} must be {said(RUN_KEYS[key])}, got {value!r}"
                self.fail(f"run.{key}", words)
        if "rounds" not in run:
            self.fail("run", "[run] needs rounds, such as rounds = 100")
        for name in run.get("log", []):
            pick(self, "run.log", name, KINDS["loggers"])
        seeds = run.get("seeds", [0])
        if not seeds:
            self.fail("run.seeds", "seeds is an empty list; give at least one, such as [0]")
        try:
            for key in RUN_COUNTS:
                checks.at_least(key, run.get(key, 1), 1)
            checks.seeds(seeds)
            checks.positive("checkpoint_seconds", run.get("checkpoint_seconds", 1.0))
        except (ValueError, TypeError) as error:
            self.refuse("run", run, error)

    def jobs(self) -> Sequence[Job]:
        """The runs of the file: every combination of the values of its lists, for every seed."""
        return grid.Jobs(self)

    def pieces(self, job: Job) -> Pieces:
        """What `minimize` is given for one of its runs."""
        return pieces(self, job.words)
