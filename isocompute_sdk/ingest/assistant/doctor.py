"""`diagnose`: one finding per run of a folder, and per file that cannot be read: what is there and what to do."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from isocompute_sdk.errors import IsoComputeError, RecordError
from isocompute_sdk.ingest.assistant.collect import CollectedLog, Collection, Told, collect
from isocompute_sdk.ingest.assistant.mapping import RunMap
from isocompute_sdk.ingest.assistant.propose import mapping_of
from isocompute_sdk.ingest.finding.paths import as_paths
from isocompute_sdk.ingest.formats.registry import broken
from isocompute_sdk.ingest.reader import read
from isocompute_sdk.ingest.run_logs.log_table import tabulate
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import listed
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.columns import BATCH, CONTEXT_FIELDS, PLACEHOLDERS
from isocompute_sdk.records.comparable import learning_rate_rule
from isocompute_sdk.records.copies import told
from isocompute_sdk.records.input_table import Options
from isocompute_sdk.records.rewards import TRAIN_SET, headline, is_training_reward, undecided
from isocompute_sdk.records.table import build, join
from isocompute_sdk.records.trends import no_rise, no_rise_note

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FEW_EVALUATIONS = 4
"""Fewer evaluations than this say little about a curve."""


@dataclass(frozen=True)
class RunFinding:
    """One run, or one file that is not a run."""

    name: str
    """Run, or file that cannot be read."""
    source: str
    """Where it was read from."""
    group_size: str = "?"
    """n; several values if it changes; `?` if unknown."""
    problems_per_batch: str = "?"
    """B_p, as `group_size`."""
    rollouts: float | None = None
    """C at the last evaluation."""
    rollouts_spent: float | None = None
    """C paid for, attempts that were given up included."""
    metric: str | None = None
    """The evaluation that a fit would use."""
    evaluations: int = 0
    """How many values of it there are."""
    attempts: int = 1
    """How often the run was started, as far as its log shows."""
    context_group: int | None = None
    """Runs of one number may be pooled; None if the run cannot be read."""
    context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Context fields that are known."""
    problems: tuple[str, ...] = ()
    """What looks wrong."""
    advice: tuple[str, ...] = ()
    """What to do about it, in the same order."""
    runs: RunSet | None = None
    """What was measured; None if nothing was, or of a copy."""

    @property
    def readable(self) -> bool:
        """Whether something was measured that a fit can use."""
        return self.metric is not None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form."""
        return {
            **{name: value for name, value in vars(self).items() if name != "runs"},
            "context": dict(self.context),
            "problems": list(self.problems),
            "advice": list(self.advice),
        }


@dataclass(frozen=True)
class Diagnosis:
    """All findings, and what to do next."""

    runs: tuple[RunFinding, ...]
    groups: tuple[Mapping[str, Any], ...]
    """Context of each group, in the order of `RunFinding.context_group` from 1 on."""
    next: str
    """The command to give next, which works when pasted; why there is none, if nothing is usable."""
    usable: bool
    """Whether a run can be read, or could be once what its log leaves open is answered."""
    verdict: Literal["ready", "question", "unusable"] = "ready"
    """Whether all that is there can be read, or what stands in the way."""
    question: str | None = None
    """What has to be answered first; None unless the verdict is `question`."""
    remarks: tuple[str, ...] = ()
    """What is to be known before any number: no rise anywhere, several models, files that were not looked at."""


def diagnose(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    metric: str | None = None,
    rename: Mapping[str, str] | None = None,
    ignore: Sequence[str] = (),
    set: Mapping[str, Any] | None = None,
) -> Diagnosis:
    """Look at every run at or below `paths`; whatever cannot be read is a finding and never an error.

    Args:
        paths: files, folders or globs.
        metric: what a column `reward` of a table holds.
        rename: name in the files -> name to use.
        ignore: columns and tags to leave out.
        set: column -> value for all runs.

    Raises:
        RecordError: there is nothing at all, or no file has a name of `rename` or `ignore`.
    """
    every = as_paths(paths)
    told = Told(metric, dict(rename or {}), tuple(ignore), dict(set or {}))
    found = collect(every, told)
    return _diagnosis(found, mapping_of(found, every), [str(path) for path in every])


def diagnose_map(path: str | os.PathLike[str], mapping: RunMap | None = None) -> Diagnosis:
    """Look at every run of a mapping.

    Args:
        path: its file; what it searched is relative to its folder.
        mapping: its contents, if already loaded.

    Raises:
        SpecError: the file is no mapping.
        RecordError: there is nothing at all.
    """
    mapping = RunMap.load(path) if mapping is None else mapping
    folder = Path(path).parent
    told = Told(mapping.metric, mapping.rename, mapping.ignore, mapping.set)
    found = collect([folder / searched for searched in mapping.searched], told)
    known = {name: one for name, one in found.logs.items() if name in mapping.runs}
    seen = replace(found, logs=known)
    looked = _diagnosis(seen, mapping, [])
    next_ = f"isocompute ingest --map {shlex.quote(str(path))} --output runs.parquet"
    try:
        mapping.readings(str(path))
    except IsoComputeError as error:
        return replace(looked, verdict="question", question=error.message, next=next_, usable=True)
    return replace(looked, next=next_, verdict="ready" if looked.usable else "unusable", question=None)


def _diagnosis(found: Collection, mapping: RunMap, paths: Sequence[str]) -> Diagnosis:
    looked = _judged(found, mapping, paths)
    return replace(looked, remarks=(*_remarks(looked.runs), *([found.not_looked_at] if found.unread else [])))


def _remarks(findings: Sequence[RunFinding]) -> list[str]:
    """What all runs together show."""
    measured = [(one.runs, one.metric, one) for one in findings if one.runs is not None and one.metric is not None]
    curves: dict[str, list[NDArray[np.float64]]] = {}
    for runs, metric, _ in measured:
        sets = runs.filter(metric=metric).eval_sets
        curves.setdefault(metric, []).extend(one.value_T for where in sets for one in runs.series(metric, where))
    found = [no_rise_note(name, len(values)).message for name, values in curves.items() if no_rise(values)]
    for field_ in ("model", "train_data"):
        counts = Counter(str(one.context[field_]) for _, _, one in measured if one.context.get(field_) is not None)
        if len(counts) > 1:
            listed_ = ", ".join(f"{name} ({count} run{'s' * (count > 1)})" for name, count in counts.items())
            found.append(
                f"mixed: {len(counts)} values of {field_}: {listed_}. A fit takes one: isocompute ingest --where "
                f"{field_}=... keeps its runs."
            )
    return found


def _judged(found: Collection, mapping: RunMap, paths: Sequence[str]) -> Diagnosis:
    asked = found.told.metric
    findings = [finding for runs, path in _tables(found) for finding in _of_table(runs, path, asked)]
    copies = [_of_copy(path, runs, of, asked) for path, runs, of in found.copies]
    findings += [_of_log(name, one, mapping, asked) for name, one in found.logs.items()]
    findings += [_unreadable(path, error) for path, error in found.unreadable.items()]
    findings += [
        RunFinding(f"log format {note.data['format']}", "-", problems=(note.message,), advice=("repair or remove it",))
        for note in broken()
    ]
    findings, groups = _grouped([*findings, *copies])
    mend = next((error for error in found.unreadable.values() if _options(error)), None)
    open_ = any(not run.skip for run in mapping.runs.values()) and not mapping.confirmed
    usable = open_ or mend is not None or any(one.readable for one in findings)
    command = _Command(paths, found.told)
    if mend is not None:
        options = [text for text in _options(mend) if text not in command.words]
        if any(text.startswith("--metric") for text in options):
            command = replace(command, told=replace(found.told, metric=None))
        next_ = command.give("doctor", *options)
        return Diagnosis(tuple(findings), tuple(groups), next_, True, "question", _of_options(options))
    if open_:
        propose = command.give("ingest", "--propose map.yaml")
        return Diagnosis(tuple(findings), tuple(groups), propose, True, "question", _question(mapping))
    if asked := _rewards_asked(found):
        question = f"which is the reward: {' or '.join(asked[:8])}? The next command takes {asked[0]}."
        next_ = command.give("doctor", f"--metric {shlex.quote(asked[0])}")
        return Diagnosis(tuple(findings), tuple(groups), next_, True, "question", question)
    if usable:
        # A copy of another run is readable, and read only once.
        skipped = {name for name, run in mapping.runs.items() if run.skip}
        aside = {(one.name, one.source) for one in copies}
        counted = [one for one in findings if one.name not in skipped and (one.name, one.source) not in aside]
        return Diagnosis(tuple(findings), tuple(groups), command.reading(found, counted), True)
    advice = "nothing here can be read: see what each line says"
    return Diagnosis(tuple(findings), tuple(groups), advice, False, "unusable")


def _rewards_asked(found: Collection) -> list[str]:
    """Metrics of tables of which one may be the reward, where no name says which and nobody did."""
    if found.told.metric is not None:
        return []
    frames = [runs.to_polars().select("metric", "eval_set").unique() for runs in found.tables.values()]
    return undecided({(metric, where) for frame in frames for metric, where in frame.iter_rows()})


def _options(error: IsoComputeError) -> tuple[str, ...]:
    """Options that would make a file readable as they are; none where a number is still to be filled in."""
    return () if any(option.endswith(_OPEN) for option in error.options) else error.options


_OPEN = tuple(f"={place}" for place in PLACEHOLDERS.values())


def _of_options(options: Sequence[str]) -> str:
    """What options say about columns, as a question."""
    said: list[str] = []
    for flag, value in map(shlex.split, options):
        theirs, _, ours = value.partition("=")
        if flag == "--rename":
            symbol = f" ({_SYMBOLS[ours]})" if ours in _SYMBOLS else ""
            said.append(f"column {theirs!r} is {ours}{symbol}")
        else:
            said.append({"--ignore": f"column {value!r} is left out", "--metric": f"{value} is meant"}[flag])
    return f"is it right that {'; '.join(said)}?"


def _question(mapping: RunMap) -> str:
    """Everything that is open, as one question, and how to answer it at once if all runs share the answer."""
    asked = mapping.open_questions()
    if not asked:
        names = [name for name, run in mapping.runs.items() if any(map(_is_likely, run.evidence.values()))]
        return (
            f"is what names and columns say right for {listed(names, 3)}? The file shows each value with its evidence."
        )
    fields = list(dict.fromkeys(question.field for question in asked))
    runs = list(dict.fromkeys(run for question in asked for run in question.runs))
    nouns = [_NOUNS.get(field, field) for field in fields]
    named = nouns[0] if len(nouns) == 1 else f"{', '.join(nouns[:-1])} and {nouns[-1]}"
    about = f"what {'is' if len(nouns) == 1 else 'are'} {named} of {listed(runs, 3)}?"
    if not {*fields} <= PLACEHOLDERS.keys():
        return f"{about} Answer in the file that the next command writes."
    options = " ".join(f"--set {field}={PLACEHOLDERS[field]}" for field in fields)
    return f"{about} Answer in the file that the next command writes; or, if all runs share it, add {options}."


def _is_likely(evidence: str) -> bool:
    return not evidence.startswith("certain")


@dataclass(frozen=True)
class _Command:
    """Commands about the same files, with what was said about their columns."""

    paths: Sequence[str]
    told: Told

    @property
    def words(self) -> list[str]:
        """What was said, as options."""
        told = self.told
        return [
            *(f"--set {shlex.quote(f'{name}={value}')}" for name, value in told.set.items()),
            *(f"--rename {shlex.quote(f'{theirs}={ours}')}" for theirs, ours in told.rename.items()),
            *(f"--ignore {shlex.quote(name)}" for name in told.ignore),
            *([f"--metric {shlex.quote(told.metric)}"] if told.metric is not None else []),
        ]

    def give(self, command: str, *options: str, paths: Sequence[str] | None = None) -> str:
        """A command line."""
        shown = shlex.join(self.paths if paths is None else paths)
        return " ".join(["isocompute", command, shown, *self.words, *options])

    def reading(self, found: Collection, findings: Sequence[RunFinding]) -> str:
        """A command that reads every run which is ready.

        All paths at once if that works; else the tables that can be read, or a mapping, which leaves the others out; an
        audit where two tables have runs of one name, since it gives them other names.
        """
        if len(found.tables) == 1 and not found.logs and not found.unreadable:
            return self.give("ingest", "--output runs.parquet")
        ready = len({one.name for one in findings if one.readable})
        tables = list(map(str, found.tables))
        for paths in (self.paths, tables if not found.logs and len(tables) <= MOST_NAMED else []):
            if paths and self._reads(paths) >= ready:
                return self.give("ingest", "--output runs.parquet", paths=paths)
        try:
            if found.tables:
                join([runs.to_polars() for runs in found.tables.values()], tables, "error")
        except RecordError:
            return self.give("audit")
        return self.give("ingest", "--propose map.yaml")

    def _reads(self, paths: Sequence[str]) -> int:
        """How many runs all paths at once give; 0 if they cannot be read so."""
        told = self.told
        options: dict[str, Any] = {"rename": told.rename, "ignore": told.ignore, "set": told.set}
        try:
            runs = read(paths, metric=told.metric, on_truncated="drop", **options)
        except IsoComputeError:
            return 0
        return len(runs.run_ids)


MOST_NAMED = 20
"""Tables that a command names one by one."""


def _tables(found: Collection) -> list[tuple[RunSet, Path]]:
    return [(runs, path) for path, runs in found.tables.items()]


def _of_table(runs: RunSet, path: Path, asked: str | None) -> list[RunFinding]:
    table = runs.to_polars().partition_by("run_id", as_dict=True)
    # A note about a run stands with it; one about the file with the first of them.
    first = runs.run_ids[0]
    return [
        _measured(name, str(path), RunSet(part, _about(runs, name, named=name == first)), 1, asked)
        for (name,), part in table.items()
    ]


def _of_copy(path: Path, runs: RunSet, original: str, asked: str | None) -> RunFinding:
    found = _measured(runs.run_ids[0], str(path), RunSet(runs.to_polars()), 1, asked)
    return replace(found, problems=(told(original),), advice=("nothing: it is left out",), runs=None)


def _about(runs: RunSet, name: str, *, named: bool) -> list[Note]:
    owners = (None, name) if named else (name,)
    return [n for n in runs.notes if n.data.get("run_id") in owners or name in n.data.get("parts", ())]


def _of_log(name: str, one: CollectedLog, mapping: RunMap, asked_for: str | None) -> RunFinding:
    entry = mapping.runs[name]
    asked = [question for question in mapping.open_questions() if name in question.runs]
    open_fields = {question.field for question in asked}
    source, attempts = str(one.log.source), len(one.log.extents)
    answers = {key: q for key, q in mapping.questions.items() if q.answer is not None and name in q.runs}
    answered = {question.field for question in answers.values()}
    sizes = ("group_size", "problems_per_batch")
    lacking = [f for f in sizes if getattr(entry, f) is None and not {f, "batch", BATCH.name} & answered]
    if (lacking and asked) or {"step_unit", "metrics"} & open_fields:
        told = RunFinding(name, source, _or_unknown(entry.group_size), _or_unknown(entry.problems_per_batch))
        open_ = "; ".join(_SHORT.get(question.field, question.field) for question in asked)
        notes = [(note.message, _ADVICE.get(note.code, "see docs/notes.md")) for note in one.log.notes]
        return replace(
            told,
            attempts=attempts,
            problems=(f"not known: {open_}", *(problem for problem, _ in notes)),
            advice=("answer it in the proposed mapping", *(advice for _, advice in notes)),
        )
    try:
        # Each run on its own: what the others lack is no reason not to look at this one.
        alone = mapping.replace(runs={name: entry.replace(skip=False)}, questions=answers, confirmed=True)
        table = tabulate(one.log, alone.readings()[name])
        finding = _measured(name, source, RunSet(build(table.frame, Options())[0], table.notes), attempts, asked_for)
    except IsoComputeError as error:
        if not entry.skip:
            return _unreadable(Path(source), error, name, attempts)
        finding = RunFinding(name, source, _or_unknown(entry.group_size), _or_unknown(entry.problems_per_batch))
    likely = {key: text.removeprefix("likely: ") for key, text in entry.evidence.items() if text.startswith("likely")}
    hints = [f"{_SYMBOLS[key]} by {text}" for key, text in likely.items() if key in _SYMBOLS]
    shown = [f"only likely: {', '.join(hints)}"] if hints else []
    asks = [f"not known: {'; '.join(_SHORT.get(q.field, q.field) for q in asked)}"] if asked else []
    twice = [entry.evidence["skip"].partition(": ")[2]] if "skip" in entry.evidence else []
    advice = [
        *("confirm it in the proposed mapping" for _ in (*shown, *asks)),
        *("nothing: it is left out" for _ in twice),
    ]
    problems = (*finding.problems, *shown, *asks, *twice)
    runs = None if twice else finding.runs
    return replace(finding, problems=problems, advice=(*finding.advice, *advice), runs=runs)


_RATE = "learning_rate"
_SYMBOLS = {"group_size": "n", "problems_per_batch": "B_p"}
_NOUNS = {
    "group_size": "n",
    "problems_per_batch": "B_p",
    BATCH.name: "n B_p (completions of an update, over all GPUs)",
    "batch": "the unit of the batch in the name (problems or rollouts)",
    "step_unit": "the unit of the steps",
    "metrics": "the evaluation among the values",
    "eval_samples": "the samples per problem in the evaluation",
    "updates_per_batch": "the optimiser updates per batch of rollouts",
}
_SHORT = {
    "group_size": "n",
    "problems_per_batch": "B_p",
    BATCH.name: "B_p",
    "batch": "whether the batch in the name counts problems or rollouts",
    "step_unit": "what its steps count",
    "metrics": "which value is the evaluation",
    "eval_samples": "samples per problem in the evaluation",
    "updates_per_batch": "optimiser updates per batch of rollouts",
}


def _measured(name: str, source: str, runs: RunSet, attempts: int, asked: str | None = None) -> RunFinding:
    infos = runs.runs()
    metric, count = _headline(runs, asked)
    problems, advice = _looks(runs, metric, count)
    spent = [info.rollouts_spent for info in infos if info.rollouts_spent is not None]
    return RunFinding(
        name=name,
        source=source,
        group_size=", ".join(str(info.group_size) for info in infos),
        problems_per_batch=", ".join(_or_unknown(info.problems_per_batch) for info in infos),
        rollouts=max(info.rollouts for info in infos),
        rollouts_spent=max(spent, default=None),
        metric=metric,
        evaluations=count,
        attempts=attempts,
        context={key: value for key, value in infos[0].context.items() if value is not None},
        problems=problems,
        advice=advice,
        runs=runs,
    )


def _headline(runs: RunSet, asked: str | None = None) -> tuple[str | None, int]:
    """The metric that was asked for, or that a fit would most likely take, and its number of values."""
    frame = runs.to_polars()
    if asked in runs.metrics:
        return asked, int((frame["metric"] == asked).sum())
    names = list(zip(frame["metric"].to_list(), frame["eval_set"].to_list(), strict=True))
    found = headline(names)
    return (None, 0) if found is None else (found[0], sum(name == found[0] for name, _ in names))


def _looks(runs: RunSet, metric: str | None, count: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found: list[tuple[str, str]] = [
        (note.message, _ADVICE.get(note.code, "see docs/notes.md")) for note in _grave(runs)
    ]
    if metric is None:
        found.append(("no reward was measured", "evaluate while training, see `evaluation` of a spec"))
    elif is_training_reward(metric) or runs.filter(metric=metric).eval_sets == (TRAIN_SET,):
        found.append(
            (
                "only the training reward was logged, which keeps rising where a validation reward falls",
                "evaluate on held-out problems; until then read every answer as one about the training reward",
            )
        )
    elif count < FEW_EVALUATIONS:
        found.append((f"only {count} values of {metric}", "evaluate more often"))
    if metric is not None:
        measured = runs.filter(metric=metric)
        sets = sorted(measured.eval_sets)
        if len(sets) > 1:
            found.append(
                (
                    f"{metric} on several sets: {', '.join(sets)}",
                    f"choose one, --eval-set {'validation' if 'validation' in sets else sets[0]}",
                )
            )
        values = measured.to_polars()["value"].to_list()
        low, high = min(values), max(values)
        if metric.startswith("avg@") and not -1e-9 <= low <= high <= 1 + 1e-9:
            found.append((f"{metric} runs from {low:.4g} to {high:.4g}", "give its range to fit, --bounds LOW HIGH"))
    if any(info.problems_per_batch is None for info in runs.runs()):
        found.append(("problems_per_batch is unknown", "--set problems_per_batch=..., if it was the same for all"))
    return tuple(problem for problem, _ in found), tuple(advice for _, advice in found)


def _grave(runs: RunSet) -> list[Note]:
    return [note for note in runs.notes if note.severity != "info" or note.code in _ADVICE]


_ADVICE = {
    "log-cut-off": "nothing, if the run goes on; otherwise copy the file again",
    "log-damaged": "copy the file again",
    "text-not-utf8": "save the file as UTF-8",
    "table-read-as-log": "correct the file; or confirm in the mapping how its steps count",
    "log-starts-late": "add the log of the earlier part",
    "configuration-changed": "leave out the parts after the change",
    "values-not-finite": "use only what came before, if the run failed there",
    "evaluation-samples-unknown": "add --set eval_samples=K",
    "batch-taken-for-problems": "if it counts rollouts, --rename train_batch_size=rollouts_per_batch",
    "reward-taken-for-evaluation": "if it is the training reward, --metric train_reward",
    "reward-taken-for-training": "if it is an evaluation, name it, --rename COLUMN=avg@4",
    "runs-told-apart-by-step": "add a column with run ids, or a seed",
}


def _unreadable(path: Path, error: IsoComputeError, name: str | None = None, attempts: int = 0) -> RunFinding:
    hint = error.shell_hint or error.hint or "see the message"
    return RunFinding(name or str(path), str(path), attempts=attempts, problems=(error.message,), advice=(hint,))


def _grouped(findings: Sequence[RunFinding]) -> tuple[list[RunFinding], list[Mapping[str, Any]]]:
    """Findings with the number of their context group; runs that differ in samples per problem only share one."""
    alike: dict[tuple[Any, ...], list[RunFinding]] = {}
    for one in findings:
        if one.readable:
            key = tuple(one.context.get(name) for name in CONTEXT_FIELDS if name not in (_RATE, "eval_samples"))
            alike.setdefault(key, []).append(one)
    keys: dict[int, tuple[Any, ...]] = {}
    contexts: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for i, cell in enumerate(alike.values()):
        rule = _learning_rate_rule(cell)
        samples = {one.context.get("eval_samples") for one in cell}
        aside = {"eval_samples"} if len(samples) > 1 else set[str]()
        for one in cell:
            rate = f"follows {rule}" if rule else one.context.get(_RATE)
            keys[id(one)] = (i, rate)
            stated = {**one.context, **({_RATE: rate} if rule else {})}
            contexts.setdefault((i, rate), {name: value for name, value in stated.items() if name not in aside})
    number = {key: count for count, key in enumerate(contexts, start=1)}
    told = [replace(one, context_group=number[keys[id(one)]]) if one.readable else one for one in findings]
    return told, list(contexts.values())


@dataclass(frozen=True)
class _Known:
    """What a rule of learning rates is about."""

    group_size: int
    problems_per_batch: int | None
    context: Mapping[str, Any]


def _learning_rate_rule(cell: Sequence[RunFinding]) -> str | None:
    """The rule that all learning rates of a cell follow; None if there is none, or if n or B_p changes."""
    if any(one.context.get(_RATE) is None or not one.group_size.isdigit() for one in cell):
        return None
    known = [
        _Known(
            int(one.group_size), int(one.problems_per_batch) if one.problems_per_batch.isdigit() else None, one.context
        )
        for one in cell
    ]
    return learning_rate_rule(known) or None


def _or_unknown(value: object) -> str:
    return "?" if value is None else str(value)
