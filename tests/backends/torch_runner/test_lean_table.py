"""The first layer read from tables is the layer, and its gradients are the derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from isocompute_torch import lean
from isocompute_torch.lean_layer import LayerWeights
from isocompute_torch.lean_table import attention_to, first_layer, looked_up, tokens_read
from isocompute_torch.model import Policy, additive_mask

SIZE, WIDTH, VOCABULARY, POSITIONS = 4, 5, 3, 4
IDS = torch.tensor([[0, 2, 1, 0], [1, 1, 2, 2]])
CAUSAL = torch.full((4, 4), -1e30, dtype=torch.float64).triu(1)


@pytest.mark.parametrize(("heads", "key_heads"), [(1, 1), (2, 2), (4, 2)])
@pytest.mark.parametrize("positions", [None, torch.tensor([[0, 1, 2, 3], [0, 1, 1, 2]])])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_gradients_are_those_of_finite_differences(
    heads: int, key_heads: int, positions: torch.Tensor | None, scale: float
) -> None:
    """Also where scores are so large that the largest of a row has to be taken off."""
    torch.manual_seed(heads)
    turns = torch.polar(
        torch.ones(POSITIONS, SIZE // 2, dtype=torch.float64), torch.randn(POSITIONS, SIZE // 2).double()
    )
    projected = (scale**0.5 * torch.randn(VOCABULARY, (heads + 2 * key_heads) * SIZE)).double().requires_grad_()
    mix = torch.randn(WIDTH, heads * SIZE, dtype=torch.float64, requires_grad=True)
    table = torch.randn(VOCABULARY, WIDTH, dtype=torch.float64, requires_grad=True)

    def attended(projected_VX: torch.Tensor, mix_DX: torch.Tensor, table_VD: torch.Tensor) -> torch.Tensor:
        weights = LayerWeights(projected, None, mix_DX, None, projected, projected, projected)
        first = first_layer(projected_VX, weights, turns, heads, key_heads)
        tokens = tokens_read(IDS, positions, first.score_HVPV)
        attention = attention_to(first.score_HVPV, tokens, CAUSAL)
        torch.testing.assert_close(attention.sum(-1), torch.full((IDS.numel(),), float(heads)).double())
        return looked_up(table_VD, tokens) + attention @ first.mix_DX.t()

    assert torch.autograd.gradcheck(attended, (projected, mix, table), atol=1e-4)


@pytest.fixture
def few_tokens(policy: Callable[..., Policy]) -> Policy:
    chosen = policy("few-tokens")
    with torch.no_grad():
        for name, parameter in chosen.model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(generator=torch.Generator().manual_seed(len(name)))
    return chosen


def tables_used(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Filled with what is read from tables from now on."""
    used: list[torch.Tensor] = []

    def watched(*arguments: Any) -> torch.Tensor:
        used.append(attention_to(*arguments))
        return used[-1]

    monkeypatch.setattr(lean, "attention_to", watched)
    return used


@pytest.mark.parametrize("padded", [False, True])
def test_the_gradient_of_a_model_is_that_of_transformers(
    few_tokens: Policy, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = tables_used(monkeypatch)
    model: Any = few_tokens.model
    torch.manual_seed(0)
    rows, length = (150, 12) if padded else (40, 12)
    ids = torch.randint(2, 16, (rows, length))
    missing = torch.randint(0, 4, (rows, 1)) if padded else torch.zeros(rows, 1, dtype=torch.long)
    seen = (torch.arange(length) >= missing).long()
    positions = (torch.arange(length) - missing).clamp(min=0)
    wanted = (torch.arange(rows * length).view(rows, length)[:, 5:]).flatten()
    direction = torch.randn(len(wanted), few_tokens.vocabulary)
    ours = few_tokens.hidden_states(
        ids,
        additive_mask(seen, length, torch.float32) if padded else None,
        positions if padded else None,
        wanted_J=wanted,
    )
    assert len(used) == 1
    gradients: list[torch.Tensor] = []
    for logits in (
        few_tokens.logits(ours),
        model(input_ids=ids, attention_mask=seen, position_ids=positions, use_cache=False).logits.flatten(0, 1)[wanted],
    ):
        model.zero_grad()
        (logits * direction).sum().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    found, expected = gradients
    assert ((found - expected).norm() / expected.norm()).item() < 1e-5


def test_few_sequences_are_computed_without_tables(few_tokens: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    used = tables_used(monkeypatch)
    few_tokens.hidden_states(torch.tensor([[3, 4, 5]]))
    assert not used


@pytest.mark.parametrize("longest", [20, 200])
def test_reading_token_after_token_is_reading_at_once(few_tokens: Policy, longest: int) -> None:
    """With tables up to a length, beyond it without; rows are copied on the way."""
    torch.manual_seed(1)
    length = min(longest, 80)
    ids = torch.randint(2, 16, (3, length))
    chosen = torch.tensor([2, 0, 0, 1])
    with torch.no_grad():
        expected = few_tokens.logits(few_tokens.hidden_states(ids).flatten(0, 1)).view(3, length, -1)
        cache = few_tokens.new_cache(longest)
        found = [few_tokens.next_logits(ids[:, :5], cache)]
        found += [few_tokens.next_logits(ids[:, t : t + 1], cache) for t in range(5, 9)]
        cache.batch_select_indices(chosen)
        later = [few_tokens.next_logits(ids[chosen, t : t + 1], cache) for t in range(9, length)]
    torch.testing.assert_close(torch.stack(found, 1), expected[:, 4:9], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.stack(later, 1), expected[chosen, 9:], rtol=1e-4, atol=1e-4)
