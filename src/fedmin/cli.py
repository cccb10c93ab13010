"""The command line: `fedmin demo`, `fedmin list`, `fedmin version`.

What only one command needs is imported inside it. Bad input ends in one red line on standard error
and exit code 2; a traceback means a bug.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

app = typer.Typer(
    help="Federated optimization: minimize a function of data that may not leave its owners.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def plainly(command: Callable) -> Callable:
    """Bad input becomes one red line and exit code 2, instead of a traceback."""

    @wraps(command)
    def run(*args, **options):
        try:
            return command(*args, **options)
        except (ValueError, OSError) as error:
            line = Text.assemble(("error: ", "bold red"), (str(error), "red"))
            Console(stderr=True, soft_wrap=True).print(line)
            raise typer.Exit(2) from None

    return run


@app.command()
@plainly
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the pictures; made if it is not there.")
    ] = Path("fedmin-demo"),
) -> None:
    """FedAvg against SCAFFOLD on non-IID digits, ending with a picture."""
    import time

    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from fedmin import demo as experiment

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
    _print_finals(found.results)
    typer.echo(f"done in {time.perf_counter() - begin:.0f} s")
    typer.echo(f"picture: {found.picture.resolve()}")
    typer.echo(f"page:    {found.page.resolve()}")


def _print_finals(results: dict) -> None:
    from fedmin.demo import step_of
    from fedmin.listing import show

    head = ["method", "step", "objective", "test accuracy", "MB sent", "rounds"]
    lines = [
        [
            name,
            f"{step_of(run):g}",
            f"{run.final('objective'):.4f}",
            f"{run.final('accuracy'):.1%}",
            f"{run.ledger.bytes() / 1e6:.2f}",
            str(run.rounds),
        ]
        for name, run in results.items()
    ]
    show(head, lines, right=head[1:])


@app.command("list")
@plainly
def list_(
    category: Annotated[
        str, typer.Argument(help="methods, problems, data, ...; all categories if left out.")
    ] = "",
) -> None:
    """What there is: methods, problems, data, partitioners, domains, channels, ..."""
    from fedmin import listing

    listing.show(*listing.lines(category), right=listing.NUMBERS)


@app.command()
@plainly
def version() -> None:
    """The versions of fedmin, JAX and Python, and the devices."""
    from fedmin.reports.versions import versions

    found = versions()
    width = max(map(len, found))
    for name, value in found.items():
        typer.echo(f"{name.ljust(width)}  {value}")


if __name__ == "__main__":
    app()
