"""Below float32, weights follow a float32 copy: updates that rounding would swallow add up."""

from __future__ import annotations

import torch
from torch import nn

from isocompute_torch.learner import Optimiser


def test_bfloat16_weights_follow_float32_adamw_on_the_same_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    start = (1 + torch.rand(64, generator=generator)).bfloat16()
    weights, reference = nn.Parameter(start.clone()), nn.Parameter(start.float())
    ours = Optimiser([weights], betas=(0.9, 0.999), weight_decay=0.01, clip=1.0)
    plain = torch.optim.AdamW([reference], lr=3e-5, betas=(0.9, 0.999), weight_decay=0.01)
    for _ in range(400):
        halves = [torch.rand(64, generator=generator).bfloat16() for _ in range(2)]
        for half in halves:  # two micro-batches
            weights.grad = half.clone()
            ours.collect()
        reference.grad = halves[0].float() + halves[1].float()
        torch.nn.utils.clip_grad_norm_([reference], 1.0)
        ours.gradient_norm()
        ours.step(3e-5)
        plain.step()
    (master,) = ours.state()["masters"]
    torch.testing.assert_close(master, reference.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(weights.detach(), reference.detach().bfloat16(), rtol=0, atol=0)
    # One update alone is below half a step of bfloat16, so that without the copy nothing would ever move.
    assert torch.equal((start.float() - 3e-5).bfloat16(), start)
    assert (weights.detach() != start).float().mean() > 0.9


def test_a_gradient_that_is_forgotten_leaves_nothing_behind() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        weights = nn.Parameter(torch.ones(4, dtype=dtype))
        optimiser = Optimiser([weights], betas=(0.9, 0.999), weight_decay=0.0, clip=1.0)
        weights.grad = torch.ones(4, dtype=dtype)
        optimiser.collect()
        weights.grad = torch.ones(4, dtype=dtype)
        optimiser.forget()
        assert optimiser.gradient_norm() == 0.0
