"""One call for every data set: embedded, public files, and synthetic ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from fedmin.core.checks import nearest
from fedmin.data.catalogue.catalogue import CATALOGUE
from fedmin.data.catalogue.embedded import EMBEDDED, load_embedded
from fedmin.data.catalogue.public import PUBLIC
from fedmin.data.synthetic.known import SYNTHETIC
from fedmin.data.synthetic.synthetic import Synthetic
from fedmin.data.table import Table

__all__ = ["DATASETS", "Dataset", "datasets", "load"]


class Dataset(NamedTuple):
    """One line of `fedmin list data`.

    Rows, features and classes are None where options decide them.

    >>> from fedmin.data import DATASETS
    >>> DATASETS["digits"].classes, DATASETS["digits"].download
    (10, False)
    """

    name: str
    summary: str
    task: str
    rows: int | None
    features: int | None
    classes: int | None
    download: bool


def _all_datasets() -> dict[str, Dataset]:
    lines = [
        Dataset(name, e.summary, e.task, e.rows, e.features, e.classes, False)
        for name, e in EMBEDDED.items()
    ]
    lines += [
        Dataset(e.name, e.summary, e.task, e.rows, e.features, e.classes, True)
        for e in CATALOGUE.values()
        if e.kind in PUBLIC
    ]
    lines += [
        Dataset(name, _first_line(make), "synthetic", None, None, None, False)
        for name, make in SYNTHETIC.items()
    ]
    return {line.name: line for line in lines}


def _first_line(make: Callable) -> str:
    return (inspect.getdoc(make) or make.__name__).splitlines()[0]


DATASETS: dict[str, Dataset] = _all_datasets()


def datasets() -> list[Dataset]:
    """Every data set that `load` knows.

    >>> from fedmin.data import datasets
    >>> [d.name for d in datasets() if not d.download][:4]
    ['digits', 'breast_cancer', 'diabetes', 'wine']
    """
    return list(DATASETS.values())


def load(name: str, **options: Any) -> Table | Synthetic:
    """A data set by name.

    Embedded sets (digits, breast_cancer, diabetes, wine) need no download; public ones come from
    the cache or their address (see `fetch`); synthetic ones are made with their options.

    Options:
        test_fraction: embedded sets 0.2 by default; for public sets that come without test rows,
            hold out this share (stratified by label, always the same rows).
        dense: LIBSVM sets only, True or False to choose; by default up to 1,000 features are dense.
        window, stride, test_fraction: tinyshakespeare.
        anything else: the arguments of the synthetic set of that name.

    >>> from fedmin.data import load
    >>> load("digits")
    Table('digits', 1438 rows x 64 features, images 8x8x1, 10 classes, test 359 rows)
    >>> load("digit")
    Traceback (most recent call last):
        ...
    ValueError: unknown data set 'digit'; did you mean 'digits'?
    """
    make, first = maker(name)
    known = list(inspect.signature(make).parameters)[len(first) :]
    for option in options:
        if option not in known:
            hint = nearest(option, known) if known else "it takes none"
            raise ValueError(f"{name}: unknown option {option!r}; {hint}")
    return make(*first, **options)


def maker(name: str) -> tuple[Callable, tuple[Any, ...]]:
    """The function that makes a data set, and its first arguments; the others are options."""
    if name in EMBEDDED:
        return load_embedded, (name,)
    if name in SYNTHETIC:
        return SYNTHETIC[name], ()
    entry = CATALOGUE.get(name)
    if entry is None:
        raise ValueError(f"unknown data set {name!r}; {nearest(name, DATASETS)}")
    if entry.kind not in PUBLIC:
        raise ValueError(
            f"{name} is not a table but {entry.summary}; fetch({name!r}) finds its file"
        )
    return PUBLIC[entry.kind], (entry,)
