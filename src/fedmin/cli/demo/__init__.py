"""The demo: what only fedmin does, in five cards on one page, each from runs made on the spot.

card.py          what a card is: title, sentence with its number, picture, lines that do it
bounded.py       a limit on the loss of one group of patients, with its certificate (SSCA)
sparse.py        20 of 64 coefficients, chosen over 20 sites (SparseNewton)
atoms.py         Frank-Wolfe over a ball: bytes up a client against projected FedAvg (FedFW)
curvature.py     quasi-Newton steps at the server: rounds to a level against tuned rivals (FedSSO)
departures.py    what left one site in the run of the first card
sheet.py         the cards as one picture and as one page that opens offline

To add a card: copy sparse.py, and name it in CARDS. All data ship with scikit-learn.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fedmin.cli.demo import atoms, bounded, curvature, departures, sheet, sparse
from fedmin.cli.demo.card import Card, Setting

__all__ = ["CARDS", "Card", "Demo", "Setting", "run"]

CARDS: dict[str, Callable[[Setting], Card]] = {
    "a limit on the loss of a group": bounded.card,
    "20 coefficients over 20 sites": sparse.card,
    "Frank-Wolfe, a few bytes a round": atoms.card,
    "quasi-Newton steps at the server": curvature.card,
}


class Demo(NamedTuple):
    """What the demo found, and where its pictures are."""

    cards: tuple[Card, ...]
    picture: Path
    page: Path


def run(
    out: str | Path = "fedmin-demo",
    setting: Setting = Setting(),
    say: Callable[[str], None] = lambda words: None,
) -> Demo:
    """Run the demo and write demo.png and demo.html into `out`; `say` is told what goes on."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)  # before the work: a bad path should fail at once
    cards = []
    for title, make in CARDS.items():
        say(title)
        cards.append(make(setting))
    cards.append(departures.card(cards[0]))
    say("drawing")
    picture = sheet.picture(cards, out / "demo.png")
    (out / "demo.html").write_text(sheet.page(cards), "utf-8")
    return Demo(tuple(cards), picture, out / "demo.html")
