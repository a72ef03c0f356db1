"""`isocompute next`: what to run before a budget is spent."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk import files
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.display import going_on, print_first_notes, what_next
from isocompute_sdk.cli.shared.following import say_first, under_way
from isocompute_sdk.cli.shared.new_runs import pooled, rewards, unknown_settings
from isocompute_sdk.cli.shared.options import YAML, changed_options, with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.planning_options import BorrowedOptions, BudgetOptions
from isocompute_sdk.cli.shared.reading_options import FittingOptions, holds_fits
from isocompute_sdk.cli.shared.typed import Typed, without
from isocompute_sdk.errors import PlanError, SpecError
from isocompute_sdk.phrases import joined, listed

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits, FitsSet
    from isocompute_sdk.ingest.saved_checkpoints import SavedCheckpoint
    from isocompute_sdk.planning import NextRun, NextRuns, PilotDesign, Plan, Planner
    from isocompute_sdk.specs import Budget, Study

PLAN = "next-plan.json"
"""What the runs to make first are launched from: plan.json is that of the whole budget."""
NEXT_STUDY = "next.yaml"
"""Where a command that writes a study with its next runs puts it."""
MAPPED = ("--map", "--set", "--rename", "--ignore")
"""Options that say what the columns of a mapping mean; a table that was made from it says so itself."""
_MADE = re.compile(r"next-(\d+)")


@with_option_groups
def next_runs(
    *,
    source: Annotated[
        list[Path] | None,
        typer.Argument(help="Runs (tables or logs), saved fits (JSON), or a study (YAML). None: design a pilot."),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            help="Runs that can train at once: 1, or as many as the study says; no effect on a designed pilot.",
            min=1,
            show_default=False,
        ),
    ] = None,
    checkpoints: opt.Checkpoints = None,
    borrowed: BorrowedOptions,
    fitting: FittingOptions,
    planning: BudgetOptions,
    output: Annotated[
        Path | None, opt.option("Save the answer (JSON), or a study with these runs (YAML).", None, "--output", "-o")
    ] = None,
    json: opt.Json = False,
) -> None:
    """List the runs to make before spending a budget, with their cost and expected saving.

    A run is worth the loss it is expected to avoid at the target budget, less its own cost. "Run nothing first" means:
    train the plan. Without runs, it designs the first round of a pilot and shows the expected regret of pilots that
    cost 2 to 35 % of the budget.

    --output next.yaml, with a study, adds these runs to it for isocompute run; --output next.json saves the answer.

    Examples:
        isocompute next --budget 3M

        isocompute next runs.csv --budget 3M --slots 2

        isocompute next fits.json --budget "200 gpu_hours" --gpus 8 --rollouts-per-second 60

        isocompute next study.yaml --output next.yaml
    """
    from isocompute_sdk.planning import NextRuns

    paths, study, around = _sources(list(source or ()), planning)
    budget = _budget(planning, study if around is None else around[0], paths)
    if output is not None and output.suffix in YAML and study is None:
        raise SpecError(
            f"--output {output} without a study; accepted: .json, or .yaml with a study as the source",
            "Write a study as docs/study_file.md shows and give it instead of the runs; or leave --output out: the "
            "commands that make these runs are printed.",
        )
    if output is not None and output.suffix in YAML and study is not None and study.designed is not None:
        raise SpecError(
            f"--output {output} with a campaign, which makes its runs itself; accepted: .json", "Leave --output out."
        )
    if (paths or fitting.map is not None) and (refused := changed_options(borrowed)):
        raise SpecError(f"{refused[0]} works only without runs, to design a pilot", f"Leave out {refused[0]}.")
    with under_way(around):
        runs = _fits_of(paths, around, fitting, planning) if around is not None or study is None else None
    law = borrowed.law(planning.model, planning.recipe) if runs is None else runs
    planner, left, options = _asked(law, study, around, budget, planning)
    budget, choices = left or budget, dict[str, Any](options, **({} if slots is None else {"slots": slots}))
    plan = None if runs is None else planner.allocate(budget, **choices)
    # A plan does not say why no runs were looked for.
    found = None if plan is None else plan.next_runs or planner.next_runs(budget, **choices)
    found = found or _pilot(paths, study, budget, planning, planner)
    first = found if isinstance(found, NextRuns) else found.first
    lines, alone = list[str](), dict[str, Any](choices)
    alone["slots"] = 0
    if study is not None:
        lines = _study_commands(first, study, paths[0], around, output, planning)
        lines = lines or _training(plan or planner.allocate(budget, **alone), study, paths[0], around, planning)
    if output is not None:
        _write(output, found, first, study, paths, lines)
    if json:
        emit_json(found.to_dict())
        return
    say_first(around)
    planning.say_deadline(budget)
    say(found.summary())
    if study is not None and plan is not None and not first.runs:
        refused = plan.approval is not None and plan.approval.kind == "do-not" and not planner.fits.no_rise
        refused = refused and study.designed is not None
        lines = [*_against(plan), *(re.sub("^next", "to train it anyway", line) if refused else line for line in lines)]
    if plan is not None and runs is not None:
        print_first_notes(plan, alone=True)
    if output is not None:
        say(f"wrote {output}")
    if study is None:
        plan = plan or planner.allocate(budget, **(alone if first.runs else choices))
        fits = None if runs is None else planner.fits
        words = ("plan" if fits is None else "allocate", *sys.argv[2:], *_stated(plan, planning, around))
        typed = Typed(words, study=None if around is None else around[0])
        model = planning.model or (None if fits is None else fits.model)
        at_once = choices.get("slots", 1) if runs is not None else 1
        scripts = _scripts(first, plan, paths, checkpoints or (), fits, fitting, planning, typed, model, at_once)
        lines = scripts if first.runs else [*_against(plan), *what_next(plan, typed)]
    for line in lines:
        say(line)


def _asked(
    law: Fits | FitsSet,
    study: Study | None,
    around: tuple[Study, Path] | None,
    budget: Budget,
    planning: BudgetOptions,
) -> tuple[Planner, Budget | None, dict[str, Any]]:
    """The planner, the budget and the arguments of `allocate`, by the study, whether its runs have begun or not."""
    from isocompute_sdk.planning import Planner

    if study is None or around is not None:
        return planning.question(law, around, budget)
    return Planner.for_study(law, study, **planning.changed_arguments()), budget, planning.choices()


def _stated(plan: Plan, planning: BudgetOptions, around: tuple[Study, Path] | None) -> list[str]:
    """What the file of a study says and commands about its folder, with other runs beside it, have to say."""
    from isocompute_sdk.reporting.wording import budget_option, speed_options

    said = [budget_option(plan.budget.replace(spent=None))] if planning.budget is None else []
    said += [] if around is None else [one for one in speed_options(plan) if one.split()[0] not in sys.argv]
    return [word for option in said for word in shlex.split(option)]


def _study_commands(
    first: NextRuns,
    study: Study,
    path: Path,
    around: tuple[Study, Path] | None,
    output: Path | None,
    planning: BudgetOptions,
) -> list[str]:
    """What to type to make these runs in a study; without runs nothing, or how to run a study that trains its plan."""
    from isocompute_sdk.campaigns.overview import lies_in_campaign

    if study.designed is not None:
        # It makes them itself, by what its file says.
        folder = path.parent if lies_in_campaign(path, study) else None if around is None else around[1]
        return [planning.to_go_on(study, folder, path)]
    if not first.runs:
        return []
    if output is None or output.suffix not in YAML:
        again = shlex.join(without(sys.argv[1:], ("--output", "-o", "--json")))
        return [f"next: isocompute {again} --output {NEXT_STUDY} && isocompute run {NEXT_STUDY}"]
    return [f"next: isocompute run {quote(str(output))}"]


def _training(
    plan: Plan, study: Study, path: Path, around: tuple[Study, Path] | None, planning: BudgetOptions
) -> list[str]:
    """What to type to plan the budget of a study with a sweep: as in the folder of its runs, or without any."""
    from isocompute_sdk.reporting.wording import budget_option, speed_options
    from isocompute_sdk.specs import Recipe

    if around is not None:
        options = (word for word in sys.argv[2:] if Path(word) != path)
        words = ("allocate", str(around[1]), *options, *_stated(plan, planning, around))
        return what_next(plan, Typed(words, study=study))
    hardware, recipe = study.hardware, study.recipe
    words = ["plan --prior", f"--model {quote(study.model)}", f"--recipe {recipe.based_on}"]
    preset = Recipe.preset(recipe.based_on)
    changed = {name: getattr(recipe, name) for name in recipe.given if getattr(recipe, name) != getattr(preset, name)}
    words += [f"--recipe-value {name}={value}" for name, value in changed.items() if not isinstance(value, tuple)]
    limit = hardware.max_rollouts_per_batch
    words += [] if limit is None else [f"--max-rollouts-per-batch {limit}"]
    words += [budget_option(plan.budget), *speed_options(plan)]
    said = "gpus" in hardware.model_fields_set and not any(word.startswith("--gpus") for word in words)
    words += [f"--gpus {','.join(map(str, hardware.gpu_counts))}"] * said
    return [" ".join(["next: isocompute", *words])]


def _against(plan: Plan) -> list[str]:
    """What speaks against a plan before which nothing is run first."""
    from isocompute_sdk.reporting.wording import sentence

    against = plan.approval if plan.approval is not None and plan.approval.kind != "approve" else None
    flat = plan.fits is not None and plan.fits.flat_runs is not None
    said = plan.next_runs is not None and against is not None and plan.next_runs.reason == against.reason
    return [] if against is None or flat else [f"{against.label}. {'' if said else sentence(against.reason)}".strip()]


def _scripts(
    first: NextRuns,
    plan: Plan,
    paths: Sequence[Path],
    checkpoints: Sequence[Path],
    fits: Fits | None,
    fitting: FittingOptions,
    planning: BudgetOptions,
    typed: Typed,
    model: str | None,
    at_once: int,
) -> Iterator[str]:
    """What to type to make these runs: the question for settings that the runs do not record, plan, scripts."""
    from isocompute_sdk.timing.spending import elapsed
    from isocompute_sdk.training.checks import model_option

    is_saved = any(holds_fits(path) for path in paths)
    if unknown := unknown_settings(fits):
        yield (
            f"unknown: the runs do not record {listed(unknown, 4)}. The scripts below assume values, and runs with "
            "another recipe cannot be compared with yours: give yours with --set NAME=VALUE, and the scripts use them."
        )
    yield from ("scripts:", typed.saving(PLAN))
    cost, hours = yield from _launches(first, plan, fitting.places(paths), checkpoints, fits, model_option(model))
    made = _first_number(paths)
    folders = [f"next-{number}" for number in range(made, made + len(first.runs))]
    when = "when they have finished"
    if fits is not None and fits.bounds == (0.0, 100.0):
        when += " (your runs are in percent: multiply the new rewards by 100 first, unless the reward file gives 100)"
    if is_saved:
        yield f"{when}: plan again with all logs, yours and {joined(folders)}"
    else:
        rates = [plan.recipe.learning_rate(run.rollouts_per_batch) for run in first.runs]
        differ = [f"--pool {name}" for name in pooled(fits, rates) if name not in (fitting.pool or ())]
        before = plan.budget.spent or {}
        spent = {**before, "pilot": before.get("pilot", 0.0) + cost}
        digits = 0 if plan.budget.unit in ("rollouts", "tokens") else 2
        paid = [f"--spent {name}={round(amount, digits):.12g}" for name, amount in spent.items()]
        words, deadline = without(typed.words, ("--spent",)), plan.budget.deadline_hours
        named = [] if fitting.metric else rewards(plan)
        if fitting.map is not None:
            # A mapping is read instead of paths.
            table = str(fitting.map.with_suffix(".parquet"))
            yield f"{when}: isocompute doctor {' '.join([*fitting.sources(None), *named])} --output {quote(table)}"
            words, when = [words[0], table, *without(words[1:], MAPPED)], "then"
            # The table has the new name.
            named = [option for option in named if not option.startswith("--rename")]
        if deadline is not None and not planning.names_day:
            words = without(words, ("--deadline",))
            paid.append(f"--deadline {max(deadline - elapsed(hours, at_once), 0.01):.2f}h")
        asked = replace(typed, words=tuple(words))
        yield f"{when}: {asked.asking('next', *folders, *paid, *differ, *named)}"
    yield from going_on("or", plan, typed)


def _budget(planning: BudgetOptions, study: Study | None, paths: Sequence[Path]) -> Budget:
    """The budget as typed, else that of the study."""
    from isocompute_sdk.reporting.wording import budget_option

    if planning.budget is not None:
        return planning.amount()
    if study is None or study.budget is None:
        what = "--budget" if study is None else f"{paths[0]} with a budget, or --budget"
        raise SpecError(f"received no budget for runs and plan; accepted: {what}", "For example --budget 3M.")
    if planning.deadline or planning.spent:
        raise SpecError("--deadline and --spent work only with --budget", f"Add {budget_option(study.budget)}.")
    return study.budget


def _sources(paths: list[Path], planning: BudgetOptions) -> tuple[list[Path], Study | None, tuple[Study, Path] | None]:
    """What to read, the study whose file that is, and the study around the runs with its folder."""
    from isocompute_sdk.campaigns.campaign import STUDY
    from isocompute_sdk.campaigns.overview import folder_of, is_at_hand
    from isocompute_sdk.specs import load_study

    if len(paths) == 1 and paths[0].suffix in YAML:
        study = load_study(paths[0])
        folder = folder_of(paths[0], study)
        return paths, study, None if folder is None else (study, folder)
    around = planning.around(paths)
    if around is None or (around[0].designed is None and not is_at_hand(around[1], around[0])):
        return paths, None, around
    return [around[1] / STUDY], around[0], around


def _fits_of(
    paths: Sequence[Path], around: tuple[Study, Path] | None, fitting: FittingOptions, planning: BudgetOptions
) -> Fits | FitsSet | None:
    """Fits of the runs so far, those of a study included; None without any."""
    if around is not None:
        return fitting.fit([around[1]])
    if not paths and fitting.map is None:
        return None
    return fitting.fits_of(paths or None, max_rollouts_per_batch=planning.max_rollouts_per_batch)


def _pilot(
    paths: Sequence[Path], study: Study | None, budget: Budget, planning: BudgetOptions, planner: Planner
) -> NextRuns | PilotDesign:
    """What to run first without runs: the first round of a study's own pilot, or of one designed for the budget."""
    from isocompute_sdk.campaigns.campaign import Campaign

    n_problems = planning.n_problems
    if study is not None:
        if study.designed is not None and set(changed_options(planning)) <= {"--budget"}:
            pilot = Campaign(study.replace(budget=budget), paths[0].parent, base=Path()).designed
            assert pilot is not None, "of a study with a pilot"
            return pilot.first_round()
        n_problems = n_problems or study.data.n_problems
    return planner.design_pilot(
        budget,
        problems_per_batch=planning.problems_per_batch,
        n_problems=n_problems,
        min_update_steps=planning.min_update_steps,
        # A campaign makes a pilot in any case: it shows whether the recipe learns.
        spend_all=study is not None and study.designed is not None,
    )


def _write(
    path: Path,
    found: NextRuns | PilotDesign,
    first: NextRuns,
    study: Study | None,
    paths: Sequence[Path],
    lines: Sequence[str],
) -> None:
    """The answer as JSON, or as YAML the study with these runs, and with those of its own that have begun."""
    from isocompute_sdk.campaigns.overview import begun_runs
    from isocompute_sdk.specs import dump_spec

    if path.suffix not in YAML or study is None:
        found.save(path)
        return
    if not first.runs:
        raise PlanError(f"{path} was not written: {first.reason}", "\n".join(lines))
    new = {(run.group_size, run.problems_per_batch, run.seed) for run in first.runs}
    kept = [one for one in begun_runs(paths[0], study) if (one.group_size, one.problems_per_batch, one.seed) not in new]
    runs = (*kept, *(run.allocation for run in first.runs))
    files.write_text(path, dump_spec(study.replace(sweep=None, pilot=None, runs=runs)))


def _first_number(paths: Sequence[Path]) -> int:
    """Number of the first folder `next-K`, behind those of earlier rounds."""
    return 1 + max((int(found[1]) for path in paths if (found := _MADE.fullmatch(path.name))), default=0)


def _launches(
    first: NextRuns, plan: Plan, paths: Sequence[Path], named: Sequence[Path], fits: Fits | None, model: str
) -> Generator[str, None, tuple[float, list[float]]]:
    """What to type to make these runs, what that costs, and the hours of each where they are known.

    Args:
        first: the runs.
        plan: what they are launched from.
        paths: where the runs so far were read.
        named: further folders of checkpoints.
        fits: of the runs so far.
        model: `--model` and a word to fill in, where the model is unknown.
    """
    from isocompute_sdk.planning.changes import pricing_of
    from isocompute_sdk.planning.pricing import amount_text
    from isocompute_sdk.records.comparable import values_of
    from isocompute_sdk.reporting.wording import PROBLEMS, unreadable_data
    from isocompute_sdk.training.checks import is_other_format
    from isocompute_sdk.training.registry import backend_of

    def price(run: NextRun, steps: int) -> dict[str, float]:
        return pricing_of(plan, plan.budget, run.every_steps).all_costs(run.rollouts_per_batch, steps)

    total, hours = 0.0, list[float]()
    places = (*(path for path in paths if not holds_fits(path)), *named)
    saved = _checkpoints(first, places, fits)
    same = ""
    if fits is not None:
        backend = None if fits.table is None else backend_of(fits.table)
        data = values_of(fits.settings, "train_data")
        same += f" --backend {backend}" if backend else ""
        if called := unreadable_data(fits):
            # Lists of files end in a bracket.
            wrong = any(is_other_format(name.rstrip("]'\" ")) for name in called)
            what = "convert it to JSON lines with isocompute problems, and name that file" if wrong else "name its file"
            yield f"# your runs call their training data {', '.join(called)}: {what} instead of {PROBLEMS}"
            same += f" --train-data {PROBLEMS}"
        elif len(data) == 1:
            same += f" --train-data {quote(str(data[0]))}"
    for number, run in enumerate(first.runs, start=_first_number(paths)):
        steps, start = run.update_steps, model
        anew = f"the {steps:,} steps from the start, {amount_text(price(run, steps)[first.unit], first.unit)} in all"
        if run.continues is not None:
            checkpoint = saved.get(run.continues)
            folder = None if checkpoint is None else checkpoint.loadable
            if checkpoint is None:
                looked = ", ".join(map(str, places)) or "no folder: saved fits do not record where the runs are"
                yield (
                    f"# {run.continues} cannot be continued by a script: its checkpoint was not found (searched: "
                    f"{looked}). Name its folder with --checkpoints, or train {anew}:"
                )
            elif folder is None and checkpoint.convert is None:
                yield (
                    f"# {run.continues} cannot be continued by a script: {checkpoint.path} does not load as a model. "
                    f"Save it with config.json and *.safetensors, or train {anew}:"
                )
            else:
                if folder is None:
                    yield str(checkpoint.convert)
                    folder = checkpoint.path / "merged"
                steps, start = steps - checkpoint.step, f" --model {quote(str(folder))}"
                yield (
                    f"# {run.continues} continues from its checkpoint at step {checkpoint.step:,}; the optimiser "
                    f"state, the warm-up and the KL reference restart there:"
                )
        seed = f" --seed {run.seed}" if run.seed else ""
        yield (
            f"isocompute launch {PLAN}{same}{start} --change group_size={run.group_size} --change "
            f"problems_per_batch={run.problems_per_batch} --change update_steps={steps} "
            f"--change evaluation.every_steps={run.every_steps}{seed} "
            f"--output-dir next-{number} --script next-{number}.sh"
        )
        costs = price(run, steps)
        total += costs[first.unit]
        hours.append(costs.get("wall_hours", 0.0))
    return total, hours


def _checkpoints(first: NextRuns, places: Sequence[Path], fits: Fits | None) -> dict[str, SavedCheckpoint]:
    """The newest checkpoint of each run that is continued."""
    from isocompute_sdk.ingest.saved_checkpoints import find_checkpoints, of_run
    from isocompute_sdk.records import RunSet

    continued = {run.continues: run for run in first.runs if run.continues is not None}
    if not continued or not places:
        return {}
    table = None if fits is None else fits.runs
    names = RunSet.from_dict(table).run_ids if table else list(continued)
    saved = find_checkpoints(places)
    own = {name: of_run(saved, name, names) for name in continued}
    own = {name: [one for one in some if 0 < one.step < continued[name].update_steps] for name, some in own.items()}
    return {name: some[-1] for name, some in own.items() if some}
