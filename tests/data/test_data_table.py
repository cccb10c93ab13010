"""Tables: what they refuse, and scaling against scikit-learn."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import preprocessing

from fedmin.data import Table, hold_out, load

RNG = np.random.default_rng(0)
DENSE = RNG.normal(3.0, 2.0, (30, 5)).astype(np.float32)
SPARSE = sp.random_array((40, 12), density=0.3, rng=1, format="csr", dtype=np.float32)


def with_test_rows(x, name="made"):
    return Table(name, x[:20], test=Table(name, x[20:]))


@pytest.mark.parametrize("hole", [np.nan, np.inf, -np.inf])
def test_non_finite_entries_are_named(hole):
    x = DENSE.copy()
    x[4, 2] = hole
    x[7, 0] = np.nan
    with pytest.raises(ValueError, match=r"made: x holds -?(nan|inf) in row 4, column 2"):
        Table("made", x)
    with pytest.raises(ValueError, match=r"made: x holds -?(nan|inf) in row 4, column 2"):
        Table("made", sp.csr_matrix(x))


def test_large_finite_entries_are_fine():
    assert Table("made", np.full((2, 2), 3e38)).rows == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": np.ones(3)}, r"x has shape \(3,\); it must be \[rows, features\]"),
        ({"x": np.ones((0, 3))}, "needs a row and a feature"),
        ({"x": [["a"]]}, "not a matrix of numbers"),
        ({"y": [0, 1]}, r"y has shape \(2,\); 3 rows need \(3,\)"),
        ({"y": [0, 1, 2], "classes": 2}, "label 2 in row 2 is out of range; labels must be 0..1"),
        ({"y": [0, -1, 1], "classes": 2}, "label -1 in row 1"),
        ({"y": [0, 0.5, 1], "classes": 2}, "label 0.5 in row 1"),
        ({"y": ["a", "b", "c"], "classes": 3}, "must be integers"),
        ({"y": [0, 1, np.nan]}, "y holds nan in row 2"),
        ({"y": [0, 1, 1], "classes": 0}, "classes=0"),
        ({"ids": ["a"]}, r"ids has shape \(1,\)"),
        ({"feature_names": ("a",)}, "1 feature names for 4 columns"),
        ({"image_shape": (2, 3, 1)}, "does not hold 4 features"),
        ({"columns": {"guest": [0, 1], "host": [1, 2, 3]}}, "exactly one owner"),
        ({"test": Table("t", np.ones((1, 5)))}, "test rows have 5 features"),
        ({"test": Table("t", np.ones((1, 4)), [0], classes=2)}, "classes=2"),
    ],
)
def test_bad_input_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
        Table("made", **{"x": np.ones((3, 4)), **fields})


def test_dtypes_and_shapes():
    table = Table("made", DENSE.astype(np.float64), np.arange(30) % 3, classes=3)
    assert table.x.dtype == np.float32
    assert table.y.dtype == np.int32
    assert Table("made", DENSE, np.arange(30)).y.dtype == np.float32
    assert Table("made", SPARSE).x.format == "csr"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda t: t.standardized(), preprocessing.StandardScaler()),
        (lambda t: t.scaled("max"), preprocessing.MaxAbsScaler()),
        (lambda t: t.scaled("minmax"), preprocessing.MinMaxScaler()),
        (lambda t: t.scaled("rows"), preprocessing.Normalizer()),
    ],
)
def test_dense_scaling_is_sklearns(ours, theirs):
    x = np.concatenate([DENSE, np.full((30, 1), 0.25, np.float32)], axis=1)  # a constant column
    got = ours(with_test_rows(x))
    theirs.fit(x[:20])
    np.testing.assert_allclose(got.x, theirs.transform(x[:20]), rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(got.test.x, theirs.transform(x[20:]), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda t: t.standardized(), preprocessing.StandardScaler(with_mean=False)),
        (lambda t: t.scaled("max"), preprocessing.MaxAbsScaler()),
        (lambda t: t.scaled("rows"), preprocessing.Normalizer()),
    ],
)
def test_sparse_scaling_is_sklearns_and_stays_sparse(ours, theirs):
    got = ours(with_test_rows(SPARSE))
    theirs.fit(SPARSE[:20])
    assert got.sparse
    assert got.test.sparse
    want = theirs.transform(SPARSE[20:]).toarray()
    np.testing.assert_allclose(got.test.x.toarray(), want, rtol=2e-5, atol=1e-6)


def test_sparse_minmax_is_refused():
    with pytest.raises(ValueError, match="would make it dense"):
        Table("made", SPARSE).scaled("minmax")
    with pytest.raises(ValueError, match="'max', 'minmax' or 'rows'"):
        Table("made", DENSE).scaled("median")


def test_subset_merged_binary_images():
    table = load("digits")
    some = table.subset([5, 3])
    np.testing.assert_array_equal(some.x, table.x[[5, 3]])
    np.testing.assert_array_equal(some.y, table.y[[5, 3]])
    assert some.test is table.test
    mask = table.y == 4
    assert table.subset(mask).rows == mask.sum()
    with pytest.raises(ValueError, match="out of range"):
        table.subset([table.rows])
    whole = table.merged()
    assert (whole.rows, whole.test) == (1797, None)
    two = table.binary(positive=[1, 3])
    np.testing.assert_array_equal(two.y == 1, np.isin(table.y, [1, 3]))
    np.testing.assert_array_equal(two.test.y == 1, np.isin(table.test.y, [1, 3]))
    with pytest.raises(ValueError, match=r"labels are 0\.\.9"):
        table.binary(positive=10)
    with pytest.raises(ValueError, match="not classification"):
        load("diabetes").binary(positive=1)
    assert table.images.shape == (1438, 8, 8, 1)
    with pytest.raises(ValueError, match="not images"):
        _ = load("wine").images


def test_hold_out_is_stratified_and_repeatable():
    whole = load("digits", test_fraction=0)
    parted = hold_out(whole, 0.25)
    again = hold_out(whole, 0.25)
    np.testing.assert_array_equal(parted.test.x, again.test.x)
    counts, held = np.bincount(whole.y), np.bincount(parted.test.y)
    assert (np.abs(held - counts * 0.25) <= 1).all()
    assert parted.rows + parted.test.rows == whole.rows
    for fraction, message in ((1.0, r"\[0, 1\)"), (-0.1, r"\[0, 1\)"), (1e-9, "no test rows")):
        with pytest.raises(ValueError, match=message):
            hold_out(whole, fraction)
    with pytest.raises(ValueError, match="test rows already"):
        hold_out(parted, 0.1)


@pytest.mark.parametrize("value", [0.1, 1e3 / 3, 1e-8, -7.7])
def test_constant_columns_are_not_blown_up(value):
    x = np.concatenate([DENSE, np.full((30, 1), value, np.float32)], axis=1)
    assert np.abs(Table("made", x).standardized().x[:, -1]).max() < 1e-4 * max(1.0, abs(value))
    kept = Table("made", sp.csr_matrix(x)).standardized().x.toarray()[:, -1]
    np.testing.assert_allclose(kept, value, rtol=1e-6)


def test_duplicate_entries_are_summed_and_the_callers_matrix_left_alone():
    given = sp.csr_matrix((np.ones(3, np.float32), [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    assert Table("made", given).x.toarray().tolist() == [[0, 2], [1, 0]]
    assert given.nnz == 3
