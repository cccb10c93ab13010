"""From the catalogue to files on disk: the cache, the checksums, the downloads."""

from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path
from typing import NamedTuple, Self

from fedmin.core.checks import nearest
from fedmin.data.catalogue.catalogue import CATALOGUE, Part, Variant

__all__ = ["ChecksumError", "Located", "NotCachedError", "UnknownChecksum", "cache", "fetch"]

_VERIFIED: set[tuple[str, int, int]] = set()  # (path, size, mtime) seen good in this process


class ChecksumError(ValueError):
    """A file's checksum is not the catalogue's: damaged or foreign, and never used.

    >>> from fedmin.data import ChecksumError
    >>> issubclass(ChecksumError, ValueError)
    True
    """


class NotCachedError(FileNotFoundError):
    """A file is neither in the cache nor to be had from its address.

    >>> from fedmin.data import NotCachedError
    >>> issubclass(NotCachedError, FileNotFoundError)
    True
    """


class UnknownChecksum(UserWarning):
    """The catalogue does not know this file's checksum, so it could not be checked.

    >>> from fedmin.data import UnknownChecksum
    >>> issubclass(UnknownChecksum, UserWarning)
    True
    """


class Located(NamedTuple):
    """A part on disk: the file, and the member inside it when it is an archive.

    >>> from pathlib import Path
    >>> from fedmin.data import Located
    >>> Located(Path("a.zip"), "b.gz").member
    'b.gz'
    """

    path: Path
    member: str | None = None


def cache() -> Path:
    """The folder of downloaded files: FEDMIN_DATA if set, else the system's cache folder.

    >>> import os
    >>> from fedmin.data import cache
    >>> os.environ["FEDMIN_DATA"] = "some/folder"
    >>> cache().name
    'folder'
    >>> del os.environ["FEDMIN_DATA"]
    """
    chosen = os.environ.get("FEDMIN_DATA")
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("fedmin"))


def fetch(name: str, *, download: bool = True) -> dict[str, Located]:
    """Every part of a data set on disk, checked, downloaded where it is missing.

    Args:
        name: a name of the catalogue.
        download: False to use the cache only.

    Raises:
        NotCachedError: not in the cache and not to be downloaded; names the file, its address and
            the variable FEDMIN_DATA.
        ChecksumError: the file is not the one we know; names both checksums and the path.

    >>> import os, tempfile
    >>> from fedmin.data import fetch
    >>> os.environ["FEDMIN_DATA"] = tempfile.mkdtemp()
    >>> fetch("mnist", download=False)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedmin.data.catalogue.fetching.NotCachedError: mnist: mnist/train-images... is not in ...
    >>> del os.environ["FEDMIN_DATA"]
    """
    if name not in CATALOGUE:
        raise ValueError(f"no files for {name!r} in the catalogue; {nearest(name, CATALOGUE)}")
    return {part.role: _locate(name, part, download) for part in CATALOGUE[name].parts}


def _locate(name: str, part: Part, download: bool) -> Located:
    folder = cache()
    for variant in part.variants:
        path = folder / variant.name
        if path.is_file():
            _verify(path, variant, part)
            return Located(path, variant.member)
    public = next((v for v in part.variants if v.url), part.variants[0])
    if public.url and download:
        path = _download(name, public, folder)
        _verify(path, public, part)
        return Located(path, public.member)
    raise NotCachedError(_missing(name, public, folder, "downloads are off" if public.url else ""))


def _missing(name: str, variant: Variant, folder: Path, why: str) -> str:
    inside = f" (inside it: {variant.member})" if variant.member else ""
    where = f"get it from {variant.url}" if variant.url else "it has no public address of its own"
    why = f" and {why}" if why else ""
    return (
        f"{name}: {variant.name} is not in {folder}{why}; {where}{inside} and put it there under "
        "that name, or set FEDMIN_DATA to a folder that has it"
    )


def _verify(path: Path, variant: Variant, part: Part) -> None:
    status = path.stat()
    key = (str(path.resolve()), status.st_size, status.st_mtime_ns)
    if key in _VERIFIED:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if variant.sha256 is None:
        message = f"{path}: its checksum is not known, so it was not checked; sha256 is {found}"
        warnings.warn(message, UnknownChecksum, stacklevel=2)
    elif found != variant.sha256:
        size = "" if variant.bytes is None else f" of {variant.bytes} bytes"
        other = _other(variant, part)
        raise ChecksumError(
            f"{path} is damaged or another file and was not used: expected sha256 "
            f"{variant.sha256}{size}, found {found} of {status.st_size} bytes; delete it to "
            f"download it again, or set FEDMIN_DATA to a folder with a good copy{other}"
        )
    _VERIFIED.add(key)


def _other(variant: Variant, part: Part) -> str:
    # one name, two files: a copy in a cache may have other bytes than the site's file
    public = [v for v in part.variants if v.url and v is not variant]
    return f" (the file of {public[0].url} goes by the name {public[0].name})" if public else ""


def _download(name: str, variant: Variant, folder: Path) -> Path:
    import pooch

    target = folder / variant.name
    if not _writable(target.parent):
        raise NotCachedError(_missing(name, variant, folder, "that folder is read-only"))
    # a file of a wrong checksum must never lie under the real name, where a later run would
    # find it: pooch checks before it moves the file there
    known = None if variant.sha256 is None else f"sha256:{variant.sha256}"
    pooch.get_logger().setLevel("WARNING")
    try:
        with _Bar(variant.name) as bar:
            downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16)
            pooch.retrieve(
                variant.url,
                known_hash=known,
                fname=target.name,
                path=target.parent,
                downloader=downloader,
            )
    except ValueError as error:  # pooch's word for a wrong checksum
        raise ChecksumError(f"{name}: the file at {variant.url} was not kept: {error}") from None
    except OSError as error:  # requests' errors are OSErrors too
        raise NotCachedError(_missing(name, variant, folder, _in_words(error))) from None
    return target


def _in_words(error: OSError) -> str:
    """Why a download failed, for those who do not know what it is made with."""
    kind, answer = type(error).__name__, getattr(error, "response", None)
    if answer is not None:
        return f"its address answers {answer.status_code} {answer.reason}".rstrip()
    if "Timeout" in kind:
        return "its address does not answer in time"
    if "SSL" in kind:
        return "the certificate of its address cannot be checked"
    if kind in ("ConnectionError", "ProxyError"):
        return "there is no connection to its address"
    words = error.strerror or "the connection ended early"
    return f"the download failed ({words})"


def _writable(folder: Path) -> bool:
    while not folder.exists():
        folder = folder.parent
    # the mode as well as access: root may write anywhere, but a shared cache is marked read-only
    return os.access(folder, os.W_OK) and bool(folder.stat().st_mode & 0o222)


class _Bar:
    """A rich progress bar in the shape that pooch asks for (tqdm's)."""

    def __init__(self, title: str):
        from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

        self._progress = Progress(
            "{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn()
        )
        self._task = self._progress.add_task(title, total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_) -> None:
        self._progress.stop()

    @property
    def total(self) -> float | None:
        return self._progress.tasks[0].total

    @total.setter
    def total(self, value: int) -> None:
        self._progress.update(self._task, total=value or None)

    def update(self, amount: int) -> None:
        self._progress.advance(self._task, amount)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.refresh()
