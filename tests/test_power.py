"""A machine that loses its power: what it wrote and did not sync may be gone, cut anywhere.

Checkpoints are synced before they have their names; journals and diaries are not. So after a cut a
journal or a diary may be any beginning of itself, or empty. The run must end bit for bit as a quiet
one.
"""

import pytest

import fedmin
from agreement import assert_same_bits
from fedmin.engines.drive import Settings
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.checkpoint import Checkpoint
from fedmin.engines.sessions.halves import Own, Terms, run_halves
from fedmin.engines.sessions.packets import ClientError
from fedmin.engines.sessions.site import SiteSession
from fedmin.engines.sessions.transport import Transport
from test_presence import ROUNDS, WORLD, Killed, pieces_of

WHO = {"server": ("journal.bin",), "site": ("1/diary.bin",), "all": ("journal.bin", "*/diary.bin")}


class Cut(Transport):
    """Sites in this process; after so many trips the power is gone, of some machines or all."""

    def __init__(self, folder, opened, after):
        self.folder, self.opened, self.after = folder, opened, after
        self.sites = [opened(i) for i in range(3)]

    def here(self):
        return {0, 1, 2}

    def deliver(self, messages, deadline=None, enough=None, before=None):
        self.after -= wire.envelope_of(next(iter(messages.values()))).kind == "ask"
        if self.after == 0:
            raise Killed
        replies = {}
        for i, data in messages.items():
            if before and i in before:
                said = wire.envelope_of(self.sites[i].answer(before[i]))
                if said.kind != "kept":
                    raise ClientError(f"client {i} cannot go back: see its log")
            replies[i] = self.sites[i].answer(data)
        return replies


def cut(path, share):
    """Keep the first part of a file only, as a disk does that was told to keep nothing yet."""
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.97])
@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("kind", ["client memory"])
def test_a_cut_of_power_changes_nothing(tmp_path, kind, who, share):
    pieces, roster = pieces_of(kind), WORLD.federation.roster()
    settings = Settings(ROUNDS, 0, 2, False, Checkpoint(tmp_path, rounds=5), None)

    def opened(i):
        return SiteSession(
            pieces, roster, i, WORLD.federation.client(i), seed=0, folder=tmp_path / str(i),
            gaps=True, diary=True,
        )  # fmt: skip

    def attempt(road):
        own = Own(WORLD.federation.server_rows, WORLD.federation.test)
        return run_halves(pieces, roster, own, lambda *_: road, settings, Terms(journal=True))

    road = Cut(tmp_path, opened, 9)  # in the middle of a run, between two checkpoints
    with pytest.raises(Killed):
        attempt(road)
    for pattern in WHO[who]:
        for path in tmp_path.glob(pattern):
            cut(path, share)
    road = Cut(tmp_path, opened, -1)
    found = attempt(road)
    quiet = fedmin.Loopback().run(
        pieces, WORLD.federation, Settings(ROUNDS, 0, 2, False, None, None)
    )
    assert_same_bits(found, quiet)
