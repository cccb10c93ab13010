"""The claims. Each check is check(world, setting) -> Claim, and has a line in `CHECKS`.

Verdicts are rules over measured numbers, written here before the numbers were there.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from experiments.paper import Claim, judge
from experiments.ssca import search
from experiments.ssca.runs import Curve, World
from experiments.ssca.setting import Setting

TOLERANCE = 1e-3  # fedmin's own for 'F <= U is met'


# ---------------------------------------------------------------- what is measured of runs


def mean(curves: list[Curve], column: str = "cost") -> np.ndarray:
    """A recorded column, averaged over seeds; infinite where one of them diverged."""
    if any(curve.status == "diverged" for curve in curves):
        return np.full(len(curves[0].round), np.inf)
    return np.mean([getattr(curve, column) for curve in curves], axis=0)


def reached(curves: list[Curve], level: float) -> float:
    """The first recorded round at which the mean cost is at most a level; infinite if none."""
    there = np.flatnonzero(mean(curves) <= level)
    return float(curves[0].round[there[0]]) if len(there) else float("inf")


def summary(curves: list[Curve], level: float) -> dict[str, Any]:
    """Speed and end of some runs that differ in the seed only."""
    costs = [curve.end for curve in curves]
    return {
        "end": float(np.mean(costs)),
        "lowest": min(costs),
        "highest": max(costs),
        "area": float(np.mean(mean(curves)[1:])),  # the mean over the rounds: low is early and low
        "reached": reached(curves, level),
        "accuracy": float(mean(curves, "accuracy")[-1]),
        "square": float(mean(curves, "square")[-1]),
        "schedule": curves[0].spec.schedule,
    }


def ours(world: World, setting: Setting, algorithm: str, batch: int) -> list[Curve]:
    """An algorithm of the papers with their settings, one run a seed."""
    specs = [setting.spec(algorithm, batch, seed) for seed in setting.seeds]
    return world.curves(specs, f"{algorithm} B={batch}")


def listed(values, form: str = "{:.3f}") -> str:
    """Numbers in a row; 'never' for what was not reached, 'none' for no number at all."""
    return (
        "none"
        if not len(values)
        else ", ".join("never" if np.isinf(v) else form.format(v) for v in values)
    )


# ---------------------------------------------------------------- the checks


def batch(world: World, setting: Setting) -> Claim:
    """ssca-batch: for either algorithm, a larger B is there earlier and ends lower."""
    parts, words, numbers = [], [], {}
    for algorithm in ("alg1", "alg2"):
        found = [
            summary(ours(world, setting, algorithm, size), setting.level) for size in setting.sizes
        ]
        numbers[algorithm] = dict(zip(map(str, setting.sizes), found, strict=True))
        rounds, ends = ([one[what] for one in found] for what in ("reached", "end"))
        pairs = list(pairwise(found))
        parts += [b["reached"] <= a["reached"] and b["area"] < a["area"] for a, b in pairs]
        # Algorithm 2 may only go down to U: no order is asked of what is at U already
        floor = setting.limit if algorithm == "alg2" else 0.0
        parts += [max(b["end"], floor) <= max(a["end"], floor) for a, b in pairs]
        words.append(
            f"{algorithm}: rounds to cost {setting.level:g} {listed(rounds, '{:.0f}')}, "
            f"end {listed(ends)}"
        )
    return Claim(
        "ssca-batch",
        "a larger B converges faster (Algorithms 1 and 2)",
        f"B = {', '.join(map(str, setting.sizes))}: " + "; ".join(words),
        "every larger B is no later at the level, lower in its mean cost and no higher at the end",
        judge(parts),
        f"{sum(parts)} of {len(parts)} comparisons of neighbouring B (rounds, cost at the end) "
        "go the paper's way",
        numbers,
    )


def against_sgd(world: World, setting: Setting) -> Claim:
    """ssca-vs-sgd: Algorithm 1 is below tuned SGD, over all rounds and at the end."""
    parts, words, numbers = [], [], {}
    for size in setting.sizes:
        mine = summary(ours(world, setting, "alg1", size), setting.level)
        numbers[f"alg1 B={size}"] = mine
        for rival, steps in search.rivals(size):
            name = f"SGD B={rival} E={steps}"
            other = summary(search.tuned(world, setting, rival, steps), setting.level)
            numbers[name] = other
            parts += [mine["area"] < other["area"], mine["end"] < other["end"]]
            scale, power = other["schedule"]
            words.append(
                f"B={size} {pace(mine)}, {name} {pace(other)} (step {scale:g}/t^{power:g})"
            )
    grid = len(setting.scales) * len(setting.powers)
    numbers["starts"] = elsewhere = starts(world, setting)
    ahead = sum(row["alg1"] < row["sgd"] for row in elsewhere)
    return Claim(
        "ssca-vs-sgd",
        "Algorithm 1 converges faster than SGD at equal B, and than (B/2, E = 2)",
        f"cost at the end (rounds to cost {setting.level:g}): " + "; ".join(words),
        "Algorithm 1 is lower in its mean cost and at the end, for every B and E",
        judge(parts),
        f"Algorithm 1 is ahead in {sum(parts)} of {len(parts)} comparisons (mean cost over the "
        f"rounds, cost at the end) of its printed settings with SGD's best of {grid} steps; "
        f"from smaller starts in {ahead} of {len(elsewhere)} (cost at the end, one seed)",
        numbers,
    )


def pace(found: dict[str, Any]) -> str:
    """The cost at the end and the rounds to the level."""
    return f"{found['end']:.3f} ({listed([found['reached']], '{:.0f}')})"


def starts(world: World, setting: Setting) -> list[dict[str, float]]:
    """Costs at the end from other starts, at equal B; SGD keeps the step of the usual one."""
    found = []
    for size in setting.sizes:
        seed, every = setting.seeds[0], setting.rounds // 4
        mine = setting.spec("alg1", size, seed, every=every)
        other = search.tuned(world, setting, size, 1)[0].spec._replace(seed=seed, every=every)
        for start in setting.starts:
            pair = [mine._replace(start=start), other._replace(start=start)]
            one, two = world.curves(pair, f"B={size} from {start:g} times the start")
            found.append({"batch": size, "start": start, "alg1": one.end, "sgd": two.end,
                          "alg1 square": one.square[-1]})  # fmt: skip
    return found


def feasible(world: World, setting: Setting, algorithm: str = "alg2") -> Claim:
    """ssca-feasible: every run ends with F <= U; those that do not get another chance."""
    parts, words, numbers = [], [], {}
    for size in setting.sizes:
        curves = ours(world, setting, algorithm, size)
        worst = max(curve.end for curve in curves)
        parts.append(worst <= setting.limit + TOLERANCE)
        found = summary(curves, setting.limit + TOLERANCE)
        words.append(f"B={size} F = {worst:.4f}, |w|^2 = {found['square']:.0f}")
        if not parts[-1]:
            found["also"] = others(world, setting, algorithm, size)
            words[-1] += f" ({'; '.join(map(met, found['also'].items()))})"
        numbers[str(size)] = found
    return Claim(
        "ssca-feasible",
        f"Algorithm {algorithm[-1]} ends with F <= U = {setting.limit:g}",
        f"largest F over seeds after {setting.rounds} rounds: " + "; ".join(words),
        f"F <= U + {TOLERANCE:g} at the end for every B",
        judge(parts),
        f"F <= U + {TOLERANCE:g} after {setting.rounds} rounds with the papers' settings for "
        f"{sum(parts)} of {len(parts)} batch sizes; in brackets other settings, one seed each",
        numbers,
    )


def others(world: World, setting: Setting, algorithm: str, size: int) -> dict[str, Any]:
    """One seed each with more rounds, with other schedules, and asked for less than U."""
    spec = setting.spec(algorithm, size, setting.seeds[0], every=4 * setting.every)
    a1, a2, alpha = spec.schedule
    lower = round(setting.limit - setting.margin, 6)
    tried = {f"{setting.long_rounds} rounds": spec._replace(rounds=setting.long_rounds)}
    for shift in setting.shifts:
        moved = round(alpha + shift, 6)
        tried[f"alpha {moved:g}"] = spec._replace(schedule=(a1, a2, moved))
    tried[f"asked for {lower:g}"] = spec._replace(limit=lower)
    curves = world.curves(tried.values(), f"{algorithm} B={size}, other settings")
    level = setting.limit + TOLERANCE
    return {name: summary([one], level) for name, one in zip(tried, curves, strict=True)}


def met(tried: tuple[str, dict[str, Any]]) -> str:
    """One of `others` in words."""
    name, found = tried
    return f"{name}: {found['end']:.4f}, first met {listed([found['reached']], '{:.0f}')}"


def ends(world: World, setting: Setting, algorithm: str, knob: str, seed: int, long=False) -> list:
    """Cost, size and accuracy at the end, for each value of lambda ("weight") or U ("limit")."""
    values = setting.long_weights if long else getattr(setting, knob + "s")
    rounds = setting.long_rounds if long else setting.rounds
    changes = {"rounds": rounds, "every": rounds // 4}
    size = setting.tradeoff_batch
    specs = [setting.spec(algorithm, size, seed, **changes, **{knob: value}) for value in values]
    return [
        {knob: getattr(curve.spec, knob), "cost": curve.end, "square": curve.square[-1],
         "accuracy": curve.accuracy[-1]}
        for curve in world.curves(specs, f"{algorithm} over {knob}s, seed {seed}")
    ]  # fmt: skip


def tradeoff(world: World, setting: Setting) -> Claim:
    """ssca-tradeoff: at equal cost Algorithm 2's |w|^2 is smaller, and the cost ends at U."""
    first = [ends(world, setting, "alg1", "weight", seed) for seed in setting.seeds]
    second = [ends(world, setting, "alg2", "limit", seed) for seed in setting.seeds]
    late = [ends(world, setting, "alg1", "weight", setting.seeds[0], long=True)]
    ratios = [r for one, two in zip(first, second, strict=True) for r in shrinkage(one, two)]
    late_ratios = shrinkage(late[0], second[0])
    smaller = sum(ratio > 1 for ratio in ratios)
    costs = np.mean([[point["cost"] for point in points] for points in second], axis=0)
    asked = ", ".join(f"{u:g}" for u in setting.limits)
    return Claim(
        "ssca-tradeoff",
        "a smaller model at equal cost by Algorithm 2, which controls the cost explicitly",
        f"|w|^2 of Algorithm 1 over that of Algorithm 2 at equal cost: {listed(ratios, '{:.2f}')}; "
        f"after {setting.long_rounds} rounds {listed(late_ratios, '{:.2f}')}; "
        f"U = {asked} gives F = {listed(costs)}",
        "Algorithm 2's model is smaller at every cost that both reach",
        judge([ratio > 1 for ratio in ratios]),
        f"Algorithm 2's model is smaller at {smaller} of the {len(ratios)} costs that both reach",
        {"alg1": first, "alg2": second, "alg1 longer": late,
         "ratios": ratios, "late ratios": late_ratios},
    )  # fmt: skip


def shrinkage(first: list[dict], second: list[dict]) -> list[float]:
    """|w|^2 of the first's points over the second's at the same cost, where that has one."""
    points = sorted((point["cost"], point["square"]) for point in second)
    costs, squares = np.array(points).T
    return [
        float(point["square"] / np.interp(point["cost"], costs, squares))
        for point in first
        if costs[0] <= point["cost"] <= costs[-1]
    ]


def rows_columns(world: World, setting: Setting) -> Claim:
    """ssca-rows-columns: B rows at each of N clients and N B rows of columns do about the same."""
    parts, words, numbers = [], [], {}
    for on_rows, on_columns in (("alg1", "alg3"), ("alg2", "alg4")):
        for size in setting.sizes:
            pair = (on_rows, size), (on_columns, size * setting.clients)
            one, two = (summary(ours(world, setting, *each), setting.level) for each in pair)
            numbers |= {f"{on_rows} B={size}": one, f"{on_columns} B={pair[1][1]}": two}
            apart = [abs(two[what] / one[what] - 1) for what in ("end", "area")]
            parts.append(max(apart) <= 0.1)
            words.append(
                f"{on_rows} B={size} {one['end']:.3f} (mean {one['area']:.3f}), "
                f"{on_columns} B={pair[1][1]} {two['end']:.3f} (mean {two['area']:.3f})"
            )
    return Claim(
        "ssca-rows-columns",
        "rows and columns give similar curves at equal computation (Fig. 2 against 3)",
        "cost at the end (mean over the rounds): " + "; ".join(words),
        "both numbers within a tenth of each other, in every pair",
        judge(parts),
        f"both numbers within a tenth of each other in {sum(parts)} of {len(parts)} pairs; with "
        "the same batches the two are the same run (tests/test_ssca_columns.py)",
        numbers,
    )


CHECKS: dict[str, Callable[[World, Setting], Claim]] = {
    "ssca-batch": batch,
    "ssca-vs-sgd": against_sgd,
    "ssca-feasible": feasible,
    "ssca-tradeoff": tradeoff,
    "ssca-rows-columns": rows_columns,
}
