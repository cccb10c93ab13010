"""What holds for every method, on every route its messages may take."""

from collections import Counter
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedmin
import known
from agreement import ONE_BY_ONE, assert_same, compiling, leaves, run
from cases import CASES, Case
from fedmin.engines.round import COHORT, key_of
from fedmin.engines.sessions import wire
from fedmin.methods import METHODS

ROUTES = {
    "plain": lambda case: {},
    "changed": lambda case: {
        "channel": case.channel,
        "participation": case.participation,
        "seed": 3,
        "rounds": 8,
    },
}


pytestmark = [
    # one case goes through all routes, with everybody and with some
    pytest.mark.filterwarnings("ignore:FedFW.*its steps are for clients:RuntimeWarning"),
]

# of a method with several cases the first goes through everything; the engines' own questions
# (lanes, devices, who is client 1) are not asked of the others again
FIRST = list({type(case.method): case for case in reversed(CASES)}.values())[::-1]


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request) -> Case:
    return request.param


@pytest.fixture(params=ROUTES)
def route(request, case) -> dict:
    return ROUTES[request.param](case)


@cache
def simulated(case: Case, route: tuple) -> fedmin.Result:
    return run(case.world(), case.method, **dict(route))


@cache
def sent(case: Case, route: tuple) -> tuple[fedmin.Result, list]:
    """A loopback run, and every message in it: its envelope, its parts and its length in bytes."""
    messages, encode = [], wire.encode

    def tally(envelope, message):
        data = encode(envelope, message)
        parts = {
            name: sum(np.asarray(a).nbytes for a in jax.tree.leaves(message[name]))
            for name in message
        }
        messages.append((envelope, parts, len(data)))
        return data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "encode", tally)
        result = run(case.world(), case.method, engine=fedmin.Loopback(), **dict(route))
    return result, messages


def key(route: dict) -> tuple:
    return tuple(route.items())


def test_every_method_has_a_case():
    """Those on columns only are in test_columns.py, which sees that all of them are."""
    covered = {type(c.method) for c in CASES}
    on_rows = {name: method for name, method in METHODS.items() if "rows" in method.handles}
    missing = [name for name, method in on_rows.items() if method not in covered]
    assert not missing, f"add a case for {missing} in tests/cases.py"
    rules = {type(c.method.second) for c in CASES if isinstance(c.method, fedmin.FedOpt)}
    assert rules == {fedmin.Adagrad, fedmin.Adam, fedmin.Yogi}


def roster_of(case: Case, route: dict) -> fedmin.Roster:
    return case.world().federation.roster(route.get("participation", fedmin.Everyone()).everyone)


def test_shapes_are_fixed(case, route):
    world = case.world()
    result = simulated(case, key(route))
    start = case.method.init_server(world.problem, roster_of(case, route), jax.random.key(0))
    assert jax.tree.structure(start) == jax.tree.structure(result.server)
    for before, after in zip(jax.tree.leaves(start), jax.tree.leaves(result.server), strict=True):
        assert (before.shape, before.dtype) == (after.shape, after.dtype)
    assert result.solution.shape == (world.dim,)
    assert result.solution.dtype == np.float64
    for leaf in jax.tree.leaves((result.clients, result.memory)):
        assert leaf.shape[0] == len(world.clients)
    assert {len(column) for column in result.history.values()} == {result.rounds + 1}


def test_simulator_and_loopback_agree(case, route):
    assert_same(simulated(case, key(route)), sent(case, key(route))[0])


WAYS = {"ask": "down", "reply": "up"}


def test_ledger_is_the_encoded_length(case, route):
    """By kind, by round and trip, evaluation included: what is counted is what travelled."""
    result, messages = sent(case, key(route))
    kinds, lines = Counter(), Counter()
    for envelope, parts, length in messages:
        way, looks = WAYS[envelope.kind], envelope.trip >= wire.EVALUATION
        why = "evaluation " * looks + "certificate " * (envelope.trip >= wire.CERTIFICATE)
        for name, size in {**parts, "header": length - sum(parts.values())}.items():
            kinds[f"{why}{way} {name}"] += size
            if not looks:
                lines[envelope.round, envelope.trip, way, name] += size
    for ledger in (result.ledger, simulated(case, key(route)).ledger):
        assert ledger.by_kind() == dict(kinds)
        assert ledger.bytes(evaluation=True) == sum(length for _, _, length in messages)
        assert lines == Counter({
            (r["round"], r["trip"], r["direction"], r["kind"]): r["bytes"]
            for r in ledger.per_round() if r["messages"]
        })  # fmt: skip
    looks = range(wire.EVALUATION, wire.CERTIFICATE)
    looked = sum(length for e, _, length in messages if e.trip in looks)
    assert looked > 0
    assert result.final("bytes_evaluation") == looked
    down = sum(n for e, _, n in messages if e.kind == "ask" and e.trip < wire.EVALUATION)
    assert result.final("bytes_down") == down
    assert result.final("bytes_up") == result.ledger.bytes() - down


def test_columns_are_monotone(case, route):
    history = simulated(case, key(route)).history
    assert np.array_equal(history["round"], np.arange(len(history["round"])))
    for name in ("seconds", "bytes_down", "bytes_up"):
        assert (np.diff(history[name]) >= 0).all()
        assert history[name][0] == 0
    assert (np.diff(history["bytes_evaluation"]) > 0).all()


def test_no_retrace(case):
    world, method = case.world(), case.method
    plain = {"certificate": False}  # over a nuclear ball it is measured outside of the program
    first = run(world, method, **plain)
    fresh = known.World(world.problem, case.world(seed=1).clients)
    with compiling() as compiled:
        changed = [
            run(world, case.other, **plain),
            run(world, method, seed=1, **plain),
            run(fresh, method, **plain),
        ]
    assert compiled == []
    # the new numbers were used; the same ones would give the same bits
    assert not np.array_equal(changed[0].solution, first.solution)
    assert not np.allclose(changed[2].solution, first.solution)


def test_reaches_the_minimizer(case):
    world = case.world()
    result = run(world, case.method, rounds=case.rounds, every=case.rounds)
    assert np.linalg.norm(result.solution - world.minimizer) < case.tolerance
    assert result.final("objective") == pytest.approx(
        world.objective(world.minimizer), abs=case.precision
    )


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_sweep_is_single_runs(case):
    world = case.world()
    over = {case.sweeps: case.grid}
    found = fedmin.sweep(
        world.problem, world.federation, case.method,
        rounds=4, over=over, seeds=(0, 7), engine=ONE_BY_ONE,
    )  # fmt: skip
    assert len(found) == 2 * len(case.grid)
    for one in found:
        assert_same(one, run(world, one.method, seed=one.seed, rounds=4))
    assert not np.allclose(found[0].solution, found[2].solution)


def test_same_seed_same_bits(case, route):
    first = simulated(case, key(route))
    again = run(case.world(), case.method, **route)
    assert_same(first, again, rtol=0)


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_any_chunk_and_devices(case):
    first = simulated(case, ())
    for chunk, devices in case.layouts:
        assert_same(first, run(case.world(), case.method, engine=fedmin.Simulator(chunk, devices)))


def twin_world(case: Case) -> known.World:
    """The case's world, but client 2 holds the same two rows twice."""
    world = case.world()
    z, y = (np.concatenate([a[:2], a[:2]]) for a in world.clients[2])
    return world.with_clients([*world.clients[:2], (z, y), *world.clients[3:]])


@pytest.mark.parametrize("case", [c for c in FIRST if c.symmetric], ids=str)
def test_clients_permuted(case):
    world, order = twin_world(case), [3, 0, 4, 2, 1]
    plain = run(world, case.full)
    moved = run(world.with_clients([world.clients[i] for i in order]), case.full)
    np.testing.assert_allclose(moved.solution, plain.solution, rtol=1e-9)
    np.testing.assert_allclose(moved.history["objective"], plain.history["objective"], rtol=1e-9)
    for a, b in zip(jax.tree.leaves(plain.clients), jax.tree.leaves(moved.clients), strict=True):
        np.testing.assert_allclose(a[jnp.array(order)], b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", [c for c in FIRST if c.divisible], ids=str)
def test_client_cut_in_halves(case):
    world = twin_world(case)
    z, y = world.clients[2]
    halves = [(z[:2], y[:2]), (z[2:], y[2:])]
    cut = world.with_clients([*world.clients[:2], *halves, *world.clients[3:]])
    whole = run(world, case.full)
    np.testing.assert_allclose(run(cut, case.full).solution, whole.solution, rtol=1e-9)


def test_one_client_one_step_is_central(case):
    world = case.world()
    everything = [tuple(np.concatenate(a) for a in zip(*world.clients, strict=True))]
    alone = world.with_clients(everything)
    result = run(alone, case.single, rounds=5)
    expected = case.central(np.zeros(world.dim), lambda x: alone.gradient(0, x), 5)
    np.testing.assert_allclose(result.solution, expected, rtol=1e-9)


def test_absent_clients_keep_their_state(case):
    route = ROUTES["changed"](case)
    world, population = case.world(), len(case.world().clients)
    ends = [run(world, case.method, **{**route, "rounds": t}) for t in range(1, 6)]
    seen_absent = False
    for t in range(1, 5):
        draw = key_of(jax.random.key(route["seed"]), jnp.int32(t), 0, COHORT)
        ids, there = case.participation.cohort(draw, jnp.int32(t), population)
        absent = np.setdiff1d(np.arange(population), np.asarray(ids)[np.asarray(there)])
        seen_absent |= len(absent) > 0
        before, after = ((r.clients, r.memory) for r in (ends[t - 1], ends[t]))
        pairs = list(zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True))
        for a, b in pairs:
            np.testing.assert_array_equal(np.asarray(a)[absent], np.asarray(b)[absent])
        if pairs and len(absent) < population:
            assert any(not np.array_equal(a, b) for a, b in pairs)  # the others' did move
    assert seen_absent


@pytest.mark.parametrize(
    "case", [c for c in CASES if isinstance(c.participation, fedmin.Bernoulli)], ids=str
)
def test_round_without_clients_changes_nothing(case):
    route = ROUTES["changed"](case)
    counts = simulated(case, key(route)).ledger.counts
    empty = [t for t, count in enumerate(counts) if count == 0 and t > 0]
    assert empty, "choose another seed: every round found somebody"
    for t in empty:
        before, after = (
            run(case.world(), case.method, **{**route, "rounds": r}) for r in (t, t + 1)
        )
        for name in ("solution", "server", "clients", "memory"):
            a, b = (jax.tree.leaves(getattr(r, name)) for r in (before, after))
            for u, v in zip(a, b, strict=True):
                np.testing.assert_array_equal(np.asarray(u), np.asarray(v))
        assert after.history["bytes_up"][t + 1] == before.history["bytes_up"][t]


def test_a_difference_is_seen():
    """The comparison these tests rest on does notice one bit."""
    result = run(known.shared(), fedmin.FedSGD(0.5))
    twin = run(known.shared(), fedmin.FedSGD(np.nextafter(0.5, 1)))
    with pytest.raises(AssertionError):
        assert_same(result, twin, rtol=0)
    assert_same(result, twin)
    assert len(leaves(result)) > 5
