"""Which runs' logs lie at or below a path: folders of launch scripts, event files, consoles, files of frameworks' own.

The suffix of a file decides first: a table (`paths.NEVER_LOGS`) is not opened here, and no log format is loaded for it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from isocompute_sdk.errors import IsoComputeError, NothingMeasured, RecordError
from isocompute_sdk.files import parse_json
from isocompute_sdk.files import read_text as read_document
from isocompute_sdk.ingest.attempts import counted_from_one
from isocompute_sdk.ingest.formats.configuration import Said, SavedConfig
from isocompute_sdk.ingest.formats.log_format import VALIDATION, LogFormat, LogStore, RunLog
from isocompute_sdk.ingest.formats.registry import formats, journals, recognised
from isocompute_sdk.ingest.paths import (
    CONSOLE,
    EVENT_MARK,
    PROGRAM,
    TENSORBOARD,
    Listing,
    is_log,
    log_stores,
    may_be_log,
    tables_among,
)
from isocompute_sdk.ingest.stores.console import is_console_log, launches, printed_configurations, read_console_log
from isocompute_sdk.ingest.stores.event_files import EventFile, event_files, read_event_file, read_events
from isocompute_sdk.ingest.stores.saved_config import find_config, on_devices
from isocompute_sdk.ingest.stores.trainer_state import STATE_FILE
from isocompute_sdk.ingest.tables import TABLE_SUFFIXES, is_sealed
from isocompute_sdk.notes import Note
from isocompute_sdk.records.reward_metrics import rank
from isocompute_sdk.run_folders.store import REQUEST_FILE, unmeasured

MARKS = (REQUEST_FILE, PROGRAM)
"""Files in every run folder that a launch script of this package made."""
_CONSOLE_NAME = re.compile(r".+\.(log|out|err)|(console|stdout|stderr|output|launch|train|log).*\.txt", re.IGNORECASE)
_OF_QUEUES = re.compile(r"\.[oe]\d+")
"""Endings that job queues give, such as `train.o48213`."""
# Folders that the Hugging Face Trainer makes for every start, and those that programs put around their events.
_STARTED_AT = re.compile(r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_.+|\d{9,}(\.\d+)?")
_WRAPPERS = ("runs", "tensorboard", "tensorboard_log", "tensorboard_logs", "tb", "tb_logs", "logs", "events")


@dataclass(frozen=True)
class LogSource:
    """The log of one run, not read yet."""

    name: str
    """Name of the run: its folder, relative to the path that was asked for."""
    format: str
    """A member of `log_formats()`: the store of the log."""
    folder: Path
    """Folder of the run, where its saved configuration may lie; of a veRL log its path without the ending."""
    paths: tuple[Path, ...]
    """Folders of events, or files."""
    root: Path = Path()
    """The path that was asked for; a configuration is not looked for above it."""
    events: tuple[Path, ...] = ()
    """Folders of events of the same run, beside a trainer state."""
    consoles: tuple[Path, ...] = ()
    """Captured consoles of the run, which may show its configuration."""
    launch: int | None = None
    """Which of several launches in its console it is, from 0 on."""
    shares: bool = False
    """Whether its folder holds several launches, so that a configuration there may be that of another one."""
    launched: LogFormat | None = None
    """The format of a run that a launch script of this package started: its folder says everything about it."""

    @property
    def files(self) -> list[Path]:
        """The files that are read, sorted; a run that goes on may add some."""
        if self.launched is not None and self.launched.run_folder is not None:
            patterns = self.launched.run_folder.files
            return sorted({file for pattern in patterns for file in self.folder.glob(pattern) if file.is_file()})
        # A run of a database lies in the file above it.
        parts = {part if part.exists() else part.parent for part in (*self.paths, *self.events)}
        return sorted({file for part in parts for file in (part.iterdir() if part.is_dir() else (part,))})

    def read(self) -> tuple[RunLog, SavedConfig | None]:
        """The log, and what is configured for its run.

        Raises:
            RecordError: it cannot be read.
        """
        log = counted_from_one(recognised(self._read()))
        refuse_supervised(log)
        config = None if self.launched is not None else self._configuration(log)
        return with_generations(log, config), config

    def _configuration(self, log: RunLog) -> SavedConfig | None:
        """What is configured; consoles, which are long, are searched only if n or B_p is in no other place."""
        measured = logged_sizes(log)
        config = find_config(self.folder, self.root, log.settings, measured, shares=self.shares)
        if config is not None and log.device_batch is not None:
            config = on_devices(config, log.device_batch, log.source)
        known = set[str]() if config is None else config.fields.keys() | config.disagreements.keys()
        if not {"group_size", "problems_per_batch"} <= known:
            printed = [one for path in self.consoles for one in printed_configurations(path)]
            if printed:
                config = find_config(self.folder, self.root, (*log.settings, *printed), measured, shares=self.shares)
        return by_release(log, config)

    def _read(self) -> RunLog:
        if self.launched is not None and self.launched.run_folder is not None:
            log = self.launched.run_folder.read(self.folder)
            if not any(one.series for one in log.attempts):
                why, advice = unmeasured(self.folder)
                raise NothingMeasured(f"{self.folder}: run {log.name!r} {why}", advice)
            said = {name: value for name, value in log.said.items() if value is not None}
            return replace(log, name=self.name, said=said, launched=True)
        if self.format == TENSORBOARD:
            return read_events(self.name, self.folder, self.paths)
        if self.format == CONSOLE:
            return read_console_log(self.paths[0], self.name, self.launch)
        log = log_stores()[self.format].read(self.paths, self.name)
        return self._with_events(log) if self.events else log

    def _with_events(self, log: RunLog) -> RunLog:
        """A log together with the event files of the same run."""
        try:
            events = read_events(self.name, self.folder, self.events)
        except RecordError as error:
            message = f"run {self.name!r}: its event files were not read: {error.message}. {log.source} was read."
            note = Note("files-not-read", "warning", message, {"run_id": self.name, "files": [str(self.folder)]})
            return replace(log, notes=(*log.notes, note))
        settings = (*log.settings, *events.settings)
        # A state keeps every digit but only what was saved; the events also have what came after that.
        if events.extents[-1].last > log.extents[-1].last:
            return events
        return replace(log, other_extents=events.extents, settings=settings)


def with_generations(log: RunLog, saved: SavedConfig | None) -> RunLog:
    """A log with all rollouts that were generated, if it says how often a batch was generated for each update."""
    tag = None if log.framework is None else log.framework.generations_tag
    if tag is None or tag not in log.tags or log.rollouts is not None:
        return log
    times = log.series(tag)
    if (times.value_T == 1).all() and (saved is None or saved.generated is None):
        return log
    if saved is None or saved.generated is None:
        message = (
            f"run {log.name!r}: {tag} says that up to {times.value_T.max():g} batches were generated for an update, "
            f"but not how large they were: C is a lower limit. Put the configuration of the run beside its log."
        )
        note = Note("generations-not-counted", "warning", message, {"run_id": log.name, "tag": tag})
        return replace(log, notes=(*log.notes, note))
    generated = replace(times, value_T=np.cumsum(times.value_T * float(saved.generated.value)))
    return replace(log, rollouts=generated)


_OF_LATER_RELEASES = {"completions/mean_length", "num_tokens", "clip_ratio", "frac_reward_zero_std"}
_OF_RELEASES = ("reward_weights", "num_iterations", "loss_type", "generation_batch_size", "steps_per_generation")


def by_release(log: RunLog, found: SavedConfig | None) -> SavedConfig | None:
    """A few arguments of TRL with what they mean in 0.14 and after it, if neither they nor the log tell the release."""
    size, problems = (
        None if found is None else found.fields.get(name) for name in ("group_size", "problems_per_batch")
    )
    if found is None or size is None or problems is None or log.framework is None or log.framework.name != "trl":
        return found
    whole = "adam_beta1" in found.keys and "max_grad_norm" in found.keys
    # What later releases measure, whose batches count completions.
    measured = {tag.removeprefix("train/") for tag in log.tags} & _OF_LATER_RELEASES
    if whole or measured or any(name in found.keys for name in _OF_RELEASES):
        return found
    meant = (
        Said(problems.value, f"{problems.evidence}; TRL from 0.15 on, whose batches count completions"),
        Said(problems.value * size.value, f"{problems.evidence}; TRL 0.14, whose batches count prompts"),
    )
    fields = {name: said for name, said in found.fields.items() if name != "problems_per_batch"}
    return replace(found, fields=fields, disagreements={**found.disagreements, "problems_per_batch": meant})


def logged_sizes(log: RunLog) -> SavedConfig | None:
    """n, B_p and their product as far as a log measures or names them, and they never change; None without any."""
    form = log.framework
    if form is None:
        return None
    found: dict[str, Said] = {}
    named = re.compile(form.group_size_tag or "(?!)")
    sizes = {int(match["n"]): tag for tag in log.tags if (match := named.fullmatch(tag)) is not None}
    if len(sizes) == 1:
        ((size, tag),) = sizes.items()
        found["group_size"] = Said(size, f"{log.source}: {tag}")
    problems, batch = _constant(log, form.problems_tag), logged_batch(log)
    if problems is not None:
        found["problems_per_batch"] = Said(problems[1], f"{log.source}: {problems[0]} = {problems[1]}")
    rollouts = None if batch is None else Said(batch[1], f"{log.source}: {batch[0]} = {batch[1]}")
    return SavedConfig(log.source, form.name, found, rollouts=rollouts) if found or rollouts is not None else None


def logged_batch(log: RunLog) -> tuple[str, int] | None:
    """The tag that logs the rollouts of each batch, and their number if it never changes."""
    return None if log.framework is None else _constant(log, log.framework.batch_tag)


def _constant(log: RunLog, pattern: str | None) -> tuple[str, int] | None:
    """A tag and its one whole number; None if there is no such tag or it changes."""
    tag = None if pattern is None else next((tag for tag in log.tags if re.fullmatch(pattern, tag)), None)
    values = {float(value) for one in log.attempts if tag in one.series for value in one.series[str(tag)].value_T}
    number = values.pop() if len(values) == 1 else 0.0
    return (str(tag), int(number)) if number >= 1 and number.is_integer() else None


class NoRewardLearning(NothingMeasured):
    """A run of another kind of training, which has no reward."""


_SUPERVISED = {"mean_token_accuracy", "token_acc", "train_mean_nll"}
_PREFERENCES = {"rewards/chosen", "rewards/rejected", "rewards/margins"}


def refuse_supervised(log: RunLog, columns: Iterable[str] = ()) -> None:
    """Refuse the log of a training without a reward of its own, by what it measures."""
    every = {*log.tags, *columns}
    names = every | {re.sub(r"^(train|eval)[/_]", "", tag) for tag in every}
    kind = next(
        (
            kind
            for kind, marks in (
                ("supervised fine-tuning", _SUPERVISED),
                ("training on preferences", _PREFERENCES),
                ("distillation", {"teacher_kl"}),
            )
            if names & marks
        ),
        None,
    )
    losses = {name for name in names if name.endswith("loss")}
    if kind is None and losses and log.framework is None and all(rank(name, VALIDATION) is None for name in names):
        kind = "training without a reward, such as supervised fine-tuning,"
    half = log.framework is not None and log.framework.name == "prime-rl"
    if half and not any("reward" in tag or tag.startswith("eval/") for tag in log.tags):
        kind = "the trainer's half of a prime-rl run, whose rewards the orchestrator logs,"
    if kind is not None and not names & {"reward", "env/all/reward/total"}:
        raise NoRewardLearning(
            f"{log.source}: run {log.name!r} is {kind} and logs no reward; accepted: runs of reinforcement learning",
            "Leave it out.",
        )


def is_console(path: Path) -> bool:
    """Whether a file is named as captured consoles are."""
    return _CONSOLE_NAME.fullmatch(path.name) is not None


def find_logs(listing: Listing, format: str = "auto") -> list[LogSource]:
    """Every run whose log is among the files of `listing`, sorted by name."""
    base = Path() if len(listing.below) > 1 else None
    sources = [
        source
        for root, files in listing.below.items()
        if format != "auto" or any(map(may_be_log, files))
        for source in _below(root, files, root if base is None else base, format)
    ]
    # A glob that matches a folder and what lies in it finds the same runs twice.
    single = {(source.paths, source.launch): source for source in sources}
    return sorted((replace(one, root=listing.path) for one in single.values()), key=lambda one: one.name)


def _below(root: Path, files: Sequence[Path], base: Path, format: str) -> list[LogSource]:
    requests = [file for file in files if file.name == REQUEST_FILE] if format == "auto" else []
    runs = _launched_runs(requests, base) if requests else []
    launched = {run.folder for run in runs}
    free = [file for file in files if launched.isdisjoint(file.parents)]
    others = _unlaunched(root, free, base, format)
    tables = root.is_dir() and any(file.suffix.lower() in TABLE_SUFFIXES for file in free)
    if runs or others or tables or format not in ("auto", CONSOLE):
        # Of several runs none is that of a console in particular.
        only = len({one.folder.name for one in others}) == 1
        consoles = tuple(file for file in free if is_console(file)) if only else ()
        return [*runs, *(replace(one, consoles=consoles) for one in others)]
    # A console tells less than any log, and is read where there is nothing else.
    possible = [
        file
        for file in free
        if may_be_log(file)
        and (file == root or is_console(file) or file.suffix.lower() == ".txt" or _OF_QUEUES.fullmatch(file.suffix))
    ]
    return [one for file in possible if is_console_log(file) for one in _in_console(file, base)]


def _in_console(file: Path, base: Path) -> Iterator[LogSource]:
    """The run in a console, or the launches of one that was appended to."""
    source = LogSource(_name(file.with_suffix(""), base), CONSOLE, file.parent, (file,))
    count = launches(file)
    if count < 2:
        yield source
        return
    for i in range(count):
        yield replace(source, name=f"{source.name}/{i + 1}", launch=i, shares=True)


def _launched_runs(requests: Iterable[Path], base: Path) -> list[LogSource]:
    """Runs that launch scripts started, by their own names, or by their folders if two have the same.

    Folders with a journal are read as tables.
    """
    by_kind = {one.run_folder.kind: one for one in formats() if one.run_folder is not None}
    runs: list[LogSource] = []
    for folder in (file.parent for file in requests):
        try:
            request = parse_json(read_document(folder / REQUEST_FILE, what="a run's request"))
        except (IsoComputeError, ValueError):
            continue
        form = by_kind.get(str(request.get("kind"))) if isinstance(request, dict) else None
        if form is not None:
            run = request.get("run")
            name = str(run["run_id"]) if isinstance(run, dict) and "run_id" in run else _name(folder, base)
            store = form.store.name if form.store else TENSORBOARD
            runs.append(LogSource(name, store, folder, (folder,), launched=form))
    counts = Counter(run.name for run in runs)
    return [run if counts[run.name] == 1 else replace(run, name=_name(run.folder, base)) for run in runs]


def free_tables(listing: Listing) -> list[Path]:
    """Files that may be tables: of a folder those with the ending of one, and whatever was named itself."""
    tables: list[Path] = []
    for root, files in listing.below.items():
        if root.is_dir():
            free = [file for file in tables_among(files) if run_folder_of(file.parent, root) is None]
            tables += [file for file in free if not belongs_to_journal(file, root)]
        elif not is_log(root):
            tables.append(root)
    return tables


def run_folder_of(path: Path, root: Path) -> Path | None:
    """The folder of a run that `path` is or lies in, at or below `root`; None if there is none."""
    inside = (here for here in (path, *path.parents) if here == root or root in here.parents)
    return next((here for here in inside if all((here / name).is_file() for name in MARKS)), None)


def belongs_to_journal(file: Path, root: Path) -> bool:
    """Whether a file lies in or below a folder with a journal, at or below `root`."""
    above = [folder for folder in (file, *file.parents) if folder == root or root in folder.parents]
    kinds = [one.journal for one in journals() if one.journal is not None]
    return any(one.holds(folder / one.file) for folder in above for one in kinds)


@dataclass
class _Parts:
    """Files by the run that they are of."""

    events: dict[Path, list[Path]] = field(default_factory=dict[Path, list[Path]])
    """Run -> folders of event files, or event files that were named themselves."""
    logs: dict[str, dict[Path, list[Path]]] = field(default_factory=dict[str, dict[Path, list[Path]]])
    """Store -> run -> files."""
    names: dict[Path, str] = field(default_factory=dict[Path, str])
    """Run -> its name, if its store says it."""

    def take_events(self, file: Path, root: Path) -> None:
        """Add an event file; one that was named is read alone, a folder is one run."""
        here = file if file == root else file.parent
        of_run = self.events.setdefault(run_folder_of(file.parent, root) or _run_of_events(file.parent), [])
        of_run.extend([here] if here not in of_run else [])

    def take(self, file: Path, root: Path, store: LogStore) -> None:
        """Add a file of a store."""
        runs = self.logs.setdefault(store.name, {})
        inside = None if store.with_events else run_folder_of(file.parent, root)
        if store.runs_of is None or inside is not None:
            runs.setdefault(inside or store.run_of(file), []).append(file)
            return
        for one in store.runs_of(file):
            runs.setdefault(one.folder, []).append(one.part)
            self.names[one.folder] = one.name

    def name_of(self, run: Path, base: Path) -> str:
        """Name of a run; with its id if another has the same."""
        name = self.names.get(run)
        if name is None:
            return _name(run, base)
        return name if list(self.names.values()).count(name) == 1 else f"{name} ({run.name})"


def _unlaunched(root: Path, files: Sequence[Path], base: Path, format: str) -> list[LogSource]:
    stores = {name: store for name, store in log_stores().items() if format in ("auto", name)}
    with_events = format in ("auto", TENSORBOARD) or any(store.with_events for store in stores.values())
    parts = _Parts()
    for file in (one for one in files if not is_sealed(one)):
        if EVENT_MARK in file.name:
            if with_events:
                parts.take_events(file, root)
            continue
        store = next(
            (one for name, one in stores.items() if (format == name and file == root) or one.holds(file)), None
        )
        if store is not None:
            parts.take(file, root, store)
    started = {run: list(_launches(folders)) for run, folders in parts.events.items()}
    found: list[LogSource] = []
    for name, runs in parts.logs.items():
        for run, every in runs.items():
            apart = stores[name].apart
            own, *others = [every] if apart is None else apart(every)
            for other in others:
                # What an earlier run left in the same folder says everything in its own.
                folder = max(other).parent
                found.append(LogSource(_name(folder, base), name, folder, tuple(other)))
            # A state that was saved is that of the launch that wrote last.
            beside, _ = started[run].pop() if stores[name].with_events and started.get(run) else ((), "")
            found.append(LogSource(parts.name_of(run, base), name, run, tuple(own), events=beside))
    if format in ("auto", TENSORBOARD):
        for run, paths, label in ((run, *one) for run, every in started.items() for one in every):
            name = "/".join(filter(None, (_name(run, base), label)))
            found.append(LogSource(name, TENSORBOARD, run, paths, shares=bool(label)))
    return found


def _launches(parts: Sequence[Path]) -> Iterator[tuple[tuple[Path, ...], str]]:
    """The event files of a folder by run, and what sets it apart from others there.

    One that was started anew with other arguments is another run.
    """
    files = [file for part in parts for file in event_files(part)]
    starts = _starts(files) if len(files) > 1 else []
    if not any(one.arguments for one in starts):
        yield tuple(parts), ""
        return
    groups: list[list[EventFile]] = []
    for start in (one for one in starts if one.first_step is not None):
        if groups and start.goes_on(groups[-1][-1]):
            groups[-1].append(start)
        else:
            groups.append([start])
    if len(groups) < 2:
        yield tuple(parts), ""
        return
    names = [str(group[0].arguments.get("run_name") or "") for group in groups]
    apart = len(set(names)) == len(names) and not any(not name or "/" in name for name in names)
    for group, name in zip(groups, names, strict=True):
        label = name if apart else group[0].attempt.path.name.removeprefix("events.out.tfevents.")
        yield tuple(one.attempt.path for one in group), label


def _starts(files: Sequence[Path]) -> list[EventFile]:
    """How each file begins, in the order of the seconds in their names; what cannot be read is reported elsewhere."""
    found: list[tuple[float, str, EventFile]] = []
    for file in files:
        with suppress(RecordError):
            start = read_event_file(file, only_beginning=True)
            second = re.search(r"tfevents\.(\d+)", file.name)
            if start is not None:
                found.append((float(second[1]) if second else 0.0, file.name, start))
    return [start for *_, start in sorted(found, key=lambda one: one[:2])]


def _run_of_events(folder: Path) -> Path:
    """The run that a folder of events belongs to: above what trainers put between the two.

    Folders named after the moment of a start are attempts of one run where checkpoints lie beside them; otherwise they
    may be runs of their own, as programs that choose no name leave them, and stay apart.
    """
    here = folder
    while _STARTED_AT.fullmatch(here.name) and here.parent != here:
        here = here.parent
    started = here != folder
    if started and here == folder.parent and sum(bool(_STARTED_AT.fullmatch(e.name)) for e in here.iterdir()) > 1:
        above = here.parent if here.name in _WRAPPERS else here
        if not ((above / STATE_FILE).exists() or any(above.glob("checkpoint-*"))):
            return folder
    # A folder such as `tensorboard` holds the events of one run itself, or the folders of many.
    while here.name in _WRAPPERS and here.parent != here:
        if not (started or any(EVENT_MARK in entry.name for entry in here.iterdir())):
            break
        here = here.parent
    return here


def _name(run: Path, base: Path) -> str:
    relative = os.path.relpath(run, base)
    outside = relative == "." or relative.startswith("..")
    return run.absolute().name if outside else Path(relative).as_posix()
