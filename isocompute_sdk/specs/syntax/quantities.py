"""Numbers as people write them: `3M`, `2.5e6`, `65_536`, `3,000,000`; and the field types that read them."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, cast

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from isocompute_sdk.errors import SpecError, show
from isocompute_sdk.specs.syntax.complaints import problem

SUFFIXES = {"": 0, "k": 3, "m": 6, "b": 9, "g": 9, "t": 12}
"""Powers of ten behind the suffixes, in either case (`3M` and `3m` are both three million)."""

LARGEST_COUNT = 10**18
"""Upper limit of all numbers: larger ones are typing errors."""

_WORDS = {"thousand": "k", "million": "M", "billion": "B", "trillion": "T"}

NUMBER_PATTERN = (
    r"^\s*[+-]?([1-9][0-9]{0,2}(,[0-9]{3})+|[0-9]+(_[0-9]+)*)(\.([0-9]+(_[0-9]+)*)?)?([eE][+-]?[0-9]{1,4})?"
    r"\s*([kKmMbBgGtT]|[tT]housand|[mMbB]illion|[tT]rillion)?\s*$"
)
"""Texts that are read as numbers (also the pattern in the JSON schema): commas stand between thousands only."""

_NUMBER = re.compile(NUMBER_PATTERN)
_OTHER_SEPARATORS = re.compile(r"\s*(?P<digits>[+-]?[0-9][0-9,._]*[,.][0-9,._]*)\s*(?P<suffix>[kKmMbBgGtT]?)\s*")
MAX_LENGTH = 60
"""Characters of the longest text that is read as a number."""
FORMS = "65536, 65_536, 65,536, 3M, 2.5e6"


def parse_number(text: str) -> Fraction:
    """The exact value of a number such as `3M`, `3 million`, `2.5e6`, `65_536`, `3,000,000` or `0.4`.

    Commas separate thousands: `3,000` is three thousand. A comma anywhere else could be a decimal comma and is an
    error that names both readings.
    """
    if len(text) > MAX_LENGTH or not _NUMBER.match(text):
        raise SpecError(f"received {show(text)}; accepted: numbers such as {FORMS}", _readings(text))
    body = text.strip().replace(",", "")
    for word, letter in _WORDS.items():
        body = re.sub(rf"\s*{word}$", letter, body, flags=re.IGNORECASE)
    suffix = body[-1].lower() if body[-1].isalpha() else ""
    return Fraction(Decimal(body.removesuffix(body[-1]).strip() if suffix else body)) * 10 ** SUFFIXES[suffix]


def _readings(text: str) -> str | None:
    """What a number with separators in odd places could mean, as a hint."""
    found = _OTHER_SEPARATORS.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if found is None:
        return None
    digits, suffix = found["digits"], found["suffix"]
    meanings = [re.sub(r"[,._]", "", digits).lstrip("0") + suffix]
    decimal = re.fullmatch(r"([^,]*),([^,]*)|([^.]*)\.([^.]*)", digits)
    if decimal:
        whole, part = decimal.group(1, 2) if decimal[1] is not None else decimal.group(3, 4)
        meanings.insert(0, f"{re.sub(r'[,._]', '', whole)}.{re.sub(r'[,._]', '', part)}{suffix}")
    return f"It could mean {' or '.join(meanings)}: write it that way."


def parse_count(value: str | float) -> int:
    """A whole number from 0 to 10^18, exactly: `parse_count("0.3M") == 300000`.

    Raises:
        SpecError: not a number, not whole, negative or too large.
    """
    return int(Number(whole=True, ge=0).parse(value))


def _exact(value: object) -> Fraction | None:
    """The value of a finite real number of any type (numpy's included); None for everything else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    if isinstance(value, numbers.Integral):
        return Fraction(int(value))
    return Fraction(float(value)) if math.isfinite(value) else None


@dataclass(frozen=True)
class Number:
    """Annotation that makes a field read numbers in every accepted form and check their range.

    `Annotated[int, Number(whole=True, ge=2)]` gives whole numbers from 2 up; booleans, NaN and infinities are
    never numbers. With `keep_whole` the value is an int where it is whole and a float elsewhere.
    """

    whole: bool = False
    keep_whole: bool = False
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    @property
    def accepted(self) -> str:
        """What is accepted, in words: `whole numbers >= 2`."""
        bounds = [(">=", self.ge), (">", self.gt), ("<=", self.le), ("<", self.lt)]
        limits = " and ".join(f"{sign} {limit:g}" for sign, limit in bounds if limit is not None)
        return f"{'whole numbers' if self.whole else 'numbers'} {limits}".strip()

    def read(self, value: object) -> int | float:
        """The number, or an error for pydantic to collect."""
        try:
            exact = parse_number(value) if isinstance(value, str) else _exact(value)
        except SpecError as error:
            raise self._refused(value, f" (forms read: {FORMS})", error.hint) from None
        if exact is not None and abs(exact) > LARGEST_COUNT:
            raise self._refused(value, f", at most {LARGEST_COUNT:g}")
        if exact is None or (self.whole and exact.denominator != 1):
            raise self._refused(value)
        as_int = self.whole or (self.keep_whole and exact.denominator == 1)
        number = int(exact) if as_int else float(exact)
        # Compared after rounding to a float: 1e-400 is above 0, but the value kept would be 0.
        if not self._holds(number):
            raise self._refused(value)
        return number

    def _refused(self, value: object, more: str = "", hint: str | None = None) -> PydanticCustomError:
        return problem(message=f"received {show(value)}; accepted: {self.accepted}{more}", hint=hint)

    def parse(self, value: object) -> int | float:
        """The number, outside pydantic."""
        try:
            return self.read(value)
        except PydanticCustomError as error:
            context = error.context or {}
            raise SpecError(str(context["message"]), context["hint"] or "Correct the number.") from None

    def _holds(self, number: float) -> bool:
        return (
            (self.ge is None or number >= self.ge)
            and (self.gt is None or number > self.gt)
            and (self.le is None or number <= self.le)
            and (self.lt is None or number < self.lt)
        )

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read with `read`; the annotated type is documentation for type checkers."""
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """A number in range, or a text that looks like one (whose range an editor cannot check)."""
        number: dict[str, Any] = {"type": "integer" if self.whole else "number"}
        keywords = {"minimum": self.ge, "exclusiveMinimum": self.gt, "maximum": self.le, "exclusiveMaximum": self.lt}
        number.update({key: limit for key, limit in keywords.items() if limit is not None})
        return {"anyOf": [number, {"type": "string", "pattern": NUMBER_PATTERN}]}


@dataclass(frozen=True)
class Items:
    """Annotation for tuple fields: any list, or one value for a list of one; no repeats where `unique`.

    `length` fixes the number of items. Where `alone` is false, one value alone is an error.
    """

    unique: bool = True
    length: int | None = None
    alone: bool = True

    def read(self, value: object) -> tuple[object, ...]:
        """The items as a tuple, not yet checked one by one."""
        if isinstance(value, str | bytes | Mapping | Set) or not isinstance(value, Iterable):
            if not self.alone:
                raise problem(accepted="a list, such as [0, 1]")
            items: tuple[object, ...] = (value,)
        else:
            items = tuple(cast("Iterable[object]", value))
        if self.length is not None and len(items) != self.length:
            raise problem(accepted=f"a list of {self.length} numbers")
        if not items:
            raise problem(accepted="a list with at least one item")
        return items

    def check(self, items: tuple[object, ...]) -> tuple[object, ...]:
        """Reject repeats: the same cell twice would be the same run twice."""
        repeated = next((item for i, item in enumerate(items) if item in items[:i]), None)
        if self.unique and repeated is not None:
            raise problem(
                message=f"received {show(list(items))}; accepted: a list without repeats ({repeated!r} is given twice)"
            )
        return items

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Make a tuple first, let pydantic check the items, then look for repeats."""
        inner = core_schema.no_info_before_validator_function(self.read, handler(source))
        return core_schema.no_info_after_validator_function(self.check, inner)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """A list, or one item alone."""
        array = handler(schema)
        if self.length is not None:
            return array
        if not self.alone:
            return {**array, "minItems": 1, "uniqueItems": self.unique}
        return {"anyOf": [{**array, "minItems": 1, "uniqueItems": self.unique}, array["items"]]}


Count = Annotated[int, Number(whole=True, ge=1)]
"""A whole number from 1 up."""

Quantity = Annotated[float, Number(gt=0)]
"""A finite number above 0."""

Amount = Annotated[float, Number(gt=0, keep_whole=True)]
"""A number above 0 that stays an int where it is whole, so that 3M rollouts print as 3000000."""

Levels = Annotated[tuple[Count, ...], Items()]
"""Distinct whole numbers from 1 up, in the order given; one number alone is a list of one."""


def finite_scalar(value: object) -> str | int | float | bool:
    """A text, a boolean or a finite number as a plain Python value; anything else is an error for pydantic."""
    if isinstance(value, str | bool):
        if isinstance(value, str) and "\0" in value:
            raise problem(accepted="text without NUL characters")
        return value
    exact = _exact(value)
    if exact is None or abs(exact) > LARGEST_COUNT:
        raise problem(accepted="text, a number of at most 1e18, true or false")
    return int(exact) if isinstance(value, numbers.Integral) else float(exact)
