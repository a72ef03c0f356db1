"""The optimiser: AdamW with linear warm-up, gradient clipping and, below float32, master weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn


def warmed_up(learning_rate: float, update: int, warmup_steps: int) -> float:
    """Learning rate of update u = 1, 2, ...: lr * min(1, u / warmup_steps); paper, section 3."""
    return learning_rate if update >= warmup_steps else learning_rate * update / warmup_steps


class Optimiser:
    """AdamW (arXiv 1711.05101) on the parameters of one module.

    Weights of fewer bits than float32 would lose most updates to rounding. For them the optimiser keeps a float32
    copy, accumulates gradients there, and writes the rounded weights back after each step.

    Args:
        parameters: the trained weights.
        betas: decay rates of the two running means.
        weight_decay: decoupled weight decay, as a multiple of the learning rate.
        clip: largest global norm of the gradient.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], *, betas: tuple[float, float], weight_decay: float, clip: float
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.clip = clip
        self._has_masters = any(torch.finfo(parameter.dtype).bits < 32 for parameter in self.parameters)
        self._masters = [
            nn.Parameter(parameter.detach().float().clone()) if self._has_masters else parameter
            for parameter in self.parameters
        ]
        self._adam = torch.optim.AdamW(self._masters, lr=0.0, betas=betas, weight_decay=weight_decay, fused=True)

    def collect(self) -> None:
        """Add the gradient of one micro-batch to the float32 copy; call it after each backward pass."""
        if not self._has_masters:
            return
        for parameter, master in zip(self.parameters, self._masters, strict=True):
            if parameter.grad is None:
                continue
            if master.grad is None:
                master.grad = parameter.grad.float()
            else:
                master.grad.add_(parameter.grad)
            parameter.grad = None

    def forget(self) -> None:
        """Clear the gradient collected so far."""
        for parameter in (*self.parameters, *self._masters):
            parameter.grad = None

    def gradient_norm(self) -> float:
        """Scale the collected gradient down to the norm `clip` if it is larger; returns its global norm before that."""
        return float(torch.nn.utils.clip_grad_norm_(self._masters, self.clip))

    def step(self, learning_rate: float) -> None:
        """Update the weights and clear the gradient."""
        for group in self._adam.param_groups:
            group["lr"] = learning_rate
        for master in self._masters:
            if master.grad is None:
                # A missing gradient is a gradient of 0: the running means still decay.
                master.grad = torch.zeros_like(master)
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        if self._has_masters:
            with torch.no_grad():
                for parameter, master in zip(self.parameters, self._masters, strict=True):
                    parameter.copy_(master)

    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs except the weights."""
        masters = [master.detach() for master in self._masters] if self._has_masters else []
        return {"adam": self._adam.state_dict(), "masters": masters}

    def load_state(self, state: dict[str, Any]) -> None:
        """Load what `state` returned."""
        self._adam.load_state_dict(state["adam"])
        with torch.no_grad():
            for master, saved in zip(self._masters, state["masters"], strict=self._has_masters):
                master.copy_(saved)
