"""`RunMap`: one file that says what every run at or below some paths is.

A value stands in the entry of its run with the evidence for it beside it. What nothing says, or what sources say
differently, is a question, and a mapping with an open question is not read. The doctor starts here too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, cast

from pydantic import Field

from isocompute_sdk.errors import RecordError, SpecError, did_you_mean
from isocompute_sdk.files import saving, write_text
from isocompute_sdk.ingest.copies import same_runs, told
from isocompute_sdk.ingest.formats.log_format import TRAIN_REWARD, TRAIN_SET, StepUnit
from isocompute_sdk.ingest.log_runs import Question, Resolved, ask_for_evaluation, given_to, is_table, resolve
from isocompute_sdk.ingest.paths import as_paths
from isocompute_sdk.ingest.reader import Collection, collect
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import listed
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.columns import (
    BATCH,
    CONTEXT_FIELDS,
    N_AND_BP,
    Options,
    batch_asked,
    canonical,
    check_fields,
)
from isocompute_sdk.records.reward_metrics import is_training_reward
from isocompute_sdk.records.suggested import size_in_name
from isocompute_sdk.specs.base import Spec
from isocompute_sdk.specs.syntax.plain_yaml import load_spec, write_yaml

ON_TRAIN = f" on {TRAIN_SET}"
CONTEXT = ("seed", "framework", *CONTEXT_FIELDS)
"""Fields of a run's `context`."""
NAMES = "names"
"""Field of the question whether n and B_p are what the names of runs say."""
_BY_NAME = "the run's name, "
"""Beginning of the evidence for a size that only the name of a run says."""
_RIGHT = {"right": "they are, or were corrected"}
_HEADER = """\
# All runs found. Look at the values and the evidence, correct what is wrong, answer the questions (after `answer:`
# for all their runs, or run by run under `runs:`), and read the runs:
#   isocompute doctor --map {name} --output {table}
# n is group_size and B_p problems_per_batch; updates_per_batch and eval_samples of a run go under its `context:`.
# A run with `skip: true` is left out.
"""


class Said(TypedDict, total=False):
    """What a person said about all runs."""

    metric: str | None
    """What a column `reward` of a table holds."""
    rename: Mapping[str, str] | None
    """Name in the files -> name to use."""
    ignore: Sequence[str]
    """Columns and tags to leave out."""
    set: Mapping[str, Any] | None
    """Column -> value for all runs."""


class MappedRun(Spec):
    """What one run is."""

    skip: bool = False
    """True leaves it out."""
    group_size: int | None = Field(default=None, ge=1)
    """n."""
    problems_per_batch: int | None = Field(default=None, ge=1)
    """B_p."""
    rollouts_per_batch: int | None = Field(default=None, ge=1)
    """n B_p, instead of B_p or n."""
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

    def guessed(self, size: str) -> bool:
        """Whether only the name of the run says this size."""
        return self.evidence.get(size, "").startswith(_BY_NAME)


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
            return write_text(
                target, _HEADER.format(name=target.name, table=table_name(target)) + "\n" + write_yaml(kept)
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RunMap:
        """Read a mapping.

        Raises:
            SpecError: it is no mapping; with file, line, field and what is accepted.
        """
        return load_spec(Path(path), cls)

    def keeping(self, path: Path) -> RunMap:
        """The same with what a person wrote into the mapping at `path`, which holds before what files say.

        Raises:
            SpecError: the file there is about other runs, or no mapping that can be read.
        """
        other = "Choose another name, --output OTHER.yaml, or remove the file."
        try:
            old = RunMap.load(path)
        except SpecError as error:
            raise SpecError(f"{path} would be replaced, and cannot be read: {error.message}", other) from error
        gone = [name for name in old.runs if name not in self.runs]
        if old.searched != self.searched or gone:
            about = listed(gone if old.searched == self.searched else old.searched, 3)
            raise SpecError(f"{path} holds your answers about {about}; accepted: another file", other)
        answered = [one for one in old.questions.values() if one.answer is not None]
        settled = {(one.field, name) for one in answered for name in one.runs}
        for one in self.questions.values():
            runs = tuple(name for name in one.runs if (one.field, name) not in settled)
            answered += [one.replace(runs=runs)] if runs else []
        return self.replace(
            metric=old.metric if self.metric is None else self.metric,
            rename=old.rename | self.rename,
            ignore=tuple(dict.fromkeys((*old.ignore, *self.ignore))),
            set=old.set | self.set,
            questions={f"question-{i}": one for i, one in enumerate(answered, start=1)},
            runs={
                name: _kept(old.runs[name], run, {canonical(one) or one for one in self.set})
                if name in old.runs
                else run
                for name, run in self.runs.items()
            },
        )

    def told(self, **said: Unpack[Said]) -> RunMap:
        """The same with more said about all runs, as by the options of a command; it holds before what the file says.

        Raises:
            RecordError: a value for all runs that is no column of a run.
        """
        more = asked(**said)
        given = {canonical(name) or name: value for name, value in more.constants.items()}
        check_fields(given, (*N_AND_BP, BATCH.name, *CONTEXT), "value for all runs")
        sizes = {name: given[name] for name in (*N_AND_BP, BATCH.name) if name in given}
        if BATCH.name in given:
            sizes.setdefault("problems_per_batch", None)
        context = {name: value for name, value in given.items() if name in CONTEXT}
        runs = {
            name: run.replace(
                **sizes,
                metrics=run.metrics | dict(more.rename),
                context=run.context | context,
                evidence=run.evidence | dict.fromkeys(sizes, "given with --set"),
            )
            for name, run in self.runs.items()
        }
        # The runs of a table that lacked n or B_p have entries, where the answer stands now.
        answers = {name for name in more.constants if runs and canonical(name) in sizes and name not in self.set}
        constants = {name: value for name, value in more.constants.items() if name not in answers}
        return self.replace(
            metric=self.metric if more.metric is None else more.metric,
            rename=self.rename | dict(more.rename),
            ignore=(*self.ignore, *more.ignore),
            set=self.set | constants,
            runs=runs,
        )

    def open_questions(self) -> tuple[Question, ...]:
        """Questions that neither an answer nor the entries of their runs settle."""
        found: list[Question] = []
        for question in self.questions.values():
            runs = [self.runs[name] for name in question.runs if name in self.runs and not self.runs[name].skip]
            if question.answer is None and any(not _has(run, question.field) for run in runs):
                found.append(question)
        return tuple(found)

    def readings(self, source: str = "mapping") -> dict[str, Options]:
        """How to read the log of every run that is not skipped.

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
        answers.pop(NAMES, None)
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

    def reading(self, name: str, source: str = "mapping") -> Options:
        """How to read the log of one run.

        Raises:
            RecordError: a value is missing or makes no sense.
        """
        run, where = self.entry(name), f"{source}: run {name!r}"
        check_fields(run.context, CONTEXT, f"{where}: field of context")
        batch = run.rollouts_per_batch if None in (run.group_size, run.problems_per_batch) else None
        if [run.group_size, run.problems_per_batch, batch].count(None) > 1:
            raise RecordError(
                f"{where}: group_size is {run.group_size}, problems_per_batch is {run.problems_per_batch}; accepted: "
                "whole numbers >= 1",
                "Write them into the entry of the run; or `skip: true`.",
            )
        sizes = {"group_size": run.group_size, "problems_per_batch": run.problems_per_batch, BATCH.name: batch}
        steps = {} if run.steps_per_batch is None else {"updates_per_batch": run.steps_per_batch}
        constants = {**run.context, **sizes, **steps}
        return Options(
            self.metric, ignore=self.ignore, rename=run.metrics, constants=constants, step_unit=run.step_unit
        )

    def shared(self) -> Options:
        """What is said about all runs, and how tables are read."""
        return Options(self.metric, ignore=self.ignore, rename=self.rename, constants=self.set, lenient=True)


def _refuse_open(mapping: RunMap, source: str) -> None:
    still = mapping.open_questions()
    if still:
        first = still[0]
        accepted = ", ".join(first.candidates) or "a number"
        raise RecordError(
            f"{source}: {len(still)} question{'s are' if len(still) > 1 else ' is'} open; the first: {first.asks} "
            f"(runs {listed(first.runs, 4)}); accepted: {accepted}",
            "Write an answer after `answer:` in each.",
        )
    for question in mapping.questions.values():
        answer = question.answer
        if answer is not None and question.candidates:
            check_fields([str(answer)], [*question.candidates], f"{source}: answer to: {question.asks}")


def _has(run: MappedRun, field: str) -> bool:
    if field == "group_size":
        return run.group_size is not None or None not in (run.problems_per_batch, run.rollouts_per_batch)
    if field in ("problems_per_batch", BATCH.name):
        return run.problems_per_batch is not None or run.rollouts_per_batch is not None
    if field == "metrics":
        return any(not name.endswith(ON_TRAIN) for name in run.metrics.values())
    if field == NAMES:
        return not any(run.guessed(size) for size in N_AND_BP)
    if field in CONTEXT:
        return field in run.context
    return getattr(run, field) is not None


def _kept(old: MappedRun, now: MappedRun, given: Names[str]) -> MappedRun:
    """An entry that a person may have changed, with what is given now and what it does not say."""
    batch = {"problems_per_batch", BATCH.name}
    said = {name: value for name, value in old if name not in given and value not in (None, {}, False)}
    if batch & {*given}:
        said = {name: value for name, value in said.items() if name not in batch}
    context = now.context | {name: value for name, value in old.context.items() if name not in given}
    evidence = {name: text for name, text in now.evidence.items() if name not in said and name not in old.context}
    said |= {"context": context, "metrics": now.metrics | old.metrics, "evidence": old.evidence | evidence}
    return now.replace(**said)


def map_name(paths: Sequence[str | os.PathLike[str]]) -> str:
    """A name for the mapping of `paths`: map.yaml, unless that holds answers about something else."""
    name = "map.yaml"
    with suppress(SpecError):
        if not os.path.lexists(name) or RunMap.load(name).searched == tuple(os.path.relpath(path) for path in paths):
            return name
    return f"{named_after(paths)}-{name}"


def named_after(paths: Sequence[str | os.PathLike[str]]) -> str:
    """A name for files about `paths`: that of the first, with its folder, since many are called `logs`."""
    return re.sub(r"\W+", "-", "-".join(Path(paths[0]).parts[-2:]) if paths else "").strip("-") or "runs"


def table_name(mapping: str | os.PathLike[str]) -> str:
    """A name for the table of what a mapping reads."""
    stem = Path(mapping).stem
    return f"{'runs' if stem == 'map' else stem.removesuffix('-map')}.parquet"


def draft(found: Collection) -> RunMap:
    """The mapping of all runs that do not say everything themselves: what files say, and a question about the rest."""
    options = found.options
    given = {name: given_to(run, options) for name, run in found.logs.items()}
    same = same_runs(found.logs, given)
    entries: dict[str, MappedRun] = {}
    asked: dict[tuple[str, ...], tuple[Question, list[str]]] = {}
    for name, run in same.runs.items():
        known = resolve(run, given[name])
        if name in same.copies:
            known.unknown.clear()
        elif known.unknown or not is_table(run.log):
            ask_for_evaluation(known, run.log, options)
            _take_from_name(name, known)
        entries[name] = _entry(known, same.copies.get(name))
        for field, question in known.unknown.items():
            asked.setdefault((field, question.asks, *question.candidates), (question, []))[1].append(name)
    questions = {
        f"question-{i}": _of_runs(question.replace(runs=tuple(names)), entries)
        for i, (question, names) in enumerate(asked.values(), start=1)
    }
    return RunMap(
        searched=tuple(map(str, found.paths)),
        questions=questions,
        runs=entries,
        metric=options.metric,
        rename=dict(options.rename),
        ignore=tuple(options.ignore),
        set=cast("dict[str, Any]", dict(options.constants)),
    )


def _take_from_name(name: str, known: Resolved) -> None:
    """Answer what is asked about n and B_p by the run's name, where it says one number for it."""
    for field in (one for one in N_AND_BP if one in known.unknown and not known.unknown[one].candidates):
        if (said := size_in_name(name, field)) is not None:
            del known.unknown[field]
            known.take(field, said[0], f"{_BY_NAME}{said[1]}")
            known.ask(NAMES, "Are n and B_p what the names of these runs say? If not, correct them first.", _RIGHT)


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
    """The question, about what its runs can share: with several n the rollouts of an update instead of B_p."""
    if question.field != "problems_per_batch" or batch_asked([entries[name].group_size for name in question.runs]) == (
        question.field
    ):
        return question
    asks = (
        "No file states the problems_per_batch (B_p) of these runs, which differ in n. How many completions "
        "(n x B_p, over all GPUs) did each update of every run have? If they shared B_p instead, read this file with "
        "--set problems_per_batch=BP; if neither, write problems_per_batch into each entry."
    )
    return question.replace(asks=asks, field=BATCH.name)


def propose(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    relative_to: str | os.PathLike[str] = ".",
    **said: Unpack[Said],
) -> RunMap:
    """One mapping for all runs at or below `paths` that do not say everything themselves.

    Args:
        paths: files, folders or globs.
        relative_to: folder that the mapping will be saved in; its paths are relative to it.
        **said: what holds for all runs, see `Said`.

    Raises:
        RecordError: there is nothing to read, or nothing that can be read.
    """
    found = collect(as_paths(paths), asked(**said), ask=True)
    if not (found.logs or found.tables):
        raise next(iter(found.errors.values()))
    return draft(found).replace(searched=tuple(os.path.relpath(path, relative_to) for path in found.paths))


def asked(**said: Unpack[Said]) -> Options:
    """How tables and logs are read that may be asked about."""
    renamed, given = dict(said.get("rename") or {}), dict(said.get("set") or {})
    return Options(
        said.get("metric"), ignore=tuple(said.get("ignore", ())), rename=renamed, constants=given, lenient=True
    )


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
    found = collect_mapped(path, mapping)
    for name in readings:
        if name not in found.logs:
            raise RecordError(
                f"{path}: no run {name!r}; found: {', '.join(found.logs) or 'none'}",
                f"{did_you_mean(name, list(found.logs))}Write the mapping again, or write `skip: true` in its entry.",
            )
    strangers = [name for name in found.logs if name not in mapping.runs]
    if strangers:
        message = f"runs missing from the mapping were left out: {', '.join(strangers)}. Write the mapping again."
        found.notes.append(Note("run-left-out", "warning", message, {"runs": strangers}))
    try:
        return found.together(readings)
    except RecordError as error:
        hint = f"{path} searches {', '.join(mapping.searched)}: write into `searched` only what is to be read."
        more = error.restated(error.message)
        more.hint, more.shell_hint = (f"{one or ''} {hint}".strip() for one in (error.hint, error.shell_hint))
        raise more from error


def collect_mapped(path: str | os.PathLike[str], mapping: RunMap) -> Collection:
    """What a mapping searched, relative to the folder of its file."""
    return collect([Path(path).parent / searched for searched in mapping.searched], mapping.shared(), ask=True)
