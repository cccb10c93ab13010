"""The rules of experiments/fedsso on made runs: who is first, what it cost, what is kept."""

import numpy as np

from experiments.fedsso import claims, search
from experiments.fedsso.runs import RIVALS, SEARCHED, Book, Curve, Spec
from experiments.fedsso.setting import QUICK, Setting
from experiments.fedsso.worlds import held_out


def made(accuracy, method="fedsso", status="done", sent=2e6, **changes) -> Curve:
    spec = Spec("digits", method, (0.1, 1.0), len(accuracy) - 1)._replace(**changes)
    rounds = list(range(len(accuracy)))
    return Curve(spec, status, 0.0, rounds, [1 - a for a in accuracy], accuracy, sent)


def test_rounds_and_megabytes_to_a_level():
    slow, fast = made([0.1, 0.5, 0.7, 0.9]), made([0.1, 0.8, 0.7, 0.9], seed=1)
    row = claims.row([slow, fast, fast], (0.7, 0.9, 0.95))
    assert row["rounds"] == {"0.7": 1, "0.9": 3, "0.95": None}
    assert row["megabytes"] == {"0.7": 2.0, "0.9": 6.0, "0.95": None}
    rows = {"fedsso": row, "fedavg": claims.row([slow], (0.7, 0.9, 0.95))}
    assert [claims.fewest(rows, level) for level in (0.7, 0.9, 0.95)] == [True, True, False]
    rows["fedavg"]["rounds"]["0.9"] = 2
    assert not claims.fewest(rows, 0.9)


def test_words_and_areas():
    assert (claims.shown(None), claims.shown(np.inf), claims.shown(3.0)) == ("never", "never", "3")
    assert search.area(made([0.5, 1.0])) == 0.75
    assert search.area(made([0.5, 1.0], status="diverged")) == 0
    assert made([0.5], status="diverged").end == np.inf


def test_the_book_keeps_runs_and_every_rival_can_be_made(tmp_path):
    book = Book(tmp_path / "runs.json", say=lambda words: None)
    for method in RIVALS:
        over = RIVALS[method].over
        curve = made([0.1, 0.9], method, steps=(0.1,) * len(over))
        assert [getattr(book.method(curve.spec), name) for name in over] == [0.1] * len(over)
        book.done[curve.spec] = curve
    book.save()
    again = Book(book.path)
    again.recall()
    assert again.done == book.done
    assert set(Setting().methods) == set(SEARCHED) >= set(QUICK.methods)


def test_a_quarter_of_each_client_is_held_out():
    x, y = np.arange(24.0)[:, None], np.arange(24) % 2
    federation = held_out(x, y, [range(8), range(8, 24)], 2)
    assert list(federation.sizes) == [6, 12]
    last = np.asarray(federation.test.x.values).ravel()
    assert (last < 8).sum() == 2
    assert len(last) == 6
