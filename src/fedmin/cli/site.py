"""fedmin site: what a site does for itself: its file, and its log of everything that left."""

from pathlib import Path
from typing import Annotated

import typer

from fedmin.cli.errors import plain_errors

group = typer.Typer(
    help="A site's own file and its log of everything that left.", no_args_is_help=True
)


@group.command()
@plain_errors
def init(
    name: Annotated[str, typer.Argument(help="The site's name in the federation.")],
    file: Annotated[Path, typer.Option(help="Where to write; - is standard output.")] = Path(
        "site.toml"
    ),
) -> None:
    """Write an explained site.toml: server, keys, rows, and what the site allows."""
    from fedmin.core.files import write_text
    from fedmin.runs.site_template import site_template

    text = site_template(name)
    if str(file) == "-":
        typer.echo(text, nl=False)
        return
    if file.exists():
        raise ValueError(f"{file} is there already; give another name with --file")
    write_text(file, text)
    typer.echo(f"{file}: fill it in, and join with:    fedmin join {file}")


@group.command()
@plain_errors
def fingerprint(
    file: Annotated[Path, typer.Argument(help="The site's own file, site.toml.")],
    certificate: Annotated[
        Path | None, typer.Option(help="A certificate.json: is it about these rows?")
    ] = None,
) -> None:
    """What this site says of its rows in a certificate: a hash under its own secret."""
    from fedmin.core.certificate import Certificate
    from fedmin.core.measured import FINGERPRINTS
    from fedmin.runs.joining import fingerprint_of
    from fedmin.runs.site_file import SiteFile

    site = SiteFile.read(file)
    here = fingerprint_of(site).hex()
    if certificate is None:
        typer.echo(here)
        return
    said = Certificate.load(certificate).data.get(FINGERPRINTS, {})
    if site.name not in said:
        raise ValueError(f"{certificate} says nothing of the rows of {site.name} under its secret")
    if said[site.name] != here:
        raise ValueError(f"{certificate} is about other rows of {site.name} than those that it has")
    typer.echo(f"{certificate} is about the rows that {site.name} has: {here}")


@group.command()
@plain_errors
def log(
    file: Annotated[Path, typer.Argument(help="The log that site.toml names.")],
    run: Annotated[str, typer.Option(help="Only of the run whose name begins so.")] = "",
    last: Annotated[int, typer.Option(min=0, help="Only so many lines from the end.")] = 0,
    verify: Annotated[
        bool, typer.Option("--verify", help="Only whether the log is whole; exit code 2 if not.")
    ] = False,
    head: Annotated[
        str, typer.Option(help="A head that someone has kept, which must be in this log.")
    ] = "",
) -> None:
    """What left this site: a line a message, and the sums by kind."""
    from fedmin.cli.catalog import print_table
    from fedmin.privacy import departures
    from fedmin.privacy.chained import Head

    found = departures.verify(file, Head.of(head) if head else None)
    left = [each for each in found.departures if each.run.startswith(run)]
    if not verify:
        lines = departures.table(left[-last:] if last else left)
        print_table(departures.HEAD, lines, right=departures.NUMBERS)
        typer.echo("")
        print_table(
            ["kind", "messages", "bytes"], departures.totals(left), right=["messages", "bytes"]
        )
        typer.echo("")
    for note in found.notes:
        typer.echo(f"note: {note}")
    if found.wrong:
        raise ValueError(f"{file}: {found.wrong}")
    typer.echo(f"the log of site {found.site} is whole; its head, for someone else to keep:")
    typer.echo(f"    {found.head}")
