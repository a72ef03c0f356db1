"""Configurations that frameworks save beside their runs: n, B_p and context, each with where it was read.

Read are the files of `FILES` in the folder of a run and above it, up to the folder that was asked for, and what a log
holds itself. What a key means is certain only if its framework is known, which the keys themselves say: each
`LogFormat` has its `Configuration`s. Sources that disagree about a value are all reported.
"""

from __future__ import annotations

import itertools
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.errors import RecordError, SpecError
from isocompute_sdk.files import parse_json, parse_yaml
from isocompute_sdk.ingest.formats.configuration import (
    SIZES,
    STEPS_PER_BATCH,
    Keys,
    Said,
    SavedConfig,
)
from isocompute_sdk.ingest.formats.registry import formats
from isocompute_sdk.ingest.stores import trainer_state
from isocompute_sdk.ingest.tables import LARGEST_CONFIG, read_text
from isocompute_sdk.records.columns import BATCH, BY_NAME, COUNTED_DIFFERENTLY, N_AND_BP, PER_RUN, canonical
from isocompute_sdk.specs import RunSpec

METADATA = "wandb-metadata.json"
FILES = (
    "spec.json",
    "run.json",
    ".hydra/config.yaml",
    ".hydra/overrides.yaml",
    "overrides.yaml",
    "hydra_overrides.yaml",
    "config.yaml",
    "config.json",
    "hparams.yaml",
    "args.json",
    "training_args.json",
    "request.json",
    "params.json",
    "rl.json",
    "orchestrator.json",
    "orchestrator.toml",
    "orch.toml",
    METADATA,
    "launch.sh",
)
"""Files that may hold a configuration, relative to a folder, the most telling first."""
OWN_SCRIPT = "written by isocompute"
"""In the first lines of a script of `isocompute launch`: its run lies in a folder of its own, not beside the script."""
_WANDB_FILES = "wandb/*run-*/files/config.yaml"
_MAX_WANDB_FILES = 20


def find_config(
    folder: Path | None,
    root: Path,
    held: Sequence[tuple[Path, Mapping[str, Any]]] = (),
    measured: SavedConfig | None = None,
    *,
    shares: bool = False,
) -> SavedConfig | None:
    """What is configured for a run: by its log, in its folder, then in the nearest folder above, no higher than `root`.

    Args:
        folder: folder of the run, or a path in it; None for a table in memory.
        root: the highest folder to look in.
        held: configurations that the log itself holds, each with its file.
        measured: what the log measured of its own sizes, which counts last.
        shares: whether the folder holds the logs of several runs, so that a file there may be of another one than a log
            that says n and B_p itself.
    """
    found = [one for path, raw in held if (one := translate(path, raw)) is not None]
    # A run whose events were asked for by their folder, such as `logs`, is called after the one above.
    folder = root if folder in root.parents else folder
    here = folder
    while here is not None and not here.is_dir() and here != here.parent:
        here = here.parent
    while here is not None:
        beside = [one for path in _candidates(here) if (one := read_config(path)) is not None]
        # A log says more about itself than a file that lies beside it and may be of another run.
        own = any({*N_AND_BP} <= one.fields.keys() for one in found)
        found += beside if not found or (here == folder and not (shares and own)) else []
        if found or here in (root, here.parent) or root not in here.parents:
            break
        here = here.parent
        # The configuration of a folder with many runs belongs to none of them in particular.
        if sum(1 for entry in here.iterdir() if entry.is_dir() and not entry.name.startswith(".")) > 1:
            break
    found += [] if measured is None else [measured]
    return _merged(found) if found else None


def _merged(found: Sequence[SavedConfig]) -> SavedConfig:
    """Several sources as one; the first one counts where they may differ."""
    values: dict[str, list[Said]] = {}
    for one in found:
        for name, said in one.fields.items():
            known = values.setdefault(name, [])
            if not any(_same(said.value, other.value) for other in known):
                known.append(said)
    values = {name: [one for one in said if not one.default] or said for name, said in values.items()}
    apart = {name: tuple(said) for name, said in values.items() if len(said) > 1}
    fields = {name: said[0] for name, said in values.items() if name not in apart or name not in SIZES}
    if {"updates_per_batch", STEPS_PER_BATCH} <= fields.keys():
        # One source rounds what another one says exactly.
        del fields["updates_per_batch"]
    parts = {name: next((said for one in found if (said := getattr(one, name))), None) for name in _PARTS}
    keys = {key: value for one in reversed(found) for key, value in one.keys.items()}
    return replace(found[0], fields=fields, **parts, keys=keys, disagreements=apart)


_PARTS = ("batch", "rollouts", "generated")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) <= 1e-9 * abs(one)
    # A model is named by a path in one source and by its name in another.
    return str(one).rpartition("/")[2] == str(other).rpartition("/")[2]


def on_devices(found: SavedConfig, batch: int, where: Path) -> SavedConfig:
    """A trainer's configuration with the batch that its processes had, which one with several GPUs multiplies."""
    own, gpus = found.keys.get("per_device_train_batch_size"), found.keys.get("_n_gpu") or 1
    if not isinstance(own, int) or not isinstance(gpus, int) or not 0 < own * gpus < batch or batch % own:
        return found
    whole = translate(found.path, {**found.keys, "_n_gpu": batch // own})
    if whole is None or "problems_per_batch" not in found.fields.keys() & whole.fields.keys():
        return found
    said = whole.fields["problems_per_batch"]
    added = Said(said.value, f"{said.evidence}; {where}: _n_gpu = {batch // own}")
    return replace(found, fields={**found.fields, "problems_per_batch": added}, batch=None)


def _candidates(folder: Path) -> Iterator[Path]:
    # What a trainer saved of itself, here or in its newest checkpoint, is more certain than what people wrote down.
    checkpoints = [entry for entry in folder.glob("checkpoint-*") if trainer_state.CHECKPOINT.fullmatch(entry.name)]
    order = sorted(checkpoints, key=lambda entry: int(entry.name.rpartition("-")[2]), reverse=True)
    saved = (where / trainer_state.ARGUMENTS_FILE for where in (folder, *order))
    newest = next((path for path in saved if read_config(path) is not None), None)
    yield from [] if newest is None else [newest]
    for name in FILES:
        if (kept := folder / name).is_file():
            yield kept
    # The only script beside a log started its run.
    scripts = [entry for entry in folder.glob("*.sh") if entry.name not in FILES]
    yield from scripts if len(scripts) == 1 else []
    # Of several runs none is this one in particular: if they differ, the reader is asked.
    newest = sorted(folder.glob(_WANDB_FILES), reverse=True)
    yield from newest[:_MAX_WANDB_FILES]


def read_config(path: Path) -> SavedConfig | None:
    """What a file says about its run; None if it is no configuration of a known framework."""
    try:
        if path.name == trainer_state.ARGUMENTS_FILE:
            return translate(path, trainer_state.read_training_args(path))
        text, _ = read_text(path, largest=LARGEST_CONFIG)  # of what is replaced, nothing is a key
        if path.suffix == ".sh" and OWN_SCRIPT in text[:500]:
            return None
        raw = flags(text) if path.suffix == ".sh" else document(path, text)
    except (RecordError, ValueError, RecursionError):
        return None
    if isinstance(raw, list):
        # Hydra's list of `key=value`.
        pairs = (str(word).lstrip("+~").partition("=") for word in cast("list[object]", raw))
        raw = {key: scalar(value) for key, equals, value in pairs if equals}
    if path.name == METADATA and isinstance(raw, dict):
        raw = command_line(cast("dict[str, Any]", raw).get("args"))
    return _run_spec(path, raw) or translate(path, raw)


def command_line(words: object) -> dict[str, Any]:
    """Arguments of a program, word by word, as a mapping; empty if they are none."""
    return flags(shlex.join(map(str, cast("list[object]", words)))) if isinstance(words, list) else {}


def translate(path: Path, raw: object) -> SavedConfig | None:
    """What keys say about a run; None if they are those of no known framework."""
    try:
        keys = Keys(path, dict(flat(raw)))
    except RecursionError:
        return None
    found: list[SavedConfig] = []
    for one in (one for known in formats() for one in known.configurations):
        if one.mark in keys.flat:
            fields = {name: said for name, said in one.fields(keys).items() if said is not None}
            usable = {
                name: said
                for name, said in fields.items()
                if name == STEPS_PER_BATCH or (name in PER_RUN and _fits(name, said.value))
            }
            batch, rollouts = one.batch(keys), one.rollouts(keys)
            if usable or batch is not None or rollouts is not None:
                found.append(SavedConfig(path, one.dialect, usable, batch, rollouts, one.generated(keys), keys.flat))
    # Frameworks share some keys; the one that knows most of them wrote the file.
    return max(found, key=lambda one: len(one.fields), default=None) or _own_words(keys)


def _own_words(keys: Keys) -> SavedConfig | None:
    """What a program of one's own saved under names that tables may have too; None unless it says n and B_p.

    One of the two is not enough: quantised models have a `group_size`, and many programs an `n`.
    """
    found: dict[str, Said] = {}
    for key in keys.flat:
        name, said = canonical(key), keys.get(key)
        # Some count rollouts by that name, others problems.
        if name is None or said is None or key.rpartition(".")[2] == COUNTED_DIFFERENTLY:
            continue
        if name == BATCH.name or name in PER_RUN:
            column = "problems_per_batch" if name == BATCH.name else name
            if _fits(column, said.value):
                found.setdefault(name, said)
    size, batch = found.get("group_size"), found.pop(BATCH.name, None)
    if size is not None and batch is not None and batch.value % size.value == 0:
        found.setdefault("problems_per_batch", Said(batch.value // size.value, batch.evidence))
    return SavedConfig(keys.path, OWN, found, keys=keys.flat) if {*N_AND_BP} <= found.keys() else None


OWN = "a program of one's own"
"""Dialect of a configuration with names that tables may have too."""


def _run_spec(path: Path, raw: object) -> SavedConfig | None:
    """What a file with a whole `RunSpec` says, or the request of a launch script, which holds one."""
    if not isinstance(raw, dict):
        return None
    fields = cast("dict[str, Any]", raw)
    fields = cast("dict[str, Any]", fields["run"]) if isinstance(fields.get("run"), dict) else fields
    if "run_id" not in fields or "recipe" not in fields:
        return None
    try:
        run = RunSpec.model_validate({k: v for k, v in fields.items() if k not in ("kind", "schema_version", "digest")})
    except SpecError:
        return None
    said = {name: Said(value, f"{path}: {name} = {value}") for name, value in run.context().items()}
    return SavedConfig(path, "isocompute", {name: one for name, one in said.items() if one.value is not None})


def _fits(name: str, value: Any) -> bool:
    """Whether a value can stand in its column; a configuration may leave a number to a variable of its shell."""
    column = BY_NAME[name]
    if column.kind == "text":
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return (column.minimum is None or value >= column.minimum) and (column.kind == "number" or value == int(value))


def document(path: Path, text: str) -> object:
    """The content of a JSON, TOML or YAML file."""
    if path.suffix == ".json":
        return parse_json(text)
    return tomllib.loads(text) if path.suffix == ".toml" else parse_yaml(text)


def flags(text: str) -> dict[str, Any]:
    """`--name value`, `--name=value` and `name=value` of a shell script, as a mapping.

    Variables that the script sets are filled in; defaults such as `${N:-8}` and arithmetic stay as they are.
    """
    found = settings_in(shlex.split(text.replace("\\\n", " "), comments=True))

    def set_here(variable: re.Match[str]) -> str:
        return str(found.get(variable[1] or variable[2], variable[0]))

    variable = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
    texts = {key: value for key, value in found.items() if isinstance(value, str)}
    return found | {key: scalar(variable.sub(set_here, value)) for key, value in texts.items()}


def settings_in(words: Sequence[str]) -> dict[str, Any]:
    """`--name value`, `--name=value` and `name=value` among the words of a command, as a mapping; the last counts."""
    found: dict[str, Any] = {}
    for i, word in enumerate(words):
        match = re.fullmatch(r"(?:--|\+\+?|~)?([A-Za-z_][\w.-]*)=(.*)", word, re.DOTALL)
        if match:
            found[match[1].replace("-", "_")] = scalar(match[2])
        elif re.fullmatch(r"--[A-Za-z_][\w.-]*", word):
            values = list(itertools.takewhile(lambda one: not one.startswith("--"), words[i + 1 :]))
            numbers = list(itertools.takewhile(lambda one: not isinstance(scalar(one), str), values))
            # Flags with several values, such as the betas of Adam, have numbers.
            text = " ".join(numbers if len(numbers) > 1 else values[:1])
            found[word[2:].replace("-", "_")] = scalar(text) if values else True
    return found


def scalar(text: str) -> str | int | float | bool:
    """A typed value: true/false, whole number, number, else the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def flat(raw: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested mappings with dotted keys; `{"value": x}`, as W&B writes every entry, is x."""
    if isinstance(raw, Mapping):
        mapping = cast(Mapping[object, object], raw)
        if prefix and "value" in mapping and set(mapping) <= {"value", "desc"}:
            yield from flat(mapping["value"], prefix)
            return
        for key, value in mapping.items():
            yield from flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, raw
