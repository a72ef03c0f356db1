"""What a saved configuration says of a run: values with where they stand, and how a framework's keys give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isocompute_sdk.phrases import without_login
from isocompute_sdk.records.columns import N_AND_BP

STEPS_PER_BATCH = "steps_per_batch"
"""Field of `SavedConfig.fields` beside the columns: logged steps in one rollout batch, if that is no whole number."""
SIZES = (*N_AND_BP, "updates_per_batch", STEPS_PER_BATCH)
"""Fields that decide how many rollouts a run has sampled."""
_ALGORITHMS = {"gae": "ppo", "group_norm": "grpo", "dr_grpo": "grpo", "dapo": "grpo", "bnpo": "grpo"}
"""Estimators and losses of frameworks -> algorithm."""
_LARGEST = 2**53
"""Larger numbers, infinities and not-a-number are damage: nothing that a run counts is so large."""


@dataclass(frozen=True)
class Said:
    """A value and where it stands."""

    value: Any
    evidence: str
    default: bool = False
    """Whether it only follows from a key that is absent: what another source states counts before it."""

    def __post_init__(self) -> None:
        # Mappings are handed on: passwords are not.
        value = without_login(self.value) if isinstance(self.value, str) else self.value
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "evidence", without_login(self.evidence))


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
    rollouts: Said | None = None
    """Rollouts of one batch over all devices, n times B_p, if the file does not say both."""
    generated: Said | None = None
    """Rollouts that are generated at a time, if a filter may generate several times for one batch."""
    keys: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Everything that the file says, with dotted keys."""
    disagreements: Mapping[str, tuple[Said, ...]] = field(default_factory=dict[str, "tuple[Said, ...]"])
    """Field -> its values, if several sources say different things. A field of `SIZES` is not in `fields` then; of any
    other the first counts."""


class Keys:
    """The keys of one file, dotted, which remember where each value stands; numbers beyond `_LARGEST` are left out."""

    def __init__(self, path: Path, flat: Mapping[str, Any]) -> None:
        self.path = path
        self.flat = {
            key: value for key, value in flat.items() if not isinstance(value, int | float) or abs(value) <= _LARGEST
        }

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
        if value is None or not float(value).is_integer() or not 1 <= value <= _LARGEST:
            return None
        shown = ", ".join(f"{name} = {self.flat.get(name)}" for name in names if name in self.flat)
        return Said(int(value), f"{self.path}: {shown}")

    def updates(self, batch: str, mini: str, epochs: str) -> Said | None:
        """Updates of a batch that is trained in smaller ones of one unit, by the keys of both and of the passes."""
        whole, part = self.number(batch), self.number(mini)
        updates = max(1, whole // part) * (self.number(epochs, 1) or 1) if whole and part else None
        return self.derived(updates, batch, mini, epochs)

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
    rollouts: Callable[[Keys], Said | None] = lambda keys: None
    """Rollouts of one batch over all devices, if the file does not say n."""
    generated: Callable[[Keys], Said | None] = lambda keys: None
    """Rollouts that are generated at a time, if a filter may generate several times for one batch."""
