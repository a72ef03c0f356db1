"""`isocompute problems`: problem files of a data set, and a reward function for mathematics."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from isocompute_sdk import files
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.output import emit_json, say

if TYPE_CHECKING:
    from isocompute_sdk.specs import Study


def problems(
    source: Annotated[
        str,
        typer.Argument(help="Parquet, CSV, JSON or JSON-lines file; name of a data set; or a study with `problems`."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Problem file to write, JSON lines.")] = Path(
        "train.jsonl"
    ),
    split: Annotated[str, typer.Option(help="Split of a data set.")] = "train",
    config: Annotated[str | None, typer.Option(help="Configuration of a data set, such as main.")] = None,
    file: Annotated[str | None, typer.Option(help="One file of a data set.")] = None,
    prompt_key: Annotated[str | None, typer.Option(help="Key of the prompt, if it has an unusual name.")] = None,
    answer_key: Annotated[str | None, typer.Option(help="Key of the answer, if it has an unusual name.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Take only this many rows.")] = None,
    reward: Annotated[
        Path | None, typer.Option(help="Also write a reward function for mathematics there (needs math-verify).")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Write the problems of a data set as JSON lines, which every backend reads.

    With a study (YAML), its section `problems` says which rows of which data set; the files are those of its `data`.

    Examples:
        isocompute problems openai/gsm8k --config main --output train.jsonl --reward reward.py

        isocompute problems openai/gsm8k --config main --split test --output validation.jsonl --limit 300

        isocompute problems data/train.parquet --prompt-key question --output train.jsonl

        isocompute problems specs/paper_easy.yaml
    """
    from isocompute_sdk.training import problem_sets

    if Path(source).suffix in (".yaml", ".yml"):
        _of_study(Path(source), json=json)
        return
    rows = problem_sets.read_rows(source, split=split, config=config, file=file)
    count = problem_sets.write_problems(rows, output, prompt_key=prompt_key, answer_key=answer_key, limit=limit)
    if reward is not None:
        files.write_text(reward, problem_sets.maths_reward())
    if json:
        emit_json({"kind": "problems", "path": str(output), "problems": count, "reward": reward and str(reward)})
        return
    say(f"wrote {output}: {count:,} problems")
    if reward is not None:
        say(f"wrote {reward}\nnext: pip install {quote('isocompute[math]')} where the training runs")


def missing_files(study: Study, path: Path) -> tuple[list[str], str]:
    """Problem files of a study that are not there, and the command that writes them."""
    if study.problems is None:
        return [], ""
    missing = [name for name in (study.data.train, study.data.validation) if not Path(name).exists()]
    return missing, f"isocompute problems {quote(str(path))}"


def _of_study(path: Path, *, json: bool) -> None:
    from isocompute_sdk.errors import SpecError
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
        say(f"wrote {name}: {count:,} problems")
    wanted = study.data.n_problems
    if wanted is not None and written[study.data.train] < wanted:
        say(f"note: the study says data.n_problems: {wanted:,}; the data set has fewer that are kept")
    say(f"reward: {study.data.reward}")
    if study.problems.reward is not None:
        say(f"next: pip install {quote('isocompute[math]')} where the training runs; isocompute run {quote(str(path))}")
