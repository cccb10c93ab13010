"""Columns prepared on machines: the same numbers, bits and bytes as in one process, whoever is
killed; what a site's policy, log and file have to say of it."""

import json
import re
import shutil
import tomllib
import warnings

import numpy as np
import pandas
import pytest
import tomli_w

import conftest
from doors import Door, Site, placed, served
from fedmin.core.preparation import Preparation
from fedmin.data.own.prepare import Prepare
from fedmin.data.own.talk import Question, Talk, asked
from fedmin.engines.sessions.guarded import PolicyError
from fedmin.engines.sessions.wire import MessageError
from fedmin.privacy import departures
from fedmin.runs.agreement import document_of, hello_of, misfit, misfit_of_numbers, only_job
from fedmin.runs.config import Config
from fedmin.runs.deploying import Parties, prepare
from fedmin.runs.folder import run_one
from fedmin.runs.preparing import KEPT, PreparingSite
from fedmin.runs.reading import folders_of, load
from fedmin.runs.serving import OwnFiles, serve_at
from fedmin.runs.site_file import SiteFile
from test_deploy import answered, in_loopback, until
from test_own_data import GOOD, MISTAKES, OTHER, table

FILE = """
[data]
files = ["a.csv", "b.csv", "c.csv"]
outcome = "died"
without = ["seen"]
groups = "sex"
test = 0.2
[prepare]
missing = "indicator"
smallest_count = 5
class_weights = "balanced"
[problem]
name = "logistic"
l2 = 0.01
[method]
name = "fednl"
[run]
rounds = 3
record = ["objective"]
[federation]
sites = ["a", "b", "c"]
deadline = 120.0
secrets = "seed"
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    for seed, name in enumerate("abc"):
        table(seed, 40 + 10 * seed).to_csv(folder / f"{name}.csv", index=False)
    (folder / "run.toml").write_text(FILE)
    return Config.read(folder / "run.toml")


@pytest.fixture(scope="module")
def quiet(config):
    """The same file in one process."""
    (config.folder / "quiet.toml").write_text(FILE.replace("[run]", '[run]\nengine = "loopback"'))
    (job,) = Config.read(config.folder / "quiet.toml").jobs()
    return run_one(job, config.folder / "loopback").result


def same(outcome, quiet):
    np.testing.assert_array_equal(outcome.result.solution, quiet.solution)
    np.testing.assert_array_equal(outcome.result.history["objective"], quiet.history["objective"])
    assert outcome.result.ledger.by_kind() == quiet.ledger.by_kind()


def test_bit_for_bit_as_in_one_process(config, quiet, tmp_path):
    """Preparation, model and every byte; and what left is in each site's log."""
    outcome, deployed, sites = served(config, tmp_path / "parties")
    same(outcome, quiet)
    raw = pandas.read_csv(config.folder / "a.csv")  # its model works on rows as people write them
    found, there = (
        load(each).model.predict(raw) for each in (outcome.folder, config.folder / "loopback")
    )
    np.testing.assert_array_equal(found, there)
    kinds = load(outcome.folder).ledger.by_kind()
    up = {k: n for k, n in kinds.items() if k.startswith("prepare up")}
    assert set(up) == {
        f"prepare up {part}"
        for part in ("header", "schema", "labels", "levels", "totals", "spreads", "centers",
                     "products", "classes", "prepared")
    }  # fmt: skip
    logs = [departures.read(deployed.site_file(n).parent / f"{n}.log") for n in deployed.names]
    sums = [departures.sums(log) for log in logs]
    assert {kind: sum(one[kind] for one in sums) for kind in up} == up
    for name, site in sites.items():  # no row of its table is in what left
        ages = pandas.read_csv(config.folder / f"{name}.csv")["age"].dropna()
        sent = b"".join(site.told)
        assert not any(np.float64(age).tobytes() in sent for age in ages)
        assert not any(f"{age}".encode() in sent for age in ages)


@pytest.mark.parametrize("at", [1, 4, 9])
def test_whoever_is_killed_while_columns_are_prepared(config, quiet, tmp_path, at):
    outcome, *_ = served(config, tmp_path / "site", lambda count: 1 if count == at else None)
    same(outcome, quiet)
    deployed, sites = placed(config, tmp_path / "server")
    home, struck = deployed.run_file.parent, []

    def strike(count):
        if count == at and not struck:
            struck.append(count)
            raise KeyboardInterrupt  # the server dies
        return None

    run = lambda: serve_at(
        Config.read(deployed.run_file), home / "runs", Door(sites, strike), OwnFiles()
    )
    with pytest.raises(KeyboardInterrupt):
        run()
    same(run(), quiet)


SECURE = FILE.replace("fednl", "fedavg").replace(
    'missing = "indicator"', 'missing = "indicator"\nlevels = {ward = ["x", "y", "z"]}'
) + '[channel]\nname = "secure_sum"\n'  # fmt: skip


@pytest.mark.parametrize("text", [FILE, pytest.param(SECURE, marks=pytest.mark.thorough)])
def test_in_real_processes(text, config, tmp_path):
    """Mutual TLS, plain and with secure sums, a site killed as soon as it has answered something:
    the loopback's bits."""
    text = text.replace("rounds = 3", "rounds = 1")
    for name in "abc":
        shutil.copy(config.folder / f"{name}.csv", tmp_path)
    (tmp_path / "real.toml").write_text(text)
    deployed = prepare(Config.read(tmp_path / "real.toml"), tmp_path / "parties")
    environment = {**conftest.QUICKLY, "JAX_ENABLE_X64": "0"}
    parties = Parties(deployed, environment)
    try:
        parties.start_server()
        for name in ("a", "b", "c"):
            parties.start_site(name)
        until(lambda: answered(deployed, "b") > 3)
        parties.sites["b"].kill()
        parties.sites["b"].wait()
        parties.start_site("b")
        assert parties.wait(600) == 0
    finally:
        parties.stop()
    (folder,) = folders_of([deployed.runs]).values()
    found, quiet = load(folder), in_loopback(tmp_path, environment, text)
    np.testing.assert_array_equal(found.solution, quiet.solution)
    rounds = lambda kinds: {k: n for k, n in kinds.items() if not k.startswith("prepare")}
    assert rounds(found.ledger.by_kind()) == rounds(quiet.ledger.by_kind())
    told = json.loads((folder / KEPT).read_text())["told"]
    assert "age is missing" in Preparation.of(told["preparation"]).names


# ---------------------------------------------------------------- what a site allows


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ('columns = ["age", "died"]', "the run has the column 'lab'"),
        ("smallest_sum = 3", "prepared are seen one by one; the policy's smallest_sum is 3"),
        ("largest_epsilon = 1.0", "have no noise; the policy's largest_epsilon is 1"),
        ('methods = ["fedavg"]', "the run has the method 'fednl'"),
        ("smallest_roster = 4", "columns are prepared by 3 sites; the policy wants at least 4"),
        ("runs = []", "the run has the preparation '"),
    ],
)
def test_a_policy_refuses_before_any_sum_leaves(config, tmp_path, policy, words):
    deployed, sites = placed(config, tmp_path, f"seeded = true\n{policy}\n")
    home = deployed.run_file.parent
    with pytest.raises(ValueError, match=words):
        serve_at(Config.read(deployed.run_file), home / "runs", Door(sites, lambda count: None))
    log = deployed.site_file("a").parent / "a.log"
    assert not [d for d in departures.read(log) if d.when == departures.PREPARING]


def test_noise_refuses_sums_before_any_has_left(config, tmp_path):
    """Ranges for one column only: what the others would need is seen when their names are known."""
    deployed, sites = placed(config, tmp_path)
    words = tomllib.loads(deployed.run_file.read_text())
    words["prepare"] |= {"ranges": {"age": [0, 110]}, "unusable": "keep", "class_weights": "none"}
    words["method"] = {"name": "fedavg", "step": 0.1}
    noise = [{"name": "clip", "norm": 1.0}, {"name": "noise", "multiplier": 1.0}]
    words["channel"] = {"name": "chain", "stages": noise}
    deployed.run_file.write_text(tomli_w.dumps(words))
    home = deployed.run_file.parent
    with pytest.raises(ValueError, match=r"Chain does not reach the sums .*; no epsilon covers"):
        serve_at(Config.read(deployed.run_file), home / "runs", Door(sites, lambda count: None))
    log = departures.read(deployed.site_file("a").parent / "a.log")
    told = {part for d in log if d.when == departures.PREPARING for part in d.parts}
    assert told == {"header", "schema", "labels"}


def before_the_run(config, folder, policy="seeded = true"):
    """A site that was welcomed to the preparation, and a question of what it said."""
    _, sites = placed(config, folder, policy)
    document = document_of(only_job(config))
    site = sites["b"]
    site._open()
    words = {"document": document, "sites": ["a", "b", "c"]}
    half = PreparingSite(site.file, site.log, words)
    base = {"kinds": {"age": "number"}, "outcome": "category", "labels": ["no", "yes"]}
    return half, Question(3, "totals", {**base, "groups": None, "names": ["age"]}, {})


def test_a_server_that_asks_another_thing_again_is_refused_at_the_limit(config, tmp_path):
    half, totals = before_the_run(config, tmp_path, "seeded = true\nmost_rounds = 2\n")
    ask = lambda x: half.answer(asked(half.name, 1, totals._replace(arrays={"x": x})))
    for shift in (0.0, 1.0, 1.0):  # the last is asked again, in the same words
        ask(np.full(1, shift))
    with pytest.raises(PolicyError, match="most_rounds is 2: none is left"):
        ask(np.full(1, 2.0))
    half.departures.close()


def test_a_message_that_does_not_fit_is_refused(config, tmp_path):
    half, totals = before_the_run(config, tmp_path)
    right = asked(half.name, 1, totals)
    wrong = [
        asked(bytes(8), 1, totals), asked(half.name, 0, totals), right[:-1],
        right[:50] + bytes([right[50] ^ 1]) + right[51:],
        asked(half.name, 1, totals._replace(arrays={"x": np.array([np.nan])})),
    ]  # fmt: skip
    for message in wrong:
        with pytest.raises(MessageError):
            half.answer(message)
    reply = half.answer(right)
    half.departures.close()
    forms = {"there": (1,), "sum": (1,), "rows": (1,)}
    for changed in (reply[:-1], reply[:40] + bytes([reply[40] ^ 1]) + reply[41:], right):
        talk = Talk(["a", "b"], lambda messages, data=changed: {0: data, 1: data}, half.name)
        with pytest.raises(MessageError):
            talk.sums("totals", {}, {}, forms)


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("change", "options", "words"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES]
)
def test_a_site_is_told_all_of_a_mistake_and_the_server_that_there_is_one(
    change, options, words, tmp_path
):
    """The mistakes of a simulation (tests/test_own_data.py), made at `fedmin join`."""
    how = options.get("prepare", Prepare(smallest_count=1))
    chosen = {"outcome": "died", **{k: v for k, v in options.items() if k != "prepare"}}
    text = tomli_w.dumps({
        "data": chosen, "problem": {"name": "logistic"}, "method": {"name": "fednl"},
        "prepare": {"missing": how.missing, "smallest_count": 1},
        "run": {"rounds": 1}, "federation": {"sites": ["a", "b"], "secrets": "seed"},
    })  # fmt: skip
    sites, said = {}, ""
    for name, table_ in {"a": GOOD, "b": OTHER, **change}.items():
        home = tmp_path / name
        home.mkdir()
        (home / f"{name}.csv").write_bytes(table_ if isinstance(table_, bytes) else table_.encode())
        words_of_site = f'name = "{name}"\nserver = "localhost:1"\nkeys = "keys"\n'
        (home / "site.toml").write_text(
            words_of_site + f'[data]\nfile = "{name}.csv"\n[policy]\nseeded = true\n'
        )
        try:
            sites[name] = Site(SiteFile.read(home / "site.toml"))
        except ValueError as error:  # before it calls anybody
            said = str(error)
    if len(sites) == 2:
        door = Door(sites, lambda count: None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(ValueError) as caught:
                serve_at(Config(text), tmp_path / "runs", door)
        said = str(caught.value)
        for site in sites.values():
            if site.before is None:
                continue
            if site.before.failure:
                assert "its own log has the file, the row and the remedy" in said
                said = site.before.failure
            site.log.close()
    assert re.search(words, said), said


def test_words_where_the_run_prepares_nothing(tmp_path):
    why = misfit_of_numbers("b", hello_of({"rows": 3, "words": True}))
    assert "entries that are no numbers, and the run prepares no columns" in why
    assert misfit("b", hello_of({"rows": 3, "words": True})) == ""
