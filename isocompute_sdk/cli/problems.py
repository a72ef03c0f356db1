"""`isocompute problems`: problem files of a data set or a generator, and how often a base model solves each problem."""

from __future__ import annotations

import os
import subprocess
import sys
from json import dumps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk import files
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.display import print_notes
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.errors import SpecError
from isocompute_sdk.phrases import counted

if TYPE_CHECKING:
    from isocompute_sdk.specs import Study

TRAIN = Path("train.jsonl")
DRAWN, LABELLED = "Draw with a generator", "Label with a base model"


def problems(
    source: Annotated[
        str | None,
        typer.Argument(help="Parquet, CSV, JSON or JSON-lines file; name of a data set; or a study with `problems`."),
    ] = None,
    output: Annotated[
        Path | None,
        opt.option("Problem file to write, JSON lines: train.jsonl; labelled.jsonl.", None, "--output", "-o"),
    ] = None,
    split: Annotated[str, opt.option("Split of a data set.")] = "train",
    config: Annotated[str | None, opt.option("Configuration of a data set, such as main.")] = None,
    file: Annotated[str | None, opt.option("One file of a data set.")] = None,
    prompt_key: Annotated[str | None, opt.option("Key that holds the prompt, if it is not recognised.")] = None,
    answer_key: Annotated[str | None, opt.option("Key that holds the answer, if it is not recognised.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Take only this many rows.")] = None,
    template: Annotated[str | None, opt.option("Prompt template; {prompt} stands for the problem.")] = None,
    reward: Annotated[
        str | None,
        opt.option(
            "Also write a reward function there: for mathematics (needs math-verify), or the generator's scorer, "
            "reward.py. With --label, the function that scores responses."
        ),
    ] = None,
    from_: Annotated[
        str | None, opt.option("Draw problems with a generator, reasoning-gym:NAME.", DRAWN, "--from")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Setting of the generator; repeatable.", rich_help_panel=DRAWN),
    ] = None,
    validation: Annotated[Path, opt.option("File for the held-out problems.", DRAWN)] = Path("validation.jsonl"),
    held_out: Annotated[int, typer.Option(min=1, help="Number of held-out problems.", rich_help_panel=DRAWN)] = 300,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Count how often this base model solves each problem.", rich_help_panel=LABELLED
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Responses per problem.", rich_help_panel=LABELLED)] = 16,
    temperature: Annotated[
        float, typer.Option(min=0, help="Sampling temperature, the same as in training.", rich_help_panel=LABELLED)
    ] = 0.6,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Longest response, in tokens.", rich_help_panel=LABELLED)
    ] = 1024,
    seed: Annotated[int, typer.Option(min=0, help="Seed of generators and samples.")] = 0,
    json: opt.Json = False,
) -> None:
    """Write the problems of a data set as JSON lines, which every backend reads; or label the problems of a file.

    With a study (YAML), its section `problems` names the data set and its rows; its section `data` names the files.
    --from draws problems with any generator of reasoning-gym: all distinct, in two files, with its scorer as reward.
    --label samples a base model on the problems of a file (needs the extra torch) and sorts them into the paper's
    bands. After an interruption the same command continues.

    Examples:
        isocompute problems --from reasoning-gym:chain_sum --set min_terms=2 --set max_terms=2

        isocompute problems train.jsonl --label Qwen/Qwen2.5-7B-Instruct --reward reward.py

        isocompute problems openai/gsm8k --config main --output train.jsonl --reward reward.py

        isocompute problems openai/gsm8k --config main --split test --output validation.jsonl --limit 300

        isocompute problems data/train.parquet --prompt-key question --output train.jsonl

        isocompute problems specs/paper_easy.yaml
    """
    from isocompute_sdk.training import problem_sets

    if (source is None) == (from_ is None):
        raise SpecError("give either SOURCE or --from", "See isocompute problems --help.")
    study = source is not None and Path(source).suffix in opt.YAML
    mode = "--from" if from_ else "--label" if label else "a study" if study else "a data set"
    typed = {"--config": config, "--file": file, "--limit": limit, "--template": template, "--set": set_}
    used = {"--from": ("--limit", "--template", "--set"), "--label": (), "a study": ()}.get(mode, tuple(typed)[:4])
    typed["--label"] = None if mode == "--label" else label
    if unused := [name for name, value in typed.items() if value is not None and name not in used]:
        raise SpecError(f"{unused[0]} has no effect with {mode}", "Leave it out, or do one after the other.")
    if from_ is not None:
        drawn = {"dataset": from_, "settings": opt.assignments(set_, "--set"), "template": template, "seed": seed}
        names = {"train": str(output or TRAIN), "validation": str(validation), "reward": reward or "reward.py"}
        _draw({**drawn, "validation": held_out}, {**names, "n_problems": limit}, json=json)
        return
    assert source is not None, "checked above"
    if label is not None:
        asked = {"model": label, "reward": reward or "reward.py", "prompt_key": prompt_key, "answer_key": answer_key}
        asked |= {"samples": samples, "temperature": temperature, "max_tokens": max_tokens, "seed": seed}
        _label(output or Path("labelled.jsonl"), {"problems": source, **asked}, json=json)
        return
    output = output or TRAIN
    if study:
        _of_study(Path(source), json=json)
        return
    rows = problem_sets.read_rows(source, split=split, config=config, file=file)
    count = problem_sets.write_problems(
        rows, output, prompt_key=prompt_key, answer_key=answer_key, limit=limit, template=template
    )
    if reward is not None:
        files.write_text(reward, problem_sets.maths_reward())
    if json:
        emit_json({"kind": "problems", "path": str(output), "problems": count, "reward": reward})
        return
    say(f"wrote {output}: {counted(count, 'problem')}")
    if reward is not None:
        say(f"wrote {reward}\nnext: pip install {quote('isocompute[math]')} where the training runs")


def _draw(source: dict[str, Any], data: dict[str, Any], *, json: bool) -> None:
    from isocompute_sdk.specs import Data, ProblemSource
    from isocompute_sdk.specs.study import GENERATOR
    from isocompute_sdk.training import problem_sets

    chosen = ProblemSource.model_validate(source)
    if not chosen.dataset.startswith(GENERATOR):
        raise SpecError(f"--from {chosen.dataset}; accepted: {GENERATOR}NAME", "Give other sources as SOURCE.")
    files_ = Data.model_validate(data)
    written = problem_sets.write_files(chosen, files_, Path())
    if json:
        emit_json({"kind": "problems", "files": written, "reward": files_.reward, "seed": chosen.seed})
        return
    for name, count in written.items():
        say(f"wrote {name}: {counted(count, 'problem')}")
    asked = files_.n_problems or problem_sets.GENERATED
    if written[files_.train] < asked:
        say(f"note: {chosen.dataset} has no more distinct problems with these settings; {asked:,} were asked for")
    say(f"wrote {files_.reward}: the scorer of {chosen.dataset}; seed {chosen.seed}")


def _label(output: Path, asked: dict[str, Any], *, json: bool) -> None:
    """Have a process of its own label a file, then say how many problems fall into which band."""
    from isocompute_sdk.records.difficulty import split_by_difficulty

    command = [os.environ.get("PYTHON") or sys.executable, "-m", "isocompute_torch.label", dumps(asked), str(output)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        # It has said why.
        raise typer.Exit(1 if done.returncode < 0 else done.returncode)
    rows = [
        files.parse_json(line) for line in files.read_text(output, what="labelled problems (JSON lines)").splitlines()
    ]
    split = split_by_difficulty([row["passes"] for row in rows], asked["samples"], rng=0, validation=0)
    counts = {name: len(members.train_P) for name, members in split.bands.items()}
    counts |= {name: len(members) for name, members in split.unstudied.items()}
    rate = sum(row["pass_rate"] for row in rows) / len(rows)
    if json:
        found = {"path": str(output), "problems": len(rows), "pass_rate": rate, "bands": counts}
        emit_json({"kind": "labels", **found, "notes": [note.to_dict() for note in split.notes]})
        return
    say(f"wrote {output}: {counted(len(rows), 'problem')}, pass rate {rate:.3f} over {asked['samples']} samples each")
    for name, count in counts.items():
        say(f"  {name.replace('_', ' ')}: {count:,} ({count / len(rows):.0%})")
    print_notes(split.notes)
    kept = f"{{dataset: {output}, keep: {{pass_rate: [0.3, 0.6]}}, reward: null}}"
    say(f"next, for the Easy band, in a study: problems: {kept}")


def missing_files(study: Study, path: Path) -> tuple[list[str], str]:
    """Problem files of a study that are not there, and the command that writes them."""
    if study.problems is None:
        return [], ""
    missing = [name for name in (study.data.train, study.data.validation) if not Path(name).exists()]
    return missing, f"isocompute problems {quote(str(path))}"


def _of_study(path: Path, *, json: bool) -> None:
    from isocompute_sdk.specs import load_study
    from isocompute_sdk.training import problem_sets

    study = load_study(path)
    if study.problems is None:
        raise SpecError(
            f"study {path} has no section problems; accepted: one that names a data set",
            "Add problems: {dataset: NAME}, or give the data set itself.",
        )
    written = problem_sets.write_files(study.problems, study.data, Path())
    if json:
        emit_json({"kind": "problems", "files": written, "reward": study.data.reward})
        return
    for name, count in written.items():
        say(f"wrote {name}: {counted(count, 'problem')}")
    wanted = study.data.n_problems
    if wanted is not None and written[study.data.train] < wanted:
        say(f"note: the study says data.n_problems: {wanted:,}; fewer problems of the data set were kept")
    say(f"reward: {study.data.reward}")
    if study.problems.reward is not None:
        say(f"next: pip install {quote('isocompute[math]')} where the training runs; isocompute run {quote(str(path))}")
