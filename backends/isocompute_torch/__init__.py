"""The built-in runner: GRPO, PPO and CISPO in one process, on a CPU or one GPU.

Importing this package loads no torch: the backend only writes scripts. Training is
`python -m isocompute_torch.train RUN_FOLDER`, in its own process.
"""

from isocompute_torch.backend import TorchBackend

__all__ = ["TorchBackend"]
