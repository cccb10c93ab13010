"""A site's own secret: 32 bytes from the operating system, on the site's own disk and nowhere else.

Whatever a site must draw so that nobody else can draw it (batches, noise) begins at a key that is
made of the secret and the run's name. What it says of its rows, so that the same rows can be told
again but not be guessed, is a hash of them under the secret. Neither tells anything of the secret,
or of the other (HMAC-SHA256, with other words for every use).

The file is made once a site and stays: a site that was killed draws what it would have drawn. A
server has such a file too, for the noise that it adds where its sites trust it with that.
"""

import hashlib
import hmac
import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np

FILE = "secret.bin"
LENGTH = 32


class SecretError(ValueError):
    """A secret that cannot be used, and what to do."""


class OwnSecret:
    """What only this site knows. It prints as nothing, and is in no message.

    >>> from fedmin.privacy.own_secret import OwnSecret
    >>> secret = OwnSecret(bytes(32))
    >>> secret
    OwnSecret(...)
    >>> secret.numbers("7f", 2) == OwnSecret(bytes(32)).numbers("7f", 2)
    array([ True,  True])
    """

    def __init__(self, data: bytes):
        if len(data) != LENGTH:
            raise SecretError(f"a site's secret has {LENGTH} bytes, this one {len(data)}")
        self._data = data

    def __repr__(self) -> str:
        return "OwnSecret(...)"

    @classmethod
    def at(cls, folder: Path, begun: Callable[[], bool] = lambda: False) -> "OwnSecret":
        """The one in a folder; a new one if there is none, unless something has `begun` with it."""
        path = folder / FILE
        if not path.exists():
            if begun():
                raise SecretError(
                    f"{path} is gone, and a run has begun with it: put it back, or begin another "
                    f"run with another `state` in site.toml (at a server: another --out)"
                )
            _make(path)
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise SecretError(
                f"{path} may be read or changed by others (mode {mode:o}); run: chmod 600 {path}"
            )
        try:
            return cls(path.read_bytes())
        except SecretError as error:
            raise SecretError(f"{path}: {error}; it is damaged") from None

    def numbers(self, run: str, count: int) -> np.ndarray:
        """u32[count]: what a run of this name may draw from, the same after every start."""
        return np.frombuffer(self._derived("draws", run.encode(), 4 * count), "<u4")

    def fingerprint(self, digest: str) -> bytes:
        """32 bytes that are the same for the same rows; who does not have the secret can confirm
        no guess of them. `digest` is a hash of the rows."""
        return self._derived("rows", digest.encode(), 32)

    def _derived(self, use: str, what: bytes, length: int) -> bytes:
        found = b""
        while len(found) < length:
            label = f"fedmin site {use} {len(found)} ".encode()
            found += hmac.new(self._data, label + what, hashlib.sha256).digest()
        return found[:length]


def _make(path: Path) -> None:
    """Write a new secret, whole or not at all; the one of another process if that was faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    beside.unlink(missing_ok=True)
    number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(os.urandom(LENGTH))
            file.flush()
            os.fsync(file.fileno())
        os.link(beside, path)
    except FileExistsError:
        pass
    finally:
        beside.unlink()
