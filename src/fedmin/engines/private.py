"""A run's noise: fitted to its shares, participation and rounds before it begins; then accounted.

`fitted` finds what one client moves the sum, how often a site tells something of its rows, and the
multiplier where an epsilon was given. `releases_of` says what every round tells, by the numbers
that the mechanisms draw with.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedmin.channels.noise import Noised
from fedmin.client.private_choices import PrivateChoices
from fedmin.client.private_rows import PrivateRows
from fedmin.core import private
from fedmin.core.method import Exchange, Now
from fedmin.core.release import Release
from fedmin.core.result import Result
from fedmin.core.roster import Roster
from fedmin.core.stopping import Budget
from fedmin.engines import client_noise
from fedmin.engines.measuring import needs_rows
from fedmin.engines.messages import training_of
from fedmin.engines.round import Run
from fedmin.privacy import accountant


class Unit(NamedTuple):
    """What a run tells of one unit."""

    name: str  # "client" or "row"
    releases: tuple[Release, ...]  # in every round, and once before
    delta: float


def is_private(method: Any, channel: Any) -> bool:
    """Whether there is noise in such a run."""
    return client_noise.noise_of(channel) is not None or _rows(method) is not None


def fitted(run: Run, roster: Roster, rounds: int | None) -> Run:
    """The run with its noise ready; refuses what noise cannot cover, before any work."""
    run = _with_private_rows(run, roster, rounds)
    noise = client_noise.noise_of(run.channel)
    if noise is not None:
        run = replace(run, channel=client_noise.noised(run, noise, roster, rounds))
    if isinstance(run.stop, Budget) and not is_private(run.method, run.channel):
        raise ValueError("Budget is for runs with noise: give Noise(...) or PrivateRows(...)")
    return run


def units(run: Run, roster: Roster) -> tuple[Unit, ...]:
    """What every round of a fitted run tells of a client and of a row."""
    found = []
    noise, rows = client_noise.noise_of(run.channel), _rows(run.method)
    if isinstance(noise, Noised) and noise.multiplier is not None:
        release = client_noise.client_release(run, roster, noise, float(noise.multiplier))
        found.append(Unit("client", (release, *run.before("client")), float(noise.delta)))
    if rows is not None:
        release = rows.release(_times(run, roster))
        found.append(Unit("row", (release, *run.before("row")), float(rows.delta)))
    if isinstance(run.stop, Budget):
        found = [unit._replace(delta=float(run.stop.delta)) for unit in found]
    return tuple(found)


def spent(run: Run, roster: Roster, rounds: int) -> dict[str, tuple[float, float]]:
    """epsilon and delta after so many rounds, by unit."""
    return {
        unit.name: (accountant.epsilon(unit.releases, rounds, unit.delta), unit.delta)
        for unit in units(run, roster)
    }


def affordable(run: Run, roster: Roster, rounds: int) -> tuple[int, str]:
    """How many of these rounds the run's budget allows; and if not all, why it ends, in words."""
    budget = run.stop
    if not isinstance(budget, Budget):
        return rounds, ""
    given, reason = float(budget.epsilon), ""
    for unit in units(run, roster):
        least, _ = accountant.rounds_within(unit.releases, given, unit.delta, rounds)
        if least < rounds:
            cost = accountant.epsilon(unit.releases, least + 1, unit.delta)
            reason = (
                f"the budget of epsilon = {given:g} at delta = {unit.delta:g} for a {unit.name} "
                f"allows {least} rounds; one more would make it {cost:.4g}"
            )
            rounds = least
        if not rounds:
            raise ValueError(f"{reason}: give more noise, or a larger budget")
    return rounds, reason


def accounted(result: Result, run: Run, roster: Roster, reason: str = "") -> Result:
    """The result with epsilon in its history, and the words that its budget is spent."""
    found = units(run, roster)
    if not found:
        return result
    history = dict(result.history)
    for unit in found:
        history[f"epsilon_{unit.name}"] = accountant.column(
            unit.releases, history["round"], unit.delta
        )
    if reason and result.status == "done":
        return replace(result, history=history, status="stopped", reason=reason)
    return replace(result, history=history)


def uncovered(run: Run, roster: Roster) -> list[str]:
    """What a run with noise tells of private rows without any, in sentences."""
    if not is_private(run.method, run.channel):
        return []
    found = []
    exact = [str(metric) for metric in run.record if needs_rows(run, roster, metric)]
    if exact:
        found.append(
            f"privacy: {', '.join(exact)} is recorded on the clients' rows without noise, and "
            f'epsilon does not cover it: record on test rows (on="test") only'
        )
    if run.certify:
        found.append(
            "privacy: a certificate is measured on the clients' rows without noise, and epsilon "
            "does not cover it"
        )
    if any(size is not None for size in run.problem.limit_sizes()):
        found.append(
            "privacy: how many rows are in each group is told before round 0, and epsilon does "
            "not cover it"
        )
    return found


# ---------------------------------------------------------------- rows


def _rows(method: Any) -> PrivateRows | PrivateChoices | None:
    batches = getattr(method, "batches", None)
    return batches if isinstance(batches, PrivateRows | PrivateChoices) else None


def _with_private_rows(run: Run, roster: Roster, rounds: int | None) -> Run:
    found = _rows(run.method)
    if found is None:
        return run
    if roster.owners is not None:
        name = type(found).__name__
        raise ValueError(f"{name} is for data split by rows; these are split by columns")
    method: Any = run.method
    unready = found.multiplier is None
    trial = replace(found, multiplier=1.0, epsilon=None) if unready else found
    run = replace(run, method=replace(method, batches=trial))
    times = _times(run, roster)
    if not unready:
        return run
    multiplier = accountant.asked(trial.release(times), found, rounds, run.before("row"))
    ready = replace(trial, multiplier=multiplier)
    return replace(run, method=replace(method, batches=ready))


def _times(run: Run, roster: Roster) -> int:
    """How often a client tells something of its rows in a round, found by tracing its part with
    rows that nothing but private gradients can read."""
    name = type(run.method).__name__
    sealed: Any = private.Sealed(roster.blank())  # type: ignore[arg-type]
    now = Now(jnp.zeros((), jnp.int32), *[jax.random.key(0)] * 2)
    try:
        jax.eval_shape(lambda r: run.method.init_client(run.origin, roster, r, now.key), sealed)
        training = training_of(run, roster)
        down: dict[str, Any] = {}
        with private.watching() as watch:
            for form in training.purpose.forms:
                down = down | form.down
                assert isinstance(form.trip, Exchange)

                def part(rows, state, heard, form=form):
                    private.at_this_level()
                    return form.trip.client(run.problem, rows, state, heard, now)

                jax.eval_shape(part, sealed, training.client, down)
    except private.PrivacyError as error:
        raise ValueError(f"{name} {error}") from None
    return watch.times
