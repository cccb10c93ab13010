"""Compact forms: each stands for one array, and sums of them are sums of those."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedmin

SIZE = 16


def sparse(rng):
    indices = jnp.asarray(rng.integers(0, SIZE, 3), jnp.int32)
    return fedmin.Sparse(indices, jnp.asarray(rng.standard_normal(3)), SIZE)


def low_rank(rng):
    return fedmin.LowRank(*(jnp.asarray(rng.standard_normal((n, 1))) for n in (8, 2)))


def eigenpairs(rng):
    return fedmin.Eigenpairs(*(jnp.asarray(rng.standard_normal(s)) for s in ((4, 2), 2)))


def signs(rng):
    return fedmin.Signs.of(jnp.asarray(rng.random(SIZE) < 0.5), *rng.standard_normal(2))


def block(rng):
    start = jnp.asarray(rng.integers(0, SIZE - 4), jnp.int32)
    return fedmin.Block(start, jnp.asarray(rng.standard_normal(4)), SIZE)


def joined(rng):
    one = fedmin.Sparse(jnp.array([2], jnp.int32), jnp.asarray(rng.standard_normal(1)), SIZE - 3)
    return fedmin.Concatenated((one, jnp.asarray(rng.standard_normal(3))))


@pytest.mark.parametrize("make", [block, joined, sparse, low_rank, eigenpairs, signs])
def test_a_compact_form_is_the_array_it_stands_for(make):
    rng = np.random.default_rng(0)
    some = [make(rng) for _ in range(3)]
    arrays = [np.asarray(one.dense()) for one in some]
    assert arrays[0].shape == (SIZE,)
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *some)
    np.testing.assert_allclose(stack.total(), sum(arrays), rtol=1e-12)
    np.testing.assert_allclose(some[0].scaled(-3.0).dense(), -3.0 * arrays[0], rtol=1e-12)
    g = rng.standard_normal(SIZE)
    np.testing.assert_allclose(some[0].inner(jnp.asarray(g)), g @ arrays[0], rtol=1e-12)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(some[0])) < some[0].dense().nbytes
