"""`build`: from the material to the page, section by section."""

from __future__ import annotations

from datetime import datetime

from isocompute_sdk import __version__
from isocompute_sdk.reporting.material import Material
from isocompute_sdk.reporting.page import Page
from isocompute_sdk.reporting.sections import budgets, closing, evidence, training
from isocompute_sdk.reporting.sections.first_screen import answer

SECTIONS = (
    budgets.reward_against_cost,
    evidence.why,
    budgets.n_against_budget,
    evidence.how_sure,
    evidence.near_ties,
    training.coverage,
    training.train_against_validation,
    training.health,
    training.pilot_cost,
    closing.launch_script,
    closing.provenance,
)
"""Sections in the order of the page: first what decides, then what it rests on, then the runs."""


def build(material: Material, now: datetime | None = None, refresh_seconds: int | None = None) -> Page:
    """The page of this material.

    Args:
        material: what `gather` found.
        now: time for the foot of the page; None for the present.
        refresh_seconds: after what time browsers load the page anew; None: never.
    """
    when = datetime.now().astimezone() if now is None else now
    found = answer(material)
    sections = tuple(section(material) for section in SECTIONS)
    return Page(
        title=material.name,
        subtitle=_subtitle(material),
        answer=found,
        sections=sections,
        made=f"isocompute {__version__}, {when:%Y-%m-%d %H:%M %Z}".strip(),
        refresh_seconds=refresh_seconds,
    )


def _subtitle(material: Material) -> str:
    plan, fits = material.plan, material.fits
    model = None if fits is None else fits.model
    if plan is not None:
        model = plan.model or model
    parts = [f"model {model}" if model else "", f"metric {material.metric}"]
    if plan is not None:
        parts.append(f"budget {plan.budget}")
    if material.runs is not None:
        parts.append(f"{len(material.runs.run_ids)} runs")
    elif fits is not None and fits.curves:
        parts.append(f"{len(fits.curves)} configurations")
    return ", ".join(part for part in parts if part)
