"""`isocompute forecast`: where runs that are going on will be, and whether to go on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.option_groups import with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.reading_options import ReadingOptions
from isocompute_sdk.errors import FitError, SpecError
from isocompute_sdk.phrases import printable

if TYPE_CHECKING:
    from isocompute_sdk.fitting.forecast import Forecast

Run = Annotated[str | None, typer.Option("--run", help="Run to look at; by default every run of the logs.")]
Bounds = Annotated[tuple[float, float], typer.Option(help="Range of the metric.")]


@with_option_groups
def forecast(
    *,
    logs: Annotated[
        list[Path] | None, typer.Argument(help="Logs of runs, ours or not: files, folders or globs.")
    ] = None,
    to: Annotated[str, typer.Option("--to", help="How far ahead, as a multiple of the run's compute: 2x, 4x.")] = "4x",
    run: Run = None,
    fits: Annotated[
        Path | None, typer.Option(help="Saved fits of a sweep of the same recipe: its other runs serve as prior.")
    ] = None,
    reading: ReadingOptions,
    eval_set: opt.EvalSet = None,
    bounds: Bounds = (0.0, 1.0),
    level: Annotated[float, typer.Option(help="Coverage of the intervals.")] = 0.8,
    seed: opt.Seed = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Save here: JSON, or a picture (.png, .svg, .pdf).", rich_help_panel="Output"
        ),
    ] = None,
    json: opt.Json = False,
) -> None:
    """Forecast runs that are going on: reward at 2x and 4x, when a run is flat, whether it falls, what to do.

    One run is enough. It says nothing about another n, and shows no second rise or fall that begins later. Without
    validation rewards the training reward is forecast, with a warning.

    Examples:
        isocompute forecast runs/mine

        isocompute forecast wandb.csv --to 2x --json

        isocompute forecast logs/ --run exp7 --set n=8 --set problems_per_batch=32 -o exp7.png
    """
    from isocompute_sdk import api
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.ingest.saved_checkpoints import find_checkpoints, of_run

    factor = multiple(to)
    runs = reading.read(logs, reading.metric)
    sweep = None if fits is None else Fits.load(fits)
    saved = find_checkpoints(logs or ())
    names = list(runs.run_ids) if run is None else [run]
    found: list[Forecast] = []
    failed: dict[str, FitError] = {}
    for name in names:
        mine = [(one.step, str(one.path)) for one in of_run(saved, name, runs.run_ids)]
        try:
            found.append(
                api.forecast(
                    runs,
                    name,
                    reading.metric,
                    eval_set,
                    to=factor,
                    bounds=bounds,
                    level=level,
                    checkpoints=mine,
                    sweep=sweep,
                    rng=seed,
                )
            )
        except FitError as error:
            failed[name] = error
    if not found:
        raise next(iter(failed.values()))
    written = _written(found, output)
    if json:
        left_out = {name: error.message for name, error in failed.items()}
        documents = [one.to_dict() for one in found]
        emit_json(documents[0] if run is not None or len(names) == 1 else _together(documents, left_out))
        return
    for one in found:
        say(one.summary())
    for name, error in failed.items():
        say(printable(f"{name}: not forecast: {error.message}"))
    for path in written:
        say(f"wrote {path}")


def multiple(text: str) -> float:
    """A multiple such as `4x`, `4` or `1.5x`.

    Raises:
        SpecError: another text.
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*x?\s*", text)
    if found is None:
        raise SpecError(f"--to {text!r}; accepted: a multiple of the run's compute", "For example --to 4x.")
    return float(found.group(1))


def _together(documents: list[dict[str, object]], left_out: dict[str, str]) -> dict[str, object]:
    return {"kind": "forecasts", "forecasts": documents, "left_out": left_out}


def _written(found: list[Forecast], output: Path | None) -> list[Path]:
    """Save the forecasts or their pictures; several get the run's name before the suffix."""
    if output is None:
        return []
    paths = [output]
    if len(found) > 1:
        paths = [output.with_stem(f"{output.stem}_{re.sub(r'[^A-Za-z0-9._-]+', '_', one.run_id)}") for one in found]
    if output.suffix == ".json":
        return [one.save(path) for one, path in zip(found, paths, strict=True)]
    from isocompute_sdk.plots import plot_forecast, save_figure

    return [save_figure(plot_forecast(one), path) for one, path in zip(found, paths, strict=True)]
