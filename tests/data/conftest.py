"""Where the real public files are, and a cache folder of our own for made ones."""

import os
import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest


def _public_folder() -> Path | None:
    named = os.environ.get("FEDMIN_DATA")
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    for folder in (Path(named) if named else None, beside):
        if folder is not None and (folder / "mnist").is_dir():
            return folder
    return None


@pytest.fixture
def public_files(monkeypatch) -> Path:
    folder = _public_folder()
    if folder is None:
        pytest.skip(
            "no public data files: set FEDMIN_DATA to a folder that holds mnist/ and others"
        )
    monkeypatch.setenv("FEDMIN_DATA", str(folder))
    return folder


@pytest.fixture
def empty_cache(monkeypatch, tmp_path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("FEDMIN_DATA", str(folder))
    return folder


def idx_bytes(array: np.ndarray) -> bytes:
    code = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}[array.dtype.str[1:]]
    head = struct.pack(">BBBB", 0, 0, code, array.ndim)
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return head + sizes + array.astype(array.dtype.newbyteorder(">")).tobytes()


def cifar_bytes(images: np.ndarray, labels: np.ndarray) -> bytes:
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([labels[:, None], planes], axis=1).astype(np.uint8).tobytes()


def made_cifar(n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 32, 32, 3), np.uint8), rng.integers(0, 10, n, np.uint8)


@pytest.fixture(scope="session")
def write() -> SimpleNamespace:
    """Writers of the binary formats, and a made CIFAR batch."""
    return SimpleNamespace(idx=idx_bytes, cifar=cifar_bytes, batch=made_cifar)
