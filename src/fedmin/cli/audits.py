"""The command `fedmin audit`: what could be inferred from what a run would send."""

from pathlib import Path
from typing import Annotated

import typer

from fedmin.cli.errors import check_out, plain_errors

group = typer.Typer()  # its command is one of fedmin itself


@group.command()
@plain_errors
def audit(
    file: Annotated[Path, typer.Argument(help="A configuration file, TOML, of one run.")],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("fedmin-audit.html"),
    rounds: Annotated[int, typer.Option(help="Rounds before the one that is audited.")] = 0,
    batch: Annotated[int, typer.Option(help="Rows a client; 0: as the method's.")] = 0,
    steps: Annotated[int, typer.Option(help="Of each optimizer.")] = 200,
    image: Annotated[str, typer.Option(help="Rows are images: height,width,channels.")] = "",
    numbers: Annotated[Path | None, typer.Option(help="Write the numbers here, JSON.")] = None,
) -> None:
    """What server, clients and coalitions could infer of rows from what a run really sends."""
    import fedmin
    from fedmin.privacy.policy import innermost
    from fedmin.reports.audit import audit_page
    from fedmin.runs.config import Config
    from fedmin.runs.costs import fitted

    check_out(out)
    job, *others = Config.read(file).jobs()
    if others:
        raise ValueError(f"{file} has {1 + len(others)} runs; an audit is of one: take out lists")
    pieces, _ = fitted(job)
    shape = getattr(innermost(pieces.problem), "image", None)
    if image:
        try:
            height, width, channels = (int(word) for word in image.split(","))
        except ValueError:
            words = f"--image is height,width,channels such as 28,28,1; got {image!r}"
            raise ValueError(words) from None
        shape = height, width, channels
    found = fedmin.audit(
        pieces.problem, pieces.federation, pieces.method,
        pieces.options.get("channel", fedmin.Plain()), rounds=rounds, batch=batch or None,
        steps=steps, seed=pieces.options["seed"], image=shape,
    )  # fmt: skip
    typer.echo(found)
    out.write_text(audit_page(found), "utf-8")
    if numbers is not None:
        found.save(numbers)
    typer.echo(f"page: {out.resolve()}")
