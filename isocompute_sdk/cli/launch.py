"""`isocompute launch`: the launch script of a plan."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk import files
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.output import emit_json, say, say_exactly
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import printable

if TYPE_CHECKING:
    from isocompute_sdk.planning import Plan
    from isocompute_sdk.specs import RunSpec

MAX_SHOWN = 100
"""Lines of a script that are shown."""


def launch(
    plan: Annotated[Path, typer.Argument(help="Saved plan (JSON).")],
    backend: Annotated[str, opt.backend("Training framework; see `isocompute list backends`.")] = "openrlhf",
    model: Annotated[str | None, opt.option("Hub name or local folder; the plan's by default.")] = None,
    train_data: Annotated[str, opt.option("Training problems, JSONL.")] = "train.jsonl",
    eval_data: Annotated[str, opt.option("Validation problems, JSONL.")] = "validation.jsonl",
    reward: Annotated[str, opt.option("Reward function: file.py or file.py:function.")] = "reward.py",
    output_dir: Annotated[str, opt.option("Folder for everything the run writes.")] = "runs/plan",
    gpus: Annotated[
        int | None,
        typer.Option(min=1, help="GPUs of the run; by default the plan's own number, or the most it allows."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the run.")] = None,
    overrides: Annotated[
        bool, opt.option("Print only the flags of the plan, to append to a command of your own.", None, "--overrides")
    ] = False,
    against: Annotated[
        Path | None, opt.option("Your own script: shows what it would run beside the plan, and writes nothing.")
    ] = None,
    option: Annotated[list[str] | None, opt.option("Backend option name=value; repeatable.", None, "--option")] = None,
    change: Annotated[
        list[str] | None,
        opt.option(
            "Another number than the plan's: group_size=64, problems_per_batch, update_steps, learning_rate, "
            "budget, or a field of the recipe; repeatable. The rest is computed again.",
            None,
            "--change",
        ),
    ] = None,
    save_plan: Annotated[Path | None, opt.option("Save the changed plan here (JSON).")] = None,
    script: Annotated[Path, opt.option("Where to write the script.")] = Path("launch.sh"),
    dry_run: Annotated[bool, opt.option("Print the script, write nothing.", None, "--dry-run")] = False,
    json: opt.Json = False,
) -> None:
    """Write the script that trains a plan; start it with `bash launch.sh` in the folder of its data and reward file.

    Prints the part of the script that a person edits; --dry-run prints all of it and writes nothing.

    Examples:
        isocompute launch plan.json --backend openrlhf --dry-run

        isocompute launch plan.json --model Qwen/Qwen2.5-7B-Instruct --option gpus_per_node=8

        isocompute launch plan.json --change group_size=64 --save-plan changed.json

        isocompute launch plan.json --backend verl --overrides

        isocompute launch plan.json --backend verl --against my_run.sh
    """
    from isocompute_sdk import api
    from isocompute_sdk.planning import Plan, change_plan, differences
    from isocompute_sdk.planning.inheritance import shown

    loaded = Plan.load(plan)
    asked = opt.assignments(change, "--change")
    chosen = change_plan(loaded, asked) if asked else loaded
    where: dict[str, Any] = {
        "model": model,
        "train_data": train_data,
        "eval_data": eval_data,
        "reward": reward,
        "output_dir": output_dir,
        "gpus": gpus,
        **({} if seed is None else {"seed": seed}),
    }
    options = opt.assignments(option, "--option")
    if overrides or against is not None:
        run = api.run_spec(chosen, backend, **where, **options)
        _show_existing(run, overrides=overrides, against=against, json=json)
        return
    text = api.launch_script(chosen, backend, **where, **options)
    unlike = api.differing_settings(chosen, api.run_spec(chosen, backend, **where, **options))
    if save_plan is not None and not dry_run:
        chosen.save(save_plan)
    if not dry_run:
        files.write_text(script, text, executable=True)
    changed = differences(loaded, chosen) if asked else []
    absent = _absent({"--train-data": train_data, "--eval-data": eval_data, "--reward": reward})
    if json:
        found: dict[str, Any] = {"kind": "launch", "backend": backend, "script": text, "recipe": unlike}
        if absent is not None:
            found["notes"] = [absent.to_dict()]
        if asked:
            found["changed"] = {name: {"before": before, "after": after} for name, before, after in changed}
        emit_json({**found, "path": None if dry_run else str(script)})
        return
    # With --dry-run, standard output holds the script alone.
    for line in _assumed(chosen):
        print(line, file=sys.stderr if dry_run else sys.stdout)
    if unlike:
        lines = [
            f"{row['name']}: {shown(row['runs'])} | {shown([row['plan']])} | {shown([row['script']])}" for row in unlike
        ]
        text_of = "recipe where it differs, runs | plan | script:\n  " + "\n  ".join(lines)
        print(text_of, file=sys.stderr if dry_run else sys.stdout)
    if asked:
        print("\n".join(_side_by_side(changed)), file=sys.stderr if dry_run else sys.stdout)
    if absent is not None:
        print(f"{absent.severity}: {absent.code}\n  {absent.message}", file=sys.stderr if dry_run else sys.stdout)
    if dry_run:
        say_exactly(text.rstrip("\n"))
        return
    shown_lines, carried = _to_edit(text)
    say_exactly("\n".join(shown_lines))
    say(carried)
    if save_plan is not None:
        say(f"wrote {save_plan}")
    say(f"wrote {script}\nnext: bash {quote(str(script))}")


def _to_edit(text: str) -> tuple[list[str], str]:
    """The lines of a script that a person edits, and in words what else it holds."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith("# May be edited")), 0)
    last = next((i for i, line in enumerate(lines) if line.startswith("train() {")), len(lines))
    part = lines[first:last]
    if len(part) > MAX_SHOWN:
        part = [*part[: MAX_SHOWN - 1], f"# ... {len(part) - MAX_SHOWN + 1} more lines of this part"]
    programs = re.findall(r"^cat > \"\$run/(\S+\.py)\" <<", text, re.MULTILINE)
    rest = f"{len(lines):,} lines in all (--dry-run prints them)"
    if programs:
        rest += f"; beside these it carries {len(programs)} programs that check and run the training: "
        rest += ", ".join(programs)
    return part, rest


def _assumed(plan: Plan) -> list[str]:
    """What the script trains with although neither the runs nor a person gave it."""
    from isocompute_sdk.planning.inheritance import assumed
    from isocompute_sdk.planning.plan import assumed_values

    lines = [f"assumed, since neither runs nor you gave them: {text}" for text in (assumed_values(plan),) if text]
    if any(row.name == "learning_rate" for row in assumed(plan.settings)):
        lines.append(
            f"learning rate unknown, {plan.learning_rate:.3g} assumed: give yours, --change learning_rate=RATE"
        )
    return lines


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
    text = f"not found from this folder: {named}. The script needs them where it is started."
    return Note("data-not-here", "info", text, {"files": missing})


def _side_by_side(changed: list[tuple[str, object, object]]) -> list[str]:
    """One line for every number that changed: its name, before, after."""
    rows = [("changed", "plan", "now"), *((name, _shown(before), _shown(after)) for name, before, after in changed)]
    wide = [max(len(row[i]) for row in rows) for i in range(2)]
    return [f"{name:<{wide[0]}}  {before:<{wide[1]}}  {after}" for name, before, after in rows]


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " to ".join(_shown(part) for part in value)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "none" if value is None else str(value)


def _show_existing(run: RunSpec, *, overrides: bool, against: Path | None, json: bool) -> None:
    """Print the flags of a run, or what a script would run beside it.

    Raises:
        BackendError: preflight refuses the run, its backend has no command line, or the script cannot be read.
    """
    from isocompute_sdk.training import existing, registry
    from isocompute_sdk.training.backend import raise_if_refused

    backend = registry.load(run.backend)
    raise_if_refused(backend.preflight(run), run.backend, run.run_id)
    settings = existing.settings_of(backend, run.backend, run)
    flags = existing.overrides(settings)
    compared = None if against is None else existing.against(backend, run.backend, run, against)
    if json:
        found: dict[str, Any] = {"kind": "launch-overrides", "backend": run.backend, "overrides": flags}
        found["settings"] = [asdict(one) for one in settings if one.of_plan]
        if compared is not None:
            found["against"] = [{**asdict(row), "same": row.same} for row in compared.rows]
            found["gaps"] = compared.gaps
        emit_json(found)
        return
    if compared is not None:
        say("\n".join(_table(compared.rows, str(against))))
        different = sum(not row.same for row in compared.rows)
        say(f"{different} of {len(compared.rows)} differ (marked !). not said: the framework's default holds.")
        for gap in compared.gaps:
            say(f"open: {printable(gap)}")
        if not overrides:
            say("next: append the flags of the plan, printed by the same command with --overrides")
    if overrides:
        say(f"  {flags}")


def _table(rows: list[Any], script: str) -> list[str]:
    lines = [("", "setting", printable(Path(script).name), "plan", "read from")]
    for row in rows:
        mark = " " if row.same else "!"
        # What stands in the script itself needs no path.
        where = printable(row.evidence.replace(f"{script}: ", "").removesuffix(script))
        lines.append((mark, row.name, _value(row.script), _value(row.plan), where))
    wide = [max(len(line[i]) for line in lines) for i in range(4)]
    padded = [[text.ljust(width) for text, width in zip(line[:4], wide, strict=True)] for line in lines]
    return ["  ".join([*cells, line[4]]).rstrip() for cells, line in zip(padded, lines, strict=True)]


def _value(value: object) -> str:
    if value is None:
        return "not said"
    if isinstance(value, float):
        return f"{value:.6g}"
    return printable(str(value))
