"""A table that a statistician can read: estimates, errors, intervals, tests, AIC and BIC."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmin.core.inference import Inference
from fedmin.core.model_table import aligned


@dataclass(frozen=True, eq=False)
class Statistics:
    """What is known of a model's coefficients on the original scale; `Model.statistics` makes it.

    `errors` are by Fisher's information, `clustered` by the sandwich that lets rows of a site be
    alike. Tests and intervals are by the normal distribution, in least squares by Student's t; the
    clustered ones by Student's t with one degree of freedom less than there are sites.

    >>> import fedmin
    >>> sample = fedmin.data.quadratics(clients=4, dim=3, condition=4.0, heterogeneity=1.0)
    >>> federation = fedmin.data.partition(sample)
    >>> result = fedmin.minimize(
    ...     fedmin.LeastSquares(3), federation, fedmin.FedNL(), rounds=5, statistics=True
    ... )
    >>> result.statistics.names, result.statistics.sites
    (('x0', 'x1', 'x2'), 4)
    """

    names: tuple[str, ...]  # of the parameters that count; the intercept comes first
    estimates: np.ndarray
    covariance: np.ndarray
    clustered_covariance: np.ndarray | None
    link: str
    rows: float
    sites: int
    log_likelihood: float
    deviance: float
    distance: float  # of the run's model from the estimates, in standard errors
    notes: tuple[str, ...] = ()

    @property
    def errors(self) -> np.ndarray:
        """Standard errors by Fisher's information."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def clustered(self) -> np.ndarray | None:
        """The same by the sandwich clustered by site; None of one site, or of a held model."""
        found = self.clustered_covariance
        return None if found is None else np.sqrt(np.maximum(np.diag(found), 0.0))

    @property
    def values(self) -> np.ndarray:
        """Estimates in standard errors: z, in least squares t."""
        return self.estimates / self.errors

    def p_values(self, clustered: bool = False) -> np.ndarray:
        """Of the hypothesis that a coefficient is 0, two-sided."""
        return 2 * self._tail(np.abs(self.estimates / self._errors(clustered)), clustered)

    def intervals(self, level: float = 0.95, clustered: bool = False) -> np.ndarray:
        """f64[parameters, 2]: confidence intervals."""
        from scipy.special import ndtri, stdtrit

        dof = self._dof(clustered)
        at = (1 + level) / 2
        width = (ndtri(at) if dof is None else stdtrit(dof, at)) * self._errors(clustered)
        return np.stack([self.estimates - width, self.estimates + width], axis=1)

    @property
    def aic(self) -> float:
        """-2 log-likelihood + 2 parameters."""
        return -2 * self.log_likelihood + 2 * len(self.names)

    @property
    def bic(self) -> float:
        """-2 log-likelihood + parameters log rows."""
        return float(-2 * self.log_likelihood + len(self.names) * np.log(self.rows))

    def _errors(self, clustered: bool) -> np.ndarray:
        found = self.clustered if clustered else self.errors
        if found is None:
            raise ValueError("there are no clustered errors: of one site, or of a held model")
        return found

    def _dof(self, clustered: bool) -> float | None:
        if clustered:
            return self.sites - 1
        return self.rows - len(self.names) if self.link == "identity" else None

    def _tail(self, at: np.ndarray, clustered: bool) -> np.ndarray:
        from scipy.special import ndtr, stdtr

        dof = self._dof(clustered)
        return ndtr(-at) if dof is None else stdtr(dof, -at)

    @classmethod
    def of(cls, inference: Inference, names: tuple[str, ...], scales: Any) -> "Statistics":
        """On the original scale: a_j = w_j / scale_j, b = w_0 - sum_j w_j shift_j / scale_j."""
        shift, scale = scales
        count, active = len(names), inference.active
        turn = np.diag(1 / np.append(scale, [1.0] * inference.bias))
        if inference.bias:
            turn[-1, :count] = -shift / scale
        kept = [*([count] if inference.bias else []), *(j for j in active if j < count)]
        turned = turn[np.ix_(kept, active)]
        clustered = inference.clustered
        return cls(
            tuple("(intercept)" if j == count else names[j] for j in kept),
            turned @ inference.estimate[active], turned @ inference.fisher @ turned.T,
            None if clustered is None else turned @ clustered @ turned.T, inference.link,
            inference.rows, inference.sites, inference.log_likelihood, inference.deviance,
            inference.distance, inference.notes,
        )  # fmt: skip

    def columns(self) -> Mapping[str, list[Any]]:
        """The table by columns, for pandas and others."""
        low, high = self.intervals().T
        found = {"feature": list(self.names), "estimate": self.estimates, "std. error": self.errors,
                 "t" if self.link == "identity" else "z": self.values, "p": self.p_values(),
                 "2.5 %": low, "97.5 %": high}  # fmt: skip
        if self.clustered is not None:
            found |= {"clustered error": self.clustered, "p clustered": self.p_values(True)}
        return {name: list(values) for name, values in found.items()}

    def __str__(self) -> str:
        columns = self.columns()
        words = lambda name, v: v if isinstance(v, str) else _number(name, v)
        rows = zip(*([words(name, v) for v in each] for name, each in columns.items()), strict=True)
        lines = aligned([list(columns), *rows])
        summary = (
            f"{self.rows:g} rows at {self.sites} sites; log-likelihood {self.log_likelihood:.6g}, "
            f"deviance {self.deviance:.6g}, AIC {self.aic:.6g}, BIC {self.bic:.6g}"
        )
        return "\n".join([*lines, "", summary, *(f"note: {note}" for note in self.notes)])


def _number(name: str, value: float) -> str:
    if name.startswith("p"):
        return "< 1e-4" if value < 1e-4 else f"{value:.4f}"
    return f"{value:.3f}" if name in ("z", "t") else f"{value:.5g}"
