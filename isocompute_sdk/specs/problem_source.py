"""`ProblemSource`: the data set from which the problem files of a study are written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from isocompute_sdk.specs.base import Count, Spec, Text, in_unit
from isocompute_sdk.specs.sweep import Seed
from isocompute_sdk.specs.syntax.complaints import problem
from isocompute_sdk.specs.syntax.quantities import Number

GENERATOR = "reasoning-gym:"
"""Begins the names of generators."""
_Value = Annotated[float, Number()]


class ProblemSource(Spec):
    """A data set, and which of its rows are the problems; `isocompute problems STUDY` writes the files of `data`."""

    dataset: Text
    """Name on the Hugging Face hub, a folder of that form, a Parquet, CSV, JSON or JSON-lines file, or
    `reasoning-gym:NAME`, a generator of that package."""
    settings: dict[str, int | float | bool | str] = Field(default_factory=dict[str, "int | float | bool | str"])
    """Settings of a generator, such as min_terms."""
    template: Text | None = None
    """Text of every prompt, with {prompt} where the problem stands. None: the problem alone."""
    file: Text | None = None
    """One file of the data set. None: those that it names itself."""
    config: Text | None = None
    """Configuration of the data set. None: its only one."""
    split: Text = "train"
    """Split of the data set."""
    keep: dict[str, tuple[_Value, _Value]] = Field(default_factory=dict[str, "tuple[float, float]"])
    """Column -> smallest and largest value of the rows that are used; a row without a value is not."""
    validation: Annotated[Count, in_unit("problems")] = 300
    """Rows that become validation problems; the others are for training."""
    seed: Seed = 0
    """Seed of the order of the rows, and so of which ones are held out; of a generator also of the draws."""
    reward: Literal["auto", "maths"] | None = "auto"
    """`auto` also writes a reward function, unless the file is there: the scorer of a generator, else `maths`, which
    compares formulas with math-verify. None: the reward is yours."""

    @model_validator(mode="after")
    def _settings_are_a_generators(self) -> Self:
        if self.settings and not self.dataset.startswith(GENERATOR):
            raise problem(
                message=f"received settings for {self.dataset!r}; accepted: settings of a generator, {GENERATOR}NAME",
                hint="Leave settings out.",
                field="settings",
            )
        return self

    @model_validator(mode="after")
    def _ranges_hold_something(self) -> Self:
        for column, (low, high) in self.keep.items():
            if not low <= high:
                raise problem(
                    message=f"keep.{column}: received {low:g} to {high:g}; accepted: the smaller number first",
                    hint=f"Write {column}: [{min(low, high):g}, {max(low, high):g}].",
                    field="keep",
                )
        return self

    def keeps(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is used."""
        return all(_within(row.get(column), low, high) for column, (low, high) in self.keep.items())


def _within(value: Any, low: float, high: float) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
    return number and low <= value <= high
