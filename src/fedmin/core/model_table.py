"""A model as a table that can be read without a manual."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

RATIOS = {"logit": "odds ratio", "log": "rate ratio"}  # exp of a coefficient
MOST_LINES = 60  # of coefficients that are printed; the file has all of them


def described(model: Any) -> str:
    """What a model is, its coefficients on the original scale, and where it came from."""
    if model.problem is None:
        return f"{model!r}: {len(model.x)} parameters"
    lines = [headline(model), ""]
    lines += coefficient_lines(model) if model.linear else _tensor_lines(model)
    if model.inference is not None:
        lines += ["", str(model.statistics)]
    lines += ["", *_notes(model)]
    return "\n".join(lines)


def headline(model: Any) -> str:
    """What is predicted, in one line."""
    what, names = repr(model.about.outcome), model.classes
    if model.link == "logit":
        return f"{model.kind} model: log-odds of {what} being {names[1]!r} rather than {names[0]!r}"
    if model.link == "softmax":
        return f"{model.kind} model of {what}: {', '.join(map(repr, names))}"
    return f"{model.kind} model of {'the log of ' if model.link == 'log' else ''}{what}"


def coefficient_lines(model: Any) -> list[str]:
    """A line a feature, on the original scale; the largest on the prepared scale, if too many."""
    head = [str(name) for name in model.classes] if model.link == "softmax" else ["coefficient"]
    weights = model.coefficients * model.scales[1]
    order = np.arange(len(model.features))
    if len(order) > MOST_LINES:
        order = np.sort(np.argsort(-np.abs(weights).max(axis=0), kind="stable")[:MOST_LINES])
    ratio = RATIOS.get(model.link)
    each = [["(intercept)", *(f"{b:.6g}" for b in model.intercept), *([""] * bool(ratio))]]
    for j in order:
        numbers = [f"{a:.6g}" for a in model.coefficients[:, j]]
        ratios = [f"{np.exp(model.coefficients[0, j]):.5g}"] if ratio else []
        name, unit = model.features[j], model.about.units.get(model.features[j])
        each.append([f"{name} [{unit}]" if unit else name, *numbers, *ratios])
    lines = aligned([["feature", *head, *([ratio] if ratio else [])], *each])
    if len(order) < len(model.features):
        lines.append(f"... the {len(order)} that count most, of {len(model.features)}")
    return lines


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of cells: the first column to the left, numbers to the right."""
    rows = [list(map(str, row)) for row in rows]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:],
                                                                      strict=True))])
        for row in rows
    ]  # fmt: skip


def _tensor_lines(model: Any) -> list[str]:
    rows = [[name, " x ".join(map(str, a.shape))] for name, a in model.tensors.items()]
    return aligned([["tensor", "shape"], *rows])


def _notes(model: Any) -> list[str]:
    found = []
    if model.about.scaled:
        found.append(f"columns: {model.about.scaled}; a unit of one is its unit after that")
    if model.about.preparation is not None:
        found += _prepared(model.about.preparation)
    if model.domain:
        found.append(f"confined to {model.domain}")
    for each in model.limits:
        value = "not measured" if each["value"] is None else f"{each['value']:.5g}"
        found.append(f"limit on {each['on']}: {each['limit']:.5g}; value {value}")
    seen = model.certificate
    if seen:
        gap = seen.get("gap")
        close = f"|grad F| = {seen['gradient']:.3g}" if gap is None else f"gap = {gap:.3g}"
        found.append(f"objective {seen['objective']:.6g}, {close}, measured {seen['measured']}")
    if model.run:
        words = "{method}, {rounds} rounds, seed {seed}: {status}".format(**model.run)
        found.append(words)
    for site, digest in (model.data.get("sites") or {}).items():
        found.append(f"rows of {site}: sha256 {digest[:16]}")
    if model.data.get("sha256"):
        found.append(f"rows of all: sha256 {model.data['sha256'][:16]}")
    if model.citations:
        found.append(f"cite {', '.join(model.citations)} (src/fedmin/references.bib)")
    return [*found, f"fedmin {model.version}"]


def _prepared(preparation: Any) -> list[str]:
    found = []
    for column in preparation.columns:
        if column.fill is not None and column.kind == "number":
            what = "a date, " if column.date else ""
            found.append(f"{column.name}: {what}{column.fill:.6g} where it is missing")
        if column.kind == "category":
            fill = "" if column.fill is None else f"; {column.fill!r} where it is missing"
            found.append(f"{column.name}: against {column.levels[0]!r}{fill}")
    if preparation.left_out:
        found.append(f"left out: {', '.join(preparation.left_out)}")
    return found
