"""Configurations that frameworks save beside their runs: n, B_p and context, each with where it was read.

Read are the files of `FILES` in the folder of a run and above it, up to the folder that was asked for. What a key means
is certain only if its framework is known, which the keys themselves say: each `LogFormat` has its `Configuration`s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.errors import RecordError, SpecError
from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.formats.registry import formats
from isocompute_sdk.ingest.stores.packed import GZIP, as_kept, unpacked
from isocompute_sdk.ingest.stores.raw import LARGEST_CONFIG, read_text
from isocompute_sdk.records.columns import BY_NAME, PER_RUN
from isocompute_sdk.specs import RunSpec

FILES = (
    "spec.json",
    "run.json",
    ".hydra/config.yaml",
    "config.yaml",
    "config.json",
    "args.json",
    "training_args.json",
    "request.json",
    "params.json",
    "launch.sh",
)
"""Files that may hold a configuration, relative to a folder, the most telling first."""
_WANDB_FILES = "wandb/*run-*/files/config.yaml"


@dataclass(frozen=True)
class Said:
    """A value and where it stands."""

    value: Any
    evidence: str


@dataclass(frozen=True)
class SavedConfig:
    """What one file says."""

    path: Path
    dialect: str
    """Whose keys it has."""
    fields: Mapping[str, Said]
    """Columns of a run."""
    batch: Said | None = None
    """Rollouts per batch on each device, if the file gives only those, and not on how many devices."""


class Keys:
    """The keys of one file, dotted, which remember where each value stands."""

    def __init__(self, path: Path, flat: Mapping[str, Any]) -> None:
        self.path = path
        self.flat = flat

    def get(self, *names: str) -> Said | None:
        """The first of these keys that has a value."""
        for name in names:
            value = self.flat.get(name)
            if value is not None and not isinstance(value, list | dict):
                return Said(value, f"{self.path}: {name} = {value}")
        return None

    def number(self, name: str, default: float | None = None) -> float | None:
        """The number under a key; `default` if there is no number."""
        value = self.flat.get(name, default)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default

    def derived(self, value: float | None, *names: str) -> Said | None:
        """A whole number >= 1 that was computed from these keys; None for any other number."""
        if value is None or value != int(value) or value < 1:
            return None
        shown = ", ".join(f"{name} = {self.flat.get(name)}" for name in names if name in self.flat)
        return Said(int(value), f"{self.path}: {shown}")

    def switch(self, name: str, on: str, off: str) -> Said | None:
        """One word if a key is true and another if it is false; None if it is neither."""
        value = self.flat.get(name)
        return Said(on if value else off, f"{self.path}: {name} = {value}") if isinstance(value, bool) else None

    def algorithm(self, *names: str) -> Said | None:
        """The algorithm behind the name of an estimator or a loss; without an equal here the name itself."""
        said = self.get(*names)
        return None if said is None else Said(_ALGORITHMS.get(str(said.value), str(said.value)), said.evidence)


@dataclass(frozen=True)
class Configuration:
    """The configuration files of one framework, or of some of its releases."""

    dialect: str
    """Name for people."""
    mark: str
    """A dotted key that only these files have."""
    fields: Callable[[Keys], Mapping[str, Said | None]]
    """Columns of a run; what is None is unknown."""
    batch: Callable[[Keys], Said | None] = lambda keys: None
    """Rollouts per batch on each device, if the number of devices is not in the file."""


def find_config(folder: Path, root: Path | None = None) -> SavedConfig | None:
    """The nearest saved configuration of a run: in its folder, then above it, no higher than `root`.

    Above the run's own folder only a file with a known dialect counts, as everywhere; None where there is none.
    """
    here = folder if folder.is_dir() else folder.parent
    top = here if root is None else root
    while True:
        for path in _candidates(here):
            found = read_config(path)
            if found is not None:
                return found
        if here in (top, here.parent) or top not in here.parents:
            return None
        here = here.parent
        # The configuration of a folder with many runs belongs to none of them in particular.
        if sum(1 for entry in here.iterdir() if entry.is_dir() and not entry.name.startswith(".")) > 1:
            return None


def _candidates(folder: Path) -> Iterator[Path]:
    for name in FILES:
        if (kept := as_kept(folder / name)).is_file():
            yield kept
    newest = sorted((*folder.glob(_WANDB_FILES), *folder.glob(_WANDB_FILES + GZIP)), reverse=True)
    yield from newest[:1]


def read_config(path: Path) -> SavedConfig | None:
    """What a file says about its run; None if it is no configuration of a known framework."""
    try:
        text, _ = read_text(path, "drop", largest=LARGEST_CONFIG)  # of what is replaced, nothing is a key
        raw = flags(text) if unpacked(path).suffix == ".sh" else document(unpacked(path), text)
        found = _run_spec(path, raw)
        keys = Keys(path, dict(flat(raw)))
    except (RecordError, ValueError, RecursionError):
        return None
    if found is not None:
        return found
    for one in (one for known in formats() for one in known.configurations):
        if one.mark in keys.flat:
            fields = {name: said for name, said in one.fields(keys).items() if said is not None}
            usable = {name: said for name, said in fields.items() if name in PER_RUN and _fits(name, said.value)}
            return SavedConfig(path, one.dialect, usable, one.batch(keys))
    return None


def _run_spec(path: Path, raw: object) -> SavedConfig | None:
    """What a file with a whole `RunSpec` says, or the request of a launch script, which holds one."""
    if not isinstance(raw, dict):
        return None
    fields = cast("dict[str, Any]", raw)
    fields = cast("dict[str, Any]", fields["run"]) if isinstance(fields.get("run"), dict) else fields
    if "run_id" not in fields or "recipe" not in fields:
        return None
    try:
        run = RunSpec.model_validate({k: v for k, v in fields.items() if k not in ("kind", "schema_version")})
    except SpecError:
        return None
    said = {name: Said(value, f"{path}: {name} = {value}") for name, value in run.context().items()}
    return SavedConfig(path, "isocompute", {name: one for name, one in said.items() if one.value is not None})


_ALGORITHMS = {"gae": "ppo", "group_norm": "grpo", "dr_grpo": "grpo", "dapo": "grpo", "bnpo": "grpo"}
"""Estimators and losses of frameworks -> algorithm."""


def _fits(name: str, value: Any) -> bool:
    """Whether a value can stand in its column; a configuration may leave a number to a variable of its shell."""
    column = BY_NAME[name]
    if column.kind == "text":
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return (column.minimum is None or value >= column.minimum) and (column.kind == "number" or value == int(value))


def document(path: Path, text: str) -> object:
    """The content of a JSON or YAML file.

    Raises:
        ValueError: it is neither.
    """
    if path.suffix == ".json":
        return parse_json(text)
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise ValueError(str(error)) from error


def flags(text: str) -> dict[str, Any]:
    """`--name value`, `--name=value` and `name=value` of a shell script, as a mapping."""
    import shlex

    words = shlex.split(text.replace("\\\n", " "), comments=True)
    found: dict[str, Any] = {}
    for i, word in enumerate(words):
        match = re.fullmatch(r"(?:--|\+\+?)?([A-Za-z_][\w.]*)=(.*)", word, re.DOTALL)
        if match:
            found[match[1]] = scalar(match[2])
        elif re.fullmatch(r"--[A-Za-z_][\w.]*", word):
            value = words[i + 1] if i + 1 < len(words) and not words[i + 1].startswith("--") else True
            found[word[2:]] = scalar(value) if isinstance(value, str) else value
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
