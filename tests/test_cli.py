"""The command line: tables that line up, plain errors, and one real process."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedmin
from fedmin.channels import CHANNELS
from fedmin.cli import app as cli
from fedmin.cli import catalog
from fedmin.data import DATASETS, PARTITIONERS
from fedmin.domains import DOMAINS
from fedmin.methods import METHODS
from fedmin.problems import PROBLEMS

REGISTRIES = {
    "methods": METHODS,
    "problems": PROBLEMS,
    "data": DATASETS,
    "partitioners": PARTITIONERS,
    "domains": DOMAINS,
    "channels": CHANNELS,
}


def invoke(*words: str):
    return CliRunner().invoke(cli.app, list(words))


@pytest.mark.parametrize("category", REGISTRIES)
def test_list_has_a_line_for_everything(category):
    outcome = invoke("list", category)
    assert outcome.exit_code == 0
    head, *lines = outcome.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(REGISTRIES[category])
    what = head.index("what")
    for line in lines:  # lined up: a summary begins where its heading does
        assert line[what - 1] == " "
        assert line[what] != " "


def test_list_without_a_category_counts_all():
    outcome = invoke("list")
    counted = dict(line.split() for line in outcome.stdout.splitlines()[1:])
    assert {name: int(counted[name]) for name in REGISTRIES} == {
        name: len(registry) for name, registry in REGISTRIES.items()
    }


def test_every_thing_has_a_summary():
    for name, make in catalog.categories().items():
        head, lines = make()
        for line in lines:
            assert line[head.index("what")], f"{name}: {line[0]} has no docstring"


def test_methods_say_what_they_send_and_cite():
    head, lines = catalog.lines("methods")
    scaffold = dict(zip(head, next(x for x in lines if x[0] == "scaffold"), strict=True))
    assert scaffold["what"] == "control variates cancel client drift"
    assert scaffold["bytes"] == "down 2d, up 2d"
    assert scaffold["reference"] == "karimireddy2020scaffold"
    assert all(all(line) for line in lines)


def test_unknown_category_suggests_the_nearest():
    outcome = invoke("list", "metods")
    assert outcome.exit_code == 2
    assert "did you mean 'methods'?" in outcome.stderr
    assert "Traceback" not in outcome.output
    assert outcome.stdout == ""


def test_errors_are_red(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[31m" in invoke("list", "metods").stderr


def test_unknown_command_is_bad_input():
    outcome = invoke("lst")
    assert outcome.exit_code == 2
    assert "list" in outcome.stderr


def test_a_bug_is_not_hidden(monkeypatch):
    monkeypatch.setattr(catalog, "lines", lambda category: [][0])
    assert isinstance(invoke("list").exception, IndexError)


def test_a_bug_ends_in_one_line_and_a_file(monkeypatch, capsys, tmp_path):
    """What users start is `main`; tests call `app`, where a bug stays what it is."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(catalog, "lines", lambda category: [][0])
    monkeypatch.setattr(sys, "argv", ["fedmin", "list", "data"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 70
    (kept,) = tmp_path.glob("fedmin-bug-*.txt")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "this is a bug of fedmin: IndexError: list index out of range" in said
    assert str(kept) in said
    text = kept.read_text("utf-8")
    assert text.startswith("fedmin list data\n")
    assert "Traceback" in text
    assert "in list_" in text


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "error: not enough memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: 9 bytes too many.\nand so on"),
         "error: not enough memory for this: RESOURCE_EXHAUSTED: 9 bytes too many."),
        (PermissionError(13, "Permission denied", "a.toml"), "error: a.toml: Permission denied"),
        (ValueError("a\x1b[31mb\udcffc"), r"error: a\x1b[31mb\udcffc"),
    ],
)  # fmt: skip
def test_what_a_machine_refuses_is_said_in_one_line(monkeypatch, error, words):
    def fail(category):
        raise error

    monkeypatch.setattr(catalog, "lines", fail)
    outcome = invoke("list")
    assert outcome.exit_code == 2
    assert outcome.stderr.strip() == words


@pytest.mark.parametrize("command", ["run", "report", "plot", "init", "reproduce"])
def test_what_cannot_be_written_says_just_that_before_any_work(command, tmp_path, monkeypatch):
    monkeypatch.setattr("fedmin.runs.reading.load_all", lambda folders: 1 / 0)
    monkeypatch.setattr("fedmin.runs.reading.report_of", lambda folders: 1 / 0)
    monkeypatch.setattr("fedmin.runs.folder.run", lambda *_, **__: 1 / 0)
    monkeypatch.setattr("fedmin.reports.claims.reproduce", lambda *_, **__: 1 / 0)
    (tmp_path / "taken").write_text("")
    invoke("init", "fedsgd", "--file", str(tmp_path / "a.toml"))
    out = str(tmp_path / "taken" / "out")
    words = {
        "run": ["run", str(tmp_path / "a.toml"), "--out", out],
        "init": ["init", "fedsgd", "--file", out],
        "reproduce": ["reproduce", "all", "--out", out],
    }.get(command, [command, str(tmp_path), "--out", out])
    outcome = invoke(*words)
    assert outcome.exit_code == 2, outcome.exception
    assert outcome.stderr == f"error: {out} cannot be written: Not a directory\n"


def test_version_as_an_option():
    outcome = invoke("--version")
    assert outcome.exit_code == 0
    assert outcome.stdout == f"fedmin {fedmin.__version__}\n"


def test_version_in_a_real_process():
    source = str(Path(fedmin.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "FEDMIN_DEVICES": "2"}
    outcome = subprocess.run(
        [sys.executable, "-m", "fedmin.cli", "version"],
        capture_output=True, text=True, env=environment, timeout=300, check=True,
    )  # fmt: skip
    found = dict(line.split(maxsplit=1) for line in outcome.stdout.splitlines())
    assert found["fedmin"] == fedmin.__version__
    assert found["python"] == sys.version.split()[0]
    assert found["devices"] == "2 x cpu"
    assert "jax" in found


def test_version_imports_nothing_heavy():
    source = str(Path(fedmin.__file__).parents[1])
    words = (
        "import sys, fedmin.cli.app; from fedmin.core.environment import versions; versions();"
        "print([m for m in ('matplotlib', 'sklearn', 'pooch', 'pandas') if m in sys.modules])"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", words],
        capture_output=True, text=True, timeout=300, check=True,
        env={**os.environ, "PYTHONPATH": source},
    )  # fmt: skip
    assert outcome.stdout.strip() == "[]"


def test_demo_into_a_file_fails_at_once(tmp_path):
    (tmp_path / "taken").write_text("")
    outcome = invoke("demo", "--out", str(tmp_path / "taken"))
    assert outcome.exit_code == 2
    assert "taken" in outcome.stderr
    assert "Traceback" not in outcome.output
