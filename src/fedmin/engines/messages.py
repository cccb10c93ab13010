"""The messages of a run: what its parties send each other, and what it weighs and records.

All of it is known from the run and the roster before anything is computed, so both halves compare
what arrives with what must arrive, and the ledger of a simulation is that of a real run.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedmin.channels import Plain
from fedmin.core import payload
from fedmin.core.channel import Channel, Cohort
from fedmin.core.inference import Fit
from fedmin.core.method import Exchange, Gathered, Method, Now, Relay, Sum, Trip
from fedmin.core.protocol import Leg, Part
from fedmin.core.roster import Roster
from fedmin.engines.compiled import SHAPES, form_of
from fedmin.engines.forms import Purpose, Step, TripForm, purpose_of
from fedmin.engines.measuring import certifying, evaluation, recorded
from fedmin.engines.round import (
    TOLD,
    Notice,
    Run,
    among,
    channel_words,
    combined_zeros,
    delivered,
    known,
    split_report,
)
from fedmin.engines.sessions import wire


class Training(NamedTuple):
    """The trips of a round, and the shapes of what the parties remember."""

    purpose: Purpose
    server: Any  # the method's state at the server
    client: Any  # and at a client


class Messages(NamedTuple):
    """All messages of a run."""

    training: Purpose
    evaluation: Purpose
    states: Training
    certificate: Purpose | None = None  # where the run takes one
    statistics: Purpose | None = None  # where it takes some

    @property
    def purposes(self) -> tuple[Purpose, ...]:
        """All of them."""
        found = (self.training, self.evaluation, self.certificate, self.statistics)
        return tuple(purpose for purpose in found if purpose is not None)

    @property
    def signed(self) -> bool:
        """Whether clients sign the keys with which they seal and cover these messages."""
        return any(among(p.channel, form.trip) for p in self.purposes for form in p.forms)

    @property
    def sealed(self) -> bool:
        """Whether clients seal messages for each other."""
        forms = [form for purpose in self.purposes for form in purpose.forms]
        return any(isinstance(form.trip, Relay) for form in forms)


def training_of(run: Run, roster: Roster) -> Training:
    """The shapes of a round's messages and of the states, found without computing anything."""
    key = jax.random.key(0)
    server = jax.eval_shape(lambda k: run.method.init_server(run.origin, roster, k), key)
    client = jax.eval_shape(
        lambda k, r: run.method.init_client(run.origin, roster, r, k), key, roster.blank()
    )
    trips = run.method.exchanges(run.problem, roster)
    forms = _forms(run, run.channel, trips, roster, server, client)
    return Training(purpose_of("training", 0, run.channel, forms), server, client)


def messages_of(run: Run, roster: Roster) -> Messages:
    """The shapes of all messages, found without computing anything; once a form of run."""
    form = ("messages", form_of(run, roster.unnamed()))
    return SHAPES.get(form, lambda: _messages(run, roster))


# before a certificate's sums every site says which rows they are of
DIGEST = Leg("digest", up={"digest": Part((32,))}, sees="a hash of each client's rows")


VALUES = "values"  # the leg on which a site tells what is recorded to a server without a model


def values_leg(run: Run, roster: Roster, training: Training) -> Leg:
    """How a server hears what is recorded, where the model is at the sites."""
    count = len(recorded(run, roster, info_of(run, roster, training, None)))
    x = jax.eval_shape(lambda key: run.problem.init(key), jax.random.key(0))
    up = {VALUES: Part((count,), str(x.dtype))}
    sees = "what is recorded, of sums with noise of 1.5e-11"
    return Leg(VALUES, up=up, asks=1, sees=sees, summed=True)


FITTING = ("newton", "statistics")  # legs of statistics


def of_session(leg: Leg | None) -> bool:
    """Whether a leg is the session's own, and no channel's."""
    return leg is not None and (leg is DIGEST or leg.name in (VALUES, *FITTING))


def certificate_purpose(run: Run, roster: Roster) -> Purpose:
    """The look at the last model that a certificate takes; found once a form of run."""

    def make() -> Purpose:
        look = _look(certifying(run), roster, "certificate", wire.CERTIFICATE)
        return look._replace(steps=(Step(0, DIGEST), *look.steps))

    return SHAPES.get(("certificate", form_of(run, roster.unnamed())), make)


def statistics_purpose(run: Run) -> Purpose:
    """The trips by which statistics are taken: sums in double precision, which no program computes
    but the sites themselves (core/inference.py)."""
    size, kind = run.problem.size(), "float64"
    slopes = {"information": Part((size, size), kind), "slope": Part((size,), kind)}
    rest = {"meat": Part((size, size), kind), "totals": Part((3,), kind)}
    down, sees = {"model": Part((size,), kind)}, "each client's sums over its rows"
    step = Leg(FITTING[0], down, slopes, sees=sees)
    last = Leg(FITTING[1], down, {**slopes, **rest}, sees=sees)
    nobody: Any = lambda *_: None
    form = TripForm(
        Exchange(nobody, nobody, nobody), {}, {}, {}, (), ()
    )  # never made: legs are all
    legs = [*[step] * Fit.steps(run.problem), last]
    steps = tuple(Step(0, leg) for leg in legs)
    return Purpose("statistics", wire.STATISTICS, Plain(), (form,), steps)


def _messages(run: Run, roster: Roster) -> Messages:
    training = training_of(run, roster)
    look = _look(run, roster, "evaluation", wire.EVALUATION)
    if run.channel.blind:
        last = Step(len(look.forms) - 1, values_leg(run, roster, training))
        look = look._replace(steps=(*look.steps, last))
    certificate = certificate_purpose(run, roster) if run.certify else None
    statistics = statistics_purpose(run) if run.statistics else None
    return Messages(training.purpose, look, training, certificate, statistics)


def _look(run: Run, roster: Roster, name: str, first: int) -> Purpose:
    looks = evaluation(run, roster)
    channel = looks.channel
    forms = _forms(run, channel, looks.trips, roster, looks.blank, ()) if looks.trips else ()
    if any(jax.tree.leaves((form.memory, form.server_memory)) for form in forms):
        raise ValueError(f"{channel} looks at the model and would remember it; give it no memory")
    return purpose_of(name, first, channel, forms)


def _forms(
    run: Run, channel: Channel, trips: tuple[Trip, ...], roster: Roster, server: Any, client: Any
) -> tuple[TripForm, ...]:
    now, population, rows = _first_now(), roster.clients, roster.blank()
    found: list[TripForm] = []
    notices: list[Notice] = []
    for trip in trips:
        _check_parties(run.method, trip, population)
        down = _down_like(run, trip, server, population, now)
        notices.append(Notice(down, trip.only))
        heard = {k: v for k, v in known(trip, notices, 0).items() if k != TOLD}
        up, after = jax.eval_shape(trip.client, run.problem, rows, client, heard, now)
        same_form(run.method, client, after)
        share = jnp.zeros(() if roster.sizes_told else (2,), roster.dtype)
        if isinstance(trip, Relay):
            hidden = among(channel, trip)
            sent = up if hidden is None else jax.eval_shape(hidden.relayed, up, share)
            found.append(TripForm(trip, down, up, sent, (), ()))
            cohort = population if trip.only is None else 1
            parts = jax.eval_shape(
                lambda t=trip, s=sent, n=cohort: delivered(
                    channel, t, combined_zeros(channel, t, s, n), roster.shares
                )
            )
            notices.append(Notice(parts, trip.receiver))
            continue
        assert isinstance(trip, Exchange)
        carrier = channel.for_trip(trip)
        memory, kept = (jax.eval_shape(f, up) for f in (carrier.init, carrier.init_server))
        sent, _ = jax.eval_shape(carrier.encode, up, memory, now)
        if trip.reduce == "sum":
            sent = jax.eval_shape(_weighed, carrier, sent, share, kept)
        told = jax.eval_shape(lambda t=trip, k=kept: channel_words(channel, t, _zeros(k)))
        down = {**down, TOLD: told} if told else down
        protocol = carrier.protocol(sent) if carrier.hides else None
        # where sites do the server's step they say it to themselves
        said = {} if channel.blind else down
        found.append(TripForm(trip, said, up, sent, memory, kept, protocol))
    if found and isinstance(found[-1].trip, Relay):
        raise ValueError(
            f"{type(run.method).__name__}: a Relay must be followed by a trip on which its "
            f"receivers are asked: what they are sent would reach nobody"
        )
    return tuple(found)


def _zeros(like: Any) -> Any:
    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)


def _weighed(channel: Channel, wire: Any, share: Any, kept: Any) -> Any:
    return channel.weigh_as(wire, share, channel.tells(kept))


class Reports(NamedTuple):
    """What is recorded of a run."""

    info: dict[str, Any]  # what the server reports, before round 0
    names: tuple[str, ...]  # of everything that is recorded
    rising: tuple[str, ...]  # those of them that are better the higher they are


def reports_of(run: Run, roster: Roster, server_rows: Any) -> Reports:
    """What is recorded of such a run; found once a form of run."""

    def make() -> Reports:
        info = info_of(run, roster, messages_of(run, roster).states, server_rows)
        rows: Any = roster.rows_like()
        named = [(metric, metric.names(run.problem, rows)) for metric in run.record]
        rising = tuple(name for metric, names in named for name in metric.rising(names))
        return Reports(info, recorded(run, roster, info), rising)

    return SHAPES.get(("reports", form_of(run, roster.unnamed(), server_rows)), make)


def info_of(run: Run, roster: Roster, training: Training, server_rows: Any) -> dict[str, Any]:
    """What the server reports before round 0: a zero under each name that it will report."""
    found: dict[str, Any] = {}
    for form in training.purpose.forms:
        if isinstance(form.trip, Exchange):
            like = jax.eval_shape(
                lambda f=form: _report_of(run, roster, f, training.server, server_rows)
            )
            found |= {name: jnp.zeros(a.shape, a.dtype) for name, a in like.items()}
    return found


def _report_of(run: Run, roster: Roster, form: TripForm, server: Any, server_rows: Any) -> Any:
    exchange, channel = form.trip, run.channel.for_trip(form.trip)
    assert isinstance(exchange, Exchange)
    server, memory, sent = (
        jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)
        for like in (server, form.server_memory, form.sent)
    )
    rows = jax.tree.map(jnp.asarray, server_rows)
    size = 1 if exchange.only is not None else roster.clients
    zeros, ids = combined_zeros(channel, exchange, sent, size), jnp.zeros(size, jnp.int32)
    cohort = Cohort(ids, ids == 0, jnp.zeros(size, roster.dtype))
    learnt: Any = Gathered(payload.dense_each(zeros), zeros, cohort.shares, ids)
    said: dict[str, Any] = {}
    if exchange.reduce == "sum":
        total = channel.decode(zeros, memory, cohort, _first_now())[0]
        learnt = Sum(total, cohort.weight, cohort.count)
        said = channel.report(zeros)
    found = split_report(exchange.server(run.problem, rows, server, learnt, _first_now()))[1]
    return {**found, **said}


def _first_now() -> Now:
    return Now(jnp.zeros((), jnp.int32), *[jax.random.key(0)] * 2)


def _down_like(run: Run, trip: Trip, server: Any, population: int, now: Now) -> dict[str, Any]:
    """The shape of what one client is told by the server."""
    if trip.broadcast is None:
        return {}
    down = jax.eval_shape(trip.broadcast, run.problem, server, now)
    if not trip.addressed:
        return down
    for leaf in jax.tree.leaves(down):
        if leaf.shape[:1] != (population,):
            raise ValueError(
                f"{type(run.method).__name__} addresses its broadcast to each client: "
                f"every part needs {population} slices, got shape {leaf.shape}"
            )
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), down)


def _check_parties(method: Method, trip: Trip, population: int) -> None:
    """Refuse a trip with a client that does not exist."""
    receiver = trip.receiver if isinstance(trip, Relay) else None
    for one in (trip.only, receiver):
        if one is not None and not 0 <= one < population:
            raise ValueError(
                f"{type(method).__name__} speaks to client {one}; there are 0..{population - 1}"
            )


def same_form(method: Method, before: Any, after: Any) -> None:
    """Refuse a client function whose state changes shape: it could not be kept."""
    old, new = (
        (jax.tree.structure(s), [(a.shape, a.dtype) for a in jax.tree.leaves(s)])
        for s in (jax.eval_shape(lambda: before), after)
    )
    if old != new:
        raise ValueError(
            f"{type(method).__name__}: client state must keep its shape; it began as {old} "
            f"and came back as {new}"
        )
