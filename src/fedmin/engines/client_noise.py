"""Noise on what clients send, in the size that a run needs: the server's, or the sites' shares."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.channels import discrete_gaussian
from fedmin.channels.noise import Noise, Noised
from fedmin.channels.noisy_sum import NoisySum, check_grid, grid_of
from fedmin.channels.secure.legs import GROUP, threshold_of
from fedmin.channels.secure_sum import SecureSum
from fedmin.channels.stages import chain
from fedmin.core import payload
from fedmin.core.participation import Bernoulli, Participation
from fedmin.core.release import Release
from fedmin.core.roster import Roster
from fedmin.engines.messages import training_of
from fedmin.engines.round import Run
from fedmin.privacy import accountant


def noise_of(channel: Any) -> Noise | None:
    """The stage of a channel that adds noise."""
    stages = getattr(channel, "stages", (channel,))
    return next((stage for stage in stages if isinstance(stage, Noise)), None)


def _rate(participation: Participation) -> float:
    if participation.everyone:
        return 1.0
    if isinstance(participation, Bernoulli):
        return float(participation.probability)
    raise ValueError(
        f"Noise needs clients that are drawn each by itself, Bernoulli(0.1), or all of them, "
        f"Everyone(); participation is {participation}"
    )


def client_release(run: Run, roster: Roster, noise: Noise, multiplier: float) -> Release:
    """What a round tells of a client. Being drawn hides nobody where the server sees who came."""
    rate = 1.0 if noise.at == "sites" else _rate(run.participation)
    times = len(run.method.exchanges(run.problem, roster))
    return Release("client", multiplier, rate, times, concentrated=_whole(run.channel, noise))


def _whole(channel: Any, noise: Noise) -> bool:
    """Whether the noise is in whole numbers, inside a secure sum."""
    return noise.at == "sites" and isinstance(getattr(channel, "stages", (0,))[-1], SecureSum)


def noised(run: Run, noise: Noise, roster: Roster, rounds: int | None) -> Any:
    """The channel with its noise in the size that this run needs."""
    stages = list(getattr(run.channel, "stages", (run.channel,)))
    k = stages.index(noise)
    bound = chain(*stages[:k]).longest(None) if k else None
    if bound is None or not all(stage.hides for stage in stages[k + 1 :]):
        raise ValueError(
            "Noise stands right behind Clip, which bounds what a client can change, and only a "
            f"secure sum may follow: chain(Clip(1.0), Noise(1.0)); channel is {run.channel}"
        )
    forms = training_of(replace(run, channel=chain(*stages[:k])), roster).purpose.forms
    most = max(_numbers(run, form) for form in forms)
    whole = _whole(run.channel, noise)
    survivors = _survivors(run, noise, roster, stages[-1] if whole else None)
    shares, multiplier = np.asarray(roster.shares, float), noise.multiplier
    if multiplier is None:
        release = client_release(run, roster, noise, 1.0)
        multiplier = accountant.asked(release, noise, rounds, run.before("client"))
    moved = float(shares.max()) * float(bound)
    ready = Noised(
        float(multiplier), None, noise.delta, noise.at, survivors, sensitivity=moved,
        weight=_rate(run.participation) if noise.at == "server" else 1.0,
        spread=float(np.sqrt(np.sum(np.sort(shares)[:survivors] ** 2))), whole=whole,
    )  # fmt: skip
    rest = stages[k + 1 :]
    if whole:
        rest = [_noisy_sum(rest[0], ready, float(bound), most, roster.clients)]
    return chain(*stages[:k], ready, *rest)


def _survivors(run: Run, noise: Noise, roster: Roster, summed: Any) -> int | None:
    """m: how many sites must stay for their noise to be enough."""
    if noise.at == "server":
        return None
    n = roster.clients
    most, who = n, "of all"
    if summed is not None:  # a sum of so many is opened, and may not have less noise than is told
        smallest = n // -(-n // GROUP)
        most = max(threshold_of(smallest, summed.threshold), summed.least)
        who = f"that {summed} opens a sum of"
    survivors = most if noise.survivors is None else noise.survivors
    if survivors > most or not run.participation.everyone:
        raise ValueError(
            f"Noise of the sites is for at most {most} survivors, {who}, and for participation "
            f"Everyone(); got {survivors} and {run.participation}"
        )
    return survivors


def _noisy_sum(summed: Any, noise: Noised, bound: float, numbers: int, clients: int) -> NoisySum:
    """The secure sum with noise in whole numbers inside."""
    if float(summed.bound) < bound:
        raise ValueError(
            f"{summed} cuts entries that are longer than its bound, and how many is told without "
            f"noise: give it the bound of Clip at least, {bound:g}"
        )
    exponent = int(np.ceil(np.log2(np.float32(summed.bound))))
    assert noise.multiplier is not None
    assert noise.survivors is not None
    grid = grid_of(
        summed.bits, exponent, noise.sensitivity, noise.multiplier, noise.survivors, numbers
    )
    check_grid(grid, summed.bits, exponent, clients)
    return NoisySum(
        summed.bits, summed.bound, summed.threshold, summed.least,
        entries=discrete_gaussian.table(grid.sigma), shift=grid.shift,
    )  # fmt: skip


def _numbers(run: Run, form: Any) -> int:
    """How many numbers a reply has; all of them must be floats."""
    count = 0
    for part in jax.tree.leaves(form.up, is_leaf=payload.is_payload):
        leaves = jax.tree.leaves(
            jax.eval_shape(lambda p=part: p.dense()) if payload.is_payload(part) else part
        )
        count += sum(a.size for a in leaves)
        if not all(jnp.issubdtype(a.dtype, jnp.floating) for a in leaves):
            raise ValueError(
                f"{type(run.method).__name__} sends whole numbers, which noise does not cover; "
                f"channel is {run.channel}, give Plain()"
            )
    return count
