"""`isocompute next`: what to run before a budget is spent."""

from __future__ import annotations

import glob
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from isocompute_sdk import files
from isocompute_sdk.cli.allocate import holds_fits
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.options import changed_options, with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.planning_options import BudgetOptions
from isocompute_sdk.cli.shared.reading_options import FittingOptions
from isocompute_sdk.cli.shared.typed import Typed
from isocompute_sdk.errors import PlanError, SpecError

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.fitting.fits_set import FitsSet
    from isocompute_sdk.ingest.saved_checkpoints import SavedCheckpoint
    from isocompute_sdk.planning import NextRun, NextRuns, PilotDesign
    from isocompute_sdk.specs import Allocation, Study

YAML = (".yaml", ".yml")
EVALUATIONS = 10
"""Fewest evaluations of a run, which is made for them. The share that plans keep for them leaves a short run one."""


@with_option_groups
def next_runs(
    *,
    source: Annotated[
        list[Path] | None,
        typer.Argument(help="Runs (tables or logs), saved fits (JSON), or a study (YAML). Nothing: design a pilot."),
    ] = None,
    slots: Annotated[
        int, typer.Option(help="Runs that can go on at the same time; a designed pilot does not depend on it.", min=1)
    ] = 1,
    checkpoints: Annotated[
        list[Path] | None,
        opt.option("Folder of checkpoints, if not below the runs; repeatable.", None, "--checkpoints"),
    ] = None,
    fitting: FittingOptions,
    planning: BudgetOptions,
    output: Annotated[
        Path | None, opt.option("Save the answer (JSON), or a study with these runs (YAML).", None, "--output", "-o")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Say which runs to make before a budget is spent, what each costs, and what it is expected to save.

    Runs are valued by the regret at the target budget that they are expected to avoid, less their own cost. "None is
    worth its cost" means: train the plan. Without runs, the first round of a pilot is designed, with the expected
    regret of pilots of 2 to 35 % of the budget.

    --output next.yaml, with a study, writes the study with these runs, for isocompute run;
    --output next.json saves the answer.

    Examples:
        isocompute next --budget 3M

        isocompute next runs.csv --budget 3M --slots 2

        isocompute next fits.json --budget "200 gpu_hours" --rollouts-per-second 60 --step-overhead-seconds 25

        isocompute next study.yaml --output next.yaml
    """
    if planning.compare is not None:
        raise SpecError("--compare; accepted: with isocompute allocate", "Ask isocompute allocate for it.")
    paths = list(source or ())
    study = _study(paths)
    if study is not None and planning.budget is None and study.budget is None:
        raise SpecError(f"{paths[0]} has no budget; accepted: a study with one, or --budget", "Add --budget 3M.")
    if planning.budget is None and (study is None or study.budget is None):
        raise SpecError("accepted: --budget, what may be spent on runs and plan together", "For example --budget 3M.")
    if output is not None and output.suffix in YAML and study is None:
        raise SpecError(
            f"--output {output} without a study; accepted: .json, or .yaml with a study as the source",
            "A study says what is trained: give it in place of the runs.",
        )
    from isocompute_sdk.planning import NextRuns
    from isocompute_sdk.records.rewards import no_rise_note

    found, fits = _answer(paths, study, slots, fitting, planning)
    first = found if isinstance(found, NextRuns) else found.first
    if output is not None:
        _write(output, found, first, study)
    if json:
        emit_json(found.to_dict())
        return
    one = _first(fits)
    flat = [] if one is None or one.flat_runs is None else [no_rise_note(one.metric, one.flat_runs).message]
    for line in (*flat, *found.summary().splitlines(), *_about_mode(planning.mode)):
        say(line)
    if output is not None:
        say(f"wrote {output}")
    if study is not None:
        lines = _study_commands(first, paths[0], output, logged=fits is not None)
    else:
        saved = _Saved.of(first, paths, checkpoints or (), fits)
        unknown = _unknown(fits) if first.runs and not fitting.pool else []
        is_saved = any(holds_fits(path) for path in paths)
        lines = _asking(unknown, saved=is_saved)
        lines += _commands(first, paths, saved, _of_runs(fits), model_known=bool(planning.model or _model(fits)))
        if first.runs and fitting.map is None and not is_saved:
            folders = [f"next-{number}" for number in range(1, len(first.runs) + 1)]
            lines.append(f"when they have run: {_next(*folders, *unknown)}")
    for line in lines:
        say(line)


def _answer(
    paths: list[Path], study: Study | None, slots: int, fitting: FittingOptions, planning: BudgetOptions
) -> tuple[NextRuns | PilotDesign, Fits | FitsSet | None]:
    """`NextRuns` from runs, or a `PilotDesign` without any; and the fits behind it."""
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.planning import Planner

    budget = planning.amount() if planning.budget is not None else study.budget if study is not None else None
    assert budget is not None, "checked before"
    fits: Fits | FitsSet | None = None
    if study is not None:
        logged = _logged(study)
        fits = None if logged is None else _of_one_study(fitting).fit([logged])
    elif len(paths) == 1 and holds_fits(paths[0]):
        refused = changed_options(fitting)
        if refused:
            raise SpecError(
                f"{', '.join(refused)} with {paths[0]}, which holds saved fits; accepted: with runs",
                "Give the runs, or leave the options out.",
            )
        fits = Fits.load(paths[0])
    elif paths or fitting.map is not None:
        fits = fitting.fit(paths or None, max_rollouts_per_batch=planning.max_rollouts_per_batch)
    if fits is None:
        from isocompute_sdk import published_prior

        planner = planning.planner(published_prior())
        if study is not None:
            speed = planner.throughput or study.throughput
            planner = Planner(published_prior(), study.hardware, study.recipe, speed)
        design = planner.design_pilot(
            budget,
            problems_per_batch=planning.problems_per_batch,
            n_problems=planning.n_problems or (None if study is None else study.data.n_problems),
            min_update_steps=planning.min_update_steps,
        )
        return design, None
    planner = planning.planner(fits)
    if study is not None:
        planner = Planner.for_study(fits, study, planner.throughput)
    choices = {name: value for name, value in planning.choices().items() if name not in ("spend", "mode")}
    return planner.next_runs(budget, slots, **choices), fits


def _about_mode(mode: str) -> list[str]:
    if mode == "expected":
        return []
    return [f"--mode {mode} is for the plan (isocompute allocate): runs are valued by expected reward"]


def _study(paths: Sequence[Path]) -> Study | None:
    """The study, if the only source is a YAML file."""
    from isocompute_sdk.specs import load_study

    return load_study(paths[0]) if len(paths) == 1 and paths[0].suffix in YAML else None


def _logged(study: Study) -> Path | None:
    """The study's folder, if a run in it was evaluated after step 0."""
    from isocompute_sdk.run_folders import store

    folder = Path(study.output_dir) / study.name
    begun = [Path(one) for one in glob.glob(f"{glob.escape(str(folder))}/*/") if store.has_begun(Path(one))]
    return folder if begun else None


def _of_one_study(fitting: FittingOptions) -> FittingOptions:
    """The options for runs of one study: their learning rates follow the rule of its recipe, and may differ."""
    pool = list(dict.fromkeys([*(fitting.pool or ()), "learning_rate"]))
    return replace(fitting, eval_set=fitting.eval_set or "validation", pool=pool)


def _write(path: Path, found: NextRuns | PilotDesign, first: NextRuns, study: Study | None) -> None:
    """The answer as JSON, or the study with its runs as YAML."""
    from isocompute_sdk.specs import dump_spec

    if path.suffix not in YAML or study is None:
        found.save(path)
        return
    if not first.runs:
        raise PlanError(f"{path} was not written: {first.reason}", "Train the plan: isocompute allocate prints it.")
    kept = [one for one in study.runs if not any(_same(one, run) for run in first.runs)]
    files.write_text(path, dump_spec(study.replace(runs=(*kept, *(run.allocation for run in first.runs)))))


def _same(one: Allocation, run: NextRun) -> bool:
    return (one.group_size, one.problems_per_batch, one.seed) == (run.group_size, run.problems_per_batch, run.seed)


def _study_commands(first: NextRuns, path: Path, output: Path | None, *, logged: bool) -> list[str]:
    """What to type to make these runs in a study; without any, to train its plan if it was run."""
    if not first.runs:
        return [f"next: isocompute run {quote(str(path))}"] if logged else []
    if output is None or output.suffix not in YAML:
        return [f"next: isocompute next {quote(str(path))} --output next.yaml, then isocompute run next.yaml"]
    return [f"next: isocompute run {quote(str(output))}"]


@dataclass(frozen=True)
class _Saved:
    """The newest checkpoint of each run that is continued, and where it was looked for."""

    of_run: Mapping[str, SavedCheckpoint]
    places: tuple[Path, ...]

    @classmethod
    def of(cls, first: NextRuns, paths: Sequence[Path], named: Sequence[Path], fits: Fits | FitsSet | None) -> _Saved:
        """Checkpoints below the runs and in the folders that were named."""
        from isocompute_sdk.ingest.saved_checkpoints import find_checkpoints, of_run
        from isocompute_sdk.records import RunSet

        places = (*(path for path in paths if not holds_fits(path)), *named)
        continued = [run for run in first.runs if run.continues is not None]
        if not continued or not places:
            return cls({}, places)
        table = getattr(fits, "runs", None)
        names = RunSet.from_dict(table).run_ids if table else [str(run.continues) for run in continued]
        saved = find_checkpoints(places)
        found: dict[str, SavedCheckpoint] = {}
        for run in continued:
            name = str(run.continues)
            own = [one for one in of_run(saved, name, names) if 0 < one.step < run.update_steps]
            if own:
                found[name] = own[-1]
        return cls(found, places)


def _first(fits: Fits | FitsSet | None) -> Fits | None:
    from isocompute_sdk.fitting.fits import Fits

    return fits if fits is None or isinstance(fits, Fits) else fits.first


def _model(fits: Fits | FitsSet | None) -> str | None:
    """The model of the runs; None if they do not say."""
    first = _first(fits)
    return None if first is None else first.model


def _of_runs(fits: Fits | FitsSet | None) -> str:
    """`--backend NAME --train-data FILE` as the runs have them, each with a space before it."""
    from isocompute_sdk.records import RunSet
    from isocompute_sdk.records.comparable import values_of
    from isocompute_sdk.training.registry import backend_of

    first = _first(fits)
    if first is None:
        return ""
    name = None if first.runs is None else backend_of(RunSet.from_dict(first.runs))
    data = values_of(first.settings, "train_data")
    return (f" --backend {name}" if name else "") + (f" --train-data {quote(str(data[0]))}" if len(data) == 1 else "")


def _commands(first: NextRuns, paths: Sequence[Path], saved: _Saved, same: str, *, model_known: bool) -> list[str]:
    """What to type to make these runs; a plan of an unknown model leaves it to whoever pastes them."""
    plan = Typed(tuple(sys.argv[1:])).asking("allocate" if paths else "plan", "--output plan.json")
    if not first.runs:
        return [f"next: {plan}"]
    lines: list[str] = []
    for number, run in enumerate(first.runs, start=1):
        steps, model = run.update_steps, "" if model_known else " --model NAME_OR_FOLDER"
        if run.continues is not None:
            checkpoint = saved.of_run.get(run.continues)
            folder = None if checkpoint is None else checkpoint.loadable
            if checkpoint is None:
                looked = ", ".join(map(str, saved.places)) or "no folder: saved fits do not say where runs lie"
                lines.append(
                    f"# {run.continues} cannot be continued by a script: no checkpoint of it was found (searched: "
                    f"{looked}). Name its folder with --checkpoints, or train the {steps:,} steps from the start:"
                )
            elif folder is None and checkpoint.convert is None:
                lines.append(
                    f"# {run.continues} cannot be continued by a script: {checkpoint.path} does not load as a model. "
                    f"Save it with config.json and *.safetensors, or train the {steps:,} steps from the start:"
                )
            else:
                if folder is None:
                    lines.append(str(checkpoint.convert))
                    folder = checkpoint.path / "merged"
                steps, model = steps - checkpoint.step, f" --model {quote(str(folder))}"
                lines.append(
                    f"# {run.continues} goes on from its checkpoint at step {checkpoint.step:,}; the state of the "
                    "optimiser, the warm-up and the reference of the KL term begin there:"
                )
        seed = f" --seed {run.seed}" if run.seed else ""
        lines.append(
            f"isocompute launch plan.json{same}{model} --change group_size={run.group_size} --change "
            f"problems_per_batch={run.problems_per_batch} --change update_steps={steps} "
            f"--change evaluation.every_steps={_every(run, steps)}{seed} "
            f"--output-dir next-{number} --script next-{number}.sh"
        )
    return ["scripts:", plan, *lines]


def _unknown(fits: Fits | FitsSet | None) -> list[str]:
    """Settings that the scripts record and no run does, as `--set` options to fill in.

    Runs that record a setting are not pooled with runs that do not.
    """
    from isocompute_sdk.records import CONTEXT_FIELDS, RunSet
    from isocompute_sdk.records.columns import LENIENT

    first = _first(fits)
    runs = () if first is None or first.runs is None else RunSet.from_dict(first.runs).runs()
    samples = "" if first is None else first.metric.partition("@")[2]
    # Scripts do not know the number of problems either.
    recorded = [name for name in CONTEXT_FIELDS if name not in (*LENIENT, "n_problems")]
    return [
        f"--set {name}={samples if name == 'eval_samples' and samples.isdigit() else name.upper()}"
        for name in recorded
        if runs and all(run.context[name] is None for run in runs)
    ]


def _asking(unknown: Sequence[str], *, saved: bool) -> list[str]:
    """The question for settings that the runs do not record."""
    if not unknown:
        return []
    names = ", ".join(option.removeprefix("--set ").partition("=")[0] for option in unknown)
    command = f"isocompute fit RUNS {' '.join(unknown)} --output fits.json" if saved else _next(*unknown)
    return [
        f"unknown: the runs do not record {names}. The scripts below assume values, and runs of another recipe do not "
        "belong beside yours. Say once what yours had, and the pilot is trained with it:",
        command,
    ]


def _next(*options: str) -> str:
    return Typed(tuple(sys.argv[1:])).asking("next", *options)


def _every(run: NextRun, steps: int) -> int:
    """Steps between evaluations: as often as a plan's share pays for, but at least `EVALUATIONS` times."""
    from isocompute_sdk.planning.pricing import DEFAULT_EVALUATION as USUAL
    from isocompute_sdk.planning.pricing import EVALUATION_SHARE, interval, samples_per_evaluation

    batch = run.group_size * run.problems_per_batch
    paid_for = interval(USUAL.every_steps, steps, batch, samples_per_evaluation(USUAL), EVALUATION_SHARE)
    return min(paid_for, math.ceil(steps / EVALUATIONS))
