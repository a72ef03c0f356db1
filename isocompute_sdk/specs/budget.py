"""`Budget`: an amount to spend, in one unit."""

from __future__ import annotations

import math
import numbers
import re
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, GetJsonSchemaHandler, ValidationInfo, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from isocompute_sdk.errors import SpecError, show
from isocompute_sdk.phrases import GPUS, counted, day_first, joined
from isocompute_sdk.specs.base import IN_FILE, Spec, in_unit
from isocompute_sdk.specs.syntax.complaints import problem, suggestion
from isocompute_sdk.specs.syntax.quantities import Amount, Count, Quantity

Unit = Literal["rollouts", "tokens", "gpu_hours", "usd"]
UNITS: tuple[Unit, ...] = ("rollouts", "tokens", "gpu_hours", "usd")
Purpose = Literal["pilot", "labelling", "probes", "lost"]
"""Costs of a budget beside the planned run: pilot sweep, difficulty labels of the problems, probes of speed, lost
attempts."""
END_OF_DAY = time(18)
"""Local time at which a deadline ends that names a day only."""
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SPAN = re.compile(r"\s*(?P<number>[0-9]+(\.[0-9]+)?)\s*(?P<unit>h|hours?|d|days?|w|weeks?)\s*", re.IGNORECASE)
_SPAN_HOURS = {"h": 1, "d": 24, "w": 168}


def hours_until(text: str, now: datetime | None = None) -> float:
    """Hours from now to a deadline as people write it: `36h`, `3 days`, `Friday`, `Friday 09:00`, `2026-12-04 09:00`.

    `04.12.2026` is the 4th of December, as in logs. A day without a time ends at its 18:00, local time; a weekday is
    the next one to come.

    Args:
        text: the deadline.
        now: local time from which the hours count. None: the clock.

    Raises:
        PydanticCustomError: another text, or a time that is past.
    """
    now = datetime.now().astimezone() if now is None else now
    span, (word, _, clock) = _SPAN.fullmatch(text), text.strip().lower().partition(" ")
    if span is not None:
        return float(span["number"]) * _SPAN_HOURS[span["unit"][0].lower()]
    matching = [i for i, name in enumerate(_DAYS) if len(word) >= 3 and name.startswith(word)]
    try:
        if matching or word in ("today", "tomorrow"):
            ahead = (matching[0] - now.weekday()) % 7 if matching else int(word == "tomorrow")
            ends = time.fromisoformat(clock.strip()) if clock else END_OF_DAY
            end = datetime.combine(now.date() + timedelta(days=ahead), ends)
            if matching and end <= now.replace(tzinfo=None):
                end += timedelta(days=7)
        else:
            iso = day_first(text)
            end = datetime.fromisoformat(iso)
            if len(iso) <= len("2026-12-04"):
                end = datetime.combine(date.fromisoformat(iso), END_OF_DAY)
    except ValueError:
        raise problem(
            accepted="hours, or text such as '36h', '3 days', 'Friday', 'Friday 09:00', '2026-12-04 09:00'"
        ) from None
    hours = (end.astimezone() - now).total_seconds() / 3600.0
    if hours <= 0:
        raise problem(message=f"received {show(text)}, which has passed; now: {now:%A %Y-%m-%d %H:%M}")
    return math.floor(hours * 100) / 100


def _deadline(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, str) or (
        re.fullmatch(r"[0-9_.,eE+ -]*[kKmM]?", value) and value.count("-") != 2 and value.count(".") != 2
    ):
        return value
    hours = hours_until(value)
    if info.context == IN_FILE and _SPAN.fullmatch(value) is None:
        raise problem(
            message=f"received {show(value)}; accepted in a file: hours, or text such as '36h' or '3 days', since a "
            "file is read again at every start, when fewer hours are left",
            hint=f"Write {hours:g}, the hours from now.",
        )
    return hours


class Budget(Spec):
    """An amount to spend in exactly one unit, and optionally a deadline.

    Wherever a budget is read, a plain number or a text will do: `3M`, `3 million`, `2B tokens`, `$2000`,
    `500 GPU-hours on 8xH100`. Units other than rollouts need a `Throughput` to be planned with.
    """

    rollouts: Annotated[Amount | None, in_unit("rollouts")] = None
    """Sampling compute C, in rollouts over the whole run."""
    tokens: Annotated[Amount | None, in_unit("tokens")] = None
    """Sampled tokens over the whole run."""
    gpu_hours: Annotated[Amount | None, in_unit("GPU-hours")] = None
    """GPU-hours over the whole run: wall-clock hours times GPUs."""
    usd: Annotated[Amount | None, in_unit("US dollars")] = None
    """Money over the whole run, in US dollars."""
    deadline_hours: Annotated[Quantity | None, BeforeValidator(_deadline), in_unit("hours")] = None
    """Wall-clock hours until the planned run ends, such as `36` or `3 days`; runs that are made first count. On a
    command line and in Python `Friday` or a date is turned into the hours until then; in a file it would move. None: no
    deadline."""
    gpus: Annotated[Count | None, in_unit("GPUs")] = None
    """GPUs on which it is spent; their name, as in `8xH100`, is ignored: speed is given or measured. None: those of
    the `Hardware`."""
    spent: Annotated[dict[Purpose, Amount] | None, in_unit("that of the budget")] = None
    """Part of the amount that is spent or reserved, in the same unit, by purpose: pilot, labelling, probes, lost.
    None: nothing."""

    def __init__(self, amount: Budget | str | float | None = None, /, **data: Any) -> None:
        if amount is not None:
            read = self.parse(amount).model_dump(exclude_none=True)
            if twice := ", ".join(read.keys() & data.keys()):
                raise SpecError(f"Budget({amount!r}): received {twice} twice; accepted: once", "Leave one out.")
            data = read | data
        super().__init__(**data)

    __init__.__pydantic_base_init__ = True  # pyright: ignore[reportFunctionMemberAccess]

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
                hint="Keep the unit that really limits you; deadline_hours may be given as well.",
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
    def purposes(self) -> str:
        """What that was spent on, in words; empty if nothing is spent."""
        words = {"pilot": "earlier runs", "lost": "lost attempts"}
        return joined([words.get(one, one) for one in self.spent or ()] or [""])

    @property
    def available(self) -> float:
        """Amount left for the planned run."""
        return self.amount - self.committed

    def with_amount(self, amount: float) -> Self:
        """The same budget with another amount of its unit."""
        return self.replace(**{self.unit: amount})

    def in_place_of(self, earlier: Budget) -> Self:
        """The same budget with the deadline and the spending of an earlier one of its unit, unless it has its own."""
        if self.unit != earlier.unit:
            return self
        kept = {name: getattr(earlier, name) for name in ("deadline_hours", "spent") if getattr(self, name) is None}
        return self.replace(**kept)

    @property
    def timed(self) -> bool:
        """Whether the budget depends on time: GPU-hours, money, or a deadline."""
        return self.unit in ("gpu_hours", "usd") or self.deadline_hours is not None

    @classmethod
    def parse(cls, value: Budget | str | float) -> Budget:
        """A budget from a number of rollouts, or a text: `"3M"`, `"500 GPU-hours on 8xH100"`, `"2B tokens"`, `"$500"`.

        Raises:
            SpecError: not an amount above 0 in a known unit.

        Examples:
            >>> iso.Budget.parse("3M").rollouts
            3000000
            >>> print(iso.Budget.parse("200 gpu_hours"))
            200 GPU-hours
        """
        return value if isinstance(value, Budget) else cls.model_validate(value)

    def __str__(self) -> str:
        hours = self.deadline_hours
        within = "" if hours is None else f" within {round(hours, 1) or hours:,g} hour{'s' * (hours != 1)}"
        dollar = "$" * (self.unit == "usd")
        spent = f" ({dollar}{round(self.committed, 2):,.12g} spent on {self.purposes})" if self.spent else ""
        gpus = "" if self.gpus is None else f" on {counted(self.gpus, 'GPU')}"
        amount, unit = f"{self.amount:,.12g}", "GPU-hours" if self.unit == "gpu_hours" else self.unit
        return f"{f'${amount}' if unit == 'usd' else f'{amount} {unit}'}{gpus}{within}{spent}"

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """A mapping, or the short form."""
        mapping = super().__get_pydantic_json_schema__(schema, handler)
        return {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}, mapping]}


_SHORT_FORM = re.compile(
    r"\s*(?P<dollar>\$)?\s*(?P<number>[+-]?[0-9][0-9_.,]*([eE][+-]?[0-9]+)?"
    r"\s*([kKmMbBgGtT](?![a-zA-Z])|(thousand|million|billion|trillion)\b)?)"
    rf"\s*(?P<unit>[a-zA-Z][a-zA-Z _-]*?)?(\s+on\s+{GPUS})?\s*",
    re.IGNORECASE,
)
_EXAMPLES = "Write one amount: 3M or 3 million (rollouts), '500 GPU-hours on 8xH100', '2B tokens', '$2000'."
_UNIT_WORDS: dict[str, Unit] = {
    **{unit: unit for unit in UNITS},
    "rollout": "rollouts",
    "token": "tokens",
    "gpu_hour": "gpu_hours",
    "gpu_h": "gpu_hours",
    "gpuh": "gpu_hours",
    "dollars": "usd",
    "dollar": "usd",
}


def _short_form(value: object) -> dict[str, object]:
    """The fields given by a number or a text."""
    if isinstance(value, numbers.Real):
        return {"rollouts": value}
    if not isinstance(value, str) or (written := _SHORT_FORM.fullmatch(value)) is None:
        raise problem(
            accepted="a number of rollouts, or text such as '3M', '500 GPU-hours on 8xH100', '2B tokens', '$2000'",
            hint=_EXAMPLES,
        )
    word = re.sub(r"[ -]+", "_", written["unit"].lower()) if written["unit"] else "rollouts"
    unit = "usd" if written["dollar"] and not written["unit"] else _UNIT_WORDS.get(word)
    amount, _, machines = value.partition(" on ")
    if machines and _SPAN.fullmatch(amount):
        product = f"{hours_until(amount) * int(written['gpus']):,.12g} GPU-hours on {machines}"
        raise problem(message=f"received {show(value)}; accepted: GPUs times hours, '{product}'", hint=_EXAMPLES)
    if unit is None or (written["dollar"] and unit != "usd"):
        raise problem(
            message=f"received {show(value)}; accepted units: rollouts, tokens, GPU-hours, $",
            hint=_EXAMPLES if written["dollar"] else suggestion(word, UNITS) or _EXAMPLES,
        )
    gpus = {} if written["gpus"] is None else {"gpus": written["gpus"]}
    return {unit: written["number"].strip(), **gpus}
