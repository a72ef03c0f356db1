"""Seconds per step of runs, as a file for `--throughput`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from isocompute_sdk import files
from isocompute_sdk.cli.shared.output import emit_json, say

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSet

DEFAULT_FILE = Path("throughput.yaml")


def save_speed(
    runs: RunSet, gpus: int, seconds: str | None, price: float | None, output: Path | None, *, json: bool
) -> None:
    """Measure the throughput of runs, write it as YAML and print it.

    Args:
        runs: runs of at least two batch sizes.
        gpus: GPUs of each run.
        seconds: metric that holds seconds per step; None finds it.
        price: US dollars per GPU-hour; None if unknown.
        output: file to write; None for `DEFAULT_FILE`.
        json: print one JSON document.

    Raises:
        FitError: the runs do not show seconds per step.
    """
    from isocompute_sdk.specs import Throughput, dump_spec

    output = output or DEFAULT_FILE
    throughput = Throughput.measure(runs, gpus=gpus, seconds=seconds, usd_per_gpu_hour=price)
    files.write_text(output, dump_spec(throughput))
    if json:
        size = throughput.system_batch_size
        emit_json({"kind": "throughput", **throughput.model_dump(mode="json"), "system_batch_size": size})
        return
    say(throughput.summary())
    say(f"wrote {output}")
    plan = f"--budget '200 gpu_hours' --throughput {quote(str(output))}"
    say(f"with runs of yours: isocompute allocate RUNS {plan}")
    say(f"next: isocompute plan {plan}")
