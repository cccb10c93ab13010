"""A failing case made smaller, as long as it fails in the same way."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T", bound=Sequence[Any])
MOST_TRIES = 400


def reduced(case: T, fails: Callable[[T], bool], tries: int = MOST_TRIES) -> T:
    """Drop halves, quarters, ... of a sequence while what is left still fails."""
    size = max(1, len(case) // 2)
    while size >= 1 and tries > 0:
        at, smaller = 0, False
        while at < len(case) and tries > 0:
            shorter: Any = case[:at] + case[at + size :]  # type: ignore[operator]
            tries -= 1
            if shorter and fails(shorter):
                case, smaller = shorter, True
            else:
                at += size
        if size == 1 and not smaller:
            break
        size = max(1, size // 2) if not smaller or size > 1 else 1
    return case


def reduced_text(text: str, fails: Callable[[str], bool]) -> str:
    """Lines first, then letters."""
    lines = reduced(text.splitlines(keepends=True), lambda some: fails("".join(some)))
    return reduced("".join(lines), fails)


def reduced_files(
    files: dict[str, bytes], whole: dict[str, bytes], fails: Callable[[dict[str, bytes]], bool]
) -> dict[str, bytes]:
    """Files put back as they were, while the others still fail."""
    for name in sorted({*files, *whole}):
        if files.get(name) == whole.get(name):
            continue
        restored = {**files, name: whole.get(name, b"")}
        if name not in whole:
            del restored[name]
        if fails(restored):
            files = restored
    return files
