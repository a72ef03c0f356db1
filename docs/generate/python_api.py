"""The Python reference: public names by the module they come from, from their docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from generate.markdown import prose, table


@dataclass(frozen=True)
class Section:
    """One page of the reference."""

    file: str
    title: str
    about: str
    module: str
    """Module that the names are imported from."""
    names: tuple[str, ...]


def _public(module: str) -> tuple[str, ...]:
    """Functions and classes in `__all__` of a module; plain data and submodules have no entry."""
    found = import_module(module)
    return tuple(name for name in found.__all__ if callable(getattr(found, name)))


SECTIONS = (
    Section(
        "runs",
        "Runs",
        "Evaluations of training runs as one table, and metrics of single responses.",
        "isocompute_sdk",
        ("read", "RunSet", "avg_at_k", "best_at_k", "worst_at_k", "DifficultySplit", "split_by_difficulty"),
    ),
    Section(
        "specs",
        "Budgets, recipes, studies",
        "What you write, in Python or YAML. All are frozen; `replace` makes a changed copy.",
        "isocompute_sdk",
        (
            *("Budget", "Hardware", "Throughput", "Recipe", "Allocation", "Sweep", "Data", "Evaluation", "RunSpec"),
            *("Study", "load_study"),
        ),
    ),
    Section(
        "fits",
        "Fits and laws",
        "Reward curves, frontier and allocation laws.",
        "isocompute_sdk",
        (
            *("fit", "refit", "plot", "forecast", "Fits", "FitsSet", "AllocationLaw", "FitStatus", "Forecast"),
            *("published", "published_prior", "list_published"),
        ),
    ),
    Section(
        "plans",
        "Plans",
        "From a budget to a plan, a comparison, a launch script.",
        "isocompute_sdk",
        (
            *("Planner", "Plan", "Verdict", "Alternative", "PlanComparison", "BudgetFor", "Marginal", "change_plan"),
            "launch_script",
        ),
    ),
    Section(
        "campaigns",
        "Campaigns, audits, health, reports",
        "What goes on around plans: running them, and judging runs that exist.",
        "isocompute_sdk",
        (
            "Campaign",
            "Audit",
            "audit",
            "Backtest",
            "backtest",
            "sweeps",
            "RecordedSweep",
            "Provenance",
            "Health",
            "check_health",
            "report",
            "Note",
        ),
    ),
    Section(
        "errors",
        "Errors",
        "Every error that this package raises on purpose derives from `IsoComputeError`.",
        "isocompute_sdk",
        ("IsoComputeError", "SpecError", "RecordError", "FitError", "PlanError", "BackendError"),
    ),
)
"""Public names of the package; a test compares them with `isocompute_sdk.__all__`."""

MODULES = (
    Section(
        "ingest",
        "isocompute_sdk.ingest: logs",
        "Checking, mapping and reading logs, and what a log format is made of.",
        "isocompute_sdk.ingest",
        _public("isocompute_sdk.ingest"),
    ),
    Section(
        "plots",
        "isocompute_sdk.plots: figures",
        "Figures with matplotlib.",
        "isocompute_sdk.plots",
        _public("isocompute_sdk.plots"),
    ),
    Section(
        "training",
        "isocompute_sdk.training: writing a backend",
        "The contract of a backend, and a base class that renders one script from a template.",
        "isocompute_sdk.training",
        ("Backend", "BackendInfo", "BackendOption", "FrameworkOptions", "Launch", "Needs", "ScriptBackend"),
    ),
    Section(
        "executors",
        "isocompute_sdk.campaigns.executors: writing an executor",
        "The contract of what starts runs.",
        "isocompute_sdk.campaigns.executors",
        ("Executor", "Job", "Handle", "Seen", "Slots", "Engine", "ClusterExecutor", "LocalExecutor"),
    ),
)
"""Public modules beside the package itself."""


def pages() -> Iterator[tuple[str, str]]:
    """The list of all names, and a page per section."""
    for section in (*SECTIONS, *MODULES):
        yield f"python/{section.file}.md", _page(section)
    rows = [
        (f"{{py:obj}}`{name} <{section.module}.{name}>`", _first_line(section.module, name))
        for section in (*SECTIONS, *MODULES)
        for name in section.names
    ]
    yield "parts/python.md", table(("name", "what it is"), rows)


def _page(section: Section) -> str:
    blocks = [_directive(section.module, name) for name in section.names]
    return f"# {section.title}\n\n{section.about}\n\n" + "\n".join(blocks)


def _directive(module: str, name: str) -> str:
    """An autodoc directive; Markdown hands it over as reStructuredText, the language of docstrings."""
    found: Any = getattr(import_module(module), name)
    options = ""
    if inspect.isclass(found):
        kind = "autoexception" if issubclass(found, Exception) else "autoclass"
        options = "   :members:\n"
    else:
        kind = "autofunction"
    return f"```{{eval-rst}}\n.. {kind}:: {module}.{name}\n{options}```\n"


def _first_line(module: str, name: str) -> str:
    text = inspect.getdoc(getattr(import_module(module), name)) or ""
    return prose(text.split("\n\n")[0])
