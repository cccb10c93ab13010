"""Certificates: the sums behind them are an exchange, between halves that have only their own."""

import numpy as np
import pytest

import fedmin
import known
from agreement import run
from fedmin.assembling import assemble
from fedmin.engines.drive import Settings
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.halves import Own, run_halves
from fedmin.engines.sessions.site import SiteSession
from fedmin.engines.sessions.wire import Envelope, MessageError
from fedmin.engines.transports.memory import Memory
from fedmin.privacy.observers import who_learns
from masks import PairwiseMasks
from parted import problems, split
from test_protocol import tapped
from test_sessions import Lossy, parties

WORLD = known.World(fedmin.over(known.apart().problem, fedmin.L1Ball(0.7)), known.apart().clients)
METHOD = fedmin.FedFW(1.0)
SETTINGS = Settings(2, 0, 1, False)
NUMBERS = ("objective", "gradient", "gap", "best_stationarity", "violation")


def pieces(**options):
    return assemble(
        WORLD.problem, WORLD.federation, METHOD, fedmin.Everyone(), fedmin.Plain(), None, None,
        **options,
    )  # fmt: skip


def assert_agree(one: fedmin.Certificate, other: fedmin.Certificate) -> None:
    for name in NUMBERS:
        old, new = getattr(one, name), getattr(other, name)
        assert (old is None) == (new is None)
        if old is not None:
            assert old == pytest.approx(new, rel=1e-9, abs=1e-12), name
    np.testing.assert_allclose(one.constraints, other.constraints, rtol=1e-9, atol=1e-12)
    assert one.data["sha256"] == other.data["sha256"]


@pytest.mark.parametrize("channel", [fedmin.Plain(), PairwiseMasks(looks=True)], ids=["", "masks"])
def test_on_rows_it_is_an_exchange_and_every_byte_is_counted(channel, monkeypatch):
    carried = tapped(monkeypatch)
    # FedFW's atoms must travel as they are
    method = METHOD if channel == fedmin.Plain() else fedmin.FedMid(0.1)
    honest = run(WORLD, method, rounds=2, engine=fedmin.Loopback(), channel=channel)
    fast = run(WORLD, method, rounds=2, channel=channel)
    assert honest.certificate.measured == "by an exchange with 5 clients"
    assert fast.certificate.measured == "on all rows in one place"
    assert honest.ledger.by_kind() == fast.ledger.by_kind()
    assert honest.ledger.bytes(evaluation=True) == sum(map(len, carried))
    assert honest.final("bytes_evaluation") == honest.ledger.cumulative_evaluation()[-1]
    assert honest.ledger.by_kind()["evaluation certificate up digest"] == 5 * 32
    if channel == fedmin.Plain():
        assert_agree(honest.certificate, fast.certificate)
        assert honest.certificate.check(WORLD.problem, WORLD.federation) == []
    else:  # on the channel's grid
        assert honest.certificate.gap == pytest.approx(fast.certificate.gap, abs=1e-6)
        assert "evaluation certificate channel up key" in honest.ledger.by_kind()


@pytest.mark.filterwarnings("ignore:SSCA:RuntimeWarning")
@pytest.mark.parametrize("labels", ["everyone", "server"])
def test_on_columns_it_takes_the_trips_of_a_look(labels, monkeypatch):
    problem, y = problems(split((3, 1, 3)))["logistic"]
    limited = fedmin.subject_to(problem, fedmin.LossAtMost(0.5))
    federation = split((3, 1, 3), y, labels=labels)
    options = {"rounds": 1, "record": [fedmin.Objective()], "progress": False}
    method = fedmin.SSCA(batches=fedmin.Full())
    carried = tapped(monkeypatch)
    honest, fast = (
        fedmin.minimize(limited, federation, method, engine=engine, **options)
        for engine in (fedmin.Loopback(), fedmin.Simulator(devices=1))
    )
    assert_agree(honest.certificate, fast.certificate)
    assert honest.ledger.bytes(evaluation=True) == sum(map(len, carried))
    assert honest.ledger.by_kind() == fast.ledger.by_kind()
    assert honest.certificate.data["rows"] == federation.pool.count


def test_the_driver_needs_no_federation():
    """A roster, and sites behind a road: nobody here has anybody's rows."""
    made, roster = pieces(certificate=True), WORLD.federation.roster()
    nothing = Own()
    sites = [SiteSession(made, roster, i, WORLD.federation.client(i), seed=0) for i in range(5)]
    result = run_halves(made, roster, nothing, lambda *_: Memory(sites), SETTINGS)
    assert_agree(
        result.certificate, fedmin.certify(WORLD.problem, WORLD.federation, result.solution)
    )
    assert "rows" not in result.certificate.data


def test_a_run_that_has_ended_is_not_lost_with_a_site():
    made, roster = pieces(certificate=True), WORLD.federation.roster()
    nothing = Own()
    sites = [SiteSession(made, roster, i, WORLD.federation.client(i), seed=0) for i in range(5)]
    road = Lossy(sites, {(2, wire.CERTIFICATE + 1, 3)})
    with pytest.warns(RuntimeWarning, match="no certificate: round 2: .* 3: no reply came"):
        result = run_halves(made, roster, nothing, lambda *_: road, SETTINGS)
    assert (result.status, result.certificate) == ("done", None)
    assert not result.ledger.certificate


def test_the_data_are_named_by_what_each_site_has():
    found = fedmin.certify(WORLD.problem, WORLD.federation, np.zeros(3))
    (z, y), *rest = WORLD.clients
    for other in ([(z, y + 1), *rest], [*rest, (z, y)]):  # another number, another order
        new = fedmin.certify(WORLD.problem, WORLD.with_clients(other).federation, np.zeros(3))
        assert new.data["sha256"] != found.data["sha256"]
    wrong = found.check(WORLD.problem, WORLD.with_clients([(z, y + 1), *rest]).federation)
    assert any(line.startswith("data: sha256") for line in wrong)


def test_a_site_is_looked_at_only_as_the_run_says():
    """A run without a certificate: nobody asks for slopes, and nobody who asks gets them."""
    server, sites = parties(fedmin.FedSGD(0.1), channel=fedmin.Plain())
    ask = Envelope("ask", 0, wire.CERTIFICATE, 2**31 - 1, 0, server.name)
    with pytest.raises(MessageError, match="takes no certificate"):
        sites[0].answer(wire.encode(ask, {}))


def test_what_leaves_for_a_certificate_is_listed():
    from fedmin.engines.messages import messages_of

    roster = WORLD.federation.roster()
    listed = who_learns(messages_of(pieces(certificate=True), roster).purposes, roster.names)
    parts = [d.parts for d in listed if d.when == "certificate" and d.receivers == ("server",)]
    assert parts[0] == {"digest": "uint8[32]"}
    assert "float64[1, 3]" in parts[1]["sums"]
