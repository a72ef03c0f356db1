"""`Throughput`: seconds, tokens, GPU-hours and money of update steps on the user's machines."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from isocompute_sdk import upward
from isocompute_sdk.errors import SpecError
from isocompute_sdk.phrases import counted, short
from isocompute_sdk.specs.base import Spec, in_unit
from isocompute_sdk.specs.syntax.complaints import problem
from isocompute_sdk.specs.syntax.quantities import Count, Items, Number, Quantity

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSet

TRADE_OFF_SPAN = 4.0
"""Batches at least this many times apart separate what depends on the batch from what does not."""
NEAR = 1.25
"""Without such batches, seconds are known for batches up to this factor outside the measured ones."""
MORE_BATCHES = (
    f"To plan in hours, time larger batches, {TRADE_OFF_SPAN:g}x apart or more (isocompute run STUDY.yaml --probe), or "
    "give --rollouts-per-second (and --step-overhead-seconds) instead of --throughput."
)
"""What to do if seconds of a batch are unknown."""
SYSTEM_SHARE = 0.8
"""Share of the largest possible speed at the system batch size; doubling the batch then adds 11 %."""

Share = Annotated[float, Number(ge=0)]


class Measurement(Spec):
    """Data behind a measured `Throughput`, and its uncertainty."""

    rollouts_per_batch: Annotated[tuple[Count, ...], Items()]
    """Measured batches B, increasing."""
    runs: Count
    """Number of runs."""
    steps: Count
    """Number of update steps."""
    rollouts: Annotated[float, Number(ge=0)] = 0.0
    """Largest compute C, in rollouts, with a logged response length."""
    relative_error: Share = 0.0
    """Largest relative standard error of predicted seconds per step over the measured batches."""
    level: Annotated[float, Number(gt=0, lt=1)] = 0.8
    """Coverage of the intervals."""
    intervals: dict[str, tuple[float, float]] = Field(default_factory=dict[str, tuple[float, float]])
    """Interval of each fitted quantity, by field name of `Throughput`."""
    gpus_assumed: bool = False
    """Whether nothing says on how many GPUs these runs were, and those of the throughput are taken for theirs."""
    gpus_chosen: bool = False
    """Whether these runs were on several numbers of GPUs, and nobody said which to plan for."""
    kind_assumed: bool = False
    """Whether the GPUs that a budget names are taken to be as fast as those of these runs."""
    rate_is_limit: bool = False
    """Whether the rate may be more than twice that fitted, as seconds hardly grow with the batch."""
    follows_lengths: bool = True
    """Whether seconds are taken to grow with response lengths: False where those of the runs clearly did not."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        batches = self.rollouts_per_batch
        if any(after < before for before, after in pairwise(batches)):
            raise problem(accepted="batches in increasing order", field="rollouts_per_batch")
        for name, (low, high) in self.intervals.items():
            if not 0 <= low <= high:
                raise problem(
                    message=f"the interval of {name} is {low:g} to {high:g}; accepted: 0 <= low <= high",
                    hint="Measure again (`isocompute run --probe`).",
                    field="intervals",
                )
        return self

    @property
    def separates_batches(self) -> bool:
        """Whether the batches lie far enough apart to compare batch sizes, and their seconds differ."""
        return not self.rate_is_limit and self.rollouts_per_batch[-1] >= TRADE_OFF_SPAN * self.rollouts_per_batch[0]


class Throughput(Spec):
    """Cost model of one update step: an overhead, a latency floor, then rollouts at a constant rate.

    One step of B rollouts on G GPUs takes, in seconds of wall-clock time,

        overhead + length (floor + B / (rate (G / gpus)^gpu_exponent))

    where `length` is the mean response length relative to the start of training. Without the optional fields this is
    `step_overhead_seconds + B / rollouts_per_second`.
    """

    step_overhead_seconds: Annotated[float, Number(ge=0), in_unit("seconds")] = 0.0
    """Wall-clock seconds per update step that depend neither on the batch nor on response lengths (weight sync,
    optimiser, logging, checkpoints)."""
    rollouts_per_second: Annotated[Quantity | None, in_unit("rollouts per second")] = None
    """Rollouts sampled and trained on per wall-clock second, all `gpus` together, at the start of training. None:
    unknown, and budgets in hours or money cannot be used."""
    tokens_per_rollout: Annotated[Quantity | None, in_unit("tokens")] = None
    """Mean sampled tokens per rollout at the start of training. None: unknown, and budgets in tokens cannot be used."""
    gpus: Annotated[Count | None, in_unit("GPUs")] = None
    """GPUs that the run occupies. None: unknown, those on which the speed was measured; hours can be planned,
    GPU-hours and money cannot."""
    usd_per_gpu_hour: Annotated[Quantity | None, in_unit("US dollars")] = None
    """Price of one GPU for one hour, in US dollars. None: unknown, and budgets in usd cannot be used."""
    latency_floor_seconds: Annotated[float, Number(ge=0), in_unit("seconds")] = 0.0
    """Wall-clock seconds that the longest response of a batch takes token by token, at the start of training: no number
    of GPUs shortens it. 0: none, or part of the overhead."""
    length_growth: Annotated[float, Number(ge=0)] = 0.0
    """Growth of responses: after C rollouts they are 1 + length_growth ln(1 + C / length_scale_rollouts) times as long
    as at the start. 0: constant length. Seconds grow with them, unless measured ones did not."""
    length_scale_rollouts: Annotated[Quantity, in_unit("rollouts")] = 100_000.0
    """Compute in rollouts from which responses grow, see `length_growth`."""
    gpu_exponent: Annotated[float, Number(ge=0, le=1.5)] | None = None
    """Scaling of the rate, rate ~ G^gpu_exponent; 1 is ideal. None: unknown, and only `gpus` GPUs can be planned."""
    evaluation_rollouts_per_second: Annotated[Quantity | None, in_unit("rollouts per second")] = None
    """Rollouts per wall-clock second in evaluations, without training. None: `rollouts_per_second`."""
    startup_seconds: Annotated[float, Number(ge=0), in_unit("seconds")] = 0.0
    """Wall-clock seconds of a run outside its steps and evaluations: loading, compiling, final saving."""
    measured: Measurement | None = None
    """Data behind these numbers. None: stated by the user, and valid at every batch."""

    @classmethod
    def measure(cls, runs: RunSet, **options: Any) -> Throughput:
        """Fit a throughput to logged seconds per step; arguments as in `isocompute_sdk.timing.measuring.measure`."""
        measured: Throughput = upward.call("measure", runs, **options)
        return measured

    def is_stated_without(self, name: str) -> bool:
        """Whether it is a speed that somebody stated without the field of this name."""
        return self.measured is None and self.rollouts_per_second is not None and name not in self.model_fields_set

    @property
    def on_any_gpus(self) -> bool:
        """Whether its number of GPUs is unknown or assumed, so that the speed is taken for that of any number."""
        seen = self.measured
        return self.gpus is None or (self.gpu_exponent is None and seen is not None and seen.gpus_assumed)

    @property
    def system_batch_size(self) -> float | None:
        """The knee: rollouts per batch at which 80 % of the largest possible speed is reached.

        Smaller batches leave the hardware idle, larger ones gain little. None if seconds per step were not measured at
        batches far enough apart.
        """
        if self.rollouts_per_second is None or (self.measured is not None and not self.measured.separates_batches):
            return None
        fixed = self.step_overhead_seconds + self.latency_floor_seconds
        return max(1.0, SYSTEM_SHARE / (1.0 - SYSTEM_SHARE) * fixed * self.rollouts_per_second)

    @property
    def rate(self) -> float:
        """Rollouts per second.

        Raises:
            SpecError: `rollouts_per_second` is None.
        """
        if self.rollouts_per_second is None:
            raise SpecError(
                "rollouts_per_second is not known; hours and money need it",
                "Add <--rollouts-per-second | rollouts_per_second=>, or a budget in rollouts or tokens.",
            )
        return self.rollouts_per_second

    def refusal(self, rollouts_per_batch: int) -> str | None:
        """Why seconds of this batch are unknown; None if they are known."""
        seen = self.measured
        if seen is None or seen.separates_batches:
            return None
        low, high = seen.rollouts_per_batch[0], seen.rollouts_per_batch[-1]
        if low / NEAR <= rollouts_per_batch <= high * (1.0 if seen.rate_is_limit else NEAR):
            return None
        measured = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        return (
            f"seconds per step were measured only at {measured} rollouts per batch and are unknown at "
            f"{rollouts_per_batch:,}"
        )

    def at_gpus(self, gpus: int) -> Throughput:
        """The same machines with another number of GPUs; a speed on an unknown number is taken for that of these.

        Raises:
            SpecError: `gpu_exponent` is None.
        """
        if gpus == self.gpus:
            return self
        if self.gpus is None or self.on_any_gpus:
            assumed = {} if self.measured is None else {"measured": self.measured.replace(gpus_assumed=True)}
            return self.model_copy(update={"gpus": gpus, **assumed})
        if self.gpu_exponent is None:
            raise SpecError(
                f"gpu_exponent is not known: speed is known only for gpus = {self.gpus}, not for {gpus}",
                f"Plan for {self.gpus} GPUs (gpus={self.gpus}), say how many were timed if not {self.gpus}, "
                "or add <--gpu-exponent | gpu_exponent=>: 1 for ideal scaling, or as measured at two numbers.",
            ).in_shell(
                f"Plan for {self.gpus} GPUs (--gpus {self.gpus}), say how many were timed if not {self.gpus}, or add "
                "--gpu-exponent: 1 for ideal scaling, or as measured at two numbers.",
                ["--gpu-exponent NUMBER"],
            )
        factor = (gpus / self.gpus) ** self.gpu_exponent
        evaluation = self.evaluation_rollouts_per_second
        return self.replace(
            gpus=gpus,
            rollouts_per_second=self.rate * factor,
            evaluation_rollouts_per_second=None if evaluation is None else evaluation * factor,
        )

    def length(self, rollouts: float) -> float:
        """Mean response length after C rollouts, relative to the start of training."""
        return 1.0 + self.length_growth * math.log1p(rollouts / self.length_scale_rollouts)

    def mean_length(self, rollouts: float) -> float:
        """Mean of `length` over the first C rollouts."""
        reach = rollouts / self.length_scale_rollouts
        if self.length_growth == 0.0 or reach < 1e-9:
            return 1.0
        return 1.0 + self.length_growth * ((1.0 + reach) * math.log1p(reach) - reach) / reach

    def step_seconds(self, rollouts_per_batch: float, length: float = 1.0) -> float:
        """Wall-clock seconds of one update step of B rollouts.

        Args:
            rollouts_per_batch: B.
            length: mean response length relative to the start of training; see `length(rollouts)`.
        """
        sampling = self.latency_floor_seconds + rollouts_per_batch / self.rate
        return self.step_overhead_seconds + self._in_time(length) * sampling

    def evaluation_seconds(self, samples: float, length: float = 1.0) -> float:
        """Wall-clock seconds of one evaluation of `samples` responses."""
        rate = self.evaluation_rollouts_per_second or self.rate
        return self._in_time(length) * (self.latency_floor_seconds + samples / rate)

    def _in_time(self, length: float) -> float:
        """By how much responses of this length are slower: not at all where seconds do not follow lengths."""
        return length if self.measured is None or self.measured.follows_lengths else 1.0

    def wall_hours(self, rollouts_per_batch: float, update_steps: float) -> float:
        """Wall-clock hours of M update steps of B rollouts from the base model, without evaluations and start-up."""
        length = self.mean_length(rollouts_per_batch * update_steps)
        return update_steps * self.step_seconds(rollouts_per_batch, length) / 3600.0

    def gpu_hours(self, rollouts_per_batch: float, update_steps: float) -> float:
        """GPU-hours of M update steps of B rollouts.

        Raises:
            SpecError: `gpus` is None.
        """
        if self.gpus is None:
            raise SpecError("gpus is not known; GPU-hours and money need it", "Add <--gpus | gpus=>.")
        return self.gpus * self.wall_hours(rollouts_per_batch, update_steps)

    def usd(self, rollouts_per_batch: float, update_steps: float) -> float:
        """Price of M update steps of B rollouts, in US dollars.

        Raises:
            SpecError: `usd_per_gpu_hour` is None.
        """
        return self.price() * self.gpu_hours(rollouts_per_batch, update_steps)

    def price(self) -> float:
        """US dollars of one GPU-hour.

        Raises:
            SpecError: `usd_per_gpu_hour` is None.
        """
        if self.usd_per_gpu_hour is None:
            raise SpecError(
                "usd_per_gpu_hour is not known; a cost in usd needs the price of a GPU-hour",
                "Add <--usd-per-gpu-hour | usd_per_gpu_hour=>, or a budget in gpu_hours or rollouts.",
            )
        return self.usd_per_gpu_hour

    def tokens(self, rollouts: float) -> float:
        """Sampled tokens of the first `rollouts` rollouts of a run, with response growth.

        Raises:
            SpecError: `tokens_per_rollout` is None.
        """
        if self.tokens_per_rollout is None:
            raise SpecError(
                "tokens_per_rollout is not known; a cost in tokens needs the mean length of a rollout",
                "Add <--tokens-per-rollout | tokens_per_rollout=>, or a budget in rollouts.",
            )
        return self.tokens_per_rollout * rollouts * self.mean_length(rollouts)

    def summary(self) -> str:
        """The model in a few lines, with intervals if it was measured."""
        seen = self.measured
        units: dict[str, tuple[str, str]] = {
            "step_overhead_seconds": ("overhead", "s per step"),
            "latency_floor_seconds": ("latency floor", "s per step, grows with responses"),
            "rollouts_per_second": ("rate", "rollouts/s" + (f" on {counted(self.gpus, 'GPU')}" if self.gpus else "")),
        }
        lines: list[str] = []
        for name, (label, unit) in units.items() if self.rollouts_per_second is not None else ():
            value, band = short(getattr(self, name)), ""
            if seen is not None and name in seen.intervals:
                low, high = seen.intervals[name]
                band = f" ({seen.level:.0%} interval {short(low)} to {short(high)})"
                if seen.rate_is_limit and name == "rollouts_per_second":
                    value, band = f"at least {short(low)}", f" ({seen.level:.0%})"
            lines.append(f"{label:<18} {value} {unit}{band}")
        if self.gpu_exponent is not None:
            lines.append(f"{'GPUs':<18} rate ~ GPUs^{self.gpu_exponent:.2f}")
        if self.tokens_per_rollout is not None:
            grown = "" if self.length_growth == 0 else f", {self.length(1e6):.2f} x after 1M rollouts"
            lines.append(f"{'tokens':<18} {self.tokens_per_rollout:,.4g} per rollout at the start{grown}")
        if self.evaluation_rollouts_per_second is not None:
            lines.append(f"{'evaluation':<18} {short(self.evaluation_rollouts_per_second)} rollouts/s")
        if self.startup_seconds:
            lines.append(f"{'start':<18} {self.startup_seconds:,.3g} s per run")
        if seen is not None:
            listed = ", ".join(f"{b:,}" for b in seen.rollouts_per_batch[:8])
            lines.append(f"{'measured at':<18} B = {listed} ({counted(seen.runs, 'run')}, {seen.steps:,} steps)")
        lines.append(f"{'system batch size':<18} {self._knee()}")
        return "\n".join(lines)

    def _knee(self) -> str:
        knee, seen = self.system_batch_size, self.measured
        if knee is None:
            need = "larger batches" if seen is not None and seen.rate_is_limit else "batches at least 4x apart"
            return f"unknown: needs {need}; seconds are known only near the measured B"
        inside = seen is None or seen.rollouts_per_batch[0] / 2 <= knee <= 2 * seen.rollouts_per_batch[-1]
        where = "" if inside else "; outside the measured batches"
        return f"about {knee:,.0f} rollouts per batch (80 % of the largest speed{where})"
