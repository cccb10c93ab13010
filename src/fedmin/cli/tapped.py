"""The command `fedmin tap`: what a tap has kept, and whether rows are in it."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmin.cli.errors import plain_errors

group = typer.Typer()  # its command is one of fedmin itself


@group.command()
@plain_errors
def tap(
    file: Annotated[Path, typer.Argument(help="What --tap has written.")],
    of: Annotated[
        Path | None, typer.Option(help="The run's configuration file: search for its rows.")
    ] = None,
    most: Annotated[int, typer.Option(help="Rows of a client that are searched for.")] = 32,
) -> None:
    """What went over a wire, by sender and receiver; and whether rows were in it."""
    from fedmin.cli.catalog import print_table
    from fedmin.engines.round import SERVER
    from fedmin.engines.sessions.tap import heard

    kept = list(heard(file))
    counts: Counter = Counter()
    sizes: Counter = Counter()
    name = lambda party: "server" if party == SERVER else f"client {party}"
    for each in kept:
        said = each.envelope
        key = (name(said.sender), name(said.receiver), said.kind)
        counts[key] += 1
        sizes[key] += len(each.data)
    head = ["from", "to", "kind", "messages", "bytes"]
    print_table(
        head, [[*key, str(counts[key]), f"{sizes[key]:,}"] for key in counts], right=head[3:]
    )
    if of is None:
        return
    import numpy as np

    from fedmin.privacy.search import search
    from fedmin.runs.config import Config
    from fedmin.runs.costs import fitted

    wanted = {}
    for job in Config.read(of).jobs():
        federation = fitted(job)[0].federation
        for i, client in enumerate(federation.names):
            x: Any = federation.client(i).x
            x = x.window(0, min(most, int(federation.sizes[i])))
            wanted[f"row of {client}"] = np.asarray(x @ np.eye(x.shape[1], dtype=x.dtype))
    found = search([each.data for each in kept], wanted)
    for one in found:
        typer.echo(f"{one}: {kept[one.message]}, from {name(kept[one.message].envelope.sender)}")
    typer.echo(
        f"{len(found)} of {sum(map(len, wanted.values()))} rows that were searched for were found"
    )
    if found:
        raise typer.Exit(1)
