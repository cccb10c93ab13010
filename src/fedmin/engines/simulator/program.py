"""The simulator's compiled programs: many rounds in one loop, clients spread over the devices.

devices     each takes its part of the round's clients, one sum a round joins them. Clients
            without memory are dealt out evenly; the others stay with the device that holds
            their state. A CPU has one device a core (engines/devices.py).
chunk       how many clients a device computes at a time: 1 reads a client's rows in place, more
            are batched by vmap
segment     the compiled loop runs up to SEGMENT rounds, records inside, and returns to Python so
            that progress can be shown; its length is an argument, not a constant
"""

from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec as P

from fedmin.core import payload
from fedmin.core.channel import Cohort
from fedmin.core.method import Exchange, Now, Relay
from fedmin.engines import measuring
from fedmin.engines.compiled import PROGRAMS, form_of
from fedmin.engines.drive import Segment
from fedmin.engines.messages import info_of, training_of
from fedmin.engines.round import (
    COHORT,
    NOBODY,
    SERVER,
    THE_SUM,
    Notice,
    Run,
    ServerState,
    SiteState,
    State,
    combine,
    combined_zeros,
    delivered,
    key_of,
    known,
    looking,
    now_of,
    server_part,
    site_part,
    start_key,
)
from fedmin.engines.sessions.wire import EVALUATION
from fedmin.engines.simulator.in_place import again_if_bad, mask, write
from fedmin.engines.simulator.layout import AXIS, Data, mesh_of

SEGMENT = 512


class ProgramSpec(NamedTuple):
    """What a program is compiled for, besides shapes."""

    devices: int
    chunk: int
    names: tuple[str, ...]  # of what is recorded
    owned: bool  # clients have states, which lie with one device each
    batched: bool  # many runs at once, along a leading axis of method, key and state

    def share(self, population: int) -> int:
        """Clients a device."""
        return -(-population // self.devices)


class Here(NamedTuple):
    """A trip's clients, and which of them this device computes."""

    ids: Array  # i[k]
    present: Array  # bool[k]
    slots: Array  # i[..] places in ids of those that are computed here
    size: Array  # i[] how many those are


# ---------------------------------------------------------------- one device's view of a round


def _me(spec: ProgramSpec) -> Array:
    return lax.axis_index(AXIS) if spec.devices > 1 else jnp.zeros((), jnp.int32)


def _add_devices(spec: ProgramSpec, tree: Any) -> Any:
    return lax.psum(tree, AXIS) if spec.devices > 1 else tree


def _ask(
    spec: ProgramSpec, run: Run, trip, e: int, data: Data, sites: SiteState, here: Here, t, key,
    notices, first_trip: int = 0,
):  # fmt: skip
    """This device's clients' parts: replies combined, states, memory, and who is at fault."""
    ids, population = here.ids, data.roster.clients
    share = spec.share(population)
    first = _me(spec) * share
    # all at once, outside of the loop; in a simulation secrets too come from the seed
    nows: Now = jax.vmap(lambda i: now_of(key, key, t, first_trip + e, i))(ids)

    # a client is asked once: what it holds is read from before the loop and written beside it. Read
    # from what is written, its parts go into several kernels, and all states are copied a client
    before = sites.client, sites.memory[e]

    def client(slot, check):
        i = ids[slot]
        held, kept = jax.tree.map(lambda a: a[i - first], before)
        now = Now(t, nows.key[slot], nows.secret[slot])
        return site_part(
            run, run.channel, trip, data.view(i), held, kept, known(trip, notices, i),
            data.roster.shares[i], now, check,
        )  # fmt: skip

    sent = jax.eval_shape(client, here.slots[0], here.size > 0)[0]
    zeros = combined_zeros(run.channel, trip, sent, len(ids))

    def group(check, j, carry):
        combined, clients, memory, culprit = carry
        places = j * spec.chunk + jnp.arange(spec.chunk, dtype=jnp.int32)
        there = places < here.size
        slot = here.slots[places]
        if spec.chunk == 1:
            one = client(slot[0], check)
            wires, held, kept, fine = jax.tree.map(lambda a: a[None], one)
        else:
            wires, held, kept, fine = jax.vmap(client, (0, None))(slot, check)
            wires = jax.tree.map(partial(mask, there), wires)
        mine = jnp.where(there, ids[slot] - first, share)
        clients, memory = write((clients, memory), mine, (held, kept))
        culprit = jnp.minimum(culprit, jnp.min(jnp.where(fine | ~there, NOBODY, ids[slot])))
        if trip.reduce == "sum":
            combined = jax.tree.map(jnp.add, combined, combine(run.channel, trip, wires))
        else:
            combined = write(combined, jnp.where(there, slot, len(ids)), wires)
        return combined, clients, memory, culprit

    carry = (zeros, *before, jnp.asarray(NOBODY, jnp.int32))

    def everyone(check):
        return lax.fori_loop(0, -(-here.size // spec.chunk), partial(group, check), carry)

    if spec.owned or not (isinstance(trip, Relay) or run.channel.lossless):
        return everyone(True)
    # nobody is checked unless the sum is not finite: then all, once more
    return again_if_bad(everyone, carry)


def _trip(
    spec: ProgramSpec, run: Run, trip, e: int, data: Data, state: State, here: Here, t, key,
    notices, first_trip: int = 0,
):  # fmt: skip
    """One trip; the new state and the first client whose reply is not finite.

    What clients learn in it is added to `notices`.
    """
    server, now = state.server, now_of(key, key, t, first_trip + e, SERVER)
    if trip.broadcast is not None:
        down = trip.broadcast(run.problem, server.method, now)
        notices.append(Notice(down, trip.only, trip.addressed))
    combined, clients, memory, culprit = _ask(
        spec, run, trip, e, data, state.sites, here, t, key, notices, first_trip
    )
    combined = _add_devices(spec, combined)
    culprit = lax.pmin(culprit, AXIS) if spec.devices > 1 else culprit
    if isinstance(trip, Relay):
        notices.append(Notice(delivered(trip, combined), trip.receiver))
        fine = payload.all_finite(combined)
    else:
        assert isinstance(trip, Exchange)
        shares = jnp.where(here.present, data.roster.shares[here.ids], 0)
        method, channel, info, fine = server_part(
            run, run.channel, trip, data.server_rows, server.method, server.channel[e],
            server.info, combined, Cohort(here.ids, here.present, shares), now,
        )  # fmt: skip
        server = ServerState(method, _replaced(server.channel, e, channel), info, server.best)
    culprit = jnp.where(fine, culprit, jnp.minimum(culprit, THE_SUM))
    sites = SiteState(clients, _replaced(state.sites.memory, e, memory))
    return State(server, sites), culprit


def _replaced(entries: tuple, e: int, new: Any) -> tuple:
    return (*entries[:e], new, *entries[e + 1 :])


def _here(spec: ProgramSpec, population: int, ids: Array, present: Array) -> Here:
    """Who takes part, and which of them at this device: their places in ids, and how many."""
    share = spec.share(population)
    turn = ids // share if spec.owned else (jnp.cumsum(present) - 1) % spec.devices
    here = present & (turn == _me(spec).astype(turn.dtype))
    size = -(-len(ids) // spec.chunk) * spec.chunk
    slots = jnp.nonzero(here, size=size, fill_value=0)[0].astype(jnp.int32)
    return Here(ids.astype(jnp.int32), present, slots, jnp.sum(here, dtype=jnp.int32))


def _round(spec: ProgramSpec, run: Run, data: Data, state: State, t: Array, key: Array):
    """One round: new state, clients that took part, and who is at fault (NOBODY)."""
    population = data.roster.clients
    ids, present = run.participation.cohort(key_of(key, t, 0, COHORT), t, population)
    everyone = _here(spec, population, ids, present)
    culprit = jnp.asarray(NOBODY, jnp.int32)
    notices: list[Notice] = []
    for e, trip in enumerate(run.method.exchanges(run.problem, data.roster)):
        here = everyone
        if trip.only is not None:
            one = jnp.full(1, trip.only, jnp.int32)
            here = _here(spec, population, one, jnp.ones(1, bool))
        state, bad = _trip(spec, run, trip, e, data, state, here, t, key, notices)
        culprit = jnp.minimum(culprit, bad)
    return state, jnp.sum(present, dtype=jnp.int32), culprit


def _measure(spec: ProgramSpec, run: Run, data: Data, server: ServerState, t, key) -> Array:
    x, sums = run.method.solution(server.method), {}
    for on, rows in (("train", data.train), ("test", data.test)):
        if rows is not None:
            found = measuring.rows_sums(run, x, on, rows, _me(spec), spec.devices)
            sums.update(_add_devices(spec, found))
    if run.channel.for_evaluation() is not None:
        sums.update(_by_channel(spec, run, data, x, t, key))
    return measuring.finished(run, server, sums)


def _by_channel(spec: ProgramSpec, run: Run, data: Data, x: Array, t, key) -> dict[int, Any]:
    """The sums over the clients' rows as a channel brings them, which may round them."""
    looks = measuring.evaluation(run, data.roster)
    population, (trip,) = data.roster.clients, looks.trips
    up = {"sums": looks.blank.sums}
    sites = SiteState((), (looks.channel.init(up),))
    server = ServerState(looks.start(x), (looks.channel.init_server(up),), {})
    ids = jnp.arange(population, dtype=jnp.int32)
    here = _here(spec, population, ids, jnp.ones(population, bool))
    state, culprit = _trip(
        spec, looking(run), trip, 0, data, State(server, sites), here, t, key, [], EVALUATION
    )
    sums = looks.sums(state.server.method)
    lost = jnp.where(culprit == NOBODY, 0, jnp.nan)  # whole numbers cannot say so
    return jax.tree.map(lambda a: a + lost.astype(a.dtype), sums)


def _segment(spec: ProgramSpec, run: Run, data: Data, state: State, key, t0, length, every, last):
    """`length` rounds from round t0 on, measured every `every` rounds and after the last."""
    measure = partial(_measure, spec, run, data)
    like = jax.eval_shape(measure, state.server, t0, key)
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
        state, count, culprit = _round(spec, run, data, state, t, key)
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


def _begin(spec: ProgramSpec, run: Run, data: Data, key: Array) -> tuple[State, Array]:
    """The state before round 0, and what is measured there."""
    roster = data.roster
    method = run.method.init_server(run.problem, roster, start_key(key, SERVER))
    share = spec.share(roster.clients)
    first = _me(spec) * share

    def client(mine):
        i = jnp.minimum(first + mine, roster.clients - 1)  # the last device may have fewer
        return run.method.init_client(run.problem, roster, data.view(i), start_key(key, i))

    clients = lax.map(client, jnp.arange(share, dtype=jnp.int32))
    training = training_of(run, roster)
    forms = training.purpose.forms
    memory = tuple(
        jax.tree.map(lambda a: jnp.zeros((share, *a.shape), a.dtype), form.memory) for form in forms
    )
    kept = tuple(
        jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), form.server_memory) for form in forms
    )
    info = info_of(run, roster, training, data.server_rows)
    server = ServerState(method, kept, info)
    values = _measure(spec, run, data, server, jnp.zeros((), jnp.int32), key)
    best = measuring.best_of(run, spec.names, None, server, values, 0)
    server = ServerState(method, kept, info, jax.tree.map(jnp.array, best))
    return State(server, SiteState(clients, memory)), values


# ---------------------------------------------------------------- compiled programs


def programs(spec: ProgramSpec, run: Run, data: Data):
    """The compiled `_begin` and `_segment` for such a run on such data."""
    return PROGRAMS.get((spec, form_of(run, data)), lambda: _compiled(spec))


def _compiled(spec: ProgramSpec):
    begin, segment = partial(_begin, spec), partial(_segment, spec)
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
