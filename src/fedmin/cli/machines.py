"""The commands for real machines: serve, align, join, deploy."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmin.cli.errors import plain_errors

group = typer.Typer()  # its commands are commands of fedmin itself
File = Annotated[Path, typer.Argument(help="A configuration file, TOML.")]
Tap = Annotated[
    Path | None,
    typer.Option("--tap", help="Keep every byte this party sends or gets in this file."),
]
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
    align: Annotated[
        bool, typer.Option("--align", help="Only carry the alignment of the sites' rows, and end.")
    ] = False,
    quiet: Quiet = False,
    tap: Tap = None,
) -> None:
    """The server half of a run: waits for its sites, runs, goes on after a crash."""
    from fedmin.cli import handshakes
    from fedmin.cli.signals import Interrupt

    def told(port: int) -> None:
        if port_file is not None:
            write_text(port_file, f"{port}\n")

    with handshakes.logged():  # before gRPC begins
        from fedmin.core.files import write_text
        from fedmin.runs.config import Config
        from fedmin.runs.serving import Place, serve

        _speak(quiet)
        config = Config.read(file)
        if align:
            _carry_alignment(config, keys, listen, told)
            return
        with Interrupt("ending after this round; Ctrl-C once more ends at once\n") as interrupt:
            place = Place(keys, listen, test, server_rows, told, tap)
            outcome = serve(config, out, place, interrupt=interrupt)
    typer.echo(outcome.json())
    if outcome.result.status in ("diverged", "interrupted"):
        raise typer.Exit(1)


def _carry_alignment(config: Any, keys: Path, listen: str, told: Callable[[int], None]) -> None:
    from fedmin.cli.signals import Interrupt
    from fedmin.privacy.identity import Identity
    from fedmin.runs.meeting import serve_alignment

    identity = Identity.load(keys)
    with Interrupt("ending\n") as interrupt:
        names = serve_alignment(config, identity, listen, told=told, interrupt=interrupt)
    typer.echo(f"the rows of {', '.join(names)} are aligned; {names[0]} led")


@group.command()
@plain_errors
def align(
    files: Annotated[
        list[Path],
        typer.Argument(help="One site.toml: at its server. Several: here, all on this machine."),
    ],
    leader: Annotated[
        str, typer.Option(help="Of several: who asks and says the order; who has the outcome.")
    ] = "",
    patience: Annotated[
        float, typer.Option(help="Seconds for which the server may be away; 0 is for ever.")
    ] = 0.0,
    quiet: Quiet = False,
) -> None:
    """Find the rows that all parties have, and write them in one order: for a run on columns."""
    from fedmin.cli.signals import Interrupt
    from fedmin.runs.aligning import align_here
    from fedmin.runs.meeting import join_alignment
    from fedmin.runs.site_file import SiteFile

    _speak(quiet)
    sites = [SiteFile.read(file) for file in files]
    if len(sites) > 1:
        for done in align_here(sites, leader):
            typer.echo(done)
        return
    if leader:
        raise ValueError("the server says who leads; --leader is for several files")
    with Interrupt("ending; nothing is written\n") as interrupt:
        done = join_alignment(sites[0], patience=patience or float("inf"), interrupt=interrupt)
    typer.echo(done)
    typer.echo(f'for a run on columns:    file = "{done.file.name}"    in [data] of {files[0]}')


@group.command()
@plain_errors
def join(
    file: Annotated[Path, typer.Argument(help="The site's own file, site.toml.")],
    patience: Annotated[
        float, typer.Option(help="Seconds for which the server may be away; 0 is for ever.")
    ] = 0.0,
    quiet: Quiet = False,
    tap: Tap = None,
) -> None:
    """The site half of a run: calls the server, answers what its policy allows, and logs it."""
    from fedmin.cli.signals import Interrupt
    from fedmin.runs.joining import join_run
    from fedmin.runs.site_file import SiteFile

    _speak(quiet)
    with Interrupt("ending; started again it goes on\n") as interrupt:
        words = join_run(
            SiteFile.read(file), patience=patience or float("inf"), interrupt=interrupt, tap=tap
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
    from fedmin.cli.signals import Interrupt
    from fedmin.engines.sessions.transport import StoppedError
    from fedmin.runs.config import Config
    from fedmin.runs.deploying import Parties, prepare
    from fedmin.runs.killing import Killer
    from fedmin.runs.reading import folders_of, load

    deployed = prepare(Config.read(file), out, local)
    typer.echo(f"{out}: an authority, a server and {len(deployed.names)} sites with their keys")
    parties = Parties(deployed)
    killer = Killer(parties, kill, typer.echo) if kill else lambda: None  # refuses unknown names

    def watch() -> None:
        killer()
        if why := interrupt():  # else its processes would go on without it
            raise StoppedError(why, "the run")

    with Interrupt("ending all parties\n") as interrupt:
        try:
            if parties.start_server():
                for name in deployed.names:
                    parties.start_site(name)
                typer.echo(f"the server listens at port {parties.port}; every site is a process")
            code = parties.wait(seconds, watch)
        finally:
            parties.stop()
    for folder in folders_of([deployed.runs]).values():
        typer.echo(load(folder))
        typer.echo(f"report:  {(folder / 'report.html').resolve()}")
    for name in deployed.names:
        typer.echo(f"log of {name}:  {(deployed.site_file(name).parent / f'{name}.log').resolve()}")
    raise typer.Exit(code)
