"""Loading the parts of a run from its configuration."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import torch

from isocompute_sdk.training.payload.problem_files import Problem
from isocompute_torch.learning.learner import Learner
from isocompute_torch.policy.loading import (
    choose_device,
    choose_dtype,
    load_config,
    load_policy,
    load_reference,
    load_value_model,
)
from isocompute_torch.policy.model import Policy
from isocompute_torch.problems import BatchOrder, probe_subset, read_problems
from isocompute_torch.rewards.pool import RewardPool
from isocompute_torch.runner.configuration import VALIDATION, Configuration
from isocompute_torch.runner.loop import Parts
from isocompute_torch.runner.memory import keep_freed_memory
from isocompute_torch.runner.memory_estimate import Sizes, estimate, refuse_what_cannot_fit, rows_that_fit
from isocompute_torch.runner.prompts import PromptSet
from isocompute_torch.sampling.sampler import Sampler
from isocompute_torch.sampling.torch_sampler import TorchSampler


def load_problems(configuration: Configuration) -> dict[str, list[Problem]]:
    """All problem sets of a run: `train`, and the evaluation sets by name.

    Raises:
        InputError: a file is missing or malformed.
    """
    data, plan = configuration.run.data, configuration.run.evaluation

    def read(path: str) -> list[Problem]:
        return read_problems(path, prompt_key=data.prompt_key, answer_key=data.answer_key)

    train = read(data.train)
    sets = {"train": train, VALIDATION: read(data.validation)[: plan.n_problems]}
    for name, path in configuration.options.evaluation_files().items():
        sets[name] = read(path)[: plan.n_problems]
    if configuration.options.probe_problems:
        sets["train_probe"] = probe_subset(train, configuration.options.probe_problems)
    return sets


def assemble(configuration: Configuration, problems: dict[str, list[Problem]], stack: ExitStack) -> Parts:
    """Load model, reward function and problems.

    Args:
        configuration: the run.
        problems: result of `load_problems`.
        stack: closes sampler and reward function at the end.

    Raises:
        InputError: one of them is unusable.
    """
    run, options = configuration.run, configuration.options
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    order = BatchOrder(len(problems["train"]), run.problems_per_batch, run.seed)
    reward = stack.enter_context(
        RewardPool(run.data.reward, timeout_seconds=options.reward_timeout_seconds, processes=options.reward_processes)
    )
    device = choose_device(options.device)
    if device.type == "cpu":
        keep_freed_memory()
    dtype = choose_dtype(options.dtype, device)
    checkpointing = device.type == "cuda" if options.gradient_checkpointing is None else options.gradient_checkpointing
    rows = options.sampling_batch
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        rows = min(rows, _fitted(configuration, total, dtype, checkpointing))
    policy = load_policy(run.model, device, dtype)

    def encoded(name: str, chosen: Sequence[Problem]) -> PromptSet:
        return PromptSet.encode(policy.codec, chosen, max_tokens=run.recipe.max_prompt_tokens, name=name)

    sets = {name: encoded(name, chosen) for name, chosen in problems.items()}
    ppo = run.recipe.algorithm == "ppo"
    learner = Learner(
        policy,
        run.recipe,
        run.group_size,
        reference=load_reference(run.model, device, dtype, policy.codec) if run.recipe.kl_coef > 0 else None,
        value_model=load_value_model(run.model, device, dtype) if ppo else None,
        n_train=options.n_train,
        token_budget=options.max_tokens_per_micro_batch,
        merge=options.merge_duplicates,
        checkpointing=checkpointing,
    )
    sampler = _sampler(configuration, policy, sets, rows)
    stack.callback(sampler.close)
    return Parts(
        train=sets.pop("train"), evaluations=sets, order=order, sampler=sampler, reward=reward, learner=learner
    )


def _fitted(configuration: Configuration, total: float, dtype: torch.dtype, checkpointing: bool) -> int:
    """Rows that the sampler may hold at once on a GPU with `total` bytes.

    Raises:
        InputError: the run does not fit on it.
    """
    recipe, options = configuration.run.recipe, configuration.options
    longest, vllm = recipe.max_prompt_tokens + recipe.max_response_tokens, options.sampler == "vllm"
    sizes = Sizes(
        tokens=max(options.max_tokens_per_micro_batch, longest),
        dtype=dtype,
        reference=recipe.kl_coef > 0,
        value_model=recipe.algorithm == "ppo",
        cached_tokens=longest,
        checkpointing=checkpointing,
        shared=options.vllm_memory_share if vllm else 0.0,
    )
    needed = estimate(load_config(configuration.run.model), sizes)
    refuse_what_cannot_fit(needed, sizes, total, configuration.run.model)
    return options.sampling_batch if vllm else rows_that_fit(needed, sizes, total, longest)


def _sampler(configuration: Configuration, policy: Policy, sets: dict[str, PromptSet], rows: int) -> Sampler:
    options = configuration.options
    if options.sampler == "torch":
        return TorchSampler(policy, rows_at_once=rows, merge=options.merge_duplicates)
    from isocompute_torch.sampling.vllm_sampler import ROWS_AT_ONCE, VLLMSampler

    longest_prompt = max(len(prompt) for chosen in sets.values() for prompt in chosen.ids)
    return VLLMSampler(
        policy,
        configuration.run.model,
        longest=longest_prompt + configuration.run.recipe.max_response_tokens,
        rows_at_once=min(options.sampling_batch, ROWS_AT_ONCE),
        memory_share=options.vllm_memory_share,
        cache_gib=options.vllm_cache_gib,
    )
