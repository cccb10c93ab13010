"""Auditing one round: who sees what of it, and everything that can be tried with that."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedmin.core.column_problem import FirstLayer
from fedmin.core.federation import Federation
from fedmin.core.problem import Problem
from fedmin.engines.observing import OBSERVER, Scene, View
from fedmin.engines.round import Run
from fedmin.privacy.audit.attack import Effort, Public, Target, attacked
from fedmin.privacy.audit.findings import Finding
from fedmin.privacy.policy import innermost

Observers = Sequence[Sequence[str]]


class AuditSettings(NamedTuple):
    """How an audit goes about it."""

    observers: Observers | None  # coalitions by name; None: those that `usual` has
    public: Public
    effort: Effort
    seed: int


def cut(federation: Federation, batch: int, seed: int) -> Federation:
    """The same clients with `batch` rows each, drawn from their own, as dense numbers."""
    rng, held = np.random.default_rng(seed), []
    for i in range(federation.num_clients):
        rows, size = federation.client(i), int(federation.sizes[i])
        if size < batch:
            name = federation.names[i]
            raise ValueError(f"client {name} has {size} rows, fewer than a batch of {batch}")
        whole = np.asarray(rows.x @ np.eye(rows.x.shape[1], dtype=rows.x.dtype))
        picked = rng.permutation(size)[:batch]
        group = np.zeros(size, int) if rows.group is None else np.asarray(rows.group)
        held.append((whole[picked], np.asarray(rows.y)[picked], group[picked]))
    x, y, group = (np.concatenate([one[k] for one in held]) for k in range(3))
    groups: Any = {}
    if federation.groups:
        names = federation.groups
        groups = {"groups": np.asarray(names)[group], "group_names": names}
    parts = [np.arange(i * batch, (i + 1) * batch) for i in range(len(held))]
    return Federation.from_parts(
        x, y, parts, weights=federation.weights, names=federation.names,
        classes=federation.classes, **groups,
    )  # fmt: skip


def check_groups(problem: Problem, on_columns: bool) -> None:
    """Refuse groups that an attacker's rows would fall out of, and on columns all of them."""
    limits = getattr(problem, "limits", ())
    if any(getattr(limit, "column", None) is not None for limit in limits):
        raise ValueError(
            "an audit tries rows whose numbers are nearly right, which are in no group of a "
            "column: give groups beside the features, table.grouped(column) and by='groups'"
        )
    if on_columns:
        raise ValueError(
            "an audit of columns knows no rows in groups; audit the same columns without groups"
        )


def public_of(federation: Federation, image: tuple[int, int, int] | None) -> Public:
    """What is taken for known: the average of all rows, their bounds, the most frequent label."""
    x, y = federation.pool.x, np.asarray(federation.pool.y)
    whole = np.asarray(x @ np.eye(x.shape[1], dtype=x.dtype))
    labels = federation.classes is not None and y.dtype.kind in "iu"
    common = int(np.bincount(y).argmax()) if labels else 0
    bounds = float(whole.min()), float(whole.max())
    return Public(whole.mean(axis=0), bounds, federation.classes if labels else None, common, image)


def usual(scene: Scene) -> list[tuple[str, ...]]:
    """The server, a client, and where single replies are hidden the server with some clients."""
    names = scene.roster.names
    found: list[tuple[str, ...]] = [(OBSERVER,)]
    if len(names) > 1:
        found.append((names[0],))
    if len(names) > 2 and not scene.single:
        found.append((OBSERVER, names[0]))
    if len(names) > 3 and not scene.single:
        found.append((OBSERVER, *names[:-1]))
    return found


def view_of(scene: Scene, observers: Sequence[str]) -> View:
    """What these parties together see."""
    names = scene.roster.names
    for each in observers:
        if each != OBSERVER and each not in names:
            raise ValueError(f"no observer {each!r}: there are {OBSERVER}, {', '.join(names)}")
    clients = [names.index(each) for each in observers if each != OBSERVER]
    if len(clients) == len(names):
        raise ValueError("everybody together holds all rows: there is nothing to infer")
    if OBSERVER not in observers:
        return scene.client_sees(clients)
    if scene.single:
        victim = next(i for i in range(len(names)) if i not in clients)
        view = scene.server_sees(victim)
        return view._replace(observers=tuple(observers))
    return scene.server_sums(clients)


def findings(run: Run, scene: Scene, settings: AuditSettings) -> tuple[Finding, ...]:
    """Every observer's view, attacked."""
    given = settings.observers
    wanted = usual(scene) if given is None else [tuple(each) for each in given]
    return tuple(_finding(run, scene, view_of(scene, each), settings) for each in wanted)


def _finding(run: Run, scene: Scene, view: View, settings: AuditSettings) -> Finding:
    z, y = scene.held(view)
    shape = z.shape

    def whole(function: Any) -> Any:
        if function is None:
            return None
        return lambda rows, labels: function(rows.reshape(shape), labels.reshape(shape[:2]))

    layer: Any = innermost(run.problem)
    linear = isinstance(layer, FirstLayer)
    first = (layer.embedding, layer.features) if linear else None
    lengths = getattr(run.problem.domain, "lengths", None) or ()
    cuts = tuple(int(n) for n in np.cumsum(lengths)[:-1]) if view.behind is not None else ()
    target = Target(
        whole(view.message), view.seen, z.reshape(-1, shape[-1]), y.reshape(-1),
        whole(view.behind), cuts, first,
    )  # fmt: skip
    outcome = attacked(target, settings.public, settings.effort, settings.seed)
    names = tuple(scene.roster.names[i] for i in view.victims)
    words = _words(scene, view)
    return Finding(view.observers, names, words, outcome, z.reshape(-1, shape[-1]))


def _words(scene: Scene, view: View) -> str:
    if OBSERVER not in view.observers:
        return "what all are told next"
    if view.single:
        return str(scene.run.channel.learns._replace(each=True))
    others = len(view.victims)
    return "one reply, the others subtracted" if others == 1 else f"the sum of {others} replies"
