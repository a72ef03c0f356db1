"""The emitted command line, read by the real OpenRLHF 0.11.2 parser."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from isocompute_openrlhf import OpenRLHFBackend
from isocompute_openrlhf.flags import OpenRLHFOptions
from isocompute_sdk.specs import Data, Evaluation, Hardware, Recipe, RunSpec
from tests.backends.openrlhf.emitting import FOLDER, check_what_the_parser_does_not, emitted
from tests.backends.openrlhf.real_parser import RealParser
from tests.parameters import few

MakeRun = Callable[..., RunSpec]


def generated_runs(count: int, seed: int) -> list[RunSpec]:
    """Runs over batches, lengths, presets, algorithms, machines and options."""
    draw = random.Random(seed)
    runs: list[RunSpec] = []
    while len(runs) < count:
        gpus_per_node, nodes = draw.choice([1, 2, 4, 8]), draw.choice([1, 1, 2, 4])
        gpus, parallel = gpus_per_node * nodes, draw.choice([1, 1, 2, 4])
        n, problems = draw.choice([2, 3, 8, 24, 64, 512, 2048]), draw.choice([1, 8, 32, 48, 256, 1024])
        micro = draw.choice([1, 1, 2])
        if (n * problems) % (gpus * micro) or gpus_per_node % parallel or n * problems > 65536:
            continue
        algorithm, kl = draw.choice(["grpo", "grpo", "ppo"]), draw.choice([0.0, 1e-3, 0.05])
        changes: dict[str, Any] = {
            "algorithm": algorithm,
            "normalize_advantage": draw.random() < 0.7,
            "kl_coef": kl,
            "kl_in": draw.choice(["loss", "reward"]),
            "entropy_coef": draw.choice([0.0, 1e-3]),
            "importance_sampling": draw.choice(["tis", "tis", "none"]),
            "tis_cap": draw.choice([1.0, 2.0, 5.5]),
            "loss_aggregation": draw.choice(["token-mean", "seq-mean-token-mean"]),
            "warmup_steps": draw.choice([0, 1, 10, 37]),
            "learning_rate_rule": draw.choice(["sqrt", "linear", "constant"]),
            "weight_decay": draw.choice([0.0, 0.1]),
            "temperature": draw.choice([0.6, 1.0]),
            "max_response_tokens": draw.choice([1024, 8192]),
            "value_clip": draw.choice([0.2, 0.5]),
        }
        options: dict[str, Any] = {"nodes": nodes, "tensor_parallel": parallel}
        if micro > 1:
            options["dynamic_batch"] = False
        runs.append(
            RunSpec(
                run_id=f"n{n}-bp{problems}",
                model=draw.choice(["Qwen/Qwen2.5-7B-Instruct", "/models/base", "-odd name"]),
                data=Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py"),
                recipe=Recipe.preset(draw.choice(["easy", "hard", "mixture"]), **changes),
                group_size=n,
                problems_per_batch=problems,
                update_steps=draw.choice([2, 11, 147, 281, 294, 1000, 2000]),
                seed=draw.randrange(2**31),
                evaluation=Evaluation(every_steps=draw.choice([1, 10, 25]), samples=draw.choice([1, 4])),
                hardware=Hardware(gpus=gpus),
                options=options,
            )
        )
    return runs


@pytest.mark.parametrize("seed", few(range(5), 2))
def test_the_real_parser_reads_back_what_each_generated_run_means(real_parser: RealParser, seed: int) -> None:
    for run in generated_runs(60, seed):
        parsed = real_parser.parse(emitted(run))
        check_what_the_parser_does_not(run, parsed.args)
        flat, recipe, batch = parsed.flat, run.recipe, run.group_size * run.problems_per_batch
        expected = {
            "actor.model_name_or_path": run.model,
            "rollout.batch_size": run.problems_per_batch,
            "rollout.n_samples_per_prompt": run.group_size,
            "train.batch_size": batch,
            "train.num_episodes": 1,
            "train.max_epochs": 1,
            "train.seed": run.seed,
            "actor.adam.lr": recipe.learning_rate(batch),
            "actor.adam.betas": list(recipe.adam_betas),
            "actor.adam.weight_decay": recipe.weight_decay,
            "actor.max_norm": recipe.gradient_clip,
            "actor.eps_clip_low_high": (recipe.ratio_clip, recipe.ratio_clip),
            "actor.entropy_coef": recipe.entropy_coef,
            "actor.loss_agg_mode": recipe.loss_aggregation,
            "algo.kl.init_coef": recipe.kl_coef,
            "algo.kl.use_loss": recipe.kl_coef > 0 and recipe.kl_in == "loss",
            "rollout.temperature": recipe.temperature,
            "rollout.max_new_tokens": recipe.max_response_tokens,
            "data.max_len": recipe.max_prompt_tokens + recipe.max_response_tokens,
            "reward.clip_range": [-1000.0, 1000.0],
            "eval.steps": run.evaluation.every_steps,
            "eval.n_samples_per_prompt": run.evaluation.samples,
            "ckpt.load_enable": True,
            "algo.dynamic_filtering_enable": False,
            "reward.remote_url": [f"{FOLDER}/reward_wrapper.py"],
        }
        assert {key: flat[key] for key in expected} == expected
        assert flat["critic.model_name_or_path"] == (run.model if recipe.algorithm == "ppo" else None)
        tis = recipe.importance_sampling == "tis"
        assert flat["algo.advantage.is_correction_level"] == ("token" if tis else "off")
        if tis:
            assert flat["algo.advantage.is_correction_mode"] == "clip"
            assert flat["algo.advantage.is_correction_threshold"] == [0.0, recipe.tis_cap]


def test_flags_handed_through_exist_and_replace_ours(make_run: MakeRun, real_parser: RealParser) -> None:
    assert set(OpenRLHFOptions.PASSES) <= {name.removeprefix("--") for name in real_parser.flag_names()}
    options = {"logger.wandb.group": "it's", "ds.deepcompile": True, "rollout.max_tokens_per_gpu": 50_000}
    run = make_run(options={**options, "wandb": True, "logger.wandb.project": "-mine"})
    found = real_parser.parse(emitted(run)).flat
    assert {name: found[name] for name in options} == options
    assert found["logger.wandb.project"] == "-mine"
    assert found["logger.wandb.key"]
    (note,) = [
        note for note in OpenRLHFBackend().preflight(run) if note.code == "before-start" and "flags" in note.data
    ]
    assert set(options) < set(note.data["flags"])
