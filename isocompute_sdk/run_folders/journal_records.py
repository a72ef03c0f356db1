"""What stands in a line of `metrics.jsonl`, the journal of a run, and of `attempts.jsonl`, its starts.

Declared once for writers, readers and schemas. `run_journal.Journal` writes lines of the journal. Fields that are not
declared are kept: context in the record of a run, and whatever else a writer wants to note.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from isocompute_sdk import files
from isocompute_sdk.documents import Document
from isocompute_sdk.errors import DocumentError, RecordError
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.run_folders import run_journal
from isocompute_sdk.run_folders.progress import JOURNAL
from isocompute_sdk.run_folders.run_journal import SCHEMA_VERSION
from isocompute_sdk.specs.base import Described

CONFIG = ConfigDict(extra="allow", strict=True, frozen=True, allow_inf_nan=False)
ATTEMPTS_FILE = "attempts.jsonl"
Amounts = dict[str, float | None]
"""Name -> number; None if it was not measured."""
REMEDY = "Correct or remove the line, or read the file with the release that wrote it."


class Record(Described):
    """What every line has."""

    model_config = CONFIG

    run_id: str | None = None
    """Name of the run."""
    attempt: int = Field(default=1, ge=1)
    """Number of starts of the run by then."""
    step: float = Field(default=0, ge=0)
    """Updates done."""
    rollouts: float | None = Field(default=None, ge=0)
    """Training rollouts generated so far, C."""
    tokens: float | None = Field(default=None, ge=0)
    """Training tokens sampled so far."""
    gpu_seconds: float | None = Field(default=None, ge=0)
    """GPU time used so far, seconds times GPUs."""
    wall_seconds: float | None = Field(default=None, ge=0)
    """Seconds since the attempt started."""


class RunRecord(Record):
    """First line of an attempt; context fields of the run stand beside these."""

    group_size: int | None = Field(default=None, ge=1)
    """Rollouts per problem in one update, n."""
    problems_per_batch: int | None = Field(default=None, ge=1)
    """Problems per update, B_p."""
    update_steps: int | None = Field(default=None, ge=1)
    """Updates that the run was asked for, M."""
    seed: int | None = None


class EvaluationRecord(Record):
    """One evaluation set, evaluated after `step` updates."""

    metrics: Amounts
    """Metric -> value, such as avg@4."""
    eval_set: str
    samples: int | None = Field(default=None, ge=1)
    """Samples per problem."""
    pass_counts: list[int] | None = None
    """Right samples of each problem, in the order of the file."""
    sample_counts: list[int] | None = None
    """Samples with a reward, of each problem."""
    zero_pass_share: float | None = None
    """Share of problems without a right sample."""
    reward_errors: int | None = None
    """Samples for which the reward function failed."""
    seconds: Amounts | None = None
    """Part of the evaluation -> seconds."""


class StepRecord(Record):
    """One update."""

    metrics: Amounts
    """Metric -> value, such as train_reward."""
    seconds: Amounts | None = None
    """Part of the update, such as sampling -> seconds."""


class EndRecord(Record):
    """How the attempt ended; a run that was killed has none."""

    status: Literal["finished", "failed"]
    message: str = ""


RUN = Document("run", SCHEMA_VERSION, RunRecord, signed=False, remedy=REMEDY)
EVALUATION = Document("evaluation", SCHEMA_VERSION, EvaluationRecord, signed=False, remedy=REMEDY)
STEP = Document("step", SCHEMA_VERSION, StepRecord, signed=False, remedy=REMEDY)
END = Document("end", SCHEMA_VERSION, EndRecord, signed=False, remedy=REMEDY)
KINDS: dict[str, Document[Any]] = {one.kind: one for one in (RUN, EVALUATION, STEP, END)}


def check(record: Mapping[str, Any], where: str) -> str:
    """The kind of a record that is as declared; records of other kinds are not looked into."""
    kind = str(record["kind"])
    document = KINDS.get(kind)
    if document is None:
        return kind
    try:
        if record.get("schema_version") == SCHEMA_VERSION:
            document.type.model_validate(record)
            return kind
    except ValidationError:
        pass
    try:
        document.from_dict(dict(record))
    except DocumentError as error:
        raise error.retyped(RecordError, error.message.replace("the mapping", where, 1)) from error
    return kind


def notes(path: Path) -> tuple[Note, ...]:
    """Notes that the records of a journal carry, each once; empty if the file is missing."""
    carried = [note for record in read(path) for note in record.get("notes") or ()]
    try:
        return unique(Note(**note) for note in carried)
    except TypeError as error:
        raise RecordError(f"{path}: a note with other fields ({error})", REMEDY) from error


def read(path: Path) -> list[dict[str, Any]]:
    """Every whole record of a journal; empty if the file is missing.

    Raises:
        RecordError: a whole line is no record.
    """
    if not path.exists():
        return []
    files.check_input(path, what=JOURNAL, error=RecordError)
    try:
        return run_journal.read(path)
    except ValueError as error:
        raise RecordError(str(error), REMEDY) from error


class Start(Described):
    """One line of attempts.jsonl: a start of the training.

    The built-in runner and `training/payload/claim_folder.py`, which needs the standard library alone, append it.
    """

    model_config = CONFIG

    attempt: int = Field(ge=1)
    """1 for the first."""
    started: float = Field(ge=0)
    """Seconds since 1970."""
    identity: str | None = None
    """Digest of everything that decides the results; None for a launch script, which keeps its request instead."""
    train: str | None = None
    """SHA-256 of the training problems; None if unknown."""
    validation: str | None = None
    reward: str | None = None
    """SHA-256 of the reward file; None if unknown, and for a function of a module."""


START = Document("run-start", 2, Start, signed=False, remedy=REMEDY, indent=None)


def read_starts(path: Path) -> list[Start]:
    """Every start in the file, without a last line that is still being written; empty if the file is missing."""
    if not path.exists():
        return []
    with files.open_input(path, what="the starts of a run", error=RecordError) as file:
        lines = file.read().split(b"\n")[:-1]
    found: list[Start] = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(START.from_text(line, f"{path}:{number}"))
        except DocumentError as error:
            raise error.retyped(RecordError, error.message) from error
    return found
