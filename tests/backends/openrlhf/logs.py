"""Run folders as a launch script and OpenRLHF leave them, without running either."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from isocompute_openrlhf import OpenRLHFBackend, payload
from isocompute_sdk.specs import RunSpec
from tests.backends.openrlhf.inputs import write_inputs
from tests.backends.programs import load

Values = Mapping[str, float]
claim_folder, run_files, problem_rows = load("claim_folder"), load("run_files"), load("problem_rows")
prepare_rows, supervise = load("prepare_rows", payload), load("supervise", payload)


class LoggedRun:
    """One run folder and what its attempts write into it."""

    def __init__(self, top: Path, run: RunSpec) -> None:
        self.run, self.folder, self.inputs = run, top / run.run_id, top / f"inputs-{run.run_id}"
        self.folder.mkdir(parents=True)
        write_inputs(self.inputs, run)

    def begin(self, from_step: int = 0) -> int:
        """What the script does before training starts; returns the number of the attempt."""
        (self.folder / ".request.json.new").write_text(OpenRLHFBackend().documents(self.run)["request.json"])
        if from_step:
            checkpoint = self.folder / "checkpoints" / "_actor" / f"global_step{from_step}"
            checkpoint.mkdir(parents=True)
            (checkpoint / "metric.json").write_text("{}")
        claim_folder.claim(self.folder, self.inputs)
        problem_rows.prepare(self.folder, prepare_rows.row)
        supervise.resume(self.folder, ["_actor"])
        return run_files.attempt_of(self.folder)

    def prints(self, train: Mapping[int, Values], evaluation: Mapping[int, Values] | None = None) -> None:
        """What OpenRLHF prints in this attempt."""
        head = "\x1b[36m(PPOTrainer pid=7)\x1b[0m INFO 11-21 08:00:00 ppo_trainer.py:99] \u2728"
        lines = [f"{head} Global step {step}: {dict(values)}\n" for step, values in train.items()]
        for step, values in (evaluation or {}).items():
            lines.append(f"{head} Evaluation completed in 0:00:01, global_step {step}, eval_metrics: {dict(values)}\n")
        attempt = run_files.attempt_of(self.folder)
        (self.folder / f"console.{attempt}.log").write_text("".join(lines))


def updates(steps: Iterable[int], **values: float) -> dict[int, dict[str, float]]:
    """What OpenRLHF logs at each update, as far as it matters here."""
    shared = {
        "rollout/reward_mean": 0.5,
        "rollout/response_length_mean": 10.0,
        "rollout/num_samples": 6.0,
        "timing/step_total": 2.0,
    }
    return {step: {**shared, **values} for step in steps}
