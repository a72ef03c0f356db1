"""`Spec`: the frozen, strict base of everything a user can write in Python or YAML."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, Strict, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from isocompute_sdk.errors import SpecError
from isocompute_sdk.phrases import LOGIN
from isocompute_sdk.specs.syntax.complaints import Place, explain, meanings, problem
from isocompute_sdk.specs.syntax.quantities import Count, Items, Levels, Number, Quantity, parse_count

__all__ = [
    "Count",
    "Flag",
    "Items",
    "Levels",
    "ModelName",
    "Number",
    "Quantity",
    "Spec",
    "Text",
    "in_unit",
    "parse_count",
]

IN_FILE = "in a file"
"""Context in which validators see what a file holds."""


def in_unit(name: str) -> Any:
    """Mark the unit of a numeric field; the JSON schema and the documentation of study files show it."""
    return Field(json_schema_extra={"unit": name})


class Described(BaseModel):
    """Its JSON schema says of every field what the docstring below it says."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(schema)
        properties = handler.resolve_ref_schema(reference)["properties"]
        for name, text in meanings(cls).items():
            properties[name]["description"] = text
        return reference


class Spec(Described):
    """Frozen description of something to run; unknown keys and wrong values raise `SpecError`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, /, **data: Any) -> None:
        __tracebackhide__ = True
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise explain(error, type(self), data) from None

    # Without this mark pydantic would build nested specs through __init__ too, and the SpecError raised there
    # would hide the path of the field inside the outer spec.
    __init__.__pydantic_base_init__ = True  # pyright: ignore[reportFunctionMemberAccess]

    if not TYPE_CHECKING:  # A type checker that saw these would believe that any attribute can be assigned.

        def __setattr__(self, name: str, value: Any) -> None:
            raise SpecError(
                f"{type(self).__name__}.{name} cannot be assigned: specs do not change",
                f"Make a changed copy with .replace({name}=...).",
            )

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """As in pydantic, with `SpecError` instead of pydantic's error."""
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise explain(error, cls, obj) from None

    @classmethod
    def from_file_data(cls, data: object, place: Place, source: str) -> Self:
        """Validate what a file holds; `place` and `source` name positions and the file in the `SpecError`."""
        try:
            return super().model_validate(data, context=IN_FILE)
        except ValidationError as error:
            raise explain(error, cls, data, place, source) from None

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated as a whole; what nobody gave stays a default.

        Raises:
            SpecError: an unknown field, or values that do not fit together.
        """
        return type(self)(**{**{name: getattr(self, name) for name in self.model_fields_set}, **changes})


def _one_line(text: str) -> str:
    if not text.strip() or any(unicodedata.category(char) in {"Cc", "Zl", "Zp"} for char in text):
        raise problem(accepted="one line of text, not empty and without control characters")
    return text


Text = Annotated[str, AfterValidator(_one_line)]
"""One line of text that is not empty."""


def holds_login(name: str) -> bool:
    """Whether a name is a URL with a login in it, which scripts and logs would show."""
    return re.search(LOGIN, name) is not None


def _without_login(name: str) -> str:
    if holds_login(name):
        raise problem(
            message="received a URL with a login in it, which scripts would show; accepted: a hub name or a path",
            hint="Remove what stands before the @, and log in through the environment (HF_TOKEN).",
        )
    return name


ModelName = Annotated[str, AfterValidator(_one_line), AfterValidator(_without_login)]
"""A model hub's name or a local path."""

Flag = Annotated[bool, Strict()]
"""true or false; 1, "yes" and the like are refused."""
