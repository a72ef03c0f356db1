"""Whether vLLM is installed, and how to install it. Imports neither torch nor vLLM."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec

from isocompute_torch.failures import InputError

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
