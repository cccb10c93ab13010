"""One round as one device of the simulator sees it: its own clients, and one sum with the others'.

devices     each takes its part of the round's clients, one sum a round joins them. Clients
            without memory are dealt out evenly; the others stay with the device that holds
            their state. A CPU has one device a core (engines/devices.py).
chunk       how many clients a device computes at a time: 1 reads a client's rows in place, more
            are batched by vmap
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.core import payload
from fedmin.core.channel import Cohort
from fedmin.core.method import Exchange, Now, Relay, Trip
from fedmin.engines.forms import TripForm
from fedmin.engines.round import (
    NOBODY,
    SERVER,
    THE_SUM,
    Notice,
    Run,
    ServerState,
    SiteState,
    State,
    among,
    channel_words,
    cohort_of,
    combine,
    combined_zeros,
    delivered,
    known,
    now_of,
    server_part,
    site_part,
    waiting,
    with_channel_words,
)
from fedmin.engines.simulator.in_place import again_if_bad, mask, write
from fedmin.engines.simulator.layout import AXIS, Data


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


class Shapes(NamedTuple):
    """What tracing a run has found already: it takes as long as most of a program's own tracing."""

    training: tuple[TripForm, ...]  # of a round's trips
    evaluation: tuple[TripForm, ...]  # of a look at the model
    model: Any  # what the method's solution looks like
    info: dict[str, Any]  # what the server reports


class Here(NamedTuple):
    """A trip's clients, and which of them this device computes."""

    ids: Array  # i[k]
    present: Array  # bool[k]
    slots: Array  # i[..] places in ids of those that are computed here
    size: Array  # i[] how many those are


def device_of(spec: ProgramSpec) -> Array:
    """The number of the device that computes this."""
    return lax.axis_index(AXIS) if spec.devices > 1 else jnp.zeros((), jnp.int32)


def add_devices(spec: ProgramSpec, tree: Any) -> Any:
    """The sum over all devices, at each of them."""
    return lax.psum(tree, AXIS) if spec.devices > 1 else tree


def _ask(
    spec: ProgramSpec, run: Run, form: TripForm, e: int, data: Data, sites: SiteState, here: Here,
    t, key, notices, first_trip: int = 0,
):  # fmt: skip
    """This device's clients' parts: replies combined, states, memory, and who is at fault."""
    ids, population = here.ids, data.roster.clients
    trip: Any = form.trip
    share = spec.share(population)
    first = device_of(spec) * share
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
            data.counted[i], now, check,
        )  # fmt: skip

    zeros = combined_zeros(run.channel, trip, form.sent, len(ids))

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

    whole = isinstance(trip, Relay) and among(run.channel, trip) is None
    if spec.owned or not (whole or run.channel.for_trip(trip).lossless):
        return everyone(True)
    # nobody is checked unless the sum is not finite: then all, once more
    return again_if_bad(everyone, carry)


def trip_of(
    spec: ProgramSpec, run: Run, form: TripForm, e: int, data: Data, state: State, here: Here, t,
    key, notices, first_trip: int = 0, held: Any = False,
):  # fmt: skip
    """One trip; the new state and the first client whose reply is not finite.

    `form.trip` says what is done in it. What clients learn in it is added to `notices`.
    """
    trip = form.trip
    server, now = state.server, now_of(key, key, t, first_trip + e, SERVER)
    told = channel_words(run.channel, trip, server.channel[e], held)
    if trip.broadcast is not None or told:
        down = {} if trip.broadcast is None else trip.broadcast(run.problem, server.method, now)
        down = with_channel_words(down, trip, told, data.roster.clients)
        notices.append(Notice(down, trip.only, trip.addressed))
    combined, clients, memory, culprit = _ask(
        spec, run, form, e, data, state.sites, here, t, key, notices, first_trip
    )
    combined = add_devices(spec, combined)
    culprit = lax.pmin(culprit, AXIS) if spec.devices > 1 else culprit
    if isinstance(trip, Relay):
        told = delivered(run.channel, trip, combined, data.roster.shares)
        notices.append(Notice(told, trip.receiver))
        fine = payload.all_finite(told)
    else:
        assert isinstance(trip, Exchange)
        shares = jnp.where(here.present, data.roster.shares[here.ids], 0)
        method, channel, info, fine = server_part(
            run, run.channel, trip, data.server_rows, server.method, server.channel[e],
            server.info, combined, Cohort(here.ids, here.present, shares), now, held,
        )  # fmt: skip
        server = ServerState(method, _replaced(server.channel, e, channel), info, server.best)
    culprit = jnp.where(fine, culprit, jnp.minimum(culprit, THE_SUM))
    sites = SiteState(clients, _replaced(state.sites.memory, e, memory))
    return State(server, sites), culprit


def with_trips(forms: tuple[TripForm, ...], trips: tuple[Trip, ...]) -> list[TripForm]:
    """These forms with trips of the same kind, whose functions are those of another run."""
    return [form._replace(trip=trip) for form, trip in zip(forms, trips, strict=True)]


def _replaced(entries: tuple, e: int, new: Any) -> tuple:
    return (*entries[:e], new, *entries[e + 1 :])


def here_of(spec: ProgramSpec, population: int, ids: Array, present: Array) -> Here:
    """Who takes part, and which of them at this device: their places in ids, and how many."""
    share = spec.share(population)
    turn = ids // share if spec.owned else (jnp.cumsum(present) - 1) % spec.devices
    here = present & (turn == device_of(spec).astype(turn.dtype))
    size = -(-len(ids) // spec.chunk) * spec.chunk
    slots = jnp.nonzero(here, size=size, fill_value=0)[0].astype(jnp.int32)
    return Here(ids.astype(jnp.int32), present, slots, jnp.sum(here, dtype=jnp.int32))


def round_of(
    spec: ProgramSpec, forms: tuple[TripForm, ...], run: Run, data: Data, state: State, t, key
):
    """One round: new state, clients that took part, and who is at fault (NOBODY)."""
    population = data.roster.clients
    ids, present = cohort_of(run, key, t, population)
    everyone = here_of(spec, population, ids, present)
    culprit = jnp.asarray(NOBODY, jnp.int32)
    notices: list[Notice] = []
    held: Any = False
    trips = run.method.exchanges(run.problem, data.roster)
    for e, form in enumerate(with_trips(forms, trips)):
        trip = form.trip
        here = everyone
        if trip.only is not None:
            one = jnp.full(1, trip.only, jnp.int32)
            here = here_of(spec, population, one, jnp.ones(1, bool))
        told = channel_words(run.channel, trip, state.server.channel[e], held)
        state, bad = trip_of(spec, run, form, e, data, state, here, t, key, notices, held=held)
        held = held | waiting(run.channel, told) if told else held
        culprit = jnp.minimum(culprit, bad)
    return state, jnp.sum(present, dtype=jnp.int32), culprit
