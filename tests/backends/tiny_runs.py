"""Runs of the built-in runner on sums of two digits, for tests with and without vLLM. Imports no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isocompute_sdk.specs import RunSpec

PROBLEMS = [(f"{a}+{b}=", str(a + b)) for a in range(5) for b in range(4)]
REWARD = "def reward(prompt, response, answer):\n    return float(response[:1] in answer or response[1:2] == '1')\n"


def write_inputs(folder: Path) -> None:
    """16 training problems, four validation problems and a reward function."""
    rows = [json.dumps({"prompt": prompt, "answer": answer}) + "\n" for prompt, answer in PROBLEMS]
    (folder / "train.jsonl").write_text("".join(rows[:16]))
    (folder / "validation.jsonl").write_text("".join(rows[16:]))
    (folder / "reward.py").write_text(REWARD)


def tiny_run(
    model: str, *, recipe: dict[str, Any] | None = None, options: dict[str, Any] | None = None, **changes: Any
) -> RunSpec:
    """A run of some updates on these problems; changes are fields of the RunSpec."""
    values: dict[str, Any] = {
        "run_id": "run",
        "model": model,
        "data": {"train": "train.jsonl", "validation": "validation.jsonl", "reward": "reward.py"},
        "recipe": {
            "preset": "hard",
            "max_response_tokens": 4,
            "temperature": 1.0,
            "warmup_steps": 2,
            **(recipe or {}),
        },
        "group_size": 4,
        "problems_per_batch": 4,
        "update_steps": 7,
        "evaluation": {"every_steps": 3, "samples": 4},
        "backend": "torch",
        "options": {"threads": 1, "probe_problems": 4, "save_every_steps": 2, **(options or {})},
    }
    return RunSpec.model_validate({**values, **changes})


def write_run(folder: Path, run: RunSpec) -> Path:
    """The folder of a run, as its launch script prepares it."""
    folder.mkdir(exist_ok=True)
    document = {"kind": "torch-run", "schema_version": 1, **run.model_dump(mode="json")}
    (folder / ".run.json.new").write_text(json.dumps(document))
    return folder
