"""What every message of a run weighs, from its shapes alone: the ledger before the first round."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from fedmin.core.fitting import counting, numbers_to_count
from fedmin.core.ledger import Ledger, Line
from fedmin.core.method import Exchange, Relay
from fedmin.core.problem import Problem
from fedmin.core.protocol import Leg, Part
from fedmin.core.roster import Roster
from fedmin.engines.forms import ALONG, Purpose, TripForm
from fedmin.engines.messages import Messages, of_session
from fedmin.engines.sessions import seal, wire

WAYS: tuple[Literal["down", "up"], ...] = ("down", "up")


def ledger_of(messages: Messages, population: int) -> Ledger:
    """An empty ledger that knows what each message weighs."""
    lines, looks = (
        [line for k in range(len(p.steps)) for line in _lines(p, k, population)]
        for p in (messages.training, messages.evaluation)
    )
    return Ledger(
        lines,
        [],
        _setup(population, messages.signed) if messages.sealed and population > 1 else [],
        looks,
        population,
    )


def count_lines(problem: Problem, roster: Roster) -> list[tuple[Line, int]]:
    """What counting rows before round 0 weighs: a message of each client that counts."""
    wanted, clients = numbers_to_count(problem, roster), len(counting(roster))
    if not wanted or not clients:
        return []
    return [(Line(0, "up", {"counts": 16 * (wanted + 1)}, kind="prepare"), clients)]


def lines_at_the_end(look: Purpose, population: int) -> list[tuple[Line, int]]:
    """What a look at the last model weighs, for a certificate or for statistics, and how many
    messages there are."""
    lines = [line for k in range(len(look.steps)) for line in _lines(look, k, population)]
    return [
        (replace(line, parts=line.sizes(population), kind=f"{look.name} {line.kind}".strip(),
                 entry={}, group=None), line.messages(population))
        for line in lines
    ]  # fmt: skip


def _lines(purpose: Purpose, k: int, population: int) -> list[Line]:
    (e, leg), trip = purpose.steps[k], purpose.first + k
    if leg is not None:
        protocol = purpose.forms[e].protocol
        group = None if protocol is None else protocol.group
        kind = "" if of_session(leg) else "channel"
        return [_leg_line(leg, trip, way, kind, group) for way in WAYS]
    form = purpose.forms[e]
    plain = all(f.trip.only is None and isinstance(f.trip, Exchange) for f in purpose.forms)
    if plain and form.protocol is None:
        ways = (("down", wire.sizes(form.down)), ("up", wire.sizes(form.sent)))
        return [Line(trip, way, parts) for way, parts in ways]
    if plain:
        return _hidden_lines(form, trip)
    asked = [i for i in range(population) if form.trip.asks(i)]
    lines = []
    for way, of in (("down", _ask_sizes), ("up", reply_sizes)):
        # clients that get or send as much are one line
        alike = Counter(tuple(of(purpose, e, i, population).items()) for i in asked)
        lines += [Line(trip, way, dict(parts), times) for parts, times in alike.items()]
    return lines


def _hidden_lines(form: TripForm, trip: int) -> list[Line]:
    """An exchange whose replies are hidden, with what goes down for the channel beside it."""
    protocol = form.protocol
    assert protocol is not None
    down = wire.sizes({**form.down, **form.along(0)})
    entry = {ALONG: _entry(protocol.along)} if protocol.along else {}
    return [
        Line(trip, "down", down, entry=entry, group=protocol.group),
        Line(trip, "up", wire.sizes(form.hidden)),
    ]


def _entry(parts: Mapping[str, Part]) -> int:
    return sum(part.bytes for part in parts.values() if part.grows)


def _leg_line(
    leg: Leg, trip: int, way: Literal["down", "up"], kind: str, group: int | None
) -> Line:
    """A trip of the channel's own: some parts of its messages have an entry for each peer."""
    each: Literal["client"] | int = "client" if leg.asks == "everyone" else leg.asks
    fixed = wire.sizes(leg.form(way, 0))
    parts = leg.down if way == "down" else leg.up
    entry = {name: part.bytes for name, part in parts.items() if part.grows}
    return Line(trip, way, fixed, each, kind, entry, group)


def _ask_sizes(purpose: Purpose, e: int, i: int, population: int) -> dict[str, int]:
    ask = purpose.ask_like(e, i, population)
    packets = dict(zip(purpose.waiting(e, i, population), ask.get("relayed", ()), strict=True))
    return _with_packets(purpose, ask, "relayed", packets)


def reply_sizes(purpose: Purpose, e: int, i: int, population: int) -> dict[str, int]:
    """Bytes by part of what client i sends on trip e."""
    reply = purpose.reply_like(e, i, population)
    if not isinstance(purpose.forms[e].trip, Relay):
        return wire.sizes(reply)
    return _with_packets(purpose, reply, "sealed", {e: reply["sealed"]})


def _with_packets(
    purpose: Purpose, message: dict[str, Any], name: str, packets: dict[int, np.ndarray]
) -> dict[str, int]:
    """Bytes by part of a message with sealed packets in it: by the parts that are sealed there."""
    found = wire.sizes(message)
    found.pop(name, None)
    for r, array in packets.items():
        inside = {**wire.sizes(purpose.forms[r].sent), "seal": seal.TAG}
        for part, size in inside.items():
            found[part] = found.get(part, 0) + len(array) * size
    return {part: size for part, size in found.items() if size or part == "header"}


def _setup(population: int, signed: bool) -> list[tuple[Line, int]]:
    """The exchange of public keys, before any round."""
    key, keys = (wire.sizes(f) for f in (seal.key_like(signed), seal.keys_like(population, signed)))
    trips: tuple[tuple[int, str, dict[str, int]], ...] = (
        (0, "down", {}),
        (0, "up", key),
        (1, "down", keys),
        (1, "up", {}),
    )
    return [
        (Line(wire.SETUP + e, way, parts or wire.sizes({}), population), population)
        for e, way, parts in trips
    ]
