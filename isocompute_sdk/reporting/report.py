"""`report`: write the page of whatever there is."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from isocompute_sdk.reporting.build_page import build
from isocompute_sdk.reporting.drawing.html import write
from isocompute_sdk.reporting.material import Asked, Source, gather
from isocompute_sdk.specs import Budget, Study

FILE = "report.html"
"""Name of the page in the folder of a campaign or study."""


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
