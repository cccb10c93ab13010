"""The cache, the checksums and the downloads, against a server on this machine."""

import gzip
import hashlib
import http.server
import re
import socket
import threading
import warnings
from functools import partial

import pytest

from fedmin.data import (
    CATALOGUE,
    ChecksumError,
    Entry,
    NotCachedError,
    Part,
    UnknownChecksum,
    Variant,
    cache,
    fetch,
)

CONTENT = b"label index:value\n" * 1000
SHA = hashlib.sha256(CONTENT).hexdigest()


def entry(*variants: Variant) -> Entry:
    return Entry(
        "toy", "toy", "libsvm", "classification", 1, 1, 2, (Part("train", variants),), *"abc"
    )


@pytest.fixture
def toy(monkeypatch):
    """Put a made entry into the catalogue."""
    return lambda *variants: monkeypatch.setitem(CATALOGUE, "toy", entry(*variants))


@pytest.fixture
def site(tmp_path):
    """A web site on this machine that serves one file, and counts the requests."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "toy.txt").write_bytes(CONTENT)
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.asked = asked
    server.url = f"http://127.0.0.1:{server.server_port}/toy.txt"
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_download_then_cache(toy, site, empty_cache, capsys):
    toy(Variant("text/toy.txt", SHA, len(CONTENT), site.url))
    found = fetch("toy")["train"]
    assert found.path == empty_cache / "text" / "toy.txt"
    assert found.path.read_bytes() == CONTENT
    assert "text/toy.txt" in capsys.readouterr().out  # the progress bar's title
    fetch("toy")
    assert site.asked == ["/toy.txt"]


def test_wrong_download_is_never_kept(toy, site, empty_cache):
    wrong = "0" * 64
    toy(Variant("text/toy.txt", wrong, 3, site.url))
    with pytest.raises(ChecksumError, match="was not kept") as caught:
        fetch("toy")
    assert wrong in str(caught.value)
    assert SHA in str(caught.value)
    assert not [path for path in empty_cache.rglob("*") if path.is_file()]


def test_unknown_checksum_is_said_aloud(toy, site, empty_cache):
    toy(Variant("text/toy.txt", None, None, site.url))
    with pytest.warns(UnknownChecksum, match=f"checksum is not known.* sha256 is {SHA}"):
        fetch("toy")


def test_damaged_file_is_never_used(toy, empty_cache):
    toy(Variant("toy.txt", SHA, len(CONTENT)))
    path = empty_cache / "toy.txt"
    path.write_bytes(CONTENT)
    fetch("toy")
    path.write_bytes(CONTENT[:-1])  # a file that changed after it was found good
    with pytest.raises(ChecksumError) as caught:
        fetch("toy")
    found = hashlib.sha256(CONTENT[:-1]).hexdigest()
    for word in (str(path), SHA, found, f"{len(CONTENT)} bytes", "was not used"):
        assert word in str(caught.value)


def test_compressed_copy_or_plain_file(toy, empty_cache):
    packed = gzip.compress(CONTENT)
    toy(
        Variant("toy.gz", hashlib.sha256(packed).hexdigest()),
        Variant("toy", SHA, url="http://127.0.0.1:1/toy"),
    )
    (empty_cache / "toy").write_bytes(CONTENT)
    assert fetch("toy")["train"].path.name == "toy"
    (empty_cache / "toy.gz").write_bytes(packed)
    assert fetch("toy")["train"].path.name == "toy.gz"


def test_offline_names_file_address_and_variable(toy, empty_cache):
    with socket.socket() as taken:  # bound but not listening: a connection is refused
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/toy.txt"
        toy(Variant("text/toy.txt", SHA, 9, url, "inner.txt"))
        with pytest.raises(NotCachedError) as caught:
            fetch("toy")
    for word in ("text/toy.txt", url, "FEDMIN_DATA", str(empty_cache), "inner.txt"):
        assert word in str(caught.value)
    with pytest.raises(NotCachedError, match="downloads are off"):
        fetch("toy", download=False)


def test_missing_page_names_the_address(toy, site, empty_cache):
    toy(Variant("toy.txt", SHA, 9, site.url + ".gone"))
    with pytest.raises(NotCachedError, match=re.escape(site.url)):
        fetch("toy")


def test_file_without_address(toy, empty_cache):
    toy(Variant("toy.txt", SHA))
    with pytest.raises(NotCachedError, match="no public address"):
        fetch("toy")


def test_read_only_cache(toy, site, empty_cache):
    toy(Variant("toy.txt", SHA, len(CONTENT), site.url))
    (empty_cache / "toy.txt").write_bytes(CONTENT)
    empty_cache.chmod(0o555)
    try:
        assert fetch("toy")["train"].path.read_bytes() == CONTENT
        toy(Variant("other.txt", SHA, len(CONTENT), site.url))
        with pytest.raises(NotCachedError, match="read-only"):
            fetch("toy")
        assert site.asked == []
    finally:
        empty_cache.chmod(0o755)


def test_default_cache_is_the_systems(monkeypatch):
    monkeypatch.delenv("FEDMIN_DATA", raising=False)
    assert cache().name == "fedmin"


def test_unknown_name():
    with pytest.raises(ValueError, match="did you mean 'mnist'"):
        fetch("minst")


def test_catalogue_is_well_formed():
    for name, item in CATALOGUE.items():
        assert name == item.name
        assert item.summary
        assert item.license
        assert item.citation
        roles = [part.role for part in item.parts]
        assert len(set(roles)) == len(roles)
        for part in item.parts:
            for variant in part.variants:
                assert variant.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", variant.sha256)
                assert variant.url is None or re.match(r"https?://\S+/\S+$", variant.url)
            if name != "fedsso_results":
                assert any(variant.url for variant in part.variants), (name, part.role)


def test_catalogue_agrees_with_the_sources_page(public_files):
    page = public_files / "SOURCES.md"
    if not page.exists():
        pytest.skip("no SOURCES.md beside the files")
    known = {
        variant.name: (variant.sha256, variant.bytes)
        for item in CATALOGUE.values()
        for part in item.parts
        for variant in part.variants
    }
    lines = [line.split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    listed = {
        cells[0].removeprefix("| "): (cells[4], int(cells[5]))
        for cells in lines
        if len(cells) > 5 and re.fullmatch(r"[0-9a-f]{64}", cells[4])
    }
    assert len(listed) == 23
    del listed["cifar-10-batches-bin/batches.meta.txt"]  # class names: not read
    assert {name: known.get(name) for name in listed} == listed


def test_known_files_make_no_noise(public_files):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(fetch("a9a")) == {"train", "test"}
