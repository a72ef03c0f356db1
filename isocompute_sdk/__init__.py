"""isocompute: how to spend a rollout budget on RL post-training of language models.

    import isocompute_sdk as iso

    fits = iso.fit(iso.read("runs.csv"))
    plan = iso.Planner(fits).allocate("3M")
    print(plan.launch_script(train_data="train.jsonl", eval_data="validation.jsonl", reward="reward.py"))

Names load on first use, so that importing the package stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from isocompute_sdk import upward

if TYPE_CHECKING:
    from isocompute_sdk import ingest as ingest
    from isocompute_sdk import plots as plots
    from isocompute_sdk.api import fit, forecast, launch_script, list_published, published, published_prior, refit
    from isocompute_sdk.auditing import Audit, audit
    from isocompute_sdk.auditing.backtest import Backtest, backtest
    from isocompute_sdk.campaigns.campaign import Campaign
    from isocompute_sdk.errors import (
        BackendError,
        FitError,
        IsoComputeError,
        PlanError,
        RecordError,
        SpecError,
    )
    from isocompute_sdk.fitting.allocation import AllocationLaw
    from isocompute_sdk.fitting.arrays import FitStatus
    from isocompute_sdk.fitting.fits import Fits, FitsSet
    from isocompute_sdk.fitting.forecast import Forecast
    from isocompute_sdk.health import Health, check_health
    from isocompute_sdk.ingest.reader import read
    from isocompute_sdk.laws.sweeps import Provenance, RecordedSweep, sweeps
    from isocompute_sdk.metrics import avg_at_k, best_at_k, worst_at_k
    from isocompute_sdk.notes import Note
    from isocompute_sdk.planning import (
        Alternative,
        BudgetFor,
        Marginal,
        Plan,
        PlanComparison,
        Planner,
        Verdict,
        change_plan,
    )
    from isocompute_sdk.plots.figures import plot
    from isocompute_sdk.records import RunSet
    from isocompute_sdk.records.difficulty import DifficultySplit, split_by_difficulty
    from isocompute_sdk.reporting import report
    from isocompute_sdk.specs import (
        Allocation,
        Budget,
        Data,
        Evaluation,
        Hardware,
        Recipe,
        RunSpec,
        Study,
        Sweep,
        Throughput,
        load_study,
    )

_HOMES = {
    "isocompute_sdk.api": (
        "fit",
        "forecast",
        "launch_script",
        "list_published",
        "published",
        "published_prior",
        "refit",
    ),
    "isocompute_sdk.auditing": ("Audit", "audit"),
    "isocompute_sdk.auditing.backtest": ("Backtest", "backtest"),
    "isocompute_sdk.laws.sweeps": ("Provenance", "RecordedSweep", "sweeps"),
    "isocompute_sdk.campaigns.campaign": ("Campaign",),
    "isocompute_sdk.records.difficulty": ("DifficultySplit", "split_by_difficulty"),
    "isocompute_sdk.errors": (
        "BackendError",
        "FitError",
        "IsoComputeError",
        "PlanError",
        "RecordError",
        "SpecError",
    ),
    "isocompute_sdk.fitting.allocation": ("AllocationLaw",),
    "isocompute_sdk.fitting.fits": ("Fits", "FitsSet"),
    "isocompute_sdk.fitting.forecast": ("Forecast",),
    "isocompute_sdk.fitting.arrays": ("FitStatus",),
    "isocompute_sdk.health": ("Health", "check_health"),
    "isocompute_sdk.ingest.reader": ("read",),
    "isocompute_sdk.metrics": ("avg_at_k", "best_at_k", "worst_at_k"),
    "isocompute_sdk.notes": ("Note",),
    "isocompute_sdk.planning": (
        "Alternative",
        "BudgetFor",
        "Marginal",
        "Plan",
        "PlanComparison",
        "Planner",
        "Verdict",
        "change_plan",
    ),
    "isocompute_sdk.plots.figures": ("plot",),
    "isocompute_sdk.records": ("RunSet",),
    "isocompute_sdk.reporting": ("report",),
    "isocompute_sdk.specs": (
        "Allocation",
        "Budget",
        "Data",
        "Evaluation",
        "Hardware",
        "Recipe",
        "RunSpec",
        "Study",
        "Sweep",
        "Throughput",
        "load_study",
    ),
}
upward.register(read="isocompute_sdk.ingest.reader")  # RunSet.read
upward.register(launch_script="isocompute_sdk.api")  # Plan.launch_script
upward.register(measure="isocompute_sdk.timing.measuring")  # Throughput.measure
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("ingest", "plots")
"""Modules that are public themselves: `ingest.propose`, `plots.reward_curves` and the like."""

__version__ = "0.1.0"
__all__ = [
    "Allocation",
    "AllocationLaw",
    "Alternative",
    "Audit",
    "BackendError",
    "Backtest",
    "Budget",
    "BudgetFor",
    "Campaign",
    "Data",
    "DifficultySplit",
    "Evaluation",
    "FitError",
    "FitStatus",
    "Fits",
    "FitsSet",
    "Forecast",
    "Hardware",
    "Health",
    "IsoComputeError",
    "Marginal",
    "Note",
    "Plan",
    "PlanComparison",
    "PlanError",
    "Planner",
    "Provenance",
    "Recipe",
    "RecordError",
    "RecordedSweep",
    "RunSet",
    "RunSpec",
    "SpecError",
    "Study",
    "Sweep",
    "Throughput",
    "Verdict",
    "audit",
    "avg_at_k",
    "backtest",
    "best_at_k",
    "change_plan",
    "check_health",
    "fit",
    "forecast",
    "launch_script",
    "list_published",
    "load_study",
    "plot",
    "published",
    "published_prior",
    "read",
    "refit",
    "report",
    "split_by_difficulty",
    "sweeps",
    "worst_at_k",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"isocompute_sdk.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'isocompute_sdk' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__version__", "__doc__"})
