"""Reading folders of runs back: their results by short names, and one page of several."""

import json
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import tomli_w

from fedmin.core.holdings import Holdings
from fedmin.core.kept import DamagedError, read_text, read_words
from fedmin.core.result import Result
from fedmin.reports.page import page
from fedmin.reports.paths import path_section
from fedmin.runs import presence
from fedmin.runs.document import ConfigError, Document
from fedmin.runs.life import parts_of
from fedmin.runs.pieces import terms
from fedmin.runs.registries import registered_classes

LONGEST = 300  # letters of a name
RENAMED = {"run.seeds": "seed"}  # what a key is called in a name, if not as in the document


def folders_of(paths: Iterable[str | Path]) -> dict[str, Path]:
    """These folders of runs, or all folders of runs within them, by short names."""
    folders: list[Path] = []
    for path in map(Path, paths):
        within = sorted(p.parent for p in path.glob("*/result.json"))
        if not (path / "result.json").exists() and not within:
            raise ValueError(f"{path} has no result of a run in it, nor has any folder within")
        folders += [path] if (path / "result.json").exists() else within
    names = names_of([_document(folder) for folder in folders])
    return dict(zip(names, folders, strict=True))


def load_all(paths: Iterable[str | Path]) -> dict[str, Result]:
    """The results of these folders, or of all folders of runs within them, by short names."""
    return {name: load(folder) for name, folder in folders_of(paths).items()}


def load(folder: Path) -> Result:
    """The result in a folder, whose method and problem may be of any class in the registries."""
    return Result.load(folder, also=registered_classes())


def names_of(documents: list[dict[str, Any]]) -> list[str]:
    """A name for each run: its method, and whatever sets it apart from the others."""
    flat = [dict(_flatten(document)) for document in documents]
    keys = list(dict.fromkeys(key for each in flat for key in each))
    differ = [k for k in keys if len({repr(each.get(k)) for each in flat}) > 1]
    names = []
    for each in flat:
        own = [f"{RENAMED.get(k, k.partition('.')[2])}={each[k]}" for k in differ if k in each]
        own = [word for word in own if not word.startswith("name=")]
        names.append(" ".join([str(each.get("method.name", "run")), *own])[:LONGEST])
    return [name if names.count(name) == 1 else f"{name} ({i + 1})" for i, name in enumerate(names)]


def _flatten(words: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(words, dict):
        for key, value in words.items():
            yield from _flatten(value, f"{before}.{key}" if before else key)
    else:
        yield before, words[0] if isinstance(words, list) and len(words) == 1 else words


def _document(folder: Path) -> dict[str, Any]:
    path = folder / "run.toml"
    if not path.exists():  # a result that was saved by hand
        words = read_words(folder / "result.json")
        return {"method": words.get("method"), "run": {"seeds": [words.get("seed")]}}
    try:
        return Document(read_text(path), str(path)).words
    except ConfigError as error:
        raise DamagedError(path, str(error)) from None


def report_of(paths: Iterable[str | Path]) -> str:
    """One page of the runs in these folders."""
    folders = folders_of(paths)
    return page_of(folders, {name: load(folder) for name, folder in folders.items()})


def page_of(folders: Mapping[str, Path], results: Mapping[str, Result]) -> str:
    """One page of these runs, with what their folders say of their data and their making."""
    kept = {name: folder / "holdings.json" for name, folder in folders.items()}
    held = {name: Holdings.load(path) for name, path in kept.items() if path.exists()}
    made = _together([part for folder in folders.values() for part in parts_of(folder)])
    title = next(iter(results)) if len(results) == 1 else f"{len(results)} runs"
    sections = [_document(folder).get("data") for folder in folders.values()]
    data = {str(words["name"]) for words in sections if isinstance(words, dict) and "name" in words}
    on = f" on {', '.join(sorted(data))}" if data else ""
    found = [(name, on_machines(folder)) for name, folder in folders.items()]
    several = len(found) > 1
    sites = [(f"Sites of {n}" if several else "Sites", html) for n, html in found if html]
    ways = [(name, path_section(folder)) for name, folder in folders.items()]
    paths = [(f"Path of {n}" if several else "Path", html) for n, html in ways if html]
    return page(title + on, results, held=held, made=made, sections=[*paths, *sites])


def on_machines(folder: Path) -> str:
    """What is to be said of the machines of a run, as HTML; "" if it had none."""
    if not (folder / "sites.json").exists():
        return ""
    words = _document(folder)
    try:
        agreed = terms(Document(tomli_w.dumps(words), str(folder / "run.toml")), words)
    except ConfigError as error:
        raise DamagedError(folder / "run.toml", str(error)) from None
    return presence.section(folder) + ("" if agreed is None else f"<p>{escape(str(agreed))}.</p>")


def _together(environments: list[dict[str, Any]]) -> dict[str, str]:
    """What runs were made with: the different values of each thing, of times the first and last."""
    keys = dict.fromkeys(key for words in environments for key in words)
    found = {key: [_words(each[key]) for each in environments if key in each] for key in keys}
    if "began" in found:
        found["began"] = [" to ".join(sorted({min(found["began"]), max(found["began"])}))]
    return {key: ", ".join(dict.fromkeys(values)) for key, values in found.items()}


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
