"""A federation's rows over devices: each holds its own clients' and a share of the test rows."""

from typing import Any, cast

import equinox as eqx
import jax
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from fedmin.engines.rounds import Measured
from fedmin.federation import Federation
from fedmin.rows import Rows

AXIS = "clients"


class Data(eqx.Module):
    """The federation as the devices hold it; leading axes are cut over the devices."""

    pool: Rows  # a device's clients' rows, one after the other
    starts: Array  # i[devices * share]
    sizes: Array
    shares: Array  # f[N], p_i of all clients, on every device
    train: Measured
    test: Measured | None
    server_rows: Rows | None


_OWN, _SAME = cast(Any, P(AXIS)), cast(Any, P())
SPECS = Data(_OWN, _OWN, _OWN, _SAME, _OWN, _OWN, _SAME)


def mesh_of(devices: int) -> Mesh:
    """The first `devices` devices in a line."""
    return jax.make_mesh((devices,), (AXIS,), axis_types=(AxisType.Auto,))


def lay_out(federation: Federation, devices: int) -> Data:
    """The federation's rows on the devices, each with its own clients'."""
    share = -(-federation.num_clients // devices)
    groups = [
        range(d * share, min((d + 1) * share, federation.num_clients)) for d in range(devices)
    ]
    starts, sizes = (np.zeros((devices, share), np.int32) for _ in range(2))
    bounds = []
    for d, group in enumerate(groups):
        begin = int(federation.starts[group[0]]) if len(group) else 0
        end = begin + int(federation.sizes[list(group)].sum()) if len(group) else 0
        bounds.append((begin, end))
        starts[d, : len(group)] = federation.starts[list(group)] - begin
        sizes[d, : len(group)] = federation.sizes[list(group)]
    pool = _cut(federation.pool, bounds)
    counts = np.array([end - begin for begin, end in bounds], np.int32)
    weight = _cut_array(_measuring_weights(federation), bounds)
    train = Measured(Rows(pool.x, pool.y, weight), _put(counts, devices))
    test = None
    if federation.test is not None:
        rows = federation.test
        edges = np.linspace(0, rows.count, devices + 1).astype(int)
        parts = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
        even = Rows(rows.x, rows.y, rows.weight / rows.weight.sum())
        test = Measured(_cut(even, parts), _put(np.diff(edges).astype(np.int32), devices))
    server_rows = None
    if federation.server_rows is not None:
        server_rows = jax.tree.map(lambda a: _put(a, devices, P()), federation.server_rows)
    return Data(
        pool=pool,
        starts=_put(starts.reshape(-1), devices),
        sizes=_put(sizes.reshape(-1), devices),
        shares=_put(federation.weights.astype(pool.weight.dtype), devices, P()),
        train=train,
        test=test,
        server_rows=server_rows,
    )


def _measuring_weights(federation: Federation) -> Any:
    """A weight a row, so that the weighted sum over all rows is sum_i p_i mean_i."""
    weight = federation.pool.weight
    owner = np.repeat(np.arange(federation.num_clients), federation.sizes)
    held = np.bincount(owner, weight, federation.num_clients)
    return (weight * (federation.weights / held)[owner]).astype(weight.dtype)


def _cut(rows: Rows, bounds: list[tuple[int, int]]) -> Rows:
    return jax.tree.map(lambda a: _cut_array(a, bounds), rows)


def _cut_array(a: Any, bounds: list[tuple[int, int]]) -> Array:
    """Each device its own stretch of the leading axis, padded with zeros to equal lengths."""
    if len(bounds) == 1:
        return jax.device_put(a)  # in place, where the array lies at a good address
    length = max(end - begin for begin, end in bounds)
    mesh = mesh_of(len(bounds))
    pieces = []
    for (begin, end), device in zip(bounds, mesh.devices.flat, strict=True):
        piece = a[begin:end]
        if len(piece) < length:
            piece = np.concatenate([piece, np.zeros((length - len(piece), *a.shape[1:]), a.dtype)])
        pieces.append(jax.device_put(piece, device))
    shape = (length * len(bounds), *a.shape[1:])
    return jax.make_array_from_single_device_arrays(shape, NamedSharding(mesh, P(AXIS)), pieces)


def _put(a: np.ndarray, devices: int, spec: Any = P(AXIS)) -> Array:
    return (
        jax.device_put(a)
        if devices == 1
        else jax.device_put(a, NamedSharding(mesh_of(devices), spec))
    )
