"""`Budget`: an amount to spend, in one unit."""

from __future__ import annotations

import numbers
import re
from typing import Annotated, Any, Literal, Self, cast

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from isocompute_sdk.errors import show
from isocompute_sdk.specs.base import Spec, in_unit
from isocompute_sdk.specs.syntax.complaints import problem, suggestion
from isocompute_sdk.specs.syntax.quantities import Amount, Quantity

Unit = Literal["rollouts", "tokens", "gpu_hours", "usd"]
UNITS: tuple[Unit, ...] = ("rollouts", "tokens", "gpu_hours", "usd")
Purpose = Literal["pilot", "labelling", "probes", "lost"]
"""Costs of a budget beside the planned run: pilot sweep, difficulty labels of the problems, probes of speed, lost
attempts."""


class Budget(Spec):
    """An amount to spend in exactly one unit, and optionally a deadline.

    Wherever a budget is read, a plain number or a text such as `3M`, `3,000,000`, `200 gpu_hours` or `$500` will do.
    Units other than rollouts need a `Throughput` to be planned with.
    """

    rollouts: Annotated[Amount | None, in_unit("rollouts")] = None
    """Sampling compute C, in rollouts over the whole run."""
    tokens: Annotated[Amount | None, in_unit("tokens")] = None
    """Sampled tokens over the whole run."""
    gpu_hours: Annotated[Amount | None, in_unit("GPU-hours")] = None
    """GPU-hours over the whole run: wall-clock hours times GPUs."""
    usd: Annotated[Amount | None, in_unit("US dollars")] = None
    """Money over the whole run, in US dollars."""
    deadline_hours: Annotated[Quantity | None, in_unit("hours")] = None
    """Wall-clock hours that the run may take. None: no deadline."""
    spent: Annotated[dict[Purpose, Amount] | None, in_unit("that of the budget")] = None
    """Part of the amount that is spent or reserved, in the same unit, by purpose: pilot, labelling, probes, lost.
    None: nothing."""

    @model_validator(mode="before")
    @classmethod
    def _read_short_form(cls, value: Any) -> Any:
        if isinstance(value, dict | Budget):
            return cast("Any", value)
        return _short_form(value)

    @model_validator(mode="after")
    def _exactly_one_unit(self) -> Self:
        given = [unit for unit in UNITS if getattr(self, unit) is not None]
        if len(given) != 1:
            received = " and ".join(f"{unit}={getattr(self, unit):g}" for unit in given) or "none of them"
            raise problem(
                message=f"received {received}; accepted: exactly one of {', '.join(UNITS)}",
                hint="Keep the unit that really limits you; deadline_hours may stand beside it.",
            )
        if self.amount <= self.committed:
            raise problem(
                message=f"received {self.committed:g} {self.unit} spent of {self.amount:g}: nothing is left to plan",
                hint="Raise the amount, or leave out costs paid from elsewhere.",
                field="spent",
            )
        return self

    @property
    def unit(self) -> Unit:
        """The unit that was given."""
        return next(unit for unit in UNITS if getattr(self, unit) is not None)

    @property
    def amount(self) -> float:
        """The amount in that unit."""
        return float(getattr(self, self.unit))

    @property
    def committed(self) -> float:
        """Part that is spent or reserved, in that unit."""
        return float(sum((self.spent or {}).values()))

    @property
    def available(self) -> float:
        """Amount left for the planned run."""
        return self.amount - self.committed

    def with_amount(self, amount: float) -> Self:
        """The same budget with another amount of its unit."""
        return self.replace(**{self.unit: amount})

    @property
    def timed(self) -> bool:
        """Whether the budget depends on time: GPU-hours, money, or a deadline."""
        return self.unit in ("gpu_hours", "usd") or self.deadline_hours is not None

    @classmethod
    def parse(cls, value: Budget | str | float) -> Budget:
        """A budget from a number of rollouts, or a text: `"3M"`, `"200 gpu_hours"`, `"1.5B tokens"`, `"$500"`.

        Raises:
            SpecError: not an amount above 0 in a known unit.

        Examples:
            >>> iso.Budget.parse("3M").rollouts
            3000000
            >>> print(iso.Budget.parse("200 gpu_hours"))
            200 gpu-hours
        """
        return value if isinstance(value, Budget) else cls.model_validate(value)

    def __str__(self) -> str:
        deadline = "" if self.deadline_hours is None else f" within {self.deadline_hours:g} hours"
        spent = f", {self.committed:,.12g} of them spent" if self.spent else ""
        return f"{self.amount:,.12g} {self.unit.replace('_', '-')}{spent}{deadline}"

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """A mapping, or the short form."""
        return {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}, handler(schema)]}


_SHORT_FORM = re.compile(
    r"\s*(?P<dollar>\$)?\s*(?P<number>[+-]?[0-9][0-9_.,]*([eE][+-]?[0-9]+)?\s*([kKmMbBgGtT](?![a-zA-Z]))?)"
    r"\s*(?P<unit>[a-zA-Z][a-zA-Z _-]*?)?\s*"
)
_EXAMPLES = "Write one amount, for example 3M (rollouts), 200 gpu_hours, 1.5B tokens or $500."
_UNIT_WORDS: dict[str, Unit] = {
    **{unit: unit for unit in UNITS},
    "rollout": "rollouts",
    "token": "tokens",
    "gpu_hour": "gpu_hours",
    "gpu_h": "gpu_hours",
    "dollars": "usd",
    "dollar": "usd",
}


def _short_form(value: object) -> dict[str, object]:
    """The fields given by a number or a text."""
    found = _SHORT_FORM.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, numbers.Real):
        return {"rollouts": value}
    if found is None:
        raise problem(
            accepted="a number of rollouts, or a text such as '3M', '200 gpu_hours', '1.5B tokens', '$500'",
            hint=_EXAMPLES,
        )
    word = re.sub(r"[ -]+", "_", found["unit"].lower()) if found["unit"] else "rollouts"
    unit = "usd" if found["dollar"] and not found["unit"] else _UNIT_WORDS.get(word)
    if unit is None or (found["dollar"] and unit != "usd"):
        raise problem(
            message=f"received {show(value)}; accepted units: {', '.join(UNITS)}",
            hint=_EXAMPLES if found["dollar"] else suggestion(word, UNITS) or _EXAMPLES,
        )
    return {unit: found["number"].strip()}
