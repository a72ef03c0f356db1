"""The adapter: a `RunSpec` in, one self-contained bash script for TRL 1.16.0 out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isocompute_sdk.backend import (
    BackendInfo,
    Launch,
    describe_options,
    raise_if_refused,
    resume_launch,
    run_folder,
    write_launch,
)
from isocompute_sdk.errors import BackendError
from isocompute_sdk.launch import render_resource
from isocompute_sdk.launch.payload import programs
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.store import read_journals
from isocompute_trl.flags import VERSION, processes, sharding_config, trainer_settings
from isocompute_trl.options import TRLOptions
from isocompute_trl.preflight import examine

OWN = ("prepare_rows.py", "run_journal.py", "validation_samples.py", "train.py")
"""Programs that the script writes into the run folder, beside those of the SDK."""
KIND = "trl-run"
SCHEMA_VERSION = 1


class TRLBackend:
    """Writes launch scripts for TRL 1.16.0; imports nothing of it."""

    name: str = "trl"

    def describe(self) -> BackendInfo:
        """What it drives and needs."""
        return BackendInfo(
            name=self.name,
            framework="TRL",
            version=VERSION,
            summary="GRPO and CISPO with Hugging Face's trainer and vLLM on one machine, or on a CPU.",
            needs=(
                f"trl[vllm]=={VERSION} in the interpreter named by PYTHON (default: python3)",
                "NVIDIA GPUs in one machine, as many as hardware.gpus says, and deepspeed for more than one; or "
                "options device = cpu and sampler = transformers",
                "training and validation problems as JSON lines, and a Python file with the reward function",
            ),
            algorithms=("grpo", "cispo"),
            options=describe_options(TRLOptions),
        )

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        """What is refused and what is worth knowing about `run`; see preflight.py."""
        return examine(run)[0]

    def script(self, run: RunSpec) -> str:
        """The launch script. Run it with bash in the folder that the data paths are relative to.

        Raises:
            BackendError: preflight refuses the run.
        """
        notes, options = examine(run)
        raise_if_refused(notes, self.name, run.run_id)
        if options is None:
            raise BackendError(f"{run.run_id!r} has no options although nothing was refused", "Report this defect.")
        return render_resource(
            "isocompute_trl",
            "templates/launch.sh.j2",
            {
                "run": run,
                "folder": run_folder(run),
                "version": VERSION,
                "processes": processes(run, options),
                "vllm": options.sampler == "vllm",
                "deepspeed": processes(run, options) > 1 and options.sharding != "ddp",
                "notes": notes,
                "documents": _documents(run, options),
            },
        )

    def prepare(self, run: RunSpec, folder: str | Path) -> Launch:
        """Write `launch.sh` into `folder` and return the command that starts it.

        Raises:
            BackendError: preflight refuses the run; nothing is written then.
        """
        return write_launch(folder, self.script(run))

    def resume(self, run: RunSpec, folder: str | Path) -> Launch:
        """Say how to go on: the script does so by itself, from the newest whole checkpoint.

        Raises:
            BackendError: nothing was prepared there, or another run; preflight refuses the run.
        """
        return resume_launch(self, run, folder)

    def read_records(self, folder: str | Path) -> RunSet:
        """Every metrics.jsonl in or below the folder; its avg@k, best@k and worst@k come from single samples.

        Raises:
            RecordError: nothing was measured yet, or a file cannot be read.
        """
        return read_journals(folder)


def _documents(run: RunSpec, options: TRLOptions) -> dict[str, str]:
    """Files that the script writes into the run folder."""
    documents = {"request.json": json.dumps(_request(run, options), indent=1)}
    sharding = sharding_config(run, options)
    if sharding is not None:
        documents["accelerate.json"] = json.dumps(sharding, indent=1)
    return documents | programs("isocompute_trl.payload", OWN)


def _request(run: RunSpec, options: TRLOptions) -> dict[str, Any]:
    """What the programs read; a later start in the same folder has to have the same `identity`.

    Options that only concern speed and memory are not part of it, so that a run can be resumed with others.
    """
    return {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "framework": "trl",
        "version": VERSION,
        "run": run.model_dump(mode="json"),
        "identity": {
            **run.model_dump(mode="json", exclude={"options", "output_dir", "hardware"}),
            "version": VERSION,
            "chat_template": options.chat_template,
            "sampler": options.sampler,
            "sharding": options.sharding if processes(run, options) > 1 else None,
            "processes": processes(run, options),
        },
        "chat_template": options.chat_template,
        "eval_samples_per_pass": options.eval_samples_per_pass,
        "trainer": trainer_settings(run, options),
        "context": run.context(),
    }
