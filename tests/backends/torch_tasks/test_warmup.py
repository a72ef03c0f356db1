"""The warm-up stops where it was asked to, with the same weights every time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from isocompute_torch.configuration import RunFailed
from isocompute_torch.tasks import ModelShape, WarmUp
from isocompute_torch.tasks.arithmetic import problems
from isocompute_torch.tasks.build import WarmedUp, build_model, build_tokenizer, encode, pass_rates, warm_up

FEW = encode(problems("mul31")[:16], build_tokenizer())


def trained(seed: int, **changes: Any) -> tuple[Any, WarmedUp]:
    model = build_model(ModelShape(), 0)
    settings = WarmUp(**{"pass_rate": 0.8, "max_steps": 200, "batch": 16, **changes})
    return model, warm_up(model, FEW, settings, np.random.default_rng(seed), lambda done, total: None)


def test_a_warm_up_stops_at_the_first_look_at_which_the_pass_rate_is_reached() -> None:
    model, result = trained(0)
    assert pass_rates(model, FEW).mean() == pytest.approx(result.pass_rate, rel=1e-5)
    assert result.pass_rate >= 0.8
    assert result.steps % 20 == 0
    with pytest.raises(RunFailed, match=f" {result.steps - 20} "):
        trained(0, max_steps=result.steps - 20)


def test_the_same_order_gives_the_same_weights_bit_for_bit_and_another_does_not() -> None:
    short = {"pass_rate": 0.0, "max_steps": 6, "check_every": 6, "batch": 5}
    (first, _), (again, _), (other, _) = (trained(seed, **short) for seed in (1, 1, 2))
    equal = [
        all(torch.equal(mine, yours) for mine, yours in zip(first.parameters(), model.parameters(), strict=True))
        for model in (again, other)
    ]
    assert equal == [True, False]


def test_progress_goes_up_to_the_total_even_when_the_warm_up_ends_early() -> None:
    seen: list[tuple[int, int]] = []
    settings = WarmUp(pass_rate=0.0, max_steps=50, check_every=3, batch=4)
    result = warm_up(
        build_model(ModelShape(), 0),
        FEW,
        settings,
        np.random.default_rng(0),
        lambda done, total: seen.append((done, total)),
    )
    assert result.steps == 3
    assert seen == [(1, 50), (2, 50), (50, 50)]
