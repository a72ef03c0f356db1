"""What a run has used up along its curve: rollouts, tokens and GPU time, and what the lost steps cost beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from isocompute_openrlhf.attempts import Attempt, History
from isocompute_openrlhf.samples import Samples
from isocompute_sdk.notes import Note

FILTER_RATE = "dynamic_filtering_pass_rate"
"""100 n times the share of the generated groups that the filter kept, which is what was trained on."""


@dataclass
class Progress:
    """Compute along the curve of one run.

    Args:
        history: what was logged.
        samples: records of single samples; None where there are none.
        group_size: rollouts per problem, n.
        rollouts_per_batch: n * B_p.
        gpus: GPUs that the run occupies.
    """

    history: History
    samples: Samples | None
    group_size: int
    rollouts_per_batch: int
    gpus: int
    _rollouts: list[float] = field(init=False, default_factory=lambda: [0.0])
    _tokens: list[float] = field(init=False, default_factory=lambda: [0.0])
    _gpu_seconds: list[float] = field(init=False, default_factory=lambda: [0.0])
    _missing: list[int] = field(init=False, default_factory=list[int])
    _made: dict[int, list[float]] = field(init=False, default_factory=dict[int, list[float]])
    _before: dict[int, float] = field(init=False, default_factory=dict[int, float])

    def __post_init__(self) -> None:
        self._add_up()
        curve = {
            step: values
            for attempt, last in self.history.surviving()
            for step, values in attempt.logged.train.items()
            if step <= last
        }
        for step in range(1, max(curve, default=0) + 1):
            values = curve.get(step, {})
            if not values:
                self._missing.append(step)
            # Unknown stays unknown: after a missing value a sum is not a number.
            generated = self._generated(values)
            length = values.get("rollout/response_length_mean", math.nan)
            self._rollouts.append(self._rollouts[-1] + generated)
            self._tokens.append(self._tokens[-1] + generated * length)
            self._gpu_seconds.append(self._gpu_seconds[-1] + self.gpus * values.get("timing/step_total", math.nan))

    def at(self, attempt: Attempt, step: int) -> dict[str, float | None]:
        """The columns of a place on the curve; tokens and GPU time are None where a log is missing before it.

        `rollouts_spent` counts everything generated until the attempt had made that step, lost steps included.
        GPU time is that of generation, passes, update and weight transfer; evaluations and checkpoints are not in it.
        """
        known = min(step, len(self._rollouts) - 1)
        rollouts = self._rollouts[known] + (step - known) * self.rollouts_per_batch
        exact = known == step
        return {
            "step": float(step),
            "rollouts": float(round(rollouts)),
            "tokens": _or_none(round(self._tokens[step], 1)) if exact else None,
            "gpu_seconds": _or_none(self._gpu_seconds[step]) if exact else None,
            "rollouts_spent": self._spent(attempt, step),
        }

    def _spent(self, attempt: Attempt, step: int) -> float:
        made = self._made[attempt.number]
        beyond = step - attempt.from_step - (len(made) - 1)
        own = made[-1] + beyond * self.rollouts_per_batch if beyond > 0 else made[step - attempt.from_step]
        return self._before[attempt.number] + own

    def notes(self) -> tuple[Note, ...]:
        """What is missing from the log."""
        if not self._missing:
            return ()
        begun = self.history.attempts[0].from_step
        data = {"steps": len(self._missing), "first": self._missing[0]}
        counted = (
            f"They are counted with {self.rollouts_per_batch} rollouts each; tokens and GPU time after them are "
            "unknown. Add the earlier event files to the run's folder if you have them."
        )
        if begun and self._missing[0] == 1:
            message = f"the log begins after update step {begun}, and {len(self._missing)} steps are missing. {counted}"
            return (Note("log-starts-late", "warning", message, data),)
        message = f"{len(self._missing)} update steps, the first {self._missing[0]}, are not in the log. {counted}"
        return (Note("log-gaps", "info", message, data),)

    def _add_up(self) -> None:
        """What every attempt generated after each of its steps, and what all before it did."""
        logged = {one.number: one for one in self.history.attempts}
        before = 0.0
        for number in range(1, max(logged, default=0) + 1):
            self._before[number] = before
            made = [0.0]
            if number in logged:
                train, begun = logged[number].logged.train, logged[number].from_step
                for step in range(begun + 1, max(train, default=begun) + 1):
                    made.append(made[-1] + self._generated(train.get(step, {})))
            self._made[number] = made
            # An attempt that died early may have sampled more than it logged.
            sampled = self.samples.count("train", number) if self.samples is not None else 0
            before += max(float(sampled), made[-1])

    def _generated(self, values: Mapping[str, float]) -> float:
        """Rollouts generated for one update, groups that dynamic filtering replaced included.

        OpenRLHF logs samples per generated prompt, times 100 (trainer/ppo_utils/samples_generator.py).
        """
        rate, kept = values.get(FILTER_RATE), values.get("rollout/num_samples")
        if rate and kept:
            return float(round(self.group_size * kept * 100.0 / rate))
        return float(self.rollouts_per_batch)


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
