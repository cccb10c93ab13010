"""Limits on groups between machines: rows are counted before the run; the rest is loopback's."""

import json

import numpy as np
import pytest

import doors
import fedmin
from fedmin.privacy.departures import PREPARING, read, sums
from fedmin.runs import agreement, rosters
from fedmin.runs.config import Config
from fedmin.runs.costs import fitted
from fedmin.runs.own_rows import OwnRows, read_own
from fedmin.runs.site_file import SiteFile

RUN = """
[data]
name = "diabetes"
groups = "sex"
standardize = true
[partition]
name = "iid"
clients = 3
weights = "WEIGHTS"
[problem]
name = "leastsquares"
[[constraint]]
name = "grouplossatmost"
limits = [14000.0, 13000.0]
by = "groups"
[method]
name = "ssca"
[run]
rounds = 2
record = [{name = "objective"}, {name = "optimality"}]
[federation]
sites = ["a", "b", "c"]
secrets = "seed"
"""
LABELS = (
    RUN.replace('groups = "sex"\n', "")
    .replace("diabetes", "wine")
    .replace("leastsquares", "softmax")
    .replace("[14000.0, 13000.0]", '{"0" = 0.9, "2" = 1.0}')
    .replace('by = "groups"\n', "")
)
COLUMNS = LABELS.replace("iid", "evencolumns").replace('weights = "WEIGHTS"', 'labels = "b"')


def loopback(text) -> fedmin.Result:
    pieces, _ = fitted(Config(text).jobs()[0])
    chosen = {k: v for k, v in pieces.options.items() if k != "engine"}
    return fedmin.minimize(
        pieces.problem, pieces.federation, pieces.method, engine=fedmin.Loopback(), **chosen
    )


CASES = {
    "groups": (RUN.replace("WEIGHTS", "sizes"), 3 * 16 * 4),
    "groups, equal sites": (RUN.replace("WEIGHTS", "uniform"), 3 * 16 * 4),
    "labels": (LABELS.replace("WEIGHTS", "sizes"), 3 * 16 * 5),
    "columns": (COLUMNS, 16 * 5),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # two rounds are too few
@pytest.mark.parametrize("case", CASES)
def test_limits_on_groups_end_as_in_loopback(tmp_path, case):
    """Bit for bit, bytes among them: what was counted is in the ledger and in the sites' logs."""
    text, size = CASES[case]
    outcome, _, sites = doors.served(text, tmp_path)
    found, quiet = outcome.result, loopback(text)
    np.testing.assert_array_equal(found.solution, quiet.solution)
    for name in quiet.history:
        if name != "seconds":
            np.testing.assert_array_equal(found.history[name], quiet.history[name])
    assert found.problem.limits == quiet.problem.limits
    assert found.ledger.by_kind() == quiet.ledger.by_kind()
    assert found.ledger.by_kind()["prepare up counts"] == size
    assert found.privacy.shown[0] == quiet.privacy.shown[0]
    assert found.privacy.shown[0].when == PREPARING
    logs = [read(site.file.log) for site in sites.values()]
    assert sum(sums(log).get("prepare up counts", 0) for log in logs) == size
    lines = [line for log in logs for line in log if line.when == PREPARING]
    assert {line.parts["counts"] for line in lines} == {size // len(lines)}


def test_counts_are_those_of_the_rows(tmp_path):
    """By hand from the sites' own files; all that all are told is their sum."""
    deployed, sites = doors.placed(CASES["groups"][0], tmp_path)
    seen = {}

    class Door(doors.Door):
        def welcome(self, words):
            seen.update(json.loads(json.dumps(words)))
            raise InterruptedError

    door, home = Door(sites, lambda count: None), deployed.run_file.parent
    with pytest.raises(InterruptedError):
        doors.serve_at(Config.read(deployed.run_file), home / "runs", door)
    groups = np.concatenate([site.own.group for site in sites.values()])
    numbers = np.bincount(groups)
    assert seen["counts"] == [[*(numbers / numbers.sum()), 0.0], [*numbers, 0]]
    assert "counts" not in json.dumps(seen["roster"])


def test_a_server_that_goes_on_does_not_ask_again(tmp_path):
    deployed, sites = doors.placed(CASES["groups"][0], tmp_path)
    asked = []

    class Door(doors.Door):
        def survey(self, names, *rest):
            asked.append(names)
            return super().survey(names, *rest)

        def welcome(self, words):
            if len(asked) == 1 and not sites["a"].sent:
                asked.append("killed")
                raise InterruptedError
            super().welcome(words)

    home = deployed.run_file.parent
    config, door = Config.read(deployed.run_file), Door(sites, lambda count: None)
    with pytest.raises(InterruptedError):
        doors.serve_at(config, home / "runs", door)
    outcome = doors.serve_at(config, home / "runs", door)
    assert outcome.result.rounds == 2
    assert asked == [("a", "b", "c"), "killed"]


REFUSED = [
    ("smallest_sum = 2", "is seen by itself; the policy's smallest_sum is 2"),
    ("largest_epsilon = 1.0", "is told without noise; the policy's largest_epsilon is 1"),
    ('constraints = ["normatmost"]', "the run has the constraint 'grouplossatmost'"),
    ('methods = ["fedavg"]', "the run has the method 'ssca'"),
    ("most_rounds = 1", "the policy's most_rounds is 1"),
    ("seeded = false", "seeded is false"),
    ('runs = ["0123456789abcdef"]', "the policy's runs are '0123456789abcdef'"),
]


@pytest.mark.parametrize(("policy", "words"), REFUSED)
def test_a_site_whose_policy_says_no_counts_nothing(tmp_path, policy, words):
    policy = policy if "seeded" in policy else f"{policy}\nseeded = true"
    with pytest.raises(ValueError, match=words):
        doors.served(CASES["groups"][0], tmp_path, policy=policy)
    assert all(line.when != PREPARING for path in tmp_path.rglob("*.log") for line in read(path))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # two rounds are too few
def test_a_policy_allows_such_limits_by_the_name_that_files_give_them(tmp_path):
    """Also when their rows have been counted, and the problem holds them in another form."""
    policy = 'constraints = ["grouplossatmost"]\nseeded = true'
    outcome, _, _ = doors.served(CASES["groups"][0], tmp_path, policy=policy)
    assert outcome.result.rounds == 2


def test_a_question_that_no_run_needs_is_refused(tmp_path):
    """A server that asks for counts of a run without limits on groups learns nothing."""
    text = CASES["groups"][0]
    i, j = text.index("[[constraint]]"), text.index("[method]")
    _, sites = doors.placed(text[:i] + text[j:], tmp_path)
    words = {}

    class Door(doors.Door):
        def welcome(self, told):
            words.update(told)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        doors.serve_at(Config(text[:i] + text[j:]), tmp_path / "runs", Door(sites, lambda c: None))
    assert words["counts"] is None
    door = Door(sites, lambda count: None)
    ask = json.dumps({"what": "counts", **words}).encode()
    with pytest.raises(ValueError, match="asks a for counts that its run does not need"):
        door.survey(["a"], ask, 1, lambda: "")
    with pytest.raises(ValueError, match="asks before the run what this fedmin does not know"):
        door.survey(["a"], b'{"what": "rows"}', 1, lambda: "")


def test_answers_that_no_rows_give_are_refused(tmp_path):
    deployed, sites = doors.placed(CASES["groups"][0], tmp_path)
    for number, words in (
        (float("nan"), "that no rows have"),
        (-1.0, "that no rows have"),
        (None, "sent 8 bytes as its counts"),
    ):

        class Door(doors.Door):
            def survey(self, names, *rest, number=number):
                found = super().survey(names, *rest)
                bad = np.frombuffer(found["b"], "<f8").copy()
                bad[0] = 0.0 if number is None else number
                return {**found, "b": (bad[:1] if number is None else bad).tobytes()}

        home = deployed.run_file.parent
        with pytest.raises(ValueError, match=f"b sent.*{words}|b {words}"):
            doors.serve_at(
                Config.read(deployed.run_file), home / "runs", Door(sites, lambda c: None)
            )


def test_a_channel_that_hides_replies_does_not_reach_the_counts(tmp_path):
    text = CASES["groups"][0] + '[channel]\nname = "secure_sum"\n'
    with pytest.raises(ValueError, match="does not reach the counts of rows in each group"):
        doors.served(text, tmp_path)


# ---------------------------------------------------------------- a site's own file


def test_groups_of_a_sites_own_column(tmp_path):
    """Sites that have other values: all agree on one list of names, each numbers its own by it."""
    made = {}
    for name, rows in (("a", ["3,x,1", "4,y,0"]), ("b", ["5,z,1", "6,x,1", "7,z,0"])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,ward,died", *rows]) + "\n")
        words = f'name = "{name}"\nserver = "localhost:1"\nkeys = "k"\n[data]\n'
        words += f'file = "{name}.csv"\noutcome = "died"\ngroups = "ward"\n'
        made[name] = read_own(SiteFile.of(words, tmp_path))
    assert made["a"].columns == ("age",)
    assert [each.shapes()["groups"] for each in made.values()] == [["x", "y"], ["x", "z"]]
    text = RUN.replace('["a", "b", "c"]', '["a", "b"]').replace("clients = 3", "clients = 2")
    config = Config(text.replace("WEIGHTS", "sizes"))
    shapes = {name: each.shapes() for name, each in made.items()}
    roster = agreement.roster_of(config, config.jobs()[0], shapes)
    assert roster.groups == ("x", "y", "z")
    assert roster.by_rows
    assert made["b"].fitted(roster).group.tolist() == [2, 0, 2]
    again = rosters.roster_from(rosters.roster_words(roster))
    assert again.groups == roster.groups
    shapes["a"]["groups"] = []
    with pytest.raises(ValueError, match="in groups at some sites only"):
        agreement.roster_of(config, config.jobs()[0], shapes)
    strange = OwnRows(made["b"].x, made["b"].y, made["b"].weight, group=made["b"].group,
                      groups=("x", "q"))  # fmt: skip
    with pytest.raises(ValueError, match="does not know the group 'q'"):
        strange.fitted(roster)
