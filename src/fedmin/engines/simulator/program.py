"""The simulator's compiled programs: many rounds in one loop, and what is recorded inside of it.

segment     the compiled loop runs up to SEGMENT rounds (one_round.py), records inside, and returns
            to Python so that progress can be shown; its length is an argument, not a constant
"""

from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec as P

from fedmin.engines import measuring
from fedmin.engines.compiled import PROGRAMS, form_of
from fedmin.engines.drive import Segment
from fedmin.engines.round import (
    NOBODY,
    SERVER,
    THE_SUM,
    Run,
    ServerState,
    SiteState,
    State,
    looking,
    start_key,
)
from fedmin.engines.sessions.wire import EVALUATION
from fedmin.engines.simulator.layout import AXIS, Data, mesh_of
from fedmin.engines.simulator.one_round import (
    ProgramSpec,
    Shapes,
    add_devices,
    device_of,
    here_of,
    round_of,
    trip_of,
    with_trips,
)

SEGMENT = 512


# ---------------------------------------------------------------- what is recorded


def _measure(
    spec: ProgramSpec, shapes: Shapes, run: Run, data: Data, server: ServerState, t, key
) -> Array:
    x = run.method.solution(server.method)
    sums: dict[int, Any] = {}
    for on, rows in (("train", data.train), ("test", data.test)):
        if rows is not None and any(metric.on == on for metric in run.record):
            found = measuring.rows_sums(run, x, on, rows, device_of(spec), spec.devices)
            sums |= measuring.rows_means(run, on, add_devices(spec, found))
    if run.channel.for_evaluation() is not None and data.roster.owners is None:
        sums.update(_by_channel(spec, shapes, run, data, x, t, key))
    return measuring.finished(run, server, sums)


def _by_channel(
    spec: ProgramSpec, shapes: Shapes, run: Run, data: Data, x: Array, t, key
) -> dict[int, Any]:
    """The sums over the clients' rows as a channel brings them, which may round them."""
    looks = measuring.evaluation(run, data.roster)
    if not looks.trips:  # nothing of the clients' rows is recorded
        return {}
    population, (form,) = data.roster.clients, with_trips(shapes.evaluation, looks.trips)
    up = {"sums": looks.blank.sums}
    sites = SiteState((), (looks.channel.init(up),))
    server = ServerState(looks.start(x), (looks.channel.init_server(up),), {})
    ids = jnp.arange(population, dtype=jnp.int32)
    here = here_of(spec, population, ids, jnp.ones(population, bool))
    state, culprit = trip_of(
        spec, looking(run), form, 0, data, State(server, sites), here, t, key, [], EVALUATION
    )
    sums = looks.sums(state.server.method)
    lost = jnp.where(culprit == NOBODY, 0, jnp.nan)  # whole numbers cannot say so
    return jax.tree.map(lambda a: a + lost.astype(a.dtype), sums)


# ---------------------------------------------------------------- many rounds


def _segment(
    spec: ProgramSpec, shapes: Shapes, run: Run, data: Data, state: State, key, t0, length, every,
    last,
):  # fmt: skip
    """`length` rounds from round t0 on, measured every `every` rounds and after the last."""
    measure = partial(_measure, spec, shapes, run, data)
    like = jax.ShapeDtypeStruct((len(spec.names),), shapes.model.dtype)
    number = jnp.zeros((), jnp.int32)
    log = Segment(
        values=jnp.zeros((SEGMENT, *like.shape), like.dtype),
        at=jnp.zeros(SEGMENT, jnp.int32),
        recorded=number,
        counts=jnp.zeros(SEGMENT, jnp.int32),
        ran=number,
        fault=jnp.full(2, NOBODY, jnp.int32),
        stopped=jnp.zeros((), bool),
    )

    def going(carry):
        i, _, log = carry
        in_time = i < length
        return in_time if spec.batched else in_time & (log.fault[0] == NOBODY) & ~log.stopped

    def advance(carry):
        i, state, log = carry
        t = t0 + i
        state, count, culprit = round_of(spec, shapes.training, run, data, state, t, key)
        due = ((t + 1) % every == 0) | (t + 1 == last)
        server = state.server
        nothing = lambda *_: jnp.zeros(like.shape, like.dtype)
        values = lax.cond(due, measure, nothing, server, t + 1, key)
        if server.best is not None:
            new = measuring.best_of(run, spec.names, server.best, server, values, t + 1)
            best = jax.tree.map(lambda a, b: jnp.where(due, a, b), new, server.best)
            server = ServerState(server.method, server.channel, server.info, best)
        lost = due & measuring.is_lost(spec.names, values)
        culprit = jnp.where(lost, jnp.minimum(culprit, THE_SUM), culprit)
        first = (log.fault[0] == NOBODY) & (culprit != NOBODY)
        stopped = log.stopped
        if run.stop is not None:
            stopped = stopped | (due & run.stop(spec.names, values))
        log = Segment(
            values=log.values.at[log.recorded].set(values),
            at=log.at.at[log.recorded].set(t + 1),
            recorded=log.recorded + due.astype(jnp.int32),
            counts=log.counts.at[i].set(count),
            ran=i + 1,
            fault=jnp.where(first, jnp.stack([t.astype(jnp.int32), culprit]), log.fault),
            stopped=stopped,
        )
        return i + 1, State(server, state.sites), log

    _, state, log = lax.while_loop(going, advance, (number, state, log))
    return state, log


def _begin(
    spec: ProgramSpec, shapes: Shapes, run: Run, data: Data, key: Array
) -> tuple[State, Array]:
    """The state before round 0, and what is measured there."""
    roster = data.roster
    method = run.method.init_server(run.origin, roster, start_key(key, SERVER))
    share = spec.share(roster.clients)
    first = device_of(spec) * share

    def client(mine):
        i = jnp.minimum(first + mine, roster.clients - 1)  # the last device may have fewer
        return run.method.init_client(run.origin, roster, data.view(i), start_key(key, i))

    clients = lax.map(client, jnp.arange(share, dtype=jnp.int32))
    memory = tuple(
        jax.tree.map(lambda a: jnp.zeros((share, *a.shape), a.dtype), form.memory)
        for form in shapes.training
    )
    kept = tuple(
        jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), form.server_memory)
        for form in shapes.training
    )
    info = {name: jnp.zeros(a.shape, a.dtype) for name, a in shapes.info.items()}
    server = ServerState(method, kept, info)
    values = _measure(spec, shapes, run, data, server, jnp.zeros((), jnp.int32), key)
    best = measuring.best_of(run, spec.names, None, server, values, 0)
    server = ServerState(method, kept, info, jax.tree.map(jnp.array, best))
    return State(server, SiteState(clients, memory)), values


# ---------------------------------------------------------------- compiled programs


def programs(spec: ProgramSpec, shapes: Shapes, run: Run, data: Data):
    """The compiled `_begin` and `_segment` for such a run on such data."""
    return PROGRAMS.get((spec, form_of(run, data)), lambda: _compiled(spec, shapes))


def _compiled(spec: ProgramSpec, shapes: Shapes):
    begin, segment = partial(_begin, spec, shapes), partial(_segment, spec, shapes)
    if spec.batched:
        one = cast(Any, Run)(None, 0, None, None, None, None)
        begin = jax.vmap(begin, (one, None, 0))
        segment = jax.vmap(segment, (one, None, 0, 0, None, None, None, None))
    if spec.devices > 1:
        along = P(None, AXIS) if spec.batched else P(AXIS)
        states = cast(Any, State)(P(), along)
        cut = partial(jax.shard_map, mesh=mesh_of(spec.devices), check_vma=False)
        begin = cut(begin, in_specs=(P(), P(), P()), out_specs=(states, P()))
        ins = (P(), P(), states, P(), P(), P(), P(), P())
        segment = cut(segment, in_specs=ins, out_specs=(states, P()))
    options = {"xla_cpu_multi_thread_eigen": False} if spec.devices > 1 and _on_cpu() else None
    return (
        jax.jit(begin, compiler_options=options),
        jax.jit(segment, donate_argnums=2, compiler_options=options),
    )


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"
