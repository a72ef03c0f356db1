"""Which sampler a run uses. Imports neither torch nor vLLM."""

from __future__ import annotations

from typing import Literal

from isocompute_sdk.notes import Note


def chosen_sampler(
    wanted: Literal["auto", "torch", "vllm"], device: str, *, installed: bool
) -> tuple[Literal["torch", "vllm"], Note | None]:
    """The sampler, and a note where a GPU has to do without vLLM."""
    if wanted != "auto":
        return wanted, None
    if device != "cuda":
        # On a CPU vLLM is slower than the torch sampler for the models that train there (docs/speed.md).
        return "torch", None
    if not installed:
        return "torch", fallback("vLLM is not installed (pip install 'isocompute[vllm]')")
    return "vllm", None


def fallback(reason: str) -> Note:
    """The note on a run that samples with torch on a GPU, and why."""
    message = (
        f"sampler = auto: torch samples, because {reason.rstrip('.')}. Rewards are drawn from the same distribution; "
        "sampling takes several times as long as with vLLM."
    )
    return Note("sampler-fallback", "warning", message, {"reason": reason})
