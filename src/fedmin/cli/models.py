"""The commands `fedmin predict` and `fedmin explain`: what a run's model says, and of new rows."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedmin.cli.errors import check_out, plain_errors

group = typer.Typer()  # its commands are those of fedmin itself

MODEL = typer.Argument(help="A model.json, or the folder of a run.")


@group.command()
@plain_errors
def predict(
    model: Annotated[Path, MODEL],
    rows: Annotated[Path, typer.Argument(help="Raw rows, CSV or Parquet.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="CSV.")] = Path("predictions.csv"),
    separator: Annotated[str, typer.Option(help="Between the entries of a CSV file.")] = ",",
) -> None:
    """Predict for the raw rows of a file: its columns, and those of the predictions after them."""
    import csv
    import io

    from fedmin.core.files import write_text
    from fedmin.core.raw_rows import file_columns

    found = _model(model)
    check_out(out)
    columns, place = file_columns(rows, separator)
    made = _predictions(found, (columns, place))
    twice = [name for name in made if name in columns]
    if twice:
        raise ValueError(f"{rows}: it has a column {twice[0]!r} already; rename it")
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    whole = {**columns, **made}
    writer.writerow(whole)
    writer.writerows(zip(*whole.values(), strict=True))
    write_text(out, text.getvalue())
    count = len(next(iter(made.values())))
    typer.echo(f"{out}: {count} rows; {', '.join(made)} by {found!r}")


def _predictions(model: Any, source: Any) -> dict[str, list[Any]]:
    """Columns of what is predicted: the label and how probable each is, or a number."""
    name = f"predicted {model.about.outcome}"
    made = {name: model.predict(source).tolist()}
    if model.classes is not None:
        odds = model.predict_proba(source)
        made |= {f"probability of {c}": odds[:, k].tolist() for k, c in enumerate(model.classes)}
    return made


@group.command()
@plain_errors
def explain(
    model: Annotated[Path, MODEL],
    plot: Annotated[Path | None, typer.Option(help="Draw the coefficients here, PNG.")] = None,
) -> None:
    """Coefficients on the original scale, odds or rate ratios, and what the model came from."""
    found = _model(model)
    if plot is not None:
        check_out(plot)
    typer.echo(str(found))
    if plot is not None:
        from fedmin.reports.model_figure import model_figure

        typer.echo(f"picture: {model_figure(found, plot)}")


def _model(path: Path) -> Any:
    from fedmin.core.model import Model
    from fedmin.runs.registries import registered_classes

    if path.is_dir() and not (path / "model.json").exists():
        raise ValueError(
            f"{path} has no model.json: it is no folder of a run, or of one whose problem predicts "
            f"nothing, or it has not ended"
        )
    return Model.load(path, also=registered_classes())
