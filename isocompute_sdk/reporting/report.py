"""`report`: from a source to the page, section by section, and the file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

from isocompute_sdk.phrases import counted
from isocompute_sdk.reporting.drawing.html import write
from isocompute_sdk.reporting.material import Asked, Material, Source, gather
from isocompute_sdk.reporting.page import Page
from isocompute_sdk.reporting.sections.budgets import by_budget
from isocompute_sdk.reporting.sections.closing import launch_script, provenance
from isocompute_sdk.reporting.sections.evidence import how_sure, why
from isocompute_sdk.reporting.sections.first_screen import answer
from isocompute_sdk.reporting.sections.runs import runs
from isocompute_sdk.specs import Budget, Study

FILE = "report.html"
"""Name of the page in the folder of a campaign or study."""
SECTIONS = (why, by_budget, how_sure, runs, launch_script, provenance)
"""Sections in the order of the page: what the answer rests on, other budgets, the runs, how to carry it out."""


def build(material: Material, now: datetime | None = None, refresh_seconds: int | None = None) -> Page:
    """The page of this material.

    Args:
        material: what `gather` found.
        now: time for the foot of the page; None for the present.
        refresh_seconds: after what time browsers load the page anew; None: never.
    """
    when = datetime.now().astimezone() if now is None else now
    return Page(
        title=material.name,
        subtitle=_subtitle(material),
        answer=answer(material),
        sections=tuple(section(material) for section in SECTIONS),
        made=f"isocompute {version('isocompute')}, {when:%Y-%m-%d %H:%M %Z}".strip(),
        refresh_seconds=refresh_seconds,
    )


def _subtitle(material: Material) -> str:
    plan, fits = material.plan, material.fits
    model = None if fits is None else fits.model
    if plan is not None:
        model = plan.model or model
    parts = [f"model {model}" if model else "", f"metric {material.metric}"]
    if plan is not None and not material.assumed_budget:
        budget = plan.budget if material.comparison is None else plan.budget.replace(spent=None)
        parts.append(f"budget {budget}{' when planned' if material.spent_since else ''}")
    if material.runs is not None:
        parts.append(counted(len(material.runs.run_ids), "run"))
    return ", ".join(part for part in parts if part)


def report(
    source: Source,
    path: str | PathLike[str] = FILE,
    *,
    budget: Budget | float | str | None = None,
    compare: str | None = None,
    planner: Mapping[str, Any] | None = None,
    fit: Mapping[str, Any] | None = None,
    study: Study | None = None,
    refresh_seconds: int | None = None,
    **options: Any,
) -> Path:
    """Write the answer as one self-contained HTML page: no network, opens in any browser.

    The page is replaced in one step, so it may be written again and again while runs go on.

    Args:
        source: a `Plan`, `Fits`, `RunSet` or `Audit`; or the path of a saved one, of the folder of a campaign, or of
            any runs (tables, logs), which are then fitted.
        path: the file to write.
        budget: as of `Planner.allocate`. None: that of the plan or study, else three times the largest run.
        compare: what is run today, such as `"n=16,bp=32"`: the page says what the plan gains over it.
        planner: arguments of `Planner` besides the fits, such as `{"throughput": Throughput(...)}`.
        fit: arguments of `fit` for runs, such as `{"metric": "avg@8", "pool": ("learning_rate",)}`.
        study: the study of a folder of runs; its budget, recipe, hardware and files are used.
        refresh_seconds: after what time a browser loads the page anew, for a page that is rewritten while runs go on.
        **options: further arguments of `Planner.allocate`.

    Returns:
        The file written.

    Raises:
        IsoComputeError: nothing readable is there, or the file cannot be written. What cannot be fitted or planned is
            no error: the page says why.
    """
    asked = Asked(
        budget=None if budget is None else Budget.parse(budget),
        compare=compare,
        planner=planner or {},
        options=options,
        fit=fit or {},
    )
    return write(build(gather(source, asked, study), refresh_seconds=refresh_seconds), Path(path))
