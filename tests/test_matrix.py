"""Dense and sparse rows against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fedmin
from fedmin.core.matrix import SparseRows

# few shapes, many contents: every new shape compiles anew
SHAPES = st.sampled_from([(1, 1), (1, 5), (4, 1), (7, 6)])
NUMBERS = st.one_of(st.just(0.0), st.floats(-4, 4, width=32))


@st.composite
def matrices(draw) -> np.ndarray:
    return draw(hnp.arrays(np.float64, draw(SHAPES), elements=NUMBERS))


@given(matrices(), st.sampled_from([0, 3]), st.integers(0, 2**32 - 1))
def test_products_are_scipys(a, columns, seed):
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((a.shape[1], columns) if columns else a.shape[1])
    r = rng.standard_normal((a.shape[0], columns) if columns else a.shape[0])
    csr = scipy.sparse.csr_matrix(a)
    for x in (fedmin.matrix(a), fedmin.matrix(csr)):
        assert x.shape == a.shape
        assert x.dtype == np.float64
        np.testing.assert_allclose(x @ jnp.asarray(w), csr @ w, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(x.T @ jnp.asarray(r), csr.T @ r, rtol=1e-10, atol=1e-10)


@given(matrices(), st.data())
def test_rows_are_handed_out(a, data):
    rows = data.draw(st.lists(st.integers(0, a.shape[0] - 1), min_size=3, max_size=3))
    size = data.draw(st.sampled_from([1, a.shape[0] // 2 + 1]))
    start = data.draw(st.integers(0, a.shape[0] - size))
    w = jnp.asarray(np.random.default_rng(0).standard_normal(a.shape[1]))
    for x in (fedmin.matrix(a), fedmin.matrix(scipy.sparse.csr_matrix(a))):
        x = jax.tree.map(jnp.asarray, x)
        taken = x.take(jnp.array(rows))
        np.testing.assert_allclose(taken @ w, a[rows] @ w, rtol=1e-10, atol=1e-10)
        window = x.window(start, size)
        assert window.shape == (size, a.shape[1])
        np.testing.assert_allclose(window @ w, a[start : start + size] @ w, rtol=1e-10, atol=1e-10)


@given(matrices())
def test_gradients_pass_through_sparse_products(a):
    w = jnp.asarray(np.random.default_rng(1).standard_normal(a.shape[1]))
    slopes = [
        jax.grad(lambda u, x=x: jnp.sum(jnp.sin(x @ u)))(w)
        for x in (fedmin.matrix(a), fedmin.matrix(scipy.sparse.csr_matrix(a)))
    ]
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-10, atol=1e-10)


def test_sparse_is_never_dense():
    """150,000 features a row: the layout holds the entries and nothing else."""
    csr = scipy.sparse.random(50, 150_000, density=20 / 150_000, format="csr", rng=0)
    x = fedmin.matrix(csr)
    assert isinstance(x, SparseRows)
    slots = np.diff(csr.indptr).max()
    assert x.values.shape == x.features.shape == (50, slots)
    w = np.random.default_rng(0).standard_normal(150_000)
    np.testing.assert_allclose(x @ jnp.asarray(w), csr @ w, rtol=1e-12)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil"])
def test_any_scipy_format(kind):
    a = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0], [0.0, 0.0, 0.0]])
    x = fedmin.matrix(scipy.sparse.coo_matrix(a).asformat(kind))
    np.testing.assert_array_equal(x @ jnp.eye(3), a)


def test_repeated_entries_add_up():
    csr = scipy.sparse.csr_matrix((np.array([1.0, 2.0, 5.0]), [1, 1, 0], [0, 2, 3]), (2, 2))
    np.testing.assert_array_equal(fedmin.matrix(csr) @ jnp.eye(2), csr.toarray())


def test_order_picks_rows():
    a = np.arange(12.0).reshape(4, 3) % 5
    order = np.array([3, 1, 1])
    for values in (a, scipy.sparse.csr_matrix(a)):
        x = fedmin.matrix(values, order)
        np.testing.assert_array_equal(x @ jnp.eye(3), a[order])


def test_types():
    for dtype in (np.float32, np.float64, np.uint8, bool):  # x64 is on in the tests
        assert fedmin.matrix(np.ones((2, 2), dtype)).dtype == np.float64
        csr = scipy.sparse.csr_matrix(np.ones((2, 2), dtype))
        assert fedmin.matrix(csr).dtype == np.float64
    x = fedmin.matrix(np.ones((2, 2)))
    assert fedmin.matrix(x) is x


def test_only_matrices():
    with pytest.raises(ValueError, match=r"matrix of rows and features, got shape \(3,\)"):
        fedmin.matrix(np.ones(3))
