"""`isocompute report`: the answer on one page, or one figure."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.options import with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.planning_options import BudgetOptions, Compare
from isocompute_sdk.cli.shared.reading_options import FittingOptions
from isocompute_sdk.cli.shared.typed import without
from isocompute_sdk.cli.shared.work_progress import WorkProgress
from isocompute_sdk.errors import SpecError
from isocompute_sdk.phrases import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


LEFT_OUT = ("--budget", "--spent", "--compare", "--against", "--output", "-o", "--json")
"""Options that commands on the page give anew."""
USUAL, FIGURE = Path("report.html"), Path("figure.png")
FITTED = ("curves", "allocation", "sensitivity-n", "backtest")
MEASURED = "evaluations"
AUDITED = ("runs", "costs")
FIGURES = (*FITTED, MEASURED, *AUDITED)


@with_option_groups
def report(
    *,
    source: Annotated[
        list[Path] | None,
        typer.Argument(help="Folder of a campaign or of runs; saved plan, fits or audit (JSON); tables or logs."),
    ] = None,
    figure: Annotated[
        str | None,
        typer.Option(
            "--figure",
            autocompletion=lambda: list(FIGURES),
            help=f"Draw one figure instead of the page. From runs, fits and plans: {', '.join(FITTED)}. From runs: "
            f"{', '.join((MEASURED, *AUDITED))}.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help=f"File to write: {USUAL}, or {FIGURE} (also .svg, .pdf).",
            show_default=False,
            rich_help_panel=opt.OUTPUT,
        ),
    ] = None,
    fitting: FittingOptions,
    planning: BudgetOptions,
    compare: Compare = None,
    json: opt.Json = False,
) -> None:
    """Write the answer on one page: one HTML file that needs no network and opens in any browser.

    It says what to run, at what cost, what to expect and how sure that is. Below are the curves, a slider over budgets,
    the backtest, the health of the runs and the launch script. If something cannot be fitted or planned, it says why.

    Examples:
        isocompute report isocompute-quickstart

        isocompute report plan.json -o plan.html

        isocompute report runs/ --budget 3M --against n=16,bp=32

        isocompute report runs.csv --budget "500 usd" --throughput speed.yaml --usd-per-gpu-hour 2.5

        isocompute report plan.json --figure allocation -o allocation.pdf
    """
    from isocompute_sdk.reporting.drawing.html import write
    from isocompute_sdk.reporting.material import Asked, gather
    from isocompute_sdk.reporting.report import build

    fitting.saved(source)
    if figure is not None:
        from isocompute_sdk.plots import save_figure

        drawn = save_figure(_figure(source, figure, fitting, planning), output or FIGURE)
        if json:
            emit_json({"kind": "figure", "file": str(drawn)})
        else:
            say(f"wrote {drawn}")
        return
    fitting.refuse_both(source, "`isocompute report runs/`")
    if compare is not None:
        from isocompute_sdk.planning.comparing import parse_configuration

        parse_configuration(compare)
    if planning.budget is None and (planning.deadline or planning.spent):
        raise SpecError("--deadline and --spent work only with --budget", "Add the budget: --budget 3M.")
    page = output or USUAL
    typed = without(sys.argv[2:], LEFT_OUT)
    limit = planning.max_rollouts_per_batch
    asked = Asked(
        budget=None if planning.budget is None else planning.amount(),
        compare=compare,
        planner=planning.changed_arguments(),
        options=planning.choices(),
        fit=opt.given_beside(fitting.fit_arguments(max_rollouts_per_batch=limit), FittingOptions().fit_arguments()),
        reading=fitting.arguments(),
        words=tuple(shlex.quote(word) for word in typed if Path(word) not in (source or ())),
        output="" if output is None else f"--output {shlex.quote(str(page))}",
        must_plan=planning.budget is not None,
    )
    progress = WorkProgress()
    progress.stage("reading and fitting")
    material = gather(source if source is not None else fitting.read(None), asked)
    progress.stage("planning other budgets and drawing")
    path = write(build(material), page)
    if json:
        emit_json({"kind": "report", "file": str(path)})
        return
    say(f"wrote {path}")
    if material.plan is None and material.problem:
        say(printable(f"without a plan: {material.problem}"))
        if material.mends:
            say(printable(f"next: {material.again(*material.mends)}"))


def _figure(source: list[Path] | None, kind: str, fitting: FittingOptions, planning: BudgetOptions) -> Axes:
    """Draw one figure of saved fits or a plan, or of runs: fitted where the figure needs it, planned with a budget."""
    from isocompute_sdk import plots
    from isocompute_sdk.auditing import audit
    from isocompute_sdk.auditing.result import AUDIT
    from isocompute_sdk.fitting.fits import FITS, Fits
    from isocompute_sdk.planning import Plan
    from isocompute_sdk.planning.plan import DOCUMENT

    if kind not in FIGURES:
        raise SpecError(f"--figure {kind!r}; accepted: {', '.join(FIGURES)}", "Use one of these.")
    options: dict[str, Any] = {}
    if planning.problems_per_batch is not None:
        if kind not in ("curves", "sensitivity-n"):
            raise SpecError("--problems-per-batch works only with --figure curves and sensitivity-n", "Leave it out.")
        options["problems_per_batch"] = planning.problems_per_batch
    metric = fitting.metric[0] if fitting.metric else None
    first = source[0] if source is not None and len(source) == 1 else None
    if first is not None and first.suffix == ".json" and first.is_file():
        for document, kept in ((DOCUMENT, Plan), (FITS, Fits)):
            if document.holds(first):
                refused = [name for name in opt.changed_options(planning) if name != "--problems-per-batch"]
                if refused:
                    raise SpecError(
                        f"{', '.join(refused)} with --figure: {first} is drawn as it was saved",
                        "Leave it out, plan again and draw the new plan, or write the page.",
                    )
                return plots.plot(kept.load(first), kind, **options)
        if AUDIT.holds(first):
            raise SpecError(
                f"--figure {kind} of the saved audit {first}; accepted: of runs",
                "Give the files that it was made from.",
            )
    if kind in AUDITED:
        runs = fitting.read(source, metric)
        pool = tuple(fitting.pool or ())
        found = audit(runs, metric, fitting.eval_set, pool=pool, bounds=fitting.bounds, rng=fitting.seed)
        return plots.plot(found, kind)
    if kind == MEASURED:
        return plots.plot(fitting.read(source, metric), kind, metric=metric, eval_set=fitting.eval_set)
    found = fitting.fit(source)
    fits = found if isinstance(found, Fits) else found.first
    if planning.budget is None:
        return plots.plot(fits, kind, **options)
    return plots.plot(planning.planner(fits).allocate(planning.amount(), **planning.choices()), kind, **options)
