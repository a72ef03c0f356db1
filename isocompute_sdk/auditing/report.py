"""An audit as text: findings first, then every run, then what is not compared and which runs would settle it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from isocompute_sdk.auditing.result import Audit, GroupAudit, ProposedRun, RunAudit
from isocompute_sdk.auditing.words import count, some
from isocompute_sdk.fitting.surface.contrast import Estimate
from isocompute_sdk.notes import by_severity

COLUMNS = ("run", "n x B_p", "rollouts", "reached", "best there", "behind by", "equal at", "")
FLAT = 0.01
"""Share of the metric's range that the second half of a run must have bought to count."""
ALWAYS = ("model", "train_data", "n_problems")
STANDINGS = {
    "best": "best here",
    "level": "level",
    "behind": "behind",
    "undecided": "cannot tell",
    "alone": "alone",
    "not-judged": "",
}


def summarise(audit: Audit) -> str:
    """Everything, as plain text."""
    lines = [headline(audit), ""]
    for group in audit.groups:
        lines += [title(audit, group), *findings(group)]
        lines += _table(rows(group))
        lines += [f"  {line}" for line in settle_lines(group)]
        lines += [f"  [{note.severity}] {note.code}: {note.message}" for note in by_severity(group.notes)]
        lines.append("")
    lines += closing(audit)
    lines += [f"[{note.severity}] {note.code}: {note.message}" for note in by_severity(audit.notes)]
    return "\n".join(lines).rstrip()


def headline(audit: Audit) -> str:
    """What was read."""
    runs = sum(len(group.runs) for group in audit.groups)
    groups = f"{len(audit.groups)} group(s) that may be compared among themselves"
    return f"{runs} run(s) in {groups}; {audit.metric} on {audit.eval_set}; intervals hold {audit.level:.0%}"


def title(audit: Audit, group: GroupAudit) -> str:
    """A group in one line: its extent, its model and data, and what sets it apart from other groups."""

    def telling(name: str) -> bool:
        return name in ALWAYS or len({repr(one.context.get(name)) for one in audit.groups}) > 1

    context = ", ".join(f"{name} {_short(value)}" for name, value in group.context.items() if telling(name))
    sizes = sorted({run.group_size for run in group.runs})
    problems = sorted({run.problems_per_batch for run in group.runs if run.problems_per_batch is not None})
    extent = f"n = {_listed(sizes)}; B_p = {_listed(problems) or 'not stated'}"
    return f"Group {group.name}: {len(group.runs)} run(s), {extent}" + (f"; {context}" if context else "")


def findings(group: GroupAudit) -> Iterator[str]:
    """The finding, and what the runs would have cost."""
    yield f"  {_capital(group.sentence)}."
    for comparison in group.comparisons[1:]:
        yield f"  {_capital(comparison.sentence)}."
    if group.equal_reward is not None:
        cost = group.equal_reward
        end = "In a sweep the difference is what was paid to learn this."
        yield (
            f"  The same rewards, each run at the best known n for it, would have cost {count(cost.mean)} "
            f"({count(cost.low)} to {count(cost.high)}) of the {count(group.spent)} rollouts spent"
            + (f". {end}" if cost.high < group.spent else ": not clearly less.")
        )
    if group.fits is not None and group.fits.passport is not None:
        yield f"  {_capital(group.fits.passport.lines()[0])}."
    yield from _flat_ends(group)
    faults = [run for run in group.runs if run.fault is not None and run.fault_rollouts is not None]
    for run in faults[:5]:
        word = "collapsed" if run.fault == "collapse" else "fell from its peak"
        lost = 1.0 - (run.fault_rollouts or 0.0) / run.rollouts
        yield f"  {run.run_id} {word} after {count(run.fault_rollouts or 0.0)}: the last {lost:.0%} bought nothing."


def _flat_ends(group: GroupAudit) -> Iterator[str]:
    """Runs whose second half bought next to nothing, where that is sure."""
    least = FLAT if group.fits is None else FLAT * (group.fits.bounds[1] - group.fits.bounds[0])
    flat = [run for run in group.runs if run.last_half is not None and run.last_half.high < least and run.fault is None]
    if flat:
        half = sum(run.rollouts for run in flat) / 2
        names = some([run.run_id for run in flat])
        yield (
            f"  {len(flat)} run(s) gained less than {least:g} in their second half, {count(half)} rollouts in all: "
            f"{names}."
        )


def rows(group: GroupAudit) -> list[tuple[str, ...]]:
    """One row of `COLUMNS` per run."""
    found: list[tuple[str, ...]] = []
    for run in group.runs:
        found.append(
            (
                run.run_id,
                _configuration(run.group_size, run.problems_per_batch),
                count(run.rollouts),
                f"{run.reached:.3f}",
                _best(run),
                "" if run.behind is None or run.standing in ("best", "alone") else _interval(run.behind),
                _equal(run),
                STANDINGS[run.standing] + ("*" if run.forecast and run.standing not in ("best", "alone") else ""),
            )
        )
    return found


def settle_lines(group: GroupAudit) -> list[str]:
    """The runs that would settle it."""
    if not group.proposals:
        return []
    total = sum(one.costs for one in group.proposals)
    spent = f" ({total / group.spent:.0%} of what was spent)" if group.spent else ""
    return [
        f"Runs that would settle it, {count(total)} rollouts in all{spent}:",
        *(f"  {_proposal(one)}" for one in group.proposals),
    ]


def closing(audit: Audit) -> list[str]:
    """What takes no part, what is not compared, and how to read the table."""
    lines: list[str] = []
    if audit.apart:
        lines += ["Not compared:", *(f"  {line}" for line in audit.apart)]
    if audit.left_out:
        lines += ["Left out:", *(f"  {name}: {why}" for name, why in audit.left_out.items())]
    if any(run.expected is not None for group in audit.groups for run in group.runs):
        lines.append(
            "Reached: the run's own best, a mean over a few successive evaluations. Best there: the best known n x B_p "
            "at the same rollouts and its fitted reward. Behind by, and equal at (the rollouts with which the best "
            "known n gets the same fitted reward, as a share of the run's): for runs of that n on average, not for one "
            "run's luck."
        )
    if any(run.forecast and run.standing not in ("best", "alone") for group in audit.groups for run in group.runs):
        lines.append("*: the best known n was not run this far; it is a forecast.")
    return lines


def _table(table: Sequence[tuple[str, ...]]) -> list[str]:
    everything = [COLUMNS, *table]
    widths = [max(len(row[i]) for row in everything) for i in range(len(COLUMNS))]
    return ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in everything]


def _best(run: RunAudit) -> str:
    if run.best_group_size is None or run.best_reward is None or run.standing == "alone":
        return ""
    return f"{_configuration(run.best_group_size, run.best_problems_per_batch)} {run.best_reward:.3f}"


def _configuration(n: int, problems: int | None) -> str:
    return f"{n} x {'?' if problems is None else problems}"


def _equal(run: RunAudit) -> str:
    if run.equal_reward is None or run.standing in ("best", "alone"):
        return ""
    share = Estimate(*(value / run.rollouts for value in run.equal_reward))
    about = "" if run.equal_reward_bounded else "~"
    return f"{about}{share.mean:.0%} ({share.low * 100:.0f} to {share.high * 100:.0f}%)"


def _proposal(one: ProposedRun) -> str:
    problems = "" if one.problems_per_batch is None else f", B_p = {one.problems_per_batch}"
    what = f"continue {one.continues} to" if one.continues else f"n = {one.group_size}{problems},"
    return f"{what} {count(one.rollouts)} rollouts: {one.why}"


def _interval(value: Estimate) -> str:
    return f"{value.mean:.3f} ({value.low:.3f} to {value.high:.3f})"


def _listed(values: Sequence[int]) -> str:
    if len(values) <= 6:
        return ", ".join(map(str, values))
    return f"{values[0]} to {values[-1]} ({len(values)} levels)"


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
