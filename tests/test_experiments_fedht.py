"""The machinery of experiments/fedht, tiny: it runs, keeps what it ran, and its rules are right."""

import numpy as np

from experiments.fedht import claims, worlds
from experiments.fedht.runs import Curve, Spec


def curve(objective, status="done", method="fedht", sent=1.0) -> Curve:
    spec = Spec("sim1-0.1", method, 3, 0.1, len(objective) - 1, 1, 0, 0)
    rounds = list(range(len(objective)))
    return Curve(spec, status, 0.0, rounds, objective, [sent * t for t in rounds], None)


def test_rounds_to_a_level():
    slow, fast = curve([9.0, 5.0, 4.0, 3.0], method="distributediht"), curve([9.0, 3.0, 2.0, 1.0])
    lost = curve([9.0, np.inf], status="diverged")
    found = claims.speeds({"distributediht": slow, "fedht": fast, "fediterht": lost})
    assert [found[m]["rounds"] for m in found] == [3, 1, np.inf]
    assert [found[m]["megabytes"] for m in found] == [3.0, 1.0, None]
    assert lost.end == np.inf


def test_each_client_has_two_clusters():
    clusters = np.repeat(np.arange(10), 40)
    parts = worlds.two_parts_each(clusters, 20, seed=0)
    assert len(parts) == 100
    assert {len(np.unique(clusters[part])) for part in parts} == {2}
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(400))
