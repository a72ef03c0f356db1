"""The adapter: a `RunSpec` in, one self-contained bash script for OpenRLHF 0.11.2 out."""

from __future__ import annotations

import json
from pathlib import Path

from isocompute_openrlhf.flags import MODULE, VERSION, checkpoint_interval, sections
from isocompute_openrlhf.options import OpenRLHFOptions
from isocompute_openrlhf.preflight import examine
from isocompute_openrlhf.records import read_folder
from isocompute_openrlhf.request import request_of
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

OWN = ("prepare_rows.py", "reward_wrapper.py", "resume_point.py", "supervise.py")
"""Programs that the script writes into the run folder, beside those of the SDK."""


class OpenRLHFBackend:
    """Writes launch scripts for OpenRLHF 0.11.2; imports nothing of it."""

    name: str = "openrlhf"

    def describe(self) -> BackendInfo:
        """What it drives and needs."""
        return BackendInfo(
            name=self.name,
            framework="OpenRLHF",
            version=VERSION,
            summary="GRPO and PPO on Ray, vLLM and DeepSpeed; trainer and engines share all GPUs and take turns.",
            needs=(
                f"openrlhf[vllm]=={VERSION} in the interpreter named by PYTHON (default: python3)",
                "NVIDIA GPUs with flash-attn support, as many as hardware.gpus says",
                "training and validation problems as JSON lines, and a Python file with the reward function",
                "for several nodes: a running Ray cluster and a shared file system",
            ),
            algorithms=("grpo", "ppo"),
            options=describe_options(OpenRLHFOptions),
        )

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        """What is refused and what is worth knowing about `run`; see preflight.py."""
        return examine(run)[0]

    def script(self, run: RunSpec) -> str:
        """The launch script. Run it with bash in the folder that the data paths are relative to.

        Raises:
            BackendError: preflight refuses the run.
        """
        notes, options, placement = examine(run)
        raise_if_refused(notes, self.name, run.run_id)
        if options is None or placement is None:
            raise BackendError(f"{run.run_id!r} has no placement although nothing was refused", "Report this defect.")
        return render_resource(
            "isocompute_openrlhf",
            "templates/launch.sh.j2",
            {
                "run": run,
                "folder": run_folder(run),
                "version": VERSION,
                "module": MODULE,
                "placement": placement,
                "notes": notes,
                "request": json.dumps(request_of(run, options, placement), indent=1),
                "programs": programs("isocompute_openrlhf.payload", OWN),
                "sections": sections(run, options, placement),
                "engines": ["_actor", "_critic"] if run.recipe.algorithm == "ppo" else ["_actor"],
                "supervision": _supervision(run, options),
                "submit": options.ray_job_address,
            },
        )

    def prepare(self, run: RunSpec, folder: str | Path) -> Launch:
        """Write `launch.sh` into `folder` and return the command that starts it.

        Raises:
            BackendError: preflight refuses the run; nothing is written then.
        """
        return write_launch(folder, self.script(run))

    def resume(self, run: RunSpec, folder: str | Path) -> Launch:
        """Say how to go on: the script does so by itself, from the newest checkpoint.

        Raises:
            BackendError: nothing was prepared there, or another run; preflight refuses the run.
        """
        return resume_launch(self, run, folder)

    def read_records(self, folder: str | Path) -> RunSet:
        """Everything that the runs at or below `folder` have measured; notes say what their logs lack. See records.py.

        Raises:
            RecordError: nothing was measured yet, or something cannot be read.
        """
        return read_folder(folder)


def _supervision(run: RunSpec, options: OpenRLHFOptions) -> list[str]:
    """Options of supervise.py."""
    chosen = {
        "save-every": checkpoint_interval(run, options),
        "evaluate-every": run.evaluation.every_steps,
        "last": run.update_steps,
        "keep": options.keep_checkpoints,
        "stop-after": options.stop_after_steps,
        "submit": options.ray_job_address,
    }
    return [f"--{name}={value}" for name, value in chosen.items() if value is not None]
