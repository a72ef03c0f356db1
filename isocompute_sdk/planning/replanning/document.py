"""`Replan`: onset of trouble, checkpoint to go back to, what is sunk, and the options for what is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Annotated, Literal

from pydantic import Field

from isocompute_sdk.documents import Document, Saved
from isocompute_sdk.errors import FieldError, PlanError
from isocompute_sdk.fitting.arrays import Count, NotNegative, Number, Positive
from isocompute_sdk.fitting.one_run.forecast import Checkpoint, Forecast
from isocompute_sdk.notes import Note
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.questions.plans_by_budget import SAVED_PLAN

USUAL_BACKEND = "openrlhf"
"""Backend of commands for runs of an unknown framework, or of one without a backend."""
Name = Literal[
    "go-on",
    "roll-back-terms-on",
    "roll-back-terms-off",
    "halve-learning-rate",
    "another-group-size",
    "larger-group-size",
    "stop",
]
Basis = Literal["measured-in-paper", "seen-in-your-data", "guess"]
Change = str | int | float


@dataclass(frozen=True)
class Option:
    """One thing to do with the rest of the budget."""

    name: Name
    title: str
    """The option in a few words, with its numbers."""
    basis: Basis
    """Where its effect was seen. Its predicted reward rests on this run in any case."""
    why: str
    """The evidence, with its source."""
    start: Checkpoint | None
    """Where it starts; None for the run as it is."""
    changes: Mapping[str, Change]
    """What differs from the run, by the names of `isocompute launch --change`."""
    group_size: Count
    problems_per_batch: Count
    update_steps: Annotated[int, Field(ge=0)]
    """Updates that what is left pays for; 0 for stopping."""
    rollouts: NotNegative
    """Rollouts that it spends."""
    reward: Number
    """Predicted reward of the best checkpoint at its end."""
    low: Number
    high: Number

    def __post_init__(self) -> None:
        if not self.low <= self.reward <= self.high:
            raise FieldError("reward", self.reward, f"within {self.low} to {self.high}")


@dataclass(frozen=True)
class Replan(Saved):
    """Options for the rest of a run's budget."""

    run_id: str
    metric: str
    group_size: Count
    problems_per_batch: Count
    spent: Positive
    """Rollouts that the run has sampled."""
    remaining: Positive
    """Rollouts that are left."""
    onset: Checkpoint | None
    """Where trouble began; None if none was found."""
    trouble: tuple[str, ...]
    """Codes of the findings behind it."""
    checkpoint: Checkpoint
    """Last healthy point; its `path` is the folder on disk, None if none was found."""
    loadable: str | None
    """Folder of that checkpoint that loads as a model; None if its weights need converting or none exists."""
    convert: str | None
    """Command that converts it; None if not needed or not known."""
    salvageable: NotNegative
    """Rollouts up to a healthy checkpoint that exists."""
    options: tuple[Option, ...]
    """By predicted reward, largest first."""
    follow: Name
    """The option to follow."""
    forecast: Forecast
    """The run as it is."""
    level: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Coverage of the intervals."""
    plan: Annotated[Plan, SAVED_PLAN] | None = None
    """Plan of the run's own sizes and recipe for what is left, from which the commands start."""
    notes: tuple[Note, ...] = field(default=())
    backend: str = USUAL_BACKEND
    """Backend of its commands: that of the run's framework, if its log or configuration names one."""

    @property
    def sunk(self) -> float:
        """Rollouts after the last healthy checkpoint that exists."""
        return self.spent - self.salvageable

    def option(self, name: str) -> Option:
        """An option by name.

        Raises:
            PlanError: an unknown name.
        """
        for one in self.options:
            if one.name == name:
                return one
        absent = "" if self.checkpoint.path else "; others start from a checkpoint, and none was found on disk"
        raise PlanError(
            f"option {name!r}; here: {', '.join(one.name for one in self.options)}{absent}",
            "Use one of these names." if not absent else "Use one of these, or name the folder of the checkpoints.",
        )

    def commands(self, name: str | None = None, plan: str = "plan.json", backend: str | None = None) -> tuple[str, ...]:
        """Shell commands that carry out an option; none for going on and stopping, which need no launch.

        They run in the folder with the training data, the validation data and the reward file.

        Args:
            name: the option; None for the one to follow.
            plan: file that holds `self.plan`.
            backend: training framework; None for `self.backend`.

        Raises:
            PlanError: an unknown option, or one whose checkpoint is not on disk or does not load as a model.
        """
        chosen = self.option(self.follow if name is None else name)
        if chosen.name in ("go-on", "stop"):
            return ()
        folder = self.loadable
        converting = [] if self.convert is None else [self.convert]
        if folder is None and self.convert is not None:
            folder = f"{self.checkpoint.path}/merged"
        if folder is None:
            raise PlanError(
                f"option {chosen.name} starts from {self.checkpoint.path}; accepted: a checkpoint that loads as a "
                "Hugging Face model",
                "Convert its weights into a folder with config.json and *.safetensors.",
            )
        changes = " ".join(f"--change {quote(f'{key}={value}')}" for key, value in chosen.changes.items())
        script = f"{chosen.name}.sh"
        launch = (
            f"isocompute launch {quote(plan)} --backend {quote(backend or self.backend)} --model {quote(folder)}"
            f"{' ' + changes if changes else ''} --output-dir {quote(f'runs/{chosen.name}')} --script {script}"
        )
        return (*converting, launch, f"bash {script}")

    def summary(self) -> str:
        """The answer as text: trouble, checkpoint, sunk cost, one line per option, notes."""
        run = f"{self.run_id} (n = {self.group_size}, B_p = {self.problems_per_batch})"
        lines = [f"{run}: {self.spent:,.0f} rollouts spent, {self.remaining:,.0f} left"]
        if self.onset is None:
            lines.append("trouble: none found")
        else:
            codes = ", ".join(self.trouble) or "the reward falls"
            lines.append(f"trouble: {codes}, from {_place(self.onset)} on")
        lines.append(
            f"last healthy checkpoint: {_place(self.checkpoint)}"
            + ("; not found on disk" if self.checkpoint.path is None else f", {self.checkpoint.path}")
        )
        lines.append(f"rollouts: {self.salvageable:,.0f} salvageable, {self.sunk:,.0f} sunk")
        for one in self.options:
            mark = "->" if one.name == self.follow else "  "
            interval = f"{one.reward:.3f} ({one.low:.3f} to {one.high:.3f})"
            lines.append(f"{mark} {one.name:<20} {interval}  {one.basis}: {one.title}. {one.why}")
        lines += [f"[{note.severity}] {note.code}: {note.message}" for note in self.notes]
        return "\n".join(lines)


REPLAN = Document("replan", 1, Replan, derived=("sunk",), remedy="Ask again: isocompute replan LOGS --remaining 2M.")


def _place(at: Checkpoint) -> str:
    return f"{at.rollouts:,.0f} rollouts" if at.step is None else f"step {at.step:,.0f} ({at.rollouts:,.0f} rollouts)"
