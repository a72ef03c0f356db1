"""`isocompute schema`: JSON schemas of the files that people write and that commands save."""

from __future__ import annotations

import json as json_module
from importlib import import_module
from typing import Annotated, Any

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.output import say
from isocompute_sdk.errors import SpecError

SPECS = {
    "study": "specs:Study",
    "budget": "specs:Budget",
    "throughput": "specs:Throughput",
    "hardware": "specs:Hardware",
    "recipe": "specs:Recipe",
    "sweep": "specs:Sweep",
    "run": "specs:RunSpec",
    "map": "ingest:RunMap",
}
"""YAML files, with the class of each."""
DOCUMENTS = {
    "plan": "planning.plan:DOCUMENT",
    "fits": "fitting.fits:FITS",
    "against": "planning.comparing:COMPARISON",
    "marginal": "planning.questions:MARGINAL",
    "budget-for": "planning.questions:BUDGET_FOR",
    "next-runs": "planning.next_runs:NEXT_RUNS",
    "pilot-design": "planning.next_runs:PILOT_DESIGN",
    "forecast": "fitting.forecast:FORECAST",
    "replan": "planning.replan:REPLAN",
    "audit": "auditing.result:AUDIT",
    "campaign": "campaigns.campaign:CAMPAIGN",
    "controller": "campaigns.control:CONTROLLER",
    "kept-study": "campaigns.study_changes:STUDY",
    "campaign-checks": "campaigns.decisions:CHECKS",
    "campaign-qualified": "campaigns.decisions:QUALIFIED",
    "campaign-round": "campaigns.decisions:ROUND",
    "campaign-look": "campaigns.decisions:LOOK",
    "campaign-planned-run": "campaigns.decisions:ENDING",
    "comparison": "campaigns.prediction_check:COMPARISON",
    "score": "campaigns.scorecard:SCORE",
    "scorecard": "campaigns.scorecard:SCORECARD",
    "alerts": "health.alerts:ALERTS",
    "run-spec": "run_folders.store:RUN_SPEC",
    "run-job": "run_folders.store:JOB",
    "run-exit": "run_folders.store:EXIT",
    "run-start": "run_folders.starts:START",
    "run-started": "run_folders.store:STARTED",
    "journal-run": "run_folders.journal_records:RUN",
    "journal-evaluation": "run_folders.journal_records:EVALUATION",
    "journal-step": "run_folders.journal_records:STEP",
    "journal-end": "run_folders.journal_records:END",
}
"""Saved JSON files, with the declaration of each."""
KINDS = (*SPECS, *DOCUMENTS)


def schema(
    kind: Annotated[
        str, typer.Argument(help=f"YAML: {', '.join(SPECS)}. Saved JSON: {', '.join(DOCUMENTS)}.")
    ] = "study",
    json: opt.Json = False,
) -> None:
    """Print the JSON schema of a YAML file, so that an editor checks and completes it, or of a saved JSON file.

    Examples:
        isocompute schema > study.schema.json

        isocompute schema plan
    """
    # A schema is JSON with or without the flag; the flag is accepted because every command has it.
    del json
    say(json_module.dumps(schema_of(kind), indent=1))


def schema_of(kind: str) -> dict[str, Any]:
    """JSON schema of one of `KINDS`.

    Raises:
        SpecError: another name.
    """
    if kind not in KINDS:
        raise SpecError(f"no schema {kind!r}; accepted: {', '.join(KINDS)}", "Use one of these names.")
    from isocompute_sdk.specs.syntax.spec_files import DIALECT, json_schema

    module, _, name = (SPECS.get(kind) or DOCUMENTS[kind]).partition(":")
    found: Any = getattr(import_module(f"isocompute_sdk.{module}"), name)
    return json_schema(found) if kind in SPECS else {"$schema": DIALECT, **found.json_schema()}
