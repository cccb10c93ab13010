"""What the compiled loops over clients carry along: written in place, masked, looked at again."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.core import payload


def again_if_bad(everyone, like):
    """everyone(check=False), and if what it combined is not finite everyone(check=True).

    One loop that is left after its first turn, so that the clients' work is compiled once.
    """

    def bad(carry):
        turn, found = carry
        return (turn == 0) | ((turn == 1) & ~payload.all_finite(found[0]))

    def advance(carry):
        turn, _ = carry
        return turn + 1, everyone(turn == 1)

    return lax.while_loop(bad, advance, (jnp.zeros((), jnp.int32), like))[1]


def write(tree: Any, at: Array, new: Any) -> Any:
    """New entries at these places of the leading axis; a place beyond its end is left out."""

    def put(a, b):
        if len(at) == 1:  # always there: a copy in place, where a scatter would loop
            return lax.dynamic_update_slice_in_dim(a, b, at[0], 0)
        return a.at[at].set(b, mode="drop")

    return jax.tree.map(put, tree, new)


def mask(there: Array, a: Array) -> Array:
    return jnp.where(there.reshape(-1, *(1,) * (a.ndim - 1)), a, jnp.zeros((), a.dtype))
