"""What all terms of the loss have in common: how they add up, what may be merged, what may be left out."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_sdk.errors import SpecError
from isocompute_torch.losses import Aggregation, Mean
from tests.backends.torch_losses.batches import AGGREGATIONS, VARIANTS, gradient, random_batch, seeds, term

every_term = pytest.mark.parametrize("variant", VARIANTS)
every_aggregation = pytest.mark.parametrize("aggregation", AGGREGATIONS)


@every_aggregation
@every_term
@settings(max_examples=6, deadline=None)
@given(seed=seeds, cuts=st.sets(st.integers(1, 6), max_size=4), weighted=st.booleans())
def test_micro_batches_add_up_to_the_full_batch(
    variant: str, aggregation: Aggregation, seed: int, cuts: set[int], weighted: bool
) -> None:
    batch = random_batch(seed, rows=7)
    weight_R = torch.tensor([1.0, 0.0, 3.0, 2.0, 1.0, 0.0, 5.0]).double() if weighted else None
    mean = Mean.of_batch(batch.mask_RT, aggregation, weight_R)
    whole = term(variant, batch, mean)
    bounds = [0, *sorted(cuts), 7]
    parts = [
        term(variant, batch.rows(slice(start, stop)), mean.rows(slice(start, stop)))
        for start, stop in itertools.pairwise(bounds)
    ]
    torch.testing.assert_close(sum(part.value for part in parts), whole.value, rtol=1e-12, atol=1e-14)
    summed = sum(gradient(part.value, batch) for part in parts)
    torch.testing.assert_close(summed, gradient(whole.value, batch), rtol=1e-12, atol=1e-14)
    for name, value in whole.stats.items():
        assert sum(part.stats[name] for part in parts) == pytest.approx(value, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@every_aggregation
@every_term
def test_merging_equal_rollouts_by_weight_leaves_loss_and_gradient_unchanged(
    variant: str, aggregation: Aggregation, dtype: torch.dtype, rtol: float
) -> None:
    batch = random_batch(3, rows=5, dtype=dtype)
    copies_R = torch.tensor([1, 4, 2, 7, 1])
    repeated = batch.rows(torch.arange(5).repeat_interleave(copies_R))
    every, weighted = (
        Mean.of_batch(repeated.mask_RT, aggregation),
        Mean.of_batch(batch.mask_RT, aggregation, copies_R.to(dtype)),
    )
    assert weighted.normaliser == every.normaliser
    full, merged = term(variant, repeated, every), term(variant, batch, weighted)
    torch.testing.assert_close(merged.value, full.value, rtol=10 * rtol, atol=rtol)
    expected = gradient(full.value, batch)
    assert torch.linalg.norm(gradient(merged.value, batch) - expected) <= rtol * torch.linalg.norm(expected)
    assert merged.stats == pytest.approx(full.stats, rel=10 * rtol, abs=rtol)


@every_aggregation
@every_term
def test_weight_zero_is_the_same_as_deleting_the_row(variant: str, aggregation: Aggregation) -> None:
    batch = random_batch(4, rows=6)
    keep_R = torch.tensor([True, False, True, True, False, True])
    weighted = term(variant, batch, Mean.of_batch(batch.mask_RT, aggregation, keep_R.double()))
    kept = batch.rows(keep_R)
    deleted = term(variant, kept, Mean.of_batch(kept.mask_RT, aggregation))
    torch.testing.assert_close(weighted.value, deleted.value, rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(gradient(weighted.value, batch), gradient(deleted.value, batch), rtol=1e-13, atol=1e-15)


@every_aggregation
@every_term
@settings(max_examples=6, deadline=None)
@given(seed=seeds)
def test_the_order_of_the_rollouts_does_not_matter(variant: str, aggregation: Aggregation, seed: int) -> None:
    batch = random_batch(seed)
    order_R = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    mean = Mean.of_batch(batch.mask_RT, aggregation)
    straight, shuffled = term(variant, batch, mean), term(variant, batch.rows(order_R), mean)
    torch.testing.assert_close(shuffled.value, straight.value, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(gradient(shuffled.value, batch), gradient(straight.value, batch), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("junk", [float("nan"), float("inf"), -float("inf"), 1e30])
@pytest.mark.parametrize("where", ["padding", "row of weight 0"])
@every_term
def test_what_does_not_count_may_hold_anything(variant: str, where: str, junk: float) -> None:
    batch = random_batch(5)
    weight_R = torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0, 1.0]).double()
    ignored_RT = batch.mask_RT == 0 if where == "padding" else (weight_R == 0).unsqueeze(-1).expand(6, 5)
    spoiled = {
        name: torch.where(ignored_RT, junk, getattr(batch, name))
        for name in ("sampled_RT", "old_RT", "reference_RT", "advantage_RT", "old_value_RT")
    }
    if where == "row of weight 0":
        spoiled["advantage_R"] = torch.where(weight_R == 0, junk, batch.advantage_R)
    spoiled["value_RT"] = torch.where(ignored_RT, junk, batch.value_RT).detach().requires_grad_()
    dirty_batch = replace(batch, **spoiled)
    mean = Mean.of_batch(batch.mask_RT, "token-mean", weight_R)
    clean, dirty = term(variant, batch, mean), term(variant, dirty_batch, mean)
    assert dirty.value == clean.value
    assert torch.equal(gradient(dirty.value, dirty_batch), gradient(clean.value, batch))
    assert dirty.stats == clean.stats


@every_aggregation
@every_term
def test_a_batch_without_usable_rollouts_has_loss_and_gradient_zero(variant: str, aggregation: Aggregation) -> None:
    batch = random_batch(6)
    loss = term(variant, batch, Mean.of_batch(batch.mask_RT, aggregation, torch.zeros(6).double()))
    assert loss.value == 0
    assert not gradient(loss.value, batch).any()


def test_the_two_aggregations_are_the_two_means() -> None:
    value_RT = torch.tensor([[1.0, 2.0, 3.0], [10.0, 7.0, 7.0]])
    mask_RT = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    expected: dict[Aggregation, tuple[float, float]] = {
        "token-mean": (4.0, 16 / 4),
        "seq-mean-token-mean": (2.0, (2 + 10) / 2),
    }
    for aggregation, (n, value) in expected.items():
        mean = Mean.of_batch(mask_RT, aggregation)
        assert mean.normaliser == n
        assert mean.of(value_RT, mask_RT) == value


def test_a_response_without_tokens_counts_in_neither_mean() -> None:
    mask_RT = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    assert Mean.of_batch(mask_RT, "token-mean").normaliser == 2
    mean = Mean.of_batch(mask_RT, "seq-mean-token-mean")
    assert mean.normaliser == 1
    assert mean.of(torch.ones(2, 2), mask_RT) == 1


def test_an_unknown_aggregation_is_refused_by_name() -> None:
    with pytest.raises(SpecError, match="'sum'"):
        Mean.of_batch(torch.ones(1, 1), "sum")  # pyright: ignore[reportArgumentType]
