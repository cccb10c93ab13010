"""What every message of a run weighs, from its shapes alone: the ledger before the first round."""

from collections import Counter
from typing import Any

import numpy as np

from fedmin.core.ledger import Ledger, Line
from fedmin.core.method import Exchange, Relay
from fedmin.engines.messages import Messages, Purpose
from fedmin.engines.sessions import seal, wire


def ledger_of(messages: Messages, population: int) -> Ledger:
    """An empty ledger that knows what each message weighs."""
    lines, looks = (
        [line for e in range(len(p.forms)) for line in _lines(p, e, population)]
        for p in (messages.training, messages.evaluation)
    )
    return Ledger(
        lines,
        [],
        _setup(population) if messages.sealed and population > 1 else [],
        looks,
        population,
    )


def _lines(purpose: Purpose, e: int, population: int) -> list[Line]:
    form, trip = purpose.forms[e], purpose.first + e
    plain = all(f.trip.only is None and isinstance(f.trip, Exchange) for f in purpose.forms)
    if plain:
        ways = (("down", wire.sizes(form.down)), ("up", wire.sizes(form.sent)))
        return [Line(trip, way, parts) for way, parts in ways]
    asked = [i for i in range(population) if form.trip.asks(i)]
    lines = []
    for way, of in (("down", _ask_sizes), ("up", _reply_sizes)):
        # clients that get or send as much are one line
        alike = Counter(tuple(of(purpose, e, i, population).items()) for i in asked)
        lines += [Line(trip, way, dict(parts), times) for parts, times in alike.items()]
    return lines


def _ask_sizes(purpose: Purpose, e: int, i: int, population: int) -> dict[str, int]:
    ask = purpose.ask_like(e, i, population)
    packets = dict(zip(purpose.waiting(e, i, population), ask.get("relayed", ()), strict=True))
    return _with_packets(purpose, ask, "relayed", packets)


def _reply_sizes(purpose: Purpose, e: int, i: int, population: int) -> dict[str, int]:
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


def _setup(population: int) -> list[tuple[Line, int]]:
    """The exchange of public keys, before any round."""
    key, keys = wire.sizes(seal.key_like()), wire.sizes(seal.keys_like(population))
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
