"""Protobuf messages without their schema: field numbers and raw values, for the few fields that readers need."""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FLOAT64 = struct.Struct("<d")
_LONGEST_VARINT = 10


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of every field in order: numbers as int, everything else as the bytes that stand there.

    Raises:
        ValueError: the bytes are no whole message.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = varint(message, at)
        kind = key & 7
        if kind == VARINT:
            value, at = varint(message, at)
            yield key >> 3, value
            continue
        if kind == BYTES:
            length, at = varint(message, at)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind} at byte {at}")
        if at + length > end:
            raise ValueError(f"a field of {length} bytes at byte {at} of {end}")
        yield key >> 3, message[at : at + length]
        at += length


def varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and the offset behind it.

    Raises:
        ValueError: the message ends inside it.
    """
    result = 0
    for i in range(_LONGEST_VARINT):
        if at + i >= len(message):
            break
        byte = message[at + i]
        result |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return result, at + i + 1
    raise ValueError(f"no whole number at byte {at}")


def first(message: bytes, *path: int) -> int | bytes | None:
    """The first field under a path of field numbers; None if it is absent.

    Raises:
        ValueError: a message on the way is not whole.
    """
    value: int | bytes | None = message
    for number in path:
        if not isinstance(value, bytes):
            return None
        value = next((found for key, found in fields(value) if key == number), None)
    return value


def text(value: int | bytes | None) -> str:
    """A field that holds text; empty if it is absent."""
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def float64(value: bytes) -> float:
    """A field that holds a double."""
    return float(_FLOAT64.unpack(value)[0])
