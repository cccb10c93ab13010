"""What the two halves compute, compiled once for each form of a run and used again by the next."""

from typing import Any

import jax.numpy as jnp

from fedmin.channels import Plain
from fedmin.core.method import Exchange, Now
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows
from fedmin.engines.compiled import PROGRAMS, Filtered, form_of
from fedmin.engines.measuring import evaluation, finished, rows_sums
from fedmin.engines.round import Run, ServerState, combine, server_part, site_part


def site_programs(run: Run, roster: Roster) -> tuple[Any, Any]:
    return PROGRAMS.get(
        ("site", form_of(run, roster.unnamed())),
        lambda: (Filtered(_training), Filtered(_evaluation)),
    )


def _training(run: Run, roster: Roster, e: int, rows, state, memory, down, share, now: Now):
    trip = run.method.exchanges(run.problem, roster)[e]
    return site_part(run, run.channel, trip, rows, state, memory, down, share, now)


def _evaluation(run: Run, roster: Roster, e: int, rows, state, memory, down, share, now: Now):
    trip = evaluation(run, roster).trips[e]
    return site_part(run, Plain(), trip, rows, state, memory, down, share, now)


def server_programs(run: Run, roster: Roster) -> tuple[Any, ...]:
    return PROGRAMS.get(
        ("server", form_of(run, roster.unnamed())),
        lambda: (Filtered(_broadcast), Filtered(_server), Filtered(_values)),
    )


def _trip(run: Run, roster: Roster, training: bool, e: int) -> Any:
    if training:
        return run.method.exchanges(run.problem, roster)[e]
    return evaluation(run, roster).trips[e]


def _broadcast(run: Run, roster: Roster, training: bool, e: int, server: Any, now: Any):
    return _trip(run, roster, training, e).broadcast(run.problem, server, now)


def _server(
    run: Run, roster, training: bool, e: int, server_rows, server, memory, info, sent, cohort, now
):
    exchange = _trip(run, roster, training, e)
    assert isinstance(exchange, Exchange)
    channel = run.channel if training else Plain()
    combined = sent if exchange.reduce == "gather" else combine(channel, exchange, sent)
    return server_part(
        run, channel, exchange, server_rows, server, memory, info, combined, cohort, now
    )


def _values(run: Run, server: ServerState, sums: dict[int, Any], test: Rows | None):
    if test is not None:
        x, zero = run.method.solution(server.method), jnp.int32(0)
        sums = {**sums, **rows_sums(run, x, "test", test, zero, 1)}
    return finished(run, server, sums)
