"""What the names of runs say, such as `grpo_n16_bp32_lr1e-6` or `7b-n8-b64-s1`: hints, never certainties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_NUMBER = r"(\d+(?:\.\d+)?(?:e-?\d+)?)"
_EDGE = r"(?:^|[^a-zA-Z0-9])"
_END = r"(?![a-zA-Z0-9]|\.\d)"
FIELDS: dict[str, tuple[str, ...]] = {
    "group_size": (
        "n",
        "g",
        "group",
        "groupsize",
        "group_size",
        "gs",
        "num_generations",
        "samples",
        "nsamples",
        "rollout_n",
    ),
    "problems_per_batch": ("bp", "b_p", "prompts", "problems", "ppb", "problems_per_batch", "nprompts"),
    "batch": ("b", "bs", "batch", "bsz", "batchsize", "batch_size", "tbs", "train_batch_size"),
    "seed": ("s", "seed"),
    "learning_rate": ("lr",),
    "kl_coef": ("kl", "beta", "klcoef", "kl_coef"),
    "entropy_coef": ("ent", "entropy", "entcoef", "ent_coef"),
}
"""Column -> words before a number that stand for it. `batch` may count problems or rollouts."""
ALGORITHMS = ("grpo", "ppo", "cispo", "rloo")
_WHOLE = ("group_size", "problems_per_batch", "batch", "seed")


@dataclass(frozen=True)
class NameHints:
    """What one name says."""

    values: Mapping[str, float | int | str] = field(default_factory=dict[str, float | int | str])
    """Column (or `batch`) -> value."""
    words: Mapping[str, str] = field(default_factory=dict[str, str])
    """Column -> the part of the name that says so."""
    unclear: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Column -> parts that contradict each other."""


def read_name(name: str) -> NameHints:
    """Numbers behind known words, in a run's name with its folders; where two of a kind differ, it is unclear."""
    name = re.sub(r"(?<![a-zA-Z0-9.])(?:[a-zA-Z_]+\d+){2,}(?![a-zA-Z0-9.])", _spaced, name)
    values: dict[str, float | int | str] = {}
    words: dict[str, str] = {}
    unclear: dict[str, tuple[str, ...]] = {}
    for column, known in FIELDS.items():
        found: dict[float, str] = {}
        for word in known:
            for match in re.finditer(rf"{_EDGE}({word}[=_-]?{_NUMBER}){_END}", name, re.IGNORECASE):
                number = float(match[2])
                if column not in _WHOLE or (number == int(number) and (number >= 1 or column == "seed")):
                    found.setdefault(number, match[1])
        if len(found) > 1:
            unclear[column] = tuple(found.values())
        elif found:
            (number, word), *_ = found.items()
            values[column] = int(number) if column in _WHOLE else number
            words[column] = word
    algorithms = [a for a in ALGORITHMS if re.search(rf"(?:^|[^a-zA-Z]){a}(?![a-zA-Z])", name, re.IGNORECASE)]
    if len(algorithms) == 1:
        values["algorithm"] = words["algorithm"] = algorithms[0]
    return NameHints(values, words, unclear)


def _spaced(token: re.Match[str]) -> str:
    """`n8bp32s0` as `n8-bp32-s0`."""
    parts = re.findall(r"[a-zA-Z_]+", token[0])
    known = {word for words in FIELDS.values() for word in words}
    # The first part may end a longer name, as in `run-n8bp32`, and has to be known like the others.
    if not all(part.strip("_").lower() in known for part in parts):
        return token[0]
    return re.sub(r"(?<=\d)(?=[a-zA-Z])", "-", token[0])
