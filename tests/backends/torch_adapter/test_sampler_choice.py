"""Which sampler a run takes, and what it says about it."""

from __future__ import annotations

import pytest
import torch

from isocompute_torch import configuration
from isocompute_torch.configuration import InputError, chosen_sampler


@pytest.mark.parametrize("installed", [True, False])
def test_vllm_samples_on_a_gpu_where_it_is_installed_and_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    monkeypatch.setattr(configuration, "vllm_is_installed", lambda: installed)
    for device in ("cpu", "cuda"):
        assert chosen_sampler("torch", device) == ("torch", None)
    assert chosen_sampler("auto", "cpu") == ("torch", None)
    sampler, note = chosen_sampler("auto", "cuda")
    assert (sampler, note.code if note else None) == (("vllm", None) if installed else ("torch", "sampler-fallback"))
    if installed:
        assert chosen_sampler("vllm", "cpu") == ("vllm", None)
    else:
        with pytest.raises(InputError, match=r"isocompute\[vllm\]|install"):
            chosen_sampler("vllm", "cpu")


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
