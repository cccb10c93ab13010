"""What left site 3 in the run of the first card, kind by kind, beside the rows that stayed."""

import re
from collections.abc import Mapping

import numpy as np

from fedmin.cli.demo.card import BLUE, RED, Card, plain
from fedmin.core.privacy import kind_of
from fedmin.core.result import Result

CODE = """\
print(result.privacy)      # who learnt what, in words
print(result.ledger)       # every byte, by kind of message"""
WORDS = {
    "counts": "how many of its rows are in each group",
    "digest": "a hash of its rows (for the certificate)",
    "keys": "public keys",
    "sealed": "shares that are sealed for the others",
    "shares": "its shares of the others' masks",
    "signature": "signatures",
}


def card(bounded: Card) -> Card:
    """From the ledger and the list of what was shown of the bounded run."""
    result, sites = bounded.results["bounded"], bounded.found["sites"]
    sent, privacy = kinds(result, sites), result.privacy
    assert privacy is not None
    shown = " ".join(s.parts for s in privacy.leaving if s.individual)
    alone = set(re.findall(r"(\w+) \w+\[", shown))  # "keys uint8[64], sealed uint8[peers, 80]"
    sentence = (
        f"In {result.rounds} rounds site 3 sent {sum(sent.values()) / 1e3:,.0f} kB, and no row. "
        f"The server could read {'sums only' if privacy.sums else 'single replies'}. Of site 3 "
        f"alone it got {', '.join(WORDS[part] for part in sorted(alone))}."
    )

    def draw(ax) -> None:
        names = list(sent)
        ax.barh(np.arange(len(names)), [sent[n] / 1e3 for n in names], color=BLUE, height=0.65)
        ax.barh([len(names)], [0], color=RED)
        ax.set_yticks(np.arange(len(names) + 1), [*names, "rows"], fontsize="small")
        beside = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
        ax.annotate("none", (0, len(names)), color=RED, **beside)
        for k, name in enumerate(names):
            size = sent[name] / 1e3
            ax.annotate(f"{size:,.1f}", (size, k), fontsize="small", **beside)
        ax.invert_yaxis()
        ax.set_xscale("symlog", linthresh=1)
        ax.set_xlabel("kilobytes that site 3 sent")
        plain(ax)
        ax.grid(False, axis="y")
        ax.margins(x=0.15)

    lines = [(s.when, s.parts, kind_of(s), s.sees) for s in privacy.leaving]
    found = {"sent": sent, "lines": lines, "alone": sorted(alone)}
    return Card("What left site 3", sentence, draw, CODE, {}, found)


def kinds(result: Result, sites: int) -> Mapping[str, float]:
    """Bytes that one site sent, by what they were for; all sites send the same."""
    together: dict[str, float] = {}
    for kind, size in result.ledger.by_kind().items():
        if " up " in f" {kind}":
            name = purpose(kind)
            together[name] = together.get(name, 0.0) + size / sites
    return dict(sorted(together.items(), key=lambda item: -item[1]))


def purpose(kind: str) -> str:
    """What a kind of message is for, in words."""
    if kind.startswith("evaluation"):
        return "looks at the model"
    if kind.startswith("channel"):
        return "keys and shares of masks"
    return "headers" if kind.endswith("header") else "masked numbers"
