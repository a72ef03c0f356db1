"""Rollouts laid out as trees get the log-probabilities that they have alone, from fewer tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_torch.batching import Layout, Rows, plain_layout
from isocompute_torch.model import Policy
from isocompute_torch.prefix_tree import SHORTEST, tree_layout
from isocompute_torch.scoring import score

PAD = 0


def rows_of(responses: list[tuple[int, list[int]]], prompts: list[list[int]]) -> Rows:
    """Rows with these prompts and responses; what stands after their ends is of no account."""
    width = max(len(response) for _, response in responses)
    count = len(responses)
    mask = torch.tensor([[1.0] * len(r) + [0.0] * (width - len(r)) for _, r in responses])
    return Rows(
        prompt_index_U=torch.tensor([prompt for prompt, _ in responses]),
        response_UT=torch.tensor([r + [PAD] * (width - len(r)) for _, r in responses]),
        mask_UT=mask,
        sampled_logprob_UT=torch.zeros_like(mask),
        first_U=torch.arange(count),
        row_R=torch.arange(count),
        prompt_ids=prompts,
    )


def histories(layout: Layout) -> list[list[tuple[list[int], int]]]:
    """What each scored token of each row is predicted from, in order of positions, and the token itself."""
    ids_N, found = layout.input_ids_SL.flatten().tolist(), []
    length = layout.input_ids_SL.shape[1]
    assert layout.attention_mask is not None
    assert layout.pick_K is not None
    assert layout.position_ids_SL is not None
    position_N = layout.position_ids_SL.flatten().tolist()
    seen_SLL = (layout.attention_mask[:, 0] == 0).tolist()
    for row, mask in zip(layout.node_UT.tolist(), layout.mask_UT.tolist(), strict=True):
        steps: list[tuple[list[int], int]] = []
        for node in [node for node, counts in zip(row, mask, strict=True) if counts]:
            source = layout.source_J[layout.pick_K[node]].item()
            sequence, place = divmod(int(source), length)
            seen = [sequence * length + k for k in range(length) if seen_SLL[sequence][place][k]]
            assert [position_N[k] for k in seen] == list(range(len(seen)))
            steps.append(([ids_N[k] for k in seen], int(layout.token_K[node])))
        found.append(steps)
    return found


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_token_is_predicted_from_its_own_prefix(data: st.DataObject) -> None:
    token = st.integers(2, 3)
    prompts = data.draw(st.lists(st.lists(st.integers(2, 9), min_size=1, max_size=5), min_size=1, max_size=3))
    response = st.lists(token, min_size=1, max_size=7)
    pairs = st.tuples(st.integers(0, len(prompts) - 1), response)
    responses = data.draw(st.lists(pairs, min_size=1, max_size=60))
    rows = rows_of(responses, prompts)
    chosen = data.draw(st.permutations(range(len(responses))))[: data.draw(st.integers(1, len(responses)))]
    layout = tree_layout(rows, torch.tensor(chosen), PAD, torch.float32)
    if layout is None:
        return
    expected = [[(prompts[p] + r[:t], r[t]) for t in range(len(r))] for p, r in (responses[index] for index in chosen)]
    assert histories(layout) == expected


@pytest.mark.parametrize(
    ("family", "tolerance"), [("gpt2", 1e-12), ("llama", 1e-5), ("qwen2", 1e-5), ("few-tokens", 1e-5)]
)
def test_log_probabilities_are_those_of_separate_sequences(
    policy: Callable[..., Policy], family: str, tolerance: float
) -> None:
    chosen = policy(family, torch.float64 if family == "gpt2" else torch.float32)
    assert chosen.reads_trees
    generator = torch.Generator().manual_seed(0)
    responses = [(i % 2, torch.randint(2, 4, (3 + i % 4,), generator=generator).tolist()) for i in range(90)]
    rows, every = rows_of(responses, [[2, 12, 3, 13], [4, 13]]), torch.arange(90)
    tree, plain = tree_layout(rows, every, PAD, chosen.dtype), plain_layout(rows, every, PAD)
    assert tree is not None
    assert tree.input_ids_SL.shape[1] == SHORTEST
    assert tree.input_ids_SL.numel() < plain.input_ids_SL.numel() / 2
    for part, whole in zip(
        score(chosen, tree, temperature=0.7, entropy="measure"),
        score(chosen, plain, temperature=0.7, entropy="measure"),
        strict=True,
    ):
        torch.testing.assert_close(part, whole, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("family", ["mistral", "gemma2"])
def test_models_with_windows_are_not_given_trees(policy: Callable[..., Policy], family: str) -> None:
    assert not policy(family).reads_trees


def test_long_or_unlike_rollouts_are_left_as_they_are() -> None:
    long = rows_of([(0, [2] * 300), (0, [3] * 300)], [[2, 3]])
    assert tree_layout(long, torch.arange(2), PAD, torch.float32) is None
    unlike = rows_of([(0, [2, 2]), (1, [3, 3])], [[2, 3], [3, 3]])
    assert tree_layout(unlike, torch.arange(2), PAD, torch.float32) is None
