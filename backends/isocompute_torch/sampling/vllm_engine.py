"""Starting and stopping a vLLM engine inside this process, without changing the rest of the process.

By default vLLM runs as a server with worker processes and usage statistics. Here it shares a process with the trainer:
its work stays in this process (weights are passed by reference, scheduling is deterministic), and the global state that
it changes while starting is restored: random generators, `torch.set_num_threads`, the hook for uncaught errors, and
LD_PRELOAD, which the reward function's process would inherit.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from isocompute_torch.failures import InputError
from isocompute_torch.sampling.vllm_install import INSTALL, require_vllm

CPU_TOKENS_AT_ONCE = 4096
"""Prompt tokens in one forward pass of the engine on a CPU, unless one prompt has more."""


@dataclass(frozen=True)
class EngineSettings:
    """Settings of an engine."""

    model: str
    """Local folder or hub name; only its configuration is read, the weights come from the trainer."""
    device: torch.device
    """Device of the trainer; vLLM must sample on the same one."""
    dtype: torch.dtype
    """Number format of weights and KV cache, as in the trained model."""
    longest: int
    """Largest number of tokens of a prompt and its response together."""
    rows_at_once: int
    """Largest number of rollouts decoded together."""
    memory_share: float
    """Share of the GPU's memory for the engine, its KV cache included; on a GPU."""
    cache_gib: int
    """GiB of the KV cache; on a CPU."""


def start_engine(settings: EngineSettings) -> Any:
    """A `vllm.LLM` in this process with random weights, which reports the log-probabilities that it samples from.

    Raises:
        InputError: vLLM is not installed, or does not run this model.
    """
    require_vllm()
    on_cpu = settings.device.type == "cpu"
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if on_cpu:
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(settings.cache_gib)
    for name, value in (("VLLM_NO_USAGE_STATS", "1"), ("VLLM_LOGGING_LEVEL", "ERROR")):
        os.environ.setdefault(name, value)
    with _undisturbed(settings.device):
        try:
            vllm: Any = importlib.import_module("vllm")
            _check_platform(settings.device)
            return vllm.LLM(
                model=settings.model,
                skip_tokenizer_init=True,
                # The trainer's weights replace them before the first token; the sampler checks that none is left.
                load_format="dummy",
                dtype=str(settings.dtype).removeprefix("torch."),
                max_model_len=settings.longest,
                max_num_seqs=settings.rows_at_once,
                logprobs_mode="processed_logprobs",
                # A model's generation_config.json may set top_k, penalties and end tokens.
                generation_config="vllm",
                disable_log_stats=True,
                use_tqdm_on_load=False,
                seed=0,
                **(_cpu_arguments(settings) if on_cpu else _gpu_arguments(settings)),
            )
        except InputError:
            raise
        except Exception as error:  # vLLM fails in as many ways as there are models and machines
            raise cannot_run(settings, error) from error


def _cpu_arguments(settings: EngineSettings) -> dict[str, Any]:
    return {
        "enforce_eager": True,
        # A prompt read in two parts rewinds its rollout's generator, which vLLM supports on a GPU only.
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(settings.longest, settings.rows_at_once, CPU_TOKENS_AT_ONCE),
    }


def _gpu_arguments(settings: EngineSettings) -> dict[str, Any]:
    return {"gpu_memory_utilization": settings.memory_share, "enable_sleep_mode": True}


def _check_platform(device: torch.device) -> None:
    """Reject a vLLM built for another device than the trainer's."""
    found: str = importlib.import_module("vllm.platforms").current_platform.device_type
    if found != device.type:
        raise InputError(
            f"the installed vLLM samples on {found!r}; accepted: {device.type!r}, the device of the training",
            f"Install the vLLM for it, or set options.sampler to torch. {INSTALL}",
        )


def cannot_run(settings: EngineSettings, error: Exception) -> InputError:
    """The error for a model that vLLM does not run; chain it from `error`."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = " ".join(lines[:3]) if lines else type(error).__name__
    return InputError(
        f"vLLM cannot run model {settings.model!r} in {settings.dtype} on {settings.device}: {reason}",
        "Set options.sampler to torch, which runs every Hugging Face model"
        + ("." if settings.device.type == "cpu" else ", or change options.vllm_memory_share."),
    )


def stop_engine(engine: Any) -> None:
    """Shut the engine down and release its memory and its process group."""
    engine.llm_engine.engine_core.shutdown()
    del engine
    gc.collect()
    importlib.import_module("vllm.distributed").cleanup_dist_env_and_memory()


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
