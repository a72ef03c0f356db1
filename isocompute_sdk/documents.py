"""Saved documents: a class is declared once, and written, read and checked from that declaration.

Declare a frozen dataclass (or a pydantic model) with typed fields, and one `Document` below it::

    @dataclass(frozen=True)
    class Forecast:
        group_size: Annotated[int, Field(ge=2)]      # a range: checked on reading
        low: float
        high: float
        reward_T: Annotated[Array, Floats()]         # a float64 array; Floats(nan=True) saves NaN as null
        surface: Annotated[Surface, Converted(Surface.to_dict, Surface.from_dict)]   # a type with its own JSON form

        def __post_init__(self) -> None:             # rules between fields, checked in Python and on reading
            if self.low > self.high:
                raise FieldError("low", self.low, f"at most high = {self.high}")

        @property
        def width(self) -> float:
            return self.high - self.low

    FORECAST = Document("forecast", 1, Forecast, derived=("width",), remedy="Run it again.")

    FORECAST.save(path, forecast); FORECAST.load(path); FORECAST.to_dict(forecast); FORECAST.from_dict(mapping)

- Types are strict: `true`, `"3"` and `3.0` are not whole numbers. Nested dataclasses, specs, tuples and mappings with
  text keys need nothing more. Unknown fields are refused. Annotations must be resolvable at run time.
- `derived` names properties that are written for readers of the JSON.
- Another schema version is refused by name.
- `digest` is the sha256 of everything else in the document. It is required: a file that was changed after it was saved
  is refused. What other programs write too, such as the journal of a run, and requests in launch scripts, which
  people edit, go without (`signed=False`).
- Floats keep every bit. NaN and infinities are errors in both directions, except in arrays with `Floats(nan=True)`.
- Files are replaced in one step. Only regular files of at most `largest` bytes are read.

pydantic is imported and the checks are built on first use, so that importing this module costs nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast

from isocompute_sdk import files
from isocompute_sdk.errors import DocumentError, FieldError, IsoComputeError, dotted, show

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter, ValidationError
    from pydantic_core import CoreSchema

T = TypeVar("T")
Json = dict[str, Any]

MAX_SHOWN = 6
"""Problems listed in one error."""
_ENVELOPE = ("kind", "schema_version")


@dataclass(frozen=True)
class Document(Generic[T]):
    """How one class is saved; see the module's docstring for an example."""

    kind: str
    """Stable name in the file, such as `plan`."""
    schema_version: int
    type: type[T]
    derived: tuple[str, ...] = ()
    """Properties that are written beside the fields."""
    signed: bool = True
    """Whether it carries a digest."""
    typed: bool = False
    """Whether fields of specs that nobody gave are left out: what is read back would take them for given."""
    remedy: str = ""
    """What a user can do about a wrong file, such as a command; the default asks to save it again."""
    largest: int = files.LARGEST_DOCUMENT
    """Size limit in bytes, in both directions."""
    indent: int | None = 1

    def __post_init__(self) -> None:
        if issubclass(self.type, Saved):
            self.type._document = self  # pyright: ignore[reportPrivateUsage]

    def to_dict(self, value: T) -> Json:
        """JSON form of a value, with kind and schema version."""
        body: Json = self._adapter.dump_python(
            value, mode="json", by_alias=True, warnings="error", exclude_unset=self.typed
        )
        whole: Json = {"kind": self.kind, "schema_version": self.schema_version, **body}
        whole |= {name: getattr(value, name) for name in self.derived}
        return {**whole, "digest": digest_of(whole)} if self.signed else whole

    def to_text(self, value: T) -> str:
        """JSON text of a value.

        Raises:
            IsoComputeError: larger than what `load` accepts.
            ValueError: NaN or an infinity.
        """
        text = json.dumps(self.to_dict(value), indent=self.indent, allow_nan=False) + "\n"
        if len(text) > self.largest:
            raise DocumentError(
                f"this {self.kind} has {len(text):,} bytes as JSON; accepted: at most {self.largest:,}",
                "Save a smaller one: it could not be read back.",
            )
        return text

    def save(self, path: object, value: T) -> Path:
        """Write a value as JSON; a kill leaves the old file or the new one.

        Raises:
            IsoComputeError: the file cannot be written.
        """
        text = self.to_text(value)
        with files.saving(path) as target:
            return files.write_text(target, text)

    def load(self, path: object) -> T:
        """Read what `save` wrote.

        Raises:
            IsoComputeError: no such file, not a regular file, too large, not JSON, another kind or schema version,
                changed after it was saved, or a field that is missing, has the wrong type or contradicts another.
        """
        return self.from_text(files.read_bytes(path, what=self._what, largest=self.largest), str(path))

    def from_text(self, text: str | bytes, source: str = "the text") -> T:
        """Read a JSON text; `source` names it in errors, which are those of `load`."""
        from pydantic_core import from_json

        try:
            raw = from_json(text, allow_inf_nan=False)
        except ValueError as error:
            why = str(error).replace("recursion limit exceeded", "nested too deep")
            why = why.replace("number out of range", "a number with too many digits")
            raise DocumentError(f"{source} is not valid JSON: {why}", f"Give {self._what}. {self._remedy}") from error
        return self._read(raw, source)

    def from_dict(self, raw: object) -> T:
        """Read what `to_dict` returned.

        Raises:
            IsoComputeError: as `load`.
        """
        try:
            text = json.dumps(raw, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise DocumentError(
                f"the mapping is not JSON: {error}", f"Give what to_dict() of a {self.kind} returned."
            ) from error
        return self.from_text(text, "the mapping")

    def holds(self, path: object) -> bool:
        """Whether a file is a JSON document of this kind, of any version; False where it cannot be read."""
        try:
            raw = files.parse_json(files.read_bytes(path, what=self._what, largest=self.largest))
        except (IsoComputeError, ValueError):
            return False
        return isinstance(raw, dict) and cast("Json", raw).get("kind") == self.kind

    def json_schema(self) -> Json:
        """JSON schema of the saved form."""
        schema = self._adapter_of(described=True).json_schema(mode="validation")
        # The outermost "or null" exists for the configuration alone, see `_adapter`.
        own = next((part for part in schema.pop("anyOf", ()) if part != {"type": "null"}), {})
        if "$ref" in own:
            own = schema["$defs"].pop(own["$ref"].rsplit("/", 1)[-1])
        envelope: Json = {"kind": {"const": self.kind}, "schema_version": {"const": self.schema_version}}
        extra: Json = {name: {"readOnly": True} for name in self.derived}
        if self.signed:
            envelope["digest"] = {"type": "string", "description": "SHA-256 of everything else in the document."}
        own["properties"] = {**envelope, **own.get("properties", {}), **extra}
        own["required"] = [*envelope, *own.get("required", ())]
        return {**schema, **own}

    @property
    def _what(self) -> str:
        return f"{'' if self.kind.endswith('s') else 'a '}saved {self.kind} (JSON)"

    @property
    def _remedy(self) -> str:
        return self.remedy or f"Save the {self.kind} again."

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        return self._adapter_of(described=False)

    def _adapter_of(self, *, described: bool) -> TypeAdapter[T]:
        from pydantic import ConfigDict, TypeAdapter

        config = ConfigDict(
            strict=True,
            extra="forbid",
            allow_inf_nan=False,
            ser_json_inf_nan="constants",  # left to json.dumps, which refuses them
            use_attribute_docstrings=described,  # read from the source, which takes time
        )
        # pydantic takes no configuration for a bare dataclass, and does for an optional one.
        return cast("TypeAdapter[T]", TypeAdapter(self.type | None, config=config))

    def _read(self, raw: object, source: str) -> T:
        kind = cast("Json", raw).get("kind") if isinstance(raw, dict) else type(raw).__name__
        if kind != self.kind:
            raise DocumentError(f"{source} holds {show(kind)}, not {self._what}", f"Give {self._what}. {self._remedy}")
        body = dict(cast("Json", raw))
        version: Any = body.get("schema_version")
        if type(version) is not int or version != self.schema_version:
            raise DocumentError(
                f"{source}: schema_version: received {show(version)}; this release reads {self.schema_version}",
                "Read it with the release that wrote it, or recreate it with this one.",
                "schema_version",
            )
        if self.signed:
            digest = body.pop("digest", None)
            if digest != digest_of(body):
                received = "missing" if digest is None else f"received {show(digest)}"
                text = f"digest: {received}; expected another: the {self.kind} was changed after it was saved"
                raise self._wrong(source, text, "digest")
        return self._validated({k: v for k, v in body.items() if k not in (*_ENVELOPE, *self.derived)}, source)

    def _validated(self, body: Json, source: str) -> T:
        from pydantic import ValidationError
        from pydantic_core import to_json

        try:
            # From JSON text: only there does strict mode accept a list for a tuple and a mapping for a dataclass.
            return self._adapter.validate_json(to_json(body))
        except ValidationError as error:
            lines = _complaints(error)
            shown = [line for line, _ in lines[:MAX_SHOWN]]
            more = [f"and {len(lines) - MAX_SHOWN} more"] if len(lines) > MAX_SHOWN else []
            raise self._wrong(source, "\n  ".join([*shown, *more]), lines[0][1]) from None

    def _wrong(self, source: str, text: str, field: str | None = None) -> DocumentError:
        return DocumentError(f"{source}: {text}", self._remedy, field)


class Saved:
    """Base of a class with a `Document`: methods that save and read it."""

    _document: ClassVar[Document[Any]]

    def to_dict(self) -> Json:
        """Plain JSON form."""
        return self._document.to_dict(self)

    def save(self, path: str | Path) -> Path:
        """Write as JSON; a kill leaves the old file or the new one.

        Raises:
            IsoComputeError: the file cannot be written.
        """
        return self._document.save(path, self)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises:
            IsoComputeError: missing file, other content, another schema version.
        """
        return cls._document.load(path)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned.

        Raises:
            IsoComputeError: as `load`.
        """
        return cls._document.from_dict(raw)


def digest_of(value: object) -> str:
    """SHA-256 of a JSON value, in hexadecimal, whatever the order of its keys."""
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """The value with whole floats as integers: other programs write 4.0 as 4."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {name: _canonical(part) for name, part in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_canonical(part) for part in cast("Sequence[Any]", value)]
    return value


def _complaints(error: ValidationError) -> list[tuple[str, str]]:
    """One line and one field path for every problem that pydantic found."""
    found: list[tuple[str, str]] = []
    for details in error.errors(include_url=False):
        context, received = details.get("ctx", {}), show(details["input"])
        # Pydantic's location also holds names of types.
        path = [part for part in details["loc"] if isinstance(part, int) or part.isidentifier()]
        broken, expected = context.get("error"), details["msg"].removeprefix("Input should be ")
        if isinstance(broken, FieldError):
            path, received, expected = [*path, broken.field or ""], show(broken.received), broken.expected
        elif details["type"] == "isocompute":
            path = [*path, context["field"]] if context.get("field") else path
            expected = context["message"] or context["accepted"]
        text = f"received {received}; expected {expected.removeprefix('Value error, ')}"
        if isinstance(within := getattr(broken, "__cause__", None), IsoComputeError):
            text = within.message.removeprefix("the mapping: ")
        elif details["type"] == "missing":
            text = "missing"
        elif details["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            text = f"unknown field, received {received}"
        where = dotted(path)
        found.append((f"{where}: {text}" if where else text, where))
    return found


@dataclass(frozen=True)
class Floats:
    """Annotation of a float64 array with `ndim` axes, saved as nested lists: `Annotated[Array, Floats()]`."""

    ndim: int = 1
    nan: bool = False
    """Accept NaN, which is saved as null."""
    largest: float | None = None
    """Largest accepted size of a number."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Lists of strict, finite numbers become an array, and back."""
        from pydantic_core import core_schema as core

        least = None if self.largest is None else -self.largest
        schema: CoreSchema = core.float_schema(strict=True, allow_inf_nan=False, ge=least, le=self.largest)
        if self.nan:
            schema = core.nullable_schema(schema)
        for _ in range(self.ndim):
            schema = core.list_schema(schema)
        write = core.plain_serializer_function_ser_schema(self._write)
        return core.no_info_after_validator_function(self._array, schema, serialization=write)

    def _array(self, values: list[Any]) -> Any:
        import numpy as np

        if not values:
            return np.empty((0,) * self.ndim)
        # Ragged lists raise a ValueError, which becomes an error at this field.
        return np.array(values, dtype=np.float64)

    def _write(self, array: Any) -> Any:
        import numpy as np

        missing = np.isnan(array)
        if self.nan and missing.any():
            array = array.astype(object)
            array[missing] = None
        return array.tolist()


@dataclass(frozen=True)
class Converted:
    """Annotation of a type with a JSON form of its own: `Annotated[X, Converted(X.to_dict, X.from_dict)]`."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    form: Any = Any
    """Type that `write` returns and `read` takes; it is written and checked as a field of that type would be."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The form's own schema, between the two functions."""
        from pydantic_core import core_schema as core

        form = handler.generate_schema(self.form)
        write = core.plain_serializer_function_ser_schema(self.write, return_schema=form)
        return core.no_info_after_validator_function(self._read, form, serialization=write)

    def _read(self, raw: Any) -> Any:
        try:
            return self.read(raw)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"a part is missing or wrong: {error!r}") from error
        except IsoComputeError as error:
            raise ValueError(error.message) from error
