"""The layer written out as a whole is that of transformers, and its gradients are the derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from isocompute_torch.lean_layer import LayerWeights, Reading, whole_layer
from isocompute_torch.model import Policy

SEQUENCES, LENGTH, WIDTH, SIZE, INNER = 2, 3, 4, 4, 5


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("wanted", [None, [2, 1, 3]])
@pytest.mark.parametrize("asked_from", [0, 1])
@pytest.mark.parametrize(("heads", "key_heads"), [(1, 1), (2, 2), (4, 2)])
@pytest.mark.parametrize("positions", [(LENGTH,), (SEQUENCES, LENGTH)])
def test_gradients_are_those_of_finite_differences(
    heads: int, key_heads: int, wanted: list[int] | None, asked_from: int, positions: tuple[int, ...]
) -> None:
    torch.manual_seed(heads)
    projected = (heads + 2 * key_heads) * SIZE
    angles = torch.randn(*positions, SIZE // 2, dtype=torch.float64).repeat(*[1] * len(positions), heads + key_heads)
    mask = torch.full((LENGTH, LENGTH), -1e30, dtype=torch.float64).triu(1)
    reading = Reading(
        SEQUENCES,
        heads,
        key_heads,
        torch.tensor(1e-2, dtype=torch.float64),
        torch.polar(torch.ones_like(angles), angles),
        mask,
        asked_from,
        None if wanted is None else torch.tensor(wanted),
    )
    weights = [
        numbers(projected, WIDTH),
        numbers(projected),
        numbers(WIDTH, heads * SIZE),
        numbers(WIDTH),
        numbers(INNER, WIDTH),
        numbers(INNER, WIDTH),
        numbers(WIDTH, INNER),
    ]

    def layer(hidden: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        return whole_layer(hidden, LayerWeights(*tensors), reading)

    assert torch.autograd.gradcheck(layer, (numbers(SEQUENCES * LENGTH, WIDTH), *weights))


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_the_gradient_of_a_model_is_that_of_transformers(policy: Callable[..., Policy], family: str) -> None:
    chosen = policy(family, torch.float64)
    model: Any = chosen.model
    torch.manual_seed(0)
    ids, direction = torch.randint(2, 12, (5, 9)), torch.randn(4, chosen.vocabulary, dtype=torch.float64)
    wanted = torch.tensor([3, 40, 8, 22])
    gradients: list[torch.Tensor] = []
    for logits in (
        chosen.logits(chosen.hidden_states(ids, wanted_J=wanted)),
        model(input_ids=ids, use_cache=False).logits.flatten(0, 1)[wanted],
    ):
        model.zero_grad()
        (logits * direction).sum().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    found, expected = gradients
    # The norms of transformers round to float32 inside.
    assert ((found - expected).norm() / expected.norm()).item() < 1e-5
