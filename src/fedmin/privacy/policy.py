"""A site's policy: what may be done with its rows, whatever the server says.

The site asks its policy of the run that it has built itself from words it could read, before it
answers anything (`refuses`), and again with every question (`refuses_round`). What is not limited
is allowed. A refusal is one sentence: what the run wants, what the policy says, what would do.
"""

import functools
import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from fedmin.core import checks
from fedmin.core.method import Exchange
from fedmin.core.serialize import name_of
from fedmin.core.wrapped import Wrapped

Names = tuple[str, ...]
OWN = ("fedmin", "jax", "jaxlib", "numpy", "builtins")  # what fedmin itself is made of


@dataclass(frozen=True)
class Policy:
    """What a site allows; None is no limit.

    >>> import fedmin
    >>> from fedmin.engines.round import Run
    >>> from fedmin.privacy.policy import Policy
    >>> wine = fedmin.data.partition(fedmin.data.load("wine"), fedmin.data.IID(3))
    >>> pieces = fedmin.Softmax(13, 3), fedmin.FedSGD(), fedmin.Plain(), fedmin.Everyone()
    >>> run = Run(*pieces, record=(), stop=None)
    >>> Policy(methods=("fedsgd",), smallest_cohort=3).refuses(run, wine.roster(), 10)
    ''
    >>> print(Policy(most_rounds=5).refuses(run, wine.roster(), 10))
    the run has 10 rounds; the policy's most_rounds is 5: a run of at most 5 rounds would do
    """

    methods: Names | None = None  # `fedmin list methods`
    problems: Names | None = None  # `fedmin list problems`
    constraints: Names | None = None  # `fedmin list constraints`
    channels: Names | None = None  # `fedmin list channels`; of a chain every stage counts
    metrics: Names | None = None  # on the site's rows, "certificate", "statistics"; [] is none
    smallest_roster: int = 1  # clients of the run
    smallest_cohort: int = 1  # clients that a round is over, at least
    smallest_sum: int = 1  # replies that are seen added up only; 1: single ones too
    most_rounds: int | None = None  # that are answered in a run, asked anew or not
    largest_epsilon: float | None = None  # of differential privacy; a run without it is refused
    columns: Names | None = None  # of the site's file that may be used
    modules: Names = ()  # of the site's own that a run may name
    runs: Names | None = None  # the names of the runs that someone at the site has read
    own_line: bool = True  # whether metrics by site have a number for this one (`BySite`)
    seeded: bool = False  # a run may draw this site's batches and noise from its seed: for tests

    def __post_init__(self):
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None:
                continue
            if each.name.startswith(("smallest", "most")):
                checks.at_least(each.name, value, 1)
            elif each.name == "largest_epsilon":
                checks.positive(each.name, value)
            elif each.name in ("seeded", "own_line"):
                checks.is_a(each.name, value, bool, "true")
            elif isinstance(value, str) or not all(isinstance(word, str) for word in value):
                raise TypeError(f"{each.name} must be a list of words, got {value!r}")

    def refuses(
        self,
        run: Any,
        roster: Any,
        rounds: int,
        *,
        quorum: float = 1.0,
        epsilon: float | None = None,
        columns: Iterable[str] = (),
        name: str = "",
        seeded: bool = False,
    ) -> str:
        """Why a run that this site has built may not use its rows; "" if it may.

        quorum    the least share of a round's clients that must answer
        epsilon   of the whole run, as the site itself accounts for it; None if it has none
        columns   of the site's file that the run uses
        name      the run's, as `fedmin join` prints it
        seeded    whether what the site draws is drawn from the run's seed
        """
        found = (
            self._of_names(run, name)
            or self._of_secrets(seeded)
            or self._of_code(run)
            or self._of_company(run, roster, quorum)
            or self._of_sums(run, roster)
            or self.refuses_columns(columns)
        )
        if not found and self.most_rounds is not None and rounds > self.most_rounds:
            found = (
                f"the run has {rounds} rounds; the policy's most_rounds is {self.most_rounds}: a "
                f"run of at most {self.most_rounds} rounds would do"
            )
        return found or self._of_epsilon(epsilon)

    def refuses_preparing(
        self, words: Mapping[str, Any], sites: int, name: str, *, sums: bool, least: int = 1
    ) -> str:
        """Why the columns of this site may not be prepared for a run; "" if they may.

        words     of the run's file: what can be told of the run before it is built
        sites     how many take part
        name      of the preparation
        sums      whether sums over the site's rows are sent for it
        least     how many sites' sums are seen added up only
        """
        named = lambda section: [str(dict(words.get(section, {})).get("name", ""))]
        channel = dict(words.get("channel", {"name": "plain"}))
        parts = [str(dict(each).get("name")) for each in channel.get("stages", [channel])]
        limits = [str(dict(each).get("name")) for each in words.get("constraint", [])]
        found = (
            self._among("method", named("method"), self.methods, "methods")
            or self._among("problem", named("problem"), self.problems, "problems")
            or self._among("constraint", limits, self.constraints, "constraints")
            or self._among("channel", parts, self.channels, "channels")
            or self._among("preparation", [name], self.runs, "runs")
        )
        if not found and sites < max(self.smallest_roster, self.smallest_cohort):
            found = (
                f"columns are prepared by {sites} sites; the policy wants at least "
                f"{max(self.smallest_roster, self.smallest_cohort)}"
            )
        if found or not sums:
            return found
        if least < self.smallest_sum:
            return (
                f"sums by which columns are prepared are seen one by one; the policy's "
                f"smallest_sum is {self.smallest_sum}: a channel that shows only sums, or ranges "
                f"and levels in [prepare] and unusable = 'keep', would do"
            )
        if self.largest_epsilon is not None:
            return (
                f"sums by which columns are prepared have no noise; the policy's largest_epsilon "
                f"is {self.largest_epsilon:g}: ranges and levels in [prepare], and unusable = "
                f"'keep', would do"
            )
        return ""

    def refuses_round(self, answered: int, look: bool = False) -> str:
        """Why one more round may not be answered, after so many that were; "" if it may.

        A look at the model is allowed before the first round and after each.
        """
        if self.most_rounds is None or answered < self.most_rounds + look:
            return ""
        what = "looks at the model" if look else "rounds of this run"
        return (
            f"{answered} {what} were answered, those asked anew among them; the policy's "
            f"most_rounds is {self.most_rounds}: none is left"
        )

    def refuses_counts(self) -> str:
        """Why numbers of rows may not be told as they are, one by one; "" if they may."""
        if self.smallest_sum > 1:
            return (
                f"how many rows of this site are in each group is seen by itself; the policy's "
                f"smallest_sum is {self.smallest_sum}: a run without limits on groups would do"
            )
        if self.largest_epsilon is not None:
            return (
                f"how many rows of this site are in each group is told without noise; the policy's "
                f"largest_epsilon is {self.largest_epsilon:g}: a run without limits on groups "
                f"would do"
            )
        return ""

    def refuses_columns(self, columns: Iterable[str]) -> str:
        """Why some of the site's columns may not be used; "" if all may."""
        return self._among("column", columns, self.columns, "columns")

    def refuses_module(self, module: str) -> str:
        """Why a module may not be imported; "" if it may."""
        if module.partition(".")[0] in OWN or module in self.modules:
            return ""
        return (
            f"the run needs the module {module!r}; the policy's modules are "
            f"{_listed(self.modules)}: whoever trusts its code adds it there"
        )

    def _of_names(self, run: Any, name: str) -> str:
        constraints = _constraints(run.problem)
        taken = [(m, getattr(m, "of", None)) for m in _measured(run.record)]
        metrics = [_name(one) for pair in taken for one in pair if one is not None]
        metrics += ["certificate"] if run.certify else []
        metrics += ["statistics"] if run.statistics else []
        return (
            self._among("method", [_name(run.method)], self.methods, "methods")
            or self._among("problem", [_name(innermost(run.problem))], self.problems, "problems")
            or self._among("constraint", map(_name, constraints), self.constraints, "constraints")
            or self._among("channel", map(_name, stages(run.channel)), self.channels, "channels")
            or self._among("metric", metrics, self.metrics, "metrics")
            or self._among("name", [name], self.runs, "runs")
        )

    def _of_secrets(self, seeded: bool) -> str:
        if not seeded or self.seeded:
            return ""
        return (
            "the run draws this site's batches and noise from its seed, which everybody knows; the "
            "policy's seeded is false: secrets = 'system' in [federation] would do"
        )

    def _of_code(self, run: Any) -> str:
        """Whatever is not fedmin's own comes from a module that the policy must name."""
        refused = map(self.refuses_module, sorted(set(modules_in(run))))
        return next(filter(None, refused), "")

    def _of_company(self, run: Any, roster: Any, quorum: float) -> str:
        clients = roster.clients
        if clients < self.smallest_roster:
            return (
                f"the run has {clients} clients; the policy's smallest_roster is "
                f"{self.smallest_roster}: so many would do"
            )
        least = math.ceil(quorum * min(clients, run.participation.least(clients)) - 1e-9)
        if least < self.smallest_cohort:
            return (
                f"a round of the run may have only {max(least, 1)} clients "
                f"({_name(run.participation)}, quorum {quorum:g}); the policy's smallest_cohort is "
                f"{self.smallest_cohort}: 'everyone' with a quorum of 1 would have {clients}"
            )
        return ""

    def _of_sums(self, run: Any, roster: Any) -> str:
        """Single replies are seen where a trip gathers or is a relay, or the channel shows them."""
        if self.smallest_sum <= 1:
            return ""
        learns = run.channel.learns
        trips = run.method.exchanges(run.problem, roster)
        alone = any(not isinstance(t, Exchange) or t.reduce != "sum" for t in trips)
        least = 1 if alone or learns.each else learns.least
        what = f"replies of {_name(run.method)} through {_name(run.channel)}"
        looked = run.certify or run.statistics or _measured(run.record)
        if least >= self.smallest_sum and looked:
            looks = run.channel.for_evaluation()
            alone = looks is None or looks.learns.each or run.statistics
            least = 1 if looks is None or alone else looks.learns.least
            what = "what is measured on the site's rows"
        if least >= self.smallest_sum:
            return ""
        seen = "one by one" if least == 1 else f"in sums of {least}"
        return (
            f"{what} are seen {seen}; the policy's smallest_sum is {self.smallest_sum}: a channel "
            f"that shows only sums of so many, and metrics on test rows, would do"
        ).replace("rows are seen", "rows is seen")

    def _of_epsilon(self, epsilon: float | None) -> str:
        most = self.largest_epsilon
        if most is None or (epsilon is not None and epsilon <= most):
            return ""
        has = "no differential privacy" if epsilon is None else f"an epsilon of {epsilon:g}"
        return f"the run has {has}; the policy's largest_epsilon is {most:g}: at most that would do"

    def _among(
        self, what: str, found: Iterable[str], allowed: Sequence[str] | None, key: str
    ) -> str:
        if allowed is None:
            return ""
        for word in found:
            if word not in allowed:
                return f"the run has the {what} {word!r}; the policy's {key} are {_listed(allowed)}"
        return ""


def innermost(problem: Any) -> Any:
    """The problem itself, without constraints, domain and owners of columns around it."""
    while isinstance(problem, Wrapped):
        problem = problem.inner
    return problem


def stages(channel: Any) -> list[Any]:
    """The stages of a channel: those of a chain, else itself."""
    inside = getattr(channel, "stages", None)
    return [channel] if inside is None else [s for each in inside for s in stages(each)]


def modules_in(value: Any) -> Iterator[str]:
    """The modules of every class and every function that a value is made of.

    >>> import fedmin
    >>> from fedmin.privacy.policy import modules_in
    >>> sorted(set(modules_in(fedmin.FedAvg(batches=fedmin.Full()))))
    ['fedmin.client.batches', 'fedmin.methods.fedavg']
    """
    if is_dataclass(value):
        yield type(value).__module__
        for each in fields(value):
            yield from modules_in(getattr(value, each.name))
    elif isinstance(value, Mapping):
        yield from modules_in(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from modules_in(each)
    elif isinstance(value, functools.partial):
        yield from modules_in((value.func, value.args, value.keywords))
    elif callable(value):
        inside = inspect.unwrap(value)
        yield getattr(inside, "__module__", None) or type(inside).__module__


def _constraints(problem: Any) -> list[Any]:
    found: list[Any] = []
    while isinstance(problem, Wrapped):
        found += [limit.given for limit in getattr(problem, "limits", ())]
        problem = problem.inner
    return found


def _measured(record: Iterable[Any]) -> list[Any]:
    """The metrics that need the clients' rows; others are of the model, or of the server's rows."""
    return [metric for metric in record if metric.on == "train" and metric.needs]


def _name(value: Any) -> str:
    return name_of(type(value))


def _listed(words: Sequence[str]) -> str:
    return ", ".join(map(repr, words)) if words else "none"
