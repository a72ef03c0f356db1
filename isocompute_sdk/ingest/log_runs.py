"""Logs of frameworks -> `RunSet`: what is known of each run, what is asked, and one run in several logs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.copies import LoadedRun, repeated, same_runs
from isocompute_sdk.ingest.find import logged_batch
from isocompute_sdk.ingest.formats.configuration import SIZES, STEPS_PER_BATCH, Said, SavedConfig
from isocompute_sdk.ingest.formats.log_format import (
    LOOKS_LIKE_EVALUATION,
    TRAIN_REWARD,
    TRAIN_SET,
    VALIDATION,
    RunLog,
)
from isocompute_sdk.ingest.formats.registry import broken
from isocompute_sdk.ingest.log_table import Reading, logged_updates_per_batch, tabulate
from isocompute_sdk.metrics import average_of
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import counted
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.columns import (
    BATCH,
    BY_NAME,
    N_AND_BP,
    PLACEHOLDERS,
    PROPOSE,
    SAYS_ITSELF,
    WANDB_STEPS,
    ArgumentSource,
    Options,
    batch_asked,
    canonical,
    check_fields,
    to_series,
    typed,
    unstated,
)
from isocompute_sdk.records.reward_metrics import OTHER, is_set, is_training_reward, rank
from isocompute_sdk.records.runset import join
from isocompute_sdk.records.suggested import against_names, size_in_name
from isocompute_sdk.records.table import sizes_note
from isocompute_sdk.specs.base import Spec

if TYPE_CHECKING:
    import polars as pl

CALLS = (
    "(W&B's own step counts calls to its log; OpenRLHF and TRL make several per update. If these are such steps, "
    "export again with global_step on the x axis.)"
)


def read_loaded(
    runs: dict[str, LoadedRun],
    options: Options,
    losing: Callable[[object], AbstractContextManager[None]],
    of_run: Mapping[str, Options] | None = None,
) -> RunSet | None:
    """The evaluations of runs whose logs were read. A log that repeats another one is left out.

    Args:
        runs: the logs, with what was configured.
        options: how all of them are to be read.
        losing: takes down why one of them cannot be read, by its place.
        of_run: run -> how it is to be read, if that is known for certain: runs that are not in it are left out.

    Raises:
        RecordError: nothing says the n or B_p of a run; with `losing` only if that holds for all.
    """
    copies: dict[str, str] = {}
    if of_run is None:
        check_fields(options.runs, sorted(runs), "run of runs=")
        same = same_runs(runs, {name: given_to(run, options) for name, run in runs.items()})
        runs, copies = same.runs, same.copies
        if same.undecided is not None:
            one, other = (runs[name].log for name in same.undecided)
            choose = "let `isocompute doctor PATH --output map.yaml` list all of them."
            raise RecordError(
                f"{one.source} and {other.source} mix formats: {', '.join(sorted({one.format, other.format}))}; they "
                "hold too few values to tell whether they are one run, which would count twice",
                f'Choose with format=, e.g. format="tensorboard", which keeps every attempt of a run; or {choose}',
            ).in_shell(f"Name the files of one kind, or {choose}")
    asked = {name: options for name in runs if name not in copies} if of_run is None else of_run
    notes = [*broken()]
    tables: dict[str, Any] = {}
    if of_run is not None:
        # What somebody has confirmed counts, whatever lies beside the logs.
        runs = {name: replace(runs[name], config=None) for name in of_run}
    found = {
        name: resolve(runs[name], given_to(runs[name], one) if of_run is None else one.given(name))
        for name, one in asked.items()
    }
    if of_run is None:
        alike = [name for name in asked if name not in options.runs]
        notes += against_names({name: given_to(runs[name], options) for name in alike})
    batch = batch_asked([one.values.get("group_size") for one in found.values()])
    for name, one in found.items():
        with losing(runs[name].place) if of_run is None else nullcontext():
            try:
                tables[name], told = rows_of(runs[name], one, asked[name], batch)
            except RecordError as error:
                if len(runs) > 1 and any(option.startswith("--set group_size") for option in error.options):
                    # One n for all runs would be wrong for most of them.
                    error.options = ()
                raise
            notes += told
    notes += [repeated(name, of) for name, of in copies.items()]
    if not tables:
        return None
    return RunSet(join([*tables.values()], [str(runs[name].log.source) for name in tables], "error"), notes)


def given_to(run: LoadedRun, options: Options) -> dict[str, Any]:
    """What was given for a run: of one that a launch script of ours started only what its folder does not state."""
    given = options.given(run.log.name)
    return unstated(given, run.log.said) if run.log.launched else given


def rows_of(
    run: LoadedRun, found: Resolved, options: Options, batch: str = N_AND_BP[1]
) -> tuple[pl.DataFrame, list[Note]]:
    """The rows of one run, and notes on it; `batch` is what to ask for where nothing says B_p."""
    _refuse_contradiction(run.log, found)
    if not options.without_sizes:
        _refuse_open(run, found, batch)
    frame, told = tabulate(run.log, found.reading(options, run.log))
    return frame, [*found.notes(run.log.name), *told]


class Question(Spec):
    """Something that could mean two things, or that nothing says."""

    asks: str
    """The question, in words."""
    field: str
    """What the answer fills: a field of the runs or of their context, or `rollouts_per_batch`."""
    candidates: dict[str, str] = Field(default_factory=dict[str, str])
    """Accepted answers and what each would mean; empty where any number is accepted."""
    answer: str | int | float | None = None
    """To be filled in. A value in the entries of all its runs, under `context` for a field of it, answers it too."""
    runs: tuple[str, ...] = ()
    """The runs it is about; last, so that a long list parts no question from its answer."""


@dataclass
class Resolved:
    """What is known of a run, from what was given, its log and its configuration, in this order."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    """Column, or `STEPS_PER_BATCH` -> value."""
    evidence: dict[str, str] = field(default_factory=dict[str, str])
    rollouts: Said | None = None
    """Rollouts of one batch, n B_p, if n or B_p does not follow from them."""
    unknown: dict[str, Question] = field(default_factory=dict[str, Question])
    """Field -> what has to be answered: n, B_p, `updates_per_batch`, `step_unit`."""
    disagreements: dict[str, tuple[Said, ...]] = field(default_factory=dict[str, "tuple[Said, ...]"])

    def take(self, name: str, value: Any, evidence: str) -> None:
        """Add a value with its evidence; a later one replaces it."""
        self.values[name], self.evidence[name] = value, evidence

    def differs(self, name: str, given: Any) -> None:
        """Take down that a size, or the k of avg@k, that is given is not the one that the files say."""
        if name in (*SIZES, "eval_samples") and self.values.get(name, given) != given:
            sources = Said(given, f"{name} = {given} was given"), Said(self.values[name], self.evidence[name])
            self.disagreements[name] = sources

    def ask(self, name: str, asks: str, candidates: Mapping[str, str] | None = None) -> None:
        """Add a question about a field."""
        self.unknown[name] = Question(asks=asks, field=name, candidates=dict(candidates or {}))

    def reading(self, options: Options, log: RunLog) -> Reading:
        """How to read the log; 1 stands for an unknown n or B_p, and every column of a plain table is a metric."""
        context = {key: value for key, value in self.values.items() if key not in (*N_AND_BP, STEPS_PER_BATCH)}
        size, problems = (self.values.get(name, 1) for name in N_AND_BP)
        steps = self.values.get(STEPS_PER_BATCH)
        own = _own_metrics(log) if is_table(log) else ()
        unit: Any = options.step_unit or ("rollout_batches" if "step_unit" in self.evidence else None)
        metrics = {**{tag: tag for tag in own}, **options.rename}
        return Reading(size, problems, unit, metrics, options.ignore, context, steps, options.metric, options.eval_set)

    def notes(self, name: str) -> list[Note]:
        """Sources that disagree, and sizes that nothing says."""
        unknown = [name for name in N_AND_BP if name not in self.values]
        unknown += ["updates_per_batch"] * ("updates_per_batch" in self.unknown)
        found = [sizes_note([name], unknown)] if unknown else []
        for column, all_ in self.disagreements.items():
            shown = "; ".join(one.evidence for one in all_)
            message = (
                f"run {name!r}: sources disagree about {column}: {shown}. The first is taken; correct it if wrong."
            )
            data = {"run_id": name, "field": column, "values": [one.value for one in all_]}
            found.append(Note("sources-disagree", "warning", message, data))
        return found


def _own_metrics(log: RunLog) -> list[str]:
    """Columns of a table that are metrics by their own names: all but what a framework, or W&B, logs beside them."""
    form = log.framework
    if form is None:
        return list(log.tags)
    known, parts = log.meanings(), re.compile(form.components)
    left = [tag for tag in log.tags if tag not in known and not parts.fullmatch(tag)]
    # W&B, which keeps a clock, adds columns of its own; what never changes is a setting.
    written = [] if log.began is not None else [tag for tag in left if len(np.unique(log.series(tag).value_T)) > 1]
    return [tag for tag in left if SAYS_ITSELF.fullmatch(tag) or tag in written]


def resolve(run: LoadedRun, given: Mapping[str, Any]) -> Resolved:
    """What is known of a run, and what is not.

    Raises:
        RecordError: a value was given that its column does not accept.
    """
    log, found = run.log, Resolved()
    given = {name: _checked(name, value) for name, value in given.items()}
    batch = given.pop(BATCH.name, None)
    said = {**log.said, **given}
    config = run.config
    for name, one in ({} if config is None else config.fields).items():
        found.take(name, one.value, one.evidence)
    for name, value in log.said.items():
        if name != BATCH.name:
            found.take(name, value, f"{log.source}: {log.written.get(name, name)}")
    if "updates_per_batch" in said:
        found.values.pop(STEPS_PER_BATCH, None)
    for name, value in given.items():
        if config is None or name not in config.fields or not config.fields[name].default:
            found.differs(name, value)
        fraction = name == "updates_per_batch" and value % 1
        found.take(STEPS_PER_BATCH if fraction else name, value, "given")
    if "eval_samples" not in said:
        _take_samples(found, log)
    apart = {} if config is None else {key: all_ for key, all_ in config.disagreements.items() if key not in said}
    if STEPS_PER_BATCH in found.values:
        apart.pop("updates_per_batch", None)
    for name, all_ in apart.items():
        if name in SIZES:
            shown = {f"{one.value:g}" if isinstance(one.value, float) else str(one.value): one.evidence for one in all_}
            found.ask(name, f"Sources disagree about {name} of {log.name!r}. Which is right?", shown)
        else:
            found.disagreements[name] = all_
    _size_of_batch(found, _rollouts(found, log, config, batch, given))
    _ask_for_sizes(found, config)
    by_config = config is not None and N_AND_BP[1] in config.fields
    columns = {N_AND_BP[1] if one == BATCH.name and not by_config else one for one in log.said}
    _ask_for_steps(found, log, by_columns={*N_AND_BP} <= columns)
    return found


def _rollouts(
    found: Resolved, log: RunLog, config: SavedConfig | None, batch: int | None, given: Mapping[str, Any]
) -> Said | None:
    """The rollouts of a batch from which n or B_p follows: as given, by a column of the log, or configured."""
    sizes = [found.values[name] for name in N_AND_BP if name in found.values]
    rollouts = None if config is None or len(sizes) == 2 else config.rollouts
    if batch is not None:
        if rollouts is None and len(sizes) == 2 and N_AND_BP[1] not in given:
            rollouts = Said(math.prod(sizes), found.evidence[N_AND_BP[1]])
        if rollouts is not None and rollouts.value != batch:
            found.disagreements[BATCH.name] = Said(batch, f"{BATCH.name} = {batch} was given"), rollouts
        return Said(batch, "--set rollouts_per_batch")
    if BATCH.name not in log.said:
        return rollouts
    logged = Said(log.said[BATCH.name], f"{log.source}: {log.written[BATCH.name]} = {log.said[BATCH.name]}")
    if len(sizes) < 2:
        return logged
    found.rollouts = logged  # has to be their product
    return None


def _take_samples(found: Resolved, log: RunLog) -> None:
    """The k of the averages that were logged, where the configuration or its framework's default says fewer samples."""
    logged = {k: tag for tag, one in log.meanings().items() if (k := average_of(one.metric)) is not None}
    if logged and found.values.get("eval_samples", 0) < min(logged):
        k = min(logged)
        found.take("eval_samples", k, f"{log.source}: {logged[k]}")


def _checked(name: str, value: Any) -> Any:
    """What was given, as its column holds it; updates per batch may be a fraction."""
    if name == "updates_per_batch" and isinstance(value, float) and value % 1:
        return value
    return typed(to_series(name, [value]), BY_NAME[name], ArgumentSource())[0]


def _size_of_batch(found: Resolved, rollouts: Said | None) -> None:
    """Take the n or the B_p that follows from a batch and the other one, unless sources disagree about it."""
    known = next((name for name in N_AND_BP if name in found.values), None)
    other = N_AND_BP[known == N_AND_BP[0]]
    if rollouts is None or other in found.unknown:
        return
    if known is None or rollouts.value % found.values[known]:
        found.rollouts = rollouts
        return
    size, symbol = found.values[known], "n" if known == N_AND_BP[0] else "B_p"
    found.take(other, rollouts.value // size, f"{rollouts.evidence} rollouts with {symbol} = {size}")


def _ask_for_sizes(found: Resolved, config: SavedConfig | None) -> None:
    for column, symbol in zip(N_AND_BP, ("n", "B_p"), strict=True):
        if column in found.values or column in found.unknown:
            continue
        if found.rollouts is not None and (column != N_AND_BP[0] or N_AND_BP[1] in found.values):
            continue
        asks = f"No file states the {column} ({symbol}) of these runs. What is it?"
        if column != N_AND_BP[0] and config is not None and config.batch is not None:
            asks = (
                f"These runs generated {config.batch.value} rollouts on each device ({config.batch.evidence}), but "
                f"the number of devices is not stated. What was B_p, problems per batch over all devices?"
            )
        found.ask(column, asks)


def _ask_for_steps(found: Resolved, log: RunLog, *, by_columns: bool) -> None:
    """Ask what a step counts, or how many updates a batch has; `by_columns`: columns of a table say n and B_p."""
    form = log.framework
    counted = canonical(log.step_name) == "step" and log.step_name not in WANDB_STEPS[:1]
    reused = STEPS_PER_BATCH in found.values or found.values.get("updates_per_batch", 1) != 1
    if is_table(log) and (form is None or by_columns) and counted and not reused:
        # The column of a table that is called step counts updates.
        found.evidence["step_unit"] = f"column {log.written.get('step', log.step_name)!r}"
    elif form is None or form.unit_of(log.format, log.step_name) is None:
        calls = f" {CALLS}" if form is not None else ""
        found.ask("step_unit", f"What does the step {log.step_name!r} of these logs count?{calls}", UNITS)
    elif form.step == "optimizer_updates" and not {"updates_per_batch", *SIZES[2:]} & (
        found.values.keys() | found.unknown.keys()
    ):
        updates = logged_updates_per_batch(log)
        if updates is not None:
            whole = updates % 1 == 0
            name = "updates_per_batch" if whole else STEPS_PER_BATCH
            found.take(name, int(updates) if whole else updates, "updates that log a reward")
            return
        found.ask(
            "updates_per_batch",
            "How many optimiser updates were made with one batch of rollouts? 1, unless the trainer reuses them "
            "(num_iterations, steps_per_generation over gradient_accumulation_steps).",
        )


def ask_for_evaluation(found: Resolved, log: RunLog, options: Options) -> None:
    """Which tag is the evaluation, by names that may be one's; of a log with a training reward only if there is one."""
    asked, rename = options.metric, options.rename
    known = log.meanings(found.values.get("eval_samples"))
    metrics = {tag: rename[tag] for tag in log.tags if tag in rename}
    metrics |= {tag: tag for tag in log.tags if tag == asked and tag not in known}
    trained = any(meaning.metric == TRAIN_REWARD for meaning in known.values())
    # The tag that is named as a training reward; of a table also `reward` alone.
    bare = [tag for tag in log.tags if is_table(log) and tag.lower() == "reward"]
    named = [tag for tag in (*bare, *filter(is_training_reward, log.tags)) if tag not in known]
    own = None if trained else min(named, key=len, default=None)
    if own is not None and own not in metrics:
        # A plain table is read by its own names, as it is once it says n.
        plain = own in bare and log.format == "table" and log.framework is None
        usual = own if plain else f"{TRAIN_REWARD} on {TRAIN_SET}"
        metrics[own] = asked if asked and own.lower() == "reward" else usual
    metrics |= {tag: tag for tag in log.tags if tag not in BY_NAME and re.match("(avg|best|worst)@", tag)}
    found.values["metrics"] = metrics
    measured = {*metrics.values(), *(meaning.metric for meaning in known.values())}
    if asked in measured or any(re.match("(avg|best|worst)@", name) for name in measured):
        # How many samples are behind a mean decides only what it is called: a note says that it is unknown.
        return
    components = re.compile("(?!)" if log.framework is None else log.framework.components)
    left = {*known, *metrics, *options.ignore}
    open_ = [tag for tag in log.tags if tag not in left and not components.fullmatch(tag)]
    open_ = [tag for tag in open_ if not ((trained or own) and is_training_reward(tag))]
    places = {tag: place for tag in open_ if (place := rank(tag, VALIDATION)) is not None}
    # What names do not say, and never changes, is no reward.
    unsaid = [tag for tag, place in places.items() if place == OTHER]
    never = {tag for tag in unsaid if is_set([], to_series(tag, log.series(tag).value_T))}
    open_, places = [tag for tag in open_ if tag not in never], {t: p for t, p in places.items() if t not in never}
    table = is_table(log)
    if table:
        likely = sorted((tag for tag, place in places.items() if place < OTHER), key=lambda tag: places[tag])
    else:
        likely = [tag for tag in places if LOOKS_LIKE_EVALUATION.fullmatch(tag)]
    if (trained or own) and not likely:
        # The training reward is no evaluation: what reads it says so, and there is nothing to ask.
        return
    if table and (len(likely) == 1 or len(places) < 2):
        metrics |= {tag: tag for tag in likely or places}
        return
    open_.sort(key=lambda tag: places.get(tag, OTHER + 1))
    series = {tag: log.series(tag) for tag in (likely or open_)[:12]}
    candidates = {
        tag: f"{counted(len(one.step_T), 'value')}, {one.value_T[0]:.4g} to {one.value_T[-1]:.4g}"
        for tag, one in series.items()
    }
    if trained or own:
        candidates[TRAIN_REWARD] = "the training reward, if none of them is an evaluation"
    found.ask("metrics", "Which of these is the validation reward (avg@k)?", candidates)
    if "eval_samples" not in found.values and not table:
        found.ask("eval_samples", "How many samples per problem does the evaluation take?")


UNITS = {
    "rollout_batches": "updates M: one for every batch of n x B_p rollouts",
    "optimizer_updates": "optimiser steps; context updates_per_batch says how many there are in a batch",
    "rollouts": "single samples, which some programs call episodes",
}
"""What a step may count, see `formats.log_format.STEP_UNITS`."""


def is_table(log: RunLog) -> bool:
    """Whether somebody wrote or exported a table, such as a chart of W&B, whose names are all that it says."""
    return log.format == "table" or (log.format == "wandb" and log.source.suffix != ".wandb")


def _refuse_contradiction(log: RunLog, found: Resolved) -> None:
    """Raise on an n, a B_p or both that cannot make the rollouts of a batch."""
    sizes = {name: found.values[name] for name in N_AND_BP if name in found.values}
    logged, product = logged_batch(log), math.prod(sizes.values())
    batch = found.rollouts if logged is None else Said(logged[1], f"every one logged {logged[0]} = {logged[1]}")
    if batch is None or batch.value == product or (len(sizes) < 2 and batch.value % product == 0):
        return
    given = f"{' x '.join(sizes)} = {' x '.join(map(str, sizes.values()))}{f' = {product}' * (len(sizes) > 1)}"
    raise RecordError(
        f"{log.source}: run {log.name!r}: {given} cannot make the {batch.value} rollouts of a batch "
        f"({batch.evidence}); accepted: an n and a B_p whose product is {batch.value}",
        "Correct group_size (n) or problems_per_batch (B_p).",
    )


def _refuse_open(run: LoadedRun, found: Resolved, batch: str) -> None:
    """Raise on a run whose n, B_p or updates per batch nothing says, or several sources say differently."""
    log, unknown = run.log, [name for name in found.unknown if name != "step_unit"]
    apart = next((name for name in unknown if found.unknown[name].candidates), None)
    if apart is not None:
        shown = "; ".join(found.unknown[apart].candidates.values())
        raise RecordError(
            f"{log.source}: run {log.name!r}: sources disagree about {apart}: {shown}",
            f"Give the right one: <--set {apart}=... | {apart}=...>",
        )
    if not unknown:
        return
    asked = [batch if one == "problems_per_batch" else one for one in unknown]
    where = "no configuration was saved beside it" if run.config is None else f"{run.config.path} does not say it"
    advice, named = f"Add --set {asked[0]}=... if it is the same for all runs, or", size_in_name(log.name, unknown[0])
    if named is not None:
        where, advice = f"{where}; its name suggests {named[0]}", "To confirm what the names suggest,"
    raise RecordError(
        f"{log.source}: the {unknown[0]} of run {log.name!r} is unknown ({where}); accepted: a whole number >= 1",
        f"Give it for all runs as {asked[0]}=..., for each as runs={{{log.name!r}: {{{unknown[0]!r}: ...}}}}, or "
        f"{PROPOSE}.",
        options=tuple(f"--set {one}={PLACEHOLDERS[one]}" for one in asked),
    ).in_shell(f"{advice} {PROPOSE}.")
