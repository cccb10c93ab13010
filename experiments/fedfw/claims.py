"""The claims. Each check is check(world, setting) -> Claim, and has a line in `CHECKS`.

Verdicts are rules over measured numbers, written here before the numbers were there.
"""

from collections.abc import Callable
from itertools import pairwise, product

import numpy as np

from experiments.fedfw.leakage import leakage
from experiments.fedfw.runs import Spec, World
from experiments.fedfw.setting import SCALINGS, Setting
from experiments.paper import Claim, judge

NEAR = 3.0  # percentage points: 'the paper's number'

# the paper's test accuracies: (FedDR, FedFW, FedFW+) by table, split, ball
TABLE1 = {
    ("mnist", "iid", "l2"): (89.59, 86.96, 86.50),
    ("mnist", "non-iid", "l2"): (83.72, 86.95, 86.98),
    ("mnist", "iid", "l1"): (72.18, 78.07, 69.17),
    ("mnist", "non-iid", "l1"): (74.29, 80.54, 71.32),
    ("synthetic", "iid", "l2"): (78.24, 80.20, 79.96),
    ("synthetic", "non-iid", "l2"): (92.97, 94.81, 94.56),
    ("synthetic", "iid", "l1"): (79.00, 81.63, 81.92),
    ("synthetic", "non-iid", "l1"): (93.81, 90.84, 91.20),
    ("cifar10_batch1", "iid", "l2"): (39.95, 36.30, 36.30),
    ("cifar10_batch1", "non-iid", "l2"): (37.79, 38.13, 37.20),
    ("cifar10_batch1", "iid", "l1"): (23.25, 21.86, 21.99),
    ("cifar10_batch1", "non-iid", "l1"): (24.77, 25.08, 25.16),
}  # fmt: skip
TABLE2 = {
    ("mnist", "iid", "l2"): (96.89, 95.87, 95.05),
    ("mnist", "non-iid", "l2"): (88.93, 92.70, 91.79),
    ("mnist", "iid", "l1"): (11.72, 23.88, 20.40),
    ("mnist", "non-iid", "l1"): (16.75, 37.62, 36.27),
    ("synthetic", "iid", "l2"): (75.96, 81.70, 81.96),
    ("synthetic", "non-iid", "l2"): (93.85, 96.13, 96.08),
    ("synthetic", "iid", "l1"): (78.59, 75.52, 76.44),
    ("synthetic", "non-iid", "l1"): (93.51, 91.53, 91.96),
}  # fmt: skip
TABLE3 = {  # (FedDR, FedFW-sto), l2
    ("synthetic", "iid", "l2"): (67.68, 72.01), ("synthetic", "non-iid", "l2"): (84.70, 87.32),
    ("cifar10_batch1", "iid", "l2"): (36.39, 38.52),
    ("cifar10_batch1", "non-iid", "l2"): (34.91, 37.83),
}  # fmt: skip


def compare(
    id: str, words: str, world: World, setting: Setting, paper: dict, methods, cell
) -> Claim:
    """A table of the paper, both scalings: does the same method win (FedDR or the best of ours)?"""
    parts, said, numbers = [], [], {}
    near = total = 0
    for (table, split, ball), printed in paper.items():
        asked = table in setting.tables and split in setting.splits and ball in setting.balls
        if not asked:
            continue
        wins = []
        for scaling in SCALINGS:
            specs = cell(table, scaling, split, ball)
            found = {m: setting.tuned(world, specs, m) for m in methods}
            ends = [found[m].end for m in methods]
            wins.append((max(ends[1:]) > ends[0]) == (max(printed[1:]) > printed[0]))
            near += sum(abs(a - b) <= NEAR for a, b in zip(ends, printed, strict=True))
            total += len(ends)
            numbers[f"{table} {scaling} {split} {ball}"] = {
                m: {"accuracy": c.end, "objective": c.cost, "gap": c.gap[-1], "paper": p,
                    "knobs": c.spec.knobs, "bytes_up": c.bytes_up, "bytes_down": c.bytes_down,
                    "seconds": c.seconds}
                for (m, c), p in zip(found.items(), printed, strict=True)
            }  # fmt: skip
            shown = "/".join(f"{end:.1f}" for end in ends)
            said.append(f"{table} {split} {ball} {scaling} {shown}")
        parts.append(any(wins))
    left = sorted({table for table, *_ in paper} - set(setting.tables))
    return Claim(
        id, words, f"{'/'.join(methods)}: " + "; ".join(said),
        "the paper's winner, ours or FedDR, in every cell, in one of the two scalings",
        judge(parts),
        f"the paper's winner, ours or FedDR, in {sum(parts)} of {len(parts)} cells in at least one "
        f"scaling; {near} of {total} accuracies within {NEAR:g} points of the printed one"
        + (f"; not tested here: {', '.join(left)}" if left else ""),
        numbers,
    )  # fmt: skip


def table1(world: World, setting: Setting) -> Claim:
    """fw-table1: softmax regression."""

    def cell(table, scaling, split, ball):
        most = setting.mnist_rows if table == "mnist" else setting.most
        return Spec(table, scaling, split, "mclr", ball, "", (), setting.rounds, setting.clients,
                    most=most)  # fmt: skip

    words = "FedFW and FedFW+ against FedDR, softmax regression"
    methods = ("feddr", "fedfw", "fedfw+")
    return compare("fw-table1", words, world, setting, TABLE1, methods, cell)


def table2(world: World, setting: Setting) -> Claim:
    """fw-table2: a CNN on MNIST, a network with two hidden layers on synthetic data."""

    def cell(table, scaling, split, ball):
        image = table == "mnist"
        model, most = ("cnn", setting.network_rows) if image else ("dnn", setting.most)
        return Spec(table, scaling, split, model, ball, "", (), setting.rounds, setting.clients,
                    most=most)  # fmt: skip

    return compare("fw-table2", "FedFW and FedFW+ against FedDR, networks", world, setting, TABLE2,
                   ("feddr", "fedfw", "fedfw+"), cell)  # fmt: skip


def table3(world: World, setting: Setting) -> Claim:
    """fw-table3: batches of 64 at 100 clients."""

    def cell(table, scaling, split, ball):
        most = 0 if table == "synthetic" else setting.most  # rare labels need all rows there are
        return Spec(table, scaling, split, "mclr", ball, "", (), setting.stochastic_rounds,
                    setting.stochastic_clients, batch=setting.batch, most=most)  # fmt: skip

    return compare("fw-table3", "FedFW-sto ahead of FedDR on batches", world, setting, TABLE3,
                   ("feddr", "fedfw-sto"), cell)  # fmt: skip


def base(setting: Setting, model: str, ball: str, **changes) -> Spec:
    """FedFW on synthetic data."""
    spec = Spec("synthetic", "standardized", "iid", model, ball, "fedfw", (setting.penalties[0],),
                setting.rounds, setting.clients)  # fmt: skip
    return spec._replace(**changes)


def participation(world: World, setting: Setting) -> Claim:
    """fw-participation: a higher p is faster, for two penalties (Fig. 2 l1 and a DNN in l2, 3)."""
    parts, said, numbers = [], [], {}
    for (model, ball), penalty in product((("mclr", "l1"), ("dnn", "l2")), (0.01, 1.0)):
        costs = []
        for p in setting.chances:
            one = base(setting, model, ball, p=p, knobs=(penalty,))
            specs = [one._replace(seed=seed) for seed in setting.seeds]
            curves = world.curves(specs, f"{model} {ball} c_0={penalty:g} p={p:g}")
            costs.append(float(np.mean([np.mean(curve.objective[1:]) for curve in curves])))
        parts += [b <= a for a, b in pairwise(costs)]
        numbers[f"{model} {ball} {penalty:g}"] = costs
        said.append(f"{model} {ball} c_0={penalty:g} " + ", ".join(f"{c:.3f}" for c in costs))
    chances = ", ".join(f"{p:g}" for p in setting.chances)
    return Claim(
        "fw-participation", "faster with a higher p, whatever the penalty",
        f"mean loss over the rounds for p = {chances}: " + "; ".join(said),
        "every step up in p lowers it", judge(parts),
        f"{sum(parts)} of {len(parts)} steps up in p lower it ({len(setting.seeds)} seeds each)",
        numbers,
    )  # fmt: skip


def penalty(world: World, setting: Setting) -> Claim:
    """fw-penalty: a larger lambda_0 has a larger gap in the first rounds (Fig. 4)."""
    parts, said, numbers = [], [], {}
    for split, ball in product(setting.splits, setting.balls):
        one = base(setting, "mclr", ball, split=split, p=0.5)
        specs = [one._replace(knobs=(c,)) for c in setting.penalties]
        curves = world.curves(specs, f"penalties, {split} {ball}")
        first, last, losses = ([c.gap[1] for c in curves], [c.gap[-1] for c in curves],
                               [c.cost for c in curves])  # fmt: skip
        parts.append(first[-1] > first[0])
        numbers[f"{split} {ball}"] = {"first": first, "last": last, "objective": losses}
        said.append(
            f"{split} {ball} gap after {curves[0].round[1]} rounds "
            + ", ".join(f"{g:.2g}" for g in first)
            + ", at the end " + ", ".join(f"{g:.2g}" for g in last)
        )  # fmt: skip
    values = ", ".join(f"{c:g}" for c in setting.penalties)
    return Claim(
        "fw-penalty", "a higher lambda_0 leads to a larger gap in the first rounds",
        f"c_0 = {values}: " + "; ".join(said),
        "the largest c_0 has a larger first gap than the smallest, in every setting", judge(parts),
        f"the largest penalty's first gap is above the smallest's in {sum(parts)} of {len(parts)} "
        "settings (the gap of the true F at xbar; the authors' code measures the penalized one's)",
        numbers,
    )  # fmt: skip


CHECKS: dict[str, Callable[[World, Setting], Claim]] = {
    "fw-penalty": penalty,
    "fw-participation": participation,
    "fw-table1": table1,
    "fw-table2": table2,
    "fw-table3": table3,
    "fw-leakage": leakage,
}
