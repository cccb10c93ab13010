"""What a certificate is made of: sums over all rows, of losses and of their gradients, and whose.

Whoever has all rows in one place finds them here (`measured_on`); between the halves of a run they
are an exchange.
"""

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core.federation import Federation
from fedmin.core.problem import Problem, stacked
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows, Shard
from fedmin.core.serialize import digest


class Measured(NamedTuple):
    """The sums that a certificate is made of, on which rows, and how they were found."""

    values: np.ndarray  # f[1 + M] means of all losses; of M of them where the objective is bare
    slopes: np.ndarray  # f[1 + M, d] their gradients
    dtype: str  # in which the model was looked at
    data: dict[str, Any]
    how: str

    def functions(self, problem: Problem, x: Any) -> tuple[Any, ...]:
        """F_0, grad F_0, F_1..M and their gradients f[M, d], as NumPy arrays."""
        values, slopes = self.values, self.slopes
        found = _regularizer(fluid(problem), jnp.asarray(x, self.dtype))
        value, slope = (np.asarray(a, float) for a in found)
        if not problem.bare:
            value, slope = value + values[0], slope + slopes[0]
        return value, slope, problem.limits_of(values), problem.limits_of(slopes)


FINGERPRINTS = "fingerprints"


def data_of(roster: Roster, digests: Sequence[str], keyed: bool = False) -> dict[str, Any]:
    """Which data, from what every client says of its own rows: a hash of them and of p_i.

    Where clients name their rows under secrets of their own (`keyed`), all that they said is kept:
    only a client itself can say later whether its rows are still those.
    """
    found: dict[str, Any] = {"features": roster.features, "clients": roster.clients}
    if keyed:
        found[FINGERPRINTS] = dict(zip(roster.names, digests, strict=True))
    else:
        shares = np.ascontiguousarray(roster.shares, np.float64)
        content = hashlib.sha256(shares.tobytes() + bytes.fromhex("".join(digests)))
        found["sha256"] = content.hexdigest()
    return found if roster.owners is None else {"rows": roster.owners.rows, **found}


def data_checksum(federation: Federation) -> dict[str, Any]:
    """The same of all rows in one place, and how many there are."""
    clients = range(federation.num_clients)
    digests = [digest(federation.client(i)) for i in clients]
    return {"rows": federation.pool.count, **data_of(federation.roster(), digests)}


def measured_on(problem: Problem, federation: Federation, x: Any) -> Measured:
    """The sums on all of a federation's rows, which are here in one place."""
    pool = federation.pool
    rows = pool.weighing(federation.measuring_weights())
    sums = _sums(fluid(problem), jnp.asarray(x, pool.x.dtype), rows)
    values, slopes = (np.asarray(a, float) for a in sums)
    data, dtype = data_checksum(federation), str(pool.x.dtype)
    return Measured(values, slopes, dtype, data, "on all rows in one place")


def objective_at(problem: Problem, federation: Federation, x: Any, gradient: bool = False) -> Any:
    """F(x) over all of a federation's rows; and its gradient, if asked for, without a penalty's."""
    pool = federation.pool
    at, whole = jnp.asarray(x, pool.x.dtype), fluid(problem)
    sums = _sums(whole, at, pool.weighing(federation.measuring_weights()))
    value, slope = (np.asarray(a, float) for a in _regularizer(whole, at))
    if not problem.bare:
        value, slope = (
            a + np.asarray(b, float)[0] for a, b in zip((value, slope), sums, strict=True)
        )
    value = value + float(problem.domain.value(at))
    return (float(value), slope) if gradient else float(value)


def fluid(problem: Problem) -> Problem:
    """Numbers as arrays, so that a new limit does not compile anew."""
    return jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, float) else a, problem)


@eqx.filter_jit
def _sums(problem: Problem, x, rows: Rows):
    values, slopes, weight = Shard.whole(rows).sum(partial(problem.sums, x), problem.window)
    return values / weight, stacked(slopes) / weight


@eqx.filter_jit
def _regularizer(problem: Problem, x):
    return jax.value_and_grad(problem.regularizer)(x)
