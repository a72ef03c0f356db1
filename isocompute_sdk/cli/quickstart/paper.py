"""`isocompute quickstart --paper`: the paper's measured points, from data to a launch script."""

from __future__ import annotations

from pathlib import Path

from isocompute_sdk import files
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.display import print_fits, print_plan
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.typed import Typed
from isocompute_sdk.cli.shared.work_progress import WorkProgress

BUDGET, FOLDER = "3M", Path("isocompute-paper")


def run_paper(budget: str, output: Path, *, verbose: bool, json: bool) -> None:
    """Fit the paper's own measurements, plan a budget, write script and pictures into one folder."""
    from isocompute_sdk import api
    from isocompute_sdk.laws import measured_easy
    from isocompute_sdk.planning import Planner
    from isocompute_sdk.records import RunSet
    from isocompute_sdk.reporting.report import FILE, report
    from isocompute_sdk.specs import Recipe

    with WorkProgress() as progress:
        progress.stage("reading the digitised points of the paper's fig. 6")
        columns, context = measured_easy()
        runs = RunSet.from_columns(columns, metric="avg@4", **context)
        progress.stage("fitting reward curves, frontier and law")
        fits = api.fit(runs, method="paper", points="all")
        progress.stage("planning")
        # These runs were trained with this preset.
        plan = Planner(fits, recipe=Recipe.preset("easy")).allocate(budget)
        progress.stage("writing script and pictures")
        script = plan.launch_script("openrlhf", output_dir="runs/quickstart")
        written = [
            files.write_text(output / "runs.csv", runs.to_polars().write_csv()),
            fits.save(output / "fits.json"),
            plan.save(output / "plan.json"),
            files.write_text(output / "launch.sh", script, executable=True),
            *opt.save_pictures(plan, output),
            report(plan, output / FILE),
        ]
    if json:
        emit_json({**plan.to_dict(with_fits=False), "files": [str(path) for path in written]})
        return
    words = ("allocate", str(output / "runs.csv"), "--method", "paper", "--points", "all", "--budget", budget)
    file = output / "plan.json"
    print_plan(plan, Typed(words), verbose=verbose, plan_file=file, saved=[file])
    say(f"the answer on one page: {output / FILE}; beside it " + ", ".join(path.name for path in written[:-1]))
    say("with your own runs: isocompute allocate RUNS --budget 3M --output plan.json --plot pictures")
    if verbose:
        say(f"\n{len(runs):,} validation rewards of {fits.model} on Guru-Math Easy, read off the paper's fig. 6")
        print_fits(fits, with_notes=False)
