"""Options of this backend in `RunSpec.options`: device, memory, evaluation and rewards."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs.base import Count, Flag, Number, Quantity, Spec, Text


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
    """Compute layers again in the backward pass instead of keeping their activations. None: on cuda."""
    sampling_batch: Count = 4096
    """Largest number of rollouts in the KV cache of the torch sampler."""
    merge_duplicates: Flag = True
    """Let the model read equal prefixes and equal rollouts once; exact up to rounding."""
    stop: str | None = None
    """Text that ends a response, such as a line break; the response keeps it. Several as a JSON list:
    `'["\\n", "."]'`. None: only the model's end token ends a response."""
    n_train: Count | None = None
    """Decoupled baseline: rollouts per problem with a gradient; mean and standard deviation use all n. None: all n."""
    save_every_steps: Count | None = None
    """Update steps between checkpoints. None: about 20 per run."""
    keep_state: Flag = False
    """Keep weights and optimiser of the last step when the run has finished, so that it can be made longer: up to 16
    bytes per parameter. The trained model and the best one are always kept."""
    evaluations_per_decade: Count | None = None
    """Evaluations per factor of ten in update steps, in place of `evaluation.every_steps`; step 0 and the last step are
    always evaluated. None: evenly spaced."""
    eval_sets: Text | None = None
    """Further evaluation sets as `name=file.jsonl`, separated by commas. None: the validation problems only."""
    probe_problems: Annotated[int, Number(whole=True, ge=0)] = 0
    """Size of the evaluation set `train_probe`, a fixed subset of the training problems; 0 for none."""
    reward_timeout_seconds: Quantity = 10.0
    """Time limit of one call of the reward function; a longer call counts as failed."""
    reward_processes: Count | None = None
    """Most processes that call the reward function; more than one only run once a batch took over a second. None: one
    per core, at most 16. Rewards do not depend on it."""
    on_reward_error: Literal["exclude", "stop"] = "exclude"
    """Treatment of a rollout whose reward raises, times out or is not a finite number: `exclude` removes it from
    statistics and gradient and counts it in `reward_errors`; `stop` ends the run."""
    vllm_memory_share: Annotated[float, Number(gt=0, le=0.95)] | None = None
    """Share of GPU memory for vLLM while it samples; during an update it sleeps and holds almost none. None: what
    weights and optimiser leave free, at most 0.6."""
    vllm_cache_gib: Count = 1
    """GiB of memory for vLLM's KV cache on a CPU."""

    def stop_texts(self) -> tuple[str, ...]:
        """The texts that end a response.

        Raises:
            SpecError: an empty text, or a list that cannot be read.
        """
        if self.stop is None:
            return ()
        try:
            texts = json.loads(self.stop) if self.stop.startswith("[") else [self.stop]
        except ValueError:
            texts = [""]
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise SpecError(
                f"stop: received {self.stop!r}; accepted: a text that is not empty, or a JSON list of such texts",
                """For example stop: '["\\n", "."]'.""",
            )
        return tuple(texts)

    def evaluation_files(self) -> dict[str, str]:
        """The further evaluation sets, name -> file.

        Raises:
            SpecError: an entry without name or file, or a repeated or reserved name.
        """
        found: dict[str, str] = {}
        for entry in (self.eval_sets or "").split(",") if self.eval_sets else ():
            name, _, file = (part.strip() for part in entry.partition("="))
            if not name or not file or name in found or name in ("validation", "train_probe"):
                raise SpecError(
                    f"eval_sets: received {entry.strip()!r}; accepted: name=file.jsonl with a distinct name "
                    "(validation and train_probe are reserved)",
                    "Separate several sets with commas, e.g. eval_sets: hard=hard.jsonl,easy=easy.jsonl",
                )
            found[name] = file
        return found
