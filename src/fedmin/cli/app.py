"""The command line: demo, init, run, compare, plot, report, watch, reproduce, list, version;
in files of their own show, serve, join, deploy, tap, audit, predict, explain, and the groups keys
and site.

What only one command needs is imported inside it. Bad input ends in one red line on standard error
and exit code 2; a bug in one line too, exit code 70 and a file with its traceback (`main`).
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedmin.cli import audits, keys, machines, models, showing, site, tapped
from fedmin.cli.errors import bugs_are_kept, check_out, plain_errors

app = typer.Typer(
    help="Federated optimization: minimize a function of data that may not leave its owners.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """The command `fedmin`."""
    with bugs_are_kept():
        app()


def _say_version(asked: bool) -> None:
    if asked:
        from fedmin.core.environment import __version__

        typer.echo(f"fedmin {__version__}")
        raise typer.Exit


@app.callback()
def every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say it, end.")
    ] = False,
) -> None:
    """Federated optimization: minimize a function of data that may not leave its owners."""


app.add_typer(showing.group)
app.add_typer(machines.group)
app.add_typer(tapped.group)
app.add_typer(models.group)
app.add_typer(audits.group)
app.add_typer(keys.group, name="keys")
app.add_typer(site.group, name="site")


@app.command()
@plain_errors
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the pictures; made if it is not there.")
    ] = Path("fedmin-demo"),
) -> None:
    """Five things that only fedmin does, each by a run; ends with a picture and a page."""
    import textwrap
    import time

    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from fedmin.cli import demo as experiment

    begin = time.perf_counter()
    screen = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=screen) as progress:
        tasks: list = []

        def say(words: str) -> None:
            if tasks:
                progress.update(tasks[-1], total=1, completed=1)
            tasks.append(progress.add_task(words, total=None))
            if not screen.is_terminal:  # in a log, a line when something begins
                progress.console.print(words, highlight=False)

        found = experiment.run(out, say=say)
        progress.update(tasks[-1], total=1, completed=1)
        if not screen.is_terminal:
            for task in tasks:
                progress.remove_task(task)
    for card in found.cards:
        typer.echo(f"\n{card.title}")
        typer.echo(textwrap.indent(textwrap.fill(card.sentence, 88), "  "))
    typer.echo(f"\ndone in {time.perf_counter() - begin:.0f} s")
    typer.echo(f"picture: {found.picture.resolve()}")
    typer.echo(f"page:    {found.page.resolve()}")


@app.command("list")
@plain_errors
def list_(
    category: Annotated[
        str, typer.Argument(help="methods, problems, data, ...; all categories if left out.")
    ] = "",
) -> None:
    """What there is: methods, problems, data, partitioners, domains, channels, ..."""
    from fedmin.cli import catalog

    catalog.print_table(*catalog.lines(category), right=catalog.NUMBERS)


@app.command()
@plain_errors
def version() -> None:
    """The versions of fedmin, JAX and Python, and the devices."""
    from fedmin.core.environment import versions

    found = versions()
    width = max(map(len, found))
    for name, value in found.items():
        typer.echo(f"{name.ljust(width)}  {value}")


File = Annotated[Path, typer.Argument(help="A configuration file, TOML.")]
Runs = Annotated[
    list[Path], typer.Argument(help="Folders of runs, or folders with such folders in them.")
]


Tap = Annotated[
    Path | None, typer.Option("--tap", help="Keep every byte that is sent in this file.")
]


@app.command()
@plain_errors
def init(
    method: Annotated[str, typer.Argument(help="A method, as in `fedmin list methods`.")],
    file: Annotated[Path, typer.Option(help="Where to write; - is standard output.")] = Path(
        "fedmin.toml"
    ),
) -> None:
    """Write a commented configuration file for a method."""
    from fedmin.runs.template import template

    text = template(method)
    if str(file) == "-":
        typer.echo(text, nl=False)
        return
    if file.exists():
        raise ValueError(f"{file} is there already; give another name with --file")
    check_out(file)
    file.write_text(text, "utf-8")
    typer.echo(f"{file}: look at it with `fedmin show {file}`, run it with `fedmin run {file}`")


@app.command()
@plain_errors
def run(
    file: File,
    out: Annotated[Path, typer.Option(help="Where the folders of runs go.")] = Path("runs"),
    force: Annotated[bool, typer.Option(help="Run again what is there already.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print nothing but errors.")] = False,
    json: Annotated[bool, typer.Option("--json", help="A line of JSON a run.")] = False,
    tap: Tap = None,
) -> None:
    """Run a file: a folder a run. What was stopped goes on; what is there is not run again."""
    from fedmin.cli.run_table import RunTable
    from fedmin.cli.signals import Interrupt
    from fedmin.runs import folder as runs
    from fedmin.runs.config import Config

    config = Config.read(file)
    jobs, good = config.jobs(), 0
    check_out(out, folder=True)
    silent = quiet or json
    note = "" if silent else "ending after this round; Ctrl-C once more ends at once\n"
    with Interrupt(note) as interrupt, RunTable(jobs, quiet=silent) as table:
        for outcome in runs.run(
            config, out, force=force, watch=table.watch, interrupt=interrupt, tap=tap
        ):
            table.ended(outcome)
            good += outcome.result.status not in ("diverged", "interrupted")
            if json:
                typer.echo(outcome.json())
            if outcome.result.status == "interrupted":
                break
    if good < len(jobs):
        raise typer.Exit(1)


@app.command()
@plain_errors
def compare(
    folders: Runs,
    column: Annotated[str, typer.Option(help="What is compared.")] = "objective",
    to: Annotated[str, typer.Option(help="Levels to reach, such as 0.5,0.3")] = "",
    evaluation: Annotated[
        bool, typer.Option("--evaluation", help="Count the bytes of looking at the model too.")
    ] = False,
) -> None:
    """Rounds, megabytes and seconds to levels, and how runs ended; seeds as mean and spread."""
    from fedmin.cli.catalog import print_table
    from fedmin.reports.compare import levels, tables
    from fedmin.reports.tables import reasons_of
    from fedmin.runs.reading import load_all

    results = load_all(folders)
    for head, lines in tables(results, column, levels(to), evaluation):
        print_table(head, lines, right=head[1:])
        typer.echo("")
    for words in reasons_of(results):
        typer.echo(words)


@app.command()
@plain_errors
def plot(
    folders: Runs,
    out: Annotated[Path, typer.Option(help="The picture.")] = Path("fedmin.png"),
    columns: Annotated[str, typer.Option(help="Recorded columns, such as objective,gap")] = "",
) -> None:
    """Curves of runs as one picture."""
    from fedmin.reports.figures import figure
    from fedmin.reports.quality import is_part
    from fedmin.reports.tables import recorded
    from fedmin.runs.reading import load_all

    check_out(out)
    results = load_all(folders)
    wanted = [c for c in columns.split(",") if c]
    wanted = wanted or [c for c in recorded(results) if not is_part(c)]
    typer.echo(figure(results, out, columns=wanted))


@app.command()
@plain_errors
def report(
    folders: Runs,
    out: Annotated[Path, typer.Option(help="The page.")] = Path("fedmin-report.html"),
) -> None:
    """One HTML page of runs that opens offline."""
    from fedmin.runs.reading import report_of

    check_out(out)
    out.write_text(report_of(folders), "utf-8")
    typer.echo(out)


@app.command()
@plain_errors
def watch(
    folders: Runs,
    port: Annotated[int, typer.Option(help="On localhost.")] = 8765,
) -> None:
    """The report of runs that are still going, at a local address, always up to date."""
    from fedmin.runs.watch import serve

    serve(folders, port, say=typer.echo)


@app.command()
@plain_errors
def reproduce(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Claims, or all; see --list.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option(help="Tiny: shows that it runs.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Claims and verdicts.")] = False,
    page: Annotated[bool, typer.Option(help="Print the page of the documentation.")] = False,
    out: Annotated[Path, typer.Option(help="Where results go.")] = Path("fedmin-claims"),
) -> None:
    """Check the papers' claims: what they printed, what is measured here, and the verdict."""
    from fedmin.cli.catalog import print_table
    from fedmin.reports import claims

    if page:
        typer.echo(claims.markdown(), nl=False)
    elif list_ or not ids:
        print_table(
            ["id", "verdict", "paper"], [[c.id, c.verdict, c.paper] for c in claims.all_claims()]
        )
    else:
        check_out(out, folder=True)
        claims.reproduce(ids, out, quick=quick, say=typer.echo)
        typer.echo(f"page: {out / 'claims.html'}")
