"""What the two halves compute, compiled once for each form of a run and used again by the next."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from fedmin.channels import Plain
from fedmin.core.channel import Channel
from fedmin.core.method import Exchange, Now, Trip
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows
from fedmin.engines.compiled import PROGRAMS, Filtered, form_of
from fedmin.engines.measuring import certifying, evaluation, finished, rows_means, rows_sums
from fedmin.engines.round import Run, ServerState, combine, looking, server_part, site_part


class Programs:
    """What one party computes in a round and in each kind of look, found when it is first used."""

    def __init__(self, run: Run, roster: Roster, make: Callable[[Run, Roster], Any]):
        self.run, self.roster, self.make = run, roster, make
        self.found: dict[str, tuple[Run, Any]] = {}

    def of(self, purpose: str) -> tuple[Run, Any]:
        """The run as trips of this purpose see it, and the programs for it."""
        if purpose not in self.found:
            run = self.run
            if purpose != "training":
                run = looking(run if purpose == "evaluation" else certifying(run))
            self.found[purpose] = (run, self.make(run, self.roster))
        return self.found[purpose]


def site_program(run: Run, roster: Roster) -> Filtered:
    """A site's part of a trip: of a round, or of a look at the model (`looking(run)`)."""
    (found,) = PROGRAMS.get(("site", form_of(run, roster)), lambda: (Filtered(_site),))
    return found


def server_programs(run: Run, roster: Roster) -> tuple[Filtered, Filtered]:
    """What the server says on a trip, and what it does with the replies."""
    form = ("server", form_of(run, roster))
    return PROGRAMS.get(form, lambda: (Filtered(_broadcast), Filtered(_server)))


def values_program(run: Run) -> Filtered:
    """From the sums of a look at the model to what is recorded."""
    (found,) = PROGRAMS.get(("values", form_of(run)), lambda: (Filtered(_values),))
    return found


def _trips(run: Run, roster: Roster) -> tuple[Trip, ...]:
    if run.method is None:
        return evaluation(run, roster).trips
    return run.method.exchanges(run.problem, roster)


def _channel(run: Run) -> Channel:
    return Plain() if run.channel is None else run.channel


def _site(run: Run, roster: Roster, e: int, rows, state, memory, down, share, now: Now):
    trip = _trips(run, roster)[e]
    return site_part(run, _channel(run), trip, rows, state, memory, down, share, now)


def _broadcast(run: Run, roster: Roster, e: int, server: Any, now: Any):
    broadcast = _trips(run, roster)[e].broadcast
    assert broadcast is not None
    return broadcast(run.problem, server, now)


def _server(
    run: Run, roster, e: int, server_rows, server, memory, info, sent, cohort, now, held=False
):
    exchange, channel = _trips(run, roster)[e], _channel(run)
    assert isinstance(exchange, Exchange)
    combined = sent if exchange.reduce == "gather" else combine(channel, exchange, sent)
    return server_part(
        run, channel, exchange, server_rows, server, memory, info, combined, cohort, now, held
    )


def _values(run: Run, server: ServerState, sums: dict[int, Any], test: Rows | None):
    if test is not None and any(metric.on == "test" for metric in run.record):
        x, zero = run.method.solution(server.method), jnp.int32(0)
        sums = {**sums, **rows_means(run, "test", rows_sums(run, x, "test", test, zero, 1))}
    return finished(run, server, sums)
