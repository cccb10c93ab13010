"""A federation's rows as the devices see them: all of them on every device.

On a CPU that costs nothing, since its devices read one array in place (it must lie at an aligned
address, which `fedmin.matrix` sees to): any device can then take any client.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from fedmin.core.federation import Federation
from fedmin.core.rows import Columns, Rows, Shard

AXIS = "clients"


class Data(eqx.Module):
    """The federation on the devices."""

    pool: Rows  # all clients' rows, one client after the other
    starts: Array  # i[N] where a client's rows (or columns) begin
    sizes: Array  # i[N]
    shares: Array  # f[N] p_i
    train: Rows  # the pool, with weights that make a sum over it F's mean
    test: Rows | None  # with weights that sum to one
    server_rows: Rows | None
    knows_labels: Array  # bool[N]


class Form(NamedTuple):
    """What all clients' views have in common, whatever they hold."""

    capacity: int
    even: bool  # see Shard
    width: int | None  # see Columns; None if rows are split

    @classmethod
    def of(cls, federation: Federation) -> "Form":
        """The form of this federation's views."""
        return cls(federation.capacity, federation.even, federation.width)

    def view(self, data: Data, i: Array | int) -> Shard | Columns:
        """Client i's rows, or its columns, in the common pool."""
        if self.width is not None:
            own = (data.starts[i], data.sizes[i], jnp.int32(i), data.knows_labels[i])
            return Columns(data.pool, *own, self.width)
        size = jnp.int32(self.capacity) if self.even else data.sizes[i]  # a constant folds away
        return Shard(data.pool, data.starts[i], size, self.capacity, self.even)


def mesh_of(devices: int) -> Mesh:
    """The first `devices` devices in a line."""
    return jax.make_mesh((devices,), (AXIS,), axis_types=(AxisType.Auto,))


def lay_out(federation: Federation, devices: int) -> Data:
    """Put the federation's data on the devices."""
    everywhere = NamedSharding(mesh_of(devices), P())
    return jax.tree.map(lambda a: jax.device_put(a, everywhere), bare(federation))


def bare(federation: Federation) -> Data:
    """The federation's data, not yet on any device."""
    pool, test = federation.pool, federation.test
    return Data(
        pool=pool,
        starts=_integers(federation.starts),
        sizes=_integers(federation.sizes),
        shares=federation.weights.astype(pool.weight.dtype),  # type: ignore[arg-type]
        train=Rows(pool.x, pool.y, federation.measuring_weights()),
        test=test and Rows(test.x, test.y, test.weight / test.weight.sum()),
        server_rows=federation.server_rows,
        knows_labels=federation.knows_labels,  # type: ignore[arg-type]
    )


def _integers(a: np.ndarray) -> Any:
    return a.astype(np.int32)


def alone(federation: Federation, i: int) -> Shard | Columns:
    """What client i holds and nothing else, padded so that all clients share one program."""
    return _shard(federation, i) if federation.width is None else _columns(federation, i)


def _columns(federation: Federation, i: int) -> Columns:
    """Client i's own columns, and the labels only if it knows them."""
    first, count, width = federation.starts[i], federation.sizes[i], federation.width
    own = federation.client(i)
    x = federation.pool.x.columns(first, count, width or 0)
    number, labeled = jnp.int32, jnp.asarray(federation.knows_labels[i])
    pool = jax.tree.map(jnp.asarray, Rows(x, own.y, own.weight))
    return Columns(pool, number(0), number(count), number(i), labeled, width or 0)


def _shard(federation: Federation, i: int) -> Shard:
    """Client i's own rows and nothing else, padded so that all clients share one program."""
    own = federation.client(i)
    missing = federation.capacity - own.count

    def pad(a):
        return jnp.asarray(np.concatenate([a, np.zeros((missing, *a.shape[1:]), a.dtype)]))

    rows: Rows = jax.tree.map(pad, own)
    number = jnp.int32
    return Shard(rows, number(0), number(own.count), federation.capacity, federation.even)
