"""Keys and certificates, against judges that are not fedmin: openssl, and Python's own TLS."""

import base64
import shutil
import socket
import ssl
import subprocess
import threading
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedmin.privacy import certificates
from fedmin.privacy.authority import issued, make_authority, renew_authority, revoke, sign
from fedmin.privacy.certificates import KeysError, read_certificate, read_key, said_by
from fedmin.privacy.identity import Identity, Trust, make_request, renew_request

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
YEAR = timedelta(days=365)


@pytest.fixture
def home(tmp_path) -> Path:
    """An authority, a server for localhost and two sites, all signed."""
    make_authority(tmp_path / "ca")
    enroll(tmp_path, "hub", "server", ["localhost", "127.0.0.1"])
    enroll(tmp_path, "a")
    enroll(tmp_path, "b")
    return tmp_path


def enroll(home, name, role="site", hosts=(), **options) -> Path:
    request = make_request(home / name, name, role, hosts)
    return sign(home / "ca", request, out=home / name, **options)


def pem(folder: Path) -> bytes:
    return (folder / "certificate.pem").read_bytes()


def test_a_certificate_may_last_as_long_as_its_authority_and_not_a_day_longer(tmp_path):
    make_authority(tmp_path / "ca", days=40, now=NOW)
    request = make_request(tmp_path / "a", "a", "site", ())
    options = {"out": tmp_path / "a", "now": NOW}
    with pytest.raises(KeysError, match="sign for at most 40 days"):
        sign(tmp_path / "ca", request, days=41, **options)
    sign(tmp_path / "ca", request, days=40, **options)
    ends = read_certificate(tmp_path / "ca/authority.pem").not_valid_after_utc
    assert read_certificate(tmp_path / "a/certificate.pem").not_valid_after_utc == ends


# ---------------------------------------------------------------- openssl


def openssl(*words) -> subprocess.CompletedProcess:
    command = shutil.which("openssl")
    if command is None:
        pytest.skip("there is no openssl here")
    words = [str(word) for word in words]
    return subprocess.run([command, *words], capture_output=True, text=True, timeout=60)


def verified(home: Path, name: str, purpose: str, *more) -> subprocess.CompletedProcess:
    return openssl(
        "verify", "-x509_strict", "-purpose", purpose, "-CAfile", home / "ca/authority.pem", *more,
        home / name / "certificate.pem",
    )  # fmt: skip


def test_openssl_believes_what_was_signed(home):
    for name, purpose in (("a", "sslclient"), ("hub", "sslserver")):
        done = verified(home, name, purpose)
        assert done.returncode == 0, done.stderr
        other = {"sslclient": "sslserver", "sslserver": "sslclient"}[purpose]
        assert verified(home, name, other).returncode != 0  # a site cannot be a server, nor back


def test_openssl_reads_names_and_usage(home):
    authority = openssl("x509", "-in", home / "ca/authority.pem", "-noout", "-text").stdout
    assert "X509v3 Basic Constraints: critical\n                CA:TRUE, pathlen:0" in authority
    assert "Key Usage: critical\n                Certificate Sign, CRL Sign" in authority
    assert "ASN1 OID: prime256v1" in authority
    site = openssl("x509", "-in", home / "a/certificate.pem", "-noout", "-text").stdout
    assert "Subject: CN = a\n" in site
    assert "URI:fedmin://site/a\n" in site
    assert "TLS Web Client Authentication\n" in site
    assert "Key Usage: critical\n                Digital Signature\n" in site
    assert "CA:FALSE" in site
    server = openssl("x509", "-in", home / "hub/certificate.pem", "-noout", "-text").stdout
    assert "URI:fedmin://server/hub, DNS:localhost, IP Address:127.0.0.1\n" in server
    assert "TLS Web Server Authentication\n" in server


def test_openssl_reads_the_request(home):
    request = openssl("req", "-in", home / "a/request.pem", "-noout", "-text", "-verify")
    assert request.returncode == 0
    assert "URI:fedmin://site/a" in request.stdout


def test_openssl_reads_the_list_of_the_revoked(home):
    more = ("-crl_check", "-CRLfile", home / "ca/revoked.pem")
    assert verified(home, "a", "sslclient", *more).returncode == 0
    revoke(home / "ca", "a")
    done = verified(home, "a", "sslclient", *more)
    assert done.returncode != 0
    assert "revoked" in done.stderr
    assert verified(home, "b", "sslclient", *more).returncode == 0
    text = openssl("crl", "-in", home / "ca/revoked.pem", "-noout", "-text").stdout
    assert f"{read_certificate(pem(home / 'a')).serial_number:X}" in text
    assert "X509v3 CRL Number: \n                2" in text
    signature = (
        "crl",
        "-in",
        home / "ca/revoked.pem",
        "-noout",
        "-CAfile",
        home / "ca/authority.pem",
    )
    assert "verify OK" in openssl(*signature).stderr


def test_openssl_refuses_another_authority_and_an_expired_certificate(home, tmp_path):
    make_authority(tmp_path / "other/ca")
    enroll(tmp_path / "other", "a")
    done = verified(home, "other/a", "sslclient")
    assert done.returncode != 0
    for name, begin in (("old", -2 * YEAR), ("early", YEAR)):
        make_authority(tmp_path / f"{name}/ca", now=datetime.now(UTC) - 3 * YEAR)
        enroll(tmp_path / name, "c", now=datetime.now(UTC) + begin, days=10)
        done = verified(tmp_path / name, "c", "sslclient")
        assert {"old": "expired", "early": "not yet valid"}[name] in done.stderr


# ---------------------------------------------------------------- a real handshake


def handshake(site: Path, server: Path, hostname: str = "localhost") -> tuple[str, str]:
    """Both ends of a TLS connection on loopback: the names that each saw, or "" and the reason."""
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.minimum_version = ssl.TLSVersion.TLSv1_3
    inside.verify_mode = ssl.CERT_REQUIRED
    outside = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context, folder in ((inside, server), (outside, site)):
        if (folder / "certificate.pem").exists():
            context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
        context.load_verify_locations(folder / "authority.pem")
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    # the server's list of the revoked
    inside.load_verify_locations(server / "revoked.pem")
    inside.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    seen = {}
    with socket.create_server(("127.0.0.1", 0)) as port:
        thread = threading.Thread(target=_accept, args=(port, inside, seen))
        thread.start()
        try:
            with (
                socket.create_connection(port.getsockname(), timeout=20) as plain,
                outside.wrap_socket(plain, server_hostname=hostname) as stream,
            ):
                stream.recv(1)  # in TLS 1.3 a refusal by the server comes after the handshake
                seen["site"] = _common_name(stream)
        except OSError as error:
            seen["site"] = f"refused: {error}"
        thread.join(20)
    return seen["site"], seen["server"]


def _accept(port, context, seen):
    port.settimeout(20)
    try:
        plain, _ = port.accept()
        with plain, context.wrap_socket(plain, server_side=True) as stream:
            stream.send(b"!")
            seen["server"] = _common_name(stream)
            der = stream.getpeercert(binary_form=True)
            seen["pem"] = ssl.DER_cert_to_PEM_cert(der).encode()
    except OSError as error:
        seen["server"] = f"refused: {error}"


def _common_name(stream) -> str:
    return dict(pair[0] for pair in stream.getpeercert()["subject"])["commonName"]


def test_handshake_in_both_directions(home):
    assert handshake(home / "a", home / "hub") == ("hub", "a")
    assert handshake(home / "b", home / "hub", "127.0.0.1") == ("hub", "b")


def test_handshake_refuses_what_it_must(home, tmp_path):
    def refused(site, server, *host) -> str:
        return " ".join(handshake(site, server, *host))

    make_authority(tmp_path / "other/ca")
    enroll(tmp_path / "other", "a")
    enroll(tmp_path / "other", "hub", "server", ["localhost"])
    # of another authority, on either side
    shutil.copy(home / "a/authority.pem", tmp_path / "other/a/authority.pem")
    assert "unknown ca" in refused(tmp_path / "other/a", home / "hub").lower().replace("_", " ")
    assert "verify failed" in refused(home / "a", tmp_path / "other/hub")
    # another host than the certificate names
    assert "Hostname mismatch" in refused(home / "a", home / "hub", "elsewhere.example")
    # a site's certificate in the place of a server's, and a server's in the place of a site's
    assert "unsuitable certificate purpose" in refused(home / "a", home / "b")
    assert "purpose" in refused(home / "hub", home / "hub")
    # no certificate at all
    (tmp_path / "nobody").mkdir()
    shutil.copy(home / "a/authority.pem", tmp_path / "nobody/authority.pem")
    assert "did not return a certificate" in refused(tmp_path / "nobody", home / "hub")
    # revoked: the server has the new list
    revoke(home / "ca", "a")
    shutil.copy(home / "ca/revoked.pem", home / "hub/revoked.pem")
    assert "revoked" in refused(home / "a", home / "hub")
    assert handshake(home / "b", home / "hub") == ("hub", "b")


def test_handshake_refuses_an_expired_certificate(tmp_path):
    now = datetime.now(UTC)
    make_authority(tmp_path / "ca", now=now - 2 * YEAR)
    enroll(tmp_path, "hub", "server", ["localhost"])
    enroll(tmp_path, "a", now=now - YEAR, days=364)
    assert "expired" in " ".join(handshake(tmp_path / "a", tmp_path / "hub"))


# ---------------------------------------------------------------- our own judgement, in words


def trust_of(folder: Path) -> Trust:
    return Trust((folder / "authority.pem").read_bytes(), folder / "revoked.pem")


def test_trust_names_the_owner(home):
    trust = trust_of(home / "hub")
    assert trust.name_of(pem(home / "a")) == "a"
    assert trust.name_of(pem(home / "hub"), "server") == "hub"


def test_trust_says_why_not(home, tmp_path):
    trust, later = trust_of(home / "hub"), datetime.now(UTC) + 2 * YEAR
    make_authority(tmp_path / "other/ca", name="the other one")
    enroll(tmp_path / "other", "a")
    for folder, words, options in (
        ("other/a", "certificate of site a is not signed by the authority fedmin authority", {}),
        ("hub", "is for a server, and cannot be used as a site's", {}),
        ("a", "has expired on .*; renew it with: fedmin keys renew$", {"now": later}),
        ("a", "is not valid before .*: is the clock right", {"now": NOW - 10 * YEAR}),
    ):
        with pytest.raises(KeysError, match=words):
            trust.name_of(pem(home / folder), **options)
    with pytest.raises(KeysError, match="no certificate in PEM"):
        trust.name_of(b"-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")


def test_a_revoked_site_is_refused_at_once_and_a_list_cannot_go_back(home):
    trust, before = trust_of(home / "ca"), (home / "ca/revoked.pem").read_bytes()
    assert trust.name_of(pem(home / "a")) == "a"
    revoke(home / "ca", "a")
    with pytest.raises(KeysError, match="site a was revoked"):
        trust.name_of(pem(home / "a"))
    assert trust.name_of(pem(home / "b")) == "b"
    (home / "ca/revoked.pem").write_bytes(before)
    with pytest.raises(KeysError, match="is list 1, older than list 2"):
        trust.name_of(pem(home / "b"))
    (home / "ca/revoked.pem").unlink()
    with pytest.raises(KeysError, match=r"there is no .*revoked.pem"):
        trust.name_of(pem(home / "b"))


def test_a_list_of_another_authority_is_refused(home, tmp_path):
    make_authority(tmp_path / "other/ca")
    with pytest.raises(KeysError, match="is not signed by the authority"):
        Trust(pem_of(home / "ca"), tmp_path / "other/ca/revoked.pem")


def pem_of(authority: Path) -> bytes:
    return (authority / "authority.pem").read_bytes()


def test_a_site_cannot_sign_for_another(home):
    """With its own key and certificate as if it were an authority."""
    key, mine = read_key(home / "a/key.pem"), read_certificate(pem(home / "a"))
    said = certificates.Said("b", "site")
    forged = (
        x509.CertificateBuilder()
        .subject_name(certificates.subject_of("b"))
        .issuer_name(mine.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(mine.not_valid_before_utc)
        .not_valid_after(mine.not_valid_after_utc)
        .add_extension(certificates.alternatives(said), critical=False)
        .add_extension(x509.ExtendedKeyUsage([certificates.USAGE["site"]]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
    with pytest.raises(KeysError, match="not signed by the authority"):
        trust_of(home / "hub").name_of(forged)
    # and in a handshake, with its own certificate as the chain
    (home / "b/certificate.pem").write_bytes(forged + pem(home / "a"))
    shutil.copy(home / "a/key.pem", home / "b/key.pem")
    assert "refused" in handshake(home / "b", home / "hub")[1]


def test_a_certificate_with_two_names_is_refused(home):
    """The common name of one party, the alternative name of another."""
    key, authority = read_key(home / "ca/authority.key"), read_certificate(pem_of(home / "ca"))
    made = (
        x509.CertificateBuilder()
        .subject_name(certificates.subject_of("b"))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOW)
        .not_valid_after(NOW + YEAR)
        .add_extension(certificates.alternatives(certificates.Said("a", "site")), critical=False)
        .add_extension(x509.ExtendedKeyUsage([certificates.USAGE["site"]]), critical=False)
        .sign(key, hashes.SHA256())
    )
    with pytest.raises(KeysError, match=r"is for 'b' as a site, but also says \['fedmin://site/a"):
        trust_of(home / "hub").name_of(made.public_bytes(Encoding.PEM))


@pytest.mark.parametrize(
    ("names", "usage"),
    [(("a", "b"), ("site",)), ((), ("site",)), (("a",), ("site", "server")), (("a",), ())],
)
def test_a_certificate_is_for_one_name_in_one_role(home, names, usage):
    key = read_key(home / "ca/authority.key")
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]
    uses = [certificates.USAGE[role] for role in usage] or [ExtendedKeyUsageOID.CODE_SIGNING]
    asked = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name(subject))
        .add_extension(certificates.alternatives(certificates.Said("a", "site")), critical=False)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .sign(key, hashes.SHA256())
    )
    with pytest.raises(KeysError, match="it must be for one name as a site or as a server"):
        said_by(asked)


# ---------------------------------------------------------------- a party's folder


def test_identity_has_what_a_connection_needs(home):
    me = Identity.load(home / "a")
    assert (me.name, me.role) == ("a", "site")
    assert said_by(read_certificate(me.certificate)).name == "a"
    assert me.trust().name_of(pem(home / "b")) == "b"
    assert me.authority == pem_of(home / "ca")


def test_identity_says_what_is_missing(home):
    for name, words in (
        ("certificate.pem", r"yet; the authority makes it with: fedmin keys sign \S*a/request.pem"),
        ("authority.pem", r"there is no \S*authority.pem; it comes with the certificate"),
        ("revoked.pem", r"there is no \S*revoked.pem"),
        ("key.pem", r"there is no \S*key.pem"),
    ):
        kept = (home / "a" / name).read_bytes()
        (home / "a" / name).unlink()
        with pytest.raises(KeysError, match=words):
            Identity.load(home / "a")
        (home / "a" / name).write_bytes(kept)
    with pytest.raises(KeysError, match="there is no folder of keys"):
        Identity.load(home / "nowhere")


def test_identity_refuses_the_key_of_another(home):
    shutil.copy(home / "b/key.pem", home / "a/key.pem")
    with pytest.raises(KeysError, match=r"a/key.pem is not the key of \S*a/certificate.pem"):
        Identity.load(home / "a")


def test_identity_refuses_another_authority(home, tmp_path):
    make_authority(tmp_path / "other/ca", name="the other one")
    for name in ("authority.pem", "revoked.pem"):
        shutil.copy(tmp_path / "other/ca" / name, home / "a" / name)
    with pytest.raises(KeysError, match="is not signed by the authority the other one"):
        Identity.load(home / "a")


def test_identity_tells_the_command_that_renews(home):
    later = datetime.now(UTC) + 2 * YEAR
    with pytest.raises(KeysError, match=r"site a has expired on .*fedmin keys renew \S*/a$"):
        Identity.load(home / "a", now=later)


def test_a_month_before_the_end_there_is_a_warning(tmp_path):
    make_authority(tmp_path / "ca", now=NOW)
    enroll(tmp_path, "a", now=NOW, days=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Identity.load(tmp_path / "a", now=NOW + timedelta(days=69))
    with pytest.warns(UserWarning, match=r"site a ends on 2026-06-09 .*: fedmin keys renew \S*/a"):
        Identity.load(tmp_path / "a", now=NOW + timedelta(days=71))


def test_private_keys_are_their_owners(home):
    for path in (home / "a/key.pem", home / "ca/authority.key"):
        assert path.stat().st_mode & 0o777 == 0o600
    (home / "a/key.pem").chmod(0o644)
    with pytest.raises(KeysError, match=r"mode 644\); run: chmod 600 \S*a/key.pem"):
        Identity.load(home / "a")


def test_a_group_may_read_a_key_and_nobody_else_may_do_anything(home):
    """Each bit of a mode by itself: only the owner's and the group's right to read pass."""
    path = home / "a/key.pem"
    for mode in (0o600, 0o400, 0o700, 0o640):
        path.chmod(mode)
        assert read_key(path).key_size == 256
    for mode in (0o620, 0o610, 0o604, 0o602, 0o601):
        path.chmod(mode)
        with pytest.raises(KeysError, match=f"mode {mode:o}"):
            read_key(path)


def test_the_private_key_is_in_nothing_that_is_sent(home):
    secret = read_key(home / "a/key.pem").private_numbers().private_value.to_bytes(32, "big")
    for path in [*(home / "ca").rglob("*"), home / "a/request.pem", home / "a/certificate.pem"]:
        if path.is_file():
            lines = [w for w in path.read_text().splitlines() if not w.startswith("-")]
            assert secret not in base64.b64decode("".join(lines)), path


def test_nothing_is_overwritten(home):
    before = {p: p.read_bytes() for p in home.rglob("*") if p.is_file()}
    with pytest.raises(KeysError, match="is there already; it is not overwritten"):
        make_request(home / "a", "a")
    with pytest.raises(KeysError, match="is there already; it is not overwritten"):
        make_authority(home / "ca")
    assert {p: p.read_bytes() for p in home.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".a", "a b", "a\n", "ä", "x" * 64, "a\x00"])
def test_names_that_are_refused(tmp_path, name):
    with pytest.raises(KeysError, match="is no name for a party"):
        make_request(tmp_path / "x", name)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("host", ["a:1", "a b", "", "-a", "*.example.org", "1.2.3.4:5", "a..b"])
def test_hosts_that_are_refused(tmp_path, host):
    with pytest.raises(KeysError, match="is no host name and no address"):
        make_request(tmp_path / "x", "hub", "server", [host])


def test_a_server_needs_hosts_and_a_site_none(tmp_path):
    with pytest.raises(KeysError, match="server hub needs the host names"):
        make_request(tmp_path / "x", "hub", "server")
    with pytest.raises(KeysError, match="nobody calls it"):
        make_request(tmp_path / "x", "a", "site", ["localhost"])


# ---------------------------------------------------------------- the authority


def test_a_name_has_one_holder(home, tmp_path):
    for name in ("a", "A"):  # file systems may not tell them apart
        mine = make_request(tmp_path / f"thief-{name}", name)
        for renew in (False, True):
            with pytest.raises(
                KeysError, match=r"site a has a certificate .* revoke it first with"
            ):
                sign(home / "ca", mine, renew=renew)
    server = make_request(tmp_path / "thief-server", "a", "server", ["localhost"])
    with pytest.raises(KeysError, match="for another key or role"):
        sign(home / "ca", server)
    with pytest.raises(KeysError, match="sign with --renew"):
        sign(home / "ca", home / "a/request.pem")


def test_renewed_before_its_end(home):
    first = read_certificate(pem(home / "a"))
    later = datetime.now(UTC) + timedelta(days=200)
    sign(home / "ca", renew_request(home / "a"), renew=True, out=home / "a", now=later)
    second = read_certificate(pem(home / "a"))
    assert second.not_valid_after_utc - first.not_valid_after_utc >= timedelta(days=199)
    assert second.public_key() == first.public_key()
    assert verified(home, "a", "sslclient", "-attime", int(later.timestamp()) + 9).returncode == 0
    revoke(home / "ca", "a", now=later)  # both of them
    assert [each.revoked for each in issued(home / "ca") if each.name == "a"] == [True, True]


def test_a_lost_key_is_revoked_and_replaced(home):
    revoke(home / "ca", "a")
    with pytest.raises(KeysError, match="is revoked already"):
        revoke(home / "ca", "a")
    shutil.rmtree(home / "a")
    enroll(home, "a")
    assert Identity.load(home / "a").name == "a"
    with pytest.raises(KeysError, match=r"signed nothing for 'aa' .* did you mean 'a'"):
        revoke(home / "ca", "aa")


def test_an_authority_that_is_renewed_is_the_same(home):
    revoke(home / "ca", "b")
    old = read_certificate(pem_of(home / "ca"))
    renew_authority(home / "ca", now=datetime.now(UTC) + YEAR)
    new = read_certificate(pem_of(home / "ca"))
    assert new.not_valid_after_utc > old.not_valid_after_utc
    assert new.public_key() == old.public_key()
    trust, then = trust_of(home / "ca"), datetime.now(UTC) + YEAR - timedelta(days=1)
    with pytest.raises(KeysError, match=r"authority .* is not valid before"):
        trust.name_of(pem(home / "a"), now=then)
    soon = datetime.now(UTC) + YEAR
    fresh = sign(home / "ca", renew_request(home / "a"), renew=True, now=soon)
    assert trust.name_of(pem(fresh), now=soon) == "a"
    assert Trust(old.public_bytes(Encoding.PEM), home / "ca/revoked.pem").name_of(
        pem(fresh), now=soon
    )
    with pytest.raises(KeysError, match="revoked"):
        trust.name_of(pem(home / "b"), now=soon - timedelta(minutes=1))


def test_nothing_outlives_its_authority(tmp_path):
    make_authority(tmp_path / "ca", days=100, now=NOW)
    request, later = make_request(tmp_path / "a", "a"), NOW + timedelta(hours=1)
    with pytest.raises(KeysError, match=r"sign for at most 99 days, or renew .*keys renew \S*/ca"):
        sign(tmp_path / "ca", request, now=later)
    assert not (tmp_path / "ca/issued").exists()
    sign(tmp_path / "ca", request, days=99, now=later)


def test_requests_that_are_refused(home, tmp_path):
    good = (home / "a/request.pem").read_text().splitlines()
    broken = tmp_path / "broken.pem"
    broken.write_text("\n".join([*good[:3], good[3][::-1], *good[4:]]))
    with pytest.raises(KeysError, match=r"is no request in PEM|was changed on its way"):
        sign(home / "ca", broken)
    with pytest.raises(KeysError, match="is no request in PEM"):
        sign(home / "ca", home / "a/certificate.pem")
    with pytest.raises(KeysError, match="there is no request"):
        sign(home / "ca", tmp_path / "none.pem")
    with pytest.raises(KeysError, match=r"is no authority: .* fedmin keys authority"):
        sign(home / "a", home / "a/request.pem")
    made = openssl(
        "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", tmp_path / "k.pem", "-out", tmp_path / "foreign.pem", "-subj", "/CN=c",
    )  # fmt: skip
    assert made.returncode == 0
    with pytest.raises(KeysError, match="does not say who it is for"):
        sign(home / "ca", tmp_path / "foreign.pem")
