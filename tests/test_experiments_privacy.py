"""Accuracy against epsilon: the rival does what fedmin does, and the command runs."""

import json

import numpy as np

import fedmin
from experiments.privacy import figure, run
from experiments.privacy.rival import Recipe, dp_sgd, multiplier_of
from fedmin.core.release import Release
from fedmin.privacy import accountant


def table(classes):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, 3)).astype(np.float32)
    y = rng.integers(0, classes, 40)
    return run.Rows("made", x, y, (x, y), classes, (2.0,))


def test_the_rival_is_dp_sgd():
    """All rows in every batch and hardly any noise: the same model, clipped in the same way."""
    recipe = Recipe(step=0.5, rate=1.0, clip=0.4, rounds=4)
    for classes in (2, 3):
        rows = table(classes)
        w = dp_sgd(rows.x, rows.y, classes, recipe, 0.0, seed=0)
        private = fedmin.PrivateRows(1.0, clip=0.4, multiplier=1e-7)
        result = fedmin.minimize(
            rows.problem, rows.federation(1), fedmin.FedSGD(0.5, batches=private), rounds=4, every=4
        )
        used = w[1:] if classes == 2 else w
        flat = np.concatenate([used[:, :-1].ravel(), used[:, -1]])
        np.testing.assert_allclose(result.solution, flat, atol=1e-5)
        right = run._logits(rows, flat, rows.x).argmax(axis=1) == rows.y
        assert run.scores(rows, flat)["accuracy"] == right.mean()


def test_the_rivals_noise_is_what_the_accountant_asks_for():
    recipe = Recipe(step=1.0, rate=0.1, clip=1.0, rounds=20)
    found = multiplier_of(recipe, 3.0, 1e-5)
    ours = accountant.calibrated(Release("row", rate=0.1), 20, 3.0, 1e-5)
    np.testing.assert_allclose(found, ours, rtol=5e-3)


def test_stored_results_are_whole_and_drawn(tmp_path):
    kept = json.loads((run.HERE / "privacy.json").read_text("utf-8"))
    assert kept["measured"]["commit"]
    for one in kept["runs"]:
        assert one["spent"] <= one["epsilon"] * (1 + 1e-9)
        assert one["seed"] in kept["seeds"]
    figure.draw(kept["runs"], tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 10_000
