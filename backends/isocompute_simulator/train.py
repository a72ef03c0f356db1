"""Simulate one prepared run: `python -m isocompute_simulator.train FOLDER`.

FOLDER holds simulation.json, as the launch script writes it. The journal metrics.jsonl is written there in one step,
in the format of the built-in runner; the same run gives the same numbers. Exit status: 0 done, 2 input that cannot
be used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.files import write_text
from isocompute_simulator.configuration import METRICS_FILE, Configuration, load_configuration
from isocompute_simulator.simulate import simulate

JOURNAL_VERSION = 1
DONE, REFUSED = 0, 2
_FIRST_TOKENS, _GROWTH, _GROWTH_SCALE = 600.0, 0.25, 1e5
"""Tokens of a rollout at first, and their relative growth for each e-fold of compute beyond a scale in rollouts."""


def main(argv: list[str]) -> int:
    """Simulate the run in the folder named on the command line; returns the exit status."""
    if len(argv) != 1:
        sys.stderr.write("usage: python -m isocompute_simulator.train FOLDER\n")
        return REFUSED
    try:
        configuration = load_configuration(argv[0])
        write_text(configuration.folder / METRICS_FILE, _journal(configuration))
    except (IsoComputeError, OSError) as error:
        sys.stderr.write(f"isocompute_simulator.train: {error}\n")
        return REFUSED
    sys.stdout.write(f"{configuration.run.run_id}: simulated {configuration.run.update_steps} updates\n")
    return DONE


def tokens_sampled(rollouts: float) -> int:
    """Tokens in the first C rollouts: responses grow along training."""
    reach = rollouts / _GROWTH_SCALE
    # Integral of the tokens of a rollout, 1 + growth ln(1 + C / scale).
    growth = (1 + reach) * np.log1p(reach) - reach
    return round(_FIRST_TOKENS * (rollouts + _GROWTH * _GROWTH_SCALE * growth))


def _journal(configuration: Configuration) -> str:
    run = configuration.run
    lines: list[str] = []

    def append(kind: str, step: int, fields: Mapping[str, Any]) -> None:
        rollouts = step * run.rollouts_per_batch
        record = {
            "schema_version": JOURNAL_VERSION,
            "kind": kind,
            "run_id": run.run_id,
            "attempt": 1,
            "step": step,
            "rollouts": rollouts,
            "tokens": tokens_sampled(rollouts),
            "wall_seconds": 0.0,
        }
        lines.append(json.dumps({**record, **fields}, allow_nan=False) + "\n")

    append("run", 0, {**configuration.context(), "simulation": True, "versions": {"numpy": np.__version__}})
    for step, metrics in simulate(configuration):
        append("evaluation", step, {"eval_set": "validation", "metrics": metrics})
    append("end", run.update_steps, {"status": "finished", "message": f"simulated {run.update_steps} updates"})
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
