"""What an audit found: the result, its groups, their runs, and the runs that would settle what is open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from isocompute_sdk import files
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.contrast import Estimate
from isocompute_sdk.notes import Note

SCHEMA_VERSION = 1

Standing = Literal["best", "level", "behind", "undecided", "alone", "not-judged"]
"""`best`: this configuration is the best known at its compute; `level`: within a tie of it; `behind`: clearly not;
`undecided`: these runs cannot tell; `alone`: nothing to compare with; `not-judged`: the group could not be fitted."""
Verdict = Literal["ahead", "tie", "hardly-matters", "undecided", "one-size"]
"""What a comparison of group sizes says; `one-size`: only one n was run."""


@dataclass(frozen=True)
class RunAudit:
    """One run: what it reached, and where its configuration stood at its compute."""

    run_id: str
    group_size: int
    """Rollouts per problem, n."""
    problems_per_batch: int | None
    """Problems per batch, B_p."""
    seed: int | None
    rollouts: float
    """Compute spent, C."""
    evaluations: int
    reached: float
    """Level of its best checkpoint: the highest mean of a few successive evaluations (`conduct.best_level`)."""
    standing: Standing = "not-judged"
    expected: float | None = None
    """Fitted reward of its configuration at its compute (at the fault, where it collapsed)."""
    best_group_size: int | None = None
    """n of the best known configuration at this compute."""
    best_problems_per_batch: int | None = None
    best_reward: float | None = None
    """Fitted reward of that configuration."""
    behind: Estimate | None = None
    """Reward that the best known configuration is ahead by."""
    equal_reward: Estimate | None = None
    """Rollouts with which the best known configurations reach the same reward: median and interval."""
    equal_reward_bounded: bool = True
    """False where an end of that interval lies outside what was asked."""
    last_half: Estimate | None = None
    """Reward that the second half of its compute bought."""
    forecast: bool = False
    """True where the best known configuration was not run this far."""
    fault: Literal["collapse", "decay"] | None = None
    fault_rollouts: float | None = None
    """Compute after which it collapsed, or decayed."""
    off_curve: float | None = None
    """Measured less fitted reward at its end, where that is more than chance makes of one run; else None."""


@dataclass(frozen=True)
class SizeAudit:
    """One group size in a comparison, at its best B_p."""

    group_size: int
    problems_per_batch: int | None
    runs: int
    """Runs with this n that reached the compute of the comparison."""
    reward: Estimate
    behind: Estimate
    """Reward lost against the n with the largest expected reward; zeros for that n."""
    probability_best: float


@dataclass(frozen=True)
class Comparison:
    """Every group size that was run as far as one compute."""

    rollouts: float
    sizes: tuple[SizeAudit, ...]
    """Increasing in n."""
    verdict: Verdict
    sentence: str


@dataclass(frozen=True)
class ProposedRun:
    """A run that would settle something."""

    group_size: int
    problems_per_batch: int | None
    rollouts: int
    """Length of the run."""
    why: str
    continues: str | None = None
    """Run that it continues, where that saves what was spent; `rollouts` is the new length."""
    costs: int = 0
    """Rollouts that it adds."""


@dataclass(frozen=True)
class GroupAudit:
    """Runs that may be compared."""

    name: str
    """`1`, `2`, ... in the order of the report."""
    context: Mapping[str, Any]
    """What they agree on."""
    runs: tuple[RunAudit, ...]
    comparisons: tuple[Comparison, ...] = ()
    """At the largest compute that two group sizes reached, then where all of them were measured."""
    sentence: str = ""
    """The finding in plain words, or why there is none."""
    reason: str | None = None
    """Why the group could not be fitted; None where it was."""
    spent: float = 0.0
    """Rollouts of all its runs."""
    equal_reward: Estimate | None = None
    """Rollouts with which the best known configurations reach the rewards of all its runs."""
    proposals: tuple[ProposedRun, ...] = ()
    notes: tuple[Note, ...] = ()
    fits: Fits | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Audit:
    """What runs that somebody already has really bought."""

    metric: str
    eval_set: str
    level: float
    """Coverage of the intervals."""
    groups: tuple[GroupAudit, ...]
    left_out: Mapping[str, str]
    """Runs, or files, that take no part, with the reason."""
    apart: tuple[str, ...]
    """Why each group cannot be compared with the first that it resembles, one sentence each."""
    notes: tuple[Note, ...] = ()

    def summary(self) -> str:
        """The audit as text."""
        from isocompute_sdk.auditing.report import summarise

        return summarise(self)

    def save(self, path: str | Path) -> Path:
        """Write as JSON; a kill leaves the old file or the new one.

        Raises:
            IsoComputeError: the file cannot be written.
        """
        return files.save_json(path, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form, without the fits."""
        return {
            "kind": "audit",
            "schema_version": SCHEMA_VERSION,
            "metric": self.metric,
            "eval_set": self.eval_set,
            "level": self.level,
            "groups": [_group(group) for group in self.groups],
            "left_out": dict(self.left_out),
            "apart": list(self.apart),
            "notes": [note.to_dict() for note in self.notes],
        }


def _group(group: GroupAudit) -> dict[str, Any]:
    return {
        "name": group.name,
        "sentence": group.sentence,
        "reason": group.reason,
        "context": dict(group.context),
        "spent": group.spent,
        "equal_reward": _estimate(group.equal_reward),
        "comparisons": [
            {
                "rollouts": one.rollouts,
                "verdict": one.verdict,
                "sentence": one.sentence,
                "sizes": [_plain(size) for size in one.sizes],
            }
            for one in group.comparisons
        ],
        "runs": [_plain(run) for run in group.runs],
        "proposals": [asdict(proposal) for proposal in group.proposals],
        "notes": [note.to_dict() for note in group.notes],
    }


def _plain(one: RunAudit | SizeAudit) -> dict[str, Any]:
    return {name: _estimate(value) if isinstance(value, Estimate) else value for name, value in vars(one).items()}


def _estimate(value: Estimate | None) -> dict[str, float] | None:
    return None if value is None else value._asdict()
