"""What a federation is given, checked before anything is made of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse

from fedmin.core import checks
from fedmin.core.groups import numbered
from fedmin.core.rows import Rows, rows


def grouped(
    values: Any, count: int, names: Sequence[str] | None
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """The number of each row's group and the groups' names, if rows are in groups."""
    if values is None:
        return None, ()
    return numbered("groups", values, count, names)


def at(group: np.ndarray | None, order: np.ndarray) -> np.ndarray | None:
    """What stands beside the rows in this order, if anything does."""
    return None if group is None else group[order]


def apart(what: str, given: Any, classes: int | None, groups: tuple[str, ...]) -> Rows | None:
    """Rows that no client has, (x, y) or, where rows are in groups, (x, y, groups)."""
    if given is None:
        return None
    x, y, *rest = given
    if len(rest) != bool(groups):
        wanted = "(x, y, groups), as the clients' rows are in groups" if groups else "(x, y)"
        raise ValueError(f"{what} must be {wanted}; got {2 + len(rest)} values")
    labeled = labels_of(y, classes)
    group = numbered(what, rest[0], len(labeled), groups)[0] if groups else None
    return rows(x, labeled, group=group)


def shares_of(weights: Any, sizes: np.ndarray) -> np.ndarray:
    """p_i: in proportion to the sizes (told or secret), uniform, or as given; they sum to one."""
    if isinstance(weights, str):
        checks.known("weights", weights, ["sizes", "uniform", "secret"])
        weights = np.ones(len(sizes)) if weights == "uniform" else sizes
    shares = np.asarray(weights, float)
    if shares.shape != sizes.shape or not (shares > 0).all() or not np.isfinite(shares).all():
        raise ValueError(
            f"weights must be 'sizes', 'secret', 'uniform' or {len(sizes)} positive numbers, "
            f"got {weights!r}"
        )
    return shares / shares.sum()


def bounded(most_rows: int | None, weights: Any, sizes: np.ndarray, held: np.ndarray) -> int | None:
    """All that is told of sizes where weights are "secret": no client has more rows than this."""
    if not isinstance(weights, str) or weights != "secret":
        if most_rows is not None:
            raise ValueError(f"most_rows is for weights='secret'; weights are {weights!r}")
        return None
    most = int(np.ceil(max(sizes.max(), held.max())))
    if most_rows is not None and most_rows < most:
        raise ValueError(
            f"most_rows = {most_rows}, and a client has {most} rows (or they weigh that)"
        )
    return most if most_rows is None else most_rows


def weighed(row_weights: Any, parts: Sequence[np.ndarray]) -> tuple[np.ndarray | None, np.ndarray]:
    """What each row weighs, if that is said; and each client's rows together, 1 each if not."""
    if row_weights is None:
        return None, np.array([len(part) for part in parts])
    each = np.asarray(row_weights, float)
    return each, np.array([each[part].sum() for part in parts])


def names_of(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """The clients' names, their numbers if they have none."""
    if names is None:
        return tuple(str(i) for i in range(count))
    if len(names) != count:
        raise ValueError(f"names must be one a client: {count} clients, {len(names)} names")
    return tuple(str(name) for name in names)


def check_holder(labels: str, names: tuple[str, ...]) -> None:
    """Refuse labels at nobody, or at two by the same name."""
    places = ("everyone", "server")
    checks.known("holder of the labels", labels, (*places, *names))
    if labels in places and labels in names:
        raise ValueError(f"labels={labels!r} is also a client's name; give that client another one")
    if len(set(names)) < len(names):
        raise ValueError(f"clients that split columns need different names, got {names}")


def labels_of(y: Any, classes: int | None) -> np.ndarray:
    """Labels 0..classes-1, or targets where there are no classes."""
    y = np.asarray(y)
    if classes is None:
        return y
    if y.dtype.kind not in "iub":
        raise ValueError(f"labels must be whole numbers 0..{classes - 1}, got {y.dtype} values")
    outside = np.flatnonzero((y < 0) | (y >= classes))
    if len(outside):
        raise ValueError(
            f"labels must be in 0..{classes - 1}; row {outside[0]} has label {y[outside[0]]}"
        )
    return y


def check_clients(clients: Sequence[Any], names: Sequence[str], classes: int | None) -> None:
    """Refuse what one of the clients brings, by its name and its own numbers of rows."""
    for i, client in enumerate(clients):
        site = f"client {names[i]!r}" if i < len(names) else f"client {i}"
        _check_client(site, client, classes)


def _check_client(site: str, pair: Any, classes: int | None) -> None:
    try:
        if not isinstance(pair, tuple | list) or len(pair) not in (2, 3):
            raise ValueError(f"it must be a pair (x, y), got {type(pair).__name__}")
        x, y, *_ = pair
        if not scipy.sparse.issparse(x):
            x = np.asarray(x)
        y = np.asarray(y)
        if x.ndim != 2 or x.dtype.kind not in "fiub":
            words = f"an array of {x.dtype} of shape {x.shape}"
            raise ValueError(f"x must be numbers, rows and features, got {words}")
        if y.shape[:1] != x.shape[:1]:
            words = f"x has {x.shape[0]} rows, y has shape {y.shape}"
            raise ValueError(f"y must have one entry a row: {words}")
        if scipy.sparse.issparse(x):
            entries = x.tocoo()
            bad = np.flatnonzero(~np.isfinite(entries.data))
            if len(bad):
                where = f"x[{entries.row[bad[0]]}, {entries.col[bad[0]]}]"
                raise ValueError(f"x must be finite; {where} is {entries.data[bad[0]]}")
        else:
            checks.finite("x", x)
        checks.finite("y", y)
        labels_of(y, classes)
    except ValueError as error:
        raise ValueError(f"{site}: {error}") from None
