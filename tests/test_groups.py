"""Groups beside the features: carried along, counted before round 0, limited in their units."""

import dataclasses
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import fedmin
import known
import parted
from agreement import ONE_BY_ONE, assert_same
from fedmin import SSCA, Federation, Full, GroupLossAtMost
from fedmin.core.fitting import fitted, own_counts, summed
from fedmin.core.serialize import deserialize, serialize
from fedmin.data import IID, Table, hold_out, partition
from fedmin.engines.transports.words import from_words, to_words
from fedmin.runs.config import Config, ConfigError

METHOD = SSCA(1.0, 0.5, tau=0.5, batches=Full(), penalty=100.0)
BATCHES = dataclasses.replace(METHOD, batches=fedmin.WithoutReplacement(2))
WORLD = known.logistic()
SEX = [np.array(["f", "m"])[np.arange(len(y)) % 2] for _, y in WORLD.clients]


def grouped_world(weights="sizes", groups=SEX) -> Federation:
    clients = [(*client, g) for client, g in zip(WORLD.clients, groups, strict=True)]
    return Federation.from_clients(clients, weights=weights)


def solve(problem, federation, method=METHOD, **options):
    settings = {"rounds": 5, "engine": ONE_BY_ONE, "progress": False} | options
    return fedmin.minimize(problem, federation, method, **settings)


def limited(*limits, problem=WORLD.problem, **options):
    return fedmin.subject_to(problem, *limits, **{"tolerance": 100.0} | options)


def table(rows=40, test=0) -> Table:
    """A column `sex` of zeros and ones: one in eight is 1, and one in four of the test rows."""
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(size=rows), np.arange(rows) % 8 == 0], axis=1)
    made = Table("made", x, rng.integers(0, 2, rows), classes=2, feature_names=("age", "sex"))
    if not test:
        return made
    other = np.stack([rng.normal(size=test), np.arange(test) % 4 == 0], axis=1)
    return dataclasses.replace(made, test=Table("made test", other, np.zeros(test, int), classes=2))


# ---------------------------------------------------------------- who is in which group


def test_a_table_keeps_its_groups_whatever_is_done_to_it():
    given = table(test=8)
    sex, test_sex = given.x[:, 1], given.test.x[:, 1]
    made = given.grouped("sex")
    assert made.group_names == made.test.group_names == ("0", "1")
    assert "groups 0, 1" in repr(made)
    for same in (made.standardized(), made.scaled("minmax"), made.binary(1), given.grouped(1)):
        np.testing.assert_array_equal(same.groups, sex)
        np.testing.assert_array_equal(same.test.groups, test_sex)
    np.testing.assert_array_equal(made.merged().groups, np.concatenate([sex, test_sex]))
    np.testing.assert_array_equal(made.subset([8, 1]).groups, [1, 0])
    held = hold_out(dataclasses.replace(made, test=None), 0.25)
    for part in (held, held.test):
        np.testing.assert_array_equal(part.groups, part.x[:, 1])
    sparse = dataclasses.replace(given, x=scipy.sparse.csr_matrix(given.x), test=None)
    np.testing.assert_array_equal(sparse.grouped("sex").standardized().groups, sex)
    words = np.array(["m", "f"])[sex.astype(int)]
    named = dataclasses.replace(given, test=None).grouped(words, names=["m", "f", "x"])
    np.testing.assert_array_equal(named.groups, sex)
    assert named.group_names == ("m", "f", "x")


@pytest.mark.parametrize("how", [IID(3), fedmin.data.EvenColumns(2)], ids=["rows", "columns"])
def test_a_federation_carries_the_groups_of_its_table(how):
    made = table(test=8).grouped("sex")
    options = {} if isinstance(how, fedmin.data.EvenColumns) else {"server_rows": 6}
    federation = partition(made, how, **options)
    assert federation.groups == federation.roster().groups == ("0", "1")
    sex = federation.pool.x.values[:, 1]  # the second column in both splits
    np.testing.assert_array_equal(federation.pool.group, sex)
    np.testing.assert_array_equal(federation.test.group, made.test.groups)
    if options:
        mine = federation.server_rows
        np.testing.assert_array_equal(mine.group, mine.x.values[:, 1])
        assert federation.client(1).group is not None
        assert "groups: the roster says True" in refusal(
            lambda: federation.roster().check(
                0, dataclasses.replace(federation.client(0), group=None)
            )
        )
        wrong = dataclasses.replace(federation.client(0), group=federation.client(0).group + 2)
        assert "row 0 is in group 2; there are 0..1: 0, 1" in refusal(
            lambda: federation.roster().check(0, wrong)
        )


def refusal(act) -> str:
    with pytest.raises((ValueError, TypeError)) as said:
        act()
    return str(said.value)


def test_rows_without_groups_carry_nothing():
    plain, grouped = WORLD.federation, grouped_world()
    assert plain.roster().groups == ()
    assert len(jax.tree.leaves(plain.pool)) == len(jax.tree.leaves(grouped.pool)) - 1
    view = grouped.roster().view(1, grouped.client(1))
    np.testing.assert_array_equal(
        view.take(jnp.arange(3, dtype=jnp.int32)).group, grouped.client(1).group[:3]
    )
    np.testing.assert_array_equal(view.block(jnp.int32(1), 2).group, grouped.client(1).group[2:4])


TWO, X = table(), np.ones((2, 1))
BAD = [
    (lambda: TWO.grouped("sx"), "unknown column 'sx'; did you mean 'sex'"),
    (lambda: TWO.grouped(2), "column 2; there are 0..1"),
    (lambda: table(rows=200).grouped("age"), "has 200 different values"),
    (lambda: TWO.grouped(["a"] * 3), "40 values, one a row; got shape (3,)"),
    (lambda: TWO.grouped([*"a" * 39, "c"], names="ab"), "row 39 is in 'c', which is no group"),
    (lambda: TWO.grouped([*"a" * 40], names="aa"), "groups need different names"),
    (lambda: table(test=8).grouped([*"ab" * 20]), "need test=... where there are"),
    (lambda: table(test=8).grouped("sex", test=[0]), "goes with values, not with a column"),
    (lambda: dataclasses.replace(TWO, groups=[2] * 40, group_names=("a", "b")), "there are 0..1"),
    (lambda: dataclasses.replace(TWO, feature_names=None).grouped("sex"), "have no names"),
    (lambda: Federation.from_clients([(X, [0, 1], [0, 1])], test=(X, [0, 1])),
     "test rows must be (x, y, groups)"),
    (lambda: Federation.from_clients([(X, [0, 1], [0, 1]), (X, [0, 1])]),
     "every client must be a pair"),
    (lambda: fedmin.rows(X, [0, 1], group=[0.5, 1.0]), "group must be 2 whole numbers"),
    (lambda: fedmin.rows(X, [0, 1], weight=[0, 0]), "all 2 rows weigh 0"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "said"), BAD, ids=[said for _, said in BAD])
def test_bad_groups_are_refused(make, said):
    assert said in refusal(make)


# ---------------------------------------------------------------- limits on groups


def losses_by_group(x, shares=WORLD.shares) -> dict[str, float]:
    """Each group's mean loss in NumPy, rows weighing p_i / N_i."""
    rows = [(p / len(y), *client) for p, client in zip(shares, WORLD.clients, strict=True)
            for y in (client[1],)]  # fmt: skip
    weight = np.concatenate([np.full(len(y), p) for p, _, y in rows])
    loss = np.concatenate([known.row_loss(WORLD.problem, z @ x, y) for _, z, y in rows])
    sex = np.concatenate(SEX)
    return {g: float(weight[sex == g] @ loss[sex == g] / weight[sex == g].sum()) for g in "fm"}


@pytest.mark.parametrize("weights", ["sizes", "uniform"])
def test_a_violation_is_in_the_groups_own_units(weights):
    """F_m is the group's mean loss minus its limit, whatever its share of the rows."""
    world = WORLD.with_weights(weights)
    problem = limited(GroupLossAtMost((0.5, 0.6), by="groups"), tolerance=1e-3)
    with pytest.warns(RuntimeWarning, match="exceeds a constraint"):
        result = solve(problem, grouped_world(weights))
    true = losses_by_group(np.asarray(result.solution), world.shares)
    above = [true["f"] - 0.5, true["m"] - 0.6]
    np.testing.assert_allclose([result.final(f"constraint_{m}") for m in (1, 2)], above, rtol=1e-9)
    np.testing.assert_allclose(result.certificate.constraints, above, rtol=1e-9)
    assert result.final("violation") == pytest.approx(max(above))
    shown = str(result)
    assert str(result.certificate.limits_table()) in str(result.certificate)
    for name, size in (("f", 11), ("m", 9)):
        line = next(line for line in shown.splitlines() if f"loss of {name}" in line)
        assert line.split()[3:6] == [str(size), f"{true[name]:.5g}", {"f": "0.5", "m": "0.6"}[name]]


def test_a_small_group_is_not_met_because_it_is_small():
    """One row of twenty, 0.02 above its limit: 1e-3 of all rows, and 20 times the tolerance."""
    groups = [np.array(["most"] * len(y), object) for _, y in WORLD.clients]
    groups[0][0] = "one"
    federation = grouped_world(groups=groups)
    start = float(np.log(2))
    problem = limited(GroupLossAtMost({"one": start - 0.02}, by="groups"), tolerance=1e-3)
    assert not fedmin.certify(problem, federation, np.zeros(3)).feasible
    looser = limited(GroupLossAtMost({"one": start - 0.0009}, by="groups"), tolerance=1e-3)
    assert fedmin.certify(looser, federation, np.zeros(3)).feasible


def test_every_engine_has_the_same_groups(tmp_path):
    problem, federation = limited(GroupLossAtMost((0.5, 0.6), by="groups")), grouped_world()
    fast, honest = (
        solve(problem, federation, BATCHES, engine=engine)
        for engine in (ONE_BY_ONE, fedmin.Loopback())
    )
    assert_same(fast, honest)
    again = fedmin.Result.load(fast.save(tmp_path)).problem
    assert again == fast.problem
    assert from_words(to_words(fast.problem)) == fast.problem
    assert from_words(to_words(federation.roster())).groups == ("f", "m")
    # a problem that was counted before is counted anew
    other = fitted(fast.problem, grouped_world("uniform"))
    assert other.limits[0].shares != fast.problem.limits[0].shares
    assert deserialize(serialize(other)) == other


@pytest.mark.parametrize("weights", ["sizes", "uniform"])
def test_counts_are_a_sum_over_the_clients(weights):
    """What each client would send of its own rows adds up to what is counted in one place."""
    federation = grouped_world(weights)
    problem, roster = limited(GroupLossAtMost((0.5, 0.6), by="groups")), federation.roster()
    each = [own_counts(problem, federation.client(i), roster) for i in range(roster.clients)]
    (limit,) = problem.fitted(summed(each, roster), roster).limits
    assert limit == fitted(problem, federation).limits[0]
    assert limit.rows == (11, 9)
    # by hand: shares of all rows, each client's by its p_i
    parts = [[np.mean(sex == g) for g in ("f", "m")] for sex in SEX]
    np.testing.assert_allclose(limit.shares, federation.weights @ np.array(parts), rtol=1e-7)


def test_a_batch_gives_an_unbiased_estimate():
    """The mean over all batches of two rows is the constraint on all rows."""
    federation = Federation.from_clients([(*WORLD.clients[3], SEX[3])])
    problem = fitted(limited(GroupLossAtMost((0.5, 0.6), by="groups")), federation)
    own, x = jax.tree.map(jnp.asarray, federation.pool), jnp.full(3, 0.2)
    pairs = jnp.array(list(combinations(range(own.count), 2)), jnp.int32)
    each = jax.vmap(lambda pair: problem.linearize(x, own.take(pair))[0])(pairs)
    there = fedmin.certify(problem, federation, x).constraints
    np.testing.assert_allclose(each.mean(axis=0)[1:], there)


def test_columns_know_groups_with_the_labels():
    """Whoever knows the labels knows the groups: the same run on any split, and on rows."""
    groups = np.arange(parted.N) % 3
    problem = limited(
        GroupLossAtMost({"0": 0.5, "2": 0.6}, by="groups"), problem=fedmin.Logistic(parted.K)
    )
    whole = Federation.from_parts(
        parted.X[:, parted.ORDER], parted.FLAGS, [range(parted.N)], groups=groups
    )
    expected = solve(problem, whole)
    for labels, engine in (("everyone", fedmin.Loopback()), ("server", ONE_BY_ONE)):
        federation = parted.split((2, 5), y=parted.FLAGS, labels=labels, groups=groups)
        assert (federation.client(0).group == 0).all() == (labels == "server")
        found = solve(problem, federation, engine=engine)
        np.testing.assert_allclose(found.solution, expected.solution, rtol=1e-9, atol=1e-11)


SCALED = partition(table().standardized(), IID(2))
PLAIN = partition(table(), IID(2))
GROUPED = partition(table().grouped("sex").standardized(), IID(2))
EMPTY = partition(table().grouped(np.zeros(40, int), names=["0", "1"]), IID(2))
REFUSED = [
    (SCALED, GroupLossAtMost((1.0, 1.0), column=1), "40 of 40 rows are in no group: values of"),
    (SCALED, GroupLossAtMost((1.0, 1.0), column=1), "table.grouped(1).standardized()"),
    (PLAIN, GroupLossAtMost((1.0, 1.0), by="groups"), "the rows are in no groups"),
    (PLAIN, GroupLossAtMost((1.0,), column=1), "5 of 40 rows are in no group"),
    (PLAIN, GroupLossAtMost((1.0, 1.0, 1.0), column=1), "no row is in group '2' (values of"),
    (PLAIN, GroupLossAtMost((1.0,)), "has 1 limits; there are 2 labels: 0, 1"),
    (PLAIN, GroupLossAtMost((1.0,) * 3), "no row is in group '2' (labels)"),
    (PLAIN, GroupLossAtMost({"women": 1.0}), "labels are 0, 1, ..; got 'women'"),
    (GROUPED, GroupLossAtMost((1.0,) * 3, by="groups"), "has 3 limits; there are 2 groups: 0, 1"),
    (GROUPED, GroupLossAtMost({"2": 1.0}, by="groups"), "unknown group (groups) '2'"),
    (EMPTY, GroupLossAtMost((1.0, 1.0), by="groups"), "no row is in group '1' (groups)"),
]  # fmt: skip


@pytest.mark.parametrize(("federation", "limit", "said"), REFUSED, ids=[r[2] for r in REFUSED])
def test_a_limit_that_covers_nobody_is_refused(federation, limit, said):
    problem = limited(limit, problem=fedmin.Logistic(2))
    assert said in refusal(lambda: solve(problem, federation))
    assert said in refusal(lambda: fedmin.certify(problem, federation, np.zeros(2)))


def test_a_group_that_has_no_weight_has_no_rows():
    pool = PLAIN.pool
    weight = np.where(np.asarray(pool.x.values[:, 1]) == 1, 0, pool.weight)
    light = dataclasses.replace(PLAIN, pool=pool.weighing(weight))
    problem = limited(GroupLossAtMost((1.0, 1.0), column=1), problem=fedmin.Logistic(2))
    assert "no row is in group '1'" in refusal(lambda: solve(problem, light))
    none = pool.weighing(np.where(np.arange(40) < 20, 0, pool.weight))
    assert "client 0: all its rows weigh 0" in refusal(
        lambda: dataclasses.replace(PLAIN, pool=none)
    )


def test_the_old_form_works_where_the_column_has_the_numbers():
    by_column = limited(GroupLossAtMost((0.6, 0.6), column=1), problem=fedmin.Logistic(2))
    beside = limited(GroupLossAtMost((0.6, 0.6), by="groups"), problem=fedmin.Logistic(2))
    grouped = partition(table().grouped("sex"), IID(2))
    one, other = solve(by_column, PLAIN), solve(beside, grouped)
    np.testing.assert_array_equal(one.solution, other.solution)
    assert one.certificate.names == ("loss of 0", "loss of 1")


def test_limits_are_not_measured_on_other_rows():
    """The best feasible model is chosen on the clients' rows, whatever is recorded of test rows."""
    federation = partition(table(test=8).grouped("sex"), IID(2))
    record = [fedmin.Objective(), fedmin.Optimality(on="test")]
    problem = limited(GroupLossAtMost((0.6, 0.6), by="groups"), problem=fedmin.Logistic(2))
    assert "groups have other shares there" in refusal(
        lambda: solve(problem, federation, record=record)
    )
    whole = limited(fedmin.LossAtMost(0.6), problem=fedmin.Logistic(2))
    result = solve(whole, federation, record=record, rounds=1)
    assert "test_violation" in result.history
    assert result.best is None


# ---------------------------------------------------------------- in a file

FILE = """
[data]
name = "diabetes"
groups = "sex"
standardize = true
[partition]
name = "iid"
clients = 2
[problem]
name = "leastsquares"
[[constraint]]
name = "grouplossatmost"
limits = [20000.0, 20000.0]
by = "groups"
[method]
name = "ssca"
[run]
rounds = 1
"""


def test_a_file_groups_its_rows_by_a_column():
    config = Config(FILE)
    made = config.pieces(config.jobs()[0])
    assert made.federation.groups == ("-0.0446416", "0.0506801")
    assert abs(float(made.federation.pool.x.values[:, 1].mean())) < 1e-5  # and is standardized
    assert fitted(made.problem, made.federation).limit_sizes() == (184, 170)
    some = Config(FILE.replace("[20000.0, 20000.0]", '{"0.0506801" = 2e4}'))
    made = some.pieces(some.jobs()[0])
    assert fitted(made.problem, made.federation).limit_sizes() == (170,)
    wrong = Config(FILE.replace('"sex"', '"sx"'))
    with pytest.raises(ConfigError, match=r"line 4: .*unknown column 'sx'; did you mean 'sex'"):
        wrong.pieces(wrong.jobs()[0])


def test_a_certificate_of_groups_is_read_as_it_was(tmp_path):
    """Sizes, names and an infinite reach: two limits that pull against each other."""
    x = np.array([[1.0], [1.0]])
    federation = Federation.from_clients([(x, [0, 1], ["a", "b"])])
    problem = limited(
        GroupLossAtMost((0.5, 0.5), by="groups"), problem=fedmin.Logistic(1), tolerance=1e-3
    )
    found = fedmin.certify(problem, federation, np.zeros(1))
    assert found.reach == np.inf
    assert "cannot be met near here" in found.verdict
    assert found.sizes == (1, 1)
    found.save(tmp_path / "certificate.json")
    assert fedmin.Certificate.load(tmp_path / "certificate.json") == found
    assert found.check(problem, federation) == []
    wrong = dataclasses.replace(found, names=("loss of a",))
    wrong.save(tmp_path / "wrong.json")
    with pytest.raises(ValueError, match="not as many"):
        fedmin.Certificate.load(tmp_path / "wrong.json")
