"""The overrides that a run turns into, composed by Hydra from veRL's own files; and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import pytest
from omegaconf import OmegaConf

from isocompute_sdk.notes import Note
from isocompute_sdk.specs import RunSpec
from isocompute_verl import VeRLBackend
from isocompute_verl import payload as own
from isocompute_verl.flags import VeRLOptions
from tests.backends.framework_runs import keyed
from tests.backends.programs import load
from tests.backends.verl.composing import Composer, generated_runs, words
from tests.parameters import few

MakeRun = Callable[..., RunSpec]

hydra_words = load("hydra_words", own)


def codes(run: RunSpec, *severities: str) -> dict[str, Note]:
    return keyed(VeRLBackend().preflight(run), *severities)


@pytest.mark.parametrize("count", few([2, 6], 1))
def test_the_real_composition_reads_back_what_each_generated_run_means(compose: Composer, count: int) -> None:
    for run in generated_runs(count, 0):
        assert not codes(run, "refuse")
        found, recipe = compose(words(run)), run.recipe
        actor, rollout = found.actor_rollout_ref.actor, found.actor_rollout_ref.rollout
        assert found.data.train_batch_size == run.problems_per_batch
        assert rollout.n == run.group_size
        # In problems; veRL multiplies by n, so that this many optimiser steps come of a batch.
        assert found.data.train_batch_size // actor.ppo_mini_batch_size == recipe.updates_per_batch
        assert found.trainer.total_training_steps == run.update_steps
        assert found.trainer.nnodes * found.trainer.n_gpus_per_node == max(run.hardware.gpu_counts)
        assert actor.optim.lr == run.learning_rate
        assert actor.optim.lr_warmup_steps == recipe.warmup_steps
        assert (rollout.temperature, rollout.top_p) == (recipe.temperature, recipe.top_p)
        assert rollout.response_length == recipe.max_response_tokens
        assert actor.use_kl_loss == (recipe.kl_coef > 0 and recipe.kl_in == "loss")
        assert found.algorithm.use_kl_in_reward == (recipe.kl_coef > 0 and recipe.kl_in == "reward")
        assert found.algorithm.adv_estimator == ("gae" if recipe.algorithm == "ppo" else "grpo")
        assert actor.policy_loss.loss_mode == ("cispo" if recipe.algorithm == "cispo" else "vanilla")
        correction = found.algorithm.rollout_correction
        assert correction.rollout_is == ("token" if recipe.importance_sampling == "tis" else None)
        assert correction.rollout_is_threshold == recipe.tis_cap
        assert rollout.val_kwargs.n == run.evaluation.samples
        assert rollout.val_kwargs.do_sample == (run.evaluation.temperature > 0)
        longest = recipe.max_prompt_tokens + recipe.max_response_tokens
        assert rollout.log_prob_max_token_len_per_gpu >= longest
        assert found.actor_rollout_ref.ref.log_prob_max_token_len_per_gpu >= longest
        if recipe.algorithm == "ppo":
            assert found.critic.model.path == run.model
            assert found.critic.ppo_max_token_len_per_gpu >= longest
            assert found.critic.optim.lr == recipe.value_learning_rate


HOSTILE = ["it's", "\\", "a\\'b\\", "\"both\" 'kinds'", "[1,2]", "a=b", "null", "1e3", "模型 \u202e", "--x", "$x {y}"]


def test_hostile_text_survives_composition(make_run: MakeRun, compose: Composer) -> None:
    extra = [f"+ray_kwargs.X{i}={hydra_words.quoted(text)}" for i, text in enumerate(HOSTILE)]
    found = compose([*words(make_run(model=HOSTILE[2])), *extra])
    assert found.actor_rollout_ref.model.path == HOSTILE[2]
    assert [found.ray_kwargs[f"X{i}"] for i in range(len(HOSTILE))] == HOSTILE


def test_flags_handed_through_reach_the_configuration(make_run: MakeRun, compose: Composer) -> None:
    plain = compose(words(make_run()))

    def keys(node: Any, above: str = "") -> Iterator[str]:
        for key, value in node.items():
            yield f"{above}{key}"
            if isinstance(value, Mapping):
                yield from keys(value, f"{above}{key}.")

    real = list(keys(OmegaConf.to_container(plain)))
    for pattern in VeRLOptions.PASSES:
        assert any(fnmatchcase(key, pattern) for key in real), pattern
    options = {
        "actor_rollout_ref.rollout.enforce_eager": True,
        "actor_rollout_ref.rollout.max_num_seqs": 77,
        "actor_rollout_ref.actor.fsdp_config.model_dtype": "it's",
        "+actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space": 3,
        "wandb": True,
    }
    found = compose(words(make_run(options=options)))
    rollout = found.actor_rollout_ref.rollout
    assert (rollout.enforce_eager, rollout.max_num_seqs, rollout.engine_kwargs.vllm.swap_space) == (True, 77, 3)
    assert found.actor_rollout_ref.actor.fsdp_config.model_dtype == "it's"
    assert "wandb" in found.trainer.logger
