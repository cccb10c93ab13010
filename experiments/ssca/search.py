"""The step sizes of SGD, by a grid: every step for a while, the best few to the end."""

from experiments.ssca.runs import Curve, Spec, World
from experiments.ssca.setting import SEARCH_SEED, Setting


def rivals(batch: int) -> list[tuple[int, int]]:
    """(B, E) of the SGD runs that Algorithm 1 with this batch is compared with."""
    return [(batch, 1)] + ([(batch // 2, 2)] if batch > 1 else [])


def grid(setting: Setting, batch: int, local_steps: int) -> list[Spec]:
    """Every step abar/t^albar, over the first rounds only, measured at their end."""
    rounds = setting.search_rounds
    return [
        Spec("sgd", batch, SEARCH_SEED, rounds, rounds, (a, p), local_steps, setting.weight)
        for p in setting.powers
        for a in setting.scales
    ]


def finalists(world: World, setting: Setting, batch: int, local_steps: int) -> list[Curve]:
    """The best steps of the grid, run to the end, best first (by the objective at the end)."""
    short = world.curves(grid(setting, batch, local_steps), f"SGD B={batch} E={local_steps} grid")
    best = sorted(short, key=objective)[: setting.finalists]
    specs = [curve.spec._replace(rounds=setting.rounds, every=setting.rounds) for curve in best]
    return sorted(world.curves(specs, f"SGD B={batch} E={local_steps} finalists"), key=objective)


def tuned(world: World, setting: Setting, batch: int, local_steps: int) -> list[Curve]:
    """The best step with every seed."""
    best = finalists(world, setting, batch, local_steps)[0].spec
    specs = [best._replace(seed=seed, every=setting.every) for seed in setting.seeds]
    return world.curves(specs, f"SGD B={batch} E={local_steps} step {best.schedule}")


def objective(curve: Curve) -> float:
    """What SGD minimizes, F + lambda |w|^2, at the end; infinite if it diverged."""
    return curve.end + curve.spec.weight * curve.square[-1]
