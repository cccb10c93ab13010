"""The page of an audit: what each observer could infer, with the pictures. Opens offline."""

from html import escape
from typing import Any

import numpy as np

from fedmin.privacy.audit.findings import HEAD, Audit, Finding
from fedmin.reports.page import frame
from fedmin.reports.tables import table

MOST = 4  # pictures of a finding
SIZE = 96  # pixels of a picture on the page


def audit_page(audit: Audit) -> str:
    """One string of HTML, with nothing from elsewhere."""
    lead = (
        f"Round {audit.round}, {audit.batch} rows a client. PSNR is in decibels, up to brightness "
        "and contrast, of the attack that came nearest; the guess is the average row. Rank is how "
        "many directions of the rows change the message: below the number of unknowns, infinitely "
        "many rows give the same message, to first order."
    )
    body = f"<section><h2>Who could infer what</h2>{_table(audit)}</section>"
    for each in audit.findings:
        head = f"{' and '.join(each.observers)}: {each.sees}"
        body += f"<section><h2>{escape(head)}</h2>{_attacks(each)}{_pictures(each, audit.image)}"
        body += "</section>"
    return frame(f"Audit of {audit.title}", lead, body, None)


def _table(audit: Audit) -> str:
    return table(HEAD, (each.line() for each in audit.findings), numeric=False)


def _attacks(finding: Finding) -> str:
    lines = [[each.attack, f"{each.psnr:.1f}", f"{each.misfit:.2g}"]
             for each in finding.outcome.found]  # fmt: skip
    return table(["attack", "PSNR", "misfit of its message"], lines)


def _pictures(finding: Finding, image: tuple[int, int, int] | None) -> str:
    """True rows above what the best attack made of them."""
    low, high = float(finding.true.min()), float(finding.true.max())
    lines = []
    for name, rows in (("true", finding.true), ("rebuilt", finding.outcome.best.rows)):
        drawn = " ".join(picture(row, image, low, high, name) for row in rows[:MOST])
        lines.append(f"<p>{drawn}<br>{name}</p>")
    return "".join(lines)


def picture(
    row: Any, image: tuple[int, int, int] | None, low: float, high: float, name: str
) -> str:
    """A row as a picture of squares; what is no image is one line of them."""
    height, width, depth = image or (1, np.size(row), 1)
    scaled = np.clip((np.asarray(row, float) - low) / max(high - low, 1e-30), 0, 1)
    pixels = np.round(255 * scaled).astype(int).reshape(height, width, depth)
    pixels = pixels[..., :3] if depth >= 3 else np.repeat(pixels[..., :1], 3, axis=2)
    squares = "".join(
        f'<rect x="{j}" y="{i}" width="1.02" height="1.02" '
        f'fill="#{pixels[i, j, 0]:02x}{pixels[i, j, 1]:02x}{pixels[i, j, 2]:02x}"/>'
        for i in range(height)
        for j in range(width)
    )
    tall = SIZE if image else 16
    return (
        f'<svg role="img" aria-label="{name}" width="{SIZE if image else 320}" height="{tall}" '
        f'viewBox="0 0 {width} {height}" preserveAspectRatio="none">{squares}</svg>'
    )
