"""What privacy of rows costs: accuracy against epsilon.

    python -m experiments.privacy              all, as in the README
    python -m experiments.privacy --quick      tiny, on a built-in table: shows that everything runs
    python -m experiments.privacy --rows FILE  the same rows for Opacus (opacus_rival.py)

FEDMIN_DATA names the folder with the data. Steps, clips and radii are from a few tries at epsilon 2
on other splits of the rows (on MNIST on training rows that were held out), and are the same for
every epsilon. Results are in results/privacy.json, with their date, commit and seeds; a figure is
beside them.
"""

import argparse
import json
import subprocess
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

import fedmin
from experiments.paper import measured
from experiments.privacy import figure
from experiments.privacy.rival import Recipe, dp_sgd, multiplier_of
from fedmin.privacy.exposures import PrivacyWarning

HERE = Path(__file__).parent / "results"
DELTA = 1e-5
SEEDS = (0, 1, 2)
LIMIT = 0.5  # of the loss, for the smallest model


class Rows(NamedTuple):
    """Training and test rows of one table."""

    name: str
    x: np.ndarray
    y: np.ndarray
    test: tuple[np.ndarray, np.ndarray]
    classes: int
    epsilons: tuple[float, ...]

    def federation(self, clients: int) -> fedmin.Federation:
        """The training rows dealt out to so many clients."""
        parts = list(np.array_split(np.arange(len(self.x)), clients))
        return fedmin.Federation.from_parts(self.x, self.y, parts, test=self.test)

    @property
    def problem(self) -> Any:
        """Logistic or softmax regression with a bias."""
        k = self.x.shape[1]
        if self.classes == 2:
            return fedmin.Logistic(k, bias=True)
        return fedmin.Softmax(k, self.classes, bias=True)


class Model(NamedTuple):
    """One curve: who trains what, by which method; `make(epsilon)` has noise for that epsilon."""

    name: str
    clients: int
    rounds: int
    make: Callable[[float], fedmin.Method]
    confined: Callable[[Any], Any] = lambda problem: problem


def mnist() -> Rows:
    table = fedmin.data.load("mnist")
    order = np.random.default_rng(0).permutation(table.rows)
    x, y = np.asarray(table.x, np.float32)[order], np.asarray(table.y)[order]
    test = np.asarray(table.test.x, np.float32), np.asarray(table.test.y)
    return Rows("mnist", x, y, test, 10, (0.5, 2.0, 8.0))


def credit() -> Rows:
    """Credit default, standardised as its publisher did; numbers beyond 3 deviations are 3."""
    table = fedmin.data.load("default_credit")
    order = np.random.default_rng(1).permutation(table.rows)
    x, y = np.asarray(table.x, np.float32)[order], np.asarray(table.y)[order]
    x = np.clip(x, -3, 3)
    return Rows("credit default", x[:24000], y[:24000], (x[24000:], y[24000:]), 2,
                (0.1, 0.5, 2.0))  # fmt: skip


def tiny() -> Rows:
    table = fedmin.data.load("breast_cancer").standardized()
    x, y = np.asarray(table.x, np.float32), np.asarray(table.y)
    return Rows("breast cancer", x, y, (x, y), 2, (2.0,))


MNIST = Recipe(step=4.0, rate=0.02, clip=1.0, rounds=100)
CREDIT = Recipe(step=1.0, rate=0.05, clip=2.0, rounds=100)


def gaussian(kind: Any, recipe: Recipe, **also: Any) -> Callable[[float], fedmin.Method]:
    """A method on batches with noise."""

    def make(epsilon: float) -> fedmin.Method:
        rows = fedmin.PrivateRows(recipe.rate, recipe.clip, epsilon=epsilon, delta=DELTA)
        return kind(batches=rows, **also)

    return make


def choosing(kind: Any, clip: float, **also: Any) -> Callable[[float], fedmin.Method]:
    """A method whose choices have noise."""
    return lambda epsilon: kind(
        batches=fedmin.PrivateChoices(clip, epsilon=epsilon, delta=DELTA), **also
    )


def models(rows: Rows) -> list[Model]:
    """The curves of a table."""
    recipe = MNIST if rows.classes > 2 else CREDIT
    step, rounds = recipe.step, recipe.rounds
    each: Any = "row" if rows.classes > 2 else "all"
    sparse = lambda problem: fedmin.over(problem, fedmin.L0Ball(
        20 if rows.classes > 2 else 6, each=each, free="bias"))  # fmt: skip
    found = [
        Model("DP-SGD: FedSGD, 1 client", 1, rounds, gaussian(fedmin.FedSGD, recipe, step=step)),
        Model("FedSGD, 10 clients", 10, rounds, gaussian(fedmin.FedSGD, recipe, step=step)),
        Model("sparse: FedHT, noise on gradients", 10, rounds,
              gaussian(fedmin.FedHT, recipe, step=step), sparse),
        Model("sparse: DistributedIHT, peeling", 10, 15 if rows.classes > 2 else 30,
              choosing(fedmin.DistributedIHT, 0.5 if rows.classes > 2 else 1.0, step=step), sparse),
    ]  # fmt: skip
    if rows.classes > 2:
        return found
    return [
        *found,
        Model("l1 ball: FedFW, noisy vertices", 10, 30, choosing(fedmin.FedFW.printed, 1.0),
              lambda problem: fedmin.over(problem, fedmin.L1Ball(4.0))),
        Model("smallest with loss <= 0.5: SSCA", 10, rounds, gaussian(fedmin.SSCA, recipe),
              lambda problem: fedmin.smallest(problem, loss_at_most=LIMIT)),
    ]  # fmt: skip


def scores(rows: Rows, x: np.ndarray) -> dict[str, float]:
    """What a model is worth on test rows; and its loss on the training rows, which only we see."""
    problem, (z, y) = rows.problem, rows.test
    logits = _logits(rows, x, z)
    found = {"accuracy": float(np.mean(logits.argmax(axis=1) == y)),
             "nonzeros": int(np.count_nonzero(x)), "size": float(x @ x)}  # fmt: skip
    if rows.classes == 2:
        found["auc"] = float(roc_auc_score(y, logits[:, 1] - logits[:, 0]))
    train = _logits(rows, x, rows.x)
    top = train.max(axis=1)
    loss = top + np.log(np.exp(train - top[:, None]).sum(axis=1)) - train[range(len(top)), rows.y]
    assert len(x) == problem.size()
    return found | {"train_loss": float(loss.mean())}


def _logits(rows: Rows, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    x, k = np.asarray(x, float), z.shape[1]
    if rows.classes == 2:
        return np.stack([np.zeros(len(z)), z @ x[:k] + x[k]], axis=1)
    return z @ x[: rows.classes * k].reshape(rows.classes, k).T + x[rows.classes * k :]


def one(rows: Rows, federation: Any, model: Model, epsilon: float, seed: int) -> dict[str, Any]:
    """One run, and what came of it."""
    begun = time.process_time()
    result = fedmin.minimize(
        model.confined(rows.problem), federation, model.make(epsilon), rounds=model.rounds,
        every=model.rounds, seed=seed, progress=False, record=[fedmin.Objective("test")],
    )  # fmt: skip
    return {
        "table": rows.name, "model": model.name, "epsilon": epsilon, "seed": seed,
        "spent": result.epsilon["row"], "rounds": result.rounds, **scores(rows, result.solution),
        "cpu_seconds": round(time.process_time() - begun, 2),
    }  # fmt: skip


def rival(rows: Rows, epsilon: float, seed: int) -> dict[str, Any]:
    """DP-SGD by NumPy with the same recipe."""
    recipe = MNIST if rows.classes > 2 else CREDIT
    noise = multiplier_of(recipe, epsilon, DELTA)
    w = dp_sgd(rows.x, rows.y, rows.classes, recipe, noise, 1000 + seed)
    flat = np.concatenate([w[1:, :-1].ravel(), w[1:, -1]]) if rows.classes == 2 else (
        np.concatenate([w[:, :-1].ravel(), w[:, -1]]))  # fmt: skip
    return {
        "table": rows.name, "model": "DP-SGD in NumPy, 1 place", "epsilon": epsilon, "seed": seed,
        "spent": epsilon, "rounds": recipe.rounds, **scores(rows, flat),
    }  # fmt: skip


def main() -> None:
    """Run all of it, keep it, draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything runs")
    parser.add_argument("--out", type=Path, default=None, help="a folder for results")
    parser.add_argument("--rows", type=Path, help="write the rows into this file, for Opacus")
    given = parser.parse_args()
    if given.rows:
        write_rows(given.rows)
        return
    out = given.out or (Path("runs/privacy") if given.quick else HERE)
    out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", PrivacyWarning)
    tables = [tiny()] if given.quick else [credit(), mnist()]
    found = everything(tables, (0,) if given.quick else SEEDS, out / "privacy.json")
    beside = out / "opacus.json"
    if beside.exists():
        found = [*json.loads(beside.read_text("utf-8"))["runs"], *found]
    figure.draw(found, out / "privacy.png")
    print(f"results and figure: {out}")


def everything(tables: list[Rows], seeds: tuple[int, ...], path: Path) -> list[dict[str, Any]]:
    """All runs; what is in the file of an interrupted run is taken from there."""
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    found = kept.get("runs", [])
    done = {(r["table"], r["model"], r["epsilon"], r["seed"]) for r in found}
    said = {"measured": measured("python -m experiments.privacy") | {"commit": commit()},
            "delta": DELTA, "seeds": list(seeds)}  # fmt: skip

    def keep(name: tuple, run: Callable[[], dict[str, Any]]) -> None:
        if name not in done:
            found.append(run())
            print(json.dumps(found[-1]), flush=True)
            path.write_text(json.dumps(said | {"runs": found}, indent=1) + "\n", "utf-8")

    for rows in tables:
        for epsilon in rows.epsilons:
            for seed in seeds:
                name = (rows.name, "DP-SGD in NumPy, 1 place", epsilon, seed)
                keep(name, lambda r=rows, e=epsilon, s=seed: rival(r, e, s))
        for model in models(rows):
            federation = rows.federation(model.clients)
            for epsilon in rows.epsilons:
                for seed in seeds:
                    keep((rows.name, model.name, epsilon, seed),
                         lambda r=rows, f=federation, m=model, e=epsilon, s=seed: one(r, f, m, e, s)
                         )  # fmt: skip
    return found


def write_rows(path: Path) -> None:
    """The same rows and recipes for another program (opacus_rival.py)."""
    held, asked = {}, {"delta": DELTA, "seeds": SEEDS, "tables": {}}
    for rows in (credit(), mnist()):
        recipe = MNIST if rows.classes > 2 else CREDIT
        what = {"classes": rows.classes, "epsilons": rows.epsilons, "recipe": recipe._asdict()}
        asked["tables"][rows.name] = what
        for part, a in (("x", rows.x), ("y", rows.y), ("test x", rows.test[0]),
                        ("test y", rows.test[1])):  # fmt: skip
            held[f"{rows.name}/{part}"] = a
    np.savez(path, asked=np.array(json.dumps(asked)), **held)


def commit() -> str:
    """Which version of the code this is."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
