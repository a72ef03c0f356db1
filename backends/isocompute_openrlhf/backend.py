"""The adapter: a `RunSpec` in, one self-contained bash script for OpenRLHF 0.11.2 out."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from isocompute_openrlhf.flags import MODULE, VERSION, sections
from isocompute_openrlhf.options import OpenRLHFOptions
from isocompute_openrlhf.placement import Placement
from isocompute_openrlhf.preflight import examine
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
from isocompute_sdk.notes import Note
from isocompute_sdk.specs import RunSpec

PROGRAMS = ("claim_folder.py", "prepare_rows.py", "reward_wrapper.py", "resume_point.py")
"""Programs that the script writes into the run folder, from the folder payload/."""


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
        payload = resources.files("isocompute_openrlhf") / "payload"
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
                "request": json.dumps(_request(run, options, placement), indent=1),
                "programs": {name: (payload / name).read_text(encoding="utf-8") for name in PROGRAMS},
                "sections": sections(run, options, placement),
                "engines": ["_actor", "_critic"] if run.recipe.algorithm == "ppo" else ["_actor"],
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


def _request(run: RunSpec, options: OpenRLHFOptions, placement: Placement) -> dict[str, object]:
    """What identifies the run: a later start in the same folder has to ask for the same.

    Options that only concern speed and memory are left out, so that a run can be resumed with others; the
    number of GPUs and the ZeRO stage are in, because a checkpoint can only be loaded with the same.
    """
    return {
        "kind": "openrlhf-run",
        "schema_version": 1,
        "run_id": run.run_id,
        "backend": "openrlhf",
        "framework_version": VERSION,
        "model": run.model,
        "group_size": run.group_size,
        "problems_per_batch": run.problems_per_batch,
        "update_steps": run.update_steps,
        "seed": run.seed,
        "learning_rate": run.learning_rate,
        "recipe": run.recipe.model_dump(mode="json"),
        "evaluation": run.evaluation.model_dump(mode="json"),
        "data": run.data.model_dump(mode="json"),
        "validation_problems": run.evaluation.n_problems,
        "chat_template": options.chat_template,
        "nodes": placement.nodes,
        "gpus": placement.gpus,
        "zero_stage": options.zero_stage,
    }
