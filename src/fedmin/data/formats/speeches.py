"""Speeches of plays, by speaker; and windows of text for predicting the next character."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedmin.data.formats.files import DataFileError, read_bytes

__all__ = ["read_speeches"]


def read_speeches(path: Path | str) -> dict[str, list[str]]:
    """Speaker -> speeches, in the order of first appearance.

    A speech is a paragraph whose first line is the speaker's name and a colon.

    >>> import pathlib, tempfile
    >>> from fedmin.data import read_speeches
    >>> path = pathlib.Path(tempfile.mkdtemp(), "play.txt")
    >>> _ = path.write_text("All:\\nSpeak, speak.\\n\\nBrutus:\\nAy.\\n")
    >>> read_speeches(path)
    {'All': ['Speak, speak.'], 'Brutus': ['Ay.']}
    """
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataFileError(path, "a play as text", f"bytes that are not UTF-8 ({error})") from None
    speeches: dict[str, list[str]] = {}
    for paragraph in text.split("\n\n"):
        head, _, speech = paragraph.strip("\n").partition("\n")
        if head.endswith(":") and speech:
            speeches.setdefault(head[:-1], []).append(speech)
    if not speeches:
        found = repr(text[:40])
        raise DataFileError(path, "paragraphs that begin with 'Speaker:'", found)
    return speeches


def windows(codes: np.ndarray, window: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Every `stride`-th run of `window` codes, and the code that follows it."""
    if codes.size <= window:
        return np.empty((0, window), codes.dtype), np.empty(0, codes.dtype)
    view = np.lib.stride_tricks.sliding_window_view(codes, window + 1)[::stride]
    return view[:, :-1], view[:, -1]
