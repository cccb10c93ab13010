"""Sizes that nobody tells: the weight of a sum travels inside it, and nobody knows a p_i."""

import json
import re
from dataclasses import replace

import jax
import numpy as np
import pytest

import conftest
import doors
import fedmin
import known
from agreement import assert_same_bits
from contract import Median
from fedmin.channels.fixed_point import weight_words
from fedmin.channels.secure.legs import WEIGHT
from fedmin.core.roster import Roster
from fedmin.engines.sessions.server import QuorumError
from fedmin.engines.sessions.tap import heard
from fedmin.methods import METHODS
from fedmin.runs.config import Config
from fedmin.runs.folder import run as run_file
from fedmin.runs.site_file import SiteFile
from sums import LEGS, Table, refused
from test_protocol import METHOD, dropping

WORLD = known.apart(sizes=(1039, 1213, 761, 1489))  # not lengths of messages by chance
SIZES, MOST = (1039, 1213, 761, 1489), 1601
CHANNEL = fedmin.SecureSum(bits=64, bound=8.0)


def federation(weights="secret", **options):
    most = {"most_rows": MOST} if weights == "secret" else {}
    return fedmin.Federation.from_clients(WORLD.clients, weights=weights, **most, **options)


def run(method=METHOD, weights="secret", **options):
    settings = {"rounds": 3, "every": 3, "channel": CHANNEL} | options
    return fedmin.minimize(WORLD.problem, federation(weights), method, **settings)


@pytest.fixture(scope="module")
def tapped(tmp_path_factory):
    """A run whose sizes are secret, and every byte of it."""
    path = tmp_path_factory.mktemp("taps") / "wire"
    result = run(fedmin.Scaffold(0.2, local_steps=2), engine=fedmin.Loopback(), tap=path)
    return list(heard(path)), result


# ---------------------------------------------------------------- the same model


@pytest.mark.parametrize("channel", [CHANNEL, fedmin.SecureSum()], ids=["bound", "agreed"])
def test_the_model_is_that_of_sizes_which_are_told(channel, tapped):
    """Both engines; a method that needs the mean, and one that adds up what p_i weigh."""
    method = fedmin.Scaffold(0.2, local_steps=2)
    simulated, told = (run(method, w, channel=channel) for w in ("secret", "sizes"))
    close = 1e-9 if channel.bits == 64 else 1e-6
    np.testing.assert_allclose(simulated.solution, told.solution, rtol=close, atol=close)
    np.testing.assert_allclose(
        simulated.history["objective"], told.history["objective"], rtol=close
    )
    if channel is CHANNEL:
        loopback = tapped[1]
        np.testing.assert_allclose(loopback.solution, simulated.solution, rtol=1e-13)
        assert loopback.ledger.by_kind() == simulated.ledger.by_kind()


def test_the_weight_in_the_sum_is_that_of_all_rows(rng):
    """W = sum n_i / (N C), by whole numbers; and rows may have weights of their own."""
    each = rng.uniform(0.1, 0.9, sum(SIZES))
    x, y = (np.concatenate([c[k] for c in WORLD.clients]) for k in (0, 1))
    parts = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
    for weight in (np.ones(sum(SIZES)), each):
        given = fedmin.Federation.from_parts(
            x, y, parts, weights="secret", most_rows=MOST, row_weights=weight
        )
        roster = given.roster()
        sent = [CHANNEL.weigh({}, jax.numpy.asarray(roster.counted(i, given.client(i))))
                for i in range(4)]  # fmt: skip
        summed = CHANNEL.combine(jax.tree.map(lambda *a: jax.numpy.stack(a), *sent))
        found = CHANNEL.weight_in(summed, "float64")
        np.testing.assert_allclose(found * 4 * MOST, weight.sum(), rtol=1e-12)


@pytest.mark.thorough  # loopback has the same bits by the same code
def test_processes_carry_it_unchanged(monkeypatch):
    for name, value in conftest.QUICKLY.items():
        monkeypatch.setenv(name, value)
    assert_same_bits(*(run(rounds=2, every=2, engine=e)
                       for e in (fedmin.Loopback(), fedmin.Processes())))  # fmt: skip


# ---------------------------------------------------------------- what is told


def forms_of(size: int) -> list[bytes]:
    """A number of rows, as whoever told it would write it; not so short that chance finds it."""
    whole = [np.array([size], kind).tobytes() for kind in ("<i8", "<f8")]
    n = sum(SIZES)
    parts = [np.array([p]).tobytes() for p in (size / n, size / (4 * MOST))]
    fixed = [round(2 ** (w - 2) * size / (4 * MOST)).to_bytes(w // 8, "little") for w in (64, 128)]
    return [*whole, *parts, *fixed]


def test_no_size_is_on_the_wire_and_all_messages_have_one_length(tapped):
    kept, result = tapped
    for size in SIZES:
        for form in forms_of(size):
            assert not any(form in h.data for h in kept), size
    # of one trip all sites send as many bytes, whatever they hold
    lengths: dict = {}
    for h in kept:
        place = h.envelope.round, h.envelope.trip, h.envelope.kind, h.envelope.sender < 4
        lengths.setdefault(place, set()).add(len(h.data))
    assert len(lengths) > 20
    assert all(len(each) == 1 for each in lengths.values())
    assert "how many rows all have together, of none alone" in str(result.privacy)
    # without masks around it, the wire has the weight: the search would find it
    whole = federation()
    wire = CHANNEL.weigh({}, jax.numpy.asarray(whole.roster().counted(1, whole.client(1))))
    assert forms_of(SIZES[1])[-2] in np.asarray(wire[WEIGHT]).tobytes()


def test_a_roster_says_a_bound_and_nothing_else_of_sizes():
    """Two federations of other sizes have the same roster, to the last field."""
    turned = WORLD.clients[::-1]
    other = fedmin.Federation.from_clients(turned, weights="secret", most_rows=MOST).roster()
    one = federation().roster()
    assert one.capacity == MOST
    np.testing.assert_array_equal(one.shares, 0.25)
    for name in Roster.__annotations__:
        assert np.all(getattr(one, name) == getattr(other, name)), name
    # all have as many rows: not even that is told
    even = fedmin.Federation.from_clients(known.apart(sizes=(5, 5)).clients, weights="secret")
    assert even.even
    assert not even.roster().even


# ---------------------------------------------------------------- whoever is missing


def untold(count: int) -> Table:
    """The roles of a sum whose sizes are not told."""
    table = Table(count)
    roster = replace_told(table.occasion.roster)
    share = roster.share(0)
    all_know = weight_words(share, 1)
    for i, wire in table.wires.items():
        own = np.full(1, 1000 + i, np.uint32)  # nobody but the site knows this one
        table.wires[i] = {**wire, WEIGHT: np.stack([own, all_know])}
    occasion = table.occasion._replace(roster=roster)
    table.protocol.hidden = table.wires[0]
    table.occasion, table.server = occasion, table.protocol.server(occasion)
    table.sites = {i: table.protocol.site(occasion, i) for i in table.sites}
    return table


def replace_told(roster):
    roster.sizes_told = False
    share = np.float32(1 / len(roster.names))
    roster.share = lambda i: share
    return roster


@pytest.mark.parametrize("leg", LEGS)
def test_a_site_gives_nothing_to_a_sum_without_one_of_them(leg):
    """A server that says one is missing, whom it has heard, would learn its size by subtraction."""
    whole = untold(4)
    whole.play()
    total = whole.server.reveal()
    assert np.ravel(total[WEIGHT])[0] == 4006
    table = untold(4)
    for site in table.sites.values():
        assert site.company.needed == 4
    if leg == "unmask":  # who has signed does not enter the sum: but fewer are not enough
        said = table.play(until="unmask")
        said[0]["signed"][3] = False
        assert "needs 4" in refused(table.sites[0].answer, "unmask", said[0])
        return
    with pytest.raises(Exception, match="needs 4"):
        table.play({3: leg})


def test_a_mask_that_is_still_there_is_noticed_by_what_all_know():
    table = untold(4)
    table.play()
    table.server.groups[0].rows[1][1] += 1  # the word of 1/N, after that of the weight
    assert "another weight" in refused(table.server.reveal)


def test_a_round_with_somebody_missing_does_not_count(monkeypatch):
    """On any trip, whatever quorum there is; the server's state is as it was."""
    world = replace(WORLD, weights="secret")
    with pytest.raises(QuorumError, match="too few sites answered"):
        dropping(CHANNEL, {(0, 2, 1)}, rounds=1, world=world)


def test_absent_sites_are_refused_before_the_work_starts():
    with pytest.raises(ValueError, match=r"would tell how many rows it has; .* quorum = 1\.0"):
        run(engine=fedmin.Loopback(absent=((0, 2, 1),)))


# ---------------------------------------------------------------- what is refused


GATHER = {"fedfw", "fedfwplus", "fedfwsto"}  # for atoms that are smaller than their sum


def test_what_needs_to_know_sizes_is_refused_with_the_way_out():
    said = lambda match: pytest.raises(ValueError, match=f"(?s)weights are 'secret': .*{match}")
    for channel in (fedmin.Plain(), fedmin.TopK(2), fedmin.HomomorphicSum()):
        with said(r"needs each p_i; give SecureSum\(\)"):
            run(channel=channel)
    with said("Median gathers replies"):
        run(Median())
    noisy = fedmin.chain(fedmin.Clip(1.0), fedmin.Noise(1.0, at="sites"), CHANNEL)
    with said("is made for p_i that are known"):
        run(channel=noisy)
    with said(r"would tell of the others; .* give Everyone\(\)"):
        run(participation=fedmin.Uniform(3))
    limited = fedmin.subject_to(fedmin.Logistic(3), fedmin.GroupLossAtMost({"0": 0.5}))
    rows = [(x, (y > 0).astype(int)) for x, y in WORLD.clients]
    grouped = fedmin.Federation.from_clients(rows, weights="secret", classes=2)
    with said("limits on groups are measured by the numbers of their rows"):
        fedmin.minimize(limited, grouped, fedmin.SSCA(), rounds=1, channel=CHANNEL)
    with pytest.raises(ValueError, match="most_rows = 100, and a client has 1489 rows"):
        fedmin.Federation.from_clients(WORLD.clients, weights="secret", most_rows=100)
    with pytest.raises(ValueError, match="most_rows is for weights='secret'"):
        fedmin.Federation.from_clients(WORLD.clients, most_rows=2000)
    run(channel=fedmin.chain(fedmin.Clip(1.0), CHANNEL), rounds=1)


def test_methods_that_need_each_share_are_those_that_gather():
    """Of all methods on rows, in the form in which they take sums if they have one."""
    problem = fedmin.over(fedmin.LeastSquares(40), fedmin.L1Ball(1.0))
    roster = fedmin.Federation.from_clients([(np.eye(4, 40), np.arange(4.0))] * 3).roster()
    found = set()
    for name, kind in METHODS.items():
        if "rows" not in kind.handles:
            continue
        try:
            trips = kind().exchanges(problem, roster)
        except (TypeError, ValueError, AttributeError):
            continue  # it wants arguments, or another set: none of those gathers (test_secure_sum)
        found |= {name} if any(getattr(t, "reduce", "") == "gather" for t in trips) else set()
    assert found <= GATHER


# ---------------------------------------------------------------- files and machines

RUN = f"""
[data]
name = "wine"
standardize = true
[partition]
name = "quantityskew"
alpha = 2.0
clients = 3
weights = "secret"
most_rows = {MOST}
[problem]
name = "softmax"
l2 = 0.01
[method]
name = "scaffold"
step = 0.1
[channel]
name = "secure_sum"
bits = 64
bound = 8.0
[run]
rounds = 2
every = 2
engine = "loopback"
[federation]
sites = ["a", "b", "c"]
secrets = "seed"
"""


def test_machines_carry_it_and_no_site_says_how_many_rows_it_has(tmp_path):
    """Bit for bit as in a loopback; neither what they say or send nor what is kept has a size."""
    outcome, deployed, sites = doors.served(RUN, tmp_path, signed=True)
    quiet = next(iter(run_file(Config(RUN), tmp_path / "quiet"))).result
    np.testing.assert_array_equal(outcome.result.solution, quiet.solution)
    counts = [len(site.own.weight) for site in sites.values()]
    assert len(set(counts)) == 3
    for site, count in zip(sites.values(), counts, strict=True):
        assert site.said["rows"] is site.said["weight"] is None
        everything = b"".join([*site.sent, *site.told, json.dumps(site.welcome).encode()])
        assert not re.search(rb"(?<![\d.a-f])%d(?![\d.])" % count, json.dumps(site.said).encode())
        assert np.array([count], "<i4").tobytes() not in everything
    kept = (deployed.run_file.parent / "runs").rglob("*.json")
    assert all(f'"rows": {n},' not in path.read_text() for path in kept for n in counts)


def test_what_machines_would_tell_is_refused(tmp_path):
    bound = f"most_rows = {MOST}\n"
    sizes = lambda text: text.replace('"secret"', '"sizes"').replace(bound, "")
    for k, (change, said) in enumerate((
        (lambda text: text.replace(bound, ""), "needs most_rows = N beside it"),
        (sizes, r"a does not say how many rows it has \(rows_told = false"),
        (lambda text: text.replace(bound, "most_rows = 20\n"), "more rows than most_rows = 20"),
    )):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            doors.served(RUN, tmp_path / str(k), signed=True, change=change)
    text = 'name = "a"\nserver = "localhost:1"\nkeys = "a"\n[data]\nfile = "r.csv"\n'
    assert SiteFile.of(text).data.rows_told
    assert not SiteFile.of(text + "rows_told = false\n").data.rows_told
