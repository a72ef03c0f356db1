"""`LogFormat`: what one training framework means by its logs; and `RunLog`, what a run logged, attempt by attempt.

A format is found through the entry-point group `isocompute.log_formats`, see `registry`. The package of a backend
registers the format of its framework; formats of frameworks that no backend of ours drives stand in this folder.
tutorials/03_add_a_log_format.md adds one from a package of its own.

A name of ours is given only where the framework's number is that quantity. veRL draws best@k and worst@k by a bootstrap
with replacement, which is not the maximum or minimum of k samples: such a number keeps its estimator in its name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.ingest.formats.configuration import Configuration
from isocompute_sdk.ingest.tables import RawTable
from isocompute_sdk.metrics import average_of
from isocompute_sdk.notes import Note
from isocompute_sdk.records.columns import DEFAULT_EVAL_SET, STEP_SECONDS
from isocompute_sdk.records.reward_metrics import TRAIN_REWARD, TRAIN_SET, is_training_reward
from isocompute_sdk.run_folders.progress import Progress

StepUnit = Literal["rollout_batches", "optimizer_updates", "rollouts"]
STEP_UNITS: tuple[str, ...] = get_args(StepUnit)
"""What a logged step may count. Only the first is M; `rollouts` are single samples, "episodes" of some programs."""
VALIDATION = DEFAULT_EVAL_SET
"""Evaluation set of held-out problems whose set has no name; what each update measured is `TRAIN_SET`."""
UNKNOWN_K = "?"
"""Stands for a number of samples that a log does not say."""
SAMPLING_SECONDS = "sampling_seconds"
EVALUATION_SECONDS, EVALUATION_ROLLOUTS = "evaluation_seconds", "evaluation_rollouts"
STARTUP_SECONDS = "startup_seconds"
RESPONSE_LENGTH = "response_length"
TRAINED_SHARE = "trained_share"
TRUNCATED_SHARE = "truncated_share"
ZERO_VARIANCE_SHARE = "zero_variance_share"
METRICS: dict[str, str] = {
    TRAIN_REWARD: "mean reward of the rollouts of an update",
    "loss": "loss of an update; that of the policy alone where a framework logs no total",
    "policy_loss": "the policy part of a loss with several parts",
    "value_loss": "loss of the value model",
    "value_mean": "mean value of a token, in units of the reward",
    "return_mean": "mean return that the value model is trained on, in units of the reward",
    "value_clipped_share": "share of tokens whose value was clipped",
    "value_gradient_norm": "norm of the value model's gradient before clipping",
    "entropy": "mean entropy of a token, nats",
    "kl": "mean KL to the base model, nats per token",
    "sampler_kl": "mean KL between sampler and trainer, nats per token",
    "importance_weight_mean": "mean weight that corrects for the sampler",
    "importance_capped_share": "share of tokens whose weight was capped",
    "gradient_norm": "norm of the gradient before clipping",
    "learning_rate": "learning rate of the policy",
    "clipped_share": "share of tokens whose policy ratio was clipped",
    "group_reward_std": "mean standard deviation of the rewards of a group",
    RESPONSE_LENGTH: "mean length of a response, tokens",
    "truncated_share": "share of responses that were cut at the length limit",
    ZERO_VARIANCE_SHARE: "share of groups whose rewards are all equal",
    TRAINED_SHARE: "share of the generated rollouts that an update trained on",
    "zero_pass_share": "share of problems of an evaluation without a right sample",
    "trl_eval_reward": "mean reward of an evaluation as TRL logs it, beside avg@k of the same samples",
    "reward_errors": "samples of an update for which the reward function failed",
    "reward_error_share": "share of samples for which the reward function failed",
    STEP_SECONDS: "wall-clock seconds of an update",
    SAMPLING_SECONDS: "seconds of sampling in an update",
    EVALUATION_SECONDS: "seconds of an evaluation",
    EVALUATION_ROLLOUTS: "samples drawn in an evaluation",
    STARTUP_SECONDS: "seconds from the start of an attempt to its first record",
}
"""Our metrics with their meaning and unit, beside avg@k, best@k and worst@k."""
PLAIN_NAMES = {
    **{f"{a}_per_{b}": STEP_SECONDS for a in ("seconds", "sec", "time") for b in ("step", "update", "iteration")},
    "tokens_per_rollout": RESPONSE_LENGTH,
}
"""Names of them in tables that people write, beside the tags of frameworks."""
LOOKS_LIKE_EVALUATION = re.compile(r"(.*[/_-])?(eval|val|valid|validation|test|pass|acc|accuracy)([/_@0-9-].*)?", re.I)
"""Tags of no known framework that may hold an evaluation."""


_NUMBER = re.compile(
    r"(')?([a-zA-Z_][\w.]*\()?(?P<number>-?(?:nan|inf|[0-9]+(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?))(?(2)\))(?(1)')"
)
"""A printed number, which may stand inside its type, np.float64(0.5), or in quotes."""
PAIR = re.compile(r"'([^'\n]+)': ('[^'\n]*'|[^,}\n]+)(?=[,}])")
"""An entry of a printed dict."""
COLOURS = re.compile(r"\x1b\[[\d;]*[A-Za-z]|\[\d{1,2}(?:;\d{1,2})*m")
"""Colours of a terminal in a printed line, also those that lost their escape when somebody copied them."""


class Measure(NamedTuple):
    """One quantity of a run."""

    metric: str
    eval_set: str


@dataclass(frozen=True)
class Tag:
    """One row of a table of tags."""

    pattern: str
    """Regular expression over the whole tag; its group `set` names the evaluation set, `k` the samples."""
    metric: str
    """A name of `METRICS`, or avg@{k}, best@{k}, worst@{k}; `{k}` stands for the number of samples."""
    eval_set: str = TRAIN_SET
    """Evaluation set if the tag names none."""
    factor: float = 1.0
    """The logged number times this has the unit of `METRICS`, e.g. 0.001 for milliseconds."""
    samples_from: str = ""
    """Regular expression over the other tags of a log whose largest group `k` is the number of samples behind this one;
    `{set}` stands for the evaluation set."""


def validation(pattern: str, metric: str, **more: Any) -> Tag:
    """A row about held-out problems."""
    return Tag(pattern, metric, VALIDATION, **more)


@dataclass(frozen=True)
class Meaning:
    """What a tag holds."""

    metric: str
    eval_set: str
    needs_k: bool = False
    """True if the number of samples is unknown: the metric's name holds `UNKNOWN_K`."""
    factor: float = 1.0

    @property
    def measure(self) -> Measure:
        """The quantity."""
        return Measure(self.metric, self.eval_set)


@dataclass(frozen=True)
class Printed:
    """What one line of a console says."""

    step: int
    values: Mapping[str, float]
    """Tag, as in the logs -> value."""
    update: bool = True
    """False for a line about an evaluation, which may repeat the step of an update."""
    others: Mapping[str, str] = field(default_factory=dict[str, str])
    """Tag -> what stands in the place of its value and is no number; nothing -> what else is damaged, in a sentence."""


def printed_numbers(pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, float], dict[str, str]]:
    """Tags with their numbers, and those with anything else, from what was printed of each; see `Printed.others`."""
    numbers: dict[str, float] = {}
    others: dict[str, str] = {}
    for tag, text in pairs:
        found = _NUMBER.fullmatch(text)
        if found is None:
            others[tag] = text
        elif str(numbers.setdefault(tag, value := float(found["number"]))) != str(value):
            others[""] = f"{tag} appears twice in one step; its first value is kept"
    return numbers, others


def printed_dict(line: str, begins: re.Pattern[str], prefixes: Mapping[str, str]) -> Printed | None:
    """What a line with a Python dict says; None for any other line.

    Args:
        line: the line.
        begins: what stands before the entries of the dict; its groups are the kind of the line and the step.
        prefixes: kind -> what the tags of its entries begin with in the logs; the first kind is that of updates.
    """
    found, (_, *parts) = None, begins.split(COLOURS.sub("", line))
    for kind, step, entries in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        said, end, rest = entries.partition("}")
        values, others = printed_numbers((prefixes[kind] + tag, text) for tag, text in PAIR.findall(said + end))
        if len(parts) > 3 or rest.strip() or not end or said.count("'") % 2:
            others[""] = "part of this line is missing or runs into another line, and is left out"
        found = Printed(int(step), values, kind == next(iter(prefixes)), others)
        if values:
            break
    return found


@dataclass(frozen=True)
class Console:
    """How a framework prints to the console what it logs."""

    marks: tuple[bytes, ...]
    """One of these stands in every line that counts; they make a long console quick to search."""
    parse: Callable[[str], Printed | None]
    """One line -> what it says, None for any other line."""
    until: bytes | None = None
    """What ends the last line of a step, if one is printed over several: `parse` is given all of them."""


@dataclass(frozen=True)
class Extent:
    """The steps of one attempt."""

    start: float
    """Step it went on from: 0, or that of the checkpoint it was resumed from."""
    last: float
    """Last step it logged; `start` if it logged none."""


@dataclass(frozen=True)
class ScalarSeries:
    """Values of one tag, in the order in which they were written; arrays of equal length."""

    step_T: NDArray[np.int64]
    """Step that the program gave each value."""
    wall_time_T: NDArray[np.float64]
    """When each was written, seconds since 1970."""
    value_T: NDArray[np.float64]
    """The values; not-a-number and infinities are kept as they were logged."""

    def where(self, mask_T: NDArray[np.bool_]) -> ScalarSeries:
        """The values at which the mask is true."""
        return ScalarSeries(self.step_T[mask_T], self.wall_time_T[mask_T], self.value_T[mask_T])


@dataclass(frozen=True)
class Attempt:
    """Everything that one start of a run measured."""

    path: Path
    """File or folder that it was read from."""
    series: dict[str, ScalarSeries]
    """Tag -> its values, every one that was written, repeats included."""
    started: float
    """When its first record was written, seconds since 1970; or its place in the order of attempts."""
    purge_step: int | None
    """The step from which the writer declared earlier files void, if it did (`purge_step` of a writer)."""
    notes: tuple[Note, ...]
    """What could not be read: `log-damaged`."""
    from_step: float | None = None
    """Logged step whose checkpoint it went on from, 0 for the base model; None if it has to be seen from the log."""


def one_per_step(parts: Sequence[ScalarSeries]) -> ScalarSeries:
    """Several series as one, sorted by step, keeping of every step the value that was written last."""
    step = np.concatenate([part.step_T for part in parts])
    # np.unique returns first occurrences: reversed, those are the last ones.
    _, last = np.unique(step[::-1], return_index=True)
    rows = len(step) - 1 - last
    return ScalarSeries(
        step[rows],
        np.concatenate([part.wall_time_T for part in parts])[rows],
        np.concatenate([part.value_T for part in parts])[rows],
    )


@dataclass(frozen=True)
class RunLog:
    """The scalars that one run logged."""

    name: str
    """Name of the run, from its folder, file or column."""
    source: Path
    """Folder or file that it was read from."""
    format: str
    """How it was read: a member of `paths.log_formats()`, or `table`."""
    attempts: tuple[Attempt, ...]
    """One for each time the run was started, in that order; each holds every value, repeats included."""
    notes: tuple[Note, ...] = ()
    """What could not be read."""
    said: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields that the file gives beside the measurements, such as a column `group_size`."""
    step_name: str = "step"
    """What the log calls its step."""
    rollouts: ScalarSeries | None = None
    """Rollouts sampled so far, if the file counts them itself: one value per step, in order."""
    other_extents: tuple[Extent, ...] = ()
    """Attempts as another log of the same run has them, if this one keeps only what counts."""
    framework: LogFormat | None = None
    """The format of the framework that wrote it; `registry.recognised` finds it by the tags, and None is unknown."""
    device_batch: int | None = None
    """Batch of one process of a trainer, over all its GPUs, if the log says it."""
    settings: tuple[tuple[Path, Mapping[str, Any]], ...] = ()
    """Configurations that the log holds beside its measurements: file, and nested or dotted keys -> value."""
    written: Mapping[str, str] = field(default_factory=dict[str, str])
    """Column of a table by its canonical name -> by the name in the file."""
    launched: bool = False
    """Whether a launch script of this package made its folder, which says everything about the run."""

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """Every tag, sorted."""
        return tuple(sorted({tag for attempt in self.attempts for tag in attempt.series}))

    @property
    def began(self) -> float | None:
        """When its first value was written, seconds since 1970; None if the log has no clock."""
        walls = [one.wall_time_T[0] for attempt in self.attempts for one in attempt.series.values() if len(one.step_T)]
        return min((float(wall) for wall in walls if wall > 0), default=None)

    def meanings(self, samples: int | None = None) -> dict[str, Meaning]:
        """Tag -> what it holds, for the tags that the format knows; see `LogFormat.meanings`.

        Without the format's training reward, the one tag that is named as one, as a user's own reward function may log.
        """
        if self.framework is None:
            return {}
        known = self.framework.meanings(self.tags, samples)
        reward = Meaning(TRAIN_REWARD, TRAIN_SET)
        if all(one.measure != reward.measure for one in known.values()):
            parts = re.compile(self.framework.components)
            own = [t for t in self.tags if t not in known and is_training_reward(t) and not parts.fullmatch(t)]
            named = [tag for tag in own if "reward" in tag.lower()] or own
            known |= {tag: reward for tag in named if len(named) == 1}
        return known

    @cached_property
    def extents(self) -> tuple[Extent, ...]:
        """From where to where each attempt went. Where it went on from is seen from its first logged update."""
        return self.other_extents or self._own_extents

    @cached_property
    def _own_extents(self) -> tuple[Extent, ...]:
        found: list[Extent] = []
        for attempt in self.attempts:
            found.append(self._extent(attempt, found[-1].last if found else 0.0))
        return tuple(found)

    @property
    def first_step(self) -> float:
        """Where the log begins: 0 for one that is whole, the step before its first update for one that is not."""
        logged = (e.start for a, e in zip(self.attempts, self._own_extents, strict=True) if a.series)
        return next(logged, 0.0) if not self.other_extents else self.extents[0].start

    def timed(self, step_T: NDArray[Any], time_T: NDArray[np.float64]) -> RunLog:
        """The same log with the times of another clock at its steps, where it has none itself."""

        def timed(one: ScalarSeries) -> ScalarSeries:
            at_T = np.interp(one.step_T, step_T, time_T, left=np.nan, right=np.nan)
            return replace(one, wall_time_T=np.where(np.isnan(one.wall_time_T), at_T, one.wall_time_T))

        attempts = (replace(one, series={tag: timed(own) for tag, own in one.series.items()}) for one in self.attempts)
        return replace(self, attempts=tuple(attempts))

    def series(self, tag: str) -> ScalarSeries:
        """One value per step: the last attempt's if several measured it, none of weights that were given up."""
        ends = zip(self.attempts, limits(self._own_extents), strict=True)
        logged = ((one, end) for attempt, end in ends if (one := attempt.series.get(tag)) is not None)
        return one_per_step([one.where(one.step_T <= end) for one, end in logged])

    @cached_property
    def _update_tags(self) -> tuple[str, ...]:
        """Tags that are logged with updates only; programs log counters of their own at evaluations too."""
        found = tuple(tag for tag, meaning in self.meanings().items() if meaning.eval_set == TRAIN_SET)
        return found or tuple(tag for tag in self.tags if not LOOKS_LIKE_EVALUATION.fullmatch(tag))

    def _extent(self, attempt: Attempt, reached: float) -> Extent:
        if not attempt.series:
            # It died before it logged anything.
            start = reached if attempt.from_step is None else attempt.from_step
            return Extent(start, start)
        updates = [attempt.series[tag].step_T for tag in self._update_tags if tag in attempt.series]
        # What a program logs between the rows of its trainer may carry an earlier step.
        known = [attempt.series[tag].step_T for tag in self.meanings() if tag in attempt.series]
        every = known or [s.step_T for s in attempt.series.values()]
        first_update = min((float(step.min()) for step in updates), default=np.inf)
        first_any = min(float(step.min()) for step in every)
        elsewhere = any(tag in one.series for one in self.attempts for tag in self._update_tags)
        if not updates and elsewhere and all(float(step.max()) == first_any for step in every):
            # It evaluated the checkpoint that it went on from, and died before its first update.
            return Extent(first_any, first_any)
        last = max(float(step.max()) for step in every)
        if attempt.from_step is not None:
            return Extent(attempt.from_step, max(attempt.from_step, last))
        spacing = _spacing(updates or every)
        # An evaluation before the first update is of the checkpoint itself.
        start = min(first_any, max(0.0, first_update - spacing)) if updates else max(0.0, first_any - spacing)
        if attempt.purge_step is not None:
            start = min(start, attempt.purge_step - 1.0)
        return Extent(max(0.0, start), last)


def _spacing(steps: Iterable[np.ndarray[Any, Any]]) -> float:
    """Usual distance between logged steps; 1 if no tag was logged twice."""
    distances = [float(np.median(np.diff(np.unique(step)))) for step in steps if len(np.unique(step)) > 1]
    return min(distances, default=1.0)


def limits(attempts: Sequence[Extent]) -> NDArray[np.float64]:
    """Up to which step each attempt's measurements count: those of weights that a later one gave up do not."""
    starts = [attempt.start for attempt in attempts]
    return np.array([min(starts[i + 1 :], default=np.inf) for i in range(len(starts))])


class FoundRun(NamedTuple):
    """A run that a file names."""

    folder: Path
    """The same for all files of the run: its folder, or the file and the run's id below it."""
    name: str
    """Name that people know it by."""
    part: Path
    """What `LogStore.read` is given: the file, or `folder` if the file holds several runs."""


@dataclass(frozen=True)
class LogStore:
    """A kind of file in which a framework logs, beside TensorBoard's event files, which every format is read from."""

    name: str
    """Accepted as `format=`."""
    holds: Callable[[Path], bool]
    """Whether a file is one of these, by its name and first line."""
    run_of: Callable[[Path], Path]
    """File -> folder of its run; or the file without its ending if a folder may hold the files of several runs."""
    read: Callable[[Sequence[Path], str], RunLog]
    """Files of one run and its name -> its log. Lines that are broken are left out with a note.

    Raises:
        NothingMeasured: the run has only begun.
    """
    with_events: bool = False
    """Whether event files in the folder of a run are another log of the same run."""
    runs_of: Callable[[Path], Sequence[FoundRun]] | None = None
    """File -> the runs in it, instead of `run_of`, if the file names its runs."""
    apart: Callable[[Sequence[Path]], Sequence[Sequence[Path]]] | None = None
    """Files of one folder -> the files of each run, the newest run first, if a folder may hold those of several."""


@dataclass(frozen=True)
class RunFolder:
    """What the launch script of a backend leaves in the folder of a run."""

    kind: str
    """`kind` in its request.json."""
    files: tuple[str, ...]
    """Patterns, relative to the folder, of the files that `read` looks at."""
    read: Callable[[Path], RunLog]
    """Folder -> log, with `said` (the context of its `RunSpec`).

    Raises:
        RecordError: the folder is of another release, or a file in it cannot be read.
    """
    progress: Callable[[Path], Progress | None]
    """Folder -> how far the run is, from the end of what it writes; None before the first record."""


@dataclass(frozen=True)
class Journal:
    """A log that says n, B_p and context itself and names our metrics: a table, with nothing to translate."""

    file: str
    """Its name in the folder of a run."""
    holds: Callable[[Path], bool]
    """Whether a file is one, by its first line."""
    read: Callable[[Path], RawTable]
    """File -> one row per measured value; a broken line is left out with a note."""
    progress: Callable[[Path], Progress | None]
    """File -> how far the run is; None before the first record."""


@dataclass(frozen=True)
class LogFormat:
    """What the logs of one framework mean; a field with a default may be left out.

    How a resume shows is part of how a log lies on disk: the store, or `run_folder`, returns one `Attempt` for each
    start that it can tell apart (an event file, a numbered file, rows whose steps go back), with `from_step` if
    something says which checkpoint it went on from. `RunLog` does the rest for every format.
    """

    name: str
    """Name it is registered under."""
    framework: str
    """The framework, as its own documentation spells it."""
    signature: str
    """Regular expression over a whole tag that no other framework writes: a log with such a tag is of this one."""
    tags: tuple[Tag, ...]
    """What each tag holds; if several hold one quantity, the first row counts. The row of `train_reward` is the
    training reward; a tag without a row is not read."""
    step: StepUnit
    """What a logged step counts."""
    components: str = "(?!)"
    """Regular expression over tags that are only a part of a reward or a diagnostic, never the reward or an evaluation,
    whatever their names suggest."""
    update_steps: str = ".*"
    """Regular expression over names of step columns in tables and W&B exports that count the same as `step`; any
    other one may count calls of W&B's `log`."""
    batch_tag: str | None = None
    """Regular expression over the tag that logs the rollouts of a batch, n times B_p."""
    tokens_tag: str | None = None
    """Regular expression over the tag that counts all tokens so far, those of prompts and responses: a check of n times
    B_p."""
    rollouts_tag: str | None = None
    """Tag that logs how many rollouts an update sampled, if their number varies."""
    group_size_tag: str | None = None
    """Regular expression over tags whose group `n` is the group size, such as one that logs the best of n."""
    problems_tag: str | None = None
    """Tag that logs the number of problems of each batch, B_p."""
    step_key: str = r"(.+/)?global_step"
    """Regular expression over the keys of a W&B run that hold the step of their row; without any, W&B's own step
    counts."""
    one_unit: Callable[[RunLog], RunLog] | None = None
    """A log -> the same with all steps in the unit of `step`, if the framework logs steps of several kinds."""
    from_zero: Literal["never", "training", "updates", "rows", "all rows"] = "never"
    """Whether a row with step i was logged after i + 1 updates: never; `training`: what an update measured always was,
    and evaluations after i; `updates`: the same if an update is logged at step 0; `rows`: whole rows were if an update
    is logged at step 0, but for a first evaluation at step 0; `all rows`: the same, whether one is or not."""
    kept_percent_tag: str | None = None
    """Tag that logs 100 n times the share of the generated groups that a filter kept."""
    generations_tag: str | None = None
    """Tag that logs how many batches were generated for an update, as their groups were filtered; how many rollouts
    each has is `Configuration.generated`."""
    filtered_groups: str | None = None
    """Regular expression over tags that log how many groups were generated and not trained on; an update without such
    groups may log none."""
    configurations: tuple[Configuration, ...] = ()
    """How configurations that the framework saves give n, B_p and context."""
    store: LogStore | None = None
    """Files of its own; None if it logs to event files only."""
    console: Console | None = None
    """What it prints; None if consoles are not read."""
    is_dump: Callable[[Path], bool] = lambda path: False
    """Whether a file holds responses that it dumped, which are no table."""
    run_folder: RunFolder | None = None
    """What a launch script leaves; None if no backend writes scripts for this format."""
    journal: Journal | None = None
    """A log that needs no translation; None for the logs of frameworks."""

    def writes(self, tags: Iterable[str]) -> bool:
        """Whether one of the tags bears the signature."""
        signature = re.compile(self.signature)
        return any(signature.fullmatch(tag) for tag in tags)

    def meanings(self, tags: Sequence[str], samples: int | None = None) -> dict[str, Meaning]:
        """Tag -> what it holds, in the order of the table; tags without a meaning are left out.

        Args:
            tags: all tags of one run.
            samples: samples per problem in the evaluation, if something else says so.
        """
        found: dict[str, Meaning] = {}
        taken: set[Measure] = set()
        for tag in sorted(tags, key=lambda name: _row(self.tags, name)[0]):
            index, match = _row(self.tags, tag)
            if match is None:
                continue
            row, groups = self.tags[index], match.groupdict()
            eval_set = groups.get("set") or row.eval_set
            k = groups.get("k") or (_samples(row, eval_set, tags, samples) if "{k}" in row.metric else None)
            meaning = Meaning(
                row.metric.format(k=k or UNKNOWN_K), eval_set, "{k}" in row.metric and k is None, row.factor
            )
            # A framework may log one measurement under two tags, such as acc and reward: the first is its main one.
            if meaning.measure not in taken:
                found[tag] = meaning
                taken.add(meaning.measure)
        return found

    def unit_of(self, store: str, step_name: str) -> StepUnit | None:
        """What the steps of a log count; None if they may count calls of W&B's `log`.

        Args:
            store: how the log lies on disk.
            step_name: name of the step there.
        """
        # A plain `step` is the trainer's: W&B calls its own `_step` or `Step`.
        foreign = store in ("wandb", "table") and step_name != "step"
        return None if foreign and self.counts_calls(step_name) else self.step

    def counts_calls(self, step_name: str) -> bool:
        """Whether a step of W&B or of a table may count calls of W&B's `log` instead of updates."""
        return re.fullmatch(self.update_steps, step_name) is None

    def progress_in(self, folder: Path) -> Progress | None:
        """How far the run in a folder is; None before the first record, or if nobody can tell."""
        if self.journal is not None:
            return self.journal.progress(folder / self.journal.file)
        return None if self.run_folder is None else self.run_folder.progress(folder)

    def progress(self, step: int, values: Mapping[str, float | None]) -> Progress:
        """How far a run is, by what it logged last: updates done, avg@k on validation problems, training reward."""
        known = {tag: float(value) for tag, value in values.items() if value is not None and math.isfinite(value)}
        measured = {meaning.measure: known[tag] for tag, meaning in self.meanings(tuple(known)).items()}
        averages = {
            metric: value
            for (metric, eval_set), value in measured.items()
            if eval_set == VALIDATION and average_of(metric) is not None
        }
        return Progress(step, metrics=averages, train_reward=measured.get(Measure(TRAIN_REWARD, TRAIN_SET)))


@lru_cache(maxsize=8192)
def _row(rows: tuple[Tag, ...], tag: str) -> tuple[int, re.Match[str] | None]:
    for index, row in enumerate(rows):
        match = re.fullmatch(row.pattern, tag)
        if match is not None:
            return index, match
    return len(rows), None


def _samples(row: Tag, eval_set: str, tags: Sequence[str], known: int | None) -> str | None:
    """Samples behind a mean whose tag does not say so itself."""
    if row.samples_from:
        beside = re.compile(row.samples_from.replace("{set}", re.escape(eval_set)))
        counts = [int(match["k"]) for tag in tags if (match := beside.fullmatch(tag))]
        if max(counts, default=1) > 1:
            return str(max(counts))
    return None if known is None else str(known)
