"""The last sections: the launch script, and where every number comes from."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from typing import Any

from isocompute_sdk import api
from isocompute_sdk.documents import digest_of
from isocompute_sdk.errors import BackendError, IsoComputeError
from isocompute_sdk.planning.allocate import KEPT
from isocompute_sdk.planning.replan import USUAL_BACKEND
from isocompute_sdk.reporting.material import Material
from isocompute_sdk.reporting.page import Missing, Paragraph, Script, Section, Table
from isocompute_sdk.training.checks import model_option

PACKAGES = ("isocompute", "numpy", "scipy", "polars", "pydantic")


def launch_script(material: Material) -> Section:
    """The script that trains the plan."""
    name, title = "launch", "The launch script"
    plan = material.plan
    if material.comparison is not None:
        return Section(name, title, (Missing("The plan has been trained: there is nothing to launch."),))
    if plan is None or material.flat:
        return Section(
            name, title, (Missing("There is no plan to launch.", "" if material.flat else material.with_runs),)
        )
    own, options = _options(material)
    backend = own or USUAL_BACKEND
    assumed = "" if own else f"Nothing here names your framework, so {backend} is assumed. "
    command = f"isocompute launch {material.saved_plan or 'plan.json'}"
    if material.saved_plan is None or material.planned_anew:
        file = "replanned.json" if material.planned_anew else "plan.json"
        asked = material.asking(material.asked_for(plan.budget), f"--output {file}")
        command = f"{asked} && isocompute launch {file}"
    approval, script = plan.approval, ""
    try:
        if approval is not None and approval.kind == "do-not":
            lacks = "the plan is not approved"
        elif plan.model and material.study is None and model_option(plan.model):
            lacks = f"{plan.model}, the model of the runs, is neither a folder here nor a hub name"
        else:
            lacks, script = "", api.launch_script(plan, backend, **options)
    except BackendError as error:
        return Section(name, title, (Missing(f"No script: {error.message}"),))
    except IsoComputeError as error:
        lacks = error.message
    if lacks:
        text = f"No script: {lacks}. {assumed}To write one anyway:"
        return Section(name, title, (Missing(text, f"{command} --backend {backend}{model_option(plan.model)}"),))
    told = Paragraph(
        f"{assumed}Start it with bash, in the folder that holds the files it names. For another framework (verl, trl "
        "or torch):",
        quiet=True,
        command=f"{command}{model_option(plan.model)} --backend verl",
    )
    return Section(name, title, (told, Script(script, f"{backend}, {len(script.splitlines())} lines")))


def _options(material: Material) -> tuple[str | None, dict[str, Any]]:
    """Backend and files of the script: those of the study, else the runs' framework, if known, and the usual names."""
    study = material.study
    if study is None:
        return None if material.plan is None else material.plan.backend, {}
    data = study.data
    options: dict[str, Any] = {"model": study.model, "train_data": data.train, "eval_data": data.validation}
    options |= {"reward": data.reward, "prompt_key": data.prompt_key, "answer_key": data.answer_key}
    return study.backend, {**study.options, **options}


def provenance(material: Material) -> Section:
    """Versions, seeds and hashes."""
    rows: list[tuple[str, str]] = [("Source", material.source or f"{material.name} (in memory)")]
    rows.append(
        ("Versions", ", ".join([f"Python {platform.python_version()}", *(f"{n} {version(n)}" for n in PACKAGES)]))
    )
    fits, plan = material.fits, material.plan
    if fits is not None:
        whence = fits.source or ("the prior over published models" if fits.method == "prior" else "runs")
        rows.append(("Fitted", f"{fits.metric}, method {fits.method}, from {whence}"))
        given = ", ".join(f"{name} = {json.dumps(value)}" for name, value in sorted(fits.options.items()))
        rows += [("Options of the fit", given)] * bool(given)
        kept = fits.trimmed
        rows.append(("SHA-256 of the fits", str(kept.to_dict()["digest"])))
        if kept.runs is not None:
            rows.append(("SHA-256 of the runs", digest_of(kept.runs)))
    if plan is not None:
        rows.append(("SHA-256 of the plan", str(plan.to_dict()["digest"])))
    if material.audit is not None:
        rows.append(("SHA-256 of the audit", str(material.audit.to_dict()["digest"])))
    options = sorted(material.options.items())
    asked = ", ".join(f"{name} = {value}" for name, value in options if value is not None and name in KEPT)
    rows += [("Options of the plan", asked)] * bool(asked)
    if material.runs is not None:
        seeds = sorted({run.seed for run in material.runs.runs() if run.seed is not None})
        rows.append(("Seeds of the runs", ", ".join(map(str, seeds)) or "not recorded"))
    if material.study is not None:
        rows.append(("Study", material.study.name))
    return Section(
        "provenance", "Where the numbers come from", (Table(("What", "Value"), tuple(rows), text_columns=(0, 1)),)
    )
