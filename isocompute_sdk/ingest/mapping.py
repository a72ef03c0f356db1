"""Everything readable at or below some paths (`collect`), and `RunMap`: one file that says what every run of it is.

A value stands in the entry of its run with the evidence for it beside it. What nothing says, or what sources say
differently, is a question, and a mapping with an open question is not read. What cannot be read becomes an entry, not
an error. The doctor starts here too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as attribute
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from isocompute_sdk.errors import IsoComputeError, RecordError, did_you_mean
from isocompute_sdk.files import saving, write_text
from isocompute_sdk.ingest.attempts import RunLog
from isocompute_sdk.ingest.copies import LoadedRun, once, same_runs, told
from isocompute_sdk.ingest.find import (
    REQUEST,
    NoRewardLearning,
    belongs_to_journal,
    has_journal,
    is_run_folder,
    run_folder_of,
)
from isocompute_sdk.ingest.formats.log_format import (
    TRAIN_REWARD,
    TRAIN_SET,
    StepUnit,
)
from isocompute_sdk.ingest.formats.registry import broken
from isocompute_sdk.ingest.log_runs import (
    N_AND_BP,
    Resolved,
    add_log,
    ask_for_evaluation,
    find_all_logs,
    resolve,
)
from isocompute_sdk.ingest.log_table import Reading, tabulate
from isocompute_sdk.ingest.paths import (
    Listing,
    as_paths,
    format_of,
    holds_journals,
    is_log,
    json_tables,
    label,
    readable,
    refuse_unknown_names,
    tables_among,
)
from isocompute_sdk.ingest.reader import read
from isocompute_sdk.ingest.stores.saved_config import find_config
from isocompute_sdk.ingest.tables import read_table
from isocompute_sdk.ingest.wandb_tables import logs_of_table, repeated_reward
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import listed
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.columns import BATCH, CONTEXT_FIELDS, batch_asked, canonical, check_fields
from isocompute_sdk.records.rewards import is_training_reward
from isocompute_sdk.records.runset import join
from isocompute_sdk.specs.base import Spec
from isocompute_sdk.specs.syntax.plain_yaml import load_spec, write_yaml

ON_TRAIN = f" on {TRAIN_SET}"
CONTEXT = ("seed", "framework", *CONTEXT_FIELDS)
"""Fields of a run's `context`."""
_HEADER = """\
# What every run is. Look at the values and the evidence, correct what is wrong, answer the questions (behind `answer:`
# for all their runs, or run by run under `runs:`), and read the runs:
#   isocompute doctor --map {name} --output runs.parquet
# n is group_size and B_p problems_per_batch. A run with `skip: true` is left out.
"""


class Question(Spec):
    """Something that could mean two things, or that nothing says."""

    asks: str
    """The question, in words."""
    field: str
    """What the answer fills: a field of the runs or of their context, or `rollouts_per_batch`."""
    runs: tuple[str, ...]
    """The runs it is about."""
    candidates: dict[str, str] = Field(default_factory=dict[str, str])
    """Accepted answers and what each would mean; empty where any number is accepted."""
    answer: str | int | float | None = None
    """To be filled in. A value in the entries of all its runs answers it too."""


class MappedRun(Spec):
    """What one run is."""

    skip: bool = False
    """True leaves it out."""
    group_size: int | None = Field(default=None, ge=1)
    """n."""
    problems_per_batch: int | None = Field(default=None, ge=1)
    """B_p."""
    rollouts_per_batch: int | None = Field(default=None, ge=1)
    """n B_p, in place of B_p."""
    step_unit: StepUnit | None = None
    """What its logged steps count; None for what its framework is known to count."""
    steps_per_batch: float | None = Field(default=None, gt=0)
    """Optimiser updates made with one rollout batch, if that is no whole number."""
    metrics: dict[str, str] = Field(default_factory=dict[str, str])
    """Tag -> metric, e.g. `eval/acc: avg@4` or `avg@4 on hard`, beside the tags that are known."""
    context: dict[str, str | int | float] = Field(default_factory=dict[str, str | int | float])
    """Seed and context: model, train_data, learning_rate, eval_samples and the like."""
    evidence: dict[str, str] = Field(default_factory=dict[str, str])
    """Field -> where the value was found. Not read."""


class RunMap(Spec):
    """Runs, questions about them, and where they lie."""

    kind: Literal["run-map"] = "run-map"
    schema_version: Literal[1] = 1
    searched: tuple[str, ...]
    """Files, folders and globs to read, relative to the folder of this file."""
    questions: dict[str, Question] = Field(default_factory=dict[str, Question])
    """What has to be answered first."""
    metric: str | None = None
    """What a column `reward` of a table holds, as with --metric."""
    rename: dict[str, str] = Field(default_factory=dict[str, str])
    """Name in the files -> name to use, as with --rename."""
    ignore: tuple[str, ...] = ()
    """Columns and tags to leave out, as with --ignore."""
    set: dict[str, str | int | float | bool] = Field(default_factory=dict[str, str | int | float | bool])
    """Values that tables lack, as with --set."""
    runs: dict[str, MappedRun] = Field(default_factory=dict[str, MappedRun])
    """Every run that does not say everything itself."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as YAML, with how to use it above.

        Raises:
            IsoComputeError: the file cannot be written.
        """
        data = self.model_dump(mode="json")
        for run in data["runs"].values():
            for name in [key for key, value in run.items() if value in (None, {}, False) and key not in N_AND_BP]:
                del run[name]
        kept = {key: value for key, value in data.items() if value or key not in ("metric", "rename", "ignore", "set")}
        with saving(path) as target:
            return write_text(target, _HEADER.format(name=target.name) + "\n" + write_yaml(kept))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RunMap:
        """Read a mapping.

        Raises:
            SpecError: it is no mapping; with file, line, field and what is accepted.
        """
        return load_spec(Path(path), cls)

    def told(
        self,
        metric: str | None = None,
        rename: Mapping[str, str] | None = None,
        ignore: Sequence[str] = (),
        set: Mapping[str, Any] | None = None,
    ) -> RunMap:
        """The same with more said about all runs, as by the options of a command; it holds before what the file says.

        Raises:
            RecordError: a value for all runs that is no column of a run.
        """
        renamed, given = dict(rename or {}), {canonical(name) or name: value for name, value in (set or {}).items()}
        check_fields(given, (*N_AND_BP, BATCH.name, *CONTEXT), "value for all runs")
        sizes = {name: given[name] for name in (*N_AND_BP, BATCH.name) if name in given}
        if BATCH.name in given:
            sizes["problems_per_batch"] = None
        context = {name: value for name, value in given.items() if name in CONTEXT}
        runs = {
            name: run.replace(
                **sizes,
                metrics=run.metrics | renamed,
                context=run.context | context,
                evidence=run.evidence | dict.fromkeys(sizes, "given with --set"),
            )
            for name, run in self.runs.items()
        }
        return self.replace(
            metric=self.metric if metric is None else metric,
            rename=self.rename | renamed,
            ignore=(*self.ignore, *ignore),
            set=self.set | dict(set or {}),
            runs=runs,
        )

    def open_questions(self) -> tuple[Question, ...]:
        """Questions that neither an answer nor the entries of their runs settle."""
        return tuple(question for question in self.questions.values() if self._is_open(question))

    def _is_open(self, question: Question) -> bool:
        if question.answer is not None:
            return False
        runs = [self.runs[name] for name in question.runs if name in self.runs and not self.runs[name].skip]
        return any(not _has(run, question.field) for run in runs)

    def readings(self, source: str = "mapping") -> dict[str, Reading]:
        """How to read every run that is not skipped.

        Raises:
            RecordError: a question is open, an answer is not one of its candidates, a value is missing or makes no
                sense.
        """
        _refuse_open(self, source)
        return {name: self.reading(name, source) for name, run in self.runs.items() if not run.skip}

    def entry(self, name: str) -> MappedRun:
        """The entry of a run, with the answers to what it lacks.

        Raises:
            SpecError: an answer that is no value of its field.
        """
        run = self.runs[name]
        answers = {q.field: q.answer for q in self.questions.values() if name in q.runs and q.answer is not None}
        tag = answers.pop("metrics", TRAIN_REWARD)
        for field, answer in answers.items():
            if not _has(run, field):
                more = {"context": {**run.context, field: answer}} if field in CONTEXT else {field: answer}
                run = run.replace(**more)
        if tag != TRAIN_REWARD and tag not in run.metrics:
            k = run.context.get("eval_samples")
            named = f"{TRAIN_REWARD}{ON_TRAIN}" if is_training_reward(str(tag)) else f"avg@{k}" if k else str(tag)
            run = run.replace(metrics={**run.metrics, str(tag): named})
        return run

    def reading(self, name: str, source: str = "mapping") -> Reading:
        """How to read one run.

        Raises:
            RecordError: a value is missing or makes no sense.
        """
        run, where = self.entry(name), f"{source}: run {name!r}"
        check_fields(run.context, CONTEXT, f"{where}: field of context")
        size, problems, batch = run.group_size, run.problems_per_batch, run.rollouts_per_batch
        if problems is None and batch is not None and size is not None:
            if batch % size:
                raise RecordError(
                    f"{where}: a batch of {batch} rollouts is no multiple of group_size {size}", "Correct the entry."
                )
            problems = batch // size
        if size is None or problems is None:
            raise RecordError(
                f"{where}: group_size is {size}, problems_per_batch is {problems}; accepted: whole numbers >= 1",
                "Write them into the entry of the run; or `skip: true`.",
            )
        kept = (self.ignore, run.context, run.steps_per_batch, self.metric)
        return Reading(size, problems, run.step_unit, run.metrics, *kept)


def _refuse_open(mapping: RunMap, source: str) -> None:
    still = mapping.open_questions()
    if still:
        first = still[0]
        accepted = ", ".join(first.candidates) or "a number"
        raise RecordError(
            f"{source}: {len(still)} question{'s are' if len(still) > 1 else ' is'} open; the first: {first.asks} "
            f"(runs {listed(first.runs, 4)}); accepted: {accepted}",
            "Write an answer behind `answer:` of each, or the value into the entries of its runs.",
        )
    for question in mapping.questions.values():
        answer = question.answer
        if answer is not None and question.candidates and str(answer) not in question.candidates:
            raise RecordError(
                f"{source}: answer {answer!r} to: {question.asks}; accepted: {', '.join(question.candidates)}",
                f"{did_you_mean(str(answer), list(question.candidates))}Write one of the candidates.",
            )


def _has(run: MappedRun, field: str) -> bool:
    if field in ("problems_per_batch", BATCH.name):
        return run.problems_per_batch is not None or run.rollouts_per_batch is not None
    if field == "metrics":
        return any(not name.endswith(ON_TRAIN) for name in run.metrics.values())
    if field in CONTEXT:
        return field in run.context
    return getattr(run, field) is not None


def draft(found: Collection, searched: Sequence[str | os.PathLike[str]]) -> RunMap:
    """The mapping of all runs that do not say everything themselves: what files say, and a question about the rest."""
    given = {canonical(key) or key: value for key, value in found.told["set"].items()}
    same = same_runs(found.logs, dict.fromkeys(found.logs, given))
    entries: dict[str, MappedRun] = {}
    asked: dict[tuple[str, ...], tuple[Question, list[str]]] = {}
    for name, run in same.runs.items():
        known = resolve(run, given)
        if name in same.copies:
            known.unknown.clear()
        else:
            ask_for_evaluation(known, run.log, found.told)
        entries[name] = _entry(known, same.copies.get(name))
        for field, one in known.unknown.items():
            question = Question(asks=one.asks, field=field, runs=(), candidates=dict(one.candidates))
            asked.setdefault((field, one.asks, *one.candidates), (question, []))[1].append(name)
    questions = {
        f"question-{i}": _of_runs(question.replace(runs=tuple(names)), entries)
        for i, (question, names) in enumerate(asked.values(), start=1)
    }
    return RunMap(searched=tuple(map(str, searched)), questions=questions, runs=entries, **found.told)


def _entry(found: Resolved, kept: str | None) -> MappedRun:
    own = {
        name: value for name, value in found.values.items() if name not in CONTEXT and name in MappedRun.model_fields
    }
    context = {name: found.values[name] for name in CONTEXT if found.values.get(name) is not None}
    if found.rollouts is not None:
        own[BATCH.name], found.evidence[BATCH.name] = found.rollouts.value, found.rollouts.evidence
    if kept is not None:
        own["skip"], found.evidence["skip"] = True, told(kept)
    if "step_unit" in found.evidence:
        own["step_unit"] = "rollout_batches"
    return MappedRun(**own, context=context, evidence=found.evidence)


def _of_runs(question: Question, entries: Mapping[str, MappedRun]) -> Question:
    """The question, about what its runs can share: with several n the rollouts of an update in place of B_p."""
    if question.field != "problems_per_batch" or batch_asked([entries[name].group_size for name in question.runs]) == (
        question.field
    ):
        return question
    asks = (
        f"{question.asks} These runs differ in n: if all had the same n x B_p, how many completions did an update "
        f"have over all GPUs? If not, write problems_per_batch into each entry."
    )
    return question.replace(asks=asks, field=BATCH.name)


MAY_HOLD = (".json", ".log", ".out", ".txt")
"""Endings of files that may hold measurements and are read only if they are known for a log, or named."""


@dataclass
class Collection:
    """What was found."""

    told: dict[str, Any]
    """What was said about all runs: `metric`, `rename`, `ignore` and `set`."""
    logs: dict[str, LoadedRun] = attribute(default_factory=dict[str, LoadedRun])
    """Run -> its log."""
    tables: dict[Path, RunSet] = attribute(default_factory=dict[Path, RunSet])
    """Files, or folders of our own runs, that say everything themselves."""
    copies: list[tuple[Path, RunSet, str]] = attribute(default_factory=list[tuple[Path, RunSet, str]])
    """Runs of tables that repeat one of another table: file, run, name of the other one."""
    unreadable: dict[Path, IsoComputeError] = attribute(default_factory=dict[Path, IsoComputeError])
    columns: dict[str, None] = attribute(default_factory=dict[str, None])
    """Columns of the tables, as they are written."""
    unread: Counter[str] = attribute(default_factory=Counter[str])
    """Ending -> files that were not looked at and may hold measurements."""

    def attempt(self, path: Path, look: Callable[[], None]) -> None:
        """Read something, or take down why it cannot be read."""
        try:
            look()
        except IsoComputeError as error:
            self.unreadable[path] = error
        except OSError as error:
            self.unreadable[path] = RecordError(f"{path} cannot be read: {error.strerror}", "Check its permissions.")


def collect(paths: Sequence[str | os.PathLike[str]], told: Mapping[str, Any]) -> Collection:
    """Read all that lies at or below `paths`: files, folders or globs."""
    found = Collection(dict(told))
    with readable():
        listings = [Listing.of(path) for path in paths]
        for listing in listings:
            _below(found, listing)
    tables = list(found.tables.items())
    frames, copies = once([runs.to_polars() for _, runs in tables])
    found.copies = [(tables[i][0], tables[i][1].filter(run_id=run), of) for (i, run), (_, of) in copies.items()]
    parts = zip(tables, frames, strict=True)
    found.tables = {path: RunSet(frame, runs.notes) for (path, runs), frame in parts if not frame.is_empty()}
    if not (found.logs or found.tables or found.unreadable):
        endings = Counter(file.suffix or file.name for listing in listings for file in listing.files)
        shown = ", ".join(f"{count} {ending}" for ending, count in endings.most_common(10))
        raise RecordError(
            f"nothing to read at or below {', '.join(map(str, paths))}; not looked at: {shown or 'no files'}",
            "Give files, folders or globs that hold logs, CSV, Parquet or JSONL; name a file to see why it is none.",
        )
    if found.columns or found.logs:
        tags = dict.fromkeys(tag for one in found.logs.values() for tag in one.log.tags)
        refuse_unknown_names([*told["rename"], *told["ignore"]], [*found.columns, *tags])
    return found


def _below(found: Collection, listing: Listing) -> None:
    for folder in listing.locked:
        found.unreadable[folder] = RecordError(f"no permission to read {folder}", "Check its permissions.")
    journals = holds_journals(listing)
    if journals:
        found.attempt(listing.path, lambda: _table(found, listing.path))
    logs = find_all_logs([listing], "auto", mixed=True).sources
    for name, source in logs.items():
        # The journal of a run says all that the logs beside it say.
        if not (journals and belongs_to_journal(source.paths[0], source.root)):
            found.attempt(
                source.paths[0], lambda name=name, source=source: add_log(found.logs, name, LoadedRun(*source.read()))
            )
    inside = {source.folder for source in logs.values()}
    for folder in (file.parent for file in listing.files if file.name == REQUEST):
        if is_run_folder(folder) and folder not in inside and not has_journal(folder):
            error = f"{folder}: a launch script made it, and there is no log to read yet"
            found.unreadable[folder] = RecordError(error, "Wait for its first update; its console says more.")
    # What lies in the folder of a run is its own: samples, problem sets, copies of its log.
    inside.discard(listing.path)
    tables = [file for file in (() if journals else _tables(listing)) if inside.isdisjoint(file.parents)]
    if not (tables or logs or journals):
        tables = json_tables(listing.files)
    taken = {*tables, *(path for source in logs.values() for path in source.paths)}
    taken |= {one.config.path for one in found.logs.values() if one.config is not None}
    for file in listing.files:
        if file.suffix in MAY_HOLD and file not in taken and inside.isdisjoint(file.parents):
            found.unread[file.suffix] += 1
    stems = Counter(file.stem for file in tables)
    for file in tables:
        # Of many files `metrics.csv` the folders tell the runs apart.
        name = label(file, tables) if stems[file.stem] > 1 else file.stem
        found.attempt(file, lambda file=file, name=name: _file(found, file, name))


def _tables(listing: Listing) -> list[Path]:
    """Files that may be tables: of a folder those with the ending of one, and whatever was named itself."""
    tables: list[Path] = []
    for root, files in listing.below.items():
        if root.is_dir():
            free = [file for file in tables_among(files) if run_folder_of(file.parent, root) is None]
            tables += [file for file in free if not belongs_to_journal(file, root)]
        elif not is_log(root):
            tables.append(root)
    return tables


def _table(found: Collection, path: Path) -> None:
    found.tables[path] = read(path, **found.told, partly=True, seen=found.columns)


def _file(found: Collection, path: Path, name: str) -> None:
    """A table, or the logs in it; a log without a name of its own is called `name`."""
    try:
        _table(found, path)
    except RecordError as error:
        # What options would mend is asked about as it is.
        if error.options and not any(option.startswith("--set") for option in error.options):
            raise
        try:
            logs = logs_of_table(path, read_table(path, format_of(path)), found.told["rename"], found.told["ignore"])
        except NoRewardLearning:
            raise
        except RecordError:
            raise error from None
        if any(_says_sizes(log) or repeated_reward(log) is not None for log in logs):
            raise
        for log in logs:
            own = name if log.name == path.stem else log.name
            add_log(found.logs, own, LoadedRun(log, find_config(path.parent, path.parent)))


def _says_sizes(log: RunLog) -> bool:
    """Whether a log has the columns of a table that says n and B_p: what is wrong with the table is wrong with it."""
    steps = {step for tag in log.tags for step in log.series(tag).step_T.tolist()}
    counted = log.rollouts is not None and steps <= set(log.rollouts.step_T.tolist())
    return "group_size" in log.said and (counted or "problems_per_batch" in log.said)


def propose(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    relative_to: str | os.PathLike[str] = ".",
    *,
    metric: str | None = None,
    rename: Mapping[str, str] | None = None,
    ignore: Sequence[str] = (),
    set: Mapping[str, Any] | None = None,
) -> RunMap:
    """One mapping for all runs at or below `paths` that do not say everything themselves.

    Args:
        paths: files, folders or globs.
        relative_to: folder that the mapping will be saved in; its paths are relative to it.
        metric: what a column `reward` of a table holds.
        rename: name in the files -> name to use.
        ignore: columns and tags to leave out.
        set: column -> value for all runs.

    Raises:
        RecordError: there is nothing to read.
    """
    every = as_paths(paths)
    told = {"metric": metric, "rename": dict(rename or {}), "ignore": tuple(ignore), "set": dict(set or {})}
    return draft(collect(every, told), [os.path.relpath(path, relative_to) for path in every])


def read_mapped(path: str | os.PathLike[str], mapping: RunMap | None = None) -> RunSet:
    """Read every run of a mapping, and the tables beside them.

    Args:
        path: the mapping's file; what it searched is relative to its folder.
        mapping: its contents, if already loaded.

    Raises:
        RecordError: a question is open, the mapping is not confirmed, a run of it is gone, a file cannot be read.
    """
    mapping = RunMap.load(path) if mapping is None else mapping
    readings = mapping.readings(str(path))
    found = collect([Path(path).parent / searched for searched in mapping.searched], told_of(mapping))
    notes: list[Note] = [*broken()]
    tables: dict[str, Any] = {}
    for name, reading in readings.items():
        if name not in found.logs:
            raise RecordError(
                f"{path}: run {name!r} is not there; found: {', '.join(found.logs) or 'none'}",
                f"{did_you_mean(name, list(found.logs))}Propose the mapping again, or write `skip: true` in its entry.",
            )
        tables[name], told_of_run = tabulate(found.logs[name].log, reading)
        notes += told_of_run
    for file, error in found.unreadable.items():
        notes.append(Note("files-not-read", "warning", f"not read: {error}", {"files": [str(file)]}))
    strangers = [name for name in found.logs if name not in mapping.runs]
    if strangers:
        message = f"runs that the mapping does not know were left out: {', '.join(strangers)}. Propose it again."
        notes.append(Note("run-left-out", "warning", message, {"runs": strangers}))
    for file, runs in found.tables.items():
        tables[str(file)] = runs.to_polars()
        notes += runs.notes
    try:
        return RunSet(join([*tables.values()], [*tables], "error"), notes)
    except RecordError as error:
        hint = f"{path} searches {', '.join(mapping.searched)}: write into `searched` only what is to be read."
        raise RecordError(error.message, f"{error.hint} {hint}" if error.hint else hint) from error


def told_of(mapping: RunMap) -> dict[str, Any]:
    """What a mapping says about all runs, as `collect` takes it."""
    return {"metric": mapping.metric, "rename": mapping.rename, "ignore": mapping.ignore, "set": mapping.set}
