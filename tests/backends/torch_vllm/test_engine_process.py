"""A process of its own: what starting an engine leaves behind, and which models it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from isocompute_torch.vllm_sampler import VLLMSampler

pytestmark = pytest.mark.vllm

PROGRAM = """
import json, os, random, signal, sys, threading
import numpy as np, torch, transformers
from isocompute_torch.configuration import InputError
from isocompute_torch.policy import load_policy
from isocompute_torch.policy import Policy
from isocompute_torch.vllm_sampler import VLLMSampler

torch.set_num_threads(1)
folder, refused_folder, llama_folder = sys.argv[1:]
codec = load_policy(folder, torch.device("cpu"), torch.float32).codec
common = dict(vocab_size=16, hidden_size=64, intermediate_size=64, num_hidden_layers=1, max_position_embeddings=64,
              bos_token_id=None, eos_token_id=1, pad_token_id=0, initializer_range=0.2)


def state():
    return {
        "python": random.getstate(), "numpy": np.random.get_state()[1].tolist(),
        "torch": torch.get_rng_state().tolist(), "threads": torch.get_num_threads(),
        "set_num_threads": torch.set_num_threads is set_num_threads, "excepthook": sys.excepthook is excepthook,
        "preload": os.environ.get("LD_PRELOAD"), "dtype": str(torch.get_default_dtype()),
        "gradient": torch.is_grad_enabled(), "affinity": sorted(os.sched_getaffinity(0)),
        "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)],
    }


def random_model(config, path):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(path)
    return Policy(model, codec)


set_num_threads, excepthook = torch.set_num_threads, sys.excepthook
random.seed(5), np.random.seed(5), torch.manual_seed(5)
before = state()
result = {}
sampler = VLLMSampler(load_policy(folder, torch.device("cpu"), torch.float32), folder, longest=24)
after = state()
result["changed"] = [name for name in before if before[name] != after[name]]
samples = sampler.sample([[2, 12, 3, 13], [4, 13]], 8, temperature=0.6, top_p=1.0, max_tokens=8, seed=3)
result["tokens"], result["logprobs"] = samples.response_RT.tolist(), samples.logprob_RT.tolist()
sampler.close()
sampler.close()
result["group"] = torch.distributed.is_initialized()
qwen = transformers.Qwen2Config(**common, num_attention_heads=4, num_key_value_heads=4)
small_heads = random_model(qwen, refused_folder)
try:
    VLLMSampler(small_heads, refused_folder, longest=24)
except InputError as error:
    result["refusal"] = str(error)
llama = transformers.LlamaConfig(**common, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=False)
policy = random_model(llama, llama_folder)
sampler = VLLMSampler(policy, llama_folder, longest=24)
samples = sampler.sample([[2, 12, 3, 13]], 16, temperature=1.0, top_p=1.0, max_tokens=8, seed=3)
ids = torch.cat([torch.tensor([[2, 12, 3, 13]] * 16), samples.response_RT], dim=1)
with torch.no_grad():
    logprobs = policy.model(input_ids=ids).logits[:, 3:-1].log_softmax(-1)
difference = (logprobs.gather(-1, samples.response_RT[..., None])[..., 0] - samples.logprob_RT) * samples.mask_RT
result["llama"] = float(difference.abs().max())
sampler.close()
result["live_threads"] = [t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
print("\\n" + json.dumps(result))
"""


@pytest.fixture(scope="module")
def outcome(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process reports that starts and closes three engines, one after the other."""
    folder = tmp_path_factory.mktemp("process")
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(model_folder), str(folder / "refused"), str(folder / "llama")],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("VLLM_")},
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return json.loads(result.stdout.splitlines()[-1])


def test_starting_an_engine_leaves_the_process_as_it_was(outcome: dict[str, Any]) -> None:
    assert outcome["changed"] == []


def test_another_process_samples_the_same(outcome: dict[str, Any], sampler: VLLMSampler) -> None:
    samples = sampler.sample([[2, 12, 3, 13], [4, 13]], 8, temperature=0.6, top_p=1.0, max_tokens=8, seed=3)
    assert outcome["tokens"] == samples.response_RT.tolist()
    assert outcome["logprobs"] == samples.logprob_RT.tolist()


def test_a_closed_engine_leaves_no_process_group_and_no_thread(outcome: dict[str, Any]) -> None:
    assert outcome["group"] is False
    assert outcome["live_threads"] == []


def test_a_model_that_vllm_cannot_run_is_refused_with_its_reason_and_a_way_out(outcome: dict[str, Any]) -> None:
    assert "head_dim=16" in outcome["refusal"]
    assert "options.sampler" in outcome["refusal"]


def test_a_later_engine_runs_another_architecture_with_its_own_weights(outcome: dict[str, Any]) -> None:
    assert outcome["llama"] < 1e-4
