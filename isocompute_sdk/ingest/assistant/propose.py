"""`propose`: a `RunMap` prefilled from saved configurations, the logs themselves and the names of runs.

What a file of a known framework says is certain; what a name says is likely; what could mean two things, or is
contradicted, becomes a question. Nothing in between is guessed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from isocompute_sdk.errors import RecordError, did_you_mean
from isocompute_sdk.ingest.assistant.collect import CollectedLog, Collection, Told, collect
from isocompute_sdk.ingest.assistant.mapping import CONTEXT, ON_TRAIN, MappedRun, Question, RunMap
from isocompute_sdk.ingest.assistant.run_names import NameHints, read_name
from isocompute_sdk.ingest.assistant.twins import twins
from isocompute_sdk.ingest.attempts import RunLog
from isocompute_sdk.ingest.finding.paths import as_paths
from isocompute_sdk.ingest.formats.log_format import LOOKS_LIKE_EVALUATION, TRAIN_REWARD, TRAIN_SET, VALIDATION
from isocompute_sdk.ingest.formats.registry import broken
from isocompute_sdk.ingest.log_runs import shared_sizes
from isocompute_sdk.ingest.run_logs.log_table import logged_updates_per_batch, tabulate
from isocompute_sdk.ingest.stores.packed import unpacked
from isocompute_sdk.ingest.stores.saved_config import SIZES, STEPS_PER_BATCH, Said, settled
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import without_login
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.columns import BATCH, BY_NAME, PER_RUN, batch_asked, canonical
from isocompute_sdk.records.copies import told
from isocompute_sdk.records.input_table import Options
from isocompute_sdk.records.rewards import OTHER, is_training_reward, rank
from isocompute_sdk.records.table import build, join

_SPREAD = 1e-6
_CALLS = (
    "(W&B's own step counts calls of its log, of which OpenRLHF and TRL make several for an update; if this is it, "
    "export again with global_step on the x axis.)"
)


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
    told = Told(metric, dict(rename or {}), tuple(ignore), dict(set or {}))
    return mapping_of(collect(every, told), [os.path.relpath(path, relative_to) for path in every])


def mapping_of(found: Collection, searched: Sequence[str | os.PathLike[str]]) -> RunMap:
    """The mapping of what was collected."""
    saved = {name: one.config for name, one in found.logs.items()}
    shared_sizes({name: one.log for name, one in found.logs.items()}, saved)
    logs = {name: replace(one, config=saved[name]) for name, one in found.logs.items()}
    drafts = {name: _draft(name, one, found.told) for name, one in logs.items()}
    for name, kept in _repeated(found, drafts).items():
        sizes = [drafts[one].values.get(size) for one in (name, kept) for size in ("group_size", "problems_per_batch")]
        # Two logs that say the same n and B_p themselves and measured the same are one run.
        drafts[name].take("skip", True, "likely" if None in sizes else "certain", told(kept))
        drafts[name].questions.clear()
    questions: dict[tuple[str, ...], tuple[Question, list[str]]] = {}
    for name, draft in drafts.items():
        for key, question in draft.questions.items():
            questions.setdefault(key, (question, []))[1].append(name)
    asked = {
        f"question-{i}": _of_runs(question.replace(runs=tuple(names)), drafts)
        for i, (question, names) in enumerate(questions.values(), 1)
    }
    certain = all(text.startswith("certain") for draft in drafts.values() for text in draft.evidence.values())
    return RunMap(
        searched=tuple(str(path) for path in searched),
        confirmed=certain and not asked,
        questions=asked,
        metric=found.told.metric,
        rename=dict(found.told.rename),
        ignore=tuple(found.told.ignore),
        set=dict(found.told.set),
        runs={name: draft.entry() for name, draft in drafts.items()},
    )


def _of_runs(question: Question, drafts: Mapping[str, _Draft]) -> Question:
    """The question, about what its runs can share: with several n the rollouts of an update in place of B_p."""
    sizes = [str(drafts[name].values.get("group_size")) for name in question.runs]
    if question.field != "problems_per_batch" or batch_asked(sizes) == question.field:
        return question
    asks = (
        f"{question.asks} These runs differ in n: if all had the same n x B_p, how many completions had an update over "
        "all GPUs? If not, write problems_per_batch into each entry."
    )
    return question.replace(asks=asks, field=BATCH.name)


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
    folder = Path(path).parent
    told = Told(mapping.metric, mapping.rename, mapping.ignore, mapping.set)
    found = collect([folder / searched for searched in mapping.searched], told)
    notes: list[Note] = [*broken()]
    frames: list[Any] = []
    for name, reading in readings.items():
        if name not in found.logs:
            _refuse_gone(str(path), name, found)
        table = tabulate(found.logs[name].log, reading)
        frames.append(build(table.frame, Options())[0])
        notes += table.notes
    notes += _left_out(mapping, found)
    for runs in found.tables.values():
        frames.append(runs.to_polars())
        notes += runs.notes
    labels = [*readings, *map(str, found.tables)]
    try:
        return RunSet(join(frames, labels, "error"), notes)
    except RecordError as error:
        hint = f"{path} searches {', '.join(mapping.searched)}: write into `searched` only what is to be read."
        raise RecordError(error.message, f"{error.hint} {hint}" if error.hint else hint) from error


def _refuse_gone(path: str, name: str, found: Collection) -> None:
    raise RecordError(
        f"{path}: run {name!r} is not there; found: {', '.join(found.logs) or 'none'}",
        f"{did_you_mean(name, list(found.logs))}Propose the mapping again, or write `skip: true` into its entry.",
    )


def _left_out(mapping: RunMap, found: Collection) -> list[Note]:
    strangers = [name for name in found.logs if name not in mapping.runs]
    notes = [
        Note("file-unreadable", "warning", f"not read: {error}", {"file": str(file)})
        for file, error in found.unreadable.items()
    ]
    if strangers:
        message = f"runs that the mapping does not know were left out: {', '.join(strangers)}. Propose it again."
        notes.append(Note("run-not-in-mapping", "warning", message, {"runs": strangers}))
    return notes


def _repeated(found: Collection, drafts: Mapping[str, _Draft]) -> dict[str, str]:
    sizes = {
        name: (draft.values.get("group_size"), draft.values.get("problems_per_batch")) for name, draft in drafts.items()
    }
    return twins({name: one.log for name, one in found.logs.items()}, sizes)


@dataclass
class _Draft:
    """One entry in the making."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    evidence: dict[str, str] = field(default_factory=dict[str, str])
    questions: dict[tuple[str, ...], Question] = field(default_factory=dict[tuple[str, ...], Question])

    def take(self, name: str, value: Any, confidence: str, where: str) -> None:
        self.values[name] = value
        self.evidence[name] = f"{confidence}: {where}"

    def is_certain(self, *names: str) -> bool:
        """Whether all of these are known for certain."""
        return all(self.evidence.get(name, "").startswith("certain") for name in names)

    def ask(self, key: tuple[str, ...], asks: str, about: str, candidates: Mapping[str, str] | None = None) -> None:
        self.questions[key] = Question(asks=asks, field=about, runs=(), candidates=dict(candidates or {}))

    def entry(self) -> MappedRun:
        own = {name: self.values[name] for name in self.values if name not in CONTEXT}
        context = {name: self.values[name] for name in CONTEXT if self.values.get(name) is not None}
        return MappedRun(**own, context=context, evidence=self.evidence)


def _draft(name: str, one: CollectedLog, told: Told) -> _Draft:
    draft = _Draft()
    hints = read_name(name)
    given = {canonical(key) or key: value for key, value in told.set.items()}
    _given(draft, given)
    for field_, value in one.log.said.items():
        if field_ not in draft.values:
            draft.take(field_, _plain(field_, value), "certain", f"{one.log.source}: {field_}")
    one = replace(one, config=settled(one.config, {**one.log.said, **given}))
    for field_, said in ({} if one.config is None else one.config.fields).items():
        if field_ not in draft.values:
            draft.take(field_, said.value, "certain", said.evidence)
    for field_, all_ in ({} if one.config is None else one.config.disagreements).items():
        if field_ in SIZES and field_ not in draft.values and field_ != STEPS_PER_BATCH:
            candidates = {_text(said.value): said.evidence for said in all_}
            draft.ask((field_, name), f"Sources disagree about {field_} of {name!r}. Which holds?", field_, candidates)
    _from_log(draft, one.log)
    _from_name(draft, name, hints)
    _batch(draft, name, one, hints, given.get(BATCH.name))
    for column in ("group_size", "problems_per_batch"):
        symbol = {"group_size": "n", "problems_per_batch": "B_p"}[column]
        if column == "problems_per_batch" and draft.evidence.get("batch", "").startswith("certain"):
            # n times B_p is known, so that n gives both.
            continue
        if column not in draft.values and not any(q.field in (column, "batch") for q in draft.questions.values()):
            draft.ask((column,), f"Nothing says the {column} ({symbol}) of these runs; what is it?", column)
    _steps(draft, one.log)
    _evaluation(draft, one.log, told)
    return draft


def _given(draft: _Draft, given: Mapping[str, Any]) -> None:
    """What was said for all runs."""
    for field_, value in given.items():
        if field_ == "updates_per_batch" and float(value) % 1:
            draft.take(STEPS_PER_BATCH, float(value), "certain", "given with --set")
        elif field_ in PER_RUN:
            draft.take(field_, _plain(field_, value), "certain", "given with --set")


def _from_log(draft: _Draft, log: RunLog) -> None:
    """B_p from the number of samples that a framework logs for every batch."""
    wanted = None if log.framework is None else log.framework.batch_tag
    tag = None if wanted is None else next((tag for tag in log.tags if re.fullmatch(wanted, tag)), None)
    size = draft.values.get("group_size") or read_name(log.name).values.get("group_size")
    if tag is None or not size or isinstance(size, Mapping) or "problems_per_batch" in draft.values:
        return
    values = log.series(tag).value_T
    usual = float(np.median(values))
    if usual > 0 and usual % int(size) == 0 and np.ptp(values) == 0:
        where = f"{log.source}: {tag} = {usual:g} = n x B_p with n = {size}"
        draft.take("problems_per_batch", int(usual) // int(size), "certain", where)


def _from_name(draft: _Draft, name: str, hints: NameHints) -> None:
    for column, parts in hints.unclear.items():
        if column not in draft.values and column in ("group_size", "problems_per_batch"):
            told = " or ".join(repr(part) for part in parts)
            draft.ask((column, name), f"The name {name!r} says {column} twice: {told}. Which is it?", column)
    for column, value in hints.values.items():
        # Programs name their runs after themselves, such as ppo_1102T10:00 for any algorithm.
        if column == "batch" or (column == "algorithm" and column in draft.values):
            continue
        known = draft.values.get(column)
        if isinstance(known, Mapping) or draft.evidence.get(column, "").endswith("--set"):
            continue
        if known is None and column in CONTEXT and draft.is_certain("group_size", "problems_per_batch"):
            # Files say what decides; a hint about the rest is not worth a question.
            continue
        if known is None:
            draft.take(column, value, "likely", f"{hints.words[column]!r} in the name")
        elif not _same(known, value):
            where = draft.evidence.pop(column)
            del draft.values[column]
            candidates = {_text(known): where, _text(value): f"{hints.words[column]!r} in the name"}
            draft.ask(
                (column, name), f"File and name of {name!r} disagree about {column}. Which holds?", column, candidates
            )


def _batch(draft: _Draft, name: str, one: CollectedLog, hints: NameHints, given: int | None) -> None:
    """Ask whether a batch size counts problems or rollouts; `given` counts rollouts."""
    batch = hints.values.get("batch")
    size = draft.values.get("group_size")
    if "problems_per_batch" in draft.values:
        return
    rollouts = None if one.config is None else one.config.rollouts
    if given is not None:
        rollouts = Said(given, "--set rollouts_per_batch")
    if rollouts is not None:
        if isinstance(size, int) and rollouts.value % size == 0:
            shown = f"{rollouts.evidence} rollouts with n = {size}"
            draft.take("problems_per_batch", rollouts.value // size, "certain", shown)
        else:
            draft.take("batch", rollouts.value, "certain", rollouts.evidence)
        return
    if batch is None and one.config is not None and one.config.batch is not None:
        said = one.config.batch
        draft.ask(
            ("problems_per_batch", "devices"),
            f"These runs generated {said.value} rollouts on each device ({said.evidence}), on how many is not said. "
            "What was B_p, problems per batch over all devices?",
            "problems_per_batch",
        )
        return
    if batch is None:
        return
    number, word = int(batch), hints.words["batch"]
    if isinstance(size, int) and (number < size or number % size):
        draft.take("problems_per_batch", number, "likely", f"{word!r} in the name; no multiple of n = {size}")
        return
    draft.values["batch"] = number
    draft.evidence["batch"] = f"likely: {word!r} in the name"
    example = f"{name}: B_p = {number}" if isinstance(size, int) else f"B_p = {number}"
    shared = f"{name}: B_p = {number} / {size} = {number // size}" if isinstance(size, int) else f"B_p = {number} / n"
    prefix = word.rstrip("0123456789")
    draft.ask(
        ("batch", prefix),
        f"Does {prefix!r} in the names (as in {word!r}) count problems (prompts) or rollouts (samples) per batch?",
        "batch",
        {"problems": f"problems, so {example}", "rollouts": f"rollouts, so {shared}"},
    )


def _steps(draft: _Draft, log: RunLog) -> None:
    form = log.framework
    updates = draft.values.get("updates_per_batch", 1)
    counted = canonical(log.step_name) == "step" and log.step_name != "_step"
    if _is_table(log) and form is None and updates == 1 and counted:
        where = f"column {log.step_name!r} of a table, which counts updates"
        draft.take("step_unit", "rollout_batches", "likely", where)
        return
    if form is None or form.unit_of(log.format, log.step_name) is None:
        calls = f" {_CALLS}" if form is not None else ""
        draft.ask(
            ("step_unit", log.step_name, calls),
            f"What does the step {log.step_name!r} of these logs count?{calls}",
            "step_unit",
            {
                "rollout_batches": "updates M: one for every batch of n x B_p rollouts",
                "optimizer_updates": "optimiser steps; context updates_per_batch says how many there are in a batch",
                "rollouts": "single samples, which some programs call episodes",
                "epochs": "passes over the training problems; needs context n_problems",
            },
        )
    elif form.step == "optimizer_updates" and not {"updates_per_batch", STEPS_PER_BATCH} & draft.values.keys():
        updates = logged_updates_per_batch(log)
        if updates is None:
            draft.ask(
                ("updates_per_batch",),
                "How many optimiser updates were made with one batch of rollouts? 1, unless the trainer reuses them "
                "(num_iterations, steps_per_generation over gradient_accumulation_steps).",
                "updates_per_batch",
            )
        else:
            name = "updates_per_batch" if updates % 1 == 0 else STEPS_PER_BATCH
            draft.take(name, int(updates) if updates % 1 == 0 else updates, "certain", "updates that log a reward")


def _evaluation(draft: _Draft, log: RunLog, told: Told) -> None:
    """Which tag is the evaluation, and over how many samples it is a mean."""
    known = log.meanings(draft.values.get("eval_samples"))
    measured = {tag: meaning for tag, meaning in known.items() if meaning.eval_set != TRAIN_SET}
    metrics = {tag: told.rename[tag] for tag in log.tags if tag in told.rename}
    metrics |= {tag: tag for tag in log.tags if tag == told.metric and tag not in known}
    trained = any(meaning.metric == TRAIN_REWARD for meaning in known.values())
    own = None if trained else _training_tag(log, known)
    if own is not None and own not in metrics:
        metrics[own] = told.metric if told.metric and own.lower() == "reward" else f"{TRAIN_REWARD}{ON_TRAIN}"
        draft.evidence["metrics"] = f"likely: {own!r} is named as a training reward"
    if metrics:
        draft.values["metrics"] = metrics
    if told.metric in (*metrics.values(), *(meaning.metric for meaning in known.values())):
        return
    named = [tag for tag in log.tags if BY_NAME.get(tag) is None and tag.startswith(("avg@", "best@", "worst@"))]
    if named:
        draft.values["metrics"] = {**metrics, **{tag: tag for tag in named}}
        draft.evidence["metrics"] = "certain: the column names its metric"
        return
    # How many samples are behind a mean decides what it is called, and nothing else: a note says that it is unknown.
    if any(meaning.metric.startswith("avg@") for meaning in measured.values()):
        return
    _ask_for_evaluation(draft, log, metrics, {*known, *metrics, *told.ignore}, trained=trained or own is not None)


def _ask_for_evaluation(
    draft: _Draft, log: RunLog, metrics: Mapping[str, str], left: Container[str], *, trained: bool
) -> None:
    """Which tag is the evaluation, by names that may be one's; of a log with a training reward only if there is one.

    Args:
        draft: receives the answer or the question.
        log: the run.
        metrics: what is known of its tags.
        left: tags that are no candidates.
        trained: whether the log has a training reward.
    """
    components = re.compile("(?!)" if log.framework is None else log.framework.components)
    open_ = [tag for tag in log.tags if tag not in left and not components.fullmatch(tag)]
    open_ = [tag for tag in open_ if not (trained and is_training_reward(tag))]
    places = {tag: place for tag in open_ if (place := rank(tag, VALIDATION)) is not None}
    if _is_table(log):
        likely = sorted((tag for tag, place in places.items() if place < OTHER), key=lambda tag: places[tag])
    else:
        likely = [tag for tag in open_ if LOOKS_LIKE_EVALUATION.fullmatch(tag) and tag in places]
    if trained and not likely:
        # The training reward is no evaluation: what reads it says so, and there is nothing to ask.
        return
    if _is_table(log) and (len(likely) == 1 or not places):
        draft.values["metrics"] = {**metrics, **{tag: tag for tag in likely}}
        if likely:
            draft.evidence["metrics"] = "likely: the only column whose name may be that of an evaluation"
        return
    open_.sort(key=lambda tag: places.get(tag, OTHER + 1))
    candidates = {tag: _described(log, tag) for tag in (likely or open_)[:12]}
    if trained:
        candidates[TRAIN_REWARD] = "the training reward, where none of them is an evaluation"
    draft.ask(("metrics", *candidates), "Which of these is the validation reward (avg@k)?", "metrics", candidates)
    if "eval_samples" not in draft.values and not _is_table(log):
        draft.ask(("eval_samples",), "How many samples per problem are behind the evaluation?", "eval_samples")


def _training_tag(log: RunLog, known: Container[str]) -> str | None:
    """The tag that is named as a training reward; of a table also `reward` alone."""
    found = [tag for tag in log.tags if tag not in known and is_training_reward(tag)]
    bare = [tag for tag in log.tags if tag not in known and _is_table(log) and tag.lower() == "reward"]
    return min([*bare, *found], key=len, default=None)


def _is_table(log: RunLog) -> bool:
    """Whether somebody wrote or exported a table, such as a chart of W&B, whose names are all that it says."""
    return log.format == "table" or unpacked(log.source).suffix == ".csv"


def _described(log: RunLog, tag: str) -> str:
    series = log.series(tag)
    return f"{len(series.step_T)} values, {series.value_T[0]:.4g} to {series.value_T[-1]:.4g}"


def _plain(column: str, value: Any) -> Any:
    """A cell as a number if its column holds numbers; step -> number as it is, or one number if it never changes."""
    if isinstance(value, Mapping):
        pieces = cast(Mapping[int, int], value)
        return dict(pieces) if len(set(pieces.values())) > 1 else next(iter(pieces.values()))
    if BY_NAME[column].kind == "text":
        # Mappings are handed on: passwords are not.
        return without_login(str(value))
    number = float(value)
    return int(number) if BY_NAME[column].kind == "integer" else number


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) <= _SPREAD * abs(one)
    return str(one) == str(other)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
