"""Loading the parts of a run from its configuration."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Literal

import torch

from isocompute_sdk.notes import Note
from isocompute_sdk.records.columns import DEFAULT_EVAL_SET
from isocompute_sdk.training.backend import files_by_name
from isocompute_sdk.training.payload.problem_files import Problem
from isocompute_torch.configuration import Configuration, InputError, chosen_sampler, fallback
from isocompute_torch.learner import Learner
from isocompute_torch.loop import Parts, PromptSet
from isocompute_torch.memory import Sizing, checkpoints, keep_freed_memory, memory_of, size_run
from isocompute_torch.policy import (
    Policy,
    choose_device,
    choose_dtype,
    load_config,
    load_policy,
    load_reference,
    load_value_model,
)
from isocompute_torch.problems import BatchOrder, probe_subset, read_problems
from isocompute_torch.rewards import RewardPool
from isocompute_torch.sampler import Sampler, TorchSampler


def load_problems(configuration: Configuration) -> dict[str, list[Problem]]:
    """All problem sets of a run: `train`, and the evaluation sets by name.

    Raises:
        InputError: a file is missing or malformed.
    """
    data, plan = configuration.run.data, configuration.run.evaluation

    def read(path: str) -> list[Problem]:
        return read_problems(path, prompt_key=data.prompt_key, answer_key=data.answer_key)

    train = read(data.train)
    sets = {"train": train, DEFAULT_EVAL_SET: read(data.validation)[: plan.n_problems]}
    for name, path in files_by_name(configuration.options.eval_sets).items():
        sets[name] = read(path)[: plan.n_problems]
    if configuration.options.probe_problems:
        sets["train_probe"] = probe_subset(train, configuration.options.probe_problems)
    return sets


def assemble(
    configuration: Configuration,
    problems: dict[str, list[Problem]],
    stack: ExitStack,
    dtype: torch.dtype | None = None,
) -> Parts:
    """Load model, reward function and problems; `stack` closes sampler and reward function at the end.

    `dtype` is the number format of the checkpoint that the run goes on from; None chooses one.

    Raises:
        InputError: one of them is unusable.
    """
    run, options = configuration.run, configuration.options
    half = max(1, len(os.sched_getaffinity(0)) // 2)
    torch.set_num_threads(options.threads or min(half, torch.get_num_threads()))
    order = BatchOrder(len(problems["train"]), run.problems_per_batch, run.seed)
    reward = stack.enter_context(RewardPool(run.data.reward, timeout_seconds=options.reward_timeout_seconds))
    device = choose_device(options.device)
    chosen, note = chosen_sampler(options.sampler, device.type)
    config = load_config(run.model)
    dtype = dtype or choose_dtype(options.dtype, device, config)
    memory = memory_of(device)

    def sized(sampler: Literal["torch", "vllm"]) -> Sizing:
        return size_run(run.model, config, run.recipe, options, memory, device=device, dtype=dtype, sampler=sampler)

    sizing = sized("vllm" if options.sampler == "vllm" else "torch")
    if device.type == "cpu" and sizing.keeps_freed_memory:
        keep_freed_memory()
    policy = load_policy(run.model, device, dtype, options.stop_texts())
    longest = run.recipe.max_prompt_tokens
    sets = {name: PromptSet.encode(policy.codec, one, max_tokens=longest, name=name) for name, one in problems.items()}
    ppo, kl = run.recipe.algorithm == "ppo", run.recipe.kl_coef > 0
    learner = Learner(
        policy,
        run.recipe,
        run.group_size,
        reference=load_reference(run.model, device, dtype, policy.codec) if kl else None,
        value_model=load_value_model(run.model, device, dtype) if ppo else None,
        merge=options.merge_duplicates,
        checkpointing=checkpoints(options, device),
    )
    sampler: Sampler | None = None
    if chosen == "vllm":
        try:
            beside = sized("vllm")
            sampler, sizing = _engine(configuration, policy, sets.values(), beside.vllm_share), beside
        except InputError as error:
            if options.sampler == "vllm":
                raise
            note = fallback(error.message)
    learner.token_budget = sizing.token_budget
    sampler = sampler or TorchSampler(policy, rows_at_once=sizing.rows, merge=options.merge_duplicates)
    stack.callback(sampler.close)
    notes = [*sizing.notes, *([note] if note is not None else [])]
    if device.type == "cpu" and options.dtype == "auto" and dtype == torch.bfloat16:
        message = (
            "The processor computes in bfloat16: weights have 16 bits, with 32 in the optimiser. For 32 bits "
            "throughout set options.dtype to float32."
        )
        notes.append(Note("bfloat16-on-cpu", "info", message))
    return Parts(sets.pop("train"), sets, order, sampler, reward, learner, tuple(notes))


def _engine(configuration: Configuration, policy: Policy, sets: Iterable[PromptSet], memory_share: float) -> Sampler:
    from isocompute_torch.vllm_sampler import ROWS_AT_ONCE, VLLMSampler

    options = configuration.options
    longest_prompt = max(len(prompt) for prompts in sets for prompt in prompts.ids)
    return VLLMSampler(
        policy,
        configuration.run.model,
        longest=longest_prompt + configuration.run.recipe.max_response_tokens,
        rows_at_once=min(options.sampling_batch, ROWS_AT_ONCE),
        memory_share=memory_share,
    )
