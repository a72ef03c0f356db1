"""Plans, backends and options put through the real parsers and checks of the frameworks: one number comes out.

A triple is a plan, a backend and one `--option`. Its script is run by bash up to the program that would train, or its
`--overrides` are appended to a command that exists; the words that arrive there go through OpenRLHF's own parser, the
composition of veRL's own configuration, or TRL's own GRPOConfig and command line.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk import Planner, api, published
from isocompute_sdk.cli.shared.options import assignments
from isocompute_sdk.errors import IsoComputeError, PlanError
from isocompute_sdk.planning import Plan, change_plan
from isocompute_sdk.specs import Hardware, RunSpec
from isocompute_sdk.training import existing, registry
from isocompute_verl import payload as verl_programs
from tests.backends.framework_runs import Recorder
from tests.backends.openrlhf.real_parser import VERSION as OPENRLHF
from tests.backends.openrlhf.real_parser import RealParser
from tests.backends.programs import load
from tests.backends.verl.composing import Composer
from tests.backends.wheels import ANY_LINUX, cached_wheel

COMMANDS = Path(__file__).parent / "commands"
SHELLCHECK = Path(sys.executable).with_name("shellcheck")

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "openrlhf": (
        "seed=7",
        "tensor_parallel=2",
        "zero_stage=2",
        "ds.adam_offload=true",
        "gradient_checkpointing=false",
        "dynamic_batch=false",
        "max_tokens_per_gpu=32768",
        "gpu_memory_utilization=0.7",
        "vllm.enforce_eager=true",
        "vllm.enable_prefix_caching=false",
        "save_every_steps=20",
        "keep_checkpoints=4",
        "save_best=false",
        "ckpt.save_hf=true",
        "chat_template=false",
        "wandb=true",
        "actor.gradient_checkpointing_reentrant=true",
        "ckpt.max_mem=1000",
        "data.dataloader_num_workers=2",
        "ds.attn_implementation=flash_attention_3",
        "ds.deepcompile=true",
        "ds.experts_implementation=grouped_mm",
        "ds.overlap_comm=true",
        "ds.use_liger_kernel=true",
        "ds.zpg=8",
        "logger.wandb.group=it's a group",
        "logger.wandb.project=-dashed",
        "ref.offload=true",
        "rollout.max_tokens_per_gpu=65,536",
        "train.full_determinism_enable=true",
        "vllm.sync_backend=gloo",
        "vllm.sync_with_ray=true",
    ),
    "verl": (
        "seed=7",
        "tensor_parallel=2",
        "gpu_memory_utilization=0.7",
        "max_tokens_per_gpu=32768",
        "gradient_checkpointing=false",
        "offload=true",
        "save_every_steps=20",
        "keep_checkpoints=4",
        "tensorboard=true",
        "wandb=true",
        "mlflow=true",
        "actor_rollout_ref.actor.fsdp_config.forward_prefetch=true",
        "actor_rollout_ref.ref.fsdp_config.reshard_after_forward=false",
        "actor_rollout_ref.actor.profiler.enable=true",
        "actor_rollout_ref.model.use_fused_kernels=true",
        "actor_rollout_ref.model.use_liger=true",
        "actor_rollout_ref.model.use_remove_padding=false",
        "actor_rollout_ref.model.trust_remote_code=true",
        "actor_rollout_ref.rollout.agent.num_workers=4",
        "actor_rollout_ref.rollout.enable_chunked_prefill=false",
        "actor_rollout_ref.rollout.enforce_eager=true",
        "+actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space=8",
        "actor_rollout_ref.rollout.max_num_batched_tokens=16384",
        "actor_rollout_ref.rollout.max_num_seqs=256",
        "data.dataloader_num_workers=2",
        "data.filter_overlong_prompts_workers=4",
        "global_profiler.tool=torch",
        "ray_kwargs.ray_init.num_cpus=64",
        "reward.num_workers=4",
        "trainer.balance_batch=false",
        "trainer.log_val_generations=5",
        "trainer.project_name=it's mine",
        "trainer.rollout_data_dir=/data/{dumps}",
    ),
    "trl": (
        "seed=7",
        "sharding=zero2",
        "sharding=ddp",
        "tensor_parallel=2",
        "gpu_memory_utilization=0.5",
        "samples_per_pass=4",
        "eval_samples_per_pass=16",
        "gradient_checkpointing=false",
        "chat_template=false",
        "save_every_steps=20",
        "keep_checkpoints=5",
        "tensorboard=true",
        "wandb=true",
        "mlflow=true",
        "dataloader_num_workers=2",
        "ddp_timeout=7200",
        "ds3_gather_for_generation=false",
        "full_determinism=true",
        "log_completions=true",
        "log_level=info",
        "num_completions_to_print=2",
        "pad_to_multiple_of=8",
        "tf32=false",
        "torch_compile=true",
        "torch_empty_cache_steps=10",
        "vllm_model_impl=transformers",
        "project=it's mine",
    ),
}
"""Options of each backend, and flags of its framework that are handed through."""


@dataclass(frozen=True)
class Triple:
    """One plan, one backend, one option."""

    plan: Plan
    backend: str
    option: str
    gpus: int
    overrides: bool

    def run(self) -> RunSpec:
        return api.run_spec(self.plan, self.backend, gpus=self.gpus, **assignments([self.option], "--option"))

    @property
    def expected(self) -> dict[str, float]:
        plan = self.plan
        return {
            "n": plan.group_size,
            "B_p": plan.problems_per_batch,
            "B": plan.group_size * plan.problems_per_batch,
            "M": plan.approved_steps,
            "rate": plan.learning_rate,
        }


def triples(count: int, seed: int) -> list[Triple]:
    draw = random.Random(seed)
    names = ("qwen2.5-7b-instruct/guru-math-easy", "qwen2.5-7b-instruct/guru-math-hard")
    planners = [Planner(published(name), hardware=Hardware(gpus=(8, 16, 32))) for name in names]
    found: list[Triple] = []
    while len(found) < count:
        plan = draw.choice(planners).allocate(draw.choice(["200k", "1M", "4M", "10M"]))
        changes = {
            "group_size": draw.choice([8, 16, 24, 64, 512, 1024]),
            "problems_per_batch": draw.choice([32, 48, 128, 256]),
            "kl_coef": draw.choice([0, 0.001]),
            "entropy_coef": draw.choice([0, 0.001]),
            "importance_sampling": draw.choice(["tis", "none"]),
            "warmup_steps": draw.choice([0, 10]),
            "learning_rate": draw.choice([1e-6, 3.3e-6, plan.learning_rate]),
        }
        picked = draw.sample(sorted(changes), draw.randrange(4))
        try:
            plan = change_plan(plan, {name: changes[name] for name in picked})
        except PlanError:  # a batch that no machine takes
            continue
        backend = draw.choice(sorted(OPTIONS))
        gpus = 8 if backend == "trl" else draw.choice([8, 16, 32])
        found.append(Triple(plan, backend, draw.choice(OPTIONS[backend]), gpus, draw.random() < 0.3))
    return found


class Parsers:
    """The real parsers; each gives what its framework would train with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.openrlhf = RealParser(cached_wheel("openrlhf", OPENRLHF, *ANY_LINUX))
        with zipfile.ZipFile(cached_wheel("verl", "0.9.1")) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith("verl/trainer/config/")])
        self.verl = Composer(folder / "verl" / "trainer" / "config")
        self.site = folder / "site"
        for name, version in (("trl", "1.16.0"), ("accelerate", "1.15.0")):
            with zipfile.ZipFile(cached_wheel(name, version)) as wheel:
                wheel.extractall(self.site)

    def by_openrlhf(self, words: list[str], rows: int | None) -> dict[str, float]:
        flat = self.openrlhf.parse(words).flat
        n, problems, batch = (
            flat[name] for name in ("rollout.n_samples_per_prompt", "rollout.batch_size", "train.batch_size")
        )
        steps = (rows or flat["data.max_samples"]) // problems * flat["train.num_episodes"]
        return {"n": n, "B_p": problems, "B": batch, "M": steps, "rate": flat["actor.adam.lr"]}

    def by_verl(self, words: list[str]) -> dict[str, float]:
        found = self.verl(words)
        actor, n = found.actor_rollout_ref.actor, found.actor_rollout_ref.rollout.n
        return {
            "n": n,
            "B_p": found.data.train_batch_size,
            "B": actor.ppo_mini_batch_size * n,
            "M": found.trainer.total_training_steps,
            "rate": actor.optim.lr,
        }

    def by_trl(self, runs: list[dict[str, Any]]) -> list[dict[str, float] | str]:
        """All at once: TRL takes seconds to import."""
        program, answer = Path(__file__).with_name("trl") / "real_trl.py", self.folder / "trl.json"
        request = json.dumps({"runs": runs, "answer": str(answer)})
        environment = {**os.environ, "PYTHONPATH": str(self.site), "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [sys.executable, str(program)], input=request, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return [one if isinstance(one, str) else _sizes_of_trl(one) for one in json.loads(answer.read_text())]


def _sizes_of_trl(found: dict[str, Any]) -> dict[str, float]:
    assert found["steps_per_generation"] == found["gradient_accumulation_steps"]  # one update per batch
    n, batch = found["num_generations"], found["generation_batch_size"]
    return {"n": n, "B_p": batch // n, "B": batch, "M": found["max_steps"], "rate": found["learning_rate"]}


@dataclass
class Outcome:
    """What became of all triples."""

    counts: Counter[str]
    wrong: list[str]
    scripts: list[Path]


def outcome_of(found: list[Triple], folder: Path) -> Outcome:
    shell, work = Recorder(folder / "shell", "python3", "accelerate"), folder / "work"
    parsers, out = Parsers(folder), Outcome(Counter(), [], [])
    waiting: list[tuple[Triple, dict[str, Any]]] = []
    for number, triple in enumerate(found):
        backend, label = registry.load(triple.backend), f"{triple.backend} {triple.option}"
        try:
            run = triple.run().replace(output_dir=f"runs/{number}")
            script = backend.script(run)
            settings = existing.settings_of(backend, triple.backend, run)
        except IsoComputeError as error:
            out.counts["refused"] += 1
            if "unknown option" in str(error):
                out.wrong.append(f"{label}: {error}")
            continue
        if triple.overrides:
            command = (COMMANDS / f"{triple.backend}.sh").read_text().rstrip().removesuffix("$@").rstrip(" \\")
            words = shell(f"{command.replace('set -x', '')} \\\n  {existing.overrides(settings)}\n", work)[-1]
        else:
            words = shell(script, work)[-1]
            out.scripts.append(folder / f"{number}.sh")
            out.scripts[-1].write_text(script)
        try:
            if triple.backend == "trl":
                waiting.append((triple, _for_trl(triple, words, run, work)))
            else:
                _compare(out, triple, _parsed(parsers, triple, words))
        except Exception as error:
            out.wrong.append(f"{label}: {type(error).__name__}: {error}")
    for (triple, _), answer in zip(waiting, parsers.by_trl([one for _, one in waiting]), strict=True):
        _compare(out, triple, answer)
    return out


def _parsed(parsers: Parsers, triple: Triple, words: list[str]) -> dict[str, float]:
    if triple.backend == "openrlhf":
        rows = None if triple.overrides else triple.plan.problems_per_batch * triple.plan.approved_steps
        flags = words[2:] if triple.overrides else words[words.index("--") + 4 :]
        return parsers.by_openrlhf(flags, rows)
    if triple.overrides:
        return parsers.by_verl(words[2:])
    folder, model, _module, *overrides = words[1:]
    return parsers.by_verl(load("start_training", verl_programs).arguments(overrides, Path(folder), model, 1))


def _for_trl(triple: Triple, words: list[str], run: RunSpec, folder: Path) -> dict[str, Any]:
    if triple.overrides:
        program = next(i for i, word in enumerate(words) if word.endswith(".py"))
        given = [*words[program + 1 :], "--output_dir=out", "--dataset_name=d"]
        return {"processes": triple.gpus, "words": given}
    settings = json.loads((folder / api_folder(run) / "trainer.json").read_text())
    size = run.evaluation.samples * 16
    return {
        "processes": triple.gpus,
        "settings": {**settings, "output_dir": "out", "per_device_eval_batch_size": size},
    }


def api_folder(run: RunSpec) -> str:
    return f"{run.output_dir}/{run.run_id}"


def _compare(out: Outcome, triple: Triple, found: dict[str, float] | str) -> None:
    if found == triple.expected:
        out.counts["accepted"] += 1
    else:
        out.wrong.append(f"{triple.backend} {triple.option} overrides={triple.overrides}: {found}, {triple.expected}")


def check(out: Outcome, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(
            f"\n{count} (plan, backend, option) triples: {out.counts['accepted']} accepted by the real parsers with "
            f"the plan's n, B_p, M and rate, {out.counts['refused']} refused by us, {len(out.wrong)} wrong"
        )
    assert out.wrong == []
    assert out.counts.total() == count
    assert out.counts["accepted"] > 0.7 * count


def check_scripts(scripts: list[Path]) -> None:
    for first in range(0, len(scripts), 50):
        command = [SHELLCHECK, "--shell=bash", *scripts[first : first + 50]]
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode()


def test_options_of_every_kind_are_tried() -> None:
    for name, options in OPTIONS.items():
        info = registry.load(name).describe()
        tried = {option.partition("=")[0].lstrip("+") for option in options}
        assert len(tried & {option.name for option in info.options}) >= 0.7 * len(info.options)
        assert sum(any(part in name_ for part in (".", "_")) for name_ in tried) >= 10


@pytest.mark.slow
def test_the_real_parsers_take_what_we_accept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = outcome_of(triples(6, seed=1), tmp_path)
    check(out, 6, capsys)
    check_scripts(out.scripts[:2])


@pytest.mark.slow
def test_a_thousand_triples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = outcome_of(triples(1000, seed=0), tmp_path)
    check(out, 1000, capsys)
    check_scripts(out.scripts)
