"""The sampler in vLLM: an engine in this process that sleeps during every update and then receives the new weights.

Every rollout has its own seed, so its tokens depend on weights, prompt, its number in the group and the seed of the
call, not on vLLM's scheduling. Rounding may still change a draw between machines, or between a cached and a fresh
prefix; the prefix cache is emptied before each call, so that a call does not depend on earlier ones.

By default vLLM runs as a server with worker processes and usage statistics. Here it shares a process with the trainer:
its work stays in this process (weights are passed by reference, scheduling is deterministic), and the global state that
it changes while starting is restored: random generators, `torch.set_num_threads`, the hook for uncaught errors, and
LD_PRELOAD, which the reward function's process would inherit.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import os
import random
import sys
import time
import warnings
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isocompute_sdk.errors import IsoComputeError
from isocompute_torch.configuration import INSTALL, InputError, RunFailed
from isocompute_torch.policy import Policy
from isocompute_torch.sampler import Samples, check_finite

CPU_CACHE_GIB = "1"
"""GiB of memory for the KV cache on a CPU."""
CPU_TOKENS_AT_ONCE = 4096
"""Prompt tokens in one forward pass of the engine on a CPU, unless one prompt has more."""


@contextmanager
def _undisturbed(device: torch.device) -> Generator[None]:
    """Restore the global state that starting vLLM changes, and silence its deprecation warnings."""
    set_num_threads, excepthook, preload = torch.set_num_threads, sys.excepthook, os.environ.get("LD_PRELOAD")
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - vLLM seeds the global one
    try:
        with (
            torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads, sys.excepthook = set_num_threads, excepthook
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        if preload is None:
            os.environ.pop("LD_PRELOAD", None)
        else:
            os.environ["LD_PRELOAD"] = preload


ROWS_AT_ONCE = 1024
"""Rollouts decoded together; more hardly increase vLLM's speed, and each reserves memory."""
LOWEST_TEMPERATURE = 0.01
"""vLLM raises smaller temperatures other than 0 to this one."""
DISCARD_EVERYTHING = 2
"""vLLM's level of sleep that keeps no copy of the weights: the next ones come from the trainer."""
CHECKED_TOKENS = 16
"""Tokens of each sample that is compared with the trainer when the engine starts."""
AGREEMENT = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}
"""Largest mean difference of log-probabilities between engine and trainer that rounding explains."""


class VLLMSampler:
    """Samples with vLLM from a copy of a policy's weights.

    Args:
        policy: the trained model; the engine has its device and number format.
        model: its folder or hub name, for its configuration.
        longest: largest number of tokens of a prompt and its response together.
        rows_at_once: largest number of rollouts decoded together.
        memory_share: share of the GPU's memory for the engine.

    Raises:
        InputError: vLLM is missing, cannot run this model, or does not reproduce its log-probabilities.
    """

    def __init__(
        self,
        policy: Policy,
        model: str,
        *,
        longest: int,
        rows_at_once: int = ROWS_AT_ONCE,
        memory_share: float = 0.4,
    ) -> None:
        if policy.dtype not in AGREEMENT:
            raise InputError(
                f"options.dtype: received {policy.dtype} with sampler vllm; accepted: float32, bfloat16",
                "Use another dtype, or options.sampler: torch.",
            )
        self.policy = policy
        self.model = model
        self.longest = longest
        self._asleep = False
        self._engine: Any = None
        try:
            with _undisturbed(policy.device):
                self._engine = self._started(rows_at_once, memory_share)
            self._check_agreement()
        except IsoComputeError:
            self.close()
            raise
        except Exception as error:  # vLLM fails in as many ways as there are models and machines
            self.close()
            raise self._cannot_run(error) from error

    def _started(self, rows_at_once: int, memory_share: float) -> Any:
        """A `vllm.LLM` in this process with random weights; it reports the log-probabilities that it samples from."""
        device = self.policy.device
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        if device.type == "cpu":
            os.environ["VLLM_CPU_KVCACHE_SPACE"] = CPU_CACHE_GIB
            arguments: dict[str, Any] = {
                "enforce_eager": True,
                # A prompt read in two parts rewinds its rollout's generator, which vLLM supports on a GPU only.
                "enable_chunked_prefill": False,
                "max_num_batched_tokens": max(self.longest, rows_at_once, CPU_TOKENS_AT_ONCE),
            }
        else:
            arguments = {"gpu_memory_utilization": memory_share, "enable_sleep_mode": True}
        for name, value in (("VLLM_NO_USAGE_STATS", "1"), ("VLLM_LOGGING_LEVEL", "ERROR")):
            os.environ.setdefault(name, value)
        vllm: Any = importlib.import_module("vllm")
        platform: str = importlib.import_module("vllm.platforms").current_platform.device_type
        if platform != device.type:
            raise InputError(
                f"the installed vLLM samples on {platform!r}; accepted: {device.type!r}, the device of the training",
                f"Install the vLLM for it, or set options.sampler to torch. {INSTALL}",
            )
        return vllm.LLM(
            model=self.model,
            skip_tokenizer_init=True,
            # The trainer's weights replace them before the first token.
            load_format="dummy",
            dtype=str(self.policy.dtype).removeprefix("torch."),
            max_model_len=self.longest,
            max_num_seqs=rows_at_once,
            logprobs_mode="processed_logprobs",
            # A model's generation_config.json may set top_k, penalties and end tokens.
            generation_config="vllm",
            disable_log_stats=True,
            use_tqdm_on_load=False,
            seed=0,
            **arguments,
        )

    def _check_agreement(self) -> None:
        """Reject an engine whose log-probabilities are not those of the trained model."""
        tokens = min(CHECKED_TOKENS, self.longest - 1)
        prompt = [1 % self.policy.vocabulary]
        self.sync(self.policy.model)
        samples = self.sample([prompt], 4, temperature=1.0, top_p=1.0, max_tokens=tokens, seed=0)
        off = _mean_difference(self.policy, prompt, samples)
        if not off <= AGREEMENT[self.policy.dtype]:
            raise InputError(
                f"vLLM's log-probabilities of model {self.model!r} differ from the trainer's by {off:.3g} on average; "
                f"accepted: at most {AGREEMENT[self.policy.dtype]:g}",
                "vLLM computes this model differently from transformers. Set options.sampler to torch.",
            )

    def _cannot_run(self, error: Exception) -> InputError:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = " ".join(lines[:3]) if lines else type(error).__name__
        return InputError(
            f"vLLM cannot run model {self.model!r} in {self.policy.dtype} on {self.policy.device}: {reason}",
            "Set options.sampler to torch, which runs every Hugging Face model"
            + ("." if self.policy.device.type == "cpu" else ", or change options.vllm_memory_share."),
        )

    def sample(
        self, prompts: Sequence[list[int]], n: int, *, temperature: float, top_p: float, max_tokens: int, seed: int
    ) -> Samples:
        """`n` responses to each prompt; see `Sampler.sample`.

        Raises:
            InputError: prompt and response exceed `longest`, or vLLM would change the temperature.
            RunFailed: the model's log-probabilities are not finite.
        """
        self._check_request(prompts, temperature, max_tokens)
        assert not self._asleep, "an engine that sleeps never answers: sync comes first"
        # Greedy rollouts of a prompt are equal, so vLLM decodes one.
        drawn = 1 if temperature == 0.0 else n
        rows = self._generate(prompts, drawn, temperature, top_p, max_tokens, seed)
        if drawn < n:
            rows = [row for row in rows for _ in range(n)]
        samples = self._samples(prompts, rows)
        if temperature == 0.0:
            samples.logprob_RT.zero_()
        check_finite(samples.logprob_RT)
        return samples

    def rest(self) -> float:
        """Let the engine sleep: on a GPU it gives up its weights and its KV cache; returns the seconds it took."""
        started = time.perf_counter()
        if not self._asleep:
            self._engine.sleep(level=DISCARD_EVERYTHING)
            self._asleep = True
        return time.perf_counter() - started

    def sync(self, model: torch.nn.Module) -> float:
        """Wake the engine and copy the model's weights into it; returns the seconds it took."""
        started = time.perf_counter()
        on_gpu = self.policy.device.type == "cuda"
        if self._asleep:
            if on_gpu:
                # What the trainer's allocator keeps for its next update is the memory that the engine wakes into.
                torch.cuda.empty_cache()
            self._engine.wake_up(tags=["weights"])
        with torch.no_grad():
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": list(model.state_dict().items())})
        if self._asleep:
            # After the weights, which are loaded layer by layer and need some memory of their own for that.
            self._engine.wake_up(tags=["kv_cache"])
            self._asleep = False
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - started

    def close(self) -> None:
        """Stop the engine; a second call does nothing."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.llm_engine.engine_core.shutdown()
            del engine
            gc.collect()
            importlib.import_module("vllm.distributed").cleanup_dist_env_and_memory()

    def _generate(
        self, prompts: Sequence[list[int]], n: int, temperature: float, top_p: float, max_tokens: int, seed: int
    ) -> list[tuple[list[int], list[float], bool]]:
        """Tokens, log-probabilities and whether it was cut, of every rollout; those of a prompt are contiguous."""
        vllm: Any = importlib.import_module("vllm")
        ends = sorted(self.policy.codec.eos_ids)
        parameters = [
            vllm.SamplingParams(
                n=n,
                temperature=temperature,
                top_p=top_p,
                max_tokens=max_tokens,
                seed=prompt_seed(seed, i),
                # The codec decides which tokens end a response, not the model's configuration.
                ignore_eos=True,
                stop_token_ids=ends,
                logprobs=0,
                flat_logprobs=True,
                stop=list(self.policy.codec.stop),
                detokenize=bool(self.policy.codec.stop),
            )
            for i in range(len(prompts))
        ]
        if not self._engine.reset_prefix_cache():
            raise RunFailed("vLLM still holds unfinished requests", "Start the run again from its last checkpoint.")
        with _inside_the_trainer(self.policy.device):
            answers = self._engine.generate(
                [{"prompt_token_ids": list(prompt)} for prompt in prompts], parameters, use_tqdm=False
            )
        rollouts = [rollout for answer in answers for rollout in answer.outputs]
        return [
            (list(rollout.token_ids), rollout.logprobs.logprobs, rollout.finish_reason == "length")
            for rollout in rollouts
        ]

    def _samples(self, prompts: Sequence[list[int]], rows: list[tuple[list[int], list[float], bool]]) -> Samples:
        device = self.policy.device
        length_R = torch.tensor([len(tokens) for tokens, _, _ in rows])
        mask_RT = torch.arange(int(length_R.max())) < length_R.unsqueeze(-1)
        logprob_RT = _spread([logprobs for _, logprobs, _ in rows], mask_RT, 0.0).to(device)
        return Samples(
            prompt_index_R=torch.arange(len(prompts), device=device).repeat_interleave(len(rows) // len(prompts)),
            prompt_ids=list(prompts),
            response_RT=_spread([tokens for tokens, _, _ in rows], mask_RT, self.policy.codec.pad_id).to(device),
            mask_RT=mask_RT.to(device, torch.float32),
            logprob_RT=logprob_RT,
            entropy_RT=-logprob_RT,
            truncated_R=torch.tensor([cut for _, _, cut in rows], device=device),
        )

    def _check_request(self, prompts: Sequence[list[int]], temperature: float, max_tokens: int) -> None:
        needed = max(len(prompt) for prompt in prompts) + max_tokens
        if needed > self.longest:
            raise InputError(
                f"a prompt and its response have {needed} tokens; accepted: at most {self.longest}",
                "Start the sampler with a larger `longest`.",
            )
        if 0.0 < temperature < LOWEST_TEMPERATURE:
            raise InputError(
                f"temperature: received {temperature:g} with sampler vllm; accepted: 0, or at least "
                f"{LOWEST_TEMPERATURE} (vLLM raises smaller ones to it)",
                "Use 0 for greedy decoding, or options.sampler: torch.",
            )


def prompt_seed(seed: int, prompt: int) -> int:
    """Seed of the first rollout of a prompt, below 2^62; vLLM counts up from it for the others."""
    digest = hashlib.sha256(f"{seed}:{prompt}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 2


@contextmanager
def _inside_the_trainer(device: torch.device) -> Generator[None]:
    """Restore torch's random generators, from which vLLM draws even if every rollout has a seed.

    On a CPU its few compiled helpers run without compilation, which would take half a minute and a C++ compiler.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]))
        if device.type == "cpu":
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def _spread(rows: Sequence[Sequence[int | float]], mask_RT: Tensor, fill: int | float) -> Tensor:
    """Rows of different lengths as one tensor, `fill` after the end of each."""
    flat_K = torch.tensor(list(chain.from_iterable(rows)))
    return torch.full(mask_RT.shape, fill, dtype=flat_K.dtype).masked_scatter_(mask_RT, flat_K)


@torch.no_grad()
def _mean_difference(policy: Policy, prompt: list[int], samples: Samples) -> float:
    """Mean |log mu - log pi| of sampled tokens, at temperature 1."""
    prompt_RL = torch.tensor([prompt] * len(samples.prompt_index_R), device=policy.device)
    hidden_RLD = policy.hidden_states(torch.cat([prompt_RL, samples.response_RT], dim=1))
    logprob_RTV = policy.logits(hidden_RLD[:, len(prompt) - 1 : -1]).log_softmax(-1)
    logprob_RT = logprob_RTV.gather(-1, samples.response_RT.unsqueeze(-1)).squeeze(-1)
    difference_RT = (logprob_RT - samples.logprob_RT).abs() * samples.mask_RT
    return float(difference_RT.sum() / samples.mask_RT.sum())
