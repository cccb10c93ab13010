"""Who is there, in `fedmin watch` and on the page of a run: of machines, as for simulations."""

import json

import pytest

import doors
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.transport import Transport
from fedmin.runs import presence
from fedmin.runs.presence import NAME, Watched
from fedmin.runs.watch import current_page
from test_own_secret import RUN


class Road(Transport):
    """Sites that come and go as they are told."""

    def __init__(self):
        self.there, self.delays = set[int](), {}

    def here(self):
        return self.there

    def deliver(self, messages, deadline=None, enough=None, before=None):
        found = {i: b"reply" for i in messages if i in self.there}
        self.delays |= {i: 0.01 * (i + 1) for i in found}
        return found


def ask(t: int, i: int) -> bytes:
    return wire.encode(wire.Envelope("ask", t, 0, 2**31 - 1, i), {})


@pytest.fixture
def watched(tmp_path, monkeypatch):
    monkeypatch.setattr(presence, "SECONDS", 1e9)  # no look but those of the test
    clock = iter(f"2026-01-01T00:00:{s:02d}+0000" for s in range(60))
    monkeypatch.setattr(presence.time, "strftime", lambda form: next(clock))
    found = Watched(Road(), ("a", "b"), tmp_path)
    yield found
    found.close()


def test_who_comes_and_goes_is_seen_with_the_time(watched, tmp_path):
    def seen():
        watched.look()
        return {one.site: (one.here, one.since) for one in presence.load(tmp_path)}

    assert seen() == {"a": (False, ""), "b": (False, "")}
    watched.transport.there = {0, 1}
    (_, came), (_, too) = seen().values()
    assert came
    assert too
    watched.transport.there = {0}
    later = seen()
    assert later["a"] == (True, came)  # since it came, not since it was seen last
    assert later["b"][0] is False
    assert later["b"][1] > too


def test_rounds_delays_and_bytes_are_those_of_the_messages(watched, tmp_path):
    watched.transport.there = {0, 1}
    for t in range(3):
        watched.deliver({i: ask(t, i) for i in (0, 1)}, before={1: b"12345"})
    watched.transport.there = {0}
    watched.deliver({i: ask(3, i) for i in (0, 1)})
    watched.look()
    a, b = presence.load(tmp_path)
    assert (a.round, b.round) == (3, 2)
    assert (a.delay, b.delay) == (0.01, 0.02)
    assert (a.up, b.up) == (4 * 5, 3 * 5)
    assert (a.down, b.down) == (4 * len(ask(0, 0)), 4 * len(ask(0, 0)) + 3 * 5)


def test_a_server_that_is_started_again_goes_on_counting(watched, tmp_path):
    watched.transport.there = {0, 1}
    watched.deliver({0: ask(0, 0)})
    watched.look()
    again = Watched(Road(), ("a", "b"), tmp_path)
    again.close()
    a, _ = presence.load(tmp_path)
    assert (a.up, a.round, a.here) == (5, 0, False)


def test_the_page_of_machines_has_a_line_a_site(tmp_path):
    """And of a file that is half written it says so, and shows everything else."""
    outcome, deployed, sites = doors.served(RUN, tmp_path)
    folder = deployed.runs / outcome.job.folder
    page = current_page([deployed.runs])
    up = {name: sum(map(len, site.sent)) for name, site in sites.items()}
    for one in presence.load(folder):
        assert one.here
        assert one.round == 3
        assert one.up == up[one.site]
        assert f'<th scope="row">{one.site}</th><td>there since' in page
    assert "How they ended" in page
    whole = (folder / NAME).read_text()
    for cut in ("", whole[: len(whole) // 2], whole.replace("3", "4"), json.dumps({"sites": 7})):
        (folder / NAME).write_text(cut)
        page = current_page([deployed.runs])
        assert "Who is there cannot be told now" in page
        assert "How they ended" in page
