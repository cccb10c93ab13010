"""A site's own secret: what it draws cannot be drawn from the seed, and its rows not be guessed."""

import os
import shutil

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import doors
import fedmin
from fedmin.cli.app import app
from fedmin.core.serialize import digest
from fedmin.engines.sessions.wire import MessageError
from fedmin.privacy.departures import verify
from fedmin.privacy.own_secret import FILE, OwnSecret, SecretError
from fedmin.runs.config import Config
from fedmin.runs.costs import fitted
from fedmin.runs.deploying import prepare
from fedmin.runs.joining import drawing_key, own_secrets
from fedmin.runs.own_rows import load_rows
from fedmin.runs.reading import report_of

RUN = """
[data]
name = "wine"
standardize = true
[partition]
name = "iid"
clients = 2
[problem]
name = "softmax"
l2 = 0.01
[method]
name = "scaffold"
step = 0.1
local_steps = 2
batches = { name = "blocks", size = 8 }
[run]
rounds = 4
every = 2
[federation]
sites = ["a", "b"]
"""
NOISY = """
[data]
name = "wine"
standardize = true
[partition]
name = "iid"
clients = 2
[problem]
name = "softmax"
l2 = 0.01
[method]
name = "fedsgd"
step = 0.1
[channel]
name = "chain"
stages = [{{ name = "clip", norm = 1.0 }}, {{ name = "noise", multiplier = 1.0, at = "{at}" }}]
[run]
rounds = 2
every = 2
[federation]
sites = ["a", "b"]
"""
SEEDED = RUN + 'secrets = "seed"\n'


def loopback(text, **options) -> fedmin.Result:
    pieces, _ = fitted(Config(text).jobs()[0])
    chosen = {k: v for k, v in pieces.options.items() if k != "engine"}
    engine = fedmin.Loopback(**options)
    return fedmin.minimize(
        pieces.problem, pieces.federation, pieces.method, engine=engine, **chosen
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with secrets of the sites' own, in which b is killed and begins anew on the way."""
    folder = tmp_path_factory.mktemp("own")
    return doors.served(RUN, folder, strike=lambda count: 1 if count in (3, 4) else None)


def keys_of(sites) -> tuple:
    """What the sites drew from, as only their disks say it."""
    return tuple(
        own_secrets(site.file, site.own, site.half.name)["secret"] for site in sites.values()
    )


def test_batches_cannot_be_computed_from_the_seed(run):
    """The same file with batches from the seed ends elsewhere; with the sites' secrets, here."""
    outcome, _, sites = run
    seeded = loopback(RUN)
    assert not np.array_equal(outcome.result.solution, seeded.solution)
    assert len({str(jax.random.key_data(key)) for key in keys_of(sites)}) == 2
    told = loopback(RUN, secrets=keys_of(sites))
    np.testing.assert_array_equal(outcome.result.solution, told.solution)


@pytest.mark.parametrize("at", ["server", "sites"])
def test_noise_cannot_be_computed_from_the_seed(tmp_path, at):
    """Whole rows, so that all chance of a run is its noise: whoever adds it draws it apart."""
    text = NOISY.format(at=at)
    outcome, deployed, sites = doors.served(text, tmp_path)
    seeded = loopback(text)
    assert not np.array_equal(outcome.result.solution, seeded.solution)
    home = deployed.runs / FILE
    assert home.stat().st_mode & 0o777 == 0o600
    run = next(iter(sites.values())).half.name
    server = drawing_key(OwnSecret.at(deployed.runs), run)
    told = loopback(text, secrets=(*keys_of(sites), server))
    np.testing.assert_array_equal(outcome.result.solution, told.solution)
    known = (*[None] * 2, server) if at == "sites" else (*keys_of(sites), None)
    without = loopback(text, secrets=known)  # of those who add no noise: the seed's again
    np.testing.assert_array_equal(without.solution, seeded.solution)


def test_a_killed_site_goes_on_with_the_same_secret(run, tmp_path):
    """Bit for bit a run in which nobody was killed, whose sites have the same secrets."""
    outcome, _, sites = run
    assert sum(len(site.sent) for site in sites.values()) > 10
    told = loopback(RUN, secrets=keys_of(sites))
    for name in ("round", "objective", "accuracy"):
        np.testing.assert_array_equal(outcome.result.history[name], told.history[name])


def test_another_federation_with_the_same_seed_draws_other_batches(run, tmp_path):
    other, _, _ = doors.served(RUN, tmp_path)
    assert not np.array_equal(other.result.solution, run[0].result.solution)


def test_it_stays_where_it_is(run):
    """In no message, no log and no other file, neither itself nor what is drawn from it."""
    _, deployed, sites = run
    for site, key in zip(sites.values(), keys_of(sites), strict=True):
        path = deployed.site_file(site.file.name).parent / "state" / FILE
        assert path.stat().st_mode & 0o777 == 0o600
        drawn = np.asarray(jax.random.key_data(key)).astype("<u4").tobytes()
        for secret in (path.read_bytes(), drawn):
            forms = (secret, secret.hex().encode(), repr(secret).encode())
            for data in (
                *site.sent,
                *(p.read_bytes() for p in deployed.folder.rglob("*") if p.is_file() and p != path),
            ):
                assert not any(form in data for form in forms)


def test_seeds_only_where_the_policy_says_so(tmp_path):
    outcome, deployed, _ = doors.served(SEEDED, tmp_path / "asked")
    np.testing.assert_array_equal(outcome.result.solution, loopback(RUN).solution)
    assert "the run&#x27;s seed, which everybody knows" in report_of([deployed.runs])
    with pytest.raises(MessageError, match="seeded is false: secrets = 'system'"):
        doors.served(SEEDED, tmp_path / "refused", policy="most_rounds = 9\n")
    file = tmp_path / "run.toml"
    file.write_text(SEEDED)
    said = CliRunner().invoke(app, ["show", str(file)]).output
    assert "draw batches and noise from the run's seed" in said
    file.write_text(RUN)
    assert "secrets of their own" in CliRunner().invoke(app, ["show", str(file)]).output


def test_a_file_that_is_not_as_it_was_made_is_refused(tmp_path):
    secret = OwnSecret.at(tmp_path)
    path = tmp_path / FILE
    assert np.array_equal(secret.numbers("1", 2), OwnSecret.at(tmp_path).numbers("1", 2))
    assert not np.array_equal(secret.numbers("1", 2), secret.numbers("2", 2))
    assert os.listdir(tmp_path) == [FILE]
    path.chmod(0o640)
    with pytest.raises(SecretError, match="run: chmod 600"):
        OwnSecret.at(tmp_path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(SecretError, match="32 bytes, this one 5"):
        OwnSecret.at(tmp_path)
    path.unlink()
    with pytest.raises(SecretError, match="is gone, and a run has begun with it"):
        OwnSecret.at(tmp_path, lambda: True)


def test_a_site_whose_secret_is_gone_does_not_go_on(tmp_path):
    _, deployed, sites = doors.served(RUN, tmp_path)
    (deployed.site_file("b").parent / "state" / FILE).unlink()
    with pytest.raises(SecretError, match="put it back"):
        sites["b"].kill()


def test_rows_in_a_certificate_cannot_be_guessed(run):
    """Who guesses all of a site's rows rightly can compute their hash, and not what was sent."""
    outcome, deployed, sites = run
    certificate = outcome.result.certificate
    said = certificate.data["fingerprints"]
    assert set(said) == {"a", "b"}
    assert "sha256" not in certificate.data
    for name in said:
        guess = load_rows(deployed.site_file(name).parent / "rows.npz")
        session = sites[name].half.guarded.site
        for known in (digest(guess), session.digest):
            assert known not in said.values()
            sent = b"".join(sites[name].sent)
            assert bytes.fromhex(known) not in sent
            assert bytes.fromhex(said[name]) in sent


def test_a_site_can_say_whether_a_certificate_is_about_its_rows(run, tmp_path):
    outcome, deployed, _ = run
    path = tmp_path / "certificate.json"
    outcome.result.certificate.save(path)
    command = ["site", "fingerprint", str(deployed.site_file("a")), "--certificate", str(path)]
    assert "is about the rows that a has" in CliRunner().invoke(app, command).output
    rows = deployed.site_file("a").parent / "rows.npz"
    before = rows.read_bytes()
    with np.load(rows) as found:
        parts = {name: found[name].copy() for name in found.files}
    parts["x"][0, 0] += 1e-3
    np.savez(rows, **parts)
    try:
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 2
        assert "about other rows of a" in done.output
    finally:
        rows.write_bytes(before)


def test_the_same_rows_have_the_same_fingerprint_in_another_run(run, tmp_path):
    """So that two certificates can be told to be about the same data."""
    _, _, sites = run
    site = sites["a"]
    one, other = (own_secrets(site.file, site.own, name) for name in ("11", "22"))
    assert one["fingerprint"] == other["fingerprint"]
    assert not np.array_equal(*(jax.random.key_data(x["secret"]) for x in (one, other)))


def test_a_certificate_with_fingerprints_is_checked_by_its_numbers(run):
    pieces, _ = fitted(Config(RUN).jobs()[0])
    certificate = run[0].result.certificate
    assert certificate.check(pieces.problem, pieces.federation) == []


def test_a_site_is_added_to_the_roster_between_runs(run, tmp_path):
    """The others keep their folders: the same secret, one log of both runs; the newcomer begins."""
    _, before, old = run
    three = RUN.replace("clients = 2", "clients = 3").replace('["a", "b"]', '["a", "b", "c"]')
    prepare(Config(three), tmp_path)
    for name in ("a", "b"):
        kept, home = (d / "sites" / name for d in (before.folder, tmp_path))
        shutil.copytree(kept / "state", home / "state")
        for file in kept.glob(f"{name}.log*"):
            shutil.copy(file, home)
    outcome, _, sites = doors.served(three, tmp_path)
    told = loopback(three, secrets=keys_of(sites))
    np.testing.assert_array_equal(outcome.result.solution, told.solution)
    for name in ("a", "b"):
        found = verify(sites[name].file.log)
        names = {site[name].half.name for site in (old, sites)}
        assert found.wrong == ""
        assert {each.run for each in found.departures} - {""} == names
        fingerprints = [
            own_secrets(site[name].file, old[name].own, "1")["fingerprint"] for site in (old, sites)
        ]
        assert fingerprints[0] == fingerprints[1]
