"""Sites' files with the rows that all of them have, in one order: `fedmin align`.

A site's file names its column of ids (`[data] id`). The aligned file lies beside the site's own and
has its columns, with the rows that all have in the common order; a run on columns starts there.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedmin.core.files import write_text
from fedmin.data.formats.columns import column_names, read_columns
from fedmin.privacy.alignment import AlignmentError, Ids, align
from fedmin.runs.site_file import SiteFile


class Aligned(NamedTuple):
    """What became of a site's file."""

    site: str
    file: Path
    rows: int  # that all have
    of: int  # that the site has

    def __str__(self) -> str:
        return f"{self.site}: {self.rows:,} of {self.of:,} rows are common to all, in {self.file}"


def ids_of(site: SiteFile) -> Ids:
    """The ids of a site's rows; whatever is wrong with one is said with file, line and column."""
    column, files = site.data.id, site.data.files
    if not column:
        raise AlignmentError(
            f"site {site.name}: [data] names no column of ids; add one, such as id = 'patient'",
            f"{site.name} has no column of ids",
        )
    if files[0].suffix == ".npz":
        raise AlignmentError(f"{files[0]}: columns without names have no ids; CSV or Parquet do")
    why = site.policy.refuses_columns([column])
    if why:
        raise AlignmentError(f"site {site.name}: {why}", f"{site.name} does not allow its ids")
    read = read_columns(files, [column], site.data.separator)

    def place(row: int) -> str:
        file, line = read.rows[row]
        return f"{file}, line {line}, column {column!r}"

    return Ids.of(site.name, read.columns[column], place)


def write_aligned(site: SiteFile, rows: np.ndarray) -> Aligned:
    """Write some of a site's rows, in this order, beside its file."""
    files = site.data.files
    names = column_names(files[0], site.data.separator)
    read = read_columns(files, names, site.data.separator)
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=site.data.separator, lineterminator="\n")
    writer.writerow(names)
    columns = [read.columns[name] for name in names]
    writer.writerows([column[row] for column in columns] for row in rows.tolist())
    path = aligned_path(site)
    write_text(path, text.getvalue())
    return Aligned(site.name, path, len(rows), len(read.rows))


def aligned_path(site: SiteFile) -> Path:
    """Where a site's aligned rows go: `patients.aligned.csv` beside `patients.csv.xz`."""
    first = site.data.files[0]
    return first.with_name(f"{first.name.partition('.')[0]}.aligned.csv")


def align_here(sites: Sequence[SiteFile], leader: str = "") -> list[Aligned]:
    """Align sites whose files are all on this machine: each plays its own part."""
    names = [site.name for site in sites]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise AlignmentError(f"two files are of site {twice[0]!r}; a name has one holder")
    leader = leader or next((site.name for site in sites if site.data.outcome), names[0])
    paths = [aligned_path(site) for site in sites]
    if len(set(paths)) < len(paths):
        raise AlignmentError(f"two sites would write {paths[0]}; keep their files in two folders")
    found = align({site.name: ids_of(site) for site in sites}, leader=leader)
    return [write_aligned(site, found[site.name]) for site in sites]
