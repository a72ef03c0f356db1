"""The emitted command line, read by the real OpenRLHF 0.11.2 parser."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from isocompute_openrlhf import OpenRLHFBackend
from isocompute_openrlhf.options import OpenRLHFOptions
from isocompute_sdk.specs import Data, Evaluation, Hardware, Recipe, RunSpec
from tests.backends.framework_runs import keyed
from tests.backends.openrlhf.emitting import FOLDER, check_what_the_parser_does_not, emitted
from tests.backends.openrlhf.real_parser import RealParser

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
        options: dict[str, Any] = {"nodes": nodes, "gpus_per_node": gpus_per_node, "tensor_parallel": parallel}
        if micro > 1:
            options |= {"dynamic_batch": False, "micro_train_batch": micro, "micro_rollout_batch": micro}
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


@pytest.mark.parametrize("seed", range(5))
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


def test_every_flag_is_written_once_and_in_full(real_parser: RealParser) -> None:
    known = real_parser.flag_names()
    for run in generated_runs(40, 7):
        names = [a.split("=")[0] for a in emitted(run) if a.startswith("--")]
        assert set(names) <= known
        assert len(names) == len(set(names))


@pytest.mark.parametrize("steps", [*range(11, 60), 147, 281, 294, *range(60, 2001, 37)])
def test_the_warm_up_lasts_exactly_ten_steps_for_every_length(make_run: MakeRun, steps: int) -> None:
    words = emitted(make_run(update_steps=steps))
    ratio = float(words[words.index("--actor.lr_warmup_ratio") + 1])
    assert math.ceil(steps * ratio) == 10


def test_the_presets_give_the_flags_of_the_paper_recipe(make_run: MakeRun, real_parser: RealParser) -> None:
    easy = real_parser.parse(emitted(make_run(recipe={"preset": "easy"})))
    hard = real_parser.parse(emitted(make_run(recipe={"preset": "hard"}, problems_per_batch=64)))
    assert easy.printed == hard.printed == ""
    assert easy.flat["algo.advantage.estimator"] == "group_norm"
    assert (easy.flat["algo.kl.init_coef"], easy.flat["algo.kl.estimator"]) == (1e-3, "k3")
    assert easy.flat["actor.entropy_coef"] == 1e-3
    assert hard.flat["algo.kl.init_coef"] == 0
    assert hard.flat["actor.entropy_coef"] == 0  # logged only; absent would also stop the log
    assert hard.flat["actor.adam.lr"] == pytest.approx(1e-6)
    assert easy.flat["actor.lr_scheduler"] == "constant_with_warmup"


@pytest.mark.parametrize(
    ("changes", "estimator", "no_std_norm"),
    [
        ({"algorithm": "grpo"}, "group_norm", False),
        ({"algorithm": "grpo", "normalize_advantage": False}, "dr_grpo", False),
        ({"algorithm": "ppo"}, "gae", False),
        ({"algorithm": "ppo", "normalize_advantage": False}, "gae", True),
    ],
)
def test_the_estimator_follows_algorithm_and_normalisation(
    make_run: MakeRun, real_parser: RealParser, changes: dict[str, Any], estimator: str, no_std_norm: bool
) -> None:
    flat = real_parser.parse(emitted(make_run(recipe=changes))).flat
    assert flat["algo.advantage.estimator"] == estimator
    assert flat["algo.advantage.no_std_norm"] == no_std_norm


def test_ppo_settings_reach_the_value_model(make_run: MakeRun, real_parser: RealParser) -> None:
    recipe = {"algorithm": "ppo", "value_learning_rate": 3e-6, "gae_lambda": 0.95, "gae_gamma": 0.99, "value_clip": 0.3}
    flat = real_parser.parse(emitted(make_run(recipe=recipe, hardware=Hardware(gpus=4)))).flat
    assert flat["critic.adam.lr"] == 3e-6
    assert flat["critic.adam.betas"] == [0.9, 0.999]
    assert (flat["algo.advantage.lambd"], flat["algo.advantage.gamma"]) == (0.95, 0.99)
    assert flat["critic.value_clip"] == 0.3
    assert flat["critic.num_gpus_per_node"] == 4


def test_several_updates_per_batch_split_the_batch_and_stretch_the_warm_up(
    make_run: MakeRun, real_parser: RealParser
) -> None:
    flat = real_parser.parse(emitted(make_run(recipe={"updates_per_batch": 4}))).flat
    assert flat["train.batch_size"] == 16 * 32 // 4
    assert math.ceil(100 * 4 * flat["actor.lr_warmup_ratio"]) == 10
    assert not flat["train.dynamic_batch_enable"]


def test_the_real_parser_rejects_what_openrlhf_cannot_do(make_run: MakeRun, real_parser: RealParser) -> None:
    words = emitted(make_run())
    with pytest.raises(ValueError, match="invalid choice"):
        real_parser.parse([*words, "--algo.advantage.estimator", "cispo"])
    with pytest.raises(AssertionError, match="n_samples_per_prompt > 1"):
        real_parser.parse([*words, "--rollout.n_samples_per_prompt", "1"])
    with pytest.raises(ValueError, match="unrecognized arguments"):
        real_parser.parse([*words, "--train_batch_size", "8"])
    with pytest.raises(ValueError, match="clip requires"):
        real_parser.parse([*words, "--algo.advantage.is_correction_gating", "tv"])


def test_a_model_name_with_a_leading_dash_stays_one_value(
    openrlhf: OpenRLHFBackend, make_run: MakeRun, real_parser: RealParser
) -> None:
    run = make_run(model="--train.seed", recipe={"algorithm": "ppo"})
    flat = real_parser.parse(emitted(run)).flat
    assert flat["actor.model_name_or_path"] == flat["critic.model_name_or_path"] == "--train.seed"
    assert flat["train.seed"] == 0


def test_flags_handed_through_exist_and_replace_ours(make_run: MakeRun, real_parser: RealParser) -> None:
    assert set(OpenRLHFOptions.PASSES) <= {name.removeprefix("--") for name in real_parser.flag_names()}
    options = {"logger.wandb.group": "it's", "ds.deepcompile": True, "rollout.max_tokens_per_gpu": 50_000}
    run = make_run(options={**options, "wandb": True, "logger.wandb.project": "-mine"})
    found = real_parser.parse(emitted(run)).flat
    assert {name: found[name] for name in options} == options
    assert found["logger.wandb.project"] == "-mine"
    assert found["logger.wandb.key"]
    (note,) = [note for note in OpenRLHFBackend().preflight(run) if note.code == "flags-passed"]
    assert set(options) < set(note.data["flags"])


@pytest.mark.parametrize("name", ["rollout.n_samples_per_prompt", "actor.adam.lr", "algo.kl.init_coef", "train.seed"])
def test_flags_that_decide_the_run_are_not_handed_through(make_run: MakeRun, name: str) -> None:
    assert set(keyed(OpenRLHFBackend().preflight(make_run(options={name: 1})), "refuse")) == {f"options.{name}"}


@pytest.mark.parametrize(("response", "samples"), [(1024, 16), (8192, 2), (65_536, 1)])
def test_the_largest_batches_stay_packed(
    make_run: MakeRun, real_parser: RealParser, response: int, samples: int
) -> None:
    recipe = {"max_response_tokens": response, "max_prompt_tokens": 1024}
    run = make_run(recipe=recipe, group_size=512, problems_per_batch=128, hardware=Hardware(gpus=8))
    found = real_parser.parse(emitted(run)).flat
    assert found["ds.packing_samples"]
    assert not found["train.dynamic_batch_enable"]
    assert found["train.micro_batch_size"] == found["rollout.micro_batch_size"] == samples
    assert samples * (response + 1024) <= 32_768 or samples == 1
