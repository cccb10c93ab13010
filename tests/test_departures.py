"""The log of what left a site: what of a change is seen, what survives a kill."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedmin.privacy import departures
from fedmin.privacy.chained import Chained, Head, LogError
from fedmin.privacy.departures import Departures, read, verify


@pytest.fixture
def log(tmp_path) -> Path:
    path = tmp_path / "site.log"
    with Departures(path, "a") as open_log:
        for t in range(6):
            open_log.add(bytes([t] * 9), run="7f", round=t, asked=bytes([t]))
    return path


def test_a_whole_log_is_in_order(log):
    found = verify(log)
    assert (found.wrong, found.notes, found.site, found.head.lines) == ("", [], "a", 7)
    assert [e.round for e in found.departures] == [0, 1, 2, 3, 4, 5]
    assert log.stat().st_mode & 0o777 == 0o600


def test_the_sums_are_what_the_ledger_counts_then_the_rest(tmp_path):
    path = tmp_path / "site.log"
    with Departures(path, "a") as open_log:
        for t, size in ((0, 8), (1, 8), (1, 8), (2, 5)):  # round 1 was asked anew
            parts = {"update": size - 3, "count": 3}
            open_log.add(bytes([t] * size), run="7f", round=t, parts=parts, asked=bytes([t]))
        open_log.add(b"no", run="7f", round=3, kind="refusal")
        open_log.add(b"kept", run="7f", round=3, kind="kept")
        open_log.add(b"kept!", run="7f", round=4, kind="kept")
    assert departures.totals(read(path)) == [
        ["up update", "3", "12"], ["up count", "3", "9"], ["sent again, or anew", "1", "8"],
        ["kept", "2", "9"], ["refusal", "1", "2"], ["all", "7", "40"],
    ]  # fmt: skip
    assert departures.totals([]) == [["all", "0", "0"]]


def changed(log: Path, change) -> str:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(change(lines)))
    return verify(log).wrong


CHANGES = {
    "a changed number": lambda ls: [ls[0], ls[1].replace(b'"bytes":9', b'"bytes":8'), *ls[2:]],
    "a changed digest": lambda ls: [*ls[:3], ls[3].replace(b'"sha256":"', b'"sha256":"0'), *ls[4:]],
    "a removed line": lambda ls: ls[:3] + ls[4:],
    "the first removed": lambda ls: ls[1:],
    "two exchanged": lambda ls: [*ls[:2], ls[3], ls[2], *ls[4:]],
    "one repeated": lambda ls: [*ls[:3], ls[2], *ls[3:]],
    "one put in": lambda ls: [*ls[:3], b'{"log":"departures","chain":"00"}\n', *ls[3:]],
    "no JSON put in": lambda ls: [*ls[:3], b"nothing\n", *ls[3:]],
    "a key twice": lambda ls: [*ls[:2], b'{"bytes":1,' + ls[2][1:], *ls[3:]],
    "other spaces": lambda ls: [*ls[:2], ls[2].replace(b'":', b'": ', 1), *ls[3:]],
    "cut at the end": lambda ls: ls[:-1],
    "cut to one": lambda ls: ls[:1],
    "cut within the last": lambda ls: [*ls[:-1], ls[-1][:40]],
    "emptied": lambda ls: [],
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(log, name):
    assert changed(log, CHANGES[name]) != ""
    with pytest.raises(LogError):
        read(log)


def test_every_flipped_bit_is_seen(log):
    """Of every byte of a line in the middle, and of the head."""
    whole = log.read_bytes()
    start = whole.index(b'"round":2')
    for path, places in (
        (log, range(start, start + 400)),
        (log.with_name("site.log.head"), range(85)),
    ):
        kept = path.read_bytes()
        for i in places:
            path.write_bytes(kept[:i] + bytes([kept[i] ^ 1]) + kept[i + 1 :])
            assert verify(log).wrong, (path.name, i)
        path.write_bytes(kept)
    assert not verify(log).wrong


def test_a_log_that_was_written_anew_is_seen_by_whoever_kept_a_head(log):
    """The site's administrator can write log and head anew; a head kept elsewhere shows it."""
    kept = verify(log).head
    with Departures(log, "a") as more:
        more.add(b"x", run="7f", round=6)
    assert verify(log, Head.of(str(kept))).wrong == ""  # it has only become longer
    log.unlink()
    log.with_name("site.log.head").unlink()
    with Departures(log, "a") as anew:
        for t in range(8):
            anew.add(bytes([t] * 9), run="7f", round=t, asked=bytes([t]))
    assert verify(log).wrong == ""  # by itself it looks right
    assert "this is not the log it was of" in verify(log, kept).wrong
    assert "counts 99 lines and there are 9" in verify(log, Head(99, kept.chain)).wrong


def test_a_log_with_a_cut_goes_on_and_says_so_for_ever(log):
    changed(log, lambda lines: lines[:4])
    with Departures(log, "a") as more:
        more.add(b"x", run="7f", round=9)
    found = verify(log)
    assert "3 lines are missing before" in found.wrong
    assert [e.round for e in found.departures] == [0, 1, 2, 9]


def test_a_log_that_was_changed_is_not_gone_on_with(log):
    changed(log, CHANGES["a changed number"])
    with pytest.raises(LogError, match=r"line 2 does not fit .*; keep it, and begin another one"):
        Departures(log, "a")


def test_a_log_without_its_head_is_not_gone_on_with(log):
    log.with_name("site.log.head").unlink()
    assert "a cut is not seen" in verify(log).wrong
    with pytest.raises(LogError, match=r"there is no site\.log\.head"):
        Departures(log, "a")


def test_half_a_line_is_repaired_and_noted(log):
    """As a power failure, or a full disk, leaves it."""
    with log.open("ab") as file:
        file.write(b'{"time":"2026-01-01T00:00')
    found = verify(log)
    assert found.wrong == ""
    assert "half written (25 bytes)" in found.notes[0]
    before = log.read_bytes()
    with Departures(log, "a") as more:
        more.add(b"x", run="7f", round=6)
    assert log.read_bytes().startswith(before)  # nothing was ever taken back
    found = verify(log)
    assert found.wrong == ""
    assert found.notes == ["line 8 was half written, as the next one says"]
    assert [e.round for e in found.departures] == [0, 1, 2, 3, 4, 5, 6]


def test_a_repair_that_was_cut_short_is_repaired(log):
    with log.open("ab") as file:
        file.write(b'{"time":"2026\n{"torn":13,"sha')
    with Departures(log, "a") as more:
        more.add(b"x", run="7f", round=6)
    assert verify(log).wrong == ""
    assert len(verify(log).departures) == 7


@pytest.mark.parametrize("cut", [1, 2, 60, 1000])
def test_a_first_line_that_is_torn(tmp_path, cut):
    path = tmp_path / "new.log"
    with Chained(path, {"log": "departures", "version": 1, "site": "a"}):
        pass
    path.with_name("new.log.head").unlink()
    path.write_bytes(path.read_bytes()[:-1][:cut])
    with Departures(path, "a") as more:
        more.add(b"x", run="7f", round=6)
    assert verify(path).wrong == ""
    assert len(read(path)) == 1


def test_a_line_without_its_line_feed_is_a_line(log):
    head = log.with_name("site.log.head").read_bytes()
    with Departures(log, "a") as more:
        more.add(b"x", run="7f", round=6)
    log.with_name("site.log.head").write_bytes(head)  # not yet written
    log.write_bytes(log.read_bytes()[:-1])
    assert len(read(log)) == 7
    with Departures(log, "a") as more:
        more.add(b"x", run="7f", round=7)
    assert [e.round for e in read(log)][-2:] == [6, 7]


KILLED = """
import os, sys
from fedmin.privacy.departures import Departures
log = Departures(sys.argv[1], "a")
t = 0
while True:
    log.add(bytes(t % 50), run="7f", round=t)
    os.write(1, b"%d\\n" % t)
    t += 1
"""


def test_whatever_left_before_a_kill_is_in_the_log(tmp_path):
    """kill -9 in the middle of writing, twice over the same log."""
    path, before = tmp_path / "site.log", 0
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        for _ in range(40):
            last = process.stdout.readline()
        process.kill()
        rest = process.stdout.read().splitlines()
        last = rest[-1] if rest else last
        process.wait()
        process.stdout.close()
        found = verify(path)
        assert found.wrong == ""
        assert len(found.departures) - before >= int(last) + 1
        before = len(found.departures)


def test_one_process_writes_at_a_time(log):
    with Departures(log, "a"), pytest.raises(LogError, match="being written by another process"):
        Departures(log, "a")
    with pytest.raises(LogError, match=r"is a log of site 'a', not 'b'"):
        Departures(log, "b")


def test_a_log_is_of_plain_lines(log):
    """Other programs can read it without fedmin."""
    first, second, *_ = map(json.loads, log.read_text().splitlines())
    assert first["site"] == "a"
    assert {*second} == {*departures.Departure._fields, "chain"}
