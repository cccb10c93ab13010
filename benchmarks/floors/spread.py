"""What the hand-written floors share: rounds in one compiled loop, clients spread over the cores.

XLA runs a compiled loop on one core of a CPU device, so JAX is given one device a core and each
takes its share of the round's clients. The data are not cut: an aligned NumPy array is used in
place by all devices, so any client can go anywhere and the shares are equal.
"""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

OPTIONS = {"xla_cpu_multi_thread_eigen": False}


def devices() -> int:
    """One JAX device a core; before JAX starts."""
    cores = len(os.sched_getaffinity(0))
    jax.config.update("jax_num_cpu_devices", cores)
    return cores


def orders(key, ids, blocks: int, steps: int):
    """i[len(ids), steps]: the first blocks of a random order, a new one for each pass."""
    passes = -(-steps // blocks)

    def one(i):
        bits = jax.random.bits(jax.random.fold_in(key, i), (passes, blocks))
        return jnp.argsort(bits, axis=1).reshape(-1)[:steps]

    return jax.vmap(one)(ids)


def mean_update(client, w, ids, order, cohort: int):
    """The mean over all devices of client(w, id, order) - w, clients one after the other."""

    def add(total, one):
        update = jax.tree.map(jnp.subtract, client(w, *one), w)
        return jax.tree.map(jnp.add, total, update), None

    total = lax.scan(add, jax.tree.map(jnp.zeros_like, w), (ids, order))[0]
    return jax.tree.map(lambda a: a / cohort, lax.psum(total, "c"))


def my_share(ids):
    """This device's part of the round's clients."""
    share = len(ids) // lax.axis_size("c")
    return lax.dynamic_slice_in_dim(ids, lax.axis_index("c") * share, share)


def compile_rounds(round, start, pool, options=OPTIONS):
    """Compile `round(w, pool, key) -> w`: a function that runs so many rounds, and what it took."""
    mesh = jax.make_mesh((jax.device_count(),), ("c",), axis_types=(AxisType.Auto,))
    start, pool, key = jax.device_put((start, pool, jax.random.key(0)), NamedSharding(mesh, P()))

    def many(w, pool, key, count):
        return lax.fori_loop(0, count, lambda t, w: round(w, pool, jax.random.fold_in(key, t)), w)

    spread = jax.shard_map(many, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    clock = time.perf_counter()
    program = jax.jit(spread).lower(start, pool, key, np.int32(1)).compile(options)
    compiled = time.perf_counter() - clock

    def advance(rounds):
        return jax.block_until_ready(program(start, pool, key, np.int32(rounds)))

    return advance, compiled


def timed(floor, rounds: int, scale: float, repeats: int = 3) -> dict:
    """Compile a floor's `prepare(scale)`, warm up, and time so many of its rounds."""
    devices()
    advance, compiled = compile_rounds(*floor(scale))
    advance(1)
    times = []
    for _ in range(repeats):
        clock = time.perf_counter()
        advance(rounds)
        times.append(time.perf_counter() - clock)
    return {
        "rounds_per_second": rounds / min(times),
        "compile_seconds": compiled,
        "seconds": times,
        "devices": jax.device_count(),
    }
