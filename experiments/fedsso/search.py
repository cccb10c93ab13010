"""The steps of every method, by the same grid: all of it for a while, the best few to the end."""

from dataclasses import asdict

import numpy as np

from experiments.fedsso.runs import RIVALS, Book, Curve, Spec
from experiments.fedsso.setting import SEARCH_SEED, Setting


def grid(book: Book, setting: Setting, world: str, method: str) -> list[Curve]:
    """Every pair of steps over the first rounds, measured at their end."""
    network = world == setting.network
    rounds = setting.network_search if network else setting.search_rounds
    first = Spec(world, method, (), rounds, rounds, SEARCH_SEED, setting.local_steps)
    grids = asdict(setting)
    if network:
        grids |= {"steps": setting.network_steps, "server_steps": setting.network_server_steps}
    values = {name: grids[grid] for name, grid in RIVALS[method].over.items()}
    return book.grid(first, values)


def finalists(book: Book, setting: Setting, world: str, method: str) -> list[Curve]:
    """The best of the grid by the objective, run to the end; the best of them first.

    The best has the highest mean accuracy over its rounds: early and high.
    """
    short = sorted(grid(book, setting, world, method), key=lambda curve: curve.end)
    rounds, every, most = setting.rounds, 1, setting.finalists
    if world == setting.network:
        rounds, every = setting.network_rounds, setting.network_every
        most = setting.network_finalists
    changes = {"rounds": rounds, "every": every, "seed": SEARCH_SEED}
    best = [one.spec._replace(**changes) for one in short[:most]]
    return sorted(book.curves(best), key=area, reverse=True)


def tuned(book: Book, setting: Setting, world: str, method: str) -> list[Curve]:
    """The best steps, a run a seed."""
    best = finalists(book, setting, world, method)[0].spec
    seeds = setting.network_seeds if world == setting.network else setting.seeds
    return book.curves(best._replace(seed=seed) for seed in seeds)


def for_absent(book: Book, setting: Setting, method: str, who: str) -> list[Curve]:
    """The best eta where clients are absent, with the alpha found for everyone; a run a seed."""
    known = method if method in setting.methods else "fedsso"
    alpha, _ = finalists(book, setting, setting.convex, known)[0].spec.steps
    short = {"seed": SEARCH_SEED, "every": setting.absent_every, "who": who}
    tried = book.curves(
        setting.spec(setting.convex, method, (alpha, eta), **short) for eta in setting.server_steps
    )
    best = max(tried, key=area).spec
    return book.curves(best._replace(seed=seed, every=1) for seed in setting.seeds)


def area(curve: Curve) -> float:
    """The mean accuracy over the rounds; 0 if it diverged."""
    return 0.0 if curve.status == "diverged" else float(np.mean(curve.accuracy))
