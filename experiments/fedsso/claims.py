"""The claims. Each check is check(book, setting) -> Claim, and has a line in `CHECKS`.

Verdicts are rules over measured numbers, written here before the numbers were there.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from experiments.fedsso import search
from experiments.fedsso.runs import Book, Curve
from experiments.fedsso.setting import Setting
from experiments.paper import Claim, judge

NEVER = float("inf")
REMEDY = "fedsso-points-memory"  # for absent clients


# ---------------------------------------------------------------- what is measured of runs


def reached(curves: list[Curve], level: float) -> float:
    """Rounds to a test accuracy: the median over seeds."""
    return float(np.median([curve.reached(level) for curve in curves]))


def row(curves: list[Curve], levels: tuple[float, ...]) -> dict[str, Any]:
    """A line of the table: rounds and megabytes to each level, and how it ended."""
    rounds = {f"{level:g}": reached(curves, level) for level in levels}
    each, ends = curves[0].bytes / 1e6, [curve.end for curve in curves]
    return {
        "steps": curves[0].spec.steps,
        "rounds": {level: None if t == NEVER else t for level, t in rounds.items()},
        "megabytes": {
            level: None if t == NEVER else round(t * each, 3) for level, t in rounds.items()
        },
        "end": float(np.median([curve.accuracy[-1] for curve in curves])),
        "best": float(np.median([max(curve.accuracy) for curve in curves])),
        **({"objective": float(np.median(ends))} if np.isfinite(ends).all() else {}),
        "counts": curves[0].counts,
        "statuses": [curve.status for curve in curves],
    }


def shown(rounds: float | None) -> str:
    """A number of rounds in words."""
    return "never" if rounds is None or rounds == NEVER else f"{rounds:g}"


def table(book: Book, setting: Setting, world: str) -> dict[str, dict[str, Any]]:
    """A row a searched method."""
    return {
        method: row(search.tuned(book, setting, world, method), setting.levels)
        for method in setting.rivals(world)
    }


def listed(rows: dict[str, dict[str, Any]], level: float, what: str = "rounds") -> str:
    """What every method needs to a level."""
    return ", ".join(f"{name} {shown(one[what][f'{level:g}'])}" for name, one in rows.items())


def fewest(rows: dict[str, dict[str, Any]], level: float, what: str = "rounds") -> bool:
    """Whether FedSSO gets to a level, and no other method with less."""
    needs = {name: one[what][f"{level:g}"] for name, one in rows.items()}
    own = needs.pop("fedsso")
    return own is not None and all(other is None or own <= other for other in needs.values())


# ---------------------------------------------------------------- the checks


def rounds(book: Book, setting: Setting) -> Claim:
    """sso-rounds: FedSSO gets to every level in the fewest rounds, and as fast as printed."""
    rows = table(book, setting, setting.convex)
    first, second = setting.levels[1:3]
    parts = [fewest(rows, level) for level in setting.levels]
    printed = [reached(search.tuned(book, setting, setting.convex, "fedsso"), level) <= most
               for level, most in ((first, 20), (second, 24))]  # fmt: skip
    return Claim(
        "sso-rounds",
        "rounds to 0.88 on MNIST: FedAvg 200, SCAFFOLD 71, FedSSO 20; FedSSO 24 to 0.90",
        "; ".join(f"to {level:g}: {listed(rows, level)}" for level in setting.levels),
        "no method needs fewer rounds, at any level; FedSSO at most 20 to "
        f"{first:g} and 24 to {second:g}",
        judge(parts + printed),
        f"FedSSO has the fewest rounds at {sum(parts)} of {len(parts)} levels; at most 20 rounds "
        f"to {first:g} and 24 to {second:g}: {sum(printed)} of 2",
        {"rows": rows},
    )


def two_labels(book: Book, setting: Setting) -> Claim:
    """sso-two-labels: no worse than a prototype of ours, 15 rounds to 0.90 and 41 to 0.92."""
    levels, found, words = (setting.levels[2], setting.levels[-1]), {}, []
    for method, batch in product(("fedsso", "fedavg"), setting.two_batches):
        specs = [
            setting.spec(setting.two, method, (step, 1.0), rounds=setting.two_rounds, batch=batch)
            for step in setting.two_steps
        ]
        best = max(book.curves(specs), key=search.area)
        found[f"{method} B={batch}"] = row([best], setting.levels)
        needs = ", ".join(shown(best.reached(level)) for level in levels)
        words.append(f"{method} B={batch} alpha={best.spec.steps[0]:g}: {needs}")
    ours = [one for name, one in found.items() if name.startswith("fedsso")]
    parts = [
        min(reached_or_never(one, level) for one in ours) <= most
        for level, most in zip(levels, (15, 41), strict=True)
    ]
    return Claim(
        "sso-two-labels",
        "(ours) a prototype, two labels a client: 15 rounds to 0.90, 41 to 0.92; FedAvg 75, never",
        f"rounds to {levels[0]:g} and {levels[1]:g}, seed 0: " + "; ".join(words),
        "FedSSO with one of the batches in no more rounds, at either level",
        judge(parts),
        f"{sum(parts)} of 2 levels",
        {"rows": found},
    )


def bytes_sent(book: Book, setting: Setting) -> Claim:
    """sso-bytes: at 0.88 FedSSO has spent at most a tenth of FedAvg's bytes."""
    rows = table(book, setting, setting.convex)
    level = f"{setting.levels[1]:g}"
    own, other = (rows[name]["megabytes"][level] for name in ("fedsso", "fedavg"))
    share = None if own is None or other is None else own / other
    least = fewest(rows, setting.levels[1], "megabytes")
    parts = [own is not None and (share is None or share <= 0.1), least]
    return Claim(
        "sso-bytes",
        "at 0.88 FedSSO has spent a tenth of FedAvg's bytes (1.256 MB against 12.56 MB a client)",
        f"megabytes of all clients to {level}: {listed(rows, setting.levels[1], 'megabytes')}",
        "at most a tenth of FedAvg's bytes, and no method with fewer",
        judge(parts),
        f"FedSSO's share of FedAvg's bytes is {shown(share)}; "
        f"{'no' if least else 'another'} method has spent less",
        {"rows": {name: one["megabytes"] for name, one in rows.items()}, "share": share},
    )


def network(book: Book, setting: Setting) -> Claim:
    """sso-cnn: the fewest rounds to 0.91 with a small convolutional network."""
    rows = table(book, setting, setting.network)
    levels = [setting.levels[i] for i in (-3, -2, -1)]
    parts = [fewest(rows, level) for level in levels]
    return Claim(
        "sso-cnn",
        "CNN on MNIST to 0.91: FedAvg 200, SCAFFOLD 82, FedSSO 40",
        "; ".join(f"to {level:g}: {listed(rows, level)}" for level in levels),
        "no method needs fewer rounds, at any level",
        judge(parts),
        f"FedSSO has the fewest rounds at {sum(parts)} of {len(parts)} levels",
        {"rows": rows},
    )


def local_steps(book: Book, setting: Setting) -> Claim:
    """sso-local-steps: rounds fall with tau at first, and rise again for a large tau."""
    best = search.finalists(book, setting, setting.convex, "fedsso")[0].spec
    found = {}
    for tau in setting.local:
        specs = [best._replace(local_steps=tau, seed=seed) for seed in setting.seeds]
        found[tau] = row(book.curves(specs), setting.levels)
    level = setting.levels[2]
    needs = [reached_or_never(one, level) for one in found.values()]
    lowest = int(np.argmin(needs))
    parts = [needs[lowest] < needs[0], needs[lowest] < needs[-1]]
    said = ", ".join(f"{tau}: {shown(t)}" for tau, t in zip(found, needs, strict=True))
    return Claim(
        "sso-local-steps",
        "more local steps help at first, then hurt (Fig. 9, same alpha and eta)",
        f"rounds to {level:g} by tau: {said} (alpha, eta = {best.steps})",
        "the fewest rounds are fewer than with the smallest and than with the largest tau",
        judge(parts),
        f"fewest rounds with tau = {list(found)[lowest]}; "
        f"{'more' if parts[1] else 'not more'} with tau = {setting.local[-1]}, "
        f"{'more' if parts[0] else 'not more'} with tau = {setting.local[0]}",
        {"by_tau": {str(tau): one for tau, one in found.items()}},
    )


def reached_or_never(one: dict[str, Any], level: float) -> float:
    """Rounds of a row to a level, as a number."""
    t = one["rounds"][f"{level:g}"]
    return NEVER if t is None else t


def fastest(book: Book, setting: Setting, world: str) -> tuple[dict, dict[str, dict], str, bool]:
    """By the objective: rounds of every method to the lowest that FedAvg gets, and the ends."""
    found = {name: search.tuned(book, setting, world, name) for name in setting.rivals(world)}
    level = float(np.median([curve.end for curve in found["fedavg"]]))
    needs = {
        name: float(np.median([_below(curve, level) for curve in curves]))
        for name, curves in found.items()
    }
    rows = {name: row(curves, setting.levels) for name, curves in found.items()}
    ahead = all(needs["fedsso"] <= other for name, other in needs.items() if name != "fedsso")
    said = ", ".join(
        f"{name} {shown(t)} (end: objective {rows[name].get('objective', NEVER):.4g}, "
        f"accuracy {rows[name]['end']:.4f})"
        for name, t in needs.items()
    )
    return needs, rows, f"rounds to FedAvg's last objective, {level:.4g}: {said}", ahead


def _below(curve: Curve, level: float) -> float:
    there = np.flatnonzero(np.asarray(curve.objective) <= level)
    return float(curve.round[there[0]]) if len(there) else NEVER


def libsvm(book: Book, setting: Setting) -> Claim:
    """sso-libsvm: FedSSO is the first to FedAvg's last objective."""
    return _fastest_claim("sso-libsvm", "ijcnn1, 3 clients, logistic regression: FedSSO fastest",
                          book, setting, setting.libsvm)  # fmt: skip


def text(book: Book, setting: Setting) -> Claim:
    """sso-text: the same on the next character, ten speakers."""
    return _fastest_claim("sso-text", "Shakespeare, 10 clients, softmax regression: FedSSO fastest",
                          book, setting, setting.text)  # fmt: skip


def _fastest_claim(name: str, paper: str, book: Book, setting: Setting, world: str) -> Claim:
    needs, rows, said, ahead = fastest(book, setting, world)
    behind = [other for other, t in needs.items() if t < needs["fedsso"]]
    reason = "no method is earlier" if ahead else f"earlier: {', '.join(behind)}"
    rule = "no method is earlier at FedAvg's last objective"
    return Claim(name, paper, said, rule, judge([ahead]), reason, {"rounds": needs, "rows": rows})


def printed(book: Book, setting: Setting) -> Claim:
    """sso-printed: the paper's own rule, matrix and steps, and other forms of the curvature."""
    best = search.finalists(book, setting, setting.convex, "fedsso")[0].spec
    rows = {}
    for method, steps in (
        ("fedsso", best.steps),
        ("fedsso-skip", best.steps),
        ("fedsso-printed", (1e-3, 1.0)),
        ("fedsso-printed", best.steps),
        ("fedsso-dense", best.steps),
    ):
        specs = [setting.spec(setting.convex, method, steps, seed=s) for s in setting.seeds[:1]]
        rows[f"{method} {steps}"] = row(book.curves(specs), setting.levels)
    level = setting.levels[2]
    own = reached_or_never(rows[f"fedsso {best.steps}"], level)
    theirs = reached_or_never(rows[f"fedsso-printed {(1e-3, 1.0)}"], level)
    return Claim(
        "sso-printed",
        "as printed, alpha = 0.001, eta = 1: 20 rounds to 0.88, 24 to 0.90",
        "; ".join(
            f"{name}: {', '.join(shown(t) for t in one['rounds'].values())}"
            for name, one in rows.items()
        ),
        f"at most 24 rounds to {level:g}, as printed",
        judge([theirs <= 24]),
        f"to {level:g} as printed {shown(theirs)} rounds, with the safe rule and L-BFGS "
        f"{shown(own)} (seed 0; guard on)",
        {"rows": rows},
    )


def absent(book: Book, setting: Setting) -> Claim:
    """sso-absent: absent clients break gradients and pairs; with both mended it is steady again."""
    rows: dict[str, dict[str, Any]] = {}
    words, parts = [], []
    levels = setting.levels[1:3]
    for who in setting.absent:
        needs = {}
        for name in setting.absent_methods:
            curves = search.for_absent(book, setting, name, who)
            ends = np.array([curve.accuracy[-setting.absent_last :] for curve in curves])
            last = {"mean": float(ends.mean()), "lowest": float(ends.min())}
            rows[f"{who}: {name}"] = row(curves, setting.levels) | {"last": last}
            needs[name] = [reached(curves, level) for level in levels]
            words.append(
                f"{who}, {name} {', '.join(map(shown, needs[name]))} (eta "
                f"{curves[0].spec.steps[1]:g}, last {last['mean']:.3f}, "
                f"lowest {last['lowest']:.3f})"
            )
        last = rows[f"{who}: {REMEDY}"]["last"]
        parts += [
            needs[REMEDY][i] <= min(each[i] for each in needs.values()) < NEVER for i in (0, 1)
        ]
        parts.append(last["lowest"] >= last["mean"] - 0.01)
    return Claim(
        "sso-absent",
        "(ours) gradients remembered and pairs from both points mend FedSSO with absent clients",
        f"rounds to {' and '.join(f'{level:g}' for level in levels)}: " + "; ".join(words),
        "no method is earlier at either level, and no accuracy of the last "
        f"{setting.absent_last} rounds, any seed, is more than 0.01 below their mean",
        judge(parts),
        f"{sum(parts)} of {len(parts)} parts; every method with its best of "
        f"{len(setting.server_steps)} eta",
        {"rows": rows},
    )


CHECKS: dict[str, Callable[[Book, Setting], Claim]] = {
    "sso-rounds": rounds,
    "sso-bytes": bytes_sent,
    "sso-two-labels": two_labels,
    "sso-local-steps": local_steps,
    "sso-absent": absent,
    "sso-libsvm": libsvm,
    "sso-printed": printed,
    "sso-text": text,
    "sso-cnn": network,
}
