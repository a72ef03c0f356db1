"""`isocompute plot`: one figure of runs, fits, a plan or folders of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.fitting_options import FittingOptions
from isocompute_sdk.cli.shared.option_groups import with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.errors import SpecError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.planning import Plan

FITTED = ("curves", "allocation", "steps", "sensitivity-n", "sensitivity-bp", "backtest")
MEASURED = ("evaluations", "coverage", "records", "side-by-side")
AUDITED = ("runs", "costs")
OF_PROBLEMS = ("pass-rates", "difficulty")
KINDS = (*FITTED, *MEASURED, *AUDITED, *OF_PROBLEMS)


@with_option_groups
def plot(
    *,
    source: Annotated[
        list[Path] | None,
        typer.Argument(help="Tables or logs: files, folders or globs; or a saved plan or fits (JSON)."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            autocompletion=lambda: list(KINDS),
            help=f"Of runs, fits and plans: {', '.join(FITTED)}. Of runs: {', '.join((*MEASURED, *AUDITED))}. Of "
            f"folders of runs with pass counts: {', '.join(OF_PROBLEMS)}. By default curves.",
        ),
    ] = None,
    problems_per_batch: Annotated[
        int | None, opt.count("--problems-per-batch", "B_p of curves and sensitivity-n.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write: .png, .svg or .pdf.", rich_help_panel=opt.OUTPUT)
    ] = Path("figure.png"),
    fitting: FittingOptions,
    json: opt.Json = False,
) -> None:
    """Draw one figure: reward curves, the best n by budget, a backtest, coverage, pass rates by problem, ...

    Runs are fitted where the figure needs it. Missing data are an error that names what is needed.

    Examples:
        isocompute plot plan.json --kind allocation -o allocation.pdf

        isocompute plot runs/ --kind backtest -o backtest.svg

        isocompute plot runs.csv --kind coverage -o coverage.png

        isocompute plot isocompute-quickstart/runs --kind pass-rates -o pass_rates.png
    """
    from isocompute_sdk import plots

    if kind is not None and kind not in KINDS:
        raise SpecError(f"--kind {kind!r}; accepted: {', '.join(KINDS)}", "Use one of these.")
    options: dict[str, Any] = {}
    if problems_per_batch is not None:
        if kind not in (None, "curves", "sensitivity-n"):
            raise SpecError(
                f"--problems-per-batch with --kind {kind}; accepted: with curves and sensitivity-n", "Leave it out."
            )
        options["problems_per_batch"] = problems_per_batch
    axes = _draw(source, kind, fitting, options)
    path = plots.save_figure(plots.figure_of(axes), output)
    if json:
        emit_json({"kind": "figure", "file": str(path)})
    else:
        say(f"wrote {path}")


def _draw(source: list[Path] | None, kind: str | None, fitting: FittingOptions, options: dict[str, Any]) -> Axes:
    from isocompute_sdk import plots
    from isocompute_sdk.auditing import audit
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.plots.problems import base_passes

    if kind in OF_PROBLEMS:
        if not source:
            raise SpecError(
                f"--kind {kind} without a folder; accepted: folders of runs", "Give the folder of the runs."
            )
        if kind == "pass-rates":
            return plots.pass_rates(source, eval_set=fitting.eval_set)
        return plots.difficulty(*base_passes(source, fitting.eval_set))
    if source is not None and len(source) == 1 and (saved := _saved(source[0])) is not None:
        return plots.plot(saved, kind, **options)
    metric = fitting.metric[0] if fitting.metric else None
    if kind in (*MEASURED, *AUDITED):
        runs = fitting.read(source, metric)
        if kind in AUDITED:
            return plots.plot(
                audit(runs, metric, fitting.eval_set, pool=tuple(fitting.pool or ()), rng=fitting.seed), kind
            )
        sets = {} if kind == "side-by-side" else {"eval_set": fitting.eval_set}
        return plots.plot(runs, kind, **sets, **({} if kind == "coverage" else {"metric": metric}))
    fits = fitting.fit(source)
    return plots.plot(fits if isinstance(fits, Fits) else fits.first, kind, **options)


def _saved(path: Path) -> Plan | Fits | None:
    """The plan or fits that a file holds; None for runs."""
    from isocompute_sdk.fitting.fits import FITS, Fits
    from isocompute_sdk.planning import Plan
    from isocompute_sdk.planning.plan import DOCUMENT

    if path.suffix != ".json" or not path.is_file():
        return None
    return Plan.load(path) if DOCUMENT.holds(path) else Fits.load(path) if FITS.holds(path) else None
