"""Which sampler a run takes, and what it says about it."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from isocompute_torch.sampler_choice import chosen_sampler


@pytest.mark.parametrize("wanted", ["torch", "vllm"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("installed", [True, False])
def test_a_sampler_that_is_asked_for_is_kept(wanted: Literal["torch", "vllm"], device: str, installed: bool) -> None:
    assert chosen_sampler(wanted, device, installed=installed) == (wanted, None)


@pytest.mark.parametrize("installed", [True, False])
def test_on_a_cpu_torch_samples_without_a_word(installed: bool) -> None:
    assert chosen_sampler("auto", "cpu", installed=installed) == ("torch", None)


def test_on_a_gpu_vllm_samples_where_it_is_installed_and_a_note_says_where_it_is_not() -> None:
    assert chosen_sampler("auto", "cuda", installed=True) == ("vllm", None)
    sampler, note = chosen_sampler("auto", "cuda", installed=False)
    assert (sampler, note.code if note else None) == ("torch", "sampler-fallback")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_the_memory_of_a_gpu_is_read() -> None:
    from isocompute_torch.memory import memory_of

    found = memory_of(torch.device("cuda"))
    assert 0 < found.free <= found.total == torch.cuda.get_device_properties(0).total_memory


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_full_gpu_raises_what_the_learner_takes_for_a_full_device() -> None:
    from isocompute_torch.configuration import is_out_of_memory

    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50, dtype=torch.uint8, device="cuda")
    assert is_out_of_memory(caught.value)
