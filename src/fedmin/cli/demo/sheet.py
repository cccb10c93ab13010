"""The cards as one picture, and as one page that opens offline, on a phone and in the dark."""

import io
import re
import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from fedmin.cli.demo.card import Card
from fedmin.core.curves import COLORS
from fedmin.core.environment import versions
from fedmin.reports.page import frame
from fedmin.reports.tables import pairs, table

TITLE = "Data that may not be moved: what fedmin does with them"
LEAD = (
    "Five cards, each from runs that were made on this machine just now, on data that ship with "
    "scikit-learn. Their columns were scaled in one place beforehand; every run is federated."
)
LEFT = ("when", "parts and shapes", "what it is", "what the server sees")
INK = "#102030"  # drawn in this color, shown in the page's own


def picture(cards: Sequence[Card], path: Path) -> Path:
    """All cards in one PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    whole = Figure(figsize=(16.5, 10.5), layout="constrained")
    FigureCanvasAgg(whole)
    whole.suptitle(TITLE, fontsize=17, fontweight="bold")
    cells: Any = whole.subfigures(2, 3, wspace=0.04, hspace=0.05)
    places = list(cells.flat)
    for card, place in zip(cards, places, strict=False):
        place.suptitle(card.title, fontsize=13, fontweight="bold")
        card.draw(place.subplots())
        place.supxlabel(textwrap.fill(card.sentence, 66), fontsize=10, x=0.05, ha="left")
    for place in places[len(cards) :]:  # what is left of the sheet
        words = "\n".join([*textwrap.wrap(LEAD, 52), "", *_made()])
        place.text(0.1, 0.85, words, va="top", fontsize=11, linespacing=1.5)
    whole.savefig(path, dpi=110)
    return path


def _made() -> list[str]:
    return [f"{name} {what}" for name, what in versions().items()]


def page(cards: Sequence[Card]) -> str:
    """All cards as HTML, each with its picture, its sentence, and the lines that do it."""
    body = "".join(_section(k, card) for k, card in enumerate(cards))
    made = f"<section><h2>Made with</h2>{pairs(versions())}</section>"
    return frame(TITLE, LEAD, f'<div class="cards">{body}</div>{made}', None)


def _section(k: int, card: Card) -> str:
    more = (
        f"<details><summary>The lines that do it</summary><pre>{escape(card.code)}</pre></details>"
    )
    for name, run in card.results.items():
        if run.certificate is not None and run.certificate.constraints:
            more += _details(f"The certificate of {name}", str(run.certificate))
    if "lines" in card.found:
        rows = table(LEFT, card.found["lines"], numeric=False)
        more += f"<details><summary>Every kind of message that left it</summary>{rows}</details>"
    return (
        f'<section><h2>{escape(card.title)}</h2><figure role="img" '
        f'aria-label="{escape(card.title)}">{drawing(card, f"card{k}")}</figure>'
        f"<p>{escape(card.sentence)}</p>{more}</section>"
    )


def _details(summary: str, words: str) -> str:
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(words)}</pre></details>"


def drawing(card: Card, name: str) -> str:
    """A card's picture as SVG within a page, in the page's colors; `name` keeps its ids apart."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    colors = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    settings: dict[Any, Any] = {
        **dict.fromkeys(colors, INK),
        "svg.fonttype": "none",
        "svg.hashsalt": name,
    }
    settings |= {"font.family": ["sans-serif"], "font.size": 11.5}
    with matplotlib.rc_context(settings):
        whole = Figure(figsize=(6.4, 4.4), layout="constrained")
        whole.patch.set_alpha(0)
        ax = whole.subplots()
        ax.patch.set_alpha(0)
        card.draw(ax)
        file = io.StringIO()
        FigureCanvasSVG(whole).print_svg(file)
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'<svg[^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1">', svg, count=1)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    for k, color in enumerate(COLORS):
        svg = svg.replace(color, f"var(--c{k})")
    return svg.replace(INK, "var(--ink)")
