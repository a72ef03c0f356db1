"""Values in the grammar of Hydra's overrides, so that Hydra reads back the same value."""

from __future__ import annotations

import re
from typing import Any, cast

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_NOT_TEXT = ("null", "true", "false", "nan", "inf")


def word(value: Any) -> str:
    """None, a truth value, a number, text, or a list of them."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return f"[{','.join(word(item) for item in cast('list[Any]', value))}]"
    text = str(value)
    return text if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT else quoted(text)


def quoted(text: str) -> str:
    """Text in single quotes, in which only backslashes before a quote or at the end are special."""
    if "${" in text:
        raise ValueError(f"{text!r} holds '${{', which veRL would read as a reference: use another folder or name")
    text = re.sub(r"(\\*)'", r"\1\1\\'", text)
    return "'" + re.sub(r"(\\+)\Z", r"\1\1", text) + "'"
