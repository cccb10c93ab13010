"""Changes of valid things: of trees of plain data, of texts, of bytes.

Each takes a `random.Random` and gives a changed copy; the same generator gives the same changes.
"""

import copy
import datetime
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

# numbers at the edges of what machines hold, and of what anyone means
WHOLE = (0, 1, -1, 2, 3, 7, 100, 255, 65536, 10**6, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**53 + 1,
         2**63 - 1, 2**63, -(2**31), -(2**63), 10**30, 10**400)  # fmt: skip
BROKEN = (0.0, -0.0, 0.5, 1.0, 1.5, -0.1, 1e-3, 1e-30, 5e-324, 1e30, 1e308, float("inf"),
          float("-inf"), float("nan"))  # fmt: skip
TEXTS = ("", " ", "no", "true", "0", "1e3", "nan", "-1", "name", "a.b", "jax.nn.relu", "os.system",
         "../../etc/passwd", "x" * 5000, "\u202e\u0000\ud7ff", "naïve ☃ \U0001f600", "a\nb",
         "</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "%s%n{0}{x}", "■",
         "__class__", "<!--<script>", "\x1b[31m")  # fmt: skip
DATES = (datetime.date(1979, 5, 27), datetime.datetime(1979, 5, 27, 7, 32), datetime.time(7, 32))


def odd(rng: Random, dates: bool = False) -> Any:
    """A value that stands for what people and programs get wrong."""
    simple = (WHOLE, BROKEN, TEXTS, (True, False), DATES if dates else WHOLE)
    kind = rng.randrange(9)
    if kind < 5:
        return rng.choice(simple[kind])
    if kind == 5:
        return []
    if kind == 6:
        return [odd(rng, dates) for _ in range(rng.randrange(1, 4))]
    if kind == 7:
        return {}
    return {rng.choice(("name", "x", "step", "size")): odd(rng, dates)}


def places(tree: Any, at: tuple = ()) -> Iterator[tuple]:
    """The paths to everything in a tree, itself excluded."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield (*at, key)
        if isinstance(value, dict | list):
            yield from places(value, (*at, key))


def get(tree: Any, path: Sequence) -> Any:
    """What is at a path."""
    for key in path:
        tree = tree[key]
    return tree


def change_tree(
    rng: Random, tree: Any, others: Sequence[Any] = (), words: Sequence[str] = (), dates=False
) -> Any:
    """A tree with one change.

    others    trees of the same kind, from which parts are taken
    words     names that mean something, which may come to stand where they do not belong
    """
    tree = copy.deepcopy(tree)
    paths = list(places(tree))
    if not paths:
        return odd(rng, dates)
    path = rng.choice(paths)
    change = rng.choice(TREE_CHANGES)
    change(rng, tree, get(tree, path[:-1]), path[-1], (others, words, dates))
    return tree


def _replace(rng, tree, around, key, kit):
    around[key] = odd(rng, kit[2])


def _word(rng, tree, around, key, kit):
    around[key] = rng.choice(kit[1] or TEXTS)


def _numb(rng, tree, around, key, kit):
    """Another number, or the same as another type."""
    value = around[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 2**70:
        around[key] = rng.choice((str(value)[:50], [value], {"name": value}, not value))
        return
    around[key] = rng.choice((
        -value, value * rng.choice((0, 2, 10, 1e6, 1e-6)), float(value), str(value), bool(value),
        value + rng.choice((-1, 1, 0.5)), rng.choice(WHOLE), rng.choice(BROKEN),
    ))  # fmt: skip


def _delete(rng, tree, around, key, kit):
    del around[key]


def _rename(rng, tree, around, key, kit):
    if isinstance(around, dict):
        letters = list(str(key))
        at = rng.randrange(len(letters) + 1)
        letters[at:at] = rng.choice(("x", "s", "_", "", " ", "é"))
        new = rng.choice(("".join(letters), str(key)[1:] or "z", str(key).upper(), *kit[1][:50]))
        around[new] = around.pop(key)
    else:
        around.insert(rng.randrange(len(around) + 1), copy.deepcopy(around[key]))


def _wrap(rng, tree, around, key, kit):
    """A list around a value, or a grid of it."""
    times = rng.choice((1, 1, 2, 3))
    around[key] = [copy.deepcopy(around[key]) for _ in range(times)]


def _unwrap(rng, tree, around, key, kit):
    value = around[key]
    if isinstance(value, list) and value:
        around[key] = value[0]
    elif isinstance(value, dict) and value:
        around[key] = next(iter(value.values()))
    else:
        around[key] = {"name": value}


def _deep(rng, tree, around, key, kit):
    for _ in range(rng.choice((2, 10, 100))):
        around[key] = rng.choice((lambda v: [v], lambda v: {"name": v}))(around[key])


def _long(rng, tree, around, key, kit):
    count = rng.choice((10, 100, 2000))
    around[key] = [rng.choice((k, k / 7, around[key])) for k in range(count)]


def _splice(rng, tree, around, key, kit):
    """A part of another tree, in the place of this one or beside it."""
    if not kit[0]:
        return _replace(rng, tree, around, key, kit)
    other = rng.choice(kit[0])
    path = rng.choice(list(places(other)))
    part = copy.deepcopy(get(other, path))
    if isinstance(around, dict) and rng.random() < 0.5:
        around[path[-1] if isinstance(path[-1], str) else key] = part
    else:
        around[key] = part


def _same_place(rng, tree, around, key, kit):
    """What another tree has under the same key."""
    for other in rng.sample(list(kit[0]), min(5, len(kit[0]))):
        for path in places(other):
            if path[-1] == key and get(other, path) != around[key]:
                around[key] = copy.deepcopy(get(other, path))
                return
    _word(rng, tree, around, key, kit)


def _swap(rng, tree, around, key, kit):
    paths = list(places(tree))
    path = rng.choice(paths)
    other = get(tree, path[:-1])
    if isinstance(around[key], dict | list) or isinstance(other[path[-1]], dict | list):
        return  # one might hold the other
    around[key], other[path[-1]] = other[path[-1]], around[key]


TREE_CHANGES: tuple[Callable, ...] = (
    _replace, _replace, _word, _word, _numb, _numb, _delete, _rename, _wrap, _unwrap, _deep, _long,
    _splice, _splice, _same_place, _same_place, _swap,
)  # fmt: skip


def change_text(rng: Random, text: str) -> str:
    """A text with one change: of a line, of a word, of a letter, of its length."""
    lines = text.splitlines(keepends=True) or [""]
    at = rng.randrange(len(lines))
    kind = rng.randrange(10)
    if kind == 9 and "=" in lines[at]:
        opened = rng.choice("[{") * rng.choice((1, 20, 5000))
        key, _, value = lines[at].partition("=")
        closed = rng.choice(("", opened.translate({91: 93, 123: 125})))
        lines[at] = f"{key}= {opened}{value.rstrip()}{closed}\n"
    elif kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(rng.randrange(len(lines) + 1), lines[at])
    elif kind == 2:
        lines = lines[: at + 1]
        lines[-1] = lines[-1][: rng.randrange(len(lines[-1]) + 1)]
    elif kind == 3:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 4:
        words = lines[at].split(" ")
        words[rng.randrange(len(words))] = rng.choice(
            (
                "=",
                "[",
                "]",
                "{",
                '"',
                "'''",
                "#",
                ".",
                ",",
                "nan",
                "-inf",
                "0x1F",
                "1_0",
                *TEXTS[:9],
            )
        )
        lines[at] = " ".join(words)
    elif kind == 5:
        many = rng.choice((1, 2, 10, 5000))
        lines[at] = lines[at].rstrip("\n") + rng.choice("[{(\"'.=,-9a") * many + "\n"
    elif kind == 6:
        lines[at] = rng.choice("[{") * rng.choice((1, 100, 5000)) + lines[at]
    elif kind == 7:
        line = lines[at]
        here = rng.randrange(len(line) + 1)
        letter = chr(rng.choice((0, 9, 10, 13, 27, 34, 39, 127, 233, 0xFEFF, 0x2028, 0x1F600)))
        lines[at] = line[:here] + letter + line[here + rng.randrange(2) :]
    else:
        lines = lines * rng.choice((2, 50))
    return "".join(lines)


def change_bytes(rng: Random, data: bytes) -> bytes:
    """Bytes with one change: a flipped bit, a run of other bytes, a cut, an insertion, a copy."""
    data = bytearray(data)
    at = rng.randrange(len(data) + 1)
    size = rng.choice((1, 1, 2, 4, 8, 64))
    kind = rng.randrange(7)
    if kind == 0 and data:
        data[at % len(data)] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data[at : at + size] = rng.randbytes(size)
    elif kind == 2:
        del data[at:]
    elif kind == 3:
        del data[at : at + size]
    elif kind == 4:
        data[at:at] = rng.choice((rng.randbytes(size), b"\xff" * size, b"\0" * size))
    elif kind == 5:  # a number of 1, 2, 4 or 8 bytes becomes the largest, the least, or about so
        data[at : at + size] = rng.choice((b"\xff", b"\x7f", b"\x80", b"\0")) * size
    else:
        data[at:at] = data[at : at + 64]
    return bytes(data)
