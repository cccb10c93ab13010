"""Anybody may be killed, late or cut off at any moment: what is left is who took part, and no more.

The halves are driven here without a network. On every trip chance decides who is killed before or
after it answers, whose reply is lost, and whether the server dies before or after it has written
down what it was brought. What comes out must be, bit for bit, a quiet run in loopback from which
the same sites were absent on the same trips.
"""

import functools
import os
from types import MappingProxyType

import numpy as np
import pytest

import fedmin
import known
import parted
from agreement import assert_same_bits
from fedmin.assembling import assemble
from fedmin.engines.drive import Settings
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.checkpoint import Checkpoint
from fedmin.engines.sessions.halves import Own, Terms, run_halves
from fedmin.engines.sessions.site import SiteSession
from fedmin.engines.sessions.transport import RestartedError, Transport

SEEDS = int(os.environ.get("FEDMIN_KILLS", "2"))
WORLD = known.apart(sizes=(4, 3, 5))
LIMITED = fedmin.subject_to(WORLD.problem, fedmin.NormAtMost(0.3))
KINDS = {
    "client memory": (fedmin.Scaffold(0.3, local_steps=2, batches=fedmin.Blocks(2)), {}),
    "two exchanges": (fedmin.FedDANE(0.3, local_steps=2), {}),
    "remembered gradients": (fedmin.FedSSO(0.2, batches=fedmin.Full(), remember=True), {}),
    "multipliers": (fedmin.SSCA(batches=fedmin.Full()), {"problem": LIMITED}),
    "channel memory": (fedmin.FedSGD(0.3), {"channel": fedmin.TopK(1)}),
}
ROUNDS = 6


class Killed(BaseException):
    """The server is gone."""


class Chaos(Transport):
    """Sites that are killed and a server that dies, by chance."""

    def __init__(self, opened, rng, lossy):
        self.opened, self.rng, self.lossy = opened, rng, lossy
        self.sites = [opened(i) for i in range(3)]
        self.fresh = set()  # sites that began anew since keys were exchanged

    def chance(self, share) -> bool:
        return self.rng.random() < share

    def here(self):
        return {0, 1, 2}

    def restart(self, i):
        self.sites[i] = self.opened(i)
        self.fresh.add(i)

    def deliver(self, messages, deadline=None, enough=None, before=MappingProxyType({})):
        replies = {}
        kind = wire.envelope_of(next(iter(messages.values())))
        if self.chance(0.05):
            raise Killed
        if kind.trip == wire.SETUP:
            self.fresh = set()
        for i, data in messages.items():
            if self.chance(0.03):  # when some have been asked and others not
                raise Killed
            if kind.kind == "ask" and self.lossy and len(messages) == 3 and self.chance(0.1):
                if self.chance(0.5):  # it was late: it stored what it answered
                    self.answered(i, before, data)
                continue
            if self.chance(0.1):
                self.restart(i)
            replies[i] = self.answered(i, before, data)
            if self.chance(0.1):
                self.restart(i)
        if self.chance(0.05):
            raise Killed
        return replies

    def answered(self, i, before, data):
        site, ask = self.sites[i], wire.envelope_of(data)
        if site.sealed and ask.kind == "ask" and ask.trip != wire.SETUP and i in self.fresh:
            raise RestartedError
        if i in before:
            site.answer(before[i])
        if self.chance(0.1) and ask.trip < wire.SETUP:
            site.answer(data)  # the reply is lost on its way, and asked for again
        return site.answer(data)


def stormy(pieces, federation, folder, rng, lossy):
    """A run in which chance strikes, until it is done."""
    roster = federation.roster()
    settings = Settings(ROUNDS, 0, 2, False, Checkpoint(folder, rounds=3), None)

    def opened(i):
        return SiteSession(
            pieces, roster, i, federation.client(i), seed=0, folder=folder / str(i), gaps=True,
            diary=True,
        )  # fmt: skip

    road, lives = Chaos(opened, rng, lossy), 1
    while True:
        try:
            own = Own(federation.server_rows, federation.test)
            terms = Terms(quorum=0.1, journal=True)
            return run_halves(pieces, roster, own, lambda *_: road, settings, terms), lives
        except Killed:
            lives += 1


@functools.cache
def pieces_of(kind):
    method, options = KINDS[kind]
    return assemble(
        options.get("problem", WORLD.problem), WORLD.federation, method, fedmin.Everyone(),
        options.get("channel", fedmin.Plain()), None, None,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", KINDS)
def test_whoever_is_killed_it_ends_as_if_nobody_had_been(tmp_path, kind, seed):
    pieces = pieces_of(kind)
    found, _ = stormy(pieces, WORLD.federation, tmp_path, np.random.default_rng(seed), True)
    settings = Settings(ROUNDS, 0, 2, False, None, None)
    quiet = fedmin.Loopback(absent=found.absent).run(pieces, WORLD.federation, settings)
    assert_same_bits(found, quiet)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_keys_are_exchanged_anew_when_anybody_was_killed(tmp_path, seed):
    """Columns, with labels at a client: packets are sealed by keys that a killed site has lost."""
    problem, y = parted.problems(parted.split((3, 1, 3)))["swish"]
    federation = parted.split((3, 1, 3), y, labels="b")
    pieces = assemble(
        problem, federation, fedmin.SplitSGD(0.4, fedmin.WithoutReplacement(5)), fedmin.Everyone(),
        fedmin.Plain(), None, None,
    )  # fmt: skip
    found, _ = stormy(pieces, federation, tmp_path, np.random.default_rng(seed), False)
    settings = Settings(ROUNDS, 0, 2, False, None, None)
    assert_same_bits(found, fedmin.Loopback().run(pieces, federation, settings))


def test_chance_does_strike(tmp_path):
    """Else the tests above would show nothing."""
    rng = np.random.default_rng(1)
    found, lives = stormy(pieces_of("client memory"), WORLD.federation, tmp_path, rng, True)
    assert lives > 1
    assert found.absent


def test_a_record_of_absence_is_kept_with_the_result(tmp_path):
    pieces = pieces_of("client memory")
    settings = Settings(ROUNDS, 0, 2, False, None, None)
    absent = ((1, 0, 2), (2, wire.EVALUATION, 0), (3, 0, 0))
    engine = fedmin.Loopback(absent=absent)
    result = engine.run(pieces, WORLD.federation, settings)
    assert result.absent == absent
    assert fedmin.Result.load(result.save(tmp_path)).absent == absent
    assert result.ledger.counts == [3, 2, 3, 2, 3, 3]
    everyone = fedmin.Loopback().run(pieces, WORLD.federation, settings)
    assert not np.array_equal(result.solution, everyone.solution)
