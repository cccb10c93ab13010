"""A model that others can read, check and use: what a run found, in the words of its columns.

    z = preparation(raw row);   s = predict(x, z);   prediction = inverse link of s

Where s is linear in z and z in the raw columns (filled where they are missing), the coefficients
are on the original scale: a_j = w_j / scale_j and b = w_0 - sum_j w_j shift_j / scale_j.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedmin.core.environment import __version__
from fedmin.core.inference import Inference
from fedmin.core.model_files import model_words, read_model_words, write_safetensors
from fedmin.core.model_origin import (
    data_of,
    domain_of,
    limits_of,
    numbered,
    predicts,
    summary_of,
    unwrapped,
)
from fedmin.core.preparation import About, Preparation
from fedmin.core.problem import Problem, cut
from fedmin.core.raw_rows import number, plain_numbers, prepared, raw_columns
from fedmin.core.rows import rows
from fedmin.core.serialize import name_of
from fedmin.core.statistics import Statistics

AT_ONCE = 4096  # rows that a network sees at a time


class NoModelError(ValueError):
    """There is no model to use: says why.

    >>> import fedmin, jax.numpy as jnp
    >>> from fedmin.core.model import NoModelError
    >>> issubclass(NoModelError, ValueError)
    True
    """


@dataclass(frozen=True, eq=False)
class Model:
    """What a run found, ready to be used on raw rows; `Result.model` makes it, `load` reads it.

    >>> import fedmin
    >>> tables = {
    ...     "a": {"age": [50, 60, 70], "ward": ["x", "y", "x"], "days": [3.0, 5.0, 6.0]},
    ...     "b": {"age": [45, 65, 75], "ward": ["y", "y", "x"], "days": [3.0, 5.5, 6.5]},
    ... }
    >>> sites = fedmin.data.read(tables, outcome="days")
    >>> federation = sites.federation(fedmin.data.Prepare(smallest_count=1))
    >>> problem = fedmin.LeastSquares(2, bias=True)
    >>> model = fedmin.minimize(problem, federation, fedmin.FedNL(), rounds=20).model
    >>> model.features, model.coefficients[0].round(2).tolist()
    (('age', 'ward=y'), [0.14, 0.47])
    >>> model.predict({"age": [50], "ward": ["y"]}).round(2).tolist()
    [3.59]
    """

    problem: Problem | None  # what predicts; None where a file names a function of somebody's own
    x: np.ndarray  # f[d]: its parameters, as they were found
    about: About  # features, preparation, outcome, classes
    limits: tuple[Mapping[str, Any], ...] = ()  # constraints: on what, their limit and value
    domain: str = ""  # the set that it was confined to, in words
    certificate: Mapping[str, Any] = field(default_factory=dict)  # what was measured of it
    data: Mapping[str, Any] = field(default_factory=dict)  # which rows, by their hashes
    run: Mapping[str, Any] = field(default_factory=dict)  # method, rounds, seed, status
    citations: tuple[str, ...] = ()  # keys of references.bib
    version: str = __version__
    inference: Inference | None = None  # what `statistics` are made of

    @classmethod
    def of(cls, result: Any) -> "Model":
        """The model of a result; `NoModelError` says why there is none."""
        problem = unwrapped(result.problem)
        if result.solution is None or problem is None:
            raise NoModelError("there is no model yet, or none of a problem that this process has")
        if not predicts(problem):
            raise NoModelError(
                f"{type(problem).__name__} has no predict(x, rows): it says what is lost on a row "
                f"and not what is predicted for one; result.solution has its parameters"
            )
        about = result.about or About(())
        if not about.names:
            about = replace(about, names=numbered(problem))
        run = {"method": type(result.method).__name__, "rounds": result.rounds,
               "seed": result.seed, "status": result.status}  # fmt: skip
        cited = (result.method.citation,) if result.method.citation else ()
        return cls(
            problem, np.asarray(result.solution), replace(about, lines=(), exact=()),
            limits_of(result), domain_of(result.problem), summary_of(result.certificate),
            data_of(result), run, cited, inference=result.inference,
        )  # fmt: skip

    # ------------------------------------------------------------ what it is

    @property
    def kind(self) -> str:
        """The problem's name in files: "logistic", "mlp", ..."""
        return "" if self.problem is None else name_of(type(self.problem))

    @property
    def features(self) -> tuple[str, ...]:
        """What the parameters belong to: the prepared columns."""
        return self.about.names

    @property
    def inputs(self) -> tuple[str, ...]:
        """The raw columns that it needs; columns of an array are in this order."""
        if self.about.inputs:
            return self.about.inputs
        if self.preparation is None:
            # where columns lie with several parties, the model has them in the parties' order
            order = {f"x{j}": j for j in range(len(self.features))}
            split = set(order) == set(self.features)
            return tuple(sorted(self.features, key=order.__getitem__)) if split else self.features
        return tuple(column.name for column in self.preparation.columns)

    @cached_property
    def preparation(self) -> Preparation | None:
        """What becomes of raw columns; without those of which nothing is left."""
        found = self.about.preparation
        if found is None:
            return None
        used = [c for c in found.columns if set(c.names) - set(found.left_out)]
        return Preparation(tuple(used), found.left_out)

    @property
    def link(self) -> str:
        """What is linear, or comes out last: "identity", "log", "logit", "softmax"."""
        return self._problem.link

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """What can be predicted, where it is a label; numbers where all names are whole numbers."""
        if self.link not in ("logit", "softmax"):
            return None
        count = 2 if self.link == "logit" else self._problem.classes
        names = self.about.classes or tuple(map(str, range(count)))
        whole = [number(name) for name in names]
        if all(v is not None and v == round(v) for v in whole):
            return tuple(int(v) for v in whole if v is not None)
        return names

    @property
    def linear(self) -> bool:
        """Whether there is a coefficient for each feature."""
        return hasattr(self._problem, "layers") and set(self._problem.parts) <= {"weights", "bias"}

    @property
    def coefficients(self) -> np.ndarray:
        """f64[k, features] on the original scale; k is 1, or the number of classes of a softmax."""
        return self._original[0]

    @property
    def intercept(self) -> np.ndarray:
        """f64[k] on the original scale: what is predicted where all raw numbers are 0."""
        return self._original[1]

    @property
    def scales(self) -> tuple[np.ndarray, np.ndarray]:
        """The shift and the scale of each feature."""
        if self.preparation is None:
            return np.zeros(len(self.features)), np.ones(len(self.features))
        return self.preparation.scales

    @cached_property
    def _original(self) -> tuple[np.ndarray, np.ndarray]:
        weights, bias = self._affine
        shift, scale = self.scales
        return weights / scale, bias - (weights * (shift / scale)).sum(axis=1)

    @cached_property
    def _affine(self) -> tuple[np.ndarray, np.ndarray]:
        """W f64[k, features] and b f64[k] on the scale of the prepared columns."""
        if not self.linear:
            raise NoModelError(
                f"a {self.kind} is not linear: it has no coefficients; model.tensors has its parts"
            )
        ((weights, bias),) = self._problem.layers(np.asarray(self.x, float))
        return weights, np.zeros(len(weights)) if bias is None else bias

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        """The parameters by name, as they were found."""
        parts = self._problem.parts
        found = cut(jnp.asarray(self.x), tuple(parts.values()))
        return {name: np.asarray(a) for name, a in zip(parts, found, strict=True)}

    @property
    def _problem(self) -> Any:
        if self.problem is None:
            raise NoModelError(
                "the file names a problem that was made from a function of somebody's own; give "
                "it: Model.load(path, problem=...)"
            )
        return self.problem

    @cached_property
    def statistics(self) -> Statistics | None:
        """Standard errors, intervals and tests of the coefficients; None if none were taken."""
        found = self.inference
        return None if found is None else Statistics.of(found, self.features, self.scales)

    # ------------------------------------------------------------ what it predicts

    def prepare(self, source: Any) -> np.ndarray:
        """f64[n, features]: raw rows as the model sees them."""
        raw = raw_columns(source, self.inputs)
        if self.preparation is None:
            return plain_numbers(raw, self.features)
        return prepared(raw, self.preparation)

    def scores(self, source: Any) -> np.ndarray:
        """What comes before the link: f64[n], or f64[n, classes]; `source` is a file (CSV or
        Parquet), a DataFrame, a dict of columns, or an array with the columns of `inputs`."""
        z = self.prepare(source)
        if self.linear:
            weights, bias = self._affine
            found = z @ weights.T + bias
            return found if self.link == "softmax" else found[:, 0]
        parts = [z[k : k + AT_ONCE] for k in range(0, len(z), AT_ONCE)] or [z]
        seen = [rows(part, np.zeros(len(part), np.int32)) for part in parts]
        each = [self._problem.predict(jnp.asarray(self.x, p.x.dtype), p) for p in seen]
        return np.concatenate([np.asarray(a, float) for a in each])

    def predict(self, source: Any) -> np.ndarray:
        """The predicted number of each raw row, or the most probable label."""
        scores, classes = self.scores(source), self.classes
        if classes is None:
            return np.exp(scores) if self.link == "log" else scores
        best = scores > 0 if self.link == "logit" else np.argmax(scores, axis=1)
        return np.array(classes)[np.asarray(best, int)]

    def predict_proba(self, source: Any) -> np.ndarray:
        """f64[n, classes]: how probable each label is, in the order of `classes`."""
        if self.classes is None:
            raise ValueError(f"a {self.kind} predicts numbers, not labels: call predict")
        scores = self.scores(source)
        if self.link == "logit":
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    # ------------------------------------------------------------ in other forms

    def save(self, path: str | Path) -> Path:
        """Write it as JSON, with a SHA-256 of all of its text; see `load`.

        >>> import pathlib, tempfile, fedmin
        >>> table = fedmin.data.load("wine").standardized()
        >>> federation = fedmin.data.partition(table, fedmin.data.IID(3))
        >>> problem = fedmin.Softmax(13, 3)
        >>> model = fedmin.minimize(problem, federation, fedmin.FedSGD(0.5), rounds=9).model
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = fedmin.Model.load(model.save(pathlib.Path(folder) / "model.json"))
        >>> bool((again.predict(table.x) == model.predict(table.x)).all())
        True
        """
        return model_words(self, Path(path))

    @classmethod
    def load(
        cls, path: str | Path, also: Iterable[type] = (), problem: Problem | None = None
    ) -> "Model":
        """Read what `save` wrote, or the model in a run's folder; a changed file is refused.

        `also` has classes of your own that may be made; `problem` is the problem itself, where it
        was made from a function.
        """
        path = Path(path)
        path = path / "model.json" if path.is_dir() else path
        fields = read_model_words(path, also, problem)
        return cls(**fields)

    def safetensors(self, path: str | Path) -> Path:
        """Write the parameters by name in the form of safetensors."""
        return write_safetensors(Path(path), self.tensors, {"kind": self.kind, "format": "fedmin"})

    def onnx(self, path: str | Path) -> Path:
        """Write it as ONNX, from raw columns to predictions; needs `fedmin[onnx]`.

        Each raw column is an input of its own, [n, 1]: numbers and dates (days since 1970) in
        double precision with NaN where nothing is, categories as words; without a preparation
        there is one input "rows", [n, features]. Outputs are "prediction", or "label" and
        "probabilities"; a value that the model would refuse gives NaN.
        """
        from fedmin.core.onnx_graph import write_onnx

        return write_onnx(self, Path(path))

    def part(self, columns: Iterable[str], *, intercept: bool = False) -> "Model":
        """What some raw columns add to a linear model's score, as a model of its own: for a party
        that has only these. The parts' predictions, one with the intercept, add up to `scores`."""
        from fedmin.core.model_parts import part_of

        return part_of(self, tuple(columns), intercept)

    def estimator(self) -> Any:
        """The same with scikit-learn's manners: predict, predict_proba, score, coef_, classes_."""
        from fedmin.core.estimator import estimator_of

        return estimator_of(self)

    def __str__(self) -> str:
        from fedmin.core.model_table import described

        return described(self)

    def __repr__(self) -> str:
        of = f"{self.about.outcome!r} from {len(self.inputs)} columns"
        return f"Model({self.kind or 'of a function of your own'}, {of})"
