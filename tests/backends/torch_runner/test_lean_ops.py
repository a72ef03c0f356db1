"""The written-out gradients are the derivatives."""

from __future__ import annotations

import torch

from isocompute_torch.lean_ops import attention_weights, gated, normalised, rotated


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_gradients_are_those_of_finite_differences() -> None:
    torch.manual_seed(0)
    turns = torch.polar(torch.ones(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda x: normalised(x, torch.tensor(1e-2, dtype=torch.float64)), (numbers(5, 7),))
    assert torch.autograd.gradcheck(gated, (numbers(5, 7), numbers(5, 7)))
    assert torch.autograd.gradcheck(attention_weights, (numbers(2, 3, 5),))
    assert torch.autograd.gradcheck(lambda x: rotated(x, turns, 2), (numbers(2, 3, 20),))


def test_weights_are_a_softmax_also_where_nothing_is_seen() -> None:
    score = torch.tensor([[1.0, -1e30, 3.0], [-1e30, -1e30, -1e30]])
    torch.testing.assert_close(attention_weights(score), score.softmax(-1))
