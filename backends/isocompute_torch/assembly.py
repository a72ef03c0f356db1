"""Loading the parts of a run from its configuration."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import torch

from isocompute_sdk.notes import Note
from isocompute_sdk.training.payload.problem_files import Problem
from isocompute_torch.configuration import VALIDATION, Configuration, InputError
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
from isocompute_torch.sampler_choice import chosen_sampler, fallback, vllm_is_installed


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
    reward = stack.enter_context(
        RewardPool(run.data.reward, timeout_seconds=options.reward_timeout_seconds, processes=options.reward_processes)
    )
    device = choose_device(options.device)
    config = load_config(run.model)
    dtype = dtype or choose_dtype(options.dtype, device, config)
    plan = _planned(configuration, config, device, dtype)
    if device.type == "cpu" and plan.sizing.keeps_freed_memory:
        keep_freed_memory()
    policy = load_policy(run.model, device, dtype, options.stop_texts())

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
        token_budget=plan.sizing.token_budget,
        merge=options.merge_duplicates,
        checkpointing=checkpoints(options, device),
    )
    sampler, note = _sampler(configuration, policy, sets, plan)
    stack.callback(sampler.close)
    chosen = device.type == "cpu" and options.dtype == "auto" and dtype == torch.bfloat16
    notes = [*plan.sizing.notes, *(one for one in (plan.note, note, _IN_BFLOAT16 if chosen else None) if one)]
    return Parts(
        train=sets.pop("train"),
        evaluations=sets,
        order=order,
        sampler=sampler,
        reward=reward,
        learner=learner,
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class _Planned:
    """What is decided before the model is loaded."""

    sampler: Literal["torch", "vllm"]
    sizing: Sizing
    note: Note | None
    """Why vLLM does not sample on a GPU."""


_IN_BFLOAT16 = Note(
    "bfloat16-on-cpu",
    "info",
    "The processor computes in bfloat16: weights have 16 bits, with 32 in the optimiser. For 32 bits throughout set "
    "options.dtype to float32.",
)


def _planned(configuration: Configuration, config: Any, device: torch.device, dtype: torch.dtype) -> _Planned:
    """Sampler and sizes.

    Raises:
        InputError: the run does not fit.
    """
    run, options = configuration.run, configuration.options
    memory = memory_of(device)

    def sized(sampler: Literal["torch", "vllm"]) -> Sizing:
        return size_run(run.model, config, run.recipe, options, memory, device=device, dtype=dtype, sampler=sampler)

    sampler, note = chosen_sampler(options.sampler, device.type, installed=vllm_is_installed())
    try:
        return _Planned(sampler, sized(sampler), note)
    except InputError as error:
        if sampler == "torch" or options.sampler == "vllm":
            raise
        return _Planned("torch", sized("torch"), fallback(error.message))


def _sampler(
    configuration: Configuration, policy: Policy, sets: dict[str, PromptSet], plan: _Planned
) -> tuple[Sampler, Note | None]:
    """The sampler, and a note if vLLM does not run this model and nobody asked for it."""
    options, sizing = configuration.options, plan.sizing
    if plan.sampler == "vllm":
        from isocompute_torch.vllm_sampler import ROWS_AT_ONCE, VLLMSampler

        longest_prompt = max(len(prompt) for chosen in sets.values() for prompt in chosen.ids)
        try:
            engine = VLLMSampler(
                policy,
                configuration.run.model,
                longest=longest_prompt + configuration.run.recipe.max_response_tokens,
                rows_at_once=min(options.sampling_batch, ROWS_AT_ONCE),
                memory_share=sizing.vllm_share,
                cache_gib=options.vllm_cache_gib,
            )
        except InputError as error:
            if options.sampler == "vllm":
                raise
            note = fallback(error.message)
        else:
            return engine, None
    else:
        note = None
    return TorchSampler(policy, rows_at_once=sizing.rows, merge=options.merge_duplicates), note
