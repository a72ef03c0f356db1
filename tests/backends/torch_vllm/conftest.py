"""One vLLM engine on a tiny random model, shared by all tests of the process: starting one takes 10 to 25 seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from isocompute_sdk.specs import RunSpec
from tests.backends.tiny_runs import tiny_run, write_inputs, write_run

if TYPE_CHECKING:
    import torch

    from isocompute_torch.policy import Policy
    from isocompute_torch.vllm_sampler import VLLMSampler

LONGEST = 24
"""Most tokens of prompt and response that the engine is started for."""


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2 model with a character tokenizer, as `save_pretrained` writes them."""
    import torch
    import transformers

    from isocompute_torch.tasks.arithmetic import build_tokenizer

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models") / "qwen2"
    tokenizer = build_tokenizer()
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,  # of 32 each: vLLM's attention kernels take no smaller ones
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    # With this seed greedy responses end after 2, 4 and 8 tokens, or not at all.
    torch.manual_seed(2)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def policy(model_folder: Path) -> Policy:
    """The policy whose weights the engine holds."""
    import torch

    from isocompute_torch.policy import load_policy

    return load_policy(str(model_folder), torch.device("cpu"), torch.float32)


@pytest.fixture(scope="session")
def engines() -> Iterator[list[VLLMSampler]]:
    """The engine of this process, once a test has asked for it."""
    started: list[VLLMSampler] = []
    yield started
    for one in started:
        one.close()


@pytest.fixture
def sampler(engines: list[VLLMSampler], policy: Policy, model_folder: Path) -> VLLMSampler:
    """The engine; without vLLM this fails, and so do all tests that ask for it."""
    from isocompute_torch.vllm_sampler import VLLMSampler

    if not engines:
        engines.append(VLLMSampler(policy, str(model_folder), longest=LONGEST))
    return engines[0]


@pytest.fixture
def no_engine(engines: list[VLLMSampler]) -> None:
    """For tests that start their own: vLLM's groups are one per process, and go with whichever engine closes first."""
    while engines:
        engines.pop().close()


@pytest.fixture
def perturbed(policy: Policy, sampler: VLLMSampler) -> Iterator[torch.nn.Module]:
    """The policy's model with every weight changed, the engine still as before; both restored at the end."""
    import torch

    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=generator))
    yield policy.model
    policy.model.load_state_dict(before)
    sampler.sync(policy.model)


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """A run folder that asks for vLLM, in a folder with problems and reward function."""
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    return lambda name, model: write_run(tmp_path / name, of_vllm(model))


def of_vllm(model: str) -> RunSpec:
    return tiny_run(model, update_steps=6, options={"sampler": "vllm"})


@pytest.fixture
def run_spec() -> Callable[[str], RunSpec]:
    """A small run that asks for vLLM."""
    return of_vllm
