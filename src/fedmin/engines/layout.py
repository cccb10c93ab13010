"""A federation's rows as the devices see them: all of them on every device.

On a CPU that costs nothing, since its devices read one array in place (it must lie at an aligned
address, which `fedmin.matrix` sees to): any device can then take any client.
"""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from fedmin.federation import Federation
from fedmin.rows import Rows

AXIS = "clients"


class Data(eqx.Module):
    """The federation on the devices."""

    pool: Rows  # all clients' rows, one client after the other
    starts: Array  # i[N] where a client's rows begin
    sizes: Array  # i[N]
    shares: Array  # f[N] p_i
    train: Rows  # the pool, with weights that make a sum over it F's mean
    test: Rows | None  # with weights that sum to one
    server_rows: Rows | None


def mesh_of(devices: int) -> Mesh:
    """The first `devices` devices in a line."""
    return jax.make_mesh((devices,), (AXIS,), axis_types=(AxisType.Auto,))


def lay_out(federation: Federation, devices: int) -> Data:
    """Put the federation's data on the devices."""
    pool, test = federation.pool, federation.test
    data = Data(
        pool=pool,
        starts=_integers(federation.starts),
        sizes=_integers(federation.sizes),
        shares=federation.weights.astype(pool.weight.dtype),  # type: ignore[arg-type]
        train=Rows(pool.x, pool.y, federation.measuring_weights()),
        test=test and Rows(test.x, test.y, test.weight / test.weight.sum()),
        server_rows=federation.server_rows,
    )
    everywhere = NamedSharding(mesh_of(devices), P())
    return jax.tree.map(lambda a: jax.device_put(a, everywhere), data)


def _integers(a: np.ndarray) -> Any:
    return a.astype(np.int32)
