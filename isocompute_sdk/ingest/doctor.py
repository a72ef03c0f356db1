"""`diagnose`: one finding per run of a folder, and per file that cannot be read: what is there and what to do."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from isocompute_sdk.errors import IsoComputeError, NothingMeasured, RecordError
from isocompute_sdk.ingest.copies import LoadedRun, once, told
from isocompute_sdk.ingest.formats.registry import broken, unknown
from isocompute_sdk.ingest.log_runs import given_to, resolve, rows_of
from isocompute_sdk.ingest.mapping import (
    NAMES,
    RunMap,
    Said,
    asked,
    collect_mapped,
    draft,
    map_name,
    named_after,
    table_name,
)
from isocompute_sdk.ingest.paths import as_paths
from isocompute_sdk.ingest.reader import Collection, collect, named_by_file
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import counted, joined, listed, or_unknown
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.columns import BATCH, N_AND_BP, PLACEHOLDERS, TRAIN_SETS, Options
from isocompute_sdk.records.reward_metrics import (
    ONE_SCALE,
    TRAIN_REWARD,
    TRAIN_SET,
    bounds_option,
    headline,
    is_training_reward,
    measured_in,
    two_scales,
    undecided,
)
from isocompute_sdk.records.runset import join
from isocompute_sdk.records.suggested import against_names

if TYPE_CHECKING:
    import polars as pl

Rewards = dict[str, list[tuple[str, np.ndarray[Any, Any]]]]
"""Metric -> run and its values."""
MIN_EVALUATIONS = 4
"""Fewer evaluations than this say little about a curve."""
_FIELDS = {
    "group_size": "n",
    "problems_per_batch": "B_p",
    BATCH.name: "n B_p (completions of an update, over all GPUs)",
    "step_unit": "the unit of the steps",
    "metrics": "the name of the validation reward",
    "eval_samples": "the samples per problem in the evaluation",
    "updates_per_batch": "the optimiser updates per batch of rollouts",
    NAMES: "whether n and B_p are what its name says",
}
"""What a question is about, in words."""
_ADVICE = {
    "log-damaged": "copy the file again, unless its run is still writing it",
    "text-not-utf8": "save the file as UTF-8",
    "log-starts-late": "add the log of the earlier part",
    "values-not-finite": "use only what came before, if the run failed there",
    "evaluation-samples-unknown": "add --set eval_samples=K",
    "column-assumed": "if this is wrong, use the option in the message",
    "columns-left-out": "if one matters, --rename THEIRS=OURS",
    "steps-go-back": "correct the table, unless its steps are right",
    "sources-disagree": "leave out --set, or correct the file",
    "clock-not-read": "write its times in one of these ways",
}


@dataclass(frozen=True)
class RunFinding:
    """One run, or one file that is not a run."""

    name: str
    """Run, or file that cannot be read."""
    source: str
    """Where it was read from."""
    group_size: str = "?"
    """n; several values if it changes; `?` if unknown, `8?` if only the name of the run says it."""
    problems_per_batch: str = "?"
    """B_p, as `group_size`."""
    rollouts: float | None = None
    """C at the last evaluation."""
    rollouts_spent: float | None = None
    """C paid for, attempts that were given up included."""
    metric: str | None = None
    """The evaluation that a fit would use."""
    evaluations: int = 0
    """How many values of it there are after step 0."""
    with_base: bool = False
    """Whether there is one of the base model too."""
    attempts: int = 1
    """How often the run was started, as far as its log shows."""
    context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Context fields that are known."""
    problems: tuple[str, ...] = ()
    """What looks wrong."""
    advice: tuple[str, ...] = ()
    """What to do about it, in the same order."""
    runs: RunSet | None = None
    """What was measured; None if nothing was, or of a copy."""
    empty: bool = False
    """Whether it is no run yet, since nothing was logged."""

    @property
    def readable(self) -> bool:
        """Whether something was measured that a fit can use."""
        return self.metric is not None

    def saying(self, *more: tuple[str, str]) -> RunFinding:
        """The finding with further problems, each with its advice."""
        problems, advice = (tuple(texts) for texts in zip(*more, strict=True)) if more else ((), ())
        return replace(self, problems=(*self.problems, *problems), advice=(*self.advice, *advice))

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
    next: str
    """The command to give next, which works when pasted, unless it ends with words to fill in; why there is none, if
    nothing is usable."""
    usable: bool
    """Whether a run can be read, or could be once what its log leaves open is answered."""
    verdict: Literal["ready", "question", "unusable"] = "ready"
    """Whether all that is there can be read, or what stands in the way."""
    question: str | None = None
    """What has to be answered first; None unless the verdict is `question`."""
    remarks: tuple[str, ...] = ()
    """What is to be known before any number: several models, files that were not looked at."""
    plain: bool = False
    """Whether all of it lies in tables that say everything themselves, so that every command reads them as they are."""


def diagnose(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **said: Unpack[Said]) -> Diagnosis:
    """Look at every run at or below `paths`; whatever cannot be read is a finding and never an error.

    Args:
        paths: files, folders or globs.
        **said: what holds for all runs, see `Said`.

    Raises:
        RecordError: there is nothing at all, or no file has a name of `rename` or `ignore`.
    """
    found = collect(as_paths(paths), asked(**said), ask=True)
    return _diagnosis(found, draft(found), [str(path) for path in found.paths])


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
    found = collect_mapped(path, mapping)
    found.logs = {name: one for name, one in found.logs.items() if name in mapping.runs}
    looked = _diagnosis(found, mapping, [])
    next_ = f"isocompute doctor --map {shlex.quote(str(path))} --output {shlex.quote(table_name(path))}"
    try:
        mapping.readings(str(path))
    except IsoComputeError as error:
        return replace(looked, verdict="question", question=error.message, next=next_, usable=True)
    return replace(looked, next=next_, verdict="ready" if looked.usable else "unusable", question=None)


def _diagnosis(found: Collection, mapping: RunMap, paths: Sequence[str]) -> Diagnosis:
    asked_for = found.options.metric
    frames, copies = once([table.frame for table in found.tables])
    wrong = None
    try:
        findings = [one for path, runs in _joined(found, frames) for one in _of_table(runs, path, asked_for)]
    except RecordError as error:
        wrong, findings = error, [_unreadable(", ".join(str(table.path) for table in found.tables), error)]
    findings += [_of_log(name, run, mapping, asked_for) for name, run in found.logs.items()]
    findings += [_unreadable(path, error) for path, error in found.errors.items()]
    for note in broken():
        name = f"log format {note.data['format']}"
        findings.append(RunFinding(name, "-", problems=(note.message,), advice=("repair or remove it",)))
    for (i, name), (_, of) in copies.items():
        table = found.tables[i]
        one = _measured(name, str(table.path), RunSet(table.frame).filter(run_id=name), 1, asked_for)
        findings.append(replace(one, problems=(told(of),), advice=("nothing to do: it is left out",), runs=None))
    rewards = _rewards(findings)
    remarks = _remarks(findings, rewards)
    if found.unread:
        remarks.append(f"not read: {found.not_looked_at()}. Name them to try.")
    if found.rowless:
        remarks.append(
            f"not read: {found.rowless} .json without rows (one per evaluation) or an n (such as num_generations)"
        )
    verdict, question, next_ = _next(found, mapping, findings, rewards, paths)
    if wrong is not None:
        verdict, question, next_ = "unusable", None, _NOTHING
    sized = "?" not in {one.group_size for one in findings if one.readable}
    own = {run for table in found.tables for run in table.frame["run_id"].unique()}
    plain = verdict == "ready" and sized and own >= {one.name for one in findings} and not (found.logs or found.errors)
    return Diagnosis(tuple(findings), next_, verdict != "unusable", verdict, question, tuple(remarks), plain)


def _unlike_rewards(metric: str, tables: Sequence[pl.DataFrame]) -> tuple[bool, bool]:
    """Whether no value of a metric falls in any run, as of clocks and settings; and whether one is not a share."""
    import polars as pl

    parts = [table.select("run_id", "rollouts", "value").filter(table["metric"] == metric) for table in tables]
    rows = pl.concat(parts, how="vertical_relaxed").sort("rollouts")
    falls = rows.select((pl.col("value").diff().over("run_id") < 0).any()).item()
    return not falls, not rows["value"].is_between(0, 1).all()


def _next(
    found: Collection, mapping: RunMap, findings: Sequence[RunFinding], rewards: Rewards, paths: Sequence[str]
) -> tuple[Literal["ready", "question", "unusable"], str | None, str]:
    """Verdict, question and the command to give next."""
    options, words = found.options, _words(found.options)
    mends = [texts for error in found.errors.values() if (texts := _mends(error))]
    if options.metric in {one.metric for one in findings if one.readable}:
        # What some runs have was meant: the others lack it.
        mends = [texts for texts in mends if not texts[0].startswith("--metric")]
    if mends:
        more = [text for text in mends[0] if text not in words]
        if any(text.startswith("--metric") for text in more):
            words = _words(replace(options, metric=None))
        return "question", _of_options(more), _command(paths, [*words, *more])
    if mapping.open_questions():
        return "question", _question(mapping), _command(paths, [*words, f"--output {map_name(paths)}"])
    ready = [one.runs.to_polars() for one in findings if one.readable and one.runs is not None]
    measured = {pair for frame in ready for pair in frame.select("metric", "eval_set").unique().iter_rows()}
    if options.metric is None and (names := sorted(undecided(measured), key=lambda name: _unlike_rewards(name, ready))):
        question = f"which is the reward: {' or '.join(names[:8])}? The next command takes {names[0]}."
        return "question", question, _command(paths, [*words, f"--metric {shlex.quote(names[0])}"])
    for scales in filter(None, (two_scales(*one) for one in rewards.items())):
        keep = " ".join(f"--where {shlex.quote(f'run_id={run}')}" for run in scales[1])
        question = f"on which scale is the reward? {scales[0]}. {ONE_SCALE} The next command keeps the shares."
        return "question", question, _command(paths, [*words, keep, f"--output {named_after(paths)}.parquet"])
    if ready:
        return "ready", None, _command(paths, [*words, f"--output {named_after(paths)}.parquet"])
    return "unusable", None, _NOTHING


_NOTHING = "nothing here can be read: see what each line says"


def _joined(found: Collection, frames: Sequence[pl.DataFrame]) -> list[tuple[str, RunSet]]:
    """Runs by file; one that goes on in a later file is whole in the first that has it.

    Raises:
        RecordError: files contradict each other about a run.
    """
    filled = {str(one.path): frame for one, frame in zip(found.tables, frames, strict=True) if len(frame)}
    if not filled:
        return []
    filled = named_by_file(filled)
    whole = RunSet(join([*filled.values()], [*filled], found.options.on_duplicate))
    notes = {str(one.path): one.notes for one in found.tables}
    runs_of: dict[str, list[str]] = {}
    for run in whole.run_ids:
        runs_of.setdefault(next(path for path, frame in filled.items() if run in frame["run_id"]), []).append(run)
    # What is said about a file that only goes on stands with the first.
    others = [note for path in filled if path not in runs_of for note in notes[path]]
    return [
        (path, RunSet(whole.filter(run_id=runs).to_polars(), [*notes[path], *others])) for path, runs in runs_of.items()
    ]


def _command(paths: Sequence[str], words: Sequence[str]) -> str:
    return " ".join(["isocompute doctor", shlex.join(paths), *words])


def _words(options: Options) -> list[str]:
    """What was said about all runs, as options."""
    return [
        *(f"--set {shlex.quote(f'{name}={value}')}" for name, value in options.constants.items()),
        *(f"--rename {shlex.quote(f'{theirs}={ours}')}" for theirs, ours in options.rename.items()),
        *(f"--ignore {shlex.quote(name)}" for name in options.ignore),
        *([f"--metric {shlex.quote(options.metric)}"] if options.metric is not None else []),
    ]


def _remarks(findings: Sequence[RunFinding], values: Rewards) -> list[str]:
    """Whether no run can be planned from, rewards need a range, one for all, or runs differ in model or data set."""
    found: list[str] = []
    if {one.group_size for one in findings if one.runs is not None and one.readable} == {"1"}:
        found.append(
            "n = 1 in all runs, as in PPO: a single rollout has no group to be compared with, so no n can be planned. "
            "isocompute status and isocompute forecast read these runs; a plan needs n of 2 or more."
        )
    # Those of updates show what the function can return too.
    rewards = [one for parts in _rewards(findings, TRAIN_REWARD).values() for _, one in parts]
    for metric in values:
        having = [(one.name, one.runs) for one in findings if one.runs is not None and metric in one.runs.metrics]
        parts = [(name, runs.filter(metric=metric).to_polars()["value"].to_numpy()) for name, runs in having]
        low, high = float(min(np.min(one) for _, one in parts)), float(max(np.max(one) for _, one in parts))
        if not -1e-9 <= low <= high <= 1 + 1e-9 and two_scales(metric, parts) is None:
            span = f"runs from {low:.4g} to {high:.4g}" if low < high else f"is always {low:.4g}"
            which = f"--metric {shlex.quote(metric)} " if len(values) > 1 else ""
            shown = [one for _, one in parts] if which else rewards
            found.append(
                f"{metric} {span} in {counted(len(parts), 'run')}: give fit and audit the lowest and highest "
                f"value that the reward function can return: {which}{bounds_option(np.concatenate(shown))}"
            )
    for field_ in ("model", "train_data"):
        measured = (one for one in findings if one.runs is not None and one.metric is not None)
        counts = Counter(str(one.context[field_]) for one in measured if one.context.get(field_) is not None)
        if len(counts) > 1:
            listed_ = ", ".join(f"{name} ({counted(count, 'run')})" for name, count in counts.items())
            found.append(
                f"mixed: {len(counts)} values of {field_}: {listed_}. A fit takes one: isocompute doctor --where "
                f"{field_}=... keeps the runs of one."
            )
    return found


def _rewards(findings: Sequence[RunFinding], *more: str) -> Rewards:
    """Metric that a fit would use -> run and its values; those of further metrics too."""
    found: Rewards = {}
    for one in findings:
        if one.runs is not None and one.metric is not None:
            values = one.runs.filter(metric=[one.metric, *more]).to_polars()["value"].to_numpy()
            found.setdefault(one.metric, []).append((one.name, values))
    return found


def _mends(error: IsoComputeError) -> tuple[str, ...]:
    """Options that would make a file readable, or show what else it needs; none with a number to fill in."""
    return tuple(option for option in error.options if not option.endswith(_OPEN))


_OPEN = tuple(f"={place}" for place in PLACEHOLDERS.values())


def _of_options(options: Sequence[str]) -> str:
    """What options say about columns, as a question."""
    said: list[str] = []
    for flag, value in map(shlex.split, options):
        theirs, _, ours = value.partition("=")
        if flag == "--rename":
            symbol = f" ({_FIELDS[ours]})" if ours in ("group_size", "problems_per_batch") else ""
            said.append(f"column {theirs!r} is {ours}{symbol}")
        else:
            said.append({"--ignore": f"column {value!r} is left out", "--metric": f"{value} is meant"}[flag])
    return f"is it right that {'; '.join(said)}?"


def _question(mapping: RunMap) -> str:
    """Everything that is open, as one question, and how to answer it at once if all runs share the answer."""
    asked = [one for one in mapping.open_questions() if one.field != NAMES] or mapping.open_questions()
    fields = list(dict.fromkeys(question.field for question in asked))
    runs = list(dict.fromkeys(run for question in asked for run in question.runs))
    if fields == [NAMES]:
        guessed = [_FIELDS[size] for size in N_AND_BP if any(mapping.runs[run].guessed(size) for run in runs)]
        be, come = ("is", "It comes") if len(guessed) == 1 else ("are", "They come")
        said = f"{come} only from the {'name' if len(runs) == 1 else 'names'} of {listed(runs, 3)}."
        return f"{be} the {joined(guessed)} marked ? right? {said} Answer in the file that the next command writes."
    nouns = [_FIELDS.get(one, one) for one in fields]
    about = f"what {'is' if len(nouns) == 1 else 'are'} {joined(nouns)} of {listed(runs, 3)}?"
    answer = f"{about} Answer in the file that the next command writes"
    if not {*fields} <= PLACEHOLDERS.keys():
        return f"{answer}."
    options = " ".join(f"--set {one}={PLACEHOLDERS[one]}" for one in fields)
    if fields == ["rollouts_per_batch"]:
        options += ", or --set problems_per_batch=BP if they share B_p"
    return f"{answer}; or, if all runs share it, add {options}."


def _of_table(runs: RunSet, path: str, asked: str | None) -> list[RunFinding]:
    # A note about a run stands with it; one about the file with the first of them.
    findings: list[RunFinding] = []
    for (name,), part in runs.to_polars().partition_by("run_id", as_dict=True).items():
        owners = (name,) if findings else (None, name)
        about = [n for n in runs.notes if n.data.get("run_id") in owners]
        findings.append(_measured(name, path, RunSet(part, about), 1, asked))
    return findings


def _of_log(name: str, run: LoadedRun, mapping: RunMap, asked_for: str | None) -> RunFinding:
    log, entry = run.log, mapping.runs[name]
    asked = [question.field for question in mapping.open_questions() if name in question.runs]
    source, attempts = str(log.source), len(log.extents)
    n_mark, bp_mark = ("?" * (NAMES in asked and entry.guessed(size)) for size in N_AND_BP)
    sizes = (or_unknown(entry.group_size) + n_mark, or_unknown(entry.problems_per_batch) + bp_mark)
    open_ = f"not known: {'; '.join(_FIELDS.get(one, one) for one in asked)}"
    if {"group_size", "problems_per_batch", BATCH.name, "step_unit", "metrics"} & {*asked}:
        asked_about = RunFinding(name, source, *sizes, attempts=attempts)
        return asked_about.saying((open_, "answer it in the proposed mapping"), *map(_advised, log.notes))
    try:
        # Each run on its own: what the others lack is no reason not to look at this one.
        options, certain = mapping.reading(name), replace(run, config=None)
        frame, notes = rows_of(certain, resolve(certain, options.given(name)), options)
        told = resolve(run, given_to(run, mapping.shared())).notes(name)
        notes += [note for note in told if note.code == "sources-disagree"]
        notes += against_names({name: given_to(run, mapping.shared())})
        finding = _measured(name, source, RunSet(frame, notes), attempts, asked_for)
        shown = finding.group_size + n_mark, finding.problems_per_batch + bp_mark
        finding = replace(finding, group_size=shown[0], problems_per_batch=shown[1])
    except IsoComputeError as error:
        if not entry.skip:
            wrong = _unreadable(source, error, name, attempts)
            return replace(wrong, group_size=sizes[0], problems_per_batch=sizes[1])
        finding = RunFinding(name, source, *sizes)
    more = [(open_, "confirm it in the proposed mapping")] if asked else []
    more += [(entry.evidence["skip"], "nothing to do: it is left out")] if "skip" in entry.evidence else []
    return replace(finding.saying(*more), runs=None if "skip" in entry.evidence else finding.runs)


def _measured(name: str, source: str, runs: RunSet, attempts: int, asked: str | None = None) -> RunFinding:
    import polars as pl

    infos = runs.runs()
    frame = runs.to_polars()
    likely = headline(measured_in(frame))
    metric = asked if asked in runs.metrics else None if likely is None else likely[0]
    measured = frame.filter(pl.col("metric") == (metric or ""))
    # Of several evaluation sets one counts.
    sets = measured.partition_by("eval_set", maintain_order=True)
    one = max(sets, key=lambda part: (part["eval_set"][0] not in TRAIN_SETS, len(part)), default=measured)
    trained = one["rollouts"] > 0
    count = int(trained.sum())
    spent = [info.rollouts_spent for info in infos if info.rollouts_spent is not None]
    return RunFinding(
        name=name,
        source=source,
        group_size=", ".join(str(info.group_size) for info in infos),
        problems_per_batch=", ".join(or_unknown(info.problems_per_batch) for info in infos),
        rollouts=max(info.rollouts for info in infos),
        rollouts_spent=max(spent, default=None),
        metric=metric,
        evaluations=count,
        with_base=count < len(trained),
        attempts=attempts,
        context={key: value for key, value in infos[0].context.items() if value is not None},
        runs=runs,
    ).saying(*_looks(runs, metric, len(trained)))


def _advised(note: Note) -> tuple[str, str]:
    """A note under its run, without the run's name, and what to do about it."""
    return note.without_run(), _ADVICE.get(note.code, "see docs/notes.md")


def _looks(runs: RunSet, metric: str | None, count: int) -> list[tuple[str, str]]:
    found = [_advised(note) for note in runs.notes if note.severity != "info" or note.code in _ADVICE]
    if unread := unknown(name for name in runs.metrics if name != metric):
        advice = (
            "if one holds seconds of a step, the time of a row, tokens of a response or all tokens so far, --rename "
            "THEIRS=step_seconds, timestamp, response_length or tokens"
        )
        found.append((f"not used, unknown columns: {listed(unread, 5)}", advice))
    if metric is None:
        found.append(("no reward was measured", "evaluate while training, see `evaluation` of a spec"))
    elif is_training_reward(metric) or runs.filter(metric=metric).eval_sets == (TRAIN_SET,):
        found.append(
            (
                "only the training reward was logged, which can rise while a validation reward falls",
                "evaluate on held-out problems; until then every answer is about the training reward",
            )
        )
    elif count < MIN_EVALUATIONS:
        found.append((f"only {counted(count, 'value')} of {metric}", "evaluate more often"))
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
    if any(info.problems_per_batch is None for info in runs.runs()):
        found.append(("problems_per_batch is unknown", "--set problems_per_batch=..., if it was the same for all"))
    return found


def _unreadable(path: str, error: IsoComputeError, name: str | None = None, attempts: int = 0) -> RunFinding:
    hint = error.shell_hint or error.hint or "see the message"
    empty = isinstance(error, NothingMeasured)
    return RunFinding(name or path, path, attempts=attempts, problems=(error.message,), advice=(hint,), empty=empty)
