"""The simulator's compiled programs: many rounds in one loop, clients spread over the devices.

devices     each takes its part of the round's clients, one sum a round joins them. Clients
            without memory are dealt out evenly; the others stay with the device that holds
            their state. A CPU has one device a core (fedmin.devices).
chunk       how many clients a device computes at a time: 1 reads a client's rows in place, more
            are batched by vmap
segment     the compiled loop runs up to SEGMENT rounds, records inside, and returns to Python so
            that progress can be shown and Ctrl-C heard; its length is an argument, not a constant
"""

from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec as P

from fedmin.core import payload
from fedmin.core.method import Now
from fedmin.engines import round as part
from fedmin.engines.round import AGGREGATE, NOBODY, SERVER, Run, State, Told
from fedmin.engines.simulator.in_place import again_if_bad, mask, write
from fedmin.engines.simulator.layout import AXIS, Data, Form, mesh_of

SEGMENT = 512
LOOK = 50  # every so many times; a look takes milliseconds
MAPS, MOST_MAPS = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")


_asked = count(1)  # how often programs were asked for


class Plan(NamedTuple):
    """What a program is compiled for, besides shapes."""

    devices: int
    chunk: int
    population: int
    form: Form
    columns: tuple[str, ...]
    owned: bool  # clients have states, which lie with one device each
    lanes: bool  # many runs at once, along a leading axis of method, key and state

    @property
    def share(self) -> int:
        """Clients a device."""
        return -(-self.population // self.devices)


class Log(eqx.Module):
    """What a segment reports."""

    values: Array  # f[SEGMENT, columns]
    at: Array  # i[SEGMENT] rounds completed when measured
    recorded: Array  # i[] how many were
    counts: Array  # i[SEGMENT] clients that took part
    ran: Array  # i[] rounds
    fault: Array  # i[2] round and client of the first non-finite reply, or NOBODY
    stopped: Array  # bool[]


# ---------------------------------------------------------------- one device's view of a round


def _me(plan: Plan) -> Array:
    return lax.axis_index(AXIS) if plan.devices > 1 else jnp.zeros((), jnp.int32)


def _add_devices(plan: Plan, tree: Any) -> Any:
    return lax.psum(tree, AXIS) if plan.devices > 1 else tree


def _ask(plan: Plan, run: Run, exchange, e: int, data: Data, state: State, cohort, t, key, told):
    """This device's clients' parts: replies combined, states, memory, and who is at fault."""
    ids, _, slots, here = cohort
    first = _me(plan) * plan.share
    keys = jax.vmap(lambda i: part.key_of(key, t, e, i))(ids)  # all at once, outside of the loop

    # a client is asked once: what it holds is read from before the loop and written beside it. Read
    # from what is written, its parts go into several kernels, and all states are copied a client
    before = state.clients, state.memory[e]

    def client(slot, check):
        i = ids[slot]
        mine = i - first
        held, kept = jax.tree.map(lambda a: a[mine], before)
        return part.client_part(
            run, exchange, plan.form.view(data, i), held, kept, part.known(exchange, told, i),
            data.shares[i], Now(t, keys[slot]), check,
        )  # fmt: skip

    sent = jax.eval_shape(client, slots[0], here > 0)[0]
    zeros = part.combined_zeros(run, exchange, sent, len(ids))

    def group(check, j, carry):
        combined, clients, memory, culprit = carry
        places = j * plan.chunk + jnp.arange(plan.chunk, dtype=jnp.int32)
        there = places < here
        slot = slots[places]
        if plan.chunk == 1:
            one = client(slot[0], check)
            wires, held, kept, fine = jax.tree.map(lambda a: a[None], one)
        else:
            wires, held, kept, fine = jax.vmap(client, (0, None))(slot, check)
            wires = jax.tree.map(partial(mask, there), wires)
        mine = jnp.where(there, ids[slot] - first, plan.share)
        clients, memory = write((clients, memory), mine, (held, kept))
        culprit = jnp.minimum(culprit, jnp.min(jnp.where(fine | ~there, NOBODY, ids[slot])))
        if exchange.reduce == "sum":
            combined = jax.tree.map(jnp.add, combined, part.combine(run, exchange, wires))
        else:
            combined = write(combined, jnp.where(there, slot, len(ids)), wires)
        return combined, clients, memory, culprit

    carry = (zeros, *before, jnp.asarray(NOBODY, jnp.int32))

    def everyone(check):
        return lax.fori_loop(0, -(-here // plan.chunk), partial(group, check), carry)

    if plan.owned or not (exchange.private or run.channel.exact):
        return everyone(True)
    # nobody is checked unless the sum is not finite: then all, once more
    return again_if_bad(everyone, carry)


def _exchange(
    plan: Plan, run: Run, exchange, e: int, data: Data, state: State, cohort, t, key, told
):
    """One exchange; the new state and the first client whose reply is not finite.

    What clients learn in it is added to `told`.
    """
    ids, present, _, _ = cohort
    now = Now(t, part.key_of(key, t, e, SERVER))
    if exchange.broadcast is not None:
        down = exchange.broadcast(run.problem, state.server, now)
        told.append(Told(down, exchange.only, exchange.addressed))
    combined, clients, memory, culprit = _ask(
        plan, run, exchange, e, data, state, cohort, t, key, told
    )
    combined = _add_devices(plan, combined)
    culprit = lax.pmin(culprit, AXIS) if plan.devices > 1 else culprit
    shares = jnp.where(present, data.shares[ids], 0)
    if exchange.private:
        told.append(Told(part.delivered(exchange, combined), exchange.receiver))
        server, fine = state.server, payload.all_finite(combined)
    else:
        server, fine = part.server_part(
            run, exchange, data.server_rows, state.server, combined, shares, present,
            ids, plan.population, now,
        )  # fmt: skip
    culprit = jnp.where(fine, culprit, jnp.minimum(culprit, AGGREGATE))
    memories = (*state.memory[:e], memory, *state.memory[e + 1 :])
    return State(server, clients, memories, state.best), culprit


def _cohort(plan: Plan, ids: Array, present: Array):
    """Who takes part, and which of them at this device: their places in ids, and how many."""
    turn = ids // plan.share if plan.owned else (jnp.cumsum(present) - 1) % plan.devices
    here = present & (turn == _me(plan).astype(turn.dtype))
    size = -(-len(ids) // plan.chunk) * plan.chunk
    slots = jnp.nonzero(here, size=size, fill_value=0)[0].astype(jnp.int32)
    return ids.astype(jnp.int32), present, slots, jnp.sum(here, dtype=jnp.int32)


def _round(plan: Plan, run: Run, data: Data, state: State, t: Array, key: Array):
    """One round: new state, clients that took part, and who is at fault (NOBODY)."""
    draw = part.key_of(key, t, 0, part.COHORT)
    ids, present = run.participation.cohort(draw, t, plan.population)
    everyone = _cohort(plan, ids, present)
    culprit = jnp.asarray(NOBODY, jnp.int32)
    told: list[Told] = []
    for e, exchange in enumerate(run.method.exchanges(run.problem)):
        cohort = everyone
        if exchange.only is not None:
            cohort = _cohort(plan, jnp.full(1, exchange.only, jnp.int32), jnp.ones(1, bool))
        state, bad = _exchange(plan, run, exchange, e, data, state, cohort, t, key, told)
        culprit = jnp.minimum(culprit, bad)
    return state, jnp.sum(present, dtype=jnp.int32), culprit


def _measure(plan: Plan, run: Run, data: Data, server: Any) -> Array:
    add = partial(_add_devices, plan)
    return part.measure(run, server, data.train, data.test, _me(plan), plan.devices, add)


def _segment(plan: Plan, run: Run, data: Data, state: State, key, t0, length, every, last):
    """`length` rounds from round t0 on, measured every `every` rounds and after the last."""

    def measure(server):
        return _measure(plan, run, data, server)

    like = jax.eval_shape(measure, state.server)
    log = Log(
        jnp.zeros((SEGMENT, *like.shape), like.dtype),
        jnp.zeros(SEGMENT, jnp.int32),
        jnp.zeros((), jnp.int32),
        jnp.zeros(SEGMENT, jnp.int32),
        jnp.zeros((), jnp.int32),
        jnp.full(2, NOBODY, jnp.int32),
        jnp.zeros((), bool),
    )

    def going(carry):
        i, _, log = carry
        in_time = i < length
        return in_time if plan.lanes else in_time & (log.fault[0] == NOBODY) & ~log.stopped

    def advance(carry):
        i, state, log = carry
        t = t0 + i
        state, count, culprit = _round(plan, run, data, state, t, key)
        due = ((t + 1) % every == 0) | (t + 1 == last)
        values = lax.cond(due, measure, lambda _: jnp.zeros(like.shape, like.dtype), state.server)
        best = state.best
        if best is not None:
            new = part.best_of(run, plan.columns, best, state.server, values, t + 1)
            best = jax.tree.map(lambda a, b: jnp.where(due, a, b), new, best)
            state = State(state.server, state.clients, state.memory, best)
        lost = False
        if "objective" in plan.columns:
            lost = due & ~jnp.isfinite(values[plan.columns.index("objective")])
        culprit = jnp.where(lost, jnp.minimum(culprit, AGGREGATE), culprit)
        new = (log.fault[0] == NOBODY) & (culprit != NOBODY)
        fault = jnp.where(new, jnp.stack([t.astype(jnp.int32), culprit]), log.fault)
        stopped = log.stopped
        if run.stop is not None:
            stopped = stopped | (due & run.stop(plan.columns, values))
        log = Log(
            log.values.at[log.recorded].set(values),
            log.at.at[log.recorded].set(t + 1),
            log.recorded + due.astype(jnp.int32),
            log.counts.at[i].set(count),
            i + 1,
            fault,
            stopped,
        )
        return i + 1, state, log

    _, state, log = lax.while_loop(going, advance, (jnp.zeros((), jnp.int32), state, log))
    return state, log


def _begin(plan: Plan, run: Run, data: Data, key: Array) -> tuple[State, Array]:
    """The state before round 0, and what is measured there."""
    server = run.method.init_server(run.problem, part.start_key(key, SERVER))
    first = _me(plan) * plan.share

    def client(mine):
        i = jnp.minimum(first + mine, plan.population - 1)  # the last device may have fewer
        rows = plan.form.view(data, i)
        return run.method.init_client(run.problem, rows, part.start_key(key, i))

    clients = lax.map(client, jnp.arange(plan.share, dtype=jnp.int32))
    rows = plan.form.view(data, 0)
    one = jax.tree.map(lambda a: a[0], clients)
    memory = tuple(
        jax.tree.map(
            lambda a: jnp.zeros((plan.share, *a.shape), a.dtype),
            jax.eval_shape(run.channel.init, m.up),
        )
        for m in part.shapes(run, rows, server, one, plan.population)
    )
    values = _measure(plan, run, data, server)
    best = part.best_of(run, plan.columns, None, server, values, 0)
    return State(server, clients, memory, jax.tree.map(jnp.array, best)), values


# ---------------------------------------------------------------- compiled programs


def programs(plan: Plan):
    """The compiled `_begin` and `_segment` of a plan."""
    if next(_asked) % LOOK == 0 and _crowded():
        _programs.cache_clear()
        jax.clear_caches()
    return _programs(plan)


def _crowded() -> bool:
    """Whether this process has half of the pieces of memory that Linux allows one (65,530).

    Every compiled program has dozens, and the compiler dies without a word where there are no more:
    after a thousand different runs. What is forgotten is compiled again when it is wanted.
    """
    if not MAPS.exists() or not MOST_MAPS.exists():
        return False
    return 2 * MAPS.read_bytes().count(b"\n") > int(MOST_MAPS.read_text("ascii"))


@lru_cache(maxsize=64)
def _programs(plan: Plan):
    """The compiled `_begin` and `_segment` of a plan; `jax.jit` keeps one program a shape."""
    begin, segment = partial(_begin, plan), partial(_segment, plan)
    if plan.lanes:
        lane = cast(Any, Run)(None, 0, None, None, None, None)
        begin = jax.vmap(begin, (lane, None, 0))
        segment = jax.vmap(segment, (lane, None, 0, 0, None, None, None, None))
    if plan.devices > 1:
        along = P(None, AXIS) if plan.lanes else P(AXIS)
        states = cast(Any, State)(P(), along, along, P())
        cut = partial(jax.shard_map, mesh=mesh_of(plan.devices), check_vma=False)
        begin = cut(begin, in_specs=(P(), P(), P()), out_specs=(states, P()))
        ins = (P(), P(), states, P(), P(), P(), P(), P())
        segment = cut(segment, in_specs=ins, out_specs=(states, P()))
    options = {"xla_cpu_multi_thread_eigen": False} if plan.devices > 1 and _on_cpu() else None
    return (
        jax.jit(begin, compiler_options=options),
        jax.jit(segment, donate_argnums=2, compiler_options=options),
    )


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"
