"""Configurations that frameworks save beside their runs: n, B_p and context, each with where it was read.

Read are the files of `FILES` in the folder of a run and above it, up to the folder that was asked for. What a key
means is certain only where its framework is known, which the keys themselves tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.stores.packed import GZIP, as_kept, unpacked
from isocompute_sdk.ingest.stores.raw import LARGEST_CONFIG, read_text
from isocompute_sdk.records.columns import BY_NAME, PER_RUN

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
    """Whose keys it has: openrlhf, verl, trl or isocompute."""
    fields: Mapping[str, Said]
    """Columns of a run."""
    batch: Said | None = None
    """Rollouts per batch where the file gives only those, and not on how many devices."""


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
    """What a file says about its run; None where it is no configuration of a known framework."""
    try:
        text, _ = read_text(path, "drop", largest=LARGEST_CONFIG)  # of what is replaced, nothing is a key
        raw = flags(text) if unpacked(path).suffix == ".sh" else document(unpacked(path), text)
        # The request of a launch script holds the run beside what its programs need.
        if unpacked(path).name == "request.json" and isinstance(raw, dict) and isinstance(raw.get("run"), dict):
            raw = raw["run"]
        keys = dict(flat(raw))
    except (RecordError, ValueError, RecursionError):
        return None
    for dialect, (mark, translate) in _DIALECTS.items():
        if mark in keys:
            fields, batch = translate(_Keys(path, keys))
            known = {name: said for name, said in fields.items() if name in PER_RUN and _fits(name, said.value)}
            return SavedConfig(path, dialect, known, batch)
    return None


class _Keys:
    """Looks up keys and remembers where each value stands."""

    def __init__(self, path: Path, flat: Mapping[str, Any]) -> None:
        self.path = path
        self.flat = flat

    def get(self, *names: str) -> Said | None:
        for name in names:
            value = self.flat.get(name)
            if value is not None and not isinstance(value, list | dict):
                return Said(value, f"{self.path}: {name} = {value}")
        return None

    def number(self, name: str, default: float | None = None) -> float | None:
        value = self.flat.get(name, default)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default

    def derived(self, value: float | None, *names: str) -> Said | None:
        if value is None or value != int(value) or value < 1:
            return None
        told = ", ".join(f"{name} = {self.flat.get(name)}" for name in names if name in self.flat)
        return Said(int(value), f"{self.path}: {told}")


_Translated = tuple[dict[str, Said], Said | None]


def _present(**found: Said | None) -> dict[str, Said]:
    return {name: said for name, said in found.items() if said is not None}


def _isocompute(keys: _Keys) -> _Translated:
    get = keys.get
    fields = _present(
        group_size=get("group_size"),
        problems_per_batch=get("problems_per_batch"),
        seed=get("seed"),
        model=get("model"),
        train_data=get("data.train"),
        algorithm=get("recipe.algorithm"),
        kl_coef=get("recipe.kl_coef"),
        entropy_coef=get("recipe.entropy_coef"),
        updates_per_batch=get("recipe.updates_per_batch"),
        max_tokens=get("recipe.max_response_tokens"),
        eval_temperature=get("evaluation.temperature"),
        eval_samples=get("evaluation.samples"),
        n_problems=get("data.n_problems"),
    )
    return fields, None


def _openrlhf(keys: _Keys) -> _Translated:
    """Dotted names since 0.10.2, flat ones before; `rollout.batch_size` counts prompts, `train.batch_size` samples."""
    get, number = keys.get, keys.number
    dotted = "rollout.n_samples_per_prompt" in keys.flat
    n, rollout, train, epochs = (
        ("rollout.n_samples_per_prompt", "rollout.batch_size", "train.batch_size", "train.max_epochs")
        if dotted
        else ("n_samples_per_prompt", "rollout_batch_size", "train_batch_size", "max_epochs")
    )
    size, problems, samples = number(n, 1), number(rollout), number(train)
    updates = (
        None if not (size and problems and samples) else max(1, size * problems // samples) * (number(epochs, 1) or 1)
    )
    estimator = get("algo.advantage.estimator", "advantage_estimator")
    fields = _present(
        group_size=get(n),
        problems_per_batch=get(rollout),
        seed=get("train.seed", "seed"),
        model=get("actor.model_name_or_path", "pretrain"),
        train_data=get("data.prompt_dataset", "prompt_data"),
        algorithm=_algorithm(estimator),
        learning_rate=get("actor.adam.lr", "actor_learning_rate"),
        kl_coef=get("algo.kl.init_coef", "init_kl_coef"),
        entropy_coef=get("actor.entropy_coef", "entropy_loss_coef"),
        updates_per_batch=keys.derived(updates, n, rollout, train, epochs),
        max_tokens=get("rollout.max_new_tokens", "generate_max_len"),
        eval_temperature=get("eval.temperature", "eval_temperature"),
        eval_samples=get("eval.n_samples_per_prompt", "eval_n_samples_per_prompt"),
    )
    return fields, None


def _verl(keys: _Keys) -> _Translated:
    """`data.train_batch_size` and `ppo_mini_batch_size` both count prompts."""
    get, number, flag = keys.get, keys.number, keys.flat.get
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    batch, mini, epochs = "data.train_batch_size", f"{actor}.ppo_mini_batch_size", f"{actor}.ppo_epochs"
    problems, smaller = number(batch), number(mini)
    updates = None if not (problems and smaller) else max(1, problems // smaller) * (number(epochs, 1) or 1)
    kl = get(f"{actor}.kl_loss_coef") if flag(f"{actor}.use_kl_loss") else None
    if kl is None and flag("algorithm.use_kl_in_reward"):
        kl = get("algorithm.kl_ctrl.kl_coef")
    if kl is None and flag(f"{actor}.use_kl_loss") is False:
        kl = Said(0.0, f"{keys.path}: {actor}.use_kl_loss = False")
    fields = _present(
        group_size=get(f"{rollout}.n"),
        problems_per_batch=get(batch),
        seed=get("data.seed"),
        model=get("actor_rollout_ref.model.path"),
        train_data=get("data.train_files"),
        algorithm=_algorithm(get("algorithm.adv_estimator")),
        learning_rate=get(f"{actor}.optim.lr"),
        kl_coef=kl,
        entropy_coef=get(f"{actor}.entropy_coeff"),
        updates_per_batch=keys.derived(updates, batch, mini, epochs),
        max_tokens=get("data.max_response_length"),
        eval_temperature=get(f"{rollout}.val_kwargs.temperature"),
        eval_samples=get(f"{rollout}.val_kwargs.n"),
    )
    return fields, None


def _trl(keys: _Keys) -> _Translated:
    """Batches count samples; how many devices there were stands in no argument of the trainer."""
    get, number = keys.get, keys.number
    n = number("num_generations", 8)
    accumulation = number("gradient_accumulation_steps", 1) or 1
    steps = number("steps_per_generation") or accumulation
    device, world = "per_device_train_batch_size", number("num_processes") or number("world_size")
    per_device = number(device)
    generated = number("generation_batch_size")
    if generated is None and per_device and world:
        generated = per_device * world * steps
    names = ("num_generations", "generation_batch_size", device, "steps_per_generation", "gradient_accumulation_steps")
    updates = max(1.0, steps / accumulation) * (number("num_iterations", 1) or 1)
    batch = None
    if generated is None and per_device:
        batch = keys.derived(per_device * steps, device, "steps_per_generation", "gradient_accumulation_steps")
    fields = _present(
        group_size=get("num_generations"),
        problems_per_batch=keys.derived(generated / n if generated and n else None, *names, "num_processes"),
        seed=get("seed"),
        model=get("model_name_or_path", "model_name", "model"),
        train_data=get("dataset_name", "train_data"),
        algorithm=_algorithm(get("loss_type")),
        learning_rate=get("learning_rate"),
        kl_coef=get("beta"),
        entropy_coef=get("entropy_coef"),
        updates_per_batch=keys.derived(
            updates, "steps_per_generation", "gradient_accumulation_steps", "num_iterations"
        ),
        max_tokens=get("max_completion_length"),
        eval_temperature=get("temperature"),
        eval_samples=get("num_generations_eval", "num_generations"),
    )
    return fields, batch


_DIALECTS: dict[str, tuple[str, Callable[[_Keys], _Translated]]] = {
    "isocompute": ("recipe.algorithm", _isocompute),
    "verl": ("actor_rollout_ref.rollout.n", _verl),
    "openrlhf": ("rollout.n_samples_per_prompt", _openrlhf),
    "openrlhf before 0.10.2": ("n_samples_per_prompt", _openrlhf),
    "trl": ("num_generations", _trl),
}
"""Dialect -> a key that only it has, and how it is translated."""
_ALGORITHMS = {"gae": "ppo", "group_norm": "grpo", "dr_grpo": "grpo", "dapo": "grpo", "bnpo": "grpo"}


def _algorithm(said: Said | None) -> Said | None:
    """Names of estimators and losses as algorithms; those without an equal keep their name."""
    return None if said is None else Said(_ALGORITHMS.get(str(said.value), str(said.value)), said.evidence)


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
