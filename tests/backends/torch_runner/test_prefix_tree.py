"""Prefixes read once: which models may, and that scores and gradients stay the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from isocompute_torch.learner import score
from isocompute_torch.policy import KNOWN, SHORTEST_WINDOW, Policy, architecture_of
from isocompute_torch.rows import SHORTEST, Layout, Rows, plain_layout, tree_layout
from tests.parameters import few

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
        entropy_UT=torch.zeros_like(mask),
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


@given(data=st.data())
def test_every_token_is_predicted_from_its_own_prefix(data: st.DataObject) -> None:
    token = st.integers(2, 3)
    own = data.draw(st.lists(st.lists(st.integers(2, 9), min_size=1, max_size=5), min_size=1, max_size=3))
    system_prompt = [4] * data.draw(st.sampled_from([0, 2, 70]))
    prompts = [system_prompt + prompt for prompt in own]
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


def a_batch(seed: int = 0) -> Rows:
    """90 rollouts of two prompts that share many prefixes."""
    generator = torch.Generator().manual_seed(seed)
    responses = [(i % 2, torch.randint(2, 4, (3 + i % 4,), generator=generator).tolist()) for i in range(90)]
    return rows_of(responses, [[2, 12, 3, 13], [4, 13]])


@pytest.mark.parametrize("family", few(sorted(KNOWN), {"gpt2", "qwen3", "gemma3_text"}))
def test_trees_give_the_scores_and_the_gradient_of_separate_sequences(
    policy: Callable[..., Policy], family: str
) -> None:
    chosen = policy(family, torch.float64)
    # All but GPT-2 round to float32 inside their norms.
    tolerance = 1e-12 if family == "gpt2" else 1e-5
    rows, every = a_batch(), torch.arange(90)
    tree, plain = tree_layout(rows, every, PAD, chosen.dtype), plain_layout(rows, every, PAD)
    assert chosen.architecture.reads_trees
    assert tree is not None
    assert tree.input_ids_SL.shape[1] == SHORTEST
    assert tree.input_ids_SL.numel() < plain.input_ids_SL.numel() / 2
    direction = torch.randn(plain.mask_UT.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    scores: list[tuple[Tensor, Tensor]] = []
    gradients: list[Tensor] = []
    for layout in (tree, plain):
        chosen.model.zero_grad()
        logprob, entropy = score(chosen, layout, temperature=0.7, entropy=True)
        (direction * (logprob + entropy)).sum().backward()
        scores.append((logprob, entropy))
        gradients.append(torch.cat([p.grad.flatten() for p in chosen.model.parameters() if p.grad is not None]))
    for part, whole in zip(*scores, strict=True):
        torch.testing.assert_close(part, whole, rtol=tolerance, atol=tolerance)
    assert gradients[1].norm() > 1e-2
    assert (gradients[0] - gradients[1]).norm() < tolerance * gradients[1].norm()


@pytest.mark.parametrize(
    "family",
    few([*sorted(KNOWN), "gemma2", "mistral-window", "stablelm"], {"gpt2", "qwen3", "gemma2", "mistral-window"}),
)
def test_scores_are_those_of_the_models_own_forward_pass(policy: Callable[..., Policy], family: str) -> None:
    chosen, rows = policy(family), a_batch()
    model: Any = chosen.model
    layout = plain_layout(rows, torch.arange(90), PAD)
    found, _ = score(chosen, layout, temperature=0.7)
    for row in (0, 31, 89):
        prompt = rows.prompt_ids[int(rows.prompt_index_U[row])]
        length = int(rows.mask_UT[row].sum())
        response = rows.response_UT[row, :length]
        logits = model(input_ids=torch.cat([torch.tensor(prompt), response])[None, :-1]).logits[0, len(prompt) - 1 :]
        expected = (logits / 0.7).log_softmax(-1).gather(-1, response[:, None])[:, 0]
        torch.testing.assert_close(found[row, :length], expected, rtol=1e-5, atol=1e-5)


IDS = torch.tensor([[3, 4, 5, 13, 7, 8, 9, 2, 2, 6]])


@pytest.mark.parametrize(
    ("config", "reads"),
    [
        ({"model_type": "llama"}, True),
        ({"model_type": "qwen2", "sliding_window": 32, "use_sliding_window": False}, True),
        ({"model_type": "mistral", "sliding_window": SHORTEST_WINDOW}, True),
        ({"model_type": "mistral", "sliding_window": SHORTEST_WINDOW - 1}, False),
        ({"model_type": "qwen3", "layer_types": ["full_attention", "linear_attention"]}, False),
        ({"model_type": "llama", "final_logit_softcapping": 30.0}, False),
        ({"model_type": "llama", "attn_logit_softcapping": 50.0}, False),
        ({"model_type": "llama", "attn_logit_softcapping": None}, True),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, False),
        ({"model_type": "gemma3_text"}, True),
        ({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}, False),
        ({"model_type": "llama", "text_config": {"final_logit_softcapping": 30.0}}, False),
        ({"model_type": "an-unknown-one"}, False),
        ({}, False),
    ],
)
def test_the_configuration_decides_whether_prefixes_are_shared(config: dict[str, Any], reads: bool) -> None:
    found = architecture_of(config)
    assert found.reads_trees is reads
    assert (found.note is None) is reads
    assert (found.longest_tree > 0) is reads
    if config.get("sliding_window") == SHORTEST_WINDOW:
        assert found.longest_tree == SHORTEST_WINDOW
    assert found.caps_attention is bool(config.get("attn_logit_softcapping"))


@pytest.mark.parametrize("removed", ["attn_logit_softcapping", "final_logit_softcapping"])
def test_a_tiny_gemma_2_keeps_both_caps(
    policy: Callable[..., Policy], model_folder: Callable[[str], Path], tmp_path: Path, removed: str
) -> None:
    """The expected logits come from transformers' eager attention, the only one that applies the cap."""
    folder, chosen = model_folder("gemma2"), policy("gemma2")

    def eager(config: Any) -> torch.Tensor:
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=torch.float32, attn_implementation="eager"
        )
        return model.eval()(input_ids=IDS).logits[0]

    config = transformers.AutoConfig.from_pretrained(folder)
    found = chosen.logits(chosen.hidden_states(IDS))[0]
    torch.testing.assert_close(found, eager(config), rtol=1e-5, atol=1e-5)
    setattr(config, removed, None)
    assert (eager(config) - found).abs().max() > 0.05
    # Decoding with a cache applies the same caps.
    torch.testing.assert_close(chosen.next_logits(IDS, chosen.new_cache())[0], found[-1], rtol=1e-5, atol=1e-5)
