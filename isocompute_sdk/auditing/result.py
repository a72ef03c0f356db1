"""What an audit found, and its text: groups of comparable runs, and their runs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, WithJsonSchema

from isocompute_sdk import notebook
from isocompute_sdk.documents import Converted, Document, Saved
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.answers import Estimate
from isocompute_sdk.fitting.surface.data import Fault
from isocompute_sdk.health.findings import FELL
from isocompute_sdk.notes import Note, by_severity
from isocompute_sdk.phrases import counted, listed, multiple, or_unknown, short
from isocompute_sdk.planning.plan_parts import Alternative, Verdict

_SAVED_INTERVAL = {
    "type": "object",
    "properties": {name: {"type": "number"} for name in Estimate._fields},
    "required": list(Estimate._fields),
    "additionalProperties": False,
}
Interval = Annotated[Estimate, PlainSerializer(Estimate._asdict), WithJsonSchema(_SAVED_INTERVAL)]
"""A number with an interval; in JSON a mapping of mean, low and high."""

Standing = Literal["best", "level", "behind", "undecided", "alone", "not-judged"]
"""`best`: this configuration is the best known at its compute; `level`: within a tie of it; `behind`: clearly worse;
`undecided`: these runs cannot tell; `alone`: nothing to compare with; `not-judged`: the group could not be fitted."""
MANY_TIMES = 2.0
"""Share of a run's rollouts from which it is shown as a multiple of them."""
COLUMNS = ("run", "n x B_p", "rollouts", "highest evaluation", "fitted best", "behind by", "equal at", "")
"""Columns of the table of runs."""
MAX_LEFT_OUT = 6
"""Runs and files named for each reason for which they were left out."""
ALWAYS = ("model", "train_data", "n_problems")
"""Context fields that the title of a group always shows."""
STANDINGS: dict[Standing, str] = {
    "best": "best here",
    "level": "about equal",
    "behind": "behind",
    "undecided": "may be behind",
    "alone": "alone",
    "not-judged": "",
}
"""Standings as the table shows them."""


@dataclass(frozen=True)
class RunAudit:
    """One run: what it reached, and how its configuration compares at its compute."""

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
    """Its highest evaluation."""
    standing: Standing = "not-judged"
    expected: float | None = None
    """Fitted reward of its configuration at its compute, or before its fault if it collapsed."""
    best_group_size: int | None = None
    """n of the best known configuration at this compute."""
    best_problems_per_batch: int | None = None
    """B_p of that configuration."""
    best_reward: float | None = None
    """Fitted reward of that configuration."""
    behind: Interval | None = None
    """Fitted reward of the best known configuration minus that of this run's."""
    equal_reward: Interval | None = None
    """Rollouts with which the best known configurations reach the same reward: median and interval."""
    forecast: bool = False
    """True if the best known configuration was not run this far."""
    fault: Fault | None = None
    fault_rollouts: float | None = None
    """Compute at which it was best, before it collapsed or decayed."""

    @property
    def useful(self) -> float:
        """Compute up to which it gained: where it was best, of a run that fell."""
        return self.rollouts if self.fault_rollouts is None else self.fault_rollouts

    @property
    def compared(self) -> bool:
        """Whether it was compared with another configuration."""
        return self.standing not in ("best", "alone")

    def row(self) -> tuple[str, ...]:
        """The run as one row of `COLUMNS`."""
        mark = "*" if self.forecast and self.compared else ""
        return (
            self.run_id,
            _configuration(self.group_size, self.problems_per_batch),
            short(self.rollouts),
            f"{self.reached:.3f}",
            self._best_cell(),
            "{:.3f} ({:.3f} to {:.3f})".format(*self.behind) if self.behind is not None and self.compared else "",
            self._equal_cell(),
            "; ".join(filter(None, [STANDINGS[self.standing] + mark, self.fall])),
        )

    @property
    def fall(self) -> str:
        """What its fault did, in words; empty without one."""
        return "" if self.fault is None else FELL[self.fault]

    def _best_cell(self) -> str:
        if self.best_group_size is None or self.best_reward is None or self.standing == "alone":
            return ""
        return f"{_configuration(self.best_group_size, self.best_problems_per_batch)} {self.best_reward:.3f}"

    def _equal_cell(self) -> str:
        if self.equal_reward is None or not self.compared:
            return ""
        share, low, high = (_share(value / self.rollouts) for value in self.equal_reward)
        return f"{share} ({low if low[-1] != high[-1] else low[:-1]} to {high})"


def _share(of: float) -> str:
    """A share as `49%`, far above the whole `21x`."""
    return f"{of:.0%}" if of < MANY_TIMES else f"{multiple(of)}x"


def _no_fits(value: object) -> None:
    del value


@dataclass(frozen=True)
class GroupAudit:
    """Runs that may be compared."""

    name: str
    """`1`, `2`, ... in the order of the report."""
    context: Mapping[str, Any]
    """Context fields on which all runs agree."""
    runs: tuple[RunAudit, ...]
    decided_at: float | None = None
    """Rollouts that the verdict is about: about the largest compute of these runs; None without a verdict."""
    verdict: Verdict | None = None
    """How decisively the runs support one n there, as of a plan; None without fits."""
    sizes: tuple[Alternative, ...] = ()
    """The other n there, with reward, loss and odds."""
    sentence: str = ""
    """The main finding, or why there is none."""
    reason: str | None = None
    """Why the group could not be fitted; None if it was."""
    spent: float = 0.0
    """Rollouts of all its runs."""
    equal_reward: Interval | None = None
    """Rollouts with which the best known configurations reach the rewards of all its runs."""
    notes: tuple[Note, ...] = ()
    fits: Annotated[Fits | None, Field(exclude=True), Converted(_no_fits, _no_fits)] = field(
        default=None, repr=False, compare=False
    )
    """Fits of the group, not saved; None if it could not be fitted."""

    def findings(self) -> Iterator[str]:
        """The findings, one sentence each: verdict on n, cost of equal reward, faults."""
        yield f"{_capital(self.sentence.rstrip('.'))}."
        if self.verdict is not None and self.verdict.odds:
            yield f"{_capital(self.verdict.odds)}."
        if self.equal_reward is not None:
            cost = self.equal_reward
            end = "In a sweep the difference is the cost of finding out."
            sizes = "n x B_p" if len({run.problems_per_batch for run in self.runs}) > 1 else "n"
            yield (
                f"With the best known {sizes} for each run, the same rewards would have cost {short(cost.mean)} "
                f"({short(cost.low)} to {short(cost.high)}) rollouts instead of {short(self.spent)} (counted up to the "
                "last evaluations)" + (f". {end}" if cost.high < self.spent else ": not clearly less.")
            )
        flat = self.fits is not None and bool(self.fits.no_rise)
        if self.fits is not None and self.fits.passport is not None and not flat:
            yield f"{_capital(self.fits.passport.lines()[0])}."
        for run in [run for run in self.runs if run.fault is not None][:5]:
            lost = f"the last {1.0 - run.useful / run.rollouts:.0%} gained nothing"
            yield f"{run.run_id} {run.fall}: best at {short(run.useful)}, {'no rise lasted' if flat else lost}."


@dataclass(frozen=True)
class Audit(Saved):
    """What each run and each group size of existing runs bought."""

    metric: str
    eval_set: str
    bounds: tuple[float, float]
    """Range of the metric."""
    level: float
    """Coverage of the intervals."""
    groups: tuple[GroupAudit, ...]
    left_out: Mapping[str, str]
    """Runs or files that take no part -> reason."""
    apart: tuple[str, ...]
    """One sentence per group: why it cannot be compared with the earlier group that it resembles most."""
    notes: tuple[Note, ...] = ()

    @property
    def next_budget(self) -> float | None:
        """The budget to ask about next, in rollouts: twice the longest undecided run. None if every run is decided."""
        runs = [run for group in self.groups for run in group.runs if run.group_size > 1]
        return max((2 * run.rollouts for run in runs if run.standing in ("undecided", "alone")), default=None)

    def headline(self) -> str:
        """How many runs and groups were audited, on which metric."""
        runs = sum(len(group.runs) for group in self.groups)
        groups = f"{counted(len(self.groups), 'group')} of comparable runs"
        return f"{counted(runs, 'run')} in {groups}; {self.metric} on {self.eval_set}; {self.level:.0%} intervals"

    def __repr__(self) -> str:
        return f"Audit({self.headline()}; summary() has the findings)"

    def _repr_html_(self) -> str:
        text = notebook.heading(self.headline())
        for group in self.groups:
            rows = [run.row() for run in group.runs]
            header = (*COLUMNS[:-1], "standing")
            text += notebook.table(header, rows, self.title(group)) + notebook.listed(group.findings())
            text += notebook.notes(group.notes)
        return text + notebook.listed(line.strip() for line in self.closing()) + notebook.notes(self.notes)

    def title(self, group: GroupAudit) -> str:
        """A group on one line: its sizes, model and data, and the context that differs between groups."""

        def telling(name: str) -> bool:
            return name in ALWAYS or len({repr(one.context.get(name)) for one in self.groups}) > 1

        told = ((name, value) for name, value in group.context.items() if telling(name))
        context = ", ".join(f"{n} {v:g}" if isinstance(v, float) else f"{n} {v}" for n, v in told)
        sizes = sorted({run.group_size for run in group.runs})
        problems = sorted({run.problems_per_batch for run in group.runs if run.problems_per_batch is not None})
        extent = f"n = {_listed(sizes)}; B_p = {_listed(problems) or 'not stated'}"
        return f"Group {group.name}: {counted(len(group.runs), 'run')}, {extent}" + (f"; {context}" if context else "")

    def closing(self) -> list[str]:
        """Lines after the groups: which are not compared, what was left out, and how to read the table."""
        lines: list[str] = []
        if self.apart:
            lines += ["Not compared:", *(f"  {line}" for line in self.apart)]
        if self.left_out:
            by_reason: dict[str, list[str]] = {}
            for name, why in self.left_out.items():
                by_reason.setdefault(why, []).append(name)
            lines += ["Left out:", *(f"  {listed(names, MAX_LEFT_OUT)}: {why}" for why, names in by_reason.items())]
        runs = [run for group in self.groups for run in group.runs]
        if any(run.behind is not None and run.compared for run in runs):
            lines.append(
                "Behind by: how far the run's fitted reward lies below that of the best known n x B_p at the same "
                "rollouts. Equal at: the rollouts that n needs for the run's fitted reward, as a share of the run's "
                "own. Both describe the average run of an n, not one run's luck."
            )
        if any(run.forecast and run.compared for run in runs):
            lines.append("*: the best known n was not run this far; its reward is a forecast.")
        return lines

    def summary(self, width: int | None = None) -> str:
        """The whole audit as plain text.

        Args:
            width: columns to wrap at, with narrower tables where they do not fit. None: long lines.
        """
        # Without a rise every number that follows means little.
        flat = [group for group in self.groups if group.fits is not None and group.fits.no_rise]
        lines = [*(f"group {group.name}: {group.sentence}" for group in flat), self.headline(), ""]
        for group in self.groups:
            findings = list(group.findings())[group in flat :]
            lines += [self.title(group), *(f"  {line}" for line in findings)]
            lines += _table([run.row() for run in group.runs], width)
            lines += [f"  {note.line}" for note in by_severity(group.notes)]
            lines.append("")
        lines += self.closing()
        lines += [note.line for note in by_severity(self.notes)]
        return "\n".join(lines if width is None else _wrapped(lines, width)).rstrip()


AUDIT = Document("audit", 1, Audit)


def _table(rows: Sequence[tuple[str, ...]], width: int | None) -> list[str]:
    """Rows under their names; where they are too wide without two columns, and names above their numbers."""
    everything = [COLUMNS, *rows]
    # Columns that no run fills say nothing.
    kept = [i for i in range(len(COLUMNS)) if any(row[i] for row in rows)]
    widths = [max(len(row[i]) for row in everything) for i in range(len(COLUMNS))]
    if width is not None and sum(widths[i] + 2 for i in kept) > width:
        kept = [i for i in kept if COLUMNS[i] not in ("highest evaluation", "fitted best")]
    name, *numbers = kept
    above = width is not None and sum(widths[i] + 2 for i in kept) > width
    start = "\n    " if above else "  "
    return [
        f"  {row[name] if above else row[name].ljust(widths[name])}{start}"
        + "  ".join(row[i].ljust(widths[i]) for i in numbers).rstrip()
        for row in everything
    ]


def _wrapped(lines: Sequence[str], width: int) -> list[str]:
    """Sentences wrapped with their indent; rows of a table as they are."""
    found: list[str] = []
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        fits = len(line) <= width or "  " in line.strip() or "\n" in line
        found += [line] if fits else textwrap.wrap(line, width, subsequent_indent=f"{indent}  ", break_on_hyphens=False)
    return found


def _configuration(n: int, problems: int | None) -> str:
    return f"{n} x {or_unknown(problems)}"


def _listed(values: Sequence[int]) -> str:
    if len(values) <= 6:
        return ", ".join(map(str, values))
    return f"{values[0]} to {values[-1]} ({len(values)} levels)"


def _capital(sentence: str) -> str:
    return sentence if sentence.startswith("n ") else sentence[:1].upper() + sentence[1:]
