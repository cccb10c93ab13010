"""A federation's rows as the devices see them: all of them on every device.

On a CPU that costs nothing, since its devices read one array in place (it must lie at an aligned
address, which `fedmin.core.matrix` sees to): any device can then take any client.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from fedmin.core.federation import Federation
from fedmin.core.roster import Roster
from fedmin.core.rows import Columns, Rows, Shard

AXIS = "clients"


class Data(eqx.Module):
    """The federation on the devices."""

    pool: Rows  # all clients' rows, one client after the other
    starts: Array  # i[N] where a client's rows (or columns) begin
    sizes: Array  # i[N]
    train: Rows  # the pool, with weights that make the mean over it F's
    test: Rows | None
    server_rows: Rows | None
    knows_labels: Array  # bool[N]
    counted: Array  # f[N] p_i; f[N, 2] where sizes are not told
    roster: Roster  # without names

    def view(self, i: Array | int) -> Shard | Columns:
        """Client i's rows, or its columns, in the common pool."""
        capacity, even, width = self.roster.capacity, self.roster.even, self.roster.width
        if width is not None:
            own = (self.starts[i], self.sizes[i], jnp.int32(i), self.knows_labels[i])
            return Columns(self.pool, *own, width)
        size = jnp.int32(capacity) if even else self.sizes[i]  # a constant folds away
        return Shard(self.pool, self.starts[i], size, capacity, even)


def mesh_of(devices: int) -> Mesh:
    """The first `devices` devices in a line."""
    return jax.make_mesh((devices,), (AXIS,), axis_types=(AxisType.Auto,))


def lay_out(federation: Federation, roster: Roster, devices: int) -> Data:
    """Put the federation's data on the devices."""
    everywhere = NamedSharding(mesh_of(devices), P())
    return jax.tree.map(lambda a: jax.device_put(a, everywhere), _bare(federation, roster))


def _bare(federation: Federation, roster: Roster) -> Data:
    """The federation's data, not yet on any device."""
    pool, test = federation.pool, federation.test
    train = pool.weighing(federation.measuring_weights())
    if federation.split == "rows":  # what is not read is not in the program either
        train = train.of_site(np.repeat(np.arange(federation.num_clients), federation.sizes))
    return Data(
        pool=pool,
        starts=_integers(federation.starts),
        sizes=_integers(federation.sizes),
        train=train,
        test=test,
        server_rows=federation.server_rows,
        knows_labels=federation.knows_labels,  # type: ignore[arg-type]
        counted=_counted(federation, roster),
        roster=roster.unnamed(),
    )


def _counted(federation: Federation, roster: Roster) -> Any:
    """What each client's replies are multiplied by."""
    if roster.sizes_told:
        return roster.shares
    return np.stack([roster.counted(i, federation.client(i)) for i in range(roster.clients)])


def _integers(a: np.ndarray) -> Any:
    return a.astype(np.int32)
