"""`isocompute probe`: ten steps at three batch sizes, and the throughput that follows from them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk import files
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.option_groups import with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.reading_options import ReadingOptions
from isocompute_sdk.errors import SpecError

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSet
    from isocompute_sdk.specs import RunSpec, Study, Throughput


@with_option_groups
def probe(
    *,
    study: Annotated[
        Path | None, typer.Argument(help="Study file (YAML): model, data, recipe; its sweep says which batches.")
    ] = None,
    backend: Annotated[str | None, opt.backend("Training framework; the study's by default.")] = None,
    steps: Annotated[int, typer.Option(help="Update steps of each run; the first is left out.", min=3)] = 10,
    batch: Annotated[
        list[str] | None, typer.Option("--batch", help="A batch n x B_p to time, e.g. 8x32; repeat it three times.")
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Train the probe here, one run after the other.")] = False,
    read: Annotated[
        list[Path] | None, typer.Option("--read", help="Logs to measure instead, of a probe or any runs; repeatable.")
    ] = None,
    seconds: Annotated[str | None, typer.Option(help="Metric that holds seconds per step, with --read.")] = None,
    reading: ReadingOptions,
    gpus: Annotated[int | None, opt.count("--gpus", "GPUs of the runs; the study's by default.")] = None,
    usd_per_gpu_hour: Annotated[
        float | None, opt.quantity("--usd-per-gpu-hour", "Price to keep beside the speed.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the throughput goes (YAML).")] = Path(
        "throughput.yaml"
    ),
    json: opt.Json = False,
) -> None:
    """Measure seconds per step: overhead, rate, evaluation, and the batch size that keeps the hardware busy.

    Writes a short launch script for each of three batches and one script that starts them all. --run trains them here
    and reads them back; otherwise run the script where you train, then read its logs with --read.

    Examples:
        isocompute probe study.yaml --backend torch --run

        isocompute probe study.yaml && bash runs/mine-probe/probe.sh && isocompute probe --read runs/mine-probe --gpus 8

        isocompute allocate runs.csv --budget "200 gpu_hours" --throughput throughput.yaml
    """
    from isocompute_sdk.specs import load_study

    given = read or ([reading.map] if reading.map is not None else None)
    if (study is None) == (given is None):
        raise SpecError(
            "received both or neither of STUDY and --read; accepted: one of them",
            "Give a study to measure, or --read with logs that have been measured.",
        )
    if study is None:
        runs = reading.read(read, reading.metric)
        _finish(_measure(runs, gpus or 1, seconds, usd_per_gpu_hour), output, json)
        return
    loaded = load_study(study)
    runs = _runs(loaded, backend or loaded.backend, batch, steps)
    script = _prepare(runs)
    count = gpus or max(loaded.hardware.gpu_counts)
    if run:
        _train(runs)
        from isocompute_sdk.records import RunSet

        _finish(_measure(RunSet.read(script.parent), count, seconds, usd_per_gpu_hour), output, json)
    elif json:
        listed = [one.model_dump(mode="json") for one in runs]
        emit_json({"kind": "probe", "script": str(script), "runs": listed})
    else:
        for one in runs:
            say(f"{one.run_id:<24} B = {one.rollouts_per_batch:,} rollouts, {one.update_steps} steps")
        say(f"wrote {script}\nnext: bash {shlex.quote(str(script))}")
        say(f"then: isocompute probe --read {shlex.quote(str(script.parent))} --gpus {count} --output {output}")


def _runs(study: Study, backend: str, batch: list[str] | None, steps: int) -> tuple[RunSpec, ...]:
    from isocompute_sdk.timing.probe import probe_pairs, probe_runs
    from isocompute_sdk.training import registry

    pairs = [_pair(text) for text in batch] if batch else probe_pairs(study)
    return probe_runs(study, registry.load(backend).describe(), pairs, steps)


def _pair(text: str) -> tuple[int, int]:
    from isocompute_sdk.specs import parse_count

    n, _, bp = text.partition("x")
    try:
        return parse_count(n), parse_count(bp)
    except SpecError as error:
        raise SpecError(
            f"--batch {text!r}; accepted: group size x problems per batch, such as 8x32",
            error.hint or "For example --batch 8x32.",
        ) from error


def _prepare(runs: tuple[RunSpec, ...]) -> Path:
    """Write a folder for each run, and the script that starts them one after the other."""
    from isocompute_sdk.campaigns.carrying_out import prepare
    from isocompute_sdk.training import registry
    from isocompute_sdk.training.backend import run_folder

    jobs = prepare(runs, registry.load(runs[0].backend), Path.cwd())
    lines = ["#!/usr/bin/env bash", "# Times a few steps at each batch; start it in the folder that data paths are of."]
    lines += ["set -euo pipefail"]
    for job, one in zip(jobs, runs, strict=True):
        settings = [f"{name}={shlex.quote(value)}" for name, value in job.launch.env.items()]
        lines.append(" ".join([*settings, "bash", shlex.quote(f"{run_folder(one)}/launch.sh")]))
    folder = Path(run_folder(runs[0])).parent
    return files.write_text(folder / "probe.sh", "\n".join(lines) + "\n", executable=True)


def _train(runs: tuple[RunSpec, ...]) -> None:
    from isocompute_sdk.campaigns.carrying_out import carry_out
    from isocompute_sdk.campaigns.executors import LocalExecutor
    from isocompute_sdk.cli.shared.work_progress import WorkProgress, resumable
    from isocompute_sdk.training import registry

    with resumable(), WorkProgress() as progress:
        carry_out(
            runs,
            registry.load(runs[0].backend),
            LocalExecutor(1),
            Path.cwd(),
            lambda statuses: progress.runs("probe", statuses),
        )


def _measure(runs: RunSet, gpus: int, seconds: str | None, price: float | None) -> Throughput:
    from isocompute_sdk.specs import Throughput

    return Throughput.measure(runs, gpus=gpus, seconds=seconds, usd_per_gpu_hour=price)


def _finish(throughput: Throughput, output: Path, json: bool) -> None:
    from isocompute_sdk.specs import dump_spec

    files.write_text(output, dump_spec(throughput))
    if json:
        document: dict[str, Any] = throughput.model_dump(mode="json")
        emit_json({"kind": "throughput", **document, "system_batch_size": throughput.system_batch_size})
        return
    say(throughput.summary())
    say(f"wrote {output}")
    plan = f"--budget '200 gpu_hours' --throughput {shlex.quote(str(output))}"
    say(f"with runs of yours: isocompute allocate RUNS {plan}")
    say(f"next: isocompute plan {plan}")
