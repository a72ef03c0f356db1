"""`isocompute list`: what ships with the package or is installed beside it, by kind."""

from __future__ import annotations

import json as json_module
import textwrap
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.output import emit_json, say, terminal
from isocompute_sdk.errors import BackendError, SpecError, did_you_mean
from isocompute_sdk.phrases import counted

if TYPE_CHECKING:
    from isocompute_sdk.laws.sweeps import RecordedSweep
    from isocompute_sdk.training.backend import BackendInfo

KINDS = {
    "backends": "training frameworks with launch scripts",
    "notes": "codes of notes: what each means and what to do",
    "published": "published laws",
    "schema": "JSON schemas of the files that you write or commands save",
    "sweeps": "real sweeps on which choices of n are tested",
}
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
    "pilot-design": "planning.pilot_design:PILOT_DESIGN",
    "forecast": "fitting.forecast:FORECAST",
    "replan": "planning.replan:REPLAN",
    "audit": "auditing.result:AUDIT",
    "campaign": "campaigns.campaign:CAMPAIGN",
    "controller": "campaigns.control:CONTROLLER",
    "kept-study": "campaigns.control:STUDY",
    "campaign-decision": "campaigns.pilot_rounds:DECISION",
    "comparison": "campaigns.comparison:COMPARISON",
    "alerts": "health.alerts:ALERTS",
    "run-spec": "run_folders.store:RUN_SPEC",
    "run-job": "run_folders.store:JOB",
    "run-exit": "run_folders.store:EXIT",
    "run-start": "run_folders.journal_records:START",
    "run-started": "run_folders.store:STARTED",
    "journal-run": "run_folders.journal_records:RUN",
    "journal-evaluation": "run_folders.journal_records:EVALUATION",
    "journal-step": "run_folders.journal_records:STEP",
    "journal-end": "run_folders.journal_records:END",
}
"""Saved JSON files, with the declaration of each."""
SCHEMAS = (*SPECS, *DOCUMENTS)
INPUTS = (
    "problems (data.train, data.validation): JSON lines such as",
    '  {"id": "1", "prompt": "What is 2 + 3?", "answer": "5"}',
    "  isocompute problems SOURCE   writes them from a data set",
    "reward (data.reward): a Python file with",
    "  def reward(prompt, response, answer): return float(response.strip().endswith(str(answer)))",
    "  isocompute problems SOURCE --reward reward.py   writes one for mathematics (pip install 'isocompute[math]')",
    "docs/data_and_rewards.md has the study file and an example of each",
)
"""What every backend that trains a model reads."""


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="; ".join(f"{name}: {text}" for name, text in KINDS.items()),
            autocompletion=lambda: list(KINDS),
            show_default=False,
        ),
    ] = None,
    name: Annotated[str | None, typer.Argument(help="Show this one in full.", show_default=False)] = None,
    sweeps: opt.Sweeps = None,
    json: opt.Json = False,
) -> None:
    """List what ships with the package or is installed beside it, or show one item in full.

    `list schema NAME` prints a JSON schema, so that an editor checks and completes a YAML file. --sweeps adds a folder
    of sweeps in the form of those of the package: NAME.csv with one row per evaluation (run_id, group_size,
    problems_per_batch, seed, rollouts and a column per metric) beside NAME.yaml with title, source, licence, model,
    data, algorithm, differs, read, family, group and metrics.

    Examples:
        isocompute list backends

        isocompute list backends openrlhf

        isocompute list notes extrapolation-beyond-3x

        isocompute list published qwen2.5-7b-instruct/guru-math-easy

        isocompute list schema study > study.schema.json

        isocompute list sweeps --sweeps my_sweeps
    """
    if kind is None:
        for known, text in KINDS.items():
            say(f"{known:<10} {text}: isocompute list {known}")
        return
    if kind not in TOPICS:
        raise SpecError(f"nothing is listed as {kind!r}; accepted: {', '.join(KINDS)}", "Try isocompute list backends.")
    if kind == "schema" and name is not None:
        say(json_module.dumps(schema_of(name), indent=1))
        return
    found, lines = TOPICS[kind](name, sweeps)
    if json:
        emit_json({"kind": kind, **found})
        return
    for line in lines:
        say(line)


MAX_NAMED = 12
"""Names that an error lists."""
Listed = tuple[dict[str, Any], list[str]]
"""The answer for programs, and its lines for people."""


def _named(kind: str, known: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """The one of this name, or all.

    Raises:
        SpecError: there is none.
    """
    if name is None:
        return dict(known)
    if name not in known:
        some = ", ".join(known) if len(known) <= MAX_NAMED else f"one of {len(known)}"
        hint = f"{did_you_mean(name, [*known])}All of them: isocompute list {kind}."
        raise SpecError(f"no {kind} {name!r}; accepted: {some}", hint)
    return {name: known[name]}


def notes() -> dict[str, tuple[str, str, str]]:
    """Severity, what happened and what to do, by code, from docs/notes.md."""
    file = resources("isocompute_sdk") / "notes.md"
    found: dict[str, tuple[str, str, str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `") and len(cells) >= 3:
            for code in cells[0].split(","):
                found[code.strip().strip("`")] = (cells[1], cells[2], cells[3] if len(cells) > 3 else "")
    return found


def _notes(name: str | None, _: Path | None) -> Listed:
    found, lines = _named("notes", notes(), name), list[str]()
    for code, (severity, meaning, remedy) in found.items():
        lines.append(f"{code} ({severity}): {meaning}")
        lines += [f"  what to do: {remedy}"] * bool(name is not None and remedy)
    keys = ("severity", "meaning", "remedy")
    return {"notes": {code: dict(zip(keys, row, strict=True)) for code, row in found.items()}}, lines


def _published(name: str | None, _: Path | None) -> Listed:
    from isocompute_sdk import api

    found, lines = dict[str, Any](), list[str]()
    for key in api.list_published() if name is None else (name,):
        fits = api.published(key)
        lines += [key, *(f"  {law}: {one.describe()}" for law, one in fits.laws.items())]
        lines += [f"{note.severity} {note.code}: {note.message}" for note in fits.notes] * (name is not None)
        notes_ = [note.to_dict() for note in fits.notes]
        found[key] = {"model": fits.model, "laws": fits.to_dict()["laws"], "notes": notes_}
    return {"laws": found}, lines


def _schemas(_: str | None, __: Path | None) -> Listed:
    lines = [f"YAML: {', '.join(SPECS)}", f"saved JSON: {', '.join(DOCUMENTS)}"]
    return {"yaml": list(SPECS), "json": list(DOCUMENTS)}, lines


def _sweeps(name: str | None, folder: Path | None) -> Listed:
    from isocompute_sdk.laws.sweeps import sweeps as corpus

    every: dict[str, RecordedSweep] = {one.name: one for one in corpus()}
    every |= {} if folder is None else {one.name: one for one in corpus(folder)}
    found, lines = dict[str, Any](), list[str]()
    for key, one in _named("sweeps", every, name).items():
        about, runs = one.provenance, one.runs.runs()
        found[key] = {"runs": len(runs), **about.model_dump(mode="json")}
        sizes = ", ".join(str(n) for n in sorted({run.group_size for run in runs}))
        lines.append(f"{key}: {about.title}")
        lines.append(f"  n = {sizes}; {counted(len(runs), 'run')}; {', '.join(about.metrics)}; family {about.family}")
        lines.append(f"  {about.source} ({about.licence})")
    return {"sweeps": found}, lines


def _backends(name: str | None, _: Path | None) -> Listed:
    from isocompute_sdk.training import registry

    found, broken, lines = dict[str, Any](), dict[str, str](), list[str]()
    for one in registry.available() if name is None else [name]:
        try:
            info = registry.load(one).describe()
        except BackendError as error:
            if name is not None:
                raise
            # A broken plug-in must not hide the others.
            broken[one] = error.message
            lines += [f"{one}: cannot be loaded", *_indented(error.message)]
            continue
        found[one] = info.to_dict()
        lines.append(f"{one}: {info.framework} {info.version} ({', '.join(info.algorithms)})")
        lines += [
            *_indented(info.summary),
            "  needs",
            *(line for need in info.needs for line in _indented(need, "  - ")),
        ]
        lines += _details(info) if name is not None else []
    if name is None:
        lines.append("isocompute list backends NAME shows the options of one.")
    return {"backends": found, "broken": broken}, lines


def _details(info: BackendInfo) -> Iterator[str]:
    """Installation, inputs and options of one backend; lines that are copied are not broken."""
    yield "install"
    yield from (f"  {line}" for line in info.install or ("pip install isocompute",))
    yield "inputs"
    yield from (f"  {line}" for line in INPUTS)
    if info.options:
        yield "options"
    for option in info.options:
        default = "" if option.default is None else f", default {option.default}"
        yield f"  {option.name} ({option.type}{default})"
        yield from _indented(option.description, "    ")
    if info.passes:
        yield f"flags of {info.framework} that --option also accepts"
        yield from (f"  {pattern}" for pattern in info.passes)


def _indented(text: str, start: str = "  ") -> list[str]:
    """A paragraph at the width of the terminal."""
    space = " " * len(start)
    return textwrap.wrap(text, terminal().width, initial_indent=start, subsequent_indent=space, break_on_hyphens=False)


TOPICS: dict[str, Callable[[str | None, Path | None], Listed]] = {
    "backends": _backends,
    "notes": _notes,
    "published": _published,
    "schema": _schemas,
    "sweeps": _sweeps,
}


def schema_of(kind: str) -> dict[str, Any]:
    """JSON schema of one of `SCHEMAS`.

    Raises:
        SpecError: another name.
    """
    if kind not in SCHEMAS:
        raise SpecError(f"no schema {kind!r}; accepted: {', '.join(SCHEMAS)}", "Use one of these names.")
    from isocompute_sdk.specs.syntax.plain_yaml import DIALECT, json_schema

    module, _, name = (SPECS.get(kind) or DOCUMENTS[kind]).partition(":")
    found: Any = getattr(import_module(f"isocompute_sdk.{module}"), name)
    return json_schema(found) if kind in SPECS else {"$schema": DIALECT, **found.json_schema()}
