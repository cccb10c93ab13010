"""Tables of one's own: read, agreed on, prepared by sums; and what is said of mistakes in them."""

# ruff: noqa: E501

import warnings

import numpy as np
import pandas
import polars
import pytest
import scipy.sparse

import fedmin
from fedmin.core.preparation import Preparation
from fedmin.data import Prepare, read
from fedmin.data.own import reading
from fedmin.data.own.hidden import HiddenTable, to_words
from fedmin.runs.config import Config
from fedmin.runs.costs import fitted
from fedmin.runs.folder import run_one
from fedmin.runs.reading import load


def table(seed, rows=60):
    rng = np.random.default_rng(seed)
    made = pandas.DataFrame({
        "age": rng.normal(60, 10, rows), "lab": 1e8 + rng.normal(size=rows),
        "ward": rng.choice(["x", "y", "z"], rows), "sex": rng.choice(["f", "m"], rows),
        "seen": pandas.to_datetime("2024-01-01") + pandas.to_timedelta(rng.integers(0, 90, rows), "D"),
    })  # fmt: skip
    made["died"] = np.where(
        rng.random(rows) < 1 / (1 + np.exp((60 - made["age"]) / 10)), "yes", "no"
    )
    made.loc[rng.choice(rows, 5, replace=False), "age"] = np.nan
    made.loc[rng.choice(rows, 4, replace=False), "ward"] = None
    return made


@pytest.fixture
def tables():
    return {name: table(seed, 40 + 10 * seed) for seed, name in enumerate("abc")}


def test_preparing_by_sums_is_preparing_the_pooled_rows(tables):
    """Against pandas on all rows in one place, in double precision."""
    federation = read(tables, outcome="died", groups="sex").federation(
        Prepare(missing="indicator", smallest_count=5)
    )
    pooled = pandas.concat(tables.values(), ignore_index=True)
    age, lab, seen, ward = (
        {c.name: c for c in federation.about.preparation.columns}[name]
        for name in ("age", "lab", "seen", "ward")
    )
    np.testing.assert_allclose(age.shift, pooled["age"].mean(), rtol=1e-12)
    filled = pooled["age"].fillna(pooled["age"].mean())
    np.testing.assert_allclose(age.scale, filled.std(ddof=0), rtol=1e-12)
    # of 1e8 + z: the digits of z are kept, as far as 1e8 + z itself has them
    np.testing.assert_allclose(lab.scale, pooled["lab"].std(ddof=0), rtol=1e-9)
    days = (pooled["seen"] - pandas.Timestamp(0)).dt.days
    np.testing.assert_allclose(seen.shift, days.mean(), rtol=1e-12)
    assert ward.fill == pooled["ward"].mode()[0]
    assert federation.about.names == (
        "age", "age is missing", "lab", "ward=y", "ward=z", "ward is missing", "seen",
    )  # fmt: skip
    x = np.concatenate([x for x, *_ in federation.about.exact])
    np.testing.assert_allclose(x[:, 0], (filled - filled.mean()) / filled.std(ddof=0), atol=1e-12)
    np.testing.assert_array_equal(x[:, 1], pooled["age"].isna())
    np.testing.assert_array_equal(x[:, 3], pooled["ward"].fillna(ward.fill) == "y")
    again = Preparation.of(federation.about.preparation.words())
    assert again == federation.about.preparation


@pytest.mark.parametrize("bins", [64, 512])
def test_quantiles_and_ranges_are_within_a_bin(tables, bins):
    sites = read(tables, outcome="died", features=("age",), kinds={"age": "number"})
    pooled = pandas.concat(tables.values())["age"].dropna()
    width = 8 * pooled.std() / bins
    (found,) = sites.federation(Prepare(scale="quantile", bins=bins)).about.preparation.columns
    quartiles = pooled.quantile([0.25, 0.5, 0.75]).to_numpy()
    gap = pooled.sort_values().diff().max()  # between neighbors any number is a median
    assert abs(found.shift - quartiles[1]) <= width + gap
    assert abs(found.scale - (quartiles[2] - quartiles[0])) <= 2 * (width + gap)
    (found,) = sites.federation(Prepare(scale="range", bins=bins)).about.preparation.columns
    assert found.shift <= pooled.min() <= found.shift + width
    assert found.shift + found.scale - width <= pooled.max() <= found.shift + found.scale


def test_a_wild_value_widens_the_histogram():
    tables = {"a": {"x": [*range(50), 1e6], "y": [0, 1] * 25 + [1]}}
    (found,) = (
        read(tables, outcome="y").federation(Prepare(scale="range")).about.preparation.columns
    )
    assert found.shift <= 0
    assert found.shift + found.scale >= 1e6


def test_rare_levels_are_other_and_class_weights_are_of_all_sites():
    some = {"w": ["p"] * 8 + ["q", "r"], "y": ["no"] * 9 + ["yes"]}
    more = {"w": ["p"] * 5 + ["s"] * 5, "y": ["no", "yes"] * 5}
    sites = read({"a": some, "b": more}, outcome="y")
    federation = sites.federation(Prepare(smallest_count=3, class_weights="balanced"))
    assert federation.about.names == ("w=s", "w=other")
    weights = np.asarray(federation.pool.weight)
    by_class = np.bincount(np.asarray(federation.pool.y), weights)
    np.testing.assert_allclose(by_class, [10, 10], rtol=1e-6)
    assert federation.by_rows
    np.testing.assert_allclose(federation.weights.sum(), 1)


def test_useless_columns_are_named(tables):
    for made in tables.values():
        made["one"], made["lab2"] = 1.0, 3 * made["age"]
    sites = read(tables, outcome="died", without=("lab",))
    with pytest.warns(UserWarning, match="'one' is constant; column 'lab2' follows from 'age'"):
        federation = sites.federation()
    assert not {"one", "lab2"} & set(federation.about.names)
    with pytest.raises(ValueError, match="leave them out by without"):
        sites.federation(Prepare(unusable="refuse"))


def test_every_kind_of_table_is_the_same_federation(tables, tmp_path):
    tables = {name: made.drop(columns="seen") for name, made in tables.items()}
    for name, made in tables.items():
        made.to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "parquet").mkdir()
    for name, made in tables.items():
        made.to_parquet(tmp_path / "parquet" / f"{name}.parquet")
    whole = pandas.concat([made.assign(site=name) for name, made in tables.items()])
    whole.to_csv(tmp_path / "whole", index=False)
    sources = [
        tables, {n: polars.from_pandas(t) for n, t in tables.items()}, tmp_path / "parquet",
        [tmp_path / f"{n}.csv" for n in "abc"],
    ]  # fmt: skip
    found = [read(s, outcome="died").federation() for s in sources]
    found.append(read(tmp_path / "whole", outcome="died", client="site").federation())
    for other in found[1:]:
        assert other.names == found[0].names
        np.testing.assert_allclose(other.pool.x.values, found[0].pool.x.values, atol=1e-6)
        np.testing.assert_array_equal(other.pool.y, found[0].pool.y)
    x, y = np.array([[1.0, 2.0], [3.0, 1.0], [4.0, 7.0]]), np.array([0.5, 1.5, 2.0])
    plain = read({"a": (x, y)}, outcome="y").federation(Prepare(scale="none"))
    np.testing.assert_array_equal(plain.about.exact[0][0], x)


def test_weights_of_rows_are_rows_so_many_times(rng):
    x, times = rng.normal(size=(30, 2)), rng.integers(1, 4, 30)
    y = (x @ [1.0, -1.0] + rng.normal(size=30)).round(3)
    named = lambda pick: {"p": x[pick, 0], "q": x[pick, 1], "y": y[pick]}
    half = np.arange(30) < 12
    weighted = {n: named(m) | {"t": times[m]} for n, m in (("a", half), ("b", ~half))}
    repeated = {n: named(np.repeat(np.flatnonzero(m), times[m])) for n, m in (("a", half), ("b", ~half))}  # fmt: skip
    how, problem = Prepare(scale="none"), fedmin.LeastSquares(2, bias=True)
    both = [
        fedmin.minimize(problem, sites.federation(how), fedmin.FedNL(), rounds=12)
        for sites in (read(weighted, outcome="y", weights="t"), read(repeated, outcome="y"))
    ]
    np.testing.assert_allclose(both[0].solution, both[1].solution, rtol=1e-4, atol=1e-5)


FILE = """
[data]
files = ["a.csv", "b.csv", "c.csv"]
outcome = "died"
without = ["seen"]
groups = "sex"
test = 0.2
[prepare]
missing = "indicator"
[problem]
name = "logistic"
[method]
name = "fednl"
[run]
rounds = 3
"""


@pytest.fixture
def folder(tables, tmp_path):
    for name, made in tables.items():
        made.to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "run.toml").write_text(FILE)
    return tmp_path


def test_a_file_runs_and_its_ledger_has_the_preparation(folder):
    (job,) = Config.read(folder / "run.toml").jobs()
    made, _ = fitted(job)
    assert made.problem.bias  # by default, in linear models
    assert made.federation.names == ("a", "b", "c")
    assert made.federation.groups == ("f", "m")
    assert made.federation.test.count == 30
    outcome = run_one(job, folder / "runs" / job.folder)
    kinds = outcome.result.ledger.by_kind()
    # of 2 numbers: a count, a sum each and the rows; squares and what is left; of 8 bytes each
    assert kinds["prepare up totals"] == 3 * 8 * 5
    assert kinds["prepare up spreads"] == 3 * 8 * 4
    again = load(outcome.folder)
    assert again.ledger.by_kind() == kinds
    ledger = again.ledger
    more = sum(n for kind, n in kinds.items() if kind.startswith("prepare"))
    assert ledger.bytes(preparation=True) == ledger.bytes() + more
    written = Config.read(outcome.folder / "run.toml").jobs()[0]
    assert fitted(written)[0].problem == made.problem  # what was run is a file again


def test_a_changed_file_is_another_run(folder):
    ids = []
    for _ in range(2):
        (job,) = Config.read(folder / "run.toml").jobs()
        ids.append(job.id)
        (folder / "b.csv").write_text((folder / "b.csv").read_text() + "50,1e8,x,f,2024-01-01,no\n")
    assert ids[0] != ids[1]


def test_secure_sums_prepare_the_same_and_show_no_site(tables, monkeypatch):
    """To the digits of sums in double precision; no number of a single site is in a message."""
    how = Prepare(missing="indicator", levels={"ward": ("x", "y", "z")}, class_weights="balanced",
                  smallest_count=5)  # fmt: skip
    sites, sent = read(tables, outcome="died", without=("sex",)), []
    plain = sites.federation(how)
    carry = reading.in_process
    monkeypatch.setattr(reading, "in_process", lambda tables: _kept(carry(tables), sent))
    hidden = sites.federation(how, channel=fedmin.SecureSum())
    for one, other in zip(plain.about.preparation.columns, hidden.about.preparation.columns, strict=True):  # fmt: skip
        for part in ("shift", "scale", "fill"):
            if hasattr(one, part) and not isinstance(getattr(one, part), str):
                np.testing.assert_allclose(getattr(one, part), getattr(other, part), rtol=1e-9)
        assert one.names == other.names
    np.testing.assert_allclose(plain.pool.weight, hidden.pool.weight, rtol=1e-6)
    for made in tables.values():
        total = np.float64(made["age"].sum())
        shown = total.tobytes(), to_words(total[None]).tobytes()
        assert not any(word in data for word in shown for data in sent)
    problem = fedmin.Logistic(len(hidden.about.names), bias=True)
    result = fedmin.minimize(problem, hidden, fedmin.FedAvg(0.1), rounds=2, channel=fedmin.SecureSum())  # fmt: skip
    assert result.ledger.by_kind()["prepare up totals"] == 3 * 16 * (2 * 3 + 1 + 1)


def _kept(carry, sent):
    def kept(messages):
        replies = carry(messages)
        sent.extend(replies.values())
        return replies

    return kept


LEVELS = {"ward": ("x", "y", "z"), "sex": ("f", "m")}


def test_a_sum_whose_site_begins_anew_is_begun_anew(tables, monkeypatch):
    how, sites = Prepare(levels=LEVELS), read(tables, outcome="died")
    quiet = sites.federation(how, channel=fedmin.SecureSum())
    calls, answer = [], HiddenTable.answer

    def killed(self, kind, *rest):
        calls.append(kind)
        if len(calls) == 20:
            self.role = None
        return answer(self, kind, *rest)

    monkeypatch.setattr(HiddenTable, "answer", killed)
    again = sites.federation(how, channel=fedmin.SecureSum())
    assert again.about.preparation == quiet.about.preparation
    assert len(again.about.lines) > len(quiet.about.lines)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (Prepare(), r"column 'ward': where the channel hides replies its levels must be named"),
        (Prepare(levels=LEVELS, ranges={"ward": (0, 1)}), "ranges: the column 'ward' is a category"),
        (Prepare(levels={"wrd": ("x",)}), "did you mean 'ward'"),
    ],
)  # fmt: skip
def test_what_secure_sums_cannot_prepare_is_said(how, words, tables):
    with pytest.raises(ValueError, match=words):
        read(tables, outcome="died").federation(how, channel=fedmin.SecureSum())
    two = {name: tables[name] for name in "ab"}
    with pytest.raises(ValueError, match="needs three sites or more"):
        read(two, outcome="died").federation(how, channel=fedmin.SecureSum())


def test_values_that_a_secure_sum_would_lose_are_named(tables):
    tables = {name: made.assign(lab=made["age"] * 1e-9) for name, made in tables.items()}
    with pytest.raises(ValueError, match="column 'lab': its values differ so little"):
        read(tables, outcome="died").federation(Prepare(levels=LEVELS), channel=fedmin.SecureSum())


def test_named_ranges_and_levels_send_no_sums_and_go_with_noise(tables):
    how = Prepare(
        ranges={"age": (0, 110), "lab": (0, 2e8), "seen": (19000, 20000)},
        levels={"ward": ("x", "y"), "sex": ("f", "m")}, unusable="keep", missing="indicator",
    )  # fmt: skip
    federation = read(tables, outcome="died").federation(how)
    kinds = {part for line, _ in federation.about.lines for part in line.parts}
    assert kinds == {"header", "schema", "labels", "prepared"}
    age = federation.about.preparation.columns[0]
    assert (age.shift, age.scale, age.fill, age.indicator) == (0, 110, 55, True)
    assert federation.about.preparation.columns[2].levels == ("x", "y", "other")
    noise = fedmin.chain(fedmin.Clip(1.0), fedmin.Noise(1.0))
    problem = fedmin.Logistic(len(federation.about.names))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fedmin.minimize(problem, federation, fedmin.FedAvg(0.1), rounds=1, channel=noise)
    assert result.epsilon


def test_channels_that_hide_refuse_sums_that_went_past_them(tables):
    class Hidden(fedmin.Channel):
        hides = True

    federation = read(tables, outcome="died").federation()
    with pytest.raises(ValueError, match="Hidden does not reach the sums"):
        fedmin.minimize(
            fedmin.Logistic(len(federation.about.names)), federation, fedmin.FedSGD(), rounds=1,
            channel=Hidden(),
        )  # fmt: skip


GOOD = "id,age,ward,died,w\n1,50,x,no,1\n2,61,y,yes,1\n3,70,x,no,1\n"
OTHER = "id,age,ward,died,w\n4,51,x,no,1\n5,66,y,yes,1\n6,71,y,no,1\n"
MISTAKES = [
    ("outcome", {}, {"outcome": "dead"}, "site a, a.csv: there is no column 'dead', which outcome"),
    ("features", {}, {"features": ("agee",)}, "which features names; did you mean 'age'"),
    ("without", {}, {"without": ("wardd",)}, "which without names; did you mean 'ward'"),
    ("groups", {}, {"groups": "sex"}, "no column 'sex', which groups names"),
    ("other columns", {"b": OTHER.replace("age", "years")}, {}, "site b: it lacks 'age' and has 'years'"),
    ("word in numbers", {"b": OTHER + "".join(f"{i},5{i % 9},x,no,1\n" for i in range(7, 20)) + "20,old,x,no,1\n"},
     {}, r"site b, b.csv, line 18, column 'age': 'old' is no number; repair it"),
    ("decimal comma", {"b": OTHER + "".join(f"{i},5{i % 9},x,no,1\n" for i in range(7, 20)) + '20,"50,5",x,no,1\n'},
     {}, "'50,5' is no number; write 50.5"),
    ("kinds differ", {"b": OTHER.replace("51", "x").replace("66", "y").replace("71", "z")}, {},
     "column 'age': it is a category at site b and a number at site a"),
    ("empty column", {"a": GOOD.replace("50", "").replace("61", "").replace("70", ""),
                      "b": OTHER.replace("51", "").replace("66", "").replace("71", "")}, {},
     "column 'age': it is empty at every site"),
    ("duplicate ids", {"b": OTHER.replace("6,71", "4,71")}, {"id": "id"},
     "site b, b.csv, line 4, column 'id': the id '4' is also in b.csv, line 2"),
    ("no rows", {"b": "id,age,ward,died,w\n"}, {}, "site b: .*b.csv: expected at least one row, found none"),
    ("delimiter", {"b": OTHER.replace(",", ";")}, {}, "seems to be separated by ';'; give separator = \";\""),
    ("encoding", {"b": OTHER.encode().replace(b"x", b"\xe4")}, {}, "site b: .*b.csv: expected a text in UTF-8"),
    ("short line", {"b": OTHER + "7,50\n"}, {}, "site b: .*expected 5 entries a line.*found 2 entries in line 5"),
    ("no outcome in a row", {"b": OTHER.replace("71,y,no", "71,y,")}, {},
     "site b, b.csv, line 4, column 'died': the outcome is missing; leave the row out"),
    ("one label", {"a": GOOD.replace("yes", "no"), "b": OTHER.replace("yes", "no")}, {},
     "every row of every site has 'no'"),
    ("weights", {"b": OTHER.replace("71,y,no,1", "71,y,no,-2")}, {"weights": "w"},
     "site b, b.csv, line 4, column 'w': the weight is -2"),
    ("kinds", {}, {"kinds": {"age": "numbre"}}, "did you mean 'number'"),
    ("date", {}, {"kinds": {"age": "date"}}, "site a, a.csv, line 2, column 'age': '50' is no date; write it as 2024-05-17"),
    ("named twice", {}, {"features": ("age", "died")}, "'died' is named in features and outcome"),
    ("test share", {}, {"test": 0.01}, "site a: test = 0.01 of its 3 rows leaves no row to test on"),
    ("column twice", {"b": OTHER.replace("ward", "age")}, {}, "site b: .*b.csv.*'age' twice"),
    ("missing refused", {"b": OTHER.replace("51", "")}, {"prepare": Prepare(missing="refuse", smallest_count=1)},
     "site b, b.csv, line 2, column 'age': the value is missing; give it"),
    ("decimal commas in most", {"a": GOOD.replace("50", '"50,5"').replace("61", '"61,1"')}, {},
     "site a, a.csv, line 2, column 'age': '50,5' is no number; write 50.5"),
    ("thousands", {"b": OTHER + '7,"1,250.5",x,no,1\n'}, {},
     "site b, b.csv, line 5, column 'age': '1,250.5' is no number; write 1250.5"),
    ("infinity", {"b": OTHER.replace("51", "inf")}, {},
     "site b, b.csv, line 2, column 'age': 'inf' is no number; repair it"),
    ("mixed types", {"b": OTHER + "".join(f"{i},{i if i % 3 else 'old'},x,no,1\n" for i in range(7, 40))},
     {}, "site b, b.csv, line 7, column 'age': 'old' is no number; repair it"),
    ("a third label", {"b": OTHER.replace("no", "No")}, {},
     "site b, column 'died': the labels 'No' and 'no' differ in capitals only; write both alike"),
    ("no id", {"b": OTHER.replace("5,66", ",66")}, {"id": "id"},
     "site b, b.csv, line 3, column 'id': the id is missing; give it"),
    ("no names", {"b": OTHER.partition("\n")[2]}, {}, "there is no column 'died', which outcome names; there is '4', "),
    ("another date", {"a": GOOD.replace("50", "17.05.2024"), "b": OTHER}, {"kinds": {"age": "date"}},
     "site a, a.csv, line 2, column 'age': '17.05.2024' is no date; write it as 2024-05-17"),
    ("encoding of Excel", {"b": OTHER.encode("utf-16")}, {}, "byte 0, in line 1, is not; save the file as UTF-8"),
    ("nothing left", {}, {"without": ("id", "age", "ward", "w")}, "site a: no column is left to predict from"),
    ("text", {"b": OTHER + "".join(f"{i},50,ward number {i},no,1\n" for i in range(7, 80))}, {},
     "site b, b.csv, line 2, column 'ward': 'x' is text .* leave it out: without = ..ward"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "options", "words"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])  # fmt: skip
def test_mistakes_are_named_with_site_file_row_and_remedy(change, options, words, tmp_path):
    for name, text in {"a": GOOD, "b": OTHER, **change}.items():
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / f"{name}.csv").write_bytes(content)
    given = {"outcome": "died", **options}
    how = given.pop("prepare", Prepare(smallest_count=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match=words):
            read([tmp_path / "a.csv", tmp_path / "b.csv"], **given).federation(how)


def test_a_file_that_is_not_there_is_named(tmp_path):
    (tmp_path / "a.csv").write_text(GOOD)
    words = "site b: .*b.csv: expected a file, found nothing of that name"
    with pytest.raises(ValueError, match=words):
        read([tmp_path / "a.csv", tmp_path / "b.csv"], outcome="died")


def test_the_marks_of_other_programs_are_no_part_of_a_name(tmp_path):
    """A byte order mark, as Excel writes it, and ends of lines as on Windows."""
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    (tmp_path / "b.csv").write_text(OTHER)
    found = read([tmp_path / "a.csv", tmp_path / "b.csv"], outcome="died", id="id")
    assert found.kinds == {"age": "number", "ward": "category", "w": "number"}


def test_a_site_without_a_class_is_named():
    one = {"x": [1.0, 2.0], "y": ["no", "yes"]}
    with pytest.warns(UserWarning, match="site b: no row of row 0 has y = 'yes'|site b: no row"):
        read({"a": one, "b": {"x": [1.0, 3.0], "y": ["no", "no"]}}, outcome="y")


def test_sparse_rows_and_datasets_of_pairs(rng):
    x, y = rng.normal(size=(12, 3)) * (rng.random((12, 3)) < 0.5), rng.integers(0, 2, 12)

    class Rows:  # what a Dataset of PyTorch is: rows by number
        def __len__(self):
            return len(x)

        def __getitem__(self, i):
            return x[i], y[i]

    class Loader:  # as a DataLoader has one
        dataset = Rows()

    class Part:  # as a Subset has rows by number, and the whole beside them
        dataset = Rows()

        def __len__(self):
            return 5

        def __getitem__(self, i):
            return self.dataset[i]

    part = read({"a": Part()}, outcome="y").tables[0].frame
    assert part.rows == 5
    federations = [
        read({"a": source}, outcome="y").federation(Prepare(scale="none"))
        for source in ((x, y), (scipy.sparse.csr_matrix(x), y), Rows(), Loader())
    ]
    for other in federations[1:]:
        np.testing.assert_array_equal(other.pool.x.values, federations[0].pool.x.values)
        np.testing.assert_array_equal(other.pool.y, federations[0].pool.y)


def test_what_is_too_sparse_or_no_pair_is_told_where_it_goes():
    wide = scipy.sparse.random(3, 2000, 0.01).tocsr()
    with pytest.raises(ValueError, match=r"Federation.from_clients"):
        read({"a": (wide, np.zeros(3))}, outcome="y")
    with pytest.raises(TypeError, match="must have pairs"):
        read({"a": [1, 2, 3]}, outcome="y")


def test_the_most_frequent_value_fills_gaps():
    times = [1.0] * 3 + [2.0] * 30 + [3.0] * 5
    tables = {
        "a": {"n": [*times, None], "w": ["p"] * 20 + ["q"] * 19, "y": [0, 1] * 19 + [0]},
        "b": {"n": [*times, 9.0], "w": ["q"] * 38 + [None], "y": [0, 1] * 19 + [1]},
    }
    how = Prepare(missing="frequent", scale="none", bins=512)
    number, word = read(tables, outcome="y").federation(how).about.preparation.columns
    deviation = np.nanstd(np.array([v for t in tables.values() for v in t["n"]], float))
    assert abs(number.fill - 2.0) <= 4 * deviation / 512 + 1e-12  # half a bin of 8 deviations
    assert word.fill == "q"


@pytest.mark.parametrize("where", ["rows", "replies"])
def test_noise_refuses_sums_that_had_none(where, tables):
    """Its epsilon would not cover the sums by which the columns were prepared."""
    federation = read(tables, outcome="died").federation()
    rows = fedmin.PrivateRows(0.5, clip=1.0, multiplier=2.0)
    method = fedmin.FedAvg(0.1, batches=rows) if where == "rows" else fedmin.FedAvg(0.1)
    replies = fedmin.chain(fedmin.Clip(1.0), fedmin.Noise(1.0))
    channel = fedmin.Plain() if where == "rows" else replies
    name = "PrivateRows" if where == "rows" else "Chain"
    with pytest.raises(ValueError, match=f"{name} does not reach the sums.*no epsilon covers"):
        fedmin.minimize(
            fedmin.Logistic(len(federation.about.names)), federation, method, rounds=1,
            channel=channel,
        )  # fmt: skip
