"""Who does not come in is in the server's own log, with the address and the reason; what a site
says while it comes in is in the site's. A real `fedmin serve`, and real TLS."""

import contextlib
import re
import shutil
import socket
import ssl
import time
from datetime import UTC, datetime, timedelta

import pytest

import conftest
from fedmin.cli.handshakes import in_words
from fedmin.engines.transports.grpc.joining import JoinError
from fedmin.privacy.authority import make_authority, revoke, sign
from fedmin.privacy.departures import read
from fedmin.privacy.identity import make_request
from fedmin.runs.config import Config
from fedmin.runs.deploying import HOST, Parties, prepare
from fedmin.runs.joining import join_run
from fedmin.runs.site_file import SiteFile

RUN = """
[data]
name = "wine"
[partition]
name = "iid"
clients = 1
[problem]
name = "softmax"
[method]
name = "fedsgd"
[run]
rounds = 3
[federation]
sites = ["a"]
"""

COLUMNS = [f"c{i}" for i in range(13)]
ROWS = ",".join([*COLUMNS, "ill"]) + "\n" + ("1.5," * 13 + "0\n") + ("0.5," * 13 + "2\n")
SITE = """name = "{}"
server = "127.0.0.1:{}"
keys = "keys"
[data]
file = "rows.csv"
outcome = "ill"
[policy]
most_rounds = 2
"""


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    deployed = prepare(Config(RUN), tmp_path_factory.mktemp("handshakes"))
    parties = Parties(deployed, {**conftest.QUICKLY, "JAX_ENABLE_X64": "1"})
    try:
        parties.start_server()
        yield parties
    finally:
        parties.stop()


def log_of(parties) -> str:
    return (parties.deployed.run_file.parent / "server.log").read_text()


def line_about(parties, port) -> str:
    """What the server's log says of whoever called from this port."""
    end = time.monotonic() + 60
    while not (found := re.findall(rf"refused \S*:{port}: .*", log_of(parties))):
        assert time.monotonic() < end, log_of(parties)
        time.sleep(0.02)
    assert len(found) == 1
    return found[0]


def call(parties, talk) -> int:
    """Call the server and be refused; the port from which."""
    with socket.create_connection((HOST, parties.port)) as line:
        line.settimeout(30)
        port = line.getsockname()[1]
        with contextlib.suppress(OSError):
            talk(line)
        return port


def with_certificate(parties, folder):
    """Shake hands as a site does."""

    def talk(line):
        context = ssl.create_default_context(
            cafile=parties.deployed.folder / "authority" / "authority.pem"
        )
        context.set_alpn_protocols(["h2"])
        if folder is not None:
            context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
        with context.wrap_socket(line, server_hostname=HOST) as secure:
            secure.recv(1)

    return talk


def party(parties, name, authority, **options):
    folder = parties.deployed.folder / name
    sign(parties.deployed.folder / authority, make_request(folder, "a"), out=folder, **options)
    return folder


def test_a_certificate_of_another_authority_is_in_the_log(serving):
    make_authority(serving.deployed.folder / "other")
    port = call(serving, with_certificate(serving, party(serving, "foreign", "other")))
    assert line_about(serving, port).endswith("its certificate is of another authority")


def test_an_expired_certificate_is_in_the_log(serving):
    before = {"days": 30, "now": datetime.now(UTC) - timedelta(days=90)}
    shutil.copytree(serving.deployed.folder / "authority", serving.deployed.folder / "clerk")
    revoke(serving.deployed.folder / "clerk", "a")  # so that the name can be signed once more
    port = call(serving, with_certificate(serving, party(serving, "late", "clerk", **before)))
    assert "its certificate has expired: fedmin keys renew" in line_about(serving, port)


def test_no_certificate_is_in_the_log(serving):
    port = call(serving, with_certificate(serving, None))
    assert line_about(serving, port).endswith("it showed no certificate")


@pytest.mark.parametrize(
    ("sent", "why"),
    [(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "it speaks plain HTTP, and no TLS"),
     (b"\x00\x01\x02\x03plain text\n" * 9, "it does not speak TLS")],
)  # fmt: skip
def test_plain_text_is_in_the_log(serving, sent, why):
    def talk(line):
        line.sendall(sent)
        line.recv(10)

    assert line_about(serving, call(serving, talk)).endswith(why)


def test_nothing_of_the_trace_itself_is_in_the_log(serving):
    call(serving, with_certificate(serving, serving.deployed.site_file("a").parent / "keys"))
    port = call(serving, with_certificate(serving, None))
    line_about(serving, port)
    assert not re.search(r"handshaker|\.cc:|Source Location", log_of(serving))


def test_what_a_site_says_as_it_comes_in_is_in_its_log(serving):
    """Its hello with the form of its rows, and why it does not take part."""
    path = serving.deployed.site_file("a")
    (path.parent / "rows.csv").write_text(ROWS)
    path.write_text(SITE.format("a", serving.port))
    with pytest.raises(JoinError, match="most_rounds is 2"):
        join_run(SiteFile.read(path), patience=60)
    hello, refusal = read(path.parent / "a.log")
    assert (hello.when, hello.kind) == ("coming in", "hello")
    assert hello.shapes["columns"] == " ".join(COLUMNS)
    assert (hello.shapes["rows"], hello.shapes["features"]) == ("2", "13")
    assert refusal.kind == "refusal"
    end = time.monotonic() + 60
    while "a does not take part: the run has 3 rounds" not in log_of(serving):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_revoked_certificate_is_in_the_log_with_the_address(serving):
    """TLS itself knows no list: the server looks when a stream is opened."""
    home = serving.deployed.folder
    path = home / "b" / "site.toml"
    keys = path.parent / "keys"
    sign(home / "authority", make_request(keys, "b"), out=keys)
    (path.parent / "rows.csv").write_text(ROWS)
    path.write_text(SITE.format("b", serving.port))
    revoke(home / "authority", "b")
    shutil.copy(home / "authority" / "revoked.pem", home / "server" / "keys")
    with pytest.raises(JoinError, match="revoked"):
        join_run(SiteFile.read(path), patience=60)
    assert re.search(r"refused ipv4:127.0.0.1:\d+: .* revoked", log_of(serving))


def test_a_reason_without_words_of_ours_is_said_as_it_is():
    assert in_words("x: error:1:SSL routines:OPENSSL_internal:NO_SHARED_CIPHER: OK") == (
        "TLS says NO_SHARED_CIPHER"
    )
    assert "broken off (UNKNOWN: Socket closed)" in in_words("UNKNOWN: Socket closed")
