"""Real data that scikit-learn ships: no download."""

from __future__ import annotations

from typing import NamedTuple

from fedmin.data.holdout import hold_out
from fedmin.data.table import Table

__all__ = ["EMBEDDED", "load_embedded"]


class Embedded(NamedTuple):
    """What is known of an embedded set before it is read."""

    summary: str
    task: str
    rows: int
    features: int
    classes: int | None
    image_shape: tuple[int, int, int] | None
    license: str
    citation: str


_UCI = "CC BY 4.0 (UCI)"
EMBEDDED: dict[str, Embedded] = {
    "digits": Embedded(
        "handwritten digits, 8 x 8", "classification", 1797, 64, 10, (8, 8, 1), _UCI, "alpaydin1998"
    ),
    "breast_cancer": Embedded(
        "breast cancer (WDBC): malignant or benign",
        "classification",
        569,
        30,
        2,
        None,
        _UCI,
        "street1993nuclear",
    ),
    "diabetes": Embedded(
        "progression of diabetes after a year",
        "regression",
        442,
        10,
        None,
        None,
        "none stated",
        "efron2004least",
    ),
    "wine": Embedded(
        "three growers of wine, by chemical analysis",
        "classification",
        178,
        13,
        3,
        None,
        _UCI,
        "forina1991",
    ),
}


def load_embedded(name: str, test_fraction: float = 0.2) -> Table:
    """An embedded set as it is shipped (digits scaled to [0, 1]), with rows held out."""
    from sklearn import datasets

    facts = EMBEDDED[name]
    bunch = getattr(datasets, f"load_{name}")()
    table = Table(
        name,
        bunch.data / 16.0 if name == "digits" else bunch.data,
        bunch.target,
        classes=facts.classes,
        feature_names=tuple(bunch.feature_names),
        image_shape=facts.image_shape,
        meta={"source": "scikit-learn", "license": facts.license, "citation": facts.citation},
    )
    return hold_out(table, test_fraction)
