"""Partitioners: always a partition, always the same for a seed, and what each one promises."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from fedmin.data import (
    IID,
    PARTITIONERS,
    ByColumn,
    Clusters,
    ColumnNames,
    ColumnSizes,
    CountTable,
    DataFileError,
    Dirichlet,
    EvenColumns,
    LabelsPerClient,
    Parties,
    QuantitySkew,
    Shards,
    Table,
    check_partition,
    fetch,
    load,
    partition,
    quadratics,
)

quick = settings(max_examples=40, deadline=None)
labels = st.lists(st.integers(0, 4), min_size=1, max_size=80).map(np.array)
seeds = st.integers(0, 2**32 - 1)


def is_partition(parts, total):
    return sorted(np.concatenate(parts).tolist()) == list(range(total)) and all(map(len, parts))


def same_again(how, data, seed):
    first, second = how(data, seed), how(data, seed)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    return first


@quick
@given(y=labels, clients=st.integers(1, 12), alpha=st.floats(1e-6, 1e6), seed=seeds)
def test_iid_quantity_dirichlet_are_partitions(y, clients, alpha, seed):
    assume(clients <= y.size)
    least = y.size // clients
    for how in (
        IID(clients),
        QuantitySkew(clients, alpha, min_rows=least),
        Dirichlet(clients, alpha, min_rows=least),
        Dirichlet(clients, alpha),
    ):
        parts = same_again(how, y, seed)
        assert len(parts) == clients
        assert is_partition(parts, y.size)
        assert min(map(len, parts)) >= getattr(how, "min_rows", 1)
    assert np.ptp([len(part) for part in IID(clients)(y, seed)]) <= 1


@quick
@given(y=labels, clients=st.integers(1, 10), k=st.integers(1, 5), seed=seeds)
def test_labels_per_client(y, clients, k, seed):
    present, counts = np.unique(y, return_counts=True)
    how = LabelsPerClient(clients, k)
    holders = -(-clients * k // present.size)
    if k > present.size or clients * k < present.size or clients * k > y.size:
        with pytest.raises(ValueError, match="LabelsPerClient"):
            how(y, seed)
        return
    assume(counts.min() >= holders)
    parts = same_again(how, y, seed)
    assert is_partition(parts, y.size)
    assert all(np.unique(y[part]).size == k for part in parts)
    held = [sum((y[part] == label).any() for part in parts) for label in present]
    assert np.ptp(held) <= 1


@quick
@given(y=labels, share=st.floats(0, 1), each=st.integers(1, 4), seed=seeds)
def test_shards(y, share, each, seed):
    each = min(each, y.size)
    clients = 1 + int(share * min(9, y.size // each - 1))  # never more shards than rows
    parts = same_again(Shards(clients, each), y, seed)
    assert is_partition(parts, y.size)
    # a shard of consecutive sorted labels meets at most as many labels as its cuts allow
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= each


@quick
@given(
    counts=st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=5),
    spare=st.integers(0, 3),
    seed=seeds,
)
def test_count_table_gives_exactly_the_counts(counts, spare, seed):
    counts = np.array(counts)
    assume((counts.sum(axis=1) > 0).all())
    y = np.repeat(np.arange(4), [*(counts.sum(axis=0) + spare), 2])
    np.random.default_rng(seed).shuffle(y)
    parts = same_again(CountTable(counts), y, seed)
    got = np.array([np.bincount(y[part], minlength=4)[:3] for part in parts])
    np.testing.assert_array_equal(got, counts)
    check_partition(parts, y.size, covering=False)


def test_count_table_shrinks_or_says_what_is_missing():
    y = np.repeat([0, 1], [6, 10])
    table = ((8, 5), (4, 5))
    with pytest.raises(ValueError, match="12 rows of label 0 are asked for, but there are 6"):
        CountTable(table)(y)
    got = [np.bincount(y[part], minlength=2).tolist() for part in CountTable(table, shrink=True)(y)]
    assert got == [[4, 5], [2, 5]]
    for bad in ([1, 2], [[1, -1]], [[0.5, 1]], [["a"]]):
        with pytest.raises(ValueError, match="CountTable: counts must be whole numbers"):
            CountTable(bad)


def test_count_table_from_damaged_json(tmp_path):
    path = tmp_path / "config.json"
    for content in ("{", "[]", json.dumps({"num_labels": 2}), "3"):
        path.write_text(content)
        with pytest.raises(DataFileError, match="num_labels"):
            CountTable.from_json(path)


def test_fedsso_counts_are_mnists(public_files):
    mnist = CountTable.from_json(fetch("fedsso_mnist")["counts"].path)
    assert len(mnist.counts) == 20
    whole = [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]  # training and test rows
    np.testing.assert_array_equal(np.sum(mnist.counts, axis=0), whole)
    y = np.repeat(np.arange(10), whole)
    assert is_partition(mnist(y, 0), 70000)
    fashion = CountTable.from_json(fetch("fedsso_fashion_mnist")["counts"].path)
    assert np.sum(fashion.counts, axis=1).tolist() == [15858, 10381, 43761]


def test_dirichlet_shares_follow_the_beta_law():
    # a client's share of one label is Beta(alpha, (N-1) alpha): compare by Kolmogorov-Smirnov
    y = np.repeat(np.arange(300), 2000)
    parts = Dirichlet(4, alpha=0.7)(y, seed=3)
    shares = np.bincount(y[parts[0]], minlength=300) / 2000
    assert stats.kstest(shares, stats.beta(0.7, 2.1).cdf).pvalue > 1e-3


def test_clusters_find_separated_clouds_dense_and_sparse():
    rng = np.random.default_rng(0)
    centers = 40.0 * np.eye(4, 6)
    truth = np.repeat(np.arange(4), 30)
    x = centers[truth] + rng.normal(size=(120, 6))
    for data in (x, Table("made", sp.csr_matrix(x))):
        parts = same_again(Clusters(clients=8, clusters=4, per_client=2), data, 0)
        assert is_partition(parts, 120)
        for part in parts:
            # two clouds a client, and of each a quarter: 4 holders a cloud share 30 rows
            met, counts = np.unique(truth[part], return_counts=True)
            assert met.size == 2
            assert set(counts) <= {7, 8}
    for how, message in (
        (Clusters(8, 4, 5), "per_client=5, but there are 4 clusters"),
        (Clusters(1, 4, 2), "cannot hold all 4 clusters"),
        (Clusters(200, 4, 2), "only 120 rows"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            how(x)


def test_by_column():
    table = Table(
        "made", np.array([[1, 0], [1, 1], [2, 2]]), ids=["b", "b", "a"], feature_names=("ward", "z")
    )
    assert [part.tolist() for part in ByColumn()(table)] == [[2], [0, 1]]
    assert ByColumn().names(table) == ["a", "b"]
    assert [part.tolist() for part in ByColumn("ward")(table)] == [[0, 1], [2]]
    assert [part.tolist() for part in ByColumn([7, 8, 7])(table)] == [[0, 2], [1]]
    assert [part.tolist() for part in ByColumn(min_rows=2)(table)] == [[0, 1]]
    for how, data, message in (
        (ByColumn("wart"), table, "did you mean 'ward'"),
        (ByColumn(), replace(table, ids=None), "has no ids"),
        (ByColumn([1, 2]), table, "for 3 rows"),
        (ByColumn(min_rows=3), table, "the most is 2"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            how(data)


@quick
@given(features=st.integers(1, 40), clients=st.integers(1, 40), seed=seeds, shuffle=st.booleans())
def test_columns_are_partitions(features, clients, seed, shuffle):
    assume(clients <= features)
    parts = same_again(EvenColumns(clients, shuffle), features, seed)
    assert is_partition(parts, features)
    assert np.ptp([len(part) for part in parts]) <= 1
    again = ColumnSizes([len(part) for part in parts], shuffle)(features, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_columns_bad_input():
    table = Table("made", np.ones((2, 3)), feature_names=("age", "pay", "debt"))
    for how, message in (
        (EvenColumns(4), "4 clients but only 3 columns"),
        (ColumnSizes((1, 1)), "sum to 2, but there are 3 columns"),
        (ColumnSizes((0, 3)), r"sizes\[0\] must be at least 1, got 0"),
        (ColumnNames({"a": ["age", "play"]}), "a: no column 'play'; did you mean 'pay'"),
        (ColumnNames({"a": ["age"], "b": ["age", "pay"]}), "has one owner"),
        (ColumnNames({"a": ["age"], "b": ["pay"]}), "1 of 3 columns have no owner"),
        (ColumnNames({"a": ["age", "pay", "debt"], "b": []}), "client 1 has no columns"),
        (Parties(), "table.columns is None"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            how(table)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (IID(0), "IID: clients must be at least 1, got 0"),
        (IID(2.5), "clients must be a whole number, got 2.5"),
        (IID(11), "11 clients .* but only 10 rows"),
        (Dirichlet(2, 0.0), "alpha must be more than 0 and finite, got 0"),
        (Dirichlet(2, np.inf), "alpha must be .*got inf"),
        (Dirichlet(4, 1.0, min_rows=3), "at least 12 rows"),
        (QuantitySkew(2, -1.0), "alpha must be .*got -1"),
        (LabelsPerClient(2, 3), "k=3, but there are 2 labels"),
        (LabelsPerClient(1, 1), "cannot hold all 2 labels"),
        (Shards(6, 2), "6 clients .* but only 10 rows"),
        (CountTable(((5, 5), (0, 0))), "client 1 has no rows"),
    ],
)
def test_rows_bad_input(how, message):
    with pytest.raises((ValueError, TypeError), match=message):
        how(np.arange(10) % 2)


def test_labels_are_needed_where_they_are_used():
    for how in (LabelsPerClient(2, 1), Dirichlet(2, 1.0), Shards(2), CountTable(((1,),))):
        with pytest.raises(ValueError, match="goes by labels"):
            how(load("diabetes"))
        with pytest.raises(ValueError, match="must be integers"):
            how(np.array([0.5, 1.5]))


def test_check_partition_words():
    for parts, message in (
        ([], "no clients"),
        ([[0], []], "client 1 has no rows"),
        ([[0, 5]], "client 0 holds row 5; there are 3 rows"),
        ([[0, -1]], "holds row -1"),
        ([[0, 1], [1, 2]], "client 1 holds row 1, and so does client 0"),
        ([[0, 0], [1, 2]], "client 0 holds row 0 twice"),
        ([[0], [2]], "1 of 3 rows have no owner, the first is 1"),
        ([[0.5]], "vector of integers"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            check_partition(parts, 3)


def test_registry_names_and_summaries():
    assert PARTITIONERS["labelsperclient"] is LabelsPerClient
    assert all(name == how.__name__.lower() for name, how in PARTITIONERS.items())
    assert all(how.__doc__.splitlines()[0].endswith(".") for how in PARTITIONERS.values())


def test_partitioners_are_values():
    assert IID(3) == IID(3)
    assert len({CountTable([[1, 2]]), CountTable(((1, 2),)), ColumnNames({"a": ["b"]})}) == 2


def test_partition_makes_a_federation():
    table = load("digits")
    federation = partition(table, Dirichlet(5, 0.3), seed=1, server_rows=30)
    sizes = [len(part) for part in federation.sizes[:, None]]
    assert len(sizes) == 5
    assert federation.sizes.sum() == table.rows - 30
    assert federation.server_rows.y.shape == (30,)
    made = quadratics(clients=3, dim=2)
    assert partition(made).sizes.tolist() == [4, 4, 4]
    assert partition(made, IID(2)).num_clients == 2
    columns = partition(table, EvenColumns(4))
    assert columns.split == "features"
    owned = replace(load("wine"), columns={"left": range(5), "right": range(5, 13)})
    assert partition(owned).names == ("left", "right")
    toy = Table("toy", np.eye(3), [0, 1, 0], classes=2, ids=["b", "a", "b"])
    assert partition(toy, ByColumn()).names == ("a", "b")
    assert partition(toy, [[0], [2]]).sizes.tolist() == [1, 1]


def test_partition_bad_input():
    table = load("wine")
    for how, options, kind, message in (
        (None, {}, ValueError, "say how to split it"),
        ("iid", {}, TypeError, "is a name"),
        (IID, {}, TypeError, "is a class"),
        (IID(2), {"server_rows": 142}, ValueError, "server_rows=142"),
        (EvenColumns(2), {"server_rows": 1}, ValueError, "the server has no rows"),
        ([[0], [1]], {"server_rows": 1}, ValueError, "give a partitioner"),
    ):
        with pytest.raises(kind, match=message):
            partition(table, how, **options)
    with pytest.raises(TypeError, match="takes a Table"):
        partition(np.eye(3), IID(2))
    with pytest.raises(ValueError, match="no labels"):
        partition(Table("bare", np.eye(3)), IID(2))
