"""The page of constrained federated learning, from the stored table: docs/constrained.md.

python -m experiments.constrained.page
"""

import json
from pathlib import Path

TABLE = Path(__file__).parent / "results" / "table.json"
PAGE = Path(__file__).parents[2] / "docs" / "constrained.md"
HEAD = """# Constrained federated learning, measured

Each method has the same budget: 100 rows a client and round, and as many rounds. A limit is met
where F_m <= U_m + 0.001 on all rows; a look is every 20 rounds. `from` is the round from which on
two looks in a row met all limits, in the slowest seed; `later` the least share of looks from round
200 on that met them; `gap` the last objective less the least there is (by the dual, in
NumPy and SciPy), the largest of the seeds, negative where limits are exceeded; `above` by how much
the last model exceeds a limit at most. MB is what training sends.

No method was given a number for a problem. `SSCA()` and `SSCA.printed(100)` are as they are; the
rivals have a step of 0.3 and one local step a round, `PrimalDualAvg` its default gains. A search
for each problem would help them, and was not done.

Only what was run is here. The command has seven problems and four methods; lines that are not below
have not been measured yet, and nothing is said of them.

Made by `python -m experiments.constrained` and `python -m experiments.constrained.page`, from
`experiments/constrained/results/table.json`.
"""


def page(lines: list[dict]) -> str:
    """The text: problems the constants were chosen on apart from those they are judged by."""
    parts = [HEAD]
    for chosen, title in (
        (False, "Problems that judge"),
        (True, "Problems on which constants of `SSCA()` were chosen"),
    ):
        titles = dict.fromkeys(line["title"] for line in lines if line["chosen_on"] == chosen)
        parts.append(f"\n## {title}\n" if titles else "")
        for name in titles:
            own = [line for line in lines if line["title"] == name]
            parts.append(f"\n### {name}\n\n{own[0]['rounds']} rounds.\n")
            parts.append("\n| method | seeds | from | later | objective | gap | above | MB |")
            parts.append("\n|---|---|---|---|---|---|---|---|\n")
            parts.append("\n".join(_row(line) for line in own) + "\n")
    return "".join(parts)


def _row(line: dict) -> str:
    first = "never" if line["first_met"] is None else line["first_met"]
    gap = "unknown" if line["gap"] is None else f"{line['gap']:.1e}"
    return (
        f"| `{line['method']}` | {line['seeds']} | {first} | {line['share_met']:.0%} | "
        f"{line['objective']:.5g} | {gap} | {max(line['above'], 0):.1e} | {line['megabytes']:.1f} |"
    )


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(TABLE.read_text("utf-8"))["lines"]), "utf-8")
