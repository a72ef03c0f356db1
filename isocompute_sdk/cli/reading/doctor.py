"""`isocompute doctor`: the runs in a folder, and what looks wrong with each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.option_groups import with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.reading_options import ReadingOptions
from isocompute_sdk.errors import RecordError
from isocompute_sdk.phrases import printable

if TYPE_CHECKING:
    from isocompute_sdk.ingest.doctor import Diagnosis, RunFinding


@with_option_groups
def doctor(
    *,
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Folders, files or globs with logs or tables.", readable=False)
    ] = None,
    reading: ReadingOptions,
    json: opt.Json = False,
) -> None:
    """Check runs before fitting them: one line per run, with its problems and what to do about each.

    Ends with `ready`, one `question` or `not usable`, and the command to give next. Unreadable files are listed too;
    if no file can be read, the exit code is 1. Runs of one group may be pooled.

    Examples:
        isocompute doctor logs

        isocompute doctor runs.csv --rename G=n --set problems_per_batch=32
    """
    from isocompute_sdk.ingest import diagnose, diagnose_map

    reading.refuse_both(paths, "`isocompute doctor runs/`")
    if reading.map is not None:
        found = diagnose_map(reading.map, reading.mapping(reading.metric))
        found = replace(found, next=" ".join([found.next, *reading.words()]))
    else:
        found = diagnose(paths or [], metric=reading.metric, **reading.arguments())
    found = replace(found, runs=tuple(map(_with_collapse, found.runs)))
    if json:
        runs = [finding.to_dict() for finding in found.runs]
        ending = {"remarks": found.remarks, "verdict": found.verdict, "question": found.question, "next": found.next}
        emit_json({"kind": "doctor", "runs": runs, "groups": [dict(g) for g in found.groups], **ending})
    else:
        _print(found)
    if not found.usable:
        raise RecordError(
            f"not usable: none of the {len(found.runs)} runs and files found can be read",
            "Do what the lines above say, then run the command again.",
        )


def _with_collapse(finding: RunFinding) -> RunFinding:
    """The finding, with where the reward of its run collapsed."""
    from isocompute_sdk.health.detectors import findings
    from isocompute_sdk.records.rewards import is_training_reward

    if finding.runs is None or finding.metric is None:
        return finding
    asked = None if is_training_reward(finding.metric) else finding.metric
    seen = [one for every in findings(finding.runs, asked).values() for one in every if one.code == "collapsed-run"]
    problems = tuple(f"the reward collapsed, {one.where}: {one.seen}" for one in seen)
    advice = ("use what came before; isocompute watch says what may have caused it",) * len(problems)
    return replace(finding, problems=(*finding.problems, *problems), advice=(*finding.advice, *advice))


def _print(found: Diagnosis) -> None:
    names = Counter(finding.name for finding in found.runs)
    width = min(40, max((len(printable(finding.name)) for finding in found.runs), default=0))
    for remark in found.remarks:
        say(printable(remark))
    for finding in found.runs:
        say(describe(finding, width, with_source=names[finding.name] > 1))
        for problem, advice in zip(finding.problems, finding.advice, strict=True):
            say(printable(f"    {problem}"))
            say(printable(f"      -> {advice}"))
    for number, context in enumerate(found.groups, start=1):
        known = ", ".join(f"{name} {value}" for name, value in context.items())
        say(printable(f"group {number}: {known or 'context unknown'}"))
    if found.verdict == "ready":
        copies = sum(finding.readable and finding.runs is None for finding in found.runs)
        ready = sum(finding.readable for finding in found.runs) - copies
        more = f"; {copies} {'copy is' if copies == 1 else 'copies are'} left out" if copies else ""
        say(f"ready: {ready} of {len(found.runs) - copies} can be read{more}")
    elif found.question is not None:
        say(printable(f"question: {found.question}"))
    if found.usable:
        say(printable(f"next: {found.next}"))


def describe(finding: RunFinding, width: int, *, with_source: bool = False) -> str:
    """One run on one line; with its file if several runs share its name."""
    name = printable(finding.name)
    start = f"{name:<{width}}  n = {finding.group_size:<5} B_p = {finding.problems_per_batch:<5}"
    if not finding.readable:
        return f"{start} not readable yet"
    spent = finding.rollouts_spent
    more = f" ({spent:,.0f} spent)" if spent is not None and spent > (finding.rollouts or 0) else ""
    attempts = f", {finding.attempts} attempts" if finding.attempts > 1 else ""
    return (
        f"{start} C = {finding.rollouts:,.0f}{more}  {finding.evaluations} x {finding.metric}{attempts}, "
        f"group {finding.context_group}{f', {printable(finding.source)}' if with_source else ''}"
    )
