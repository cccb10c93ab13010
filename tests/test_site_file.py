"""site.toml and [federation] of run.toml: what they take, and what is said of the rest."""

import gzip
from dataclasses import fields

import numpy as np
import pytest
import tomli_w
from typer.testing import CliRunner

from fedmin.cli.app import app
from fedmin.data import DataFileError
from fedmin.privacy.policy import Policy
from fedmin.runs.config import Config
from fedmin.runs.document import ConfigError
from fedmin.runs.site_file import SiteFile

HEAD = 'name = "a"\nserver = "fed.example.org:8443"\nkeys = "keys/a"\n'
DATA = '[data]\nfile = "rows.csv"\noutcome = "ill"\nfeatures = ["age", "dose"]\n'
POLICY = """\
[policy]
methods = ["fedavg", "scaffold"]
problems = ["logistic"]
constraints = []
channels = ["plain"]
metrics = ["objective"]
smallest_roster = 3
smallest_cohort = 2
smallest_sum = 2
most_rounds = 100
largest_epsilon = 2
columns = ["age", "dose", "ill"]
modules = ["ours"]
runs = ["00ff00ff00ff00ff"]
seeded = false
own_line = false
"""
LIMITS = HEAD + DATA + "[policy]\n"
ROWS = "id,age,dose,ill,sex\n1,50,0.1,1,f\n2,61,-2e-3,0,m\n"


def test_a_whole_file(tmp_path):
    (tmp_path / "site.toml").write_text(HEAD + DATA + POLICY)
    site = SiteFile.read(tmp_path / "site.toml")
    assert (site.name, site.server) == ("a", "fed.example.org:8443")
    assert site.keys == str(tmp_path / "keys/a")  # relative to the file, not to here
    assert site.log == str(tmp_path / "a.log")
    assert site.data.files == [tmp_path / "rows.csv"]
    assert site.columns == ["age", "dose", "ill"]
    assert site.policy.methods == ("fedavg", "scaffold")
    assert site.policy.largest_epsilon == 2.0
    assert POLICY.count("\n") - 1 == len(fields(Policy))  # all of them are here


def test_little_is_needed():
    site = SiteFile.of(HEAD + '[data]\nfile = "rows.csv"\n')
    assert site.policy == Policy()
    assert site.columns is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + "[polic]\n" + DATA, "line 4: unknown key 'polic'; did you mean 'policy'?"),
        (LIMITS + "most_rouns = 1\n", "line 9: unknown key 'most_rouns' in [policy]; did you"),
        (LIMITS + 'methods = ["fedavgg"]\n', "line 9: methods: unknown method 'fedavgg'; did you"),
        (LIMITS + 'channels = ["fedavg"]\n', "line 9: channels: 'fedavg' is a method, not a"),
        (LIMITS + 'most_rounds = "many"\n', "line 9: most_rounds must be a whole number, got"),
        (LIMITS + "most_rounds = 0\n", "line 9: most_rounds must be at least 1, got 0"),
        (LIMITS + 'methods = "fedavg"\n', "line 9: methods must be a list of words, got 'fedavg'"),
        (LIMITS + "largest_epsilon = -1\n", "line 9: largest_epsilon must be more than 0"),
        (LIMITS + 'columns = ["age", "ill"]\n', "line 4: [data] goes beyond [policy]: the run"),
        (HEAD.replace('"a"', '"a/b"', 1) + DATA, "line 1: 'a/b' is no name for a party"),
        (HEAD.replace(":8443", "") + DATA, 'line 2: server must be like "fed.example.org:8443"'),
        (HEAD.replace("8443", "99999") + DATA, "line 2: server must be like"),
        (HEAD.replace("fed.", "https://fed.") + DATA, "line 2: server must be like"),
        (HEAD.replace("keys =", "key =") + DATA, "line 3: unknown key 'key'; did you mean 'keys'?"),
        ('name = "a"\nkeys = "a"\n' + DATA, "site.toml: server is missing"),
        (HEAD, "site.toml: there is no [data]"),
        (HEAD + "data = 3\n", "line 4: data must be a section"),
        (HEAD + "[data]\n", "line 4: [data] needs file"),
        (HEAD + "[data]\nfile = 3\n", "line 5: file must be a word or a list of words, got 3"),
        (HEAD + "[data]\nfile = []\n", "line 5: file is an empty list"),
        (HEAD + '[data]\nfile = ""\n', "line 5: file is empty; it names a file of rows"),
        (HEAD + '[data]\nfile = ["a", ""]\n', "line 5: file is empty; it names a file of rows"),
        (HEAD.replace("keys/a", "") + DATA, "line 3: keys is empty; it names a folder"),
        (HEAD + 'state = ""\n' + DATA, "line 4: state is empty; it names a folder"),
        (HEAD + '[data]\nfile = "r.csv"\nfeatures = []\n', "line 6: features is an empty list"),
        (HEAD + DATA.replace('"dose"', '"ill"'), "line 7: the column 'ill' is named twice"),
        (HEAD + DATA + 'separator = ", "\n', "line 8: separator must be one letter"),
        (LIMITS.replace(".csv", ".npz") + 'columns = ["age"]\n', "line 5: rows.npz has columns"),
        (HEAD + DATA + "[policy\n", "site.toml: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(text, words):
    with pytest.raises(ConfigError) as raised:
        SiteFile.of(text)
    assert words in str(raised.value)


# ---------------------------------------------------------------- rows


@pytest.fixture
def site(tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS)

    def made(data=DATA, policy="", rows=None) -> SiteFile:
        if rows is not None:
            (tmp_path / "rows.csv").write_text(rows)
        return SiteFile.of(HEAD + data + policy, tmp_path)

    return made


def test_the_rows_of_a_site(site):
    table = site().table(classes=2)
    np.testing.assert_array_equal(table.x, np.float32([[50, 0.1], [61, -2e-3]]))
    assert table.y.tolist() == [1, 0]
    assert table.feature_names == ("age", "dose")
    assert table.groups is None
    grouped = site(DATA + 'groups = "sex"\n').table(classes=2, group_names=["m", "f", "other"])
    assert grouped.groups.tolist() == [1, 0]
    assert grouped.group_names == ("m", "f", "other")


def test_numbers_come_back_as_they_were_written(site, rng):
    """A file that `fedmin deploy` cuts for a site gives the very rows of the simulation."""
    x = rng.standard_normal((20, 2)).astype(np.float32)
    lines = "\n".join(f"{float(a)!r},{float(b)!r},0" for a, b in x)
    np.testing.assert_array_equal(site(rows=f"age,dose,ill\n{lines}\n").table().x, x)


def test_several_files_packed_or_not(site, tmp_path):
    (tmp_path / "more.csv.gz").write_bytes(gzip.compress(b"ill;dose;age\n1;3;4\n"))
    (tmp_path / "rows.csv").write_text(ROWS.replace(",", ";"))
    both = '[data]\nfile = ["rows.csv", "more.csv.gz"]\nfeatures = ["age"]\nseparator = ";"\n'
    assert site(both).table().x[:, 0].tolist() == [50, 61, 4]


def test_all_columns_if_none_is_named(site):
    rows = "age,dose,ill\n50,0.1,1\n"
    table = site('[data]\nfile = "rows.csv"\noutcome = "ill"\n', rows=rows).table(classes=2)
    assert table.feature_names == ("age", "dose")
    # and the policy is asked of what is in the file
    one = '[policy]\ncolumns = ["age", "ill"]\n'
    with pytest.raises(ValueError, match="the column 'dose'; the policy's columns are"):
        site('[data]\nfile = "rows.csv"\noutcome = "ill"\n', one, rows=rows).table(classes=2)


def test_parquet(site, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame({"age": [1, 2], "dose": [0.5, None]}).to_parquet(tmp_path / "r.parquet")
    data = '[data]\nfile = "r.parquet"\nfeatures = ["age"]\n'
    assert site(data).table().x[:, 0].tolist() == [1, 2]
    with pytest.raises(DataFileError, match="line 2, column 'dose': expected a number, found noth"):
        site(data.replace("age", "dose")).table()
    (tmp_path / "r.parquet").write_bytes(b"nothing")
    with pytest.raises(DataFileError, match="expected a Parquet file"):
        site(data).table()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (ROWS.replace("61", "old"), "line 3, column 'age': expected a number, found 'old'"),
        (ROWS.replace("61", ""), "line 3, column 'age': expected a number, found nothing"),
        (ROWS.replace("61", "nan"), "line 3, column 'age': expected a number, found 'nan'"),
        (ROWS.replace("61", "1e999"), "line 3, column 'age': expected a number, found '1e999'"),
        (ROWS.replace("dose", "doses"), "expected a column 'dose', found none of that name; did"),
        (ROWS.replace("id,", "age,"), "expected a first line with the names of its columns, f"),
        (ROWS + "3,4\n", "expected 5 entries a line, as in its first, found 2 entries in line 4"),
        ("id,age,dose,ill,sex\n", "expected at least one row, found none"),
        ("", "expected a first line with the names of its columns, found an empty one"),
        (ROWS + '"3\n', "line 4: expected CSV"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_rows_is_said_with_its_place(site, rows, words):
    with pytest.raises(DataFileError) as raised:
        site(rows=rows).table(classes=2)
    assert words in str(raised.value)


def test_a_file_that_is_not_there(site, tmp_path):
    (tmp_path / "rows.csv").unlink()
    with pytest.raises(DataFileError, match=r"rows\.csv: expected a file, found nothing"):
        site().table()
    (tmp_path / "rows.csv").mkdir()
    with pytest.raises(DataFileError, match=r"rows\.csv: expected a file, found a folder"):
        site().table()
    for name, why in (("x" * 5000, "File name too long"), ("a\\u0000b", "nothing of that name")):
        with pytest.raises(DataFileError, match=f"expected a file, found {why}") as raised:
            site(DATA.replace("rows.csv", name)).table()
        assert len(str(raised.value)) < 1000
    (tmp_path / "rows.csv").rmdir()
    (tmp_path / "rows.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(DataFileError, match="expected a text in UTF-8"):
        site().table()


# ---------------------------------------------------------------- [federation]


RUN = """\
[data]
name = "wine"
standardize = true
[partition]
name = "iid"
clients = 3
[problem]
name = "softmax"
[method]
name = "fedsgd"
[run]
rounds = 2
"""
TERMS = '[federation]\nsites = ["a", "b", "c"]\nquorum = 0.5\ndeadline = 20\nwait = 5\n'


def test_a_simulation_has_the_names_of_the_sites():
    config = Config(RUN + TERMS)
    (job,) = config.jobs()
    assert config.pieces(job).federation.names == ("a", "b", "c")
    assert (config.terms.quorum, config.terms.deadline, config.terms.wait) == (0.5, 20.0, 5.0)
    assert Config(RUN).terms is None
    resolved = Config(tomli_w.dumps(job.resolved()))
    assert resolved.terms == config.terms
    assert resolved.jobs()[0].id == job.id


def test_how_long_anybody_waits_does_not_change_what_is_run():
    ids = [Config(RUN + TERMS.replace("20", d).replace("0.5", q)).jobs()[0].id
           for d, q in (("20", "0.5"), ("30", "0.5"), ("20", "0.6"))]  # fmt: skip
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("quorum", "quorm", "line 15: unknown key 'quorm' in [federation]; did you mean 'quorum'?"),
        ("0.5", "1.5", "line 15: quorum must be more than 0 and at most 1, got 1.5"),
        ("0.5", '"half"', "line 15: quorum must be a number, got 'half'"),
        ('"b", "c"', '"b", "B"', "line 14: sites has 'b' twice; a name has one holder"),
        ('"b"', '"b/"', "line 14: sites: 'b/' is no name for a party"),
        ('["a", "b", "c"]', "[]", "line 14: sites is an empty list"),
        ("sites", "site", "line 14: unknown key 'site' in [federation]; did you mean 'sites'?"),
        ("20", "0", "line 16: deadline must be more than 0"),
    ],
)
def test_terms_that_are_refused(old, new, words):
    with pytest.raises(ConfigError) as raised:
        Config(RUN + TERMS.replace(old, new))
    assert words in str(raised.value)


def test_as_many_sites_as_clients():
    config = Config(RUN + TERMS.replace(', "c"', ""))
    with pytest.raises(ConfigError, match="line 14: sites has 2 names, and the data are of 3 cl"):
        config.pieces(config.jobs()[0])


def test_show_says_who_takes_part(tmp_path):
    (tmp_path / "run.toml").write_text(RUN + TERMS)
    done = CliRunner().invoke(app, ["show", str(tmp_path / "run.toml")])
    assert done.exit_code == 0, done.output
    assert "federation: sites a, b, c; a round counts if 0.5 of the asked answer" in done.output
