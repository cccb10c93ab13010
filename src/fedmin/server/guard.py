"""A guard of a server's steps: one that raises the objective is undone and made shorter.

    client i    f_i at the model that it got, over all its rows
    server      F = mean f_i;   the model is kept if F <= lowest + rise (first - lowest)
                kept        the next step is made, its scale times `grow`
                not kept    x <- kept + shrink (x - kept), the scale times `shrink`

`first` is F where the run began, `lowest` the least that was kept. What is tolerated is measured by
what was gained, so that it depends on no unit and on no constant in F; and since it counts from the
lowest and not from the last, small rises do not add up. The model that is shown is the kept one.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedmin.core.schedule import Auto

ROUNDING = 10.0  # units in the last place of F that are no rise


class Watch(NamedTuple):
    """What the guard knows, beside the method's own state, whose model is the one being tried."""

    own: Any
    x: Array  # the model that was kept last
    value: Array  # F there
    first: Array
    lowest: Array
    eta: Array  # 1/L, 0 before it is known
    scale: Array  # of the steps, relative to 1/L
    undone: Array  # bool: clients go back to what they knew before the model that was not kept


def start(own: Any, x: Array) -> Watch:
    """Before round 0: nothing was measured."""
    zero, inf = jnp.zeros((), x.dtype), jnp.full((), jnp.inf, x.dtype)
    return Watch(own, jnp.array(x), inf, inf, inf, zero, jnp.ones((), x.dtype), jnp.array(False))


def keeps(rule: Auto, watch: Watch, value: Array, before: Array | None = None) -> Array:
    """Whether a model with this F may stay.

    `before` is F of the kept model as the same clients see it, where not all are there: it then
    takes the place of the lowest.

    >>> import jax.numpy as jnp
    >>> seen = start((), jnp.zeros(1))._replace(first=jnp.float32(1.0), lowest=jnp.float32(0.5))
    >>> [bool(keeps(Auto(rise=0.1), seen, jnp.float32(v))) for v in (0.4, 0.54, 0.56, jnp.nan)]
    [True, True, False, False]
    """
    lowest = watch.lowest if before is None else before
    rounding = ROUNDING * jnp.finfo(value.dtype).eps * jnp.abs(lowest)
    return value <= lowest + rule.rise * jnp.maximum(watch.first - watch.lowest, 0) + rounding


def finite(state: Any) -> Array:
    """Whether all numbers of a state are."""
    floats = [a for a in jax.tree.leaves(state) if jnp.issubdtype(a.dtype, jnp.inexact)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(a)) for a in floats]))


def pick(which: Array, these: Any, those: Any) -> Any:
    """These where `which`, else those, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(which, a, b), these, those)
