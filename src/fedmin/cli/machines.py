"""The commands for real machines: serve, join, deploy."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from fedmin.cli.errors import plain_errors

group = typer.Typer()  # its commands are commands of fedmin itself
File = Annotated[Path, typer.Argument(help="A configuration file, TOML.")]
Quiet = Annotated[bool, typer.Option(help="Say nothing but warnings and how it ended.")]
SAID = "%(asctime)s %(message)s"


def _speak(quiet: bool) -> None:
    """What happens goes to standard error, a line each with its time."""
    logging.basicConfig(format=SAID, level=logging.WARNING)
    logging.getLogger("fedmin").setLevel(logging.WARNING if quiet else logging.INFO)


@group.command()
@plain_errors
def serve(
    file: File,
    listen: Annotated[str, typer.Option(help="HOST:PORT; port 0 is any that is free.")],
    keys: Annotated[Path, typer.Option(help="The folder of the server's keys.")] = Path("server"),
    out: Annotated[Path, typer.Option(help="Where the folder of the run goes.")] = Path("runs"),
    test: Annotated[
        Path | None, typer.Option(help="Rows of the server's own to test on, .npz.")
    ] = None,
    server_rows: Annotated[
        Path | None, typer.Option(help="Rows of the server's own to train on, .npz.")
    ] = None,
    port_file: Annotated[Path | None, typer.Option(help="Write the port here.")] = None,
    quiet: Quiet = False,
) -> None:
    """The server half of a run: waits for its sites, runs, goes on after a crash."""
    from fedmin.cli.signals import Interrupt
    from fedmin.core.files import write_text
    from fedmin.runs.config import Config
    from fedmin.runs.serving import Place, serve

    _speak(quiet)

    def told(port: int) -> None:
        if port_file is not None:
            write_text(port_file, f"{port}\n")

    config = Config.read(file)
    with Interrupt("ending after this round; Ctrl-C once more ends at once\n") as interrupt:
        place = Place(keys, listen, test, server_rows, told)
        outcome = serve(config, out, place, interrupt=interrupt)
    typer.echo(outcome.json())
    if outcome.result.status in ("diverged", "interrupted"):
        raise typer.Exit(1)


@group.command()
@plain_errors
def join(
    file: Annotated[Path, typer.Argument(help="The site's own file, site.toml.")],
    patience: Annotated[
        float, typer.Option(help="Seconds for which the server may be away; 0 is for ever.")
    ] = 0.0,
    quiet: Quiet = False,
) -> None:
    """The site half of a run: calls the server, answers what its policy allows, and logs it."""
    from fedmin.cli.signals import Interrupt
    from fedmin.runs.joining import join_run
    from fedmin.runs.site_file import SiteFile

    _speak(quiet)
    with Interrupt("ending; started again it goes on\n") as interrupt:
        words = join_run(
            SiteFile.read(file), patience=patience or float("inf"), interrupt=interrupt
        )
    typer.echo(f"the run has ended: {words.get('status')} {words.get('reason', '')}".rstrip())


@group.command()
@plain_errors
def deploy(
    file: File,
    local: Annotated[
        int | None, typer.Option(help="How many sites on this machine; as [partition] says.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of all parties.")] = Path("fedmin-deploy"),
    seconds: Annotated[float, typer.Option(help="How long it may take.")] = 3600.0,
    kill: Annotated[
        str, typer.Option(help="To try it: a site that is killed on the way and started again.")
    ] = "",
) -> None:
    """A whole federation on this machine, to try it: real processes, real keys, real TLS."""
    from fedmin.runs.config import Config
    from fedmin.runs.deploying import Parties, prepare
    from fedmin.runs.killing import Killer
    from fedmin.runs.reading import folders_of, load

    deployed = prepare(Config.read(file), out, local)
    typer.echo(f"{out}: an authority, a server and {len(deployed.names)} sites with their keys")
    parties = Parties(deployed)
    try:
        parties.start_server()
        for name in deployed.names:
            parties.start_site(name)
        typer.echo(f"the server listens at port {parties.port}; every site is a process")
        watch = Killer(parties, kill, typer.echo) if kill else lambda: None
        code = parties.wait(seconds, watch)
    finally:
        parties.stop()
    for folder in folders_of([deployed.runs]).values():
        typer.echo(load(folder))
        typer.echo(f"report:  {(folder / 'report.html').resolve()}")
    for name in deployed.names:
        typer.echo(f"log of {name}:  {(deployed.site_file(name).parent / f'{name}.log').resolve()}")
    raise typer.Exit(code)
