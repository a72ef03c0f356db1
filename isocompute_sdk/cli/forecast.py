"""`isocompute forecast`: where runs that are going on will be, and what to do with the rest of their budget."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.options import changed_options, with_option_groups
from isocompute_sdk.cli.shared.output import aligned, emit_json, say
from isocompute_sdk.cli.shared.planning_options import SpeedOptions, of_option
from isocompute_sdk.cli.shared.reading_options import ReadingOptions, as_study
from isocompute_sdk.cli.shared.typed import filled
from isocompute_sdk.errors import FitError, IsoComputeError, PlanError, RecordError, SpecError
from isocompute_sdk.phrases import counted, multiple, or_unknown, printable, short

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.fitting.forecast import Forecast
    from isocompute_sdk.ingest.saved_checkpoints import SavedCheckpoint
    from isocompute_sdk.records import RunSet

_REST = "Remaining budget"
MAX_WHOLE = 4
"""Runs that are told in full; of more there is a line each."""


@dataclass(frozen=True, kw_only=True)
class RestOptions(SpeedOptions):
    """What is left of a run's budget, how fast its machines are, and how to follow the answer, as typed."""

    remaining: Annotated[
        str | None,
        opt.option("What remains: 2M (rollouts), '100 GPU-hours'. Compares ways to spend it.", _REST, "--remaining"),
    ] = None
    follow: Annotated[
        str | None, opt.option("Option whose commands to print; by default the best.", _REST, "--follow")
    ] = None
    plan: Annotated[Path, opt.option("Where to save the plan that the commands use.", _REST, "--plan")] = Path(
        "replan-plan.json"
    )
    backend: Annotated[
        str | None, opt.backend("Training framework for the commands; by default the one that wrote the logs.", _REST)
    ] = None


@with_option_groups
def forecast(
    *,
    logs: Annotated[
        list[Path] | None, typer.Argument(help="Logs of any runs: files, folders or globs; or saved fits.")
    ] = None,
    to: Annotated[str, opt.option("How far ahead, as a multiple of the run's compute: 2x, 4x.", None, "--to")] = "4x",
    run: Annotated[
        str | None,
        opt.option(
            "Run to forecast; by default every run, or with --remaining the one in the last path.", None, "--run"
        ),
    ] = None,
    checkpoints: opt.Checkpoints = None,
    rest: RestOptions,
    reading: ReadingOptions,
    eval_set: opt.EvalSet = None,
    pool: opt.Pool = None,
    bounds: opt.Bounds = (0.0, 1.0),
    level: opt.Level = 0.8,
    seed: opt.Seed = 0,
    output: Annotated[
        Path | None, opt.option("Save here: JSON, or a picture (.png, .svg, .pdf).", "Output", "--output", "-o")
    ] = None,
    verbose: opt.Verbose = False,
    json: opt.Json = False,
) -> None:
    """Forecast runs in progress: reward at 2x and 4x, when a run levels off, whether it falls, what to do.

    One run is enough, but says nothing about another n, a second rise or a later fall. Without validation rewards it
    forecasts the training reward, with a warning. More than four runs get a line each; those that should not go on as
    they are come first.

    --remaining asks what to do with the rest of a run's budget. It shows where trouble began, the last healthy
    checkpoint on disk, the sunk cost, and the predicted rewards of each option: go on; roll back with KL term and
    entropy bonus on (easy sets) or off (hard sets); halve the learning rate; stop; or, if the logs hold runs of several
    n, a new run. Each option says whether its effect was measured in the paper, seen in your data, or is a guess. It
    prints the commands of the best one.

    Examples:
        isocompute forecast runs/mine

        isocompute forecast wandb.csv --to 2x --json

        isocompute forecast logs/ --run exp7 --set n=8 --set problems_per_batch=32 -o exp7.png

        isocompute forecast sweep.csv runs/plan --remaining '500 GPU-hours'

        isocompute forecast logs/ --run exp7 --remaining 800k --follow halve-learning-rate --backend verl
    """
    from isocompute_sdk import api
    from isocompute_sdk.ingest.saved_checkpoints import find_checkpoints, of_run
    from isocompute_sdk.reporting.wording import fitted_words

    typed = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*x?\s*", to)
    if typed is None:
        raise SpecError(f"--to {to!r}; accepted: a multiple of the run's compute", "For example --to 4x.")
    settings: dict[str, Any] = {"to": float(typed[1]), "bounds": bounds, "level": level, "rng": seed}
    if rest.remaining is None and (refused := changed_options(rest)):
        raise SpecError(f"{refused[0]} works only with --remaining", "Add --remaining 2M.")
    left_out: dict[str, str] = {}
    runs, sweep, apart = _read(logs, reading, eval_set, pool or (), bounds, seed, left_out)
    saved = find_checkpoints([*reading.places(logs), *(checkpoints or ())])
    if rest.remaining is not None:
        run = _newest(reading, logs, runs) if run is None else run
        name = next(iter(runs.run_ids)) if run is None and len(runs.run_ids) == 1 else run
        apart = apart or _without_metric(runs, sweep, name)
        own = saved if name is None else of_run(saved, name, [name] if checkpoints else runs.run_ids)
        mine = runs if name is None else runs.filter(run_id=name)
        behind = sweep or api.fit(mine, reading.metric, eval_set, bounds=bounds, rng=seed)
        given = [] if reading.saved(logs) else fitted_words(behind)
        plan_anew = [
            "isocompute allocate",
            *reading.sources(logs),
            *given,
            f"--budget {quote(rest.remaining)}",
            *rest.words(),
        ]
        _replan(runs, name, behind, own, rest, seed, output, plan_anew, json=json)
        if not json:
            _say_left_out(left_out, apart)
        return
    names = list(runs.run_ids) if run is None else [run]
    apart = apart or _without_metric(runs, sweep, run)
    places = [run] if run is not None and checkpoints else runs.run_ids
    own = {name: [(one.step, str(one.path)) for one in of_run(saved, name, places)] for name in names}
    found, failed = _forecasts(own, runs, sweep, reading.metric, eval_set, settings)
    if not found:
        raise next(iter(failed.values()))
    left_out |= {name: error.message for name, error in failed.items()}
    written = _written(found, output)
    if json:
        documents = [one.to_dict() for one in found]
        several = {"kind": "forecasts", "forecasts": documents, "left_out": left_out}
        emit_json(documents[0] if run is not None or len(names) == 1 else several)
        return
    if len(found) > MAX_WHOLE and not verbose:
        _print_table(found)
    else:
        say("\n".join(one.summary() for one in found))
    _say_left_out(left_out, apart)
    for path in written:
        say(f"wrote {path}")


def _read(
    logs: list[Path] | None,
    reading: ReadingOptions,
    eval_set: str | None,
    pool: Sequence[str],
    bounds: tuple[float, float],
    seed: int,
    left_out: dict[str, str],
) -> tuple[RunSet, Fits | None, IsoComputeError | None]:
    """The runs, and fits of several together or why there are none."""
    from isocompute_sdk import api
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.records.comparable import EVAL_SET

    if (file := reading.saved(logs)) is not None:
        fits = Fits.load(file)
        return api.runs_of(fits, "forecast"), fits, None
    runs = reading.read(logs, reading.metric, left_out=left_out)
    if len(runs.run_ids) < 2:
        # Its surface is that of its fit, without the checks of a sweep.
        return runs, None, None
    try:
        pool, where = as_study(logs, pool, eval_set)
        # Also a run that is forecast without the others has that set.
        runs = runs.on_one_set(where) if EVAL_SET in pool else runs
        return runs, api.fit(runs, reading.metric, where, bounds=bounds, rng=seed, pool=pool), None
    except (FitError, RecordError) as error:
        return runs, None, error


def _without_metric(runs: RunSet, sweep: Fits | None, name: str | None) -> IsoComputeError | None:
    """That no other run has the metric of a run's forecast, with the option that gives it to them."""
    from isocompute_sdk.records.grouping import measured_as
    from isocompute_sdk.records.reward_metrics import headline, is_training_reward, measured_in

    others = [run for run in runs.run_ids if run != name]
    if sweep is None or name is None or not others or measured_as(sweep.metric, runs.filter(run_id=others).metrics):
        return None
    found = headline(measured_in(runs.filter(run_id=others).to_polars()))
    if found is None:
        return RecordError(f"they have no {sweep.metric}", "Give logs that have it.")
    theirs = found[0]
    options = [f"--rename {quote(f'{theirs}={sweep.metric}')}"]
    if is_training_reward(theirs):
        options = [f"--metric {quote(theirs)}"] if theirs in runs.filter(run_id=name).metrics else []
    hint = f"If {theirs} is the same reward, name both alike."
    return RecordError(f"they have {theirs}, not {sweep.metric}", hint, options)


def _forecasts(
    saved: Mapping[str, Sequence[tuple[int, str]]],
    runs: RunSet,
    sweep: Fits | None,
    metric: str | None,
    eval_set: str | None,
    settings: Mapping[str, Any],
) -> tuple[list[Forecast], dict[str, IsoComputeError]]:
    """Forecasts of runs, and why others have none; a run without the metric of the others is forecast alone.

    Args:
        saved: (step, folder) of the checkpoints of each run to forecast.
        runs: these and others.
        sweep: fits of all of them.
        metric: reward that was asked for.
        eval_set: evaluation set that was asked for.
        settings: further arguments of `api.forecast`.
    """
    from isocompute_sdk import api
    from isocompute_sdk.records.grouping import measured_as

    found: list[Forecast] = []
    failed = dict[str, IsoComputeError]()
    for name, mine in saved.items():
        try:
            alone = runs.filter(run_id=name)
            among = runs if sweep is None else sweep if measured_as(sweep.metric, alone.metrics) else alone
            found.append(api.forecast(among, name, metric, eval_set, checkpoints=mine, **settings))
        except (FitError, RecordError) as error:
            failed[name] = error
    return found, failed


def _newest(reading: ReadingOptions, logs: list[Path] | None, runs: RunSet) -> str | None:
    """The run of the last of several paths; None if it holds several."""
    if logs is None or len(logs) == 1:
        return None
    try:
        last = reading.read(logs[-1:], reading.metric).run_ids
    except RecordError:
        # Columns to rename or ignore may be those of the other paths alone.
        last = replace(reading, rename=None, ignore=None).read(logs[-1:], reading.metric).run_ids
    return last[0] if len(last) == 1 and last[0] in runs.run_ids else None


def _say_left_out(left_out: Mapping[str, str], apart: IsoComputeError | None) -> None:
    """Which runs have no forecast, and why a run is forecast without the others that were given."""
    if apart is not None:
        ways = f"If they are comparable, add {' '.join(apart.options)}" if apart.options else apart.shell_hint
        say(printable(filled(f"other runs are not used: {apart.message}. {ways}", sys.argv[1:])))
    for name, why in left_out.items():
        say(printable(f"left out: {name}: {why}"))


def _print_table(found: Sequence[Forecast]) -> None:
    """One line per run, those that had better not go on first."""
    first, counts = found[0], Counter(one.card.action for one in found)
    say(f"{counted(len(found), 'run')}, {first.metric}: {', '.join(f'{n} {action}' for action, n in counts.items())}")
    to = f"best by {multiple(first.ahead[-1].factor)}x, {first.level:.0%}"
    # Names may be long, and are needed whole.
    rows = [("", "n x B_p", "rollouts", "now", to, "run")]
    for one in sorted(found, key=lambda one: (one.card.action == "go-on", one.rises)):
        far, problems = one.ahead[-1], or_unknown(one.problems_per_batch)
        ahead = f"{far.best_low:.3f} to {far.best_high:.3f}" if one.rises and not one.lost else ""
        now = "no rise" if not one.rises else "lost" if one.lost else f"{one.reward:.3f}{'*' * bool(one.missed)}"
        sizes = f"{one.group_size} x {problems}"
        rows.append((one.card.action, sizes, short(one.rollouts), now, ahead, printable(one.run_id)))
    say("\n".join(aligned(rows)))
    if any(one.missed and one.told for one in found):
        say("now: by the fitted curve; *: mean of the last 3 evaluations, which the curve misses")
    say("details: --run NAME, or -v for all")


def _written(found: list[Forecast], output: Path | None) -> list[Path]:
    """Save the forecasts or their pictures; several get the run's name before the suffix."""
    if output is None:
        return []
    paths = [output]
    if len(found) > 1:
        paths = [output.with_stem(f"{output.stem}_{re.sub(r'[^A-Za-z0-9._-]+', '_', one.run_id)}") for one in found]
    if output.suffix == ".json":
        return [one.save(path) for one, path in zip(found, paths, strict=True)]
    from isocompute_sdk.plots import forecast as draw
    from isocompute_sdk.plots import save_figure

    return [save_figure(draw(one), path) for one, path in zip(found, paths, strict=True)]


def _replan(
    runs: RunSet,
    name: str | None,
    fits: Fits,
    checkpoints: Sequence[SavedCheckpoint],
    rest: RestOptions,
    seed: int,
    output: Path | None,
    plan_anew: Sequence[str],
    *,
    json: bool,
) -> None:
    """Show what can be done with the rest of a run's budget, and save the plan that its commands start from."""
    from isocompute_sdk.planning import Planner
    from isocompute_sdk.specs import Budget

    assert rest.remaining is not None, "checked by the caller"
    with of_option("--remaining", "For example 2M or '100 GPU-hours'."):
        remaining = rest.in_time(Budget.parse(rest.remaining))
    planner = Planner(fits, rest.hardware(remaining), throughput=rest.speed())
    answer = planner.replan(runs, remaining, run_id=name, checkpoints=checkpoints, rng=seed)
    commands, refused = (), None
    try:
        commands = answer.commands(rest.follow, str(rest.plan), rest.backend)
    except PlanError as error:
        if rest.follow is not None:
            raise
        refused = error
    if commands and answer.plan is not None:
        answer.plan.save(rest.plan)
    if output is not None:
        answer.save(output)
    if json:
        emit_json({**answer.to_dict(), "commands": list(commands)})
        return
    rest.say_deadline(remaining)
    say(answer.summary())
    asked, batch = remaining.rollouts, answer.group_size * answer.problems_per_batch
    if remaining.deadline_hours is not None and asked is not None and asked - answer.remaining >= batch:
        say(f"the deadline leaves time for {answer.remaining:,.0f} of {asked:,} rollouts")
    if commands:
        say(f"wrote {rest.plan}")
        used = rest.backend or answer.backend
        ended = ", if the run has ended" if (rest.follow or answer.follow) == "go-on" else ""
        say(f"next{ended}, in the folder of your data and reward file, with {used} (another framework: --backend):")
        for line in commands:
            say(f"  {line}")
    if (rest.follow or answer.follow) == "new-run":
        say(f"next: {' '.join(plan_anew)} --output plan.json")
    if refused is not None:
        say(f"no commands: {refused.message}\n  {refused.shell_hint}")
    if output is not None:
        say(f"wrote {output}")
