"""Parts of a `Plan`: its verdict, the odds of an n, alternatives, what it gains and leaves, and its approval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from isocompute_sdk.fitting.fit_parts import Reached
from isocompute_sdk.specs.sweep import Sized

VerdictKind = Literal[
    "clear", "tie", "hardly-matters", "likely", "measure-first", "undecided", "stop-spending", "borrowed"
]
"""`clear`: one n is ahead; `tie`: others are predicted within a tie of it; `hardly-matters`: every n that was run is;
`likely`: the n with the highest expected reward, though another may well be the best; `measure-first`: the same, and
runs made first are worth their cost; `undecided`: the runs cannot decide, because a wrong choice probably costs more
than a tie; `stop-spending`: the rest of the budget adds almost nothing, and that is certain; `borrowed`: the plan rests
on no runs of the user's own."""

Worth = Literal["worth-it", "not-worth-it", "cannot-tell"]
"""Whether a doubling of the budget is predicted to add as much as the last half of a plan's budget must add."""


@dataclass(frozen=True)
class Verdict:
    """How decisively the data support n."""

    kind: VerdictKind
    sentence: str
    """The finding in plain words, with numbers and what to do."""
    doubts: tuple[str, ...] = ()
    """Codes of the notes for which no n counts as decided."""
    odds: str = ""
    """Which n may be the best instead, and what is expected to be lost; empty where none is likelier and n is decided,
    or without odds."""


@dataclass(frozen=True)
class Odds:
    """How good one n is with the whole budget, over the draws of a surface."""

    probability_best: float
    """Share of the draws in which it is the best."""
    near_best: float
    """Share of the draws in which it is equal to the best."""
    expected_loss: float
    """Reward expected to be lost against the best n of each draw."""


@dataclass(frozen=True)
class Alternative(Sized):
    """Another allocation worth knowing about, at the same budget."""

    kind: str
    """`near-tie`; `close`: within a tie too, but above those that were run;
    `on-grid`, `beyond-grid`, `best-by-curves`, `next-power-of-two` or `other`; of a plan that a person
    changed `before-change`; `without-limits`."""
    group_size: int
    problems_per_batch: int
    update_steps: int
    predicted_reward: float | None = None
    """Predicted reward; None if the fits cannot predict it."""
    expected_loss: float | None = None
    """Predicted loss of reward against the plan (for a prior, of a share of the gain); negative if it is better."""
    odds: Odds | None = None
    """None without a surface."""


@dataclass(frozen=True)
class Stopping:
    """What a plan leaves of its budget because it would add almost nothing."""

    gain: float
    """Reward that the rest is predicted to add."""
    extrapolation: float | None
    """Compute of the whole budget over the largest that was run; None without runs."""
    end_seen: bool
    """Whether the runs show the plateau, or that rewards fall."""
    chance_of_more: float | None
    """Probability that any n gains more than equal from the rest; None without a surface."""


@dataclass(frozen=True)
class Unlimited:
    """What the budget would buy without the sizes, the largest batch and the mode that were asked for."""

    asked: tuple[str, ...]
    """Those, in words."""
    plan: Alternative


@dataclass(frozen=True)
class Gain:
    """What the plan gains over the best checkpoint of the runs so far."""

    best: Reached
    gain: float
    """Predicted reward of the plan less that."""
    interval: tuple[float, float] | None
    """80 % interval of `gain`; None without draws."""
    probability: float | None
    """That `gain` is positive, over the same draws; None without draws."""
    run_to_go_on: str | None = None
    """The run so far that ends highest if it goes on with the rollouts of the plan; None where unknown."""
    going_on: float = 0.0
    """What that gains over `best`."""

    @property
    def shown(self) -> float:
        """The difference of the two rewards as shown."""
        return self._between(0.0, self.gain)

    @property
    def further(self) -> float:
        """What going on with a run gains over the plan, as shown; negative where the plan gains more."""
        return self._between(self.gain, self.going_on)

    def _between(self, first: float, second: float) -> float:
        return round(round(self.best.reward + second, 3) - round(self.best.reward + first, 3), 3)


@dataclass(frozen=True)
class Approval:
    """What whoever pays is asked to do."""

    kind: Literal["approve", "check", "part", "do-not"]
    """`check`: approve, and look at one evaluation before the rest is spent; `part`: approve up to that one only."""
    reason: str
    """The rule that decided, with its numbers."""
    step: int | None = None
    """Update step of the check."""
    expected: float | None = None
    """Reward expected there."""
    lowest: float | None = None
    """Its floor, the reward below which to stop there: one run in ten measures less. None if unknown, and of a part."""
    gain: Gain | None = None
    """What the part that is approved gains; None of whole plans, and as of `Plan.gain`."""
    smaller: float | None = None
    """A smaller budget whose plan is approved, where the last half of this one is not worth it; None without."""

    @property
    def label(self) -> str:
        """What is asked, in a few words."""
        check = f"Approve with a check at step {self.step or 1:,}"
        fixed = {"approve": "Approve", "check": check, "do-not": "Do not approve yet"}
        test = "a test " if self.gain is not None and self.gain.shown <= 0 else ""
        return fixed.get(self.kind, f"Approve {test}up to step {self.step or 1:,} only")

    @property
    def finding(self) -> str:
        """What the check should find, and what follows; empty without a check."""
        if self.step is None:
            return ""
        told = [] if self.expected is None else [f"we expect {self.expected:.3f} at that step"]
        if self.kind == "part":
            told.append("then isocompute forecast says whether to go on")
        if self.lowest is not None:
            told.append(f"stop if it measures less than {self.lowest:.3f}")
        return ", ".join(told)
