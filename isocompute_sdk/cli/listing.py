"""`isocompute list`: what ships with the package or is installed beside it, by kind."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from importlib import import_module
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.display import print_fits
from isocompute_sdk.cli.shared.output import emit_json, say, terminal
from isocompute_sdk.errors import BackendError, SpecError

if TYPE_CHECKING:
    from isocompute_sdk.laws.sweeps import RecordedSweep
    from isocompute_sdk.training.backend import BackendInfo

KINDS = {
    "backends": "training frameworks with launch scripts",
    "models": "models with published laws",
    "notes": "codes of notes: what each means and what to do",
    "published": "published laws",
    "schema": "JSON schemas of the files that people write and that commands save",
    "sweeps": "real sweeps on which choices of n are judged",
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
    "pilot-design": "planning.next_runs:PILOT_DESIGN",
    "forecast": "fitting.forecast:FORECAST",
    "replan": "planning.replan:REPLAN",
    "audit": "auditing.result:AUDIT",
    "campaign": "campaigns.campaign:CAMPAIGN",
    "controller": "campaigns.control:CONTROLLER",
    "kept-study": "campaigns.study_changes:STUDY",
    "campaign-decision": "campaigns.pilot:DECISION",
    "comparison": "campaigns.scorecard:COMPARISON",
    "scorecard": "campaigns.scorecard:SCORECARD",
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
        str,
        typer.Argument(
            help="; ".join(f"{name}: {text}" for name, text in KINDS.items()),
            autocompletion=lambda: list(KINDS),
        ),
    ],
    name: Annotated[str | None, typer.Argument(help="Show this one in full.", show_default=False)] = None,
    sweeps: opt.Sweeps = None,
    json: opt.Json = False,
) -> None:
    """List what ships with the package or is installed beside it, or show one in full.

    `list schema NAME` prints a JSON schema, so that an editor checks and completes a YAML file. With --sweeps, a folder
    of sweeps of the same form joins those of the package: NAME.csv with one row per evaluation (run_id, group_size,
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
    match kind:
        case "backends":
            _backends(name, json=json)
        case "models":
            _models(name, json=json)
        case "notes":
            _notes(name, json=json)
        case "published":
            _published(name, json=json)
        case "schema":
            _schemas(name, json=json)
        case "sweeps":
            _sweeps(name, sweeps, json=json)
        case _:
            raise SpecError(f"nothing is listed as {kind!r}; accepted: {', '.join(KINDS)}", "isocompute list backends")


def _named(kind: str, known: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """The one of this name, or all.

    Raises:
        SpecError: there is none.
    """
    if name is None:
        return dict(known)
    if name not in known:
        raise SpecError(f"no {kind} {name!r}; accepted: {', '.join(known)}", f"isocompute list {kind}")
    return {name: known[name]}


def _models(name: str | None, *, json: bool) -> None:
    from isocompute_sdk import api

    laws: dict[str, list[str]] = {}
    for key in api.list_published():
        laws.setdefault(str(api.published(key).model), []).append(key)
    found = _named("models", laws, name)
    if json:
        emit_json({"kind": "models", "models": found})
        return
    for model, keys in found.items():
        say(f"{model}: {', '.join(keys)}")


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


def _notes(name: str | None, *, json: bool) -> None:
    found = _named("notes", notes(), name)
    if json:
        keys = ("severity", "meaning", "remedy")
        emit_json({"kind": "notes", "notes": {code: dict(zip(keys, row, strict=True)) for code, row in found.items()}})
        return
    for code, (severity, meaning, remedy) in found.items():
        say(f"{code} ({severity}): {meaning}")
        if name is not None and remedy:
            say(f"  what to do: {remedy}")


def _published(name: str | None, *, json: bool) -> None:
    from isocompute_sdk import api

    laws = {key: api.published(key) for key in (api.list_published() if name is None else (name,))}
    if json:
        described = {
            key: {
                "model": fits.model,
                "laws": fits.to_dict()["laws"],
                "notes": [note.to_dict() for note in fits.notes],
            }
            for key, fits in laws.items()
        }
        emit_json({"kind": "published", "laws": described})
    elif name is not None:
        print_fits(laws[name])
    else:
        for key, fits in laws.items():
            say(key)
            for law, one in fits.laws.items():
                say(f"  {law}: {one.describe()}")


def _schemas(name: str | None, *, json: bool) -> None:
    if name is not None:
        say(json_module.dumps(schema_of(name), indent=1))
    elif json:
        emit_json({"kind": "schemas", "yaml": list(SPECS), "json": list(DOCUMENTS)})
    else:
        say(f"YAML: {', '.join(SPECS)}\nsaved JSON: {', '.join(DOCUMENTS)}")


def _sweeps(name: str | None, folder: Path | None, *, json: bool) -> None:
    from isocompute_sdk.laws.sweeps import sweeps as corpus

    every: dict[str, RecordedSweep] = {one.name: one for one in corpus()}
    every |= {} if folder is None else {one.name: one for one in corpus(folder)}
    found = _named("sweeps", every, name)
    if json:
        rows = {
            key: {"runs": len(one.runs.run_ids), **one.provenance.model_dump(mode="json")} for key, one in found.items()
        }
        emit_json({"kind": "sweeps", "sweeps": rows})
        return
    for key, one in found.items():
        about, runs = one.provenance, one.runs.runs()
        sizes = ", ".join(str(n) for n in sorted({run.group_size for run in runs}))
        say(f"{key}: {about.title}")
        say(f"  n = {sizes}; {len(runs)} runs; {', '.join(about.metrics)}; family {about.family}")
        say(f"  {about.source} ({about.licence})")


def _backends(name: str | None, *, json: bool) -> None:
    from isocompute_sdk.training import registry

    found: dict[str, BackendInfo] = {}
    broken: dict[str, str] = {}
    for one in registry.available() if name is None else [name]:
        try:
            found[one] = registry.load(one).describe()
        except BackendError as error:
            if name is not None:
                raise
            # A broken plug-in must not hide the others.
            broken[one] = error.message
    if json:
        described = {one: info.to_dict() for one, info in found.items()}
        emit_json({"kind": "backends", "backends": described, "broken": broken})
        return
    _print_backends(found, broken, with_options=name is not None)


def _print_backends(found: dict[str, BackendInfo], broken: dict[str, str], *, with_options: bool) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console = terminal()

    def indented(text: str, columns: int = 2) -> None:
        console.print(Padding(Text(text), (0, 0, 0, columns)))

    def verbatim(line: str) -> None:
        """A line that is copied, so that it must not be broken."""
        console.print(Text(f"  {line}"), soft_wrap=True)

    for one, info in found.items():
        console.print(Text(f"{one}: {info.framework} {info.version} ({', '.join(info.algorithms)})", style="bold"))
        indented(info.summary)
        indented("needs")
        for need in info.needs:
            indented(f"- {need}", 4)
        if with_options:
            console.print(Text("install", style="bold"))
            for line in info.install or ("pip install isocompute",):
                verbatim(line)
            console.print(Text("inputs", style="bold"))
            for line in INPUTS:
                verbatim(line)
        if with_options and info.options:
            console.print(Text("options", style="bold"))
        for option in info.options if with_options else ():
            default = "" if option.default is None else f", default {option.default}"
            indented(f"{option.name} ({option.type}{default})")
            indented(option.description, 4)
        if with_options and info.passes:
            console.print(Text(f"flags of {info.framework} that --option also takes, by its own names", style="bold"))
            for pattern in info.passes:
                indented(pattern)
    for one, message in broken.items():
        console.print(Text(f"{one}: cannot be loaded", style="bold red"))
        indented(message)
    if not with_options:
        say("isocompute list backends NAME shows the options of one.")


def schema_of(kind: str) -> dict[str, Any]:
    """JSON schema of one of `SCHEMAS`.

    Raises:
        SpecError: another name.
    """
    if kind not in SCHEMAS:
        raise SpecError(f"no schema {kind!r}; accepted: {', '.join(SCHEMAS)}", "Use one of these names.")
    from isocompute_sdk.specs.syntax.spec_files import DIALECT, json_schema

    module, _, name = (SPECS.get(kind) or DOCUMENTS[kind]).partition(":")
    found: Any = getattr(import_module(f"isocompute_sdk.{module}"), name)
    return json_schema(found) if kind in SPECS else {"$schema": DIALECT, **found.json_schema()}
