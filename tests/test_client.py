"""What a client does by itself: random orders, batches, sums over all its rows, local steps."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import fedmin
from fedmin.client import LocalSteps
from fedmin.client.shuffle import shuffled
from fedmin.methods import METHODS

# ---------------------------------------------------------------- random orders


@jax.jit
def orders(keys, places, size):
    return jax.vmap(shuffled, (0, None, None, None))(keys, 0, places, size)


@pytest.mark.parametrize("block", range(4))
def test_shuffle_is_a_bijection_for_every_size(block):
    """Sizes 1..200; `size` is a traced number, so one program serves them all."""
    places = jnp.arange(200, dtype=jnp.int32)
    keys = jax.random.split(jax.random.key(block), 2)
    for size in range(1 + 50 * block, 51 + 50 * block):
        found = np.asarray(orders(keys, jnp.minimum(places, size - 1), jnp.int32(size)))
        for order in found[:, :size]:
            assert np.array_equal(np.sort(order), np.arange(size))


def test_shuffle_asks_for_single_places():
    key, size = jax.random.key(3), jnp.int32(37)
    whole = shuffled(key, 0, jnp.arange(37), size)
    for place in (0, 5, 36):
        assert shuffled(key, 0, jnp.asarray(place), size) == whole[place]


@pytest.mark.parametrize("size", [2, 3, 4, 7, 30])
def test_shuffle_is_uniform(size):
    """Where an element lands: chi-square over all (element, place), fixed seed, p > 1e-4."""
    draws = 6000
    keys = jax.random.split(jax.random.key(1), draws)
    found = np.asarray(orders(keys, jnp.arange(size, dtype=jnp.int32), jnp.int32(size)))
    for place in {0, size // 2, size - 1}:
        counts = np.bincount(found[:, place], minlength=size)
        assert scipy.stats.chisquare(counts).pvalue > 1e-4
    pairs = np.bincount(found[:, 0] * size + found[:, 1], minlength=size * size)
    assert (pairs[:: size + 1] == 0).all()  # nothing stands at two places
    others = np.delete(pairs, np.arange(size) * (size + 1))
    assert scipy.stats.chisquare(others).pvalue > 1e-4


@pytest.mark.parametrize("size", [3, 4])
def test_all_orders_are_equally_likely(size):
    keys = jax.random.split(jax.random.key(2), 6000)
    found = np.asarray(orders(keys, jnp.arange(size, dtype=jnp.int32), jnp.int32(size)))
    counts = np.unique(found @ size ** np.arange(size), return_counts=True)[1]
    assert len(counts) == {3: 6, 4: 24}[size]
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


# ---------------------------------------------------------------- batches

SIZES = (7, 3, 10, 1)


def shard(i: int, sizes: tuple[int, ...] = SIZES, capacity: int | None = None) -> fedmin.Shard:
    """Client i of a pool whose row j has the value j and the label j."""
    total = sum(sizes)
    pool = fedmin.rows(np.arange(total, dtype=float)[:, None], np.arange(total))
    start = sum(sizes[:i])
    return fedmin.Shard(
        jax.tree.map(jnp.asarray, pool),
        jnp.int32(start),
        jnp.int32(sizes[i]),
        capacity or max(sizes),
    )


@eqx.filter_jit
def draw(batches, rows, key, k):
    return batches.read(rows, batches.draw(rows, key, k))


def held(batch: fedmin.Rows) -> np.ndarray:
    """The labels of a batch's rows that count; x must belong to them."""
    counts = np.asarray(batch.weight) > 0
    np.testing.assert_array_equal(np.asarray(batch.x.values)[:, 0], np.asarray(batch.y))
    return np.asarray(batch.y)[counts]


def own(i: int) -> np.ndarray:
    return np.arange(sum(SIZES[:i]), sum(SIZES[: i + 1]))


@pytest.mark.parametrize("batches", [fedmin.Shuffled(3), fedmin.Blocks(3), fedmin.Full()], ids=str)
@pytest.mark.parametrize("i", range(len(SIZES)))
def test_an_epoch_covers_every_row_once(batches, i):
    rows, key = shard(i), jax.random.key(5)
    steps = int(batches.per_epoch(rows.size, rows.capacity))
    epochs = []
    for turn in range(2):
        drawn = [held(draw(batches, rows, key, jnp.int32(turn * steps + k))) for k in range(steps)]
        epochs.append(np.concatenate(drawn))
        assert np.array_equal(np.sort(epochs[-1]), own(i))
    if len(own(i)) > 6 and not isinstance(batches, fedmin.Full):
        assert not np.array_equal(*epochs)  # a new order at each pass


def test_blocks_stay_with_their_neighbours():
    for k in range(4):
        drawn = held(draw(fedmin.Blocks(3), shard(2), jax.random.key(0), jnp.int32(k)))
        assert np.array_equal(drawn, np.arange(drawn[0], drawn[0] + len(drawn)))


@pytest.mark.parametrize("i", range(len(SIZES)))
def test_without_replacement_is_distinct(i):
    seen = set()
    for k in range(12):
        drawn = held(draw(fedmin.WithoutReplacement(3), shard(i), jax.random.key(1), jnp.int32(k)))
        assert len(drawn) == len(set(drawn)) == min(3, SIZES[i])
        assert set(drawn) <= set(own(i))
        seen |= set(drawn)
    assert seen == set(own(i))


@pytest.mark.parametrize("i", range(len(SIZES)))
def test_with_replacement_is_in_range(i):
    drawn = [
        held(draw(fedmin.WithReplacement(5), shard(i), jax.random.key(1), jnp.int32(k)))
        for k in range(12)
    ]
    assert {len(d) for d in drawn} == {5}
    assert set(np.concatenate(drawn)) == set(own(i))


def test_with_replacement_is_uniform():
    many = draw(fedmin.WithReplacement(5000), shard(2), jax.random.key(4), jnp.int32(0))
    assert scipy.stats.chisquare(np.bincount(held(many) - 10, minlength=10)).pvalue > 1e-4


@pytest.mark.parametrize(
    ("batches", "steps"),
    [
        (fedmin.Full(), (1, 1, 1, 1)),
        (fedmin.Blocks(3), (3, 1, 4, 1)),
        (fedmin.Shuffled(4), (2, 1, 3, 1)),
        (fedmin.WithReplacement(4), (2, 1, 3, 1)),
        (fedmin.WithoutReplacement(100), (1, 1, 1, 1)),
        (fedmin.Blocks(100), (1, 1, 1, 1)),
    ],
    ids=str,
)
def test_steps_of_an_epoch(batches, steps):
    assert tuple(int(batches.per_epoch(n, max(SIZES))) for n in SIZES) == steps


def test_batches_depend_on_key_and_step():
    kinds = (fedmin.Shuffled(3), fedmin.WithReplacement(3), fedmin.WithoutReplacement(3))
    for batches in kinds:
        one, same, other_key, other_step = (
            tuple(held(draw(batches, shard(2), jax.random.key(key), jnp.int32(k))).tolist())
            for key, k in ((0, 0), (0, 0), (1, 0), (0, 1))
        )
        assert one == same
        assert one != other_key
        assert one != other_step


# ---------------------------------------------------------------- windows and sums


@pytest.mark.parametrize("first", [0, 2, 6])
@pytest.mark.parametrize("i", range(len(SIZES)))
def test_window_never_shows_a_neighbours_row(i, first):
    """Also at the pool's end, where the window is moved back to fit."""
    rows = shard(i)
    window = rows.window(jnp.int32(first), 6)
    assert window.count == 6
    assert np.array_equal(held(window), own(i)[first : first + 6])


def test_window_larger_than_the_pool():
    small = shard(0, sizes=(2,))
    assert np.array_equal(held(small.window(jnp.int32(0), 50)), [0, 1])


def test_all_rows_are_padded_to_capacity():
    for i in range(4):
        everything = shard(i).all()
        assert everything.count == 10
        assert np.array_equal(held(everything), own(i))


def test_sum_over_many_blocks():
    """A client of several blocks and a bit, in a pool that ends with it."""
    sizes = (40, 107)
    for i in range(2):
        rows = shard(i, sizes)
        total = rows.sum(lambda w: jnp.sum(jnp.where(w.weight > 0, w.x.values[:, 0], 0.0)), 50)
        first = sum(sizes[:i])
        assert total == np.arange(first, first + sizes[i], dtype=float).sum()


@pytest.mark.parametrize("count", [30, 40])
def test_blocks_of_even_clients_need_no_weights(count):
    """Where all clients have as many rows, a block that always fits is read without asking."""
    pool = shard(0, (120, 120)).pool
    even, asked = (
        fedmin.Shard(pool, jnp.int32(120), jnp.int32(120), 120, even) for even in (True, False)
    )
    for j in range(120 // count):
        mine, plain = even.block(jnp.int32(j), count), asked.block(jnp.int32(j), count)
        assert jax.tree.all(jax.tree.map(np.array_equal, mine, plain))
    last = even.block(jnp.int32(1), 70)  # does not divide: the last 20 are not there
    assert np.array_equal(held(last), np.arange(190, 240))


@pytest.mark.parametrize("weights", [True, False])
def test_gradient_in_blocks_is_the_gradient(weights):
    rng = np.random.default_rng(0)
    window = fedmin.Problem.window
    z, y = rng.standard_normal((window + 60, 2)), rng.standard_normal(window + 60)
    problem = fedmin.LeastSquares(2, l2=0.3)
    pool = jax.tree.map(jnp.asarray, fedmin.rows(z, y, rng.random(len(y)) if weights else None))
    rows = fedmin.Shard(pool, jnp.int32(30), jnp.int32(window + 30), window + 30)
    x = jnp.array([0.5, -1.0])
    mine, v = slice(30, None), np.asarray(pool.weight)[30:]
    expected = (v * (z[mine] @ np.asarray(x) - y[mine])) @ z[mine] / v.sum() + 0.3 * np.asarray(x)
    np.testing.assert_allclose(problem.grad(x, rows), expected, rtol=1e-12)
    np.testing.assert_allclose(problem.grad(x, rows.all()), expected, rtol=1e-12)


# ---------------------------------------------------------------- local steps

# what is given without a name, in this order: code that calls FedProx(0.1, 0.01) must not change
# its meaning when a base class does
LOCAL = "step local_steps epochs batches"
ORDER = {
    "fedavg": f"{LOCAL} server_step",
    "fedavgm": f"{LOCAL} server_step beta",
    "fedprox": "step mu local_steps epochs batches stragglers",
    "scaffold": f"{LOCAL} server_step",
    "fedopt": f"{LOCAL} server_step beta1 tau second",
    "fedht": LOCAL,
    "fediterht": LOCAL,
    "scaffoldht": f"{LOCAL} server_step",
    "fedsso": f"{LOCAL} server_step curvature reset least most bad_pairs scaled reach pairs "
    "remember drift",
    "fedac": "step mu local_steps epochs batches version",
    "feddane": "step mu local_steps epochs batches",
    "fedmid": f"{LOCAL} server_step locally",
    "feddualavg": f"{LOCAL} server_step",
    "fedsgd": "step batches",
    "splitsgd": "step batches",
    "distributediht": "step batches",
    "sparsenewton": "step memory",
    "fednl": "compress alpha mu warmup largest",
    "fednlpp": "compress alpha largest warmup",
    "done": "step alpha local_steps batches first",
    "feddr": "eta alpha step local_steps accuracy batches",
}
INHERITING = [kind for kind in METHODS.values() if issubclass(kind, LocalSteps)]


@pytest.mark.parametrize("name", ORDER)
def test_fields_keep_their_order(name):
    assert [field.name for field in dataclasses.fields(METHODS[name])] == ORDER[name].split()


@pytest.mark.parametrize("kind", INHERITING)
def test_a_field_declared_again_stays_what_it_is(kind):
    """Another default or letter is fine; a count that is no longer static is not."""
    mine = {field.name: field for field in dataclasses.fields(kind)}
    for base in dataclasses.fields(LocalSteps):
        field = mine[base.name]
        assert (field.type, field.metadata) == (base.type, base.metadata)


@pytest.mark.parametrize("kind", INHERITING)
def test_every_method_checks_its_local_steps(kind):
    """Also where a subclass has checks of its own, which run first."""
    for bad, words in (
        ({"step": 0.0}, "step must be more than 0"),
        ({"step": "0.1"}, "step must be a number"),
        ({"local_steps": 0}, "local_steps must be at least 1"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"epochs": 2, "local_steps": 3}, "give local_steps or epochs, not both"),
        ({"batches": 32}, "batches must be like Blocks"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            kind(**bad)
        with pytest.raises((ValueError, TypeError), match=words):
            dataclasses.replace(kind(), **bad)


@pytest.mark.parametrize(
    ("method", "most", "steps"),
    [
        (fedmin.FedAvg(local_steps=4), 4, (4, 4)),
        (fedmin.FedAvg(local_steps=fedmin.Stages((3, 2), (0, 5))), 3, (3, 2)),
        (fedmin.FedAvg(epochs=2, batches=fedmin.Blocks(4)), 6, (4, 4)),  # 7 rows of at most 10
    ],
    ids=["number", "stages", "epochs"],
)
def test_steps_of_a_round(method, most, steps):
    i = SIZES.index(7)
    assert method.most_steps(shard(i)) == most
    keys = jax.random.split(jax.random.key(0))
    nows = [fedmin.Now(jnp.int32(round), *keys) for round in (0, 5)]
    assert tuple(int(method.steps(shard(i), now)) for now in nows) == steps


@pytest.mark.parametrize(
    ("method", "counts"),
    [
        (fedmin.FedProx(local_steps=4, stragglers=0.5), {1: 0.125, 2: 0.125, 3: 0.125, 4: 0.625}),
        # 7 rows in batches of 4: an epoch is 2 steps
        (fedmin.FedProx(epochs=2, batches=fedmin.Blocks(4), stragglers=1.0), {2: 0.5, 4: 0.5}),
    ],
    ids=["steps", "epochs"],
)
def test_stragglers_take_a_part_of_their_steps(method, counts):
    """Slow with the given chance, and then any number from 1 to K: steps, or whole passes."""
    rows, key = shard(SIZES.index(7)), jax.random.key(1)
    draw = jax.vmap(lambda secret: method.steps(rows, fedmin.Now(jnp.int32(0), key, secret)))
    found, times = np.unique(draw(jax.random.split(key, 4000)), return_counts=True)
    assert found.tolist() == sorted(counts)
    # a share of 4,000 draws has a standard error of at most 0.5 / sqrt(4000)
    np.testing.assert_allclose(times / 4000, [counts[k] for k in found], atol=5 * 0.5 / 4000**0.5)
