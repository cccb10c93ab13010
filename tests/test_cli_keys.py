"""fedmin keys and fedmin site, as people type them: each command ends in the next one."""

import re
import shlex
import shutil
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedmin.cli.app import app
from fedmin.privacy.departures import Departures, verify
from fedmin.privacy.identity import Identity
from fedmin.privacy.policy import Policy
from fedmin.runs.site_file import SiteData, SiteFile
from fedmin.runs.site_template import site_template


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fedmin(words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, shlex.split(words))
    assert done.exit_code == code, (words, done.output, done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.output


def said(words: str) -> str:
    """One sentence for a mistake."""
    lines = fedmin(words, code=2).strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


def copied(output: str) -> str:
    """The next command, as it is printed."""
    (command,) = re.findall(r"next[^:]*:    fedmin (.*)", output)
    return command


def test_from_nothing_to_a_federation(here):
    """Every command after the first is what the one before has printed."""
    first = fedmin("keys authority office")
    site = fedmin(copied(first).replace("NAME", "hospital-a"))
    hub = fedmin("keys server hub --host localhost --host 127.0.0.1")
    for made in (site, hub):
        signed = fedmin(copied(made).replace("FOLDER", "office"))
        parcel = Path(re.search(r"send all of (\S+) back", signed)[1])
        assert {p.name for p in parcel.iterdir()} == {
            "certificate.pem", "authority.pem", "revoked.pem",
        }  # fmt: skip
        assert key_in(signed) == key_in(made)  # what is read out by phone
        shutil.copytree(parcel, here / parcel.name, dirs_exist_ok=True)
    assert Identity.load("hospital-a").name == "hospital-a"
    assert "server hub, good until" in fedmin("keys show hub")
    assert "hosts        localhost, 127.0.0.1" in fedmin("keys show hub")
    listed = fedmin("keys show office").splitlines()
    assert [line.split()[:2] for line in listed[-2:]] == [["hospital-a", "site"], ["hub", "server"]]

    renewed = fedmin("keys renew hospital-a")
    again = fedmin(copied(renewed).replace("FOLDER", "office") + " --days 700")
    assert key_in(again) == key_in(site)
    assert "revoked.pem" in fedmin("keys revoke hospital-a --authority office")
    assert fedmin("keys show office").count("revoked") == 2
    assert "the same key, good until" in fedmin("keys renew office --days 5000")


def key_in(output: str) -> str:
    (found,) = re.findall(r"(?:[0-9a-f]{8} ){7}[0-9a-f]{8}", output)
    return found


def test_on_one_machine(here):
    fedmin("keys authority authority")
    fedmin("keys site a")
    fedmin("keys sign a/request.pem --beside")
    assert Identity.load("a").role == "site"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("keys authority office", r"authority\.key is there already; it is not overwritten"),
        ("keys site a", r"a/key\.pem is there already; it is not overwritten"),
        ("keys site a/b", "'a/b' is no name for a party"),
        ("keys server hub --host localhost:8443", "is no host name and no address"),
        ("keys sign a/request.pem --authority office", "sign with --renew to give it a later end"),
        ("keys sign a/request.pem --authority nowhere", "nowhere is no authority"),
        ("keys sign nothing.pem --authority office", r"there is no request nothing\.pem"),
        ("keys sign b/request.pem --authority office --days 9999", "at most 36"),
        ("keys sign b/request.pem --authority office --days 0", "days must be at least 1, got 0"),
        ("keys renew b", r"there is no b/certificate\.pem"),
        ("keys renew a --days 3", "the authority does, with sign --days"),
        ("keys renew nowhere", r"there is no nowhere/key\.pem"),
        ("keys revoke aa --authority office", "did you mean 'a'"),
        ("keys show nowhere", "there is no folder of keys nowhere"),
        ("keys authority taken", "taken"),
        ("keys site c --folder taken", "taken"),
        ("site init a/b", "is no name for a party"),
        ("site log nothing.log", r"there is no log nothing\.log"),
        ("site log left.log --head 12", "a head is a count and 64 hexadecimal digits, got '12'"),
    ],
)
def test_a_mistake_is_one_sentence(here, words, sentence):
    fedmin("keys authority office")
    fedmin("keys site a")
    fedmin("keys site b")
    fedmin("keys sign a/request.pem --authority office --beside")
    (here / "taken").write_text("a file where a folder must be")
    Departures("left.log", "a").close()
    before = {p: p.read_bytes() for p in here.rglob("*") if p.is_file()}
    assert re.search(sentence, said(words))
    assert {p: p.read_bytes() for p in here.rglob("*") if p.is_file()} == before


def test_a_request_can_be_looked_at(here):
    made = fedmin("keys site a")
    for what in ("a", "a/request.pem"):
        shown = fedmin(f"keys show {what}")
        assert "a request for site a, not yet signed" in shown
        assert key_in(shown) == key_in(made)


# ---------------------------------------------------------------- site.toml


def test_the_template_is_a_file_and_so_is_each_of_its_lines(here):
    fedmin("site init hospital-a")
    text = Path("site.toml").read_text()
    assert SiteFile.read("site.toml").name == "hospital-a"
    assert "site.toml is there already" in said("site init hospital-a")
    assert fedmin("site init hospital-a --file -") == text == site_template("hospital-a")
    for line in re.findall(r"^# (\w+ = .*)$", text, re.MULTILINE):
        key = line.split()[0]
        widened = text.replace(f"# {line}", line)
        if key == "features":  # which the example of `columns` allows
            assert SiteFile.of(widened).columns == ["age", "dose", "outcome"]
        found = SiteFile.of(
            widened.replace("# features", "features") if key == "columns" else widened
        )
        assert found.name == "hospital-a"


def test_the_template_has_every_key_and_says_what_it_is():
    text = site_template("a")
    keys = re.findall(r"^(?:# )?(\w+) = .*?(#.*)?$", text, re.MULTILINE)
    wanted = [f.name for kind in (SiteFile, SiteData, Policy) for f in fields(kind)]
    assert sorted(key for key, _ in keys) == sorted(set(wanted) - {"data", "policy"})
    assert all(words for key, words in keys)


# ---------------------------------------------------------------- the log


@pytest.fixture
def left(here) -> Path:
    with Departures("a.log", "a") as log:
        for t in range(3):
            parts = {"header": 40, "update": 8 * 10**t}
            log.add(
                bytes(sum(parts.values())), run="7f" * 8, round=t, parts=parts, asked=bytes([t]),
                shapes={"update": f"float32[{2 * 10**t}]"},
            )  # fmt: skip
        log.add(bytes(48), run="7f" * 8, round=0, parts={"header": 40, "update": 8}, asked=b"\0")
        log.add(bytes(34), run="7f" * 8, round=3, kind="kept")
        log.add(bytes(5), run="00" * 8, round=0)
    return here / "a.log"


def test_the_log_as_a_table_that_lines_up(left):
    output = fedmin("site log a.log")
    table, sums, end = output.split("\n\n")
    lines = table.splitlines()
    place = lines[0].index("bytes") + len("bytes")  # numbers stand flush right
    assert [line[:place].split()[-1] for line in lines[1:]] == ["48", "120", "840", "48", "34", "5"]
    assert sum("reply again" in line for line in lines) == 1
    assert [line.split() for line in sums.splitlines()[1:]] == [
        ["up", "header", "3", "120"], ["up", "update", "3", "888"], ["up", "message", "1", "5"],
        ["sent", "again,", "or", "anew", "1", "48"], ["kept", "1", "34"], ["all", "6", "1,095"],
    ]  # fmt: skip
    assert f"    {verify(left).head}" in end
    assert len(fedmin("site log a.log --last 2").splitlines()) == len(output.splitlines()) - 4
    assert "00000000" not in fedmin("site log a.log --run 7f").partition("\n\n")[0]


def test_a_log_is_verified(left):
    head = str(verify(left).head)
    assert "the log of site a is whole" in fedmin(f'site log a.log --verify --head "{head}"')
    assert "up header" not in fedmin("site log a.log --verify")
    left.write_bytes(left.read_bytes().replace(b'"bytes":120', b'"bytes":121'))
    assert "line 3 does not fit what is before it" in said("site log a.log --verify")
    assert "line 3 does not fit" in fedmin("site log a.log", code=2)
