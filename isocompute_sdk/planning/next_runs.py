"""`NextRuns` and `PilotDesign`: what to run before a budget is spent, as saved documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from isocompute_sdk.documents import Document, Saved
from isocompute_sdk.errors import FieldError
from isocompute_sdk.fitting.arrays import Count, NotNegative, Positive
from isocompute_sdk.notes import Note
from isocompute_sdk.planning.pricing import amount_text
from isocompute_sdk.specs.budget import Unit
from isocompute_sdk.specs.sweep import Allocation
from isocompute_sdk.tolerances import Tolerances

Share = Annotated[float, Field(ge=0, le=1)]
NONE_WORTH_IT = "none is worth its cost: train the plan"


@dataclass(frozen=True)
class NextRun:
    """One run to make before the budget is spent."""

    group_size: Annotated[int, Field(ge=2)]
    problems_per_batch: Count
    update_steps: Count
    """M at its end; of a continued run, counted from its start."""
    seed: Annotated[int, Field(ge=0)]
    continues: str | None
    """Run id of the run to continue from its checkpoint; None for a new run."""
    cost: Positive
    """In the budget's unit; of a continued run only what is added."""
    share: Share
    """Of the budget that is left."""
    saves: NotNegative
    """Reward that it is expected to save at the target, beside the runs listed before it and less its cost."""
    settles: str
    """What it would settle."""

    @property
    def rollouts(self) -> int:
        """C at its end."""
        return self.group_size * self.problems_per_batch * self.update_steps

    @property
    def allocation(self) -> Allocation:
        """The run as studies take it."""
        return Allocation(
            group_size=self.group_size,
            problems_per_batch=self.problems_per_batch,
            update_steps=self.update_steps,
            seed=self.seed,
        )

    def describe(self, unit: str) -> str:
        """Configuration, length, cost and reason on one line."""
        what = f"n = {self.group_size}, B_p = {self.problems_per_batch}, M = {self.update_steps:,}"
        if self.continues is not None:
            what = f"continue {self.continues} to M = {self.update_steps:,}"
        elif self.seed:
            what += f", seed {self.seed}"
        return (
            f"{what} ({self.rollouts:,} rollouts): {amount_text(self.cost, unit)}, {self.share:.1%} of the budget, "
            f"expected to save {self.saves:.4f}; {self.settles}"
        )


@dataclass(frozen=True)
class NextRuns(Saved):
    """The runs that lower expected regret at the target most for what they cost; none if none is worth its cost."""

    runs: tuple[NextRun, ...]
    unit: Unit
    """Unit of every cost."""
    budget: Positive
    """What is left of the budget, in that unit."""
    metric: str
    group_size_now: Annotated[int, Field(ge=2)]
    """n that is planned without these runs."""
    problems_per_batch_now: Count
    regret_now: NotNegative
    """Expected reward lost at the target against the best n, if the budget is spent now."""
    saving: NotNegative
    """Expected reward saved at the target by all runs together, less what their cost loses there."""
    reason: str
    """Why these runs, or why none."""
    notes: tuple[Note, ...] = ()
    regret_unseen: NotNegative = 0.0
    """What of `regret_now` lies at n above twice the largest that was run."""

    def __post_init__(self) -> None:
        if self.saving > self.regret_now * (1 + 1e-9) + 1e-12:
            raise FieldError("saving", self.saving, f"at most regret_now = {self.regret_now:g}")
        if not self.runs and self.saving > 0:
            raise FieldError("saving", self.saving, "0 without runs")

    @property
    def cost(self) -> float:
        """Cost of all runs, in the budget's unit."""
        return float(sum(run.cost for run in self.runs))

    @property
    def share(self) -> float:
        """Their cost as a share of what is left of the budget."""
        return self.cost / self.budget

    @property
    def regret_after(self) -> float:
        """`regret_now` less `saving`."""
        return max(self.regret_now - self.saving, 0.0)

    def material(self, span: float = 1.0) -> bool:
        """Whether the saving is worth a delay of the plan; `span` is the width of the metric's range."""
        return bool(self.runs) and self.saving >= Tolerances(span).small

    def summary(self) -> str:
        """The reason, one line for each run, and the notes."""
        lines = [self.reason, *(f"  {run.describe(self.unit)}" for run in self.runs)]
        return "\n".join(lines + [f"[{note.severity}] {note.code}: {note.message}" for note in self.notes])


NEXT_RUNS = Document(
    "next-runs",
    1,
    NextRuns,
    derived=("cost", "share", "regret_after"),
    remedy="Ask again: isocompute next RUNS --budget C.",
)


@dataclass(frozen=True)
class ShareRegret:
    """What a pilot of one size is expected to be worth."""

    share: Share
    """Of the budget that the pilot costs."""
    regret: NotNegative
    """Expected reward lost at the target after it, its cost included."""
    group_sizes: tuple[int, ...]
    rollouts: tuple[int, ...]
    """Length of the run at each group size."""


@dataclass(frozen=True)
class PilotDesign(Saved):
    """A pilot designed before anything was run."""

    first: NextRuns
    """Runs of the first round; `Planner.next_runs` gives the later ones once these are fitted."""
    pilot_share: Share
    """Share of the budget to pilot in all rounds."""
    by_share: tuple[ShareRegret, ...]
    """Expected regret by the pilot's share."""

    @property
    def runs(self) -> tuple[NextRun, ...]:
        """Runs of the first round."""
        return self.first.runs

    def summary(self) -> str:
        """The table of regrets by share, then the first round."""
        lines = ["share of the budget   expected regret   group sizes and lengths"]
        for one in self.by_share:
            runs = ", ".join(f"{n} to {c:,}" for n, c in zip(one.group_sizes, one.rollouts, strict=True))
            chosen = "  <- planned" if one.share == self.pilot_share else ""
            lines.append(f"{one.share:>19.0%}   {one.regret:>15.4f}   {runs or 'no pilot'}{chosen}")
        return "\n".join([*lines, "", self.first.summary()])


PILOT_DESIGN = Document("pilot-design", 1, PilotDesign, remedy="Design it again: isocompute next --budget C.")
