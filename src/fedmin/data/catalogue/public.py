"""From the files of a catalogue entry to a table, one function a kind of file."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedmin.data.catalogue.catalogue import Entry
from fedmin.data.catalogue.fetching import Located, fetch
from fedmin.data.formats.files import DataFileError
from fedmin.data.formats.images import read_cifar10, read_idx, read_idx_images
from fedmin.data.formats.libsvm import read_libsvm
from fedmin.data.formats.parties import join_parties, read_party
from fedmin.data.formats.speeches import read_speeches, windows
from fedmin.data.holdout import hold_out
from fedmin.data.table import Table

__all__ = ["PUBLIC"]


def _meta(entry: Entry, **more) -> dict:
    return {"source": entry.source, "license": entry.license, "citation": entry.citation, **more}


def _image_table(entry: Entry, name: str, images: np.ndarray, labels: np.ndarray, test=None):
    shape = images.shape[1:] if images.ndim == 4 else (*images.shape[1:], 1)
    flat = images.reshape(len(images), -1).astype(np.float32)
    flat /= 255.0
    return Table(
        name,
        flat,
        labels,
        classes=entry.classes,
        test=test,
        image_shape=shape,
        meta=_meta(entry),
    )


def load_images(entry: Entry) -> Table:
    """MNIST and its kin: pixels in [0, 1]."""
    files = fetch(entry.name)
    test = _idx_pair(entry, files, "test")
    return _idx_pair(entry, files, "train", test)


def _idx_pair(entry: Entry, files: dict[str, Located], portion: str, test=None) -> Table:
    where = files[f"{portion}_images"]
    images = read_idx_images(*where, transposed=entry.name.startswith("emnist"))
    labels = read_idx(*files[f"{portion}_labels"], ndim=1).astype(np.int32)
    if len(images) != len(labels):
        expected = f"as many images as labels ({len(labels)})"
        raise DataFileError(where.path, expected, f"{len(images)} images")
    if entry.name == "emnist_letters":
        labels -= 1  # A is 1 in the file
    name = entry.name if portion == "train" else f"{entry.name} test"
    return _image_table(entry, name, images, labels, test)


def load_cifar(entry: Entry) -> Table:
    """CIFAR-10: pixels in [0, 1], height x width x channel."""
    files = fetch(entry.name)
    held = _batches([files.pop("test_batch")])
    test = _image_table(entry, f"{entry.name} test", *held)
    return _image_table(entry, entry.name, *_batches(list(files.values())), test)


def _batches(places: list[Located]) -> tuple[np.ndarray, np.ndarray]:
    # batches of one archive are read together: a gzipped tar is slow to go through twice
    archives: dict = {}
    for place in places:
        archives.setdefault(place.path if place.member else None, []).append(place)
    read = [
        read_cifar10([p.path for p in group])
        if archive is None
        else read_cifar10(archive, [p.member for p in group])
        for archive, group in archives.items()
    ]
    images, labels = zip(*read, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def load_libsvm(
    entry: Entry, dense: bool | None = None, test_fraction: float | None = None
) -> Table:
    """LIBSVM sets; raw labels in increasing order become 0..C-1 (kept in meta["labels"])."""
    files = fetch(entry.name)
    x, y = read_libsvm(*files["train"], features=entry.features)
    held = read_libsvm(*files["test"], features=entry.features) if "test" in files else None
    raw = None if entry.classes is None else np.unique(y)
    if raw is not None and raw.size != entry.classes:
        where, expected = files["train"].path, f"{entry.classes} different labels"
        raise DataFileError(where, expected, f"{raw.size}: {raw[:5]}")
    if dense is None:
        dense = entry.features <= 1000

    def table(name, x, y, path, test=None):
        labels = y if raw is None else _recode(path, y, raw)
        x = x.toarray() if dense else x
        meta = _meta(entry, **({} if raw is None else {"labels": raw.tolist()}))
        return Table(name, x, labels, classes=entry.classes, test=test, meta=meta)

    test = table(f"{entry.name} test", *held, files["test"].path) if held else None
    whole = table(entry.name, x, y, files["train"].path, test)
    return whole if test_fraction is None else hold_out(whole, test_fraction)


def _recode(path, y: np.ndarray, raw: np.ndarray) -> np.ndarray:
    place = np.searchsorted(raw, y).clip(0, raw.size - 1)
    strange = np.flatnonzero(raw[place] != y)
    if strange.size:
        found = f"{y[strange[0]]} in row {strange[0]}"
        raise DataFileError(path, f"labels among {raw.tolist()}", found)
    return place.astype(np.int32)


def load_parties(entry: Entry, test_fraction: float | None = None) -> Table:
    """Vertical sets: rows matched by id, `columns` says which party owns which column."""
    files = fetch(entry.name)
    joined = join_parties({role: read_party(place.path) for role, place in files.items()})
    table = Table(
        entry.name,
        joined.x,
        joined.y,
        classes=entry.classes,
        feature_names=joined.names,
        ids=joined.ids,
        columns=joined.columns,
        meta=_meta(entry),
    )
    return table if test_fraction is None else hold_out(table, test_fraction)


def load_play(
    entry: Entry, window: int = 80, stride: int = 10, test_fraction: float = 0.1
) -> Table:
    """Characters by speaker: x holds `window` character codes, y the next one, ids the speaker.

    The last share of each speaker's text is held out. Speakers with less than a window are left
    out. meta["symbols"] spells the codes.
    """
    if window < 1 or stride < 1 or not 0 <= test_fraction < 1:
        raise ValueError(
            f"{entry.name}: window={window}, stride={stride}, test_fraction={test_fraction}; "
            "window and stride must be at least 1 and test_fraction in [0, 1)"
        )
    where = fetch(entry.name)["text"].path
    texts = {who: "\n".join(said) for who, said in read_speeches(where).items()}
    symbols = "".join(sorted(set("".join(texts.values()))))
    code = {symbol: number for number, symbol in enumerate(symbols)}
    train: list[tuple] = []
    held: list[tuple] = []
    for who, text in texts.items():
        codes = np.array([code[symbol] for symbol in text], np.int32)
        cut = round(codes.size * (1 - test_fraction))
        for rows, part in ((train, codes[:cut]), (held, codes[cut:])):
            x, y = windows(part, window, stride)
            rows.append((x, y, np.full(len(y), who)))

    def table(name, rows, test=None):
        x, y, ids = (np.concatenate(column) for column in zip(*rows, strict=True))
        meta = _meta(entry, symbols=symbols)
        return Table(name, x, y, classes=len(symbols), test=test, ids=ids, meta=meta)

    some = any(len(y) for _, y, _ in held)
    return table(entry.name, train, table(f"{entry.name} test", held) if some else None)


PUBLIC: dict[str, Callable[..., Table]] = {
    "images": load_images,
    "cifar": load_cifar,
    "libsvm": load_libsvm,
    "parties": load_parties,
    "play": load_play,
}
