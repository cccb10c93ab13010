"""The same setting by Opacus: DP-SGD of torch, with its own accountant. Needs torch and opacus.

    python -m experiments.privacy --rows rows.npz                    writes the rows, here
    python -m experiments.privacy.opacus_rival rows.npz opacus.json  trains, where opacus is

Its results are in results/opacus.json, and in the figure if they are there.
"""

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np


def trained(x: Any, y: Any, classes: int, recipe: dict, epsilon: float, delta: float, seed: int):
    """A linear model by Opacus, from 0; and the noise and the epsilon that it says."""
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(seed)
    one = classes == 2
    model = torch.nn.Linear(x.shape[1], 1 if one else classes)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    target = torch.tensor(y, dtype=torch.float32 if one else torch.int64)
    rows = TensorDataset(torch.tensor(x), target)
    engine = PrivacyEngine(accountant="prv")
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=recipe["step"]),
        data_loader=DataLoader(rows, batch_size=round(recipe["rate"] * len(x))),
        target_epsilon=epsilon, target_delta=delta, max_grad_norm=recipe["clip"],
        epochs=round(recipe["rounds"] * recipe["rate"]),
    )  # fmt: skip
    loss = torch.nn.BCEWithLogitsLoss() if one else torch.nn.CrossEntropyLoss()
    steps = 0
    for _ in range(round(recipe["rounds"] * recipe["rate"])):
        for some, labels in loader:
            optimizer.zero_grad()
            scores = model(some)
            loss(scores[:, 0] if one else scores, labels).backward()
            optimizer.step()
            steps += 1
    assert steps == recipe["rounds"], (steps, recipe)
    w = model.weight if hasattr(model, "weight") else model._module.weight
    b = model.bias if hasattr(model, "bias") else model._module.bias
    return w.detach().numpy(), b.detach().numpy(), optimizer.noise_multiplier, engine


def auc(y: np.ndarray, scores: np.ndarray) -> float:
    """The chance that a positive row has the larger score."""
    from scipy.stats import rankdata

    ranks, positive = rankdata(scores), y == 1
    n, m = positive.sum(), (~positive).sum()
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * m))


def main() -> None:
    """Train on every table of a file, for every epsilon and seed."""
    import opacus
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    held = np.load(sys.argv[1], allow_pickle=False)
    asked, found = json.loads(str(held["asked"])), []
    for table, what in asked["tables"].items():
        x, y, z, t = (held[f"{table}/{part}"] for part in ("x", "y", "test x", "test y"))
        for epsilon in what["epsilons"]:
            for seed in asked["seeds"]:
                w, b, noise, engine = trained(
                    x, y, what["classes"], what["recipe"], epsilon, asked["delta"], seed
                )
                scores = z @ w.T + b
                if what["classes"] == 2:
                    scores = np.hstack([0 * scores, scores])
                right = float(np.mean(scores.argmax(axis=1) == t))
                line = {
                    "table": table, "model": f"Opacus {opacus.__version__}, 1 place",
                    "epsilon": epsilon, "seed": seed, "multiplier": noise, "accuracy": right,
                    "spent": engine.get_epsilon(asked["delta"]),
                }  # fmt: skip
                if what["classes"] == 2:
                    line["auc"] = auc(t, scores[:, 1])
                print(json.dumps(line), flush=True)
                found.append(line)
    said = {"measured": {"date": time.strftime("%Y-%m-%d"),
                         "versions": {"opacus": opacus.__version__, "torch": torch.__version__}},
            "delta": asked["delta"], "seeds": asked["seeds"], "runs": found}  # fmt: skip
    Path(sys.argv[2]).write_text(json.dumps(said, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
