"""`isocompute doctor`: what lies in a folder of runs, and what looks wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isocompute_sdk.cli import options as opt
from isocompute_sdk.cli.output import emit_json, say

if TYPE_CHECKING:
    from isocompute_sdk.ingest.doctor import RunFinding


def doctor(
    paths: Annotated[list[Path], typer.Argument(help="Folders, files or globs with logs or tables.")],
    json: opt.Json = False,
) -> None:
    """Look at runs before fitting them: one line per run, what looks wrong below it, and what to do.

    A file that cannot be read is a line like any other. Runs with the same group may be pooled.

    Example:
        isocompute doctor logs
    """
    from isocompute_sdk.ingest import diagnose

    found = diagnose(paths)
    if json:
        runs = [finding.to_dict() for finding in found.runs]
        emit_json({"kind": "doctor", "runs": runs, "groups": [dict(g) for g in found.groups], "next": found.next})
        return
    width = min(40, max(len(finding.name) for finding in found.runs))
    for finding in found.runs:
        say(describe(finding, width))
        for problem, advice in zip(finding.problems, finding.advice, strict=True):
            say(f"    {problem}")
            say(f"      -> {advice}")
    for number, context in enumerate(found.groups, start=1):
        told = ", ".join(f"{name} {value}" for name, value in context.items())
        say(f"group {number}: {told or 'nothing known about its context'}")
    say(f"next: {found.next}")


def describe(finding: RunFinding, width: int) -> str:
    """One run on one line."""
    if not finding.readable:
        return f"{finding.name:<{width}}  cannot be read as it is"
    spent = finding.rollouts_spent
    more = f" ({spent:,.0f} spent)" if spent is not None and spent > (finding.rollouts or 0) else ""
    starts = f", {finding.attempts} attempts" if finding.attempts > 1 else ""
    return (
        f"{finding.name:<{width}}  n = {finding.group_size:<5} B_p = {finding.problems_per_batch:<5} "
        f"C = {finding.rollouts:,.0f}{more}  {finding.evaluations} x {finding.metric}{starts}, "
        f"group {finding.context_group}"
    )
