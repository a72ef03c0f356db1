"""The workload that the benchmarks share: the built-in task with responses of a fixed length.

Model and problems are those of the built-in task. Its end token becomes an ordinary character, and the tokenizer ends
texts with a token that the model has no logit for: no response ends before its longest length, whoever samples it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
REWARD = "def reward(prompt, response, answer):\n    return 1.0 if response.startswith(answer) else 0.0\n"
NEVER = "<never>"
"""The end token, one past the model's vocabulary."""


def environment(root: Path = ROOT) -> dict[str, str]:
    """The environment of every measured process: one thread, and the packages of a checkout, by default this one."""
    packages = os.pathsep.join([str(root), str(root / "backends")])
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONPATH": packages,
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
    }


def make_task(folder: Path) -> Path:
    """Model, train.jsonl, validation.jsonl and reward.py of the task with fixed lengths; kept for the next run."""
    task = folder / "task"
    if (task / "reward.py").exists():
        return task
    base = folder / "built_in"
    subprocess.run(
        [sys.executable, "-m", "isocompute_torch.tasks", str(base)], env=environment(), check=True, cwd=folder
    )
    shutil.copytree(base, task, ignore=shutil.ignore_patterns("reward.py"))
    _without_end(task / "model")
    (task / "reward.py").write_text(REWARD)
    return task


def prepare_run(task: Path, folder: Path, *, steps: int, group_size: int, problems: int, **changes: Any) -> Path:
    """A run folder for `python -m isocompute_torch.train`, started in `task`; changes are fields of the RunSpec.

    Evaluations and checkpoints come after the last step only, beside the evaluation at step 0.
    """
    from isocompute_sdk.specs import RunSpec

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    options = {"threads": 1, "probe_problems": 0, "save_every_steps": steps, **changes.pop("options", {})}
    recipe = {
        "preset": "hard",
        "max_response_tokens": 8,
        "temperature": 1.0,
        "learning_rate_anchor": 4e-4,
        **changes.pop("recipe", {}),
    }
    values: dict[str, Any] = {
        "run_id": folder.name,
        "model": str(task / "model"),
        "data": {"train": "train.jsonl", "validation": "validation.jsonl", "reward": "reward.py"},
        "recipe": recipe,
        "group_size": group_size,
        "problems_per_batch": problems,
        "update_steps": steps,
        "evaluation": {"every_steps": steps, "samples": 1, "n_problems": 8},
        "backend": "torch",
        "options": options,
        "output_dir": str(folder),
    }
    run = RunSpec.model_validate({**values, **changes})
    document = {"kind": "torch-run", "schema_version": 1, **run.model_dump(mode="json", exclude_none=True)}
    (folder / "run.json").write_text(json.dumps(document))
    return folder


def start(arguments: list[str], cwd: Path, root: Path = ROOT) -> str:
    """Run one measured process to its end, with the packages of a checkout; returns what it wrote.

    Raises:
        SystemExit: it failed; its output is shown.
    """
    command = [sys.executable, *arguments]
    done = subprocess.run(command, check=False, env=environment(root), cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def _without_end(model: Path) -> None:
    """Make another token the end, one that the model cannot give."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    tokenizer.add_special_tokens({"eos_token": NEVER})
    tokenizer.save_pretrained(model)
    for file, end in (("config.json", None), ("generation_config.json", int(tokenizer.eos_token_id))):
        values = json.loads((model / file).read_text())
        (model / file).write_text(json.dumps({**values, "eos_token_id": end}))
