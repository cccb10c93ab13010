"""A run as a TOML file: what is minimized, over whose data, by which method, for how long.

    [data]           name = "digits"                    and the options of fedmin.data.load
    [partition]      name = "labelsperclient"           clients = 10, labels = 2, seed = 0
    [problem]        name = "softmax"                   what the data decide is filled in
    [domain]         name = "l1ball"                    optional, as are the next three
    [[constraint]]   name = "lossatmost"
    [channel]        name = "topk"
    [participation]  name = "uniform"
    [method]         name = "fedavg", step = [0.1, 0.2]   a list of values is a grid
    [run]            rounds = 100, seeds = [0, 1, 2], every = 1, record = [..], stop = {..}

Names are the lower-case names of the classes and keys are their fields. Whatever is wrong is said
with its file, its line and the nearest right thing, before any work.
"""

import inspect
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedmin import data
from fedmin.channels import CHANNELS
from fedmin.core import checks
from fedmin.core.environment import versions
from fedmin.core.federation import Federation
from fedmin.core.method import Method
from fedmin.core.metrics import METRICS, Metric
from fedmin.core.participation import PARTICIPATIONS
from fedmin.core.problem import Problem
from fedmin.core.serialize import describe, digest, parameters, takes_list
from fedmin.core.stopping import RULES
from fedmin.data import PARTITIONERS
from fedmin.domains import DOMAINS
from fedmin.engines.simulator.simulator import Simulator
from fedmin.engines.transports.memory import Loopback
from fedmin.methods import METHODS
from fedmin.problems import CONSTRAINTS, PROBLEMS, over, smallest, subject_to
from fedmin.runs.document import ConfigError, Document
from fedmin.runs.loggers import LOGS

ENGINES = {"simulator": Simulator, "loopback": Loopback}
AROUND_IT = ("checkpoint_rounds", "checkpoint_seconds", "log")  # what does not change a run
PLAIN, EVERYONE = {"name": "plain"}, {"name": "everyone"}
SPLIT = ("seed", "server_rows", "weights", "labels")  # what partition() itself takes
RUN: dict[str, type] = {
    "rounds": int, "seeds": list, "every": int, "record": list, "stop": dict, "engine": str,
    "checkpoint_rounds": int, "checkpoint_seconds": float, "log": list,
}  # fmt: skip
COUNTS = ("rounds", "every", "checkpoint_rounds")  # of [run]: 1 at least


class Pieces(NamedTuple):
    """What `minimize` is given."""

    problem: Problem
    federation: Federation
    method: Method
    options: dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One run of a file: everything decided, and what sets it apart from the others."""

    words: dict[str, Any]  # the document, without grids and with one seed
    varied: dict[str, Any]  # what differs between the runs of this file
    config: "Config"

    @property
    def id(self) -> str:
        """A hash of what is run; where it is kept and who is told of it does not matter, nor
        whether a default is written out."""
        return digest([self.config.in_full(self.words), versions()["fedmin"]])[:12]

    @property
    def label(self) -> str:
        """A short name among the runs of its file."""
        method = self.words["method"]["name"]
        varied = {
            k.removeprefix("method."): v for k, v in self.varied.items() if k != "method.name"
        }
        return " ".join([method, *(f"{k}={_short(v)}" for k, v in varied.items())])

    @property
    def folder(self) -> str:
        """What its folder is called."""
        return f"{self.words['method']['name']}-{self.words['data']['name']}-{self.id}"


class Config(Document):
    """A configuration file, read and checked as far as it can be without its data."""

    def __init__(self, text: str, source: str = "configuration"):
        super().__init__(text, source)
        sections = {**_REGISTRIES, "data": None, "run": None}
        for key in self.words:
            if key not in sections:
                self.fail(key, f"unknown section [{key}]; {checks.nearest(key, sections)}")
        for section in ("data", "problem", "method", "run"):
            if section not in self.words:
                raise ConfigError(f"{source}: there is no [{section}]")
        self._check_run()

    @classmethod
    def read(cls, path: str | Path) -> "Config":
        """Read a file.

        >>> from fedmin.runs.config import Config
        >>> Config('[data]\\nname = "digits"\\n[methd]\\n')
        Traceback (most recent call last):
            ...
        fedmin.runs.document.ConfigError: configuration, line 3: unknown section [methd]; did you mean \
'method'?
        """
        path = Path(path)
        return cls(path.read_text("utf-8"), path.name)

    def _check_run(self) -> None:
        run = self.words["run"]
        for key, value in run.items():
            if key not in RUN:
                self.fail(f"run.{key}", f"unknown key {key!r} in [run]; {checks.nearest(key, RUN)}")
            self.check_type(f"run.{key}", value, RUN[key])
        if "rounds" not in run:
            self.fail("run", "[run] needs rounds, such as rounds = 100")
        for name in run.get("log", []):
            self.pick("run.log", name, LOGS)
        seeds = run.get("seeds", [0])
        if not seeds:
            self.fail("run.seeds", "seeds is an empty list; give at least one, such as [0]")
        try:
            for key in COUNTS:
                checks.at_least(key, run.get(key, 1), 1)
            for seed in seeds:
                checks.at_least("seeds", seed, 0)
            checks.positive("checkpoint_seconds", run.get("checkpoint_seconds", 1.0))
        except (ValueError, TypeError) as error:
            self.refuse("run", run, error)

    # ------------------------------------------------------------ the runs of a file

    def jobs(self) -> list[Job]:
        """Every combination of the values of its grids, for every seed."""
        axes = {
            f"{section}.{key}": value
            for section in _REGISTRIES
            if isinstance(self.words.get(section), dict)
            for key, value in self.words[section].items()
            if self._is_grid(section, key, value)
        }
        seeds = self.words["run"].get("seeds", [0])
        if len(seeds) > 1:
            axes["seed"] = seeds
        found = []
        for values in itertools.product(*axes.values()):
            varied = dict(zip(axes, values, strict=True))
            words = {k: (dict(v) if isinstance(v, dict) else v) for k, v in self.words.items()}
            words["run"]["seeds"] = [varied.get("seed", seeds[0])]
            for place, value in varied.items():
                section, _, key = place.partition(".")
                if key:
                    words[section][key] = value
            found.append(Job(words, varied, self))
        return found

    def _is_grid(self, section: str, key: str, value: Any) -> bool:
        if not isinstance(value, list):
            return False
        if not value:
            self.fail(f"{section}.{key}", f"{key} is an empty list; give at least one value")
        name = self.words[section].get("name")
        kinds = [_REGISTRIES[section].get(n) for n in (name if isinstance(name, list) else [name])]
        hints = [parameters(kind).get(key) for kind in kinds if kind is not None]
        several = any(hint is not None and takes_list(hint[0]) for hint in hints)
        return isinstance(value[0], list) if several else True

    # ------------------------------------------------------------ from words to values

    def pieces(self, job: Job) -> Pieces:
        """What `minimize` is given for one of its runs."""
        words = job.words
        table = self._table(words["data"])
        federation = self._federation(words, table)
        problem = self._problem(words, table)
        method = self.make("method", words["method"], METHODS)
        return Pieces(problem, federation, method, self._options(words))

    def in_full(self, words: Mapping[str, Any]) -> dict[str, Any]:
        """A run's words with every default that needs no data written out."""
        found = dict(words)
        for section, usual in (("method", {}), ("channel", PLAIN), ("participation", EVERYONE)):
            given = words.get(section, usual)
            found[section] = describe(self.make(section, given, _REGISTRIES[section]))
        if "domain" in words:
            found["domain"] = describe(self.make("domain", words["domain"], DOMAINS))
        given = words["problem"]
        kind = self.pick("problem.name", given.get("name", ""), PROBLEMS)
        usual = {k: p.default for k, p in inspect.signature(kind).parameters.items()}
        usual = {k: v for k, v in usual.items() if v is not inspect.Parameter.empty}
        found["problem"] = describe({**usual, **given})
        if "partition" in words:
            found["partition"] = self._split(words["partition"])
        run = {key: value for key, value in words["run"].items() if key not in AROUND_IT}
        found["run"] = {"every": 1, "engine": "simulator"} | run
        return found

    def _split(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """A partition's words, with the defaults of the partitioner and of partition() itself."""
        outer = inspect.signature(data.partition).parameters
        usual = {key: outer[key].default for key in SPLIT} | dict(given)
        own = {key: value for key, value in given.items() if key not in SPLIT}
        made = describe(self.make("partition", own, PARTITIONERS)) if own else {}
        return made | {key: usual[key] for key in SPLIT}

    def _table(self, words: Mapping[str, Any]) -> Any:
        table: Any
        options = {k: v for k, v in words.items() if k not in ("name", "standardize")}
        if "name" not in words:
            self.fail("data", f"[data] needs a name; {checks.nearest('', data.DATASETS)}")
        try:
            table = data.load(words["name"], **options)
        except (ValueError, TypeError) as error:
            self.refuse("data", words, error)
        return table.standardized() if words.get("standardize") else table

    def _federation(self, words: Mapping[str, Any], table: Any) -> Federation:
        given = dict(words.get("partition", {}))
        outer = {key: given.pop(key) for key in SPLIT if key in given}
        how = self.make("partition", given, PARTITIONERS) if given else None
        try:
            return data.partition(table, how, **outer)
        except (ValueError, TypeError) as error:
            self.refuse("partition", words.get("partition", {}), error)

    def _problem(self, words: Mapping[str, Any], table: Any) -> Problem:
        image = getattr(getattr(table, "table", table), "image_shape", None)
        known = {"features": table.features, "classes": table.classes, "image": image}
        filled = {key: value for key, value in known.items() if value is not None}
        given = dict(words["problem"])
        limit = given.pop("smallest_with_loss_at_most", None)
        problem = self.make("problem", given, PROBLEMS, filled)
        limits = [
            self.make("constraint", each, CONSTRAINTS) for each in words.get("constraint", [])
        ]
        if limit is not None:
            problem = smallest(problem, loss_at_most=limit)
        if limits:
            problem = subject_to(problem, *limits)
        if "domain" in words:
            domain = self.make("domain", words["domain"], DOMAINS)
            try:
                problem = over(problem, domain)
            except (ValueError, TypeError) as error:
                self.refuse("domain", words["domain"], error)
        return problem

    def _options(self, words: Mapping[str, Any]) -> dict[str, Any]:
        run = words["run"]
        options: dict[str, Any] = {"rounds": run["rounds"], "seed": run["seeds"][0]}
        options["every"] = run.get("every", 1)
        for section, registry in (("channel", CHANNELS), ("participation", PARTICIPATIONS)):
            if section in words:
                options[section] = self.make(section, words[section], registry)
        if "engine" in run:
            engine = self.pick("run.engine", run["engine"], ENGINES)
            options["engine"] = engine()
        if "record" in run:
            options["record"] = [self._metric(each) for each in run["record"]]
        if "stop" in run:
            options["stop"] = self.make("run.stop", run["stop"], RULES)
        return options

    def _metric(self, words: Any) -> Metric:
        words = {"name": words} if isinstance(words, str) else words
        return self.make("run.record", words, METRICS)


_REGISTRIES: dict[str, Mapping[str, Any]] = {
    "partition": PARTITIONERS, "problem": PROBLEMS, "domain": DOMAINS, "constraint": CONSTRAINTS,
    "channel": CHANNELS, "participation": PARTICIPATIONS, "method": METHODS,
}  # fmt: skip


def resolved(job: Job) -> dict[str, Any]:
    """The document with every default written out: what was run, and all of it."""
    words = job.config.in_full(job.words)
    around = {key: job.words["run"][key] for key in AROUND_IT if key in job.words["run"]}
    return _without_none({**words, "run": words["run"] | around})


def _without_none(words: Any) -> Any:
    if isinstance(words, dict):
        return {k: _without_none(v) for k, v in words.items() if v is not None}
    return [_without_none(v) for v in words] if isinstance(words, list) else words


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("name", value))
    return f"{value:g}" if isinstance(value, float) else str(value)
