"""Problem files for the programs that prepare a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

REWARD = "def reward(prompt, response, answer):\n    return float(response == answer)\n"


def problems(count: int, name: str = "p") -> list[dict[str, Any]]:
    return [{"id": f"{name}{i}", "prompt": f"what is {name}{i}?", "answer": i} for i in range(count)]


def write_jsonl(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
