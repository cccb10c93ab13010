"""A part of a linear model: what some of the raw columns add to its score."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedmin.core import checks
from fedmin.core.preparation import About, Preparation
from fedmin.core.serialize import deserialize


def part_of(model: Any, columns: Sequence[str], intercept: bool) -> Any:
    """The linear model of these raw columns alone; see `Model.part`."""
    weights, bias = model._affine
    if len(weights) > 1:
        raise ValueError(f"a {model.kind} of {len(weights)} labels has several scores; parts are "
                         f"of models with one")  # fmt: skip
    for name in columns:
        checks.known("column", name, model.inputs)
    about = _about(model, set(columns))
    kept = [j for j, name in enumerate(model.features) if name in about.names]
    x = np.append(weights[0, kept], bias if intercept else ())
    words = {"name": "leastsquares", "features": len(kept), "bias": intercept}
    made = {"problem": deserialize(words), "x": x.astype(model.x.dtype), "about": about}
    none: dict[str, Any] = {"limits": (), "domain": "", "certificate": {}, "inference": None}
    return replace(model, **made, **none)


def _about(model: Any, columns: set[str]) -> About:
    outcome = f"part of the score of {model.about.outcome}"
    if model.preparation is None:
        kept = tuple(name for name in model.features if name in columns)
        return About(kept, None, outcome, scaled=model.about.scaled)
    own = tuple(c for c in model.preparation.columns if c.name in columns)
    made = [name for c in own for name in c.names]
    found = Preparation(own, tuple(n for n in model.preparation.left_out if n in made))
    return About(found.names, found, outcome)
