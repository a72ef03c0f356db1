"""The built-in runner: GRPO, PPO and CISPO in one process, on a CPU or one GPU.

Importing this package loads no torch: the backend only writes scripts. Training is
`python -m isocompute_torch.train RUN_FOLDER`, in its own process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isocompute_torch.backend import TorchBackend

__all__ = ["TorchBackend"]


def __getattr__(name: str) -> Any:
    """The backend on first use: a training process does not need it."""
    if name == "TorchBackend":
        from isocompute_torch.backend import TorchBackend

        return TorchBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
