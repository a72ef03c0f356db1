"""A run in its framework's own words, and a command that somebody already has against it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from isocompute_sdk.errors import BackendError, RecordError
from isocompute_sdk.ingest.formats.configuration import Said, SavedConfig
from isocompute_sdk.ingest.stores.saved_config import document, flat, read_config, settings_in, translate
from isocompute_sdk.ingest.tables import LARGEST_CONFIG, read_text
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import registry
from isocompute_sdk.training.rendering import sh
from isocompute_sdk.training.scripts import commands, configuration_in

COMPARED = (
    "algorithm",
    "learning_rate",
    "updates_per_batch",
    "kl_coef",
    "entropy_coef",
    "max_prompt_tokens",
    "max_tokens",
    "temperature",
    "top_p",
    "filter",
    "eval_samples",
    "eval_temperature",
)
"""Context fields, beside n, B_p and M, that are compared under our names."""
_CLOSE = 1e-9
"""Relative difference up to which two numbers are the same: a script may print fewer digits."""


@dataclass(frozen=True)
class Setting:
    """One setting of a run under its framework's own name."""

    name: str
    """As on the command line or in the configuration, without dashes."""
    value: str | int | float | bool | None
    words: tuple[str, ...]
    """The words to append to a command."""
    of_plan: bool
    """Whether it decides n, B_p, M, the learning rate, its schedule or the evaluation; others belong to the recipe."""


@runtime_checkable
class WritesSettings(Protocol):
    """Optional addition to the contract of a backend whose framework takes a command line."""

    def settings(self, run: RunSpec) -> tuple[Setting, ...]:
        """What an accepted run sets, but for paths, memory and machines."""
        ...

    def update_steps(self, keys: Mapping[str, Any]) -> float | None:
        """M of a configuration with these dotted keys; None if it does not say."""
        ...


@dataclass(frozen=True)
class Row:
    """One number of a script beside that of the run."""

    name: str
    """Ours where we have one, else the framework's."""
    script: Any
    """None: the script does not say, so the framework's default holds, or it depends on what `evidence` names."""
    plan: Any
    evidence: str
    """File and keys behind the script's value, or what it depends on; empty if the script says nothing about it."""

    @property
    def same(self) -> bool:
        """Whether both say the same."""
        one, other = self.script, self.plan
        if any(isinstance(value, bool) or not isinstance(value, int | float) for value in (one, other)):
            return bool(one == other)
        return abs(one - other) <= _CLOSE * max(abs(one), abs(other))


@dataclass(frozen=True)
class Comparison:
    """A script beside a run."""

    rows: list[Row]
    gaps: list[str]
    """What the script leaves open, and why."""
    processes: int | None = None
    """Processes that the script starts, one for each GPU; None if it does not say."""


def settings_of(backend: object, name: str, run: RunSpec) -> tuple[Setting, ...]:
    """The settings of a run.

    Raises:
        BackendError: the backend's framework takes no command line.
    """
    return _writer(backend, name).settings(run)


def overrides(settings: Iterable[Setting], *, python: bool = False) -> str:
    """The settings of the plan as lines to append to a command, quoted for bash; in Python, as arguments of a call."""
    ours = [one for one in settings if one.of_plan]
    if python:
        return "\n  ".join(f"{one.name}={one.value!r}," for one in ours)
    return " \\\n  ".join(" ".join(sh(word) for word in one.words) for one in ours)


def decided(settings: Iterable[Setting]) -> Mapping[str, Said]:
    """What the settings of the plan decide, under our names."""
    config = translate(Path(), {one.name: one.value for one in settings if one.of_plan})
    return {} if config is None else config.fields


def against(backend: object, name: str, run: RunSpec, script: Path) -> Comparison:
    """What a script would run beside what the run says; nothing is run.

    n, B_p, M, C and the fields of `COMPARED` come first, under our names; settings of the objective follow where the
    script sets them to something else, under the framework's. The script is one of a shell, whose variables, arrays and
    configuration files are filled in as far as it says them, a Python file, or a saved configuration.
    """
    writer = _writer(backend, name)
    settings = writer.settings(run)
    config, gaps = _read(script)
    if config is None or name not in config.dialect:
        found = "no such file" if not script.is_file() else "none of its settings are known"
        other = "" if config is None else config.dialect.partition(" ")[0]
        if config is not None:
            found = f"its settings are those of {config.dialect}"
        computed = (
            "Values that a program computes or takes from its own options stay hidden: give the command that starts it"
        )
        more = f" {computed}, in a shell script." if script.suffix in (".py", ".ipynb") else ""
        error = BackendError(
            f"{script}: {'; '.join([found, *gaps])}; accepted: a command of {name} in a shell script, a Python file or "
            "a configuration",
            f"Give the file that names n and the batch size, or choose its framework with --backend.{more}",
        )
        hint = f"Add --backend {other}, or give a file of {name}."
        raise error.in_shell(hint, [f"--backend {other}"]) if other in registry.available() else error
    steps = writer.update_steps(config.keys)
    rows, context = _sizes(run, config, steps), run.context()
    for field in COMPARED:
        said = config.fields.get(field)
        rows.append(Row(field, said.value if said else None, context.get(field), said.evidence if said else ""))
    # Several losses and estimators are one algorithm under our names, so their own are compared too.
    known = [said.evidence for field, said in config.fields.items() if field != "algorithm"]
    rows += _others(settings, config, known)
    started = config.keys.get("num_processes")
    return Comparison(
        rows, [*gaps, *_gaps(config, name, steps)], started if isinstance(started, int) and started > 0 else None
    )


_SHELL = (".sh", ".bash", ".slurm", ".sbatch", ".job", ".txt", "")
_PROCESSES = ("nproc_per_node", "num_gpus")
"""Flags of torchrun and deepspeed with the processes of one machine."""


def _read(script: Path) -> tuple[SavedConfig | None, list[str]]:
    """What a script says, and the configuration files that it names and that are not here."""
    if not script.is_file():
        return None, []
    if script.suffix not in (*_SHELL, ".py"):
        return read_config(script), []
    try:
        text, _ = read_text(script, largest=LARGEST_CONFIG)
    except RecordError as error:
        return None, [error.message]
    if script.suffix == ".py":
        return translate(script, configuration_in(text)), []
    keys, gaps = dict[str, Any](), list[str]()
    written = {Path(here["file"]).name: textwrap.dedent(here["text"]) for here in _HERE.finditer(text)}
    for name, content in written.items():
        with suppress(RecordError, ValueError, RecursionError):
            python = name.endswith(".py")
            keys |= configuration_in(content) if python else dict(flat(document(Path(name), content)))
    for words in commands(text):
        own = settings_in(words)
        files = _files({k: v for k, v in own.items() if Path(str(v)).name not in written}, script, gaps)
        number = next((own[name] for name in _PROCESSES if isinstance(own.get(name), int)), None)
        if number is not None:
            machines = own.get("nnodes", own.get("num_nodes", 1))
            own["num_processes"] = number * machines if isinstance(machines, int) else number
        keys |= {**files, **own}
    if keys.get("run.hardware.gpus") == 1:
        # Of a script of ours, which starts one process without a launcher.
        keys.setdefault("num_processes", 1)
    return translate(script, keys), gaps


_HERE = re.compile(
    r"""^cat\b(?=.*> ?"?(?P<file>[^"\s]+\.(?:json|ya?ml|py))\b)(?=.*<<-? ?['"]?(?P<tag>\w+)).*\n"""
    r"""(?P<text>(?:.*\n)*?)\t*(?P=tag)$""",
    re.MULTILINE,
)
"""Configuration files and programs that a script writes itself."""


def _files(own: Mapping[str, Any], script: Path, gaps: list[str]) -> dict[str, Any]:
    """What the configuration files say that the flags of a command name; of accelerate's only the processes."""
    found: dict[str, Any] = {}
    named = {name: own[name] for name in ("config_file", "config") if isinstance(own.get(name), str)}
    if isinstance(own.get("config_name"), str):
        folder = str(own.get("config_path", "."))
        named["config_name"] = f"{folder}/{str(own['config_name']).removesuffix('.yaml')}.yaml"
    for flag, name in named.items():
        places = (Path.cwd(), script.parent, *script.absolute().parents[1:4])
        relative = name.replace("${PWD}", ".").replace("$PWD", ".")
        path = next((place / relative for place in places if (place / relative).is_file()), None)
        if path is None:
            gaps.append(f"--{flag} {name}: no such file here, so what it says is not shown")
            continue
        try:
            content = dict(flat(document(path, read_text(path, largest=LARGEST_CONFIG)[0])))
        except (RecordError, ValueError, RecursionError) as error:
            gaps.append(f"{path}: {error}")
            continue
        found |= content if flag != "config_file" else {k: v for k, v in content.items() if k == "num_processes"}
    return found


def _gaps(config: SavedConfig, name: str, steps: float | None) -> list[str]:
    """What leaves a size open."""
    found = [
        f"{key} = {value}: known only where the script runs"
        for key, value in config.keys.items()
        if isinstance(value, str) and "$" in value and any(part in key for part in _SIZES)
    ]
    if steps is None and (epochs := _epochs(config)):
        found.append(f"M follows from the rows of the data and {', '.join(epochs)}")
    if config.batch is not None and "problems_per_batch" not in config.fields:
        found.append(f"{config.batch.value} rollouts per batch on each process; the number of processes is unknown")
    if config.dialect != name:
        found.append(
            f"its flags are those of {config.dialect}; --overrides prints those of the release of this backend"
        )
    return found


_SIZES = (
    "batch",
    "rollout.n",
    "n_samples",
    "num_generations",
    "steps",
    "epochs",
    "episodes",
    "max_samples",
    "lr",
    "rate",
)
_EPOCHS = ("total_epochs", "num_train_epochs", "num_episodes")


def _sizes(run: RunSpec, config: SavedConfig, steps: float | None) -> list[Row]:
    names = ("group_size", "problems_per_batch")
    said = [config.fields.get(name) for name in names]
    rows = [
        Row(name, one.value if one else None, getattr(run, name), source.evidence if source else "")
        for name, one, source in zip(names, said, (said[0], said[1] or config.batch), strict=True)
    ]
    n, problems = (one.value if one else None for one in said)
    whole = int(n * problems * steps) if n is not None and problems is not None and steps is not None else None
    rows.append(Row("update_steps", steps, run.update_steps, str(config.path) if steps else ", ".join(_epochs(config))))
    return [*rows, Row("rollouts", whole, run.rollouts, "n x B_p x M")]


def _epochs(config: SavedConfig) -> list[str]:
    return [f"{key} = {value}" for key, value in config.keys.items() if key.endswith(_EPOCHS)]


def _others(settings: Sequence[Setting], config: SavedConfig, known: Sequence[str]) -> Iterable[Row]:
    for one in settings:
        if one.of_plan or one.name not in config.keys or any(f"{one.name} =" in text for text in known):
            continue
        row = Row(one.name, config.keys[one.name], one.value, f"{config.path}: {one.name}")
        if not row.same:
            yield row


def _writer(backend: object, name: str) -> WritesSettings:
    if isinstance(backend, WritesSettings):
        return backend
    raise BackendError(
        f"backend {name!r} has no command line of a framework that its settings could be appended to",
        "Choose openrlhf, trl or verl with --backend, or leave the option out to write a whole script.",
    )
