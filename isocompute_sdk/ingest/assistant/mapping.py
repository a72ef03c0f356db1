"""`RunMap`: one file that says what every run of a folder is, proposed by us and confirmed by a person.

A value stands in the entry of its run with the evidence for it beside it. What could mean two things stands in no
entry but in a question with its candidates, and a mapping with an open question is not read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from isocompute_sdk import files
from isocompute_sdk.errors import RecordError, did_you_mean
from isocompute_sdk.ingest.formats.log_format import TRAIN_REWARD, TRAIN_SET, StepUnit
from isocompute_sdk.ingest.run_logs.log_table import Reading
from isocompute_sdk.phrases import listed
from isocompute_sdk.records.columns import BATCH, CONTEXT_FIELDS, canonical, check_fields
from isocompute_sdk.records.rewards import is_training_reward
from isocompute_sdk.specs.base import Spec
from isocompute_sdk.specs.syntax.plain_yaml import write_yaml
from isocompute_sdk.specs.syntax.spec_files import load_spec

ON_TRAIN = f" on {TRAIN_SET}"
_SIZES = ("group_size", "problems_per_batch")
CONTEXT = ("seed", "framework", *CONTEXT_FIELDS)
"""Fields of a run's `context`."""
_HEADER = """\
# What every run is. Look at the values and the evidence, correct what is wrong, answer the questions (write one of the
# candidates behind `answer:`), set `confirmed: true`, and read the runs:
#   isocompute ingest --map {name} --output runs.parquet
# n is group_size and B_p problems_per_batch; a change in mid-run is written {{0: 8, 100: 16}}: 16 from the update after
# step 100 on. A run with `skip: true` is left out. What stands in `shared` holds for every run without a value.
"""


class Question(Spec):
    """Something that could mean two things, or that nothing says."""

    asks: str
    """The question, in words."""
    field: str
    """What the answer fills: `batch` (problems or rollouts), or a field of the runs."""
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
    batch: int | None = None
    """A batch size that may count problems or rollouts."""
    step_unit: StepUnit | None = None
    """What its logged steps count; None for what its framework is known to count."""
    steps_per_batch: float | None = Field(default=None, gt=0)
    """Optimiser updates made with one rollout batch, if that is no whole number."""
    metrics: dict[str, str] = Field(default_factory=dict[str, str])
    """Tag -> metric, e.g. `eval/acc: avg@4` or `avg@4 on hard`, beside the tags that are known."""
    context: dict[str, str | int | float] = Field(default_factory=dict[str, str | int | float])
    """Seed and context: model, train_data, learning_rate, eval_samples and the like."""
    evidence: dict[str, str] = Field(default_factory=dict[str, str])
    """Field -> confidence (certain, likely) and where the value was found. Not read."""


class RunMap(Spec):
    """Runs, questions about them, and where they lie."""

    kind: Literal["run-map"] = "run-map"
    schema_version: Literal[1] = 1
    searched: tuple[str, ...]
    """Files, folders and globs to read, relative to the folder of this file."""
    confirmed: bool = False
    """True once a person has looked at it. Proposed as true only where every value is certain."""
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
        with files.saving(path) as target:
            return files.write_text(target, _HEADER.format(name=target.name) + "\n" + write_yaml(_plain(self)))

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
        check_fields(given, (*_SIZES, BATCH.name, *CONTEXT), "value for all runs")
        sizes = {name: given[name] for name in _SIZES if name in given}
        if BATCH.name in given:
            sizes |= {"problems_per_batch": None, "batch": given[BATCH.name]}
        context = {name: value for name, value in given.items() if name in CONTEXT}
        certain = dict.fromkeys(sizes, "certain: given with --set")
        runs = {
            name: run.replace(
                **sizes,
                metrics=run.metrics | renamed,
                context=run.context | context,
                evidence=run.evidence | certain,
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
        return {name: self._reading(name, run, source) for name, run in self.runs.items() if not run.skip}

    def _reading(self, name: str, run: MappedRun, source: str) -> Reading:
        where = f"{source}: run {name!r}"
        check_fields(run.context, CONTEXT, f"{where}: field of context")
        answers = {q.field: q.answer for q in self.questions.values() if name in q.runs and q.answer is not None}
        context = {**self.shared, **{k: v for k, v in answers.items() if k in CONTEXT}, **run.context}
        size = run.group_size if run.group_size is not None else _whole(answers.get("group_size"), where)
        problems: Any = run.problems_per_batch
        if problems is None:
            problems = _whole(answers.get("problems_per_batch"), where)
        if problems is None and run.batch is not None:
            problems = _problems(run, size, "rollouts" if _counts_rollouts(run) else answers.get("batch"), where)
        if problems is None and BATCH.name in answers:
            batch = _whole(answers[BATCH.name], where)
            problems = _problems(run.replace(batch=batch), size, "rollouts", where)
        for field, value in (("group_size", size), ("problems_per_batch", problems)):
            if value is None:
                raise RecordError(
                    f"{where} has no {field}; accepted: a whole number >= 1, or step -> number where it changed",
                    "Write it into the entry of the run, or `skip: true` to leave the run out.",
                )
            _check_numbers(where, field, value)
        unit: Any = run.step_unit or answers.get("step_unit")
        metrics = dict(run.metrics)
        if "metrics" in answers and answers["metrics"] != TRAIN_REWARD:
            k, tag = context.get("eval_samples"), str(answers["metrics"])
            named = f"{TRAIN_REWARD}{ON_TRAIN}" if is_training_reward(tag) else f"avg@{k}" if k else tag
            metrics.setdefault(tag, named)
        sizes: tuple[Any, Any] = (size, problems)
        return Reading(*sizes, unit, metrics, self.ignore, context, run.steps_per_batch, self.metric)


def _plain(mapping: RunMap) -> dict[str, Any]:
    """The mapping as plain data: empty fields of runs are left out, answers are there to be filled in."""
    data = mapping.model_dump(mode="json")
    data["runs"] = {
        name: {key: value for key, value in run.items() if value not in (None, {}, False) or key in _ALWAYS}
        for name, run in data["runs"].items()
    }
    for question in data["questions"].values():
        question["runs"] = list(question["runs"])
    return {key: value for key, value in data.items() if value or key not in ("metric", "rename", "ignore", "set")}


_ALWAYS = _SIZES


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
            f"{source} is not confirmed: it holds values that were taken from the names of runs, or from files that "
            "do not name their framework",
            "Look at the values and their evidence, then set `confirmed: true`.",
        )


def _has(run: MappedRun, field: str, shared: Mapping[str, Any]) -> bool:
    if field in ("problems_per_batch", "batch", BATCH.name):
        return run.problems_per_batch is not None or _counts_rollouts(run)
    if field == "metrics":
        return any(not name.endswith(ON_TRAIN) for name in run.metrics.values())
    if field in CONTEXT:
        return field in run.context or field in shared
    return getattr(run, field) is not None


def _counts_rollouts(run: MappedRun) -> bool:
    return run.batch is not None and run.evidence.get("batch", "").startswith("certain")


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


def _problems(run: MappedRun, size: Any, answer: Any, where: str) -> int | None:
    """B_p from a batch size and what it counts."""
    if answer == "problems":
        return run.batch
    if answer == "rollouts" and isinstance(size, int) and run.batch is not None:
        if run.batch % size:
            raise RecordError(
                f"{where}: a batch of {run.batch} rollouts is no multiple of group_size {size}",
                "It cannot count rollouts then: answer `problems`, or correct the entry.",
            )
        return run.batch // size
    return None


def _check_numbers(where: str, field: str, value: int | Mapping[int, int]) -> None:
    pieces = value if isinstance(value, Mapping) else {0: value}
    for step, number in pieces.items():
        if number < 1 or step < 0 or 0 not in pieces:
            raise RecordError(
                f"{where}: {field} is {value!r}; accepted: a whole number >= 1, or step -> number from step 0 on",
                "For example {0: 8, 100: 16}.",
            )
