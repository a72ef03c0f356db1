"""What a designed campaign decided: what was known, what was chosen, and why.

Each decision is a file in the folder `decisions`, written before it is carried out. A campaign is rebuilt from these
files and the run folders at every start, so that it never decides the same question twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from isocompute_sdk.documents import Converted, Document
from isocompute_sdk.notes import Note
from isocompute_sdk.planning.next_runs import NextRuns, PilotDesign

FOLDER = "decisions"
CHECKS_FILE, QUALIFIED_FILE, ENDING_FILE = "checks.json", "qualified.json", "planned-run.json"
REMEDY = "Remove this file and the later ones to decide again."

Natural = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class Chosen:
    """One run, with the length that it is to have."""

    run_id: str
    group_size: Annotated[int, Field(ge=2)]
    problems_per_batch: Annotated[int, Field(ge=1)]
    update_steps: Annotated[int, Field(ge=1)]
    """M, counted from the start of the run also where it continues one."""
    seed: Natural
    learning_rate_factor: Annotated[float, Field(gt=0)] = 1.0
    """Learning rate as a multiple of the recipe's; other than 1 only in checks."""
    every_steps: Annotated[int, Field(ge=1)] | None = None
    """Update steps between two evaluations; None for those of the study."""

    @property
    def rollouts(self) -> int:
        """C at its end."""
        return self.group_size * self.problems_per_batch * self.update_steps


@dataclass(frozen=True)
class Known:
    """One run at the time of a decision."""

    run_id: str
    rollouts: Natural
    reward: float | None
    """Its last measured reward."""


@dataclass(frozen=True)
class Checks:
    """Content of checks.json: the short runs that check the recipe."""

    runs: tuple[Chosen, ...]
    reason: str


CHECKS = Document("campaign-checks", 1, Checks, remedy=REMEDY)


@dataclass(frozen=True)
class Qualified:
    """Content of qualified.json: what the checks have shown."""

    healthy: bool
    """Whether the campaign goes on."""
    known: tuple[Known, ...]
    reason: str
    notes: tuple[Note, ...] = ()


QUALIFIED = Document("campaign-qualified", 1, Qualified, remedy=REMEDY)


@dataclass(frozen=True)
class Round:
    """Content of round-K.json: the runs of one round; without runs the pilot is over."""

    number: Annotated[int, Field(ge=1)]
    known: tuple[Known, ...]
    spent: Amount
    """By then, in the budget's unit."""
    left: float
    runs: tuple[Chosen, ...]
    reason: str
    asked: Annotated[NextRuns, Converted(NextRuns.to_dict, NextRuns.from_dict, dict[str, Any])] | None = None
    """What the planner advised; None in the first round, and where it was not asked."""
    design: Annotated[PilotDesign, Converted(PilotDesign.to_dict, PilotDesign.from_dict, dict[str, Any])] | None = None
    """The design of the first round, with the expected regret by the pilot's share."""
    looks: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = (1 / 3, 2 / 3)
    """Shares of its runs' way at which they are looked at."""


ROUND = Document("campaign-round", 1, Round, remedy=REMEDY)


@dataclass(frozen=True)
class Judged:
    """One run of a round, part of the way."""

    run_id: str
    rollouts: Natural
    """C at the judgement."""
    chance: Annotated[float, Field(ge=0, le=1)]
    """Probability that its n is the best at the target budget."""
    stopped: bool
    update_steps: Natural = 0
    """M at which it ends if it was stopped."""


@dataclass(frozen=True)
class Look:
    """Content of round-K-look-J.json: which runs of a round go on."""

    number: Annotated[int, Field(ge=1)]
    look: Annotated[int, Field(ge=1)]
    target: Amount
    """Rollouts that the plan is expected to spend, at which runs are judged."""
    judged: tuple[Judged, ...]
    reason: str
    added: tuple[Chosen, ...] = ()
    """Runs that take the slots of stopped ones, beside those that go on."""
    asked: Annotated[NextRuns, Converted(NextRuns.to_dict, NextRuns.from_dict, dict[str, Any])] | None = None
    """What the planner advised for these slots; None if it was not asked."""


LOOK = Document("campaign-look", 1, Look, remedy=REMEDY)


@dataclass(frozen=True)
class Ending:
    """Content of planned-run.json: how the plan is trained."""

    run: Chosen
    continues: str | None
    """Pilot run whose checkpoint it goes on from."""
    spent: Amount
    """On checks and pilot, in the budget's unit; without the rollouts that the plan takes over."""
    reason: str


ENDING = Document("campaign-planned-run", 1, Ending, remedy=REMEDY)


@dataclass(frozen=True)
class Decisions:
    """All decisions of a campaign so far."""

    checks: Checks | None
    qualified: Qualified | None
    rounds: tuple[Round, ...]
    looks: dict[int, tuple[Look, ...]]
    """By round."""
    endings: tuple[Ending, ...]
    """Planned runs, those for earlier budgets first; the last one is the present one if `planned`."""
    planned: bool

    @property
    def ended(self) -> bool:
        """Whether the pilot is over."""
        return bool(self.rounds) and not self.rounds[-1].runs

    def pilot_runs(self) -> tuple[Chosen, ...]:
        """The runs that rounds and looks have chosen, in order."""
        found: list[Chosen] = []
        for one in self.rounds:
            found += [*one.runs, *(run for look in self.looks.get(one.number, ()) for run in look.added)]
        return tuple(found)

    def stopped(self) -> dict[str, Judged]:
        """Runs that were stopped early and not taken up again, by name."""
        found: dict[str, Judged] = {}
        for one in self.rounds:
            for run in one.runs:
                found.pop(run.run_id, None)
            for look in self.looks.get(one.number, ()):
                found |= {judged.run_id: judged for judged in look.judged if judged.stopped}
                for run in look.added:
                    found.pop(run.run_id, None)
        for ending in self.endings:
            found.pop(ending.run.run_id, None)
        return found


def read_decisions(root: Path) -> Decisions:
    """The decisions in a campaign's folder.

    Raises:
        IsoComputeError: a file is damaged.
    """
    folder = root / FOLDER
    checks, qualified = folder / CHECKS_FILE, folder / QUALIFIED_FILE
    rounds: list[Round] = []
    looks: dict[int, tuple[Look, ...]] = {}
    while (path := round_file(root, len(rounds) + 1)).exists():
        rounds.append(ROUND.load(path))
        number = len(rounds)
        found: list[Look] = []
        while (place := look_file(root, number, len(found) + 1)).exists():
            found.append(LOOK.load(place))
        looks[number] = tuple(found)
    stem = Path(ENDING_FILE).stem
    earlier = sorted(folder.glob(f"{stem}.*.json"), key=lambda path: int(path.suffixes[0][1:]))
    planned = (folder / ENDING_FILE).exists()
    endings = [ENDING.load(path) for path in (*earlier, *([folder / ENDING_FILE] if planned else []))]
    return Decisions(
        CHECKS.load(checks) if checks.exists() else None,
        QUALIFIED.load(qualified) if qualified.exists() else None,
        tuple(rounds),
        looks,
        tuple(endings),
        planned,
    )


def round_file(root: Path, number: int) -> Path:
    """Where a round is kept."""
    return root / FOLDER / f"round-{number}.json"


def look_file(root: Path, number: int, look: int) -> Path:
    """Where a look at a round is kept."""
    return root / FOLDER / f"round-{number}-look-{look}.json"
