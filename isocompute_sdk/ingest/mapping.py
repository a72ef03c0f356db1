"""`RunMap`: one file that says what every run of a folder is, proposed by us and confirmed by a person.

A value stands in the entry of its run with the evidence for it beside it. What nothing says, or what sources say
differently, is a question, and a mapping with an open question is not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from isocompute_sdk import files
from isocompute_sdk.errors import RecordError, did_you_mean
from isocompute_sdk.ingest.attempts import RunLog
from isocompute_sdk.ingest.copies import told
from isocompute_sdk.ingest.formats.log_format import (
    LOOKS_LIKE_EVALUATION,
    TRAIN_REWARD,
    TRAIN_SET,
    VALIDATION,
    StepUnit,
)
from isocompute_sdk.ingest.log_runs import N_AND_BP, LoadedRun, Resolved, Unknown, is_table, resolve
from isocompute_sdk.ingest.log_table import Reading
from isocompute_sdk.phrases import listed
from isocompute_sdk.records.columns import BATCH, BY_NAME, CONTEXT_FIELDS, batch_asked, canonical, check_fields
from isocompute_sdk.records.rewards import OTHER, is_training_reward, rank
from isocompute_sdk.specs.base import Spec
from isocompute_sdk.specs.syntax.plain_yaml import write_yaml
from isocompute_sdk.specs.syntax.spec_files import load_spec

ON_TRAIN = f" on {TRAIN_SET}"
CONTEXT = ("seed", "framework", *CONTEXT_FIELDS)
"""Fields of a run's `context`."""
_HEADER = """\
# What every run is. Look at the values and the evidence, correct what is wrong, answer the questions (write one of the
# candidates behind `answer:`), set `confirmed: true`, and read the runs:
#   isocompute doctor --map {name} --output runs.parquet
# n is group_size and B_p problems_per_batch; a change in mid-run is written {{0: 8, 100: 16}}: 16 from the update after
# step 100 on. A run with `skip: true` is left out. What stands in `shared` holds for every run without a value.
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
    group_size: int | dict[int, int] | None = None
    """n; or step -> n if it changed."""
    problems_per_batch: int | dict[int, int] | None = None
    """B_p; or step -> B_p if it changed."""
    rollouts_per_batch: int | None = None
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
    confirmed: bool = False
    """True once a person has looked at it. Proposed as true where nothing is asked."""
    questions: dict[str, Question] = Field(default_factory=dict[str, Question])
    """What has to be answered first."""
    shared: dict[str, str | int | float] = Field(default_factory=dict[str, str | int | float])
    """Context of every run that has no value of its own."""
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
        with files.saving(path) as target:
            return files.write_text(target, _HEADER.format(name=target.name) + "\n" + write_yaml(kept))

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
        return any(not _has(run, question.field, self.shared) for run in runs)

    def readings(self, source: str = "mapping") -> dict[str, Reading]:
        """How to read every run that is not skipped.

        Raises:
            RecordError: a question is open, an answer is not one of its candidates, the mapping is not confirmed, a
                value is missing or makes no sense.
        """
        _refuse_open(self, source)
        check_fields(self.shared, CONTEXT, f"{source}: field of shared")
        return {name: self.reading(name, source) for name, run in self.runs.items() if not run.skip}

    def reading(self, name: str, source: str = "mapping") -> Reading:
        """How to read one run.

        Raises:
            RecordError: a value is missing or makes no sense.
        """
        run, where = self.runs[name], f"{source}: run {name!r}"
        check_fields(run.context, CONTEXT, f"{where}: field of context")
        answers = {q.field: q.answer for q in self.questions.values() if name in q.runs and q.answer is not None}
        context = {**self.shared, **{k: v for k, v in answers.items() if k in CONTEXT}, **run.context}
        size: Any = _whole(answers.get("group_size"), where) if run.group_size is None else run.group_size
        problems: Any = run.problems_per_batch
        if problems is None:
            problems = _whole(answers.get("problems_per_batch"), where)
        batch = _whole(answers.get(BATCH.name), where) if run.rollouts_per_batch is None else run.rollouts_per_batch
        if problems is None and batch is not None and isinstance(size, int):
            if batch % size:
                raise RecordError(
                    f"{where}: a batch of {batch} rollouts is no multiple of group_size {size}", "Correct the entry."
                )
            problems = batch // size
        for field, value in zip(N_AND_BP, (size, problems), strict=True):
            pieces = value if isinstance(value, Mapping) else {0: value}
            if 0 not in pieces or any(number is None or number < 1 or step < 0 for step, number in pieces.items()):
                raise RecordError(
                    f"{where}: {field} is {value!r}; accepted: a whole number >= 1, or step -> number from step 0 on "
                    "where it changed",
                    "Write it into the entry of the run, such as 8 or {0: 8, 100: 16}; or `skip: true`.",
                )
        metrics = dict(run.metrics)
        if "metrics" in answers and answers["metrics"] != TRAIN_REWARD:
            k, tag = context.get("eval_samples"), str(answers["metrics"])
            named = f"{TRAIN_REWARD}{ON_TRAIN}" if is_training_reward(tag) else f"avg@{k}" if k else tag
            metrics.setdefault(tag, named)
        sizes: tuple[Any, Any] = (size, problems)
        unit: Any = run.step_unit or answers.get("step_unit")
        return Reading(*sizes, unit, metrics, self.ignore, context, run.steps_per_batch, self.metric)


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
    if not mapping.confirmed:
        raise RecordError(
            f"{source} is not confirmed", "Look at the values and their evidence, then set `confirmed: true`."
        )


def _has(run: MappedRun, field: str, shared: Mapping[str, Any]) -> bool:
    if field in ("problems_per_batch", BATCH.name):
        return run.problems_per_batch is not None or run.rollouts_per_batch is not None
    if field == "metrics":
        return any(not name.endswith(ON_TRAIN) for name in run.metrics.values())
    if field in CONTEXT:
        return field in run.context or field in shared
    return getattr(run, field) is not None


def _whole(answer: Any, where: str) -> int | None:
    if answer is None:
        return None
    try:
        number = float(answer)
    except ValueError:
        number = float("nan")
    if not (number >= 1 and number == int(number)):
        raise RecordError(f"{where}: answer {answer!r}; accepted: a whole number >= 1", "Correct the answer.")
    return int(number)


def draft(
    runs: Mapping[str, LoadedRun],
    copies: Mapping[str, str],
    searched: Sequence[str | os.PathLike[str]],
    told_of_all: Mapping[str, Any],
) -> RunMap:
    """The mapping of runs that were found: what files say, and a question about everything else.

    Args:
        runs: run -> its log and configuration.
        copies: run -> the run that it repeats; it is skipped.
        searched: where they were found.
        told_of_all: `metric`, `rename`, `ignore` and `set` as a person said.
    """
    given = {canonical(key) or key: value for key, value in told_of_all["set"].items()}
    entries: dict[str, MappedRun] = {}
    asked: dict[tuple[str, ...], tuple[Question, list[str]]] = {}
    for name, run in runs.items():
        found = resolve(run, given)
        if name in copies:
            found.unknown.clear()
        else:
            _evaluation(found, run.log, told_of_all)
        entries[name] = _entry(found, copies.get(name))
        for field, one in found.unknown.items():
            question = Question(asks=one.asks, field=field, runs=(), candidates=dict(one.candidates))
            asked.setdefault((field, one.asks, *one.candidates), (question, []))[1].append(name)
    questions = {
        f"question-{i}": _of_runs(question.replace(runs=tuple(names)), entries)
        for i, (question, names) in enumerate(asked.values(), start=1)
    }
    return RunMap(
        searched=tuple(map(str, searched)), confirmed=not questions, questions=questions, runs=entries, **told_of_all
    )


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
        f"{question.asks} These runs differ in n: if all had the same n x B_p, how many completions had an update over "
        "all GPUs? If not, write problems_per_batch into each entry."
    )
    return question.replace(asks=asks, field=BATCH.name)


def _evaluation(found: Resolved, log: RunLog, told_of_all: Mapping[str, Any]) -> None:
    """Which tag is the evaluation, by names that may be one's; of a log with a training reward only if there is one."""
    asked, rename = told_of_all["metric"], told_of_all["rename"]
    known = log.meanings(found.values.get("eval_samples"))
    metrics = {tag: rename[tag] for tag in log.tags if tag in rename}
    metrics |= {tag: tag for tag in log.tags if tag == asked and tag not in known}
    trained = any(meaning.metric == TRAIN_REWARD for meaning in known.values())
    own = None if trained else _training_tag(log, known)
    if own is not None and own not in metrics:
        metrics[own] = asked if asked and own.lower() == "reward" else f"{TRAIN_REWARD}{ON_TRAIN}"
    metrics |= {tag: tag for tag in log.tags if tag not in BY_NAME and re.match("(avg|best|worst)@", tag)}
    found.values["metrics"] = metrics
    named = {*metrics.values(), *(meaning.metric for meaning in known.values())}
    if asked in named or any(re.match("(avg|best|worst)@", name) for name in named):
        # How many samples are behind a mean decides only what it is called: a note says that it is unknown.
        return
    components = re.compile("(?!)" if log.framework is None else log.framework.components)
    left = {*known, *metrics, *told_of_all["ignore"]}
    open_ = [tag for tag in log.tags if tag not in left and not components.fullmatch(tag)]
    open_ = [tag for tag in open_ if not ((trained or own) and is_training_reward(tag))]
    places = {tag: place for tag in open_ if (place := rank(tag, VALIDATION)) is not None}
    table = is_table(log)
    if table:
        likely = sorted((tag for tag, place in places.items() if place < OTHER), key=lambda tag: places[tag])
    else:
        likely = [tag for tag in places if LOOKS_LIKE_EVALUATION.fullmatch(tag)]
    if (trained or own) and not likely:
        # The training reward is no evaluation: what reads it says so, and there is nothing to ask.
        return
    if table and (len(likely) == 1 or not places):
        metrics |= {tag: tag for tag in likely}
        return
    open_.sort(key=lambda tag: places.get(tag, OTHER + 1))
    candidates = {tag: _described(log, tag) for tag in (likely or open_)[:12]}
    if trained or own:
        candidates[TRAIN_REWARD] = "the training reward, where none of them is an evaluation"
    found.unknown["metrics"] = Unknown("Which of these is the validation reward (avg@k)?", candidates)
    if "eval_samples" not in found.values and not table:
        found.unknown["eval_samples"] = Unknown("How many samples per problem are behind the evaluation?")


def _training_tag(log: RunLog, known: Mapping[str, Any]) -> str | None:
    """The tag that is named as a training reward; of a table also `reward` alone."""
    bare = [tag for tag in log.tags if is_table(log) and tag.lower() == "reward"]
    named = [tag for tag in (*bare, *filter(is_training_reward, log.tags)) if tag not in known]
    return min(named, key=len, default=None)


def _described(log: RunLog, tag: str) -> str:
    series = log.series(tag)
    return f"{len(series.step_T)} values, {series.value_T[0]:.4g} to {series.value_T[-1]:.4g}"
