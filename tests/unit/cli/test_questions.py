"""The other questions that a plan command answers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

EASY = ("plan", "--published", "qwen2.5-7b-instruct/guru-math-easy")
Command = Callable[..., subprocess.CompletedProcess[str]]


def test_what_a_reward_costs_what_more_buys_and_what_a_plan_gains(isocompute: Command) -> None:
    cost = json.loads(isocompute(*EASY, "--for-reward", "0.6", "--json").stdout)
    assert cost["schema_version"] == 1
    assert cost["plan"]["predicted_reward"] >= 0.6
    for question in (("--marginal",), ("--compare", "n=8,bp=32")):
        asked = isocompute(*EASY, "--budget", "3M", *question)
        assert asked.returncode == 0, asked.stderr
        assert asked.stdout
        answer = json.loads(isocompute(*EASY, "--budget", "3M", *question, "--json").stdout)
        assert answer["schema_version"] == 1
