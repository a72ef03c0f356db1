"""The written-out gradients are the derivatives."""

from __future__ import annotations

import pytest
import torch

from isocompute_torch.lean_ops import attention_weights, gated, normalised, rotated, seen_softmax_


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


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_what_is_not_seen_gets_nothing_whatever_the_size_of_the_scores(scale: float) -> None:
    torch.manual_seed(0)
    score = scale * torch.randn(2, 3, 4, 4)
    mask = torch.full((4, 4), -1e30).triu(1)
    expected = (score + mask).softmax(-1)
    torch.testing.assert_close(seen_softmax_(score.clone(), mask), expected)
    blind = mask.index_fill(0, torch.tensor([2]), -1e30)
    assert seen_softmax_(score, blind).isfinite().all()
