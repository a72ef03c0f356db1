"""Whether vLLM is there, and how to get it. Imports neither torch nor vLLM."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec

from isocompute_torch.failures import InputError

INSTALL = (
    "With a GPU: pip install 'isocompute[vllm]'. On a CPU, in a checkout of isocompute: "
    "PYTHON=/path/to/python bash scripts/install_vllm_cpu.sh. Or set options.sampler to torch."
)
"""How to install vLLM, for every message that misses it."""


def vllm_is_installed() -> bool:
    """Whether this interpreter can import vLLM; it is not imported, which takes seconds."""
    return find_spec("vllm") is not None


def require_vllm() -> None:
    """Refuse a run that asks for vLLM where there is none.

    Raises:
        InputError: vLLM is not installed; the hint says how to install it.
    """
    if not vllm_is_installed():
        raise InputError("options.sampler: received vllm; vLLM is not installed in this interpreter", INSTALL)


def vllm_version() -> str:
    """Version of the installed vLLM; its CPU build is a distribution of another name.

    Raises:
        PackageNotFoundError: vLLM was not installed as a package.
    """
    try:
        return metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return metadata.version("vllm-cpu")
