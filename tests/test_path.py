"""Paths along sizes, radii and limits, against best subsets, scikit-learn and closed forms."""

import itertools

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.linear_model import lasso_path

import fedmin
from fedmin import Federation, L0Ball, L1Ball, LeastSquares
from fedmin.minimizing import validation
from fedmin.minimizing.validation import folds_of, held_out, weighing

SIZES = [1, 3]
ROUNDS = 25


@pytest.fixture(scope="module")
def world():
    """Rows of correlated columns, four of which count, at three sites; and the federation."""
    rng = np.random.default_rng(3)
    mixing = np.linalg.cholesky(0.5 ** np.abs(np.subtract.outer(np.arange(8), np.arange(8))))
    x = rng.normal(size=(90, 8)) @ mixing.T
    y = x @ np.array([1.5, 0, -1, 0, 0, 0.7, 0, 0.4]) + 0.5 * rng.normal(size=90)
    parts = [range(20), range(20, 50), range(50, 90)]
    return Federation.from_parts(x, y, parts, names=["north", "south", "west"])


def rows_of(federation):
    """All rows in the order of the pool."""
    return np.asarray(federation.pool.x.values), np.asarray(federation.pool.y)


def best_subset(x, y, size):
    """The least squares fit with so many non-zeros, by trying all supports."""
    fits = []
    for support in itertools.combinations(range(x.shape[1]), size):
        w = np.zeros(x.shape[1])
        w[list(support)] = np.linalg.lstsq(x[:, support], y, rcond=None)[0]
        fits.append((0.5 * np.mean((x @ w - y) ** 2), w))
    return min(fits, key=lambda fit: fit[0])


@pytest.fixture(scope="module")
def sparse(world):
    """A path along sizes, chosen by three folds."""
    return fedmin.path(LeastSquares(8), world, sizes=SIZES, folds=3, rounds=ROUNDS)


def test_models_are_the_best_subsets(world, sparse):
    x, y = rows_of(world)
    for point in sparse.points:
        least, w = best_subset(x, y, point.value)
        np.testing.assert_allclose(point.loss, least, rtol=1e-6)
        np.testing.assert_allclose(point.result.solution, w, atol=1e-4)
        assert point.nonzeros == point.value


def test_scores_are_those_of_best_subsets_of_the_other_folds(world, sparse):
    x, y = rows_of(world)
    folds = folds_of(world, 3, seed=0)
    for point in sparse.points:
        losses = []
        for k in range(3):
            _, w = best_subset(x[folds != k], y[folds != k], point.value)
            losses.append(0.5 * np.mean((x[folds == k] @ w - y[folds == k]) ** 2))
        np.testing.assert_allclose(point.score, np.mean(losses), rtol=1e-5)
        np.testing.assert_allclose(point.error, np.std(losses, ddof=1) / 3**0.5, rtol=1e-4)


def test_the_choice_is_the_first_within_one_standard_error(sparse):
    scores = np.array([point.score for point in sparse.points])
    best = int(np.argmin(scores))
    within = scores <= scores[best] + sparse.points[best].error
    assert sparse.best == best
    assert sparse.chosen == int(np.argmax(within))
    assert sparse.result is sparse.points[sparse.chosen].result
    assert sparse.value == SIZES[sparse.chosen]


def test_a_warm_start_is_no_worse_than_a_cold_one(world, sparse):
    for point in sparse.points:
        problem = fedmin.over(LeastSquares(8), L0Ball(point.value))
        cold = fedmin.minimize(
            problem, world, fedmin.SparseNewton(), rounds=ROUNDS, every=ROUNDS, start=np.zeros(8)
        )
        assert point.result.final("objective") <= cold.final("objective") + 1e-9


def test_the_ledger_has_every_run_and_every_look(sparse):
    ledger, points = sparse.ledger, len(SIZES)
    again = points - 1  # each size but the last also from the larger one
    assert len(ledger.models) == points + again
    assert len(ledger.choice) == 3 * (points + again)
    assert len(ledger.looks) == 4 * points
    kinds = ledger.by_kind()
    assert sum(kinds.values()) == ledger.bytes(evaluation=True)
    # three sites get a model of eight numbers and send the sum of losses and of their squares
    assert kinds["looks evaluation down model"] == 4 * points * 3 * 8 * 8
    assert kinds["looks evaluation up sums"] == 4 * points * 3 * 2 * 8
    assert kinds["models up gradient"] == 3 * ROUNDS * 3 * 8 * 8
    assert ledger.bytes("down") + ledger.bytes("up") == ledger.bytes()


def test_table_files_and_picture(sparse, tmp_path):
    assert sparse.table()["size"] == SIZES
    assert "chosen" in str(sparse)
    folder = sparse.save(tmp_path / "path")
    names = {"path.json", "path.csv", "path.png", "path.npy", "result.json", "model.npy"}
    assert names <= {file.name for file in folder.iterdir()}
    assert np.load(folder / "path.npy").shape == (2, 8)
    again = fedmin.Result.load(folder)
    np.testing.assert_array_equal(again.solution, sparse.result.solution)
    assert sparse.to_pandas()["score"].tolist() == [point.score for point in sparse.points]
    left, right = sparse.plot(Figure().subplots(1, 2))
    assert left.get_xlabel() == right.get_xlabel() == "non-zeros at most"
    assert left.get_ylabel() == "mean loss on held-out folds"
    assert any("chosen: " in text.get_text() for text in left.get_legend().get_texts())


def test_bic_is_the_closed_form(world):
    found = fedmin.path(LeastSquares(8), world, sizes=SIZES, choose="bic", rounds=ROUNDS)
    x, y = rows_of(world)
    n = len(y)
    for point in found.points:
        rss = 2 * n * best_subset(x, y, point.value)[0]
        closed = n * np.log(rss / n) + point.value * np.log(n)
        np.testing.assert_allclose(point.score, closed, rtol=1e-6)
        assert np.isnan(point.error)
    assert found.best == found.chosen == int(np.argmin([p.score for p in found.points]))
    # of likelihoods: -2 log L + k log n, the mean loss being -log L / n
    assert validation.bic(fedmin.Logistic(3), 0.3, 50.0, 2) == 30.0 + 2 * np.log(50.0)


ENGINES = {
    "simulator": fedmin.Simulator(),
    "loopback": pytest.param(fedmin.Loopback(), marks=pytest.mark.thorough),
}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_radii_are_scikit_learns_lasso_in_every_engine(world, engine):
    x, y = rows_of(world)
    _, weights, _ = lasso_path(x, y, alphas=[0.8, 0.1], tol=1e-12)
    radii = np.abs(weights).sum(axis=0)
    found = fedmin.path(
        LeastSquares(8), world, radii=radii, choose="holdout", engine=engine, rounds=60
    )
    held = held_out(world, 0.2, seed=0)
    for point, w in zip(found.points, weights.T, strict=True):
        least = 0.5 * np.mean((x @ w - y) ** 2)
        np.testing.assert_allclose(point.result.final("objective"), least, rtol=1e-7)
        np.testing.assert_allclose(point.result.solution, w, atol=1e-3)
        assert np.abs(point.result.solution).sum() <= point.value * (1 + 1e-6)
    # the model of the larger radius, on rows that none of its fit had
    fit = fedmin.over(LeastSquares(8), L1Ball(float(radii[1])))
    inside = weighing(world, ~held)
    method = fedmin.SSCA(rho=1.0, gamma=1.0, tau=fedmin.Tuned(), batches=fedmin.Full())
    start = fedmin.minimize(fit, inside, method, rounds=60, every=60).solution
    each = 0.5 * (x[held] @ start - y[held]) ** 2
    np.testing.assert_allclose(found.points[1].score, each.mean(), rtol=1e-4)
    np.testing.assert_allclose(found.points[1].error, each.std() / held.sum() ** 0.5, rtol=1e-3)


def test_limits_are_the_trade_off_curve(world):
    """Least squares with |x|^2 at most r^2, against ridge regression with the same norm."""
    x, y = rows_of(world)
    limits = [0.5, 1.0]
    problem = fedmin.subject_to(LeastSquares(8), fedmin.NormAtMost(1.0), tolerance=1e-5)
    found = fedmin.path(problem, world, limits=limits, choose="holdout", rounds=120)
    for point in found.points:
        low, high = 1e-6, 1e6
        for _ in range(200):
            ridge = np.sqrt(low * high)
            w = np.linalg.solve(x.T @ x / len(y) + ridge * np.eye(8), x.T @ y / len(y))
            low, high = (ridge, high) if w @ w > point.value**2 else (low, ridge)
        assert point.met
        np.testing.assert_allclose(point.loss, 0.5 * np.mean((x @ w - y) ** 2), rtol=1e-3)
    assert found.points[0].loss > found.points[1].loss
    assert found.label == "limit of NormAtMost"


def test_an_intercept_does_not_count(world):
    problem = LeastSquares(8, bias=True)
    sized = fedmin.minimizing.along.along(problem, [2], None, None, None, 0).problems[0]
    assert sized.domain.free == ("bias",)
    ball = fedmin.minimizing.along.along(problem, None, [2.0], None, None, 0).problems[0]
    far = ball.domain.project(np.full(9, 5.0))
    assert abs(np.abs(far[:8]).sum() - 2.0) < 1e-6
    assert far[8] == 5.0
    # the same from a problem that is over such sets already
    again = fedmin.minimizing.along.along(ball, None, [3.0], None, None, 0).problems[0]
    assert abs(np.abs(again.domain.project(np.full(9, 5.0))[:8]).sum() - 3.0) < 1e-6


# ---------------------------------------------------------------- how rows are divided


@pytest.fixture(scope="module")
def labeled():
    rng = np.random.default_rng(0)
    weights = np.where(np.arange(60) % 10 == 3, 0.0, 1.0 + (np.arange(60) % 3))
    return Federation.from_parts(
        rng.normal(size=(60, 2)), np.arange(60) % 4 == 0, [range(17), range(17, 60)], classes=2,
        row_weights=weights,
    )  # fmt: skip


def test_folds_are_a_partition_of_each_sites_rows(labeled):
    weight, y = np.asarray(labeled.pool.weight), np.asarray(labeled.pool.y)
    numbers = folds_of(labeled, 5, seed=1)
    np.testing.assert_array_equal(numbers >= 0, weight > 0)  # what does not count is in no fold
    for start, size in zip(labeled.starts, labeled.sizes, strict=True):
        mine = slice(start, start + size)
        sizes = np.bincount(numbers[mine][weight[mine] > 0], minlength=5)
        assert sizes.max() - sizes.min() <= 1
        for label in (0, 1):
            counts = np.bincount(
                numbers[mine][(weight[mine] > 0) & (y[mine] == label)], minlength=5
            )
            assert counts.max() - counts.min() <= 1
    assert (folds_of(labeled, 5, seed=2) != numbers).any()
    seen = np.zeros(60)
    for part in validation.parts(labeled, "folds", 5, 0.2, seed=1):
        fit, held = (np.asarray(each.pool.weight) for each in (part.fit, part.held))
        assert not (fit * held).any()  # no row is in both
        np.testing.assert_array_equal(fit + held, weight)
        seen += held > 0
        for each in (part.fit, part.held):
            assert each.by_rows
            assert each.sizes.tolist() == [17, 43]
    np.testing.assert_array_equal(seen, weight > 0)  # each is held out once


def test_a_site_deals_its_rows_out_whatever_others_have(labeled):
    """Its folds follow from the seed, its number and its own rows: nothing is asked for them."""
    x, y = rows_of(labeled)
    other = Federation.from_clients([(x[:17], y[:17]), (x[:30], y[:30])], classes=2)
    one = Federation.from_clients([(x[:17], y[:17]), (x[17:], y[17:])], classes=2)
    first = folds_of(other, 4, seed=0)[:17]
    np.testing.assert_array_equal(first, folds_of(one, 4, seed=0)[:17])


def test_a_share_of_every_site_and_label_is_held_out(labeled):
    held = held_out(labeled, 0.3, seed=0)
    weight, y = np.asarray(labeled.pool.weight), np.asarray(labeled.pool.y)
    assert not held[weight == 0].any()
    for start, size in zip(labeled.starts, labeled.sizes, strict=True):
        mine = np.arange(start, start + size)[weight[start : start + size] > 0]
        assert held[mine].sum() == round(0.3 * len(mine))
        rare = mine[y[mine] == 1]
        assert abs(held[rare].sum() - 0.3 * len(rare)) <= 1


def test_shares_that_are_no_rows_stay(labeled):
    x, y = rows_of(labeled)
    parts = [range(17), range(17, 60)]
    even = Federation.from_parts(x, y, parts, classes=2, weights="uniform")
    for part in validation.parts(even, "holdout", 5, 0.2, seed=0):
        np.testing.assert_array_equal(part.fit.weights, even.weights)
        assert validation.shrinking(part.held) == pytest.approx(0.25 / 3 + 0.25 / 9)


# ---------------------------------------------------------------- mistakes


def over_columns(world):
    x, y = rows_of(world)
    return Federation.from_columns(x, y, [range(4), range(4, 8)])


MISTAKES = {
    "sizes is an empty list": {"sizes": []},
    r"sizes must rise.*5 stands after 10; give sizes=\[5, 10\]": {"sizes": [10, 5]},
    "3 stands twice": {"sizes": [3, 3]},
    "sizes has 9, which does not fit: tau must be at most 8": {"sizes": [2, 9]},
    "sizes must be a list of numbers": {"sizes": 5},
    "sizes must be a whole number": {"sizes": [1.5]},
    "sizes must be at least 1": {"sizes": [0, 2]},
    "radii must be more than 0": {"radii": [-1.0, 2.0]},
    "give one of them, got none": {},
    "got sizes and radii": {"sizes": [1], "radii": [1.0]},
    "limits need a problem with a constraint": {"limits": [0.1]},
    "Box has neither a size nor a radius": {"radii": [1.0], "set": fedmin.Box},
    "sizes go with an L0Ball or a RankBall": {"sizes": [1], "set": L1Ball},
    "give rounds too": {"sizes": [2], "method": fedmin.SparseNewton()},
    "choose: unknown|unknown choose": {"sizes": [2], "choose": "aic"},
    "folds must be at least 2": {"sizes": [2], "folds": 1},
    "site north has 20 rows that count, too few for 21": {"sizes": [2], "folds": 21},
    "share must be below|share must be more than 0 and below 1": {
        "sizes": [2], "choose": "holdout", "share": 1.0,
    },
    "leaves none to look at": {"sizes": [2], "choose": "holdout", "share": 0.01},
    "choose='bic' counts non-zeros": {"radii": [1.0], "set": fedmin.L2Ball, "choose": "bic"},
    "no epsilon covers them all": {
        "sizes": [2], "channel": fedmin.chain(fedmin.Clip(1.0), fedmin.Noise(1.0)),
    },
    "no method finds a step of its own over RankBall": {"sizes": [1], "set": fedmin.RankBall},
}  # fmt: skip


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_are_named(world, words):
    options = MISTAKES[words]
    problem = fedmin.Softmax(8, 3) if options.get("set") is fedmin.RankBall else LeastSquares(8)
    with pytest.raises((ValueError, TypeError), match=words):
        fedmin.path(problem, world, **options)


def test_more_mistakes_are_named(world):
    with pytest.raises(ValueError, match=r"choose='bic' is for .* with Huber"):
        fedmin.path(fedmin.Huber(8), world, sizes=[1], choose="bic")
    with pytest.raises(ValueError, match="here columns are split"):
        fedmin.path(LeastSquares(8), over_columns(world), sizes=[1])
    x, y = rows_of(world)
    secret = Federation.from_parts(x, y, [range(40), range(40, 90)], weights="secret")
    with pytest.raises(ValueError, match="sizes are secret here: take choose='folds'"):
        fedmin.path(LeastSquares(8), secret, sizes=[1], choose="holdout")
    within = fedmin.over(LeastSquares(8), L0Ball(3))
    with pytest.raises(ValueError, match=r"is over L0Ball.* already; leave out set="):
        fedmin.path(within, world, sizes=[1], set=L0Ball)
    limited = fedmin.subject_to(LeastSquares(8), fedmin.RowMean(lambda x, rows: 0 * rows.y))
    with pytest.raises(ValueError, match="RowMean has no limit to change"):
        fedmin.path(limited, world, limits=[1.0])
    with pytest.raises(ValueError, match="constraint=1: the problem has 1, counted from 0"):
        fedmin.path(limited, world, limits=[1.0], constraint=1)
