"""`OpenRLHFBackend`: from a `RunSpec` to one self-contained bash script for OpenRLHF 0.11.2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from isocompute_openrlhf.flag_sets import written_for
from isocompute_openrlhf.flags import FILE_FLAGS, MODULE, OF_PLAN, VERSION, length_flags, sections
from isocompute_openrlhf.options import OpenRLHFOptions
from isocompute_openrlhf.placement import Placement
from isocompute_openrlhf.preflight import examine
from isocompute_openrlhf.request import REQUEST, REQUEST_DOCUMENT, request_of
from isocompute_sdk.errors import BackendError, RecordError
from isocompute_sdk.ingest.stores.saved_config import scalar
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import ScriptBackend
from isocompute_sdk.training.backend import BackendInfo, Needs, Requires, describe_options, ray_needs
from isocompute_sdk.training.existing import Setting
from isocompute_sdk.training.payload import programs
from isocompute_sdk.training.request_file import checkpoint_interval

OWN = ("prepare_rows.py", "reward_wrapper.py", "resume_point.py", "supervise.py")
"""Programs that the script writes into the run folder besides those of the SDK."""


class OpenRLHFBackend(ScriptBackend):
    """Writes launch scripts for OpenRLHF 0.11.2; imports nothing of it."""

    name: str = "openrlhf"
    packages: tuple[str, ...] = ("openrlhf",)
    one_release: bool = True
    reads_inputs: bool = True
    log_format: str = "openrlhf"

    def describe(self) -> BackendInfo:
        """Its description."""
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
            install=(
                "python3.11 -m venv openrlhf-env && source openrlhf-env/bin/activate",
                f"pip install 'openrlhf[vllm]=={VERSION}' --no-deps && pip install vllm==0.29.0",
                "pip install flash-attn==2.8.3 --no-build-isolation",
                f"pip install 'openrlhf[vllm]=={VERSION}'",
                "export PYTHON=$PWD/openrlhf-env/bin/python",
            ),
            passes=OpenRLHFOptions.PASSES,
        )

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        """Notes on a run before it starts; see preflight.py."""
        return examine(run)[0]

    def requires(self, run: RunSpec) -> Requires:
        """Problems, reward function and model; OpenRLHF itself unless another cluster trains."""
        elsewhere = OpenRLHFOptions.model_validate(run.options).ray_job_address is not None
        required = super().requires(run)
        return replace(required, packages=(), releases=()) if elsewhere else required

    def needs(self, run: RunSpec) -> Needs:
        """The GPUs of one node; none here for a job that another Ray cluster trains."""
        options, placement = _accepted(run)
        if options.ray_job_address is not None:
            return Needs()
        source = "hardware.gpus" if options.gpus_per_node is None else "options.gpus_per_node"
        return ray_needs(placement.gpus_per_node, placement.nodes, source)

    def values(self, run: RunSpec) -> dict[str, Any]:
        """Variables of the template."""
        options, placement = _accepted(run)
        return {
            "module": MODULE,
            "placement": placement,
            "sections": sections(run, options, placement),
            "engines": ["_actor", "_critic"] if run.recipe.algorithm == "ppo" else ["_actor"],
            "supervision": _supervision(run, options),
            "submit": options.ray_job_address,
        }

    def settings(self, run: RunSpec) -> tuple[Setting, ...]:
        """Its flags, but for paths, memory and machines."""
        parts = sections(run, *_accepted(run))
        flags = [flag for part in parts for flag in part.flags if not flag.base and flag.name not in FILE_FLAGS]
        length = {flag.name: flag for flag in length_flags(run)}
        return tuple(
            Setting(flag.name, _read(flag.values), tuple(flag.arguments("", run.model)), flag.name in OF_PLAN)
            for flag in [*(flag for flag in flags if flag.name not in length), *length.values()]
            if flag.name in OF_PLAN or flag.name.split(".")[0] in ("algo", "actor", "critic", "rollout", "data")
        )

    def update_steps(self, keys: Mapping[str, Any]) -> float | None:
        """Batches of `data.max_samples` rows in `train.num_episodes` episodes; flat flags are of earlier releases."""
        rows, batch = (
            keys.get(dotted, keys.get(flat))
            for dotted, flat in (("data.max_samples", "max_samples"), ("rollout.batch_size", "rollout_batch_size"))
        )
        episodes = keys.get("train.num_episodes", keys.get("num_episodes")) or 1
        return float(rows // batch * episodes) if isinstance(rows, int) and isinstance(batch, int) else None

    def documents(self, run: RunSpec) -> dict[str, str]:
        """The request, and the programs of the script."""
        request = REQUEST_DOCUMENT.to_text(request_of(run, *_accepted(run)))
        return {REQUEST: request, **programs("isocompute_openrlhf.payload", OWN)}

    def read_records(self, folder: str | Path) -> RunSet:
        """Everything that the runs at or below `folder` have measured; notes say what their logs lack.

        Raises:
            RecordError: nothing was measured yet, or something cannot be read.
        """
        try:
            return super().read_records(folder)
        except RecordError as error:
            raise error.restated(f"{error.message}{old_flags(Path(folder))}") from error


def _read(values: tuple[str, ...]) -> str | int | float | bool | None:
    """The value of a flag; a switch is true, and several values are one text."""
    return True if not values else scalar(values[0]) if len(values) == 1 else " ".join(values)


def _accepted(run: RunSpec) -> tuple[OpenRLHFOptions, Placement]:
    """Options and placement of an accepted run."""
    _, options, placement = examine(run)
    if options is None or placement is None:
        raise BackendError(f"{run.run_id!r} has no placement, but preflight refused nothing", "Report this defect.")
    return options, placement


def _supervision(run: RunSpec, options: OpenRLHFOptions) -> list[str]:
    """Command-line options of supervise.py."""
    chosen = {
        "save-every": checkpoint_interval(run, options.save_every_steps),
        "evaluate-every": run.evaluation.every_steps,
        "last": run.update_steps,
        "keep": options.keep_checkpoints,
        "stop-after": options.stop_after_steps,
        "submit": options.ray_job_address,
        "samples": run.evaluation.samples,
    }
    return [f"--{name}={value}" for name, value in chosen.items() if value is not None]


def old_flags(folder: Path) -> str:
    """What scripts in a folder without a run say about the release they were written for."""
    for script in sorted(folder.glob("*.sh")):
        version = written_for(script.read_text(encoding="utf-8", errors="replace"))
        if version is not None and version != VERSION:
            return f"; {script.name} calls OpenRLHF with the flags of {version}, this release reads runs of {VERSION}"
    return ""
