"""Saved documents: what is declared is what is written, read and checked."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk import Budget, IsoComputeError, Note, files
from isocompute_sdk.documents import Converted, Document, Floats
from isocompute_sdk.errors import DocumentError, FieldError
from isocompute_sdk.fitting.arrays import Array
from tests.processes import HANG_SECONDS


@dataclass(frozen=True)
class Part:
    size: int
    span: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.span is not None and self.span[0] > self.span[1]:
            raise FieldError("span", self.span, "low <= high")


@dataclass(frozen=True)
class Whole:
    size: int
    """Rollouts per problem."""
    reward: float
    budget: Budget
    parts: tuple[Part, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict[str, float])
    notes: tuple[Note, ...] = ()
    drawn_T: Annotated[Array, Floats()] = field(default_factory=lambda: np.empty(0))
    drawn_DT: Annotated[Array, Floats(2, nan=True)] = field(default_factory=lambda: np.empty((0, 0)))
    late: Annotated[complex, Converted(lambda z: [z.real, z.imag], lambda raw: complex(*raw))] = 0j

    @property
    def doubled(self) -> int:
        return 2 * self.size


DOCUMENT = Document("whole", 3, Whole, derived=("doubled",), remedy="Redo.")
PLAIN = Document("whole", 3, Whole, derived=("doubled",), signed=False)
WHOLE = Whole(
    4,
    0.1 + 0.2,
    Budget(rollouts=7),
    (Part(1), Part(2, (0.5, 1.5))),
    {"a": 1e-300},
    (Note("code", "info", "text", {"n": 3}),),
    np.array([0.1, 1e300]),
    np.array([[0.1, math.nan], [3.0, 4.0]]),
    1 - 2j,
)


def same(a: Whole, b: Whole) -> bool:
    def rest(one: Whole) -> str:
        return repr(replace(one, drawn_T=None, drawn_DT=None))  # pyright: ignore[reportArgumentType]

    arrays = [(a.drawn_T, b.drawn_T), (a.drawn_DT, b.drawn_DT)]
    return all(x.tobytes() == y.tobytes() and x.shape == y.shape for x, y in arrays) and rest(a) == rest(b)


def changed(**fields: Any) -> dict[str, Any]:
    return {**PLAIN.to_dict(WHOLE), **fields}


def test_what_is_saved_is_read_to_the_last_bit(tmp_path: Path) -> None:
    for document in (DOCUMENT, PLAIN):
        assert same(document.load(document.save(tmp_path / "a.json", WHOLE)), WHOLE)
        assert same(document.from_dict(document.to_dict(WHOLE)), WHOLE)
    raw = json.loads((tmp_path / "a.json").read_text())
    assert (raw["kind"], raw["schema_version"], raw["doubled"]) == ("whole", 3, 8)
    assert raw["drawn_DT"] == [[0.1, None], [3.0, 4.0]]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_floats_keep_every_bit(values: list[float]) -> None:
    shares = {str(i): np.float64(value) for i, value in enumerate(values)}
    kept = replace(WHOLE, drawn_T=np.array(values, dtype=float), shares=shares)
    read = DOCUMENT.from_text(DOCUMENT.to_text(kept))
    assert read.drawn_T.tobytes() == kept.drawn_T.tobytes()
    assert [v.hex() for v in read.shares.values()] == [v.hex() for v in values]


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"size": "4"}, "size"),
        ({"size": True}, "size"),
        ({"size": 4.0}, "size"),
        ({"reward": None}, "reward"),
        ({"sice": 4}, "sice"),
        ({"parts": [{"size": 1}, {"size": 2.5}]}, "parts[1].size"),
        ({"parts": [{"size": 1, "span": [2.0, 1.0]}]}, "parts[0].span"),
        ({"parts": [{"size": 1, "span": [2.0]}]}, "parts[0].span[1]"),
        ({"parts": {}}, "parts"),
        ({"shares": {"a": "b"}}, "shares.a"),
        ({"notes": [{"code": "a"}]}, "notes[0].severity"),
        ({"budget": {"rollouts": -3}}, "budget.rollouts"),
        ({"budget": {"rolouts": 3}}, "budget.rolouts"),
        ({"drawn_T": [1.0, "2"]}, "drawn_T[1]"),
        ({"drawn_T": [1.0, None]}, "drawn_T[1]"),
        ({"drawn_DT": [[1.0], [1.0, 2.0]]}, "drawn_DT"),
        ({"late": 3}, "late"),
        ({"late": ["a", 1]}, "late"),
    ],
)
def test_a_wrong_value_is_named_with_its_path(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(DocumentError) as caught:
        PLAIN.from_dict(changed(**fields))
    assert caught.value.field == where
    assert caught.value.hint


def test_a_missing_field_is_named_and_a_missing_derived_one_is_not_needed() -> None:
    raw = PLAIN.to_dict(WHOLE)
    assert same(PLAIN.from_dict({name: raw[name] for name in raw if name != "doubled"}), WHOLE)
    with pytest.raises(DocumentError) as caught:
        PLAIN.from_dict({name: raw[name] for name in raw if name != "reward"})
    assert caught.value.field == "reward"


def test_a_document_that_was_changed_or_lost_its_digest_is_refused() -> None:
    raw = DOCUMENT.to_dict(WHOLE)
    changes = {"reward": 0.31, "doubled": 9, "shares": {"a": 1e-299}, "late": [1, -3], "notes": [], "digest": 3}
    without = {name: part for name, part in raw.items() if name != "digest"}
    for changed in (*({**raw, name: value} for name, value in changes.items()), without, {**raw, "more": 1}):
        with pytest.raises(DocumentError) as caught:
            DOCUMENT.from_dict(changed)
        assert (caught.value.field, caught.value.hint) == ("digest", "Redo.")
    # Another program may write 3.0 as 3 or order the fields differently.
    again = {**dict(reversed(raw.items())), "drawn_DT": [[0.1, None], [3, 4]]}
    assert same(DOCUMENT.from_dict(again), WHOLE)


def test_another_schema_version_is_refused_by_name() -> None:
    for wrong in (0, 2, 4, None, "3", True, 3.0, [1]):
        with pytest.raises(DocumentError) as caught:
            DOCUMENT.from_dict({**DOCUMENT.to_dict(WHOLE), "schema_version": wrong})
        assert caught.value.field == "schema_version"


@dataclass(frozen=True)
class Outer:
    inner: Annotated[Whole, Converted(DOCUMENT.to_dict, DOCUMENT.from_dict)]


def test_a_document_within_another_is_refused_in_its_own_words() -> None:
    saved = {**DOCUMENT.to_dict(WHOLE), "schema_version": 2}
    with pytest.raises(DocumentError) as alone:
        DOCUMENT.from_dict(saved)
    with pytest.raises(DocumentError) as within:
        Document("outer", 1, Outer, signed=False).from_dict({"kind": "outer", "schema_version": 1, "inner": saved})
    said = alone.value.message.removeprefix("the mapping: ")
    assert within.value.message == f"the mapping: inner: {said}"


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999", "[1,", '"\\ud800"', "1" * 5000, "[" * 500])
def test_what_is_no_json_number_is_refused(token: str) -> None:
    text = json.dumps(changed(reward="@")).replace('"@"', token)
    with pytest.raises(DocumentError):
        PLAIN.from_text(text)
    with pytest.raises(DocumentError):
        PLAIN.from_text(text.replace('"reward"', '"late"'))


def test_nan_is_not_written() -> None:
    for bad in (replace(WHOLE, reward=math.nan), replace(WHOLE, drawn_T=np.array([math.inf]))):
        with pytest.raises(ValueError, match="JSON compliant"):
            DOCUMENT.to_text(bad)


@pytest.mark.parametrize(
    "text", ["", "[]", "3", '{"kind": "fits", "schema_version": 3}', '{"schema_version": 3}', "\xff"]
)
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(DocumentError) as caught:
        PLAIN.load(path)
    assert str(path) in caught.value.message
    assert not PLAIN.holds(path)


def test_only_files_of_a_bounded_size_are_read_and_written(tmp_path: Path) -> None:
    small = Document("whole", 3, Whole, largest=2000, derived=("doubled",), signed=False)
    path = small.save(tmp_path / "a.json", WHOLE)
    assert small.holds(path)
    with path.open("a") as file:
        file.write(" " * 2000)
    with pytest.raises(IsoComputeError, match="2,000 bytes"):
        small.load(path)
    with pytest.raises(IsoComputeError, match="2,000"):
        small.save(path, replace(WHOLE, drawn_T=np.arange(1000.0)))


READERS: list[Callable[[Path], object]] = [
    PLAIN.load,
    lambda path: files.read_text(path, what="text"),
    lambda path: files.check_input(path, what="text"),
    lambda path: files.open_input(path, what="text").__enter__(),
]


@pytest.mark.parametrize("read", READERS)
def test_a_pipe_a_device_and_a_folder_are_refused_at_once(tmp_path: Path, read: Callable[[Path], object]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    link = tmp_path / "link"
    link.symlink_to(pipe)
    for path in (pipe, link, Path("/dev/zero"), Path("/dev/tty"), tmp_path, tmp_path / "none", Path("a" * 5000)):
        refused: list[IsoComputeError] = []

        def look(path: Path = path, refused: list[IsoComputeError] = refused) -> None:
            with pytest.raises(IsoComputeError) as caught:
                read(path)
            refused.append(caught.value)

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        thread.join(HANG_SECONDS)
        assert refused, path
        assert refused[0].hint


def test_the_class_of_the_error_is_the_readers(tmp_path: Path) -> None:
    for path in ("", tmp_path, tmp_path / "none"):
        with pytest.raises(DocumentError):
            files.read_bytes(path, what="text", error=DocumentError)


def test_the_schema_describes_the_saved_form() -> None:
    import jsonschema

    schema = DOCUMENT.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(DOCUMENT.to_dict(WHOLE), schema)
    assert schema["properties"]["size"]["description"] == "Rollouts per problem."
    for wrong in ({"kind": "fits"}, {"size": "x"}, {"zzz": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**DOCUMENT.to_dict(WHOLE), **wrong}, schema)
