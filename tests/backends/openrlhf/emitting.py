"""The command line of a run, and what has to hold of it that OpenRLHF's parser does not check."""

from __future__ import annotations

import math
from typing import Any

from isocompute_openrlhf.backend import OpenRLHFBackend, arguments
from isocompute_sdk.specs import RunSpec

FOLDER = "/data/runs/small"


def emitted(run: RunSpec, folder: str = FOLDER) -> list[str]:
    """The arguments that OpenRLHF would get; the run must not be refused."""
    backend = OpenRLHFBackend()
    notes = backend.preflight(run)
    assert not [note for note in notes if note.severity == "refuse"], notes
    return [
        word for part in backend.sections(run) for flag in part.flags for word in arguments(flag, folder, run.model)
    ]


def check_what_the_parser_does_not(run: RunSpec, args: Any) -> None:
    """Steps, warm-up, batches and GPUs, by the arithmetic of OpenRLHF's own code."""
    rows = run.problems_per_batch * run.update_steps
    gpus = args.actor.num_nodes * args.actor.num_gpus_per_node
    # trainer/ppo_trainer.py: prepare_datasets; utils/deepspeed/deepspeed.py: _ds_init_train_model
    max_steps = rows * args.rollout.n_samples_per_prompt // args.train.batch_size * args.train.num_episodes
    assert max_steps == run.update_steps
    assert math.ceil(max_steps * args.actor.lr_warmup_ratio) == run.recipe.warmup_steps
    assert len(str(args.actor.lr_warmup_ratio)) <= len("0.000123457")
    assert rows % args.rollout.batch_size == 0
    assert args.data.max_samples >= max(rows, 10**8)  # it cuts the validation set too
    assert gpus in run.hardware.gpu_counts
    assert gpus == args.vllm.num_engines * args.vllm.tensor_parallel_size
    assert (args.ref.num_nodes, args.ref.num_gpus_per_node) == (args.actor.num_nodes, args.actor.num_gpus_per_node)
    assert args.train.batch_size % (args.train.micro_batch_size * gpus) == 0
    assert args.train.batch_size % (args.rollout.micro_batch_size * gpus) == 0
    assert args.eval.steps > 0
    assert args.ckpt.save_steps > 0
    assert args.train.colocate_all
    assert args.vllm.enable_sleep
    if run.recipe.algorithm == "ppo":
        assert args.critic.num_nodes * args.critic.num_gpus_per_node == gpus
        assert math.ceil(max_steps * args.critic.lr_warmup_ratio) == run.recipe.warmup_steps
