"""`isocompute run --probe`: ten steps at three batch sizes; seconds per step of runs as a file for --throughput."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from isocompute_sdk import files
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.errors import FitError, SpecError

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSet
    from isocompute_sdk.specs import RunSpec, Study

_PANEL = "Seconds per step"
DEFAULT_FILE = Path("throughput.yaml")


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """What a probe times, as typed on the command line."""

    probe: Annotated[bool, opt.option("Time a few steps at three batch sizes.", _PANEL, "--probe")] = False
    backend: Annotated[str | None, opt.backend("Training framework; the study's by default.", _PANEL)] = None
    steps: Annotated[
        int, typer.Option(help="Update steps of each run; the first is not timed.", min=3, rich_help_panel=_PANEL)
    ] = 10
    batch: Annotated[
        list[str] | None, opt.option("A batch n x B_p to time, e.g. 8x32; give three.", _PANEL, "--batch")
    ] = None
    gpus: Annotated[int | None, opt.count("--gpus", "GPUs per run; the study's by default.", _PANEL)] = None
    usd_per_gpu_hour: Annotated[
        float | None, opt.quantity("--usd-per-gpu-hour", "Dollars per GPU-hour, saved with the speed.", _PANEL)
    ] = None
    output: Annotated[Path, opt.option("File for the throughput (YAML).", _PANEL, "--output", "-o")] = DEFAULT_FILE


def probe(study: Study, asked: ProbeOptions, *, prepare_only: bool, json: bool) -> None:
    """Write the scripts of a probe; train it here and save the throughput unless `prepare_only`.

    Raises:
        SpecError: a batch that is none.
        BackendError: a run failed.
    """
    from isocompute_sdk.records import RunSet
    from isocompute_sdk.timing.measuring import probe_pairs, probe_runs
    from isocompute_sdk.training import registry

    pairs = [_pair(text) for text in asked.batch] if asked.batch else probe_pairs(study)
    runs = probe_runs(study, registry.load(asked.backend or study.backend).describe(), pairs, asked.steps)
    script = _prepare(runs)
    gpus = asked.gpus or max(study.hardware.gpu_counts)
    if not prepare_only:
        _train(runs)
        save_speed(RunSet.read(script.parent), gpus, None, asked.usd_per_gpu_hour, asked.output, json=json)
    elif json:
        listed = [one.model_dump(mode="json") for one in runs]
        emit_json({"kind": "probe", "script": str(script), "runs": listed})
    else:
        for one in runs:
            say(f"{one.run_id:<24} B = {one.rollouts_per_batch:,} rollouts, {one.update_steps} steps")
        say(f"wrote {script}\nnext: bash {quote(str(script))}")
        say(f"then: isocompute doctor {quote(str(script.parent))} --speed --gpus {gpus} --output {asked.output}")


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
    lines = [
        "#!/usr/bin/env bash",
        "# Times a few steps at each batch; start it in the folder that data paths are relative to.",
    ]
    lines += ["set -euo pipefail"]
    for job, one in zip(jobs, runs, strict=True):
        settings = [f"{name}={quote(value)}" for name, value in job.launch.env.items()]
        lines.append(" ".join([*settings, "bash", quote(f"{run_folder(one)}/launch.sh")]))
    folder = Path(run_folder(runs[0])).parent
    return files.write_text(folder / "probe.sh", "\n".join(lines) + "\n", executable=True)


def _train(runs: tuple[RunSpec, ...]) -> None:
    from isocompute_sdk.campaigns.carrying_out import carry_out
    from isocompute_sdk.campaigns.executors import LocalExecutor
    from isocompute_sdk.cli.shared.work_progress import WorkProgress, resumable
    from isocompute_sdk.training import registry

    progress = WorkProgress()
    with resumable():
        carry_out(
            runs,
            registry.load(runs[0].backend),
            LocalExecutor(1),
            Path.cwd(),
            lambda statuses: progress.runs("probe", statuses),
        )


def save_speed(
    runs: RunSet,
    gpus: int | None,
    seconds: str | None,
    price: float | None,
    output: Path | None,
    *,
    source: str | None = None,
    json: bool,
) -> None:
    """Measure the throughput of runs, write it as YAML and print it.

    Args:
        runs: runs of at least two batch sizes.
        gpus: GPUs of each run; None: as the runs say.
        seconds: metric that holds seconds per step; None finds it.
        price: US dollars per GPU-hour; None if unknown.
        output: file to write; None for `DEFAULT_FILE`.
        source: what they were read from, as typed; None for runs that are too short to plan from.
        json: print one JSON document.

    Raises:
        FitError: the runs do not show seconds per step.
    """
    from isocompute_sdk.specs import Throughput, dump_spec
    from isocompute_sdk.specs.throughput import MORE_BATCHES

    output = output or DEFAULT_FILE
    try:
        throughput = Throughput.measure(runs, gpus=gpus, seconds=seconds, usd_per_gpu_hour=price)
    except FitError as error:
        # They are those of a plan.
        error.options = ()
        raise
    files.write_text(output, dump_spec(throughput))
    if json:
        size = throughput.system_batch_size
        emit_json({"kind": "throughput", **throughput.model_dump(mode="json"), "system_batch_size": size})
        return
    say(throughput.summary())
    say(f"wrote {output}")
    if throughput.measured is not None and not throughput.measured.separates_batches:
        say(MORE_BATCHES)
        return
    plan = f"--budget '200 gpu_hours' --throughput {quote(str(output))}"
    if source is None:
        say(f"with your own runs: isocompute allocate RUNS {plan}")
        say(f"next: isocompute plan {plan}")
    else:
        say(f"next: isocompute allocate {source} {plan}")
