"""The command `fedmin show`: what a file would do, before it does anything."""

from pathlib import Path
from typing import Annotated

import typer

from fedmin.cli.errors import plain_errors

group = typer.Typer()  # its command is one of fedmin itself


@group.command()
@plain_errors
def show(
    file: Annotated[Path, typer.Argument(help="A configuration file, TOML.")],
) -> None:
    """What a file would run, how many bytes it will cost and who learns what; runs nothing."""
    from fedmin.cli.catalog import print_table
    from fedmin.privacy import observers
    from fedmin.runs.config import Config
    from fedmin.runs.costs import costs
    from fedmin.runs.folder import keeping
    from fedmin.runs.path_terms import path_terms

    head = ["run", "id", "d", "rows", "clients", "rounds", "MB down", "MB up"]
    lines = []
    shown: dict[str, list[str]] = {}  # runs that show the same, by what they show
    tables: dict[str, list[list[str]]] = {}
    told: list[str] = []  # what follows exactly from single messages
    config = Config.read(file)
    for job in config.jobs():
        cost = costs(job)
        ways = (f"{cost.rounds * way / 1e6:,.3f}" for way in (cost.down, cost.up))
        sizes = f"{cost.size:,}", f"{cost.rows:,}", str(cost.clients), str(cost.rounds)
        lines.append([job.label, job.id, *sizes, *ways])
        table = observers.table(cost.disclosures)
        shown.setdefault(str(table), []).append(job.label)
        tables[str(table)] = table
        for words in (*cost.noise(job.label), *cost.exposures):
            if words not in told:
                told.append(words)
    print_table(head, lines, right=head[2:])
    if config.terms is not None:
        typer.echo(f"federation: {config.terms}")
    typer.echo("bytes are what it takes if every asked client takes part in every round")
    path = path_terms(config, config.words)
    if path is not None:
        typer.echo(path.said)
    typer.echo(keeping(config.jobs()[0]))
    for same, labels in shown.items():
        of = "" if len(shown) == 1 else f", in {'; '.join(labels)}"
        typer.echo(f"\nwhat leaves a client, and what it is told{of}")
        print_table(observers.HEAD, tables[same])
    for words in told:
        typer.echo(f"\n{words}")
