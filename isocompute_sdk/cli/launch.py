"""`isocompute launch`: the launch script of a plan."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk import files
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.new_runs import pooled, rewards
from isocompute_sdk.cli.shared.output import aligned, emit_json, say, say_exactly
from isocompute_sdk.errors import SpecError
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import counted, printable

if TYPE_CHECKING:
    from isocompute_sdk.planning import Plan
    from isocompute_sdk.specs import RunSpec
    from isocompute_sdk.training.existing import Comparison

TRACKERS = ("wandb", "mlflow", "tensorboard")
"""Options of backends that send the log to a tracker."""
MAX_SHOWN = 100
"""Lines of a script that are shown."""


def launch(
    plan: Annotated[Path, typer.Argument(help="Saved plan (JSON).")],
    backend: Annotated[
        str | None, opt.backend("Training framework; by default that of the runs, else openrlhf.")
    ] = None,
    model: Annotated[str | None, opt.option("Hub name or local folder; the plan's by default.")] = None,
    train_data: Annotated[str, opt.option("Training problems, JSONL.")] = "train.jsonl",
    eval_data: Annotated[str, opt.option("Validation problems, JSONL.")] = "validation.jsonl",
    reward: Annotated[str, opt.option("Reward function: file.py or file.py:function.")] = "reward.py",
    output_dir: Annotated[str, opt.option("Folder for everything the run writes.")] = "runs/plan",
    gpus: Annotated[
        int | None,
        typer.Option(min=1, help="GPUs of the run; by default the plan's number, or the largest it allows."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the run.")] = None,
    overrides: Annotated[
        bool, opt.option("Print only the flags of the plan, to append to your own command.", None, "--overrides")
    ] = False,
    against: Annotated[
        Path | None, opt.option("Compare the settings of your own script with the plan; writes nothing.")
    ] = None,
    option: Annotated[list[str] | None, opt.option("Backend option name=value; repeatable.", None, "--option")] = None,
    change: Annotated[
        list[str] | None,
        opt.option(
            "Change the saved plan and recompute the rest: group_size=64, problems_per_batch, update_steps, "
            "learning_rate, budget, or a field of the recipe; repeatable.",
            None,
            "--change",
        ),
    ] = None,
    save_plan: Annotated[Path | None, opt.option("Save the changed plan here (JSON).")] = None,
    script: Annotated[Path, opt.option("Where to write the script.")] = Path("launch.sh"),
    dry_run: Annotated[bool, opt.option("Print the script without writing it.", None, "--dry-run")] = False,
    json: opt.Json = False,
) -> None:
    """Write the script that trains a plan; start it with `bash launch.sh` in the folder of its data and reward file.

    Prints the part of the script that you may edit; --dry-run prints all of it and writes nothing.

    Examples:
        isocompute launch plan.json --backend openrlhf --dry-run

        isocompute launch plan.json --model Qwen/Qwen2.5-7B-Instruct --gpus 8

        isocompute launch plan.json --change group_size=64 --save-plan changed.json

        isocompute launch plan.json --backend verl --overrides

        isocompute launch plan.json --backend verl --against my_run.sh
    """
    from isocompute_sdk import api
    from isocompute_sdk.planning import change_plan, differences
    from isocompute_sdk.planning.inheritance import shown
    from isocompute_sdk.planning.plan import VERDICTS
    from isocompute_sdk.planning.replan import USUAL_BACKEND
    from isocompute_sdk.reporting.wording import load_plan

    loaded = load_plan(plan)
    given, backend = backend, backend or loaded.backend or USUAL_BACKEND
    asked, options = opt.assignments(change, "--change"), opt.assignments(option, "--option")
    chosen = change_plan(loaded, asked) if asked else loaded
    where: dict[str, Any] = {
        "model": _model(model, chosen, asked=not overrides and against is None),
        "train_data": train_data,
        "eval_data": eval_data,
        "reward": reward,
        "output_dir": output_dir,
        "gpus": gpus,
        **({} if seed is None else {"seed": seed}),
    }
    run = api.run_spec(chosen, backend, **where, **options)
    if overrides or against is not None:
        # Standard output holds what is appended to a command.
        print("".join(f"{line}\n" for line in _before(loaded, chosen, gpus)), end="", file=sys.stderr)
        _show_existing(chosen, run, overrides=overrides, against=against, json=json)
        return
    text, unlike = api.launch_script(chosen, backend, **where, **options), api.differing_settings(chosen, run)
    if save_plan is not None and not dry_run:
        chosen.save(save_plan)
    kept = None if dry_run else _kept(script, text)
    if not dry_run:
        files.write_text(script, text, executable=True)
    changed = differences(loaded, chosen) if asked else []
    absent = _absent({"--train-data": train_data, "--eval-data": eval_data, "--reward": reward})
    lacking = [note for note in (_unknown_model(run.model), absent) if note is not None]
    if json:
        found: dict[str, Any] = {"kind": "launch", "backend": backend, "script": text, "recipe": unlike}
        if notes := [*_not_approved(chosen), *lacking]:
            found["notes"] = [note.to_dict() for note in notes]
        if asked:
            found["changed"] = {name: {"before": before, "after": after} for name, before, after in changed}
        emit_json({**found, "path": None if dry_run else str(script)})
        return
    told = [
        *_before(loaded, chosen, gpus),
        *[f"backend not given: {backend}, {'as in the runs' if loaded.backend else 'the default'}"] * (given is None),
        *_tracked(backend, options),
        *["recipe settings that differ, runs | plan | script:"] * bool(unlike),
    ]
    told += [
        f"  {one['name']}: {shown(one['runs'])} | {shown([one['plan']])} | {shown([one['script']])}" for one in unlike
    ]
    if asked:
        words = {"verdict": VERDICTS}
        rows = [(name, *(_shown(words.get(name, {}).get(str(one), one)) for one in pair)) for name, *pair in changed]
        told += aligned([("changed", "plan", "now"), *rows])
    missing = [_in_a_line(note) for note in lacking]
    # With --dry-run, standard output holds the script alone.
    for line in [*told, *missing] if dry_run else told:
        print(line, file=sys.stderr if dry_run else sys.stdout)
    if dry_run:
        say_exactly(text.rstrip("\n"))
        return
    shown_lines, carried = _to_edit(text)
    say_exactly("\n".join(shown_lines))
    say(carried)
    if save_plan is not None:
        say(f"wrote {save_plan}")
    say(f"wrote {script}" + (f"; the old {script} is now {kept}" if kept is not None else ""))
    beside = ", in the folder of your data and reward file" * (absent is not None)
    for line in [*missing, *_next(chosen, f"{beside}: bash {quote(str(script))}", output_dir, train_data)]:
        say(line)


def _next(plan: Plan, start: str, output_dir: str, train_data: str) -> Iterator[str]:
    """What to type to start the script, which needs its files; and at its check or the end of what is approved."""
    from isocompute_sdk.reporting.wording import bounds_words, runs_behind, set_words

    yield ("to train it anyway" if _not_approved(plan) else "next") + start
    approval, trained = plan.approval, plan.approved_steps
    checked = approval.step if approval is not None and approval.kind == "check" and approval.step else trained
    if rest := plan.update_steps - checked:
        remaining, when = rest * plan.rollouts_per_batch, "then, to decide whether to go on"
        if checked < trained:
            when = f"at step {checked:,}, unless you stop there, to see what lies ahead"
        # A reward file gives 1 for a right answer, also where the runs so far were in percent.
        percent = plan.fits is not None and plan.fits.bounds == (0.0, 100.0)
        # Beside them the answer compares going on with a new run.
        beside = "" if percent or not _own_runs(plan) else runs_behind(plan.fits)
        same = rewards(plan) if beside else []
        if beside.startswith("--map "):
            # A mapping is read instead of paths; its table has the new name.
            table = quote(str(Path(shlex.split(beside)[1]).with_suffix(".parquet")))
            yield f"{when}: {' '.join(['isocompute doctor', beside, *same])} --output {table}"
            when, beside, same = "and", table, [one for one in same if not one.startswith("--rename")]
        source = f" {beside}" * bool(beside)
        same += set_words(plan.fits) if beside and plan.fits is not None else []
        if any(option.startswith("--rename") for option in same):
            when += f", if {plan.metric} is the same reward as the script's avg@{plan.evaluation.samples}"
        words = [
            f"isocompute forecast{source}",
            quote(output_dir),
            *([] if percent else bounds_words(plan.fits)),
            *(f"--pool {name}" for name in (pooled(plan.fits, [plan.learning_rate], train_data) if beside else ())),
            *same,
            f"--remaining {remaining}",
        ]
        yield f"{when}: {' '.join(words)}{', with your runs instead of RUNS' * (beside == 'RUNS')}"


def _model(model: str | None, plan: Plan, *, asked: bool) -> str | None:
    """The model that was named, if any; where none has to be, the word that stands for one in printed commands.

    Raises:
        SpecError: that word was given.
    """
    from isocompute_sdk.training.checks import PLACEHOLDER

    if model == PLACEHOLDER:
        raise SpecError(f"--model {model}; accepted: a model's name or folder", "For example --model Qwen/Qwen2.5-7B.")
    return PLACEHOLDER if model is None and plan.model is None and not asked else model


def _before(saved: Plan, plan: Plan, gpus: int | None) -> Iterator[str]:
    """Why the plan is not approved, its check, and what it trains with that neither the runs nor a person gave."""
    from isocompute_sdk.planning.plan import assumed_values

    if plan.approval is None and saved.approval is not None:
        first = saved.runs_first
        if any((run.group_size, run.problems_per_batch) == (plan.group_size, plan.problems_per_batch) for run in first):
            yield "this is one of the runs that the plan wants to see first"
        else:
            yield f"changed by hand, so what the saved plan says about itself no longer holds: {saved.approval.label}"
    yield from map(_in_a_line, _not_approved(plan))
    if plan.check:
        yield plan.check
    if plan.past:
        yield "the plan continues a run, but this script starts at step 0; isocompute run STUDY continues the run"
    if values := assumed_values(plan):
        yield f"assumed, because neither you nor the runs gave them: {values}; to change: --change NAME=VALUE"
    if "learning_rate" in plan.assumed:
        rate = f"{plan.learning_rate:.3g} assumed"
        yield f"learning rate unknown, {rate}: set yours with --change learning_rate=RATE"
    # A changed plan states what was assumed for it.
    if saved.gpus is None and gpus is None:
        hours = "" if saved.wall_hours is None else ", so its hours may differ"
        yield f"GPUs not given, {max(plan.hardware.gpu_counts)} assumed{hours}: set yours with --gpus NUMBER"


def _tracked(backend: str, options: Mapping[str, object]) -> list[str]:
    """How to send the log to a tracker, where nothing does."""
    from isocompute_sdk.training import registry

    offered = [one.name for one in registry.load(backend).describe().options if one.name in TRACKERS]
    if not offered or any(options.get(name) for name in offered):
        return []
    ways = " or ".join(f"--option {name}=true" for name in offered)
    return [f"no tracker chosen; to add one: {ways}"]


def _own_runs(plan: Plan) -> bool:
    """Whether a plan was made from runs."""
    return plan.verdict.kind != "borrowed"


def _not_approved(plan: Plan) -> list[Note]:
    """That something speaks against the plan."""
    from isocompute_sdk.reporting.material import Asked, Material
    from isocompute_sdk.reporting.wording import runs_behind

    approval = plan.approval
    if approval is None or approval.kind != "do-not":
        return []
    text = f"{approval.label}: {approval.reason}"
    if plan.runs_first:
        command = Material("plan", Asked(), plan=plan, fits=plan.fits, plan_file=True).first
        where = ", with your runs instead of RUNS" * (_own_runs(plan) and runs_behind(plan.fits) == "RUNS")
        text += f". This prints what to run first: {command}{where}"
    return [Note("plan-not-approved", "warning", text, asdict(approval))]


def _in_a_line(note: Note) -> str:
    return f"{note.severity} {note.code}: {note.message}"


def _to_edit(text: str) -> tuple[list[str], str]:
    """The lines of a script that a person edits, and in words what else it holds."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith("# May be edited")), 0)
    last = next((i for i, line in enumerate(lines) if line.startswith("train() {")), len(lines))
    part = lines[first:last]
    if len(part) > MAX_SHOWN:
        part = [*part[: MAX_SHOWN - 1], f"# ... {len(part) - MAX_SHOWN + 1} more lines of this part"]
    programs = re.findall(r"^cat > \"\$run/(\S+\.py)\" <<", text, re.MULTILINE)
    rest = f"the whole script has about {round(len(lines), -1):,} lines (--dry-run prints them)"
    if programs:
        rest += f" and carries {len(programs)} programs that check and run the training: {', '.join(programs)}"
    return part, rest


def _unknown_model(model: str) -> Note | None:
    """That a model is neither a folder here nor named like one of the hub."""
    from isocompute_sdk.training.checks import is_model

    if is_model(model):
        return None
    text = f"--model {model} is neither a folder here nor a hub name: accepted are OWNER/NAME, such as "
    return Note("model-not-here", "warning", f"{text}Qwen/Qwen2.5-7B, and folders.", {"model": model})


def _kept(script: Path, text: str) -> Path | None:
    """A copy of a script that somebody may have edited; None if there is none, or if it says the same."""
    if not script.is_file() or script.read_bytes() == text.encode():
        return None
    return Path(shutil.copy2(script, script.with_name(f"{script.name}.old")))


def _absent(files_of: Mapping[str, str]) -> Note | None:
    """That data or reward files are not below the present folder, from which the script will take them.

    Args:
        files_of: option -> its value; a reward function may stand behind a colon.
    """
    missing = {
        flag: value
        for flag, value in files_of.items()
        if not any(Path(name).exists() for name in (value, value.rpartition(":")[0] or value))
    }
    if not missing:
        return None
    named = ", ".join(f"{flag} {value}" for flag, value in missing.items())
    text = f"not in this folder: {named}. Name your files with these options, or start the script where they are."
    return Note("data-not-here", "warning", text, {"files": missing})


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " to ".join(_shown(part) for part in value)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "none" if value is None else str(value)


def _other_gpus(run: RunSpec, compared: Comparison) -> str:
    """The option that gives the run as many GPUs as a script starts processes; empty where it has them."""
    started = compared.processes
    return "" if started in (None, max(run.hardware.gpu_counts)) else f"--gpus {started}"


def _show_existing(plan: Plan, run: RunSpec, *, overrides: bool, against: Path | None, json: bool) -> None:
    """Print the flags of a run, or what a script would run beside it; an assumed learning rate gives way to a script's.

    Raises:
        BackendError: preflight refuses the run, its backend has no command line, or the script cannot be read.
    """
    from isocompute_sdk.training import existing, registry
    from isocompute_sdk.training.backend import raise_if_refused
    from isocompute_sdk.training.existing import COMPARED

    backend = registry.load(run.backend)
    raise_if_refused(backend.preflight(run), run.backend, run.run_id)
    settings = existing.settings_of(backend, run.backend, run)
    compared = None if against is None else existing.against(backend, run.backend, run, against)
    other = "" if compared is None else _other_gpus(run, compared)
    if overrides and other:
        raise SpecError(
            f"{against} starts processes for another number of GPUs than the {max(run.hardware.gpu_counts)} of these "
            "flags, so the batch of each would be wrong",
            f"Add {other}.",
        ).in_shell(f"Add {other}.", [other])
    said = [] if compared is None else [row for row in compared.rows if row.script is not None]
    if "learning_rate" in plan.assumed and any(row.name == "learning_rate" for row in said):
        rate = existing.decided(settings)["learning_rate"].evidence
        settings = [one for one in settings if f" {one.name} =" not in rate]
    python = against is not None and against.suffix == ".py" and all(one.name.isidentifier() for one in settings)
    flags = existing.overrides(settings, python=python)
    if json:
        found: dict[str, Any] = {"kind": "launch-overrides", "backend": run.backend, "overrides": flags}
        found["settings"] = [asdict(one) for one in settings if one.of_plan]
        if compared is not None:
            found["against"] = [{**asdict(row), "same": row.same} for row in compared.rows]
            found["gaps"] = compared.gaps
        emit_json(found)
        return
    if compared is not None:
        script = str(against)
        name = printable(Path(script).name)
        lines = [("", "setting", name, "plan", "read from")]
        for row in compared.rows:
            # What stands in the script itself needs no path.
            where = printable(row.evidence.replace(f"{script}: ", "").removesuffix(script))
            none = "unknown" if row.evidence else "not set"
            theirs, ours = (none if one is None else printable(_shown(one)) for one in (row.script, row.plan))
            lines.append(("!" if row.script is not None and not row.same else " ", row.name, theirs, ours, where))
        say("\n".join(aligned(lines)))
        different, silent = sum(not row.same for row in said), sum(not row.evidence for row in compared.rows)
        say(f"{different} of {counted(len(said), 'setting')} in {name} differ (marked !)")
        decided = existing.decided(settings)
        kept = [row for row in said if not row.same and row.name in COMPARED and row.name not in decided]
        if kept:
            values = ", ".join(f"{row.name} = {_shown(row.script)}" for row in kept)
            say(printable(f"not changed by the plan's flags: {values}"))
        if silent:
            say(f"{silent} not set there: the framework's default applies, or what your command adds")
        for gap in compared.gaps:
            say(f"note: {printable(gap)}")
        changes = different > 0 or any(row.script is None and row.name in decided for row in compared.rows)
        if not overrides and changes:
            typed = " ".join([*map(quote, sys.argv[1:]), *([other] if other else [])])
            what = "these settings for your file" if python else "the flags to append to your command"
            say(f"next, to print {what}: isocompute {typed} --overrides")
    if overrides:
        say(f"  {flags}")
