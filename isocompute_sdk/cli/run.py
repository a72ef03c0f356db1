"""`isocompute run`: train a study's sweep, carry out its whole campaign, or time a few steps of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from isocompute_sdk.cli.problems import missing_files
from isocompute_sdk.cli.shared import background, following
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.options import changed_options, with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.probing import ProbeOptions, probe
from isocompute_sdk.cli.shared.work_progress import WorkProgress, resumable
from isocompute_sdk.errors import BackendError, RecordError, SpecError
from isocompute_sdk.phrases import counted

if TYPE_CHECKING:
    from isocompute_sdk.campaigns.executors import Slots
    from isocompute_sdk.specs import ExecutorSpec, RunSpec, Study


@with_option_groups
def run(
    *,
    study: Annotated[Path, typer.Argument(help="Study file (YAML); its paths are relative to the current folder.")],
    parallel: opt.Parallel = None,
    only: Annotated[list[str] | None, opt.option("Name of a run to train; repeatable.", None, "--only")] = None,
    executor: Annotated[
        str | None,
        opt.option(
            "What starts the runs: local, slurm, ray or another name, or a mapping with options, such as "
            "'{name: slurm, partition: main}'. By default the study's executor, else this machine."
        ),
    ] = None,
    detach: Annotated[bool, opt.option("Start a controller in the background and return.", None, "--detach")] = False,
    against: Annotated[
        str | None, opt.option("Compare the plan with what you run today, n=16,bp=128; for a study without a sweep.")
    ] = None,
    prepare: Annotated[
        bool, opt.option("Write a launch script for each run without training.", None, "--prepare")
    ] = False,
    dry_run: Annotated[bool, opt.option("List the runs and write nothing.", None, "--dry-run")] = False,
    probing: ProbeOptions,
    json: opt.Json = False,
) -> None:
    """Train every run of a study's sweep, with the study's backend, on this machine, Slurm or Ray.

    A study with a budget and no sweep, or with `pilot: auto`, is run from start to end: pilot runs are chosen in
    rounds until another is not worth its cost, and the rest of the budget trains the plan. Each decision and its
    reason is saved in the study's folder `decisions`.

    --probe trains ten steps at each of three batch sizes instead, and writes seconds per step for --throughput. With
    --prepare it writes a script to do so on another machine; read its logs with isocompute doctor --speed.

    On this machine each run gets its own GPUs: hardware.gpus of those in CUDA_VISIBLE_DEVICES, else of all. Runs
    without GPUs share the CPU cores. The same command continues after Ctrl-C or a crash: it skips finished runs,
    resumes stopped ones and follows those still running. The study's `supervision` decides what happens on SIGTERM and
    SIGHUP, and to runs that hang.

    The exit code is 1 if a run failed, was given up or learned nothing.

    Examples:
        isocompute run study.yaml --parallel 2

        isocompute run specs/quick.yaml --only n8-bp32-seed0

        isocompute run specs/slurm.yaml --detach

        isocompute run specs/campaign.yaml --against n=16,bp=128

        isocompute run specs/paper_easy.yaml --prepare

        isocompute run study.yaml --probe
    """
    from isocompute_sdk.specs import load_study

    loaded = load_study(study)
    if probing.probe:
        if refused := [name for name, on in (("--only", only), ("--detach", detach), ("--against", against)) if on]:
            raise SpecError(f"{refused[0]} does not work with --probe", "Leave it out.")
        probe(loaded, probing, prepare_only=prepare, json=json)
        return
    if refused := changed_options(probing):
        raise SpecError(f"{refused[0]} works only with --probe", "Add --probe, or leave it out.")
    if prepare or dry_run:
        if loaded.designed is not None:
            option = "--prepare" if prepare else "--dry-run"
            raise SpecError(
                f"the runs of {study} are chosen as it goes; accepted with {option}: a study with a sweep",
                f"Its first round, with its cost: isocompute next {quote(str(study))}",
            )
        _prepare(study, loaded, only or [], write=not dry_run, json=json)
        return
    starter = _executor(loaded, executor, parallel)
    if loaded.designed is not None:
        from isocompute_sdk.cli.shared.whole_campaign import run_campaign

        if only:
            raise SpecError(
                f"--only works only with a sweep; the runs of {study} are chosen as it goes",
                "Leave it out.",
            )
        run_campaign(loaded, study, starter, against, detach=detach, json=json)
        return
    if against is not None:
        raise SpecError(
            f"--against {against}: {study} trains its sweep and makes no plan",
            "Compare when you plan: isocompute allocate RUNS --budget ... --compare n=16,bp=128.",
        )
    _run_sweep(study, loaded, starter, only or [], detach=detach, json=json)


def _prepare(path: Path, study: Study, only: Sequence[str], *, write: bool, json: bool) -> None:
    """Write one launch script for each run of a sweep, or only list the runs."""
    from isocompute_sdk.training import registry

    runs = _chosen(study.expand(), only, path)
    # Every run is checked before the first file is written, so that no sweep is half prepared.
    backend = registry.load(study.backend)
    for one in runs:
        backend.script(one)
    prepared = [backend.prepare(one, Path(one.output_dir)) for one in runs] if write else []
    total = sum(one.rollouts for one in runs)
    if json:
        scripts = [str(launch.files[0]) for launch in prepared]
        listed = [one.model_dump(mode="json") for one in runs]
        emit_json({"kind": "sweep", "study": study.name, "rollouts": total, "runs": listed, "scripts": scripts})
        return
    for one in runs:
        say(f"{one.run_id:<28} n = {one.group_size:<5} B_p = {one.problems_per_batch:<5} M = {one.update_steps:,}")
    say(f"{counted(len(runs), 'run')}, {total:,} rollouts in all, backend {study.backend}")
    if prepared:
        first = prepared[0].files[0]
        say(f"wrote {first} and {len(prepared) - 1} more")
        missing, command = missing_files(study, path)
        if missing:
            say(f"next: {command}   # writes {', '.join(missing)}")
        say(f"next: bash {quote(str(first))}")


def _run_sweep(
    path: Path, loaded: Study, executor: ExecutorSpec, only: Sequence[str], *, detach: bool, json: bool
) -> None:
    """Train the runs of a sweep, or those of them that are named."""
    from isocompute_sdk.campaigns.carrying_out import carry_out, given_up_notes, health_of, learned_nothing, prepare
    from isocompute_sdk.campaigns.control import update_study
    from isocompute_sdk.campaigns.executors import LocalExecutor
    from isocompute_sdk.campaigns.executors import registry as executors
    from isocompute_sdk.cli.shared.display import print_notes
    from isocompute_sdk.cli.shared.whole_campaign import CHECK_REWARD, note_changes
    from isocompute_sdk.notes import unique
    from isocompute_sdk.run_folders import journal_records, store
    from isocompute_sdk.training import registry
    from isocompute_sdk.training.backend import needs_of, run_folder

    runs = _chosen(loaded.expand(), only, path)
    _refuse_missing(loaded, path, runs)
    backend, engine = registry.load(loaded.backend), executors.load(executor)
    for one in runs:
        backend.script(one)  # Refuses a run whose needs cannot be told.
    for needs in dict.fromkeys(needs_of(backend, one) for one in runs):
        where = _slots(engine.slots(needs)) if isinstance(engine, LocalExecutor) else f"runs on {engine.name}"
        print(f"{loaded.name}: {where}", file=sys.stderr)
    folder = Path(runs[0].output_dir).parent
    folders = [Path(run_folder(one)) for one in runs]
    if detach:
        prepare(runs, backend, Path.cwd(), engine, loaded.supervision)
        then = f"isocompute status {quote(str(folder))}; isocompute stop {quote(str(folder))} ends the runs"
        background.detach(loaded.name, folder, folders, then, json=json)
        return
    progress = WorkProgress()
    with resumable():
        results = carry_out(
            runs,
            backend,
            engine,
            Path.cwd(),
            lambda statuses: progress.runs(loaded.name, statuses),
            loaded.supervision,
            before=lambda: note_changes(update_study(loaded, folder, Path.cwd(), backend)),
        )
    given_up = {result.job.name: result.reason for result in results if result.reason}
    health = health_of(backend, [one for one in folders if one.name not in given_up])
    idle = learned_nothing(health)
    statuses = [watch.status() for watch in registry.watches(folders)]
    logged = unique(note for one in folders for note in journal_records.notes(one / store.METRICS_FILE))
    notes = logged + health.notes
    if json:
        told = {"given_up": given_up, "learned_nothing": list(idle), "notes": [one.to_dict() for one in notes]}
        told |= {
            "runs": [following.status_dict(status) for status in statuses],
            "report": following.write_page(folder, loaded)[0],
        }
        emit_json({"kind": "run", "study": loaded.name, **told})
    else:
        for one, line in zip(statuses, following.described(statuses), strict=True):
            say(line + (", learned nothing" if one.run_id in idle else ""))
        following.say_spending(folders)
        print_notes(note for note in notes if note.severity != "info")
        say(following.write_page(folder, loaded)[1])
    fit = f"isocompute fit {quote(str(folder))}"
    if given_up or idle:
        parts = [note.message for note in given_up_notes(given_up, len(runs))]
        parts += [f"{len(idle)} of {counted(len(runs), 'run')} have learned nothing: {', '.join(idle)}"] * bool(idle)
        retry = f"Run the command again to retry them, or go on without them: {fit}"
        raise RecordError("; ".join(parts), CHECK_REWARD if idle else retry)
    if not json:
        say(f"next: {fit}")


def _chosen(every: Sequence[RunSpec], only: Sequence[str] | None, study: Path) -> list[RunSpec]:
    """The runs of `--only`, or all.

    Raises:
        SpecError: the study has no such run.
    """
    strangers = sorted(set(only or ()) - {one.run_id for one in every})
    if strangers:
        raise SpecError(
            f"--only {strangers[0]}: no such run in {study}; it has: {', '.join(one.run_id for one in every)}",
            "Use a run of the study.",
        )
    return [one for one in every if not only or one.run_id in only]


def _executor(study: Study, text: str | None, parallel: int | None) -> ExecutorSpec:
    """The executor of the command line, else of the study, else this machine."""
    from isocompute_sdk.campaigns.executors.local import LocalSpec
    from isocompute_sdk.specs.study import ExecutorChoice
    from isocompute_sdk.specs.syntax.plain_yaml import parse_spec

    stated = study.executor
    if text is not None and (stated is None or text.strip() != stated.name):
        stated = parse_spec(f"executor: {text}", ExecutorChoice, "--executor").executor
    spec = stated if stated is not None else LocalSpec()
    return spec if parallel is None else spec.replace(parallel=parallel)


def _refuse_missing(study: Study, path: Path, runs: Sequence[RunSpec]) -> None:
    """Name the command that writes missing problem files, unless all runs are finished."""
    from isocompute_sdk.run_folders.store import is_finished
    from isocompute_sdk.training.backend import run_folder

    missing, command = missing_files(study, path)
    if missing and not all(is_finished(run_folder(one)) for one in runs):
        raise BackendError(f"no such file: {', '.join(missing)}", f"Write them from the study's data set: {command}")


def _slots(slots: Slots) -> str:
    """How many runs go on at a time, and on what."""
    if not slots.gpus_each:
        return f"up to {counted(slots.count, 'run')} at a time on the CPU"
    names = ", ".join(gpu.token for gpu in slots.gpus)
    return f"{counted(slots.count, 'slot')} of {counted(slots.gpus_each, 'GPU')}; visible GPUs: {names}"
