"""What `RunSpec.options` may hold for this backend: device, memory, evaluation and rewards, nothing of the recipe."""

from __future__ import annotations

from typing import Annotated, Literal

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs.base import Count, Flag, Number, Quantity, Spec, Text


class TorchOptions(Spec):
    """Options of one run with the built-in runner; the defaults work on a CPU and on one GPU."""

    sampler: Literal["torch", "vllm"] = "torch"
    """Where rollouts are sampled: `torch` (a KV cache beside the trained weights) or `vllm` (an engine in the same
    process, with the weights copied into it after every update)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of model and samples. `auto`: cuda where there is one, else cpu."""
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    """Number format of the model. `auto`: bfloat16 on cuda, float32 on cpu."""
    threads: Count | None = None
    """CPU threads of the process. None: torch's own choice, normally all cores."""
    max_tokens_per_micro_batch: Count = 8_192
    """Tokens, prompts and padding included, in one forward and backward pass; the gradient does not depend on it."""
    sampling_batch: Count = 4096
    """Most rollouts that the torch sampler has in its KV cache at once."""
    merge_duplicates: Flag = True
    """Run equal prefixes and equal rollouts through the model once; exact up to rounding."""
    n_train: Count | None = None
    """Decoupled baseline: rollouts per problem that enter the gradient, while all n of them enter mean and standard
    deviation. None: all n."""
    save_every_steps: Count | None = None
    """Update steps between checkpoints. None: about 20 per run."""
    evaluations_per_decade: Count | None = None
    """Evaluate so many times per tenfold of update steps instead of every `evaluation.every_steps` steps; step 0 and
    the last step are always evaluated. None: evenly spaced."""
    eval_sets: Text | None = None
    """Further evaluation sets as `name=file.jsonl`, separated by commas. None: the validation problems only."""
    probe_problems: Annotated[int, Number(whole=True, ge=0)] = 100
    """Training problems that are evaluated too, always the same ones, as evaluation set `train_probe`; 0 for none."""
    reward_timeout_seconds: Quantity = 10.0
    """Time that one call of the reward function may take before it counts as failed."""
    on_reward_error: Literal["exclude", "stop"] = "exclude"
    """What happens to a rollout whose reward raises, times out or is not a finite number: `exclude` leaves it out of
    statistics and gradient and counts it as `reward_errors`; `stop` ends the run."""
    vllm_memory_share: Annotated[float, Number(gt=0, le=0.95)] = 0.4
    """Share of GPU memory for vLLM."""
    vllm_cache_gib: Count = 1
    """GiB of memory for vLLM's KV cache on a CPU."""

    def evaluation_files(self) -> dict[str, str]:
        """The further evaluation sets, name -> file.

        Raises:
            SpecError: an entry without a name or a file, or a name that is taken.
        """
        found: dict[str, str] = {}
        for entry in (self.eval_sets or "").split(",") if self.eval_sets else ():
            name, _, file = (part.strip() for part in entry.partition("="))
            if not name or not file or name in found or name in ("validation", "train_probe"):
                raise SpecError(
                    f"eval_sets: received {entry.strip()!r}; accepted: name=file.jsonl with a name of its own "
                    "(validation and train_probe are taken)",
                    "Separate several sets with commas, e.g. eval_sets: hard=hard.jsonl,easy=easy.jsonl",
                )
            found[name] = file
        return found
