"""Templates to text: an undefined variable is an error, and a value meets the shell through `| sh` only."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateError, Undefined

from isocompute_sdk.errors import BackendError


def render(template: str, context: Mapping[str, Any]) -> str:
    """Fill `template` (Jinja2) with `context`.

    Filters: `sh` for one quoted word, `comment` for comment lines, `heredoc("MARK")` for the body of a
    quoted heredoc.

    `{% include "size.sh.j2" %}` puts in one of the parts that scripts share (templates/): `size`, `notes` and `where`
    are comments for the top; `strict` makes the first error the last; `folder` makes the run folder, and `rows` fills
    it with `documents` and checks the problems. They read `run`, `folder`, `notes` and `documents`, as `ScriptBackend`
    gives them.

    Raises:
        BackendError: a variable is undefined, the template is malformed, or a filter refuses a value.
    """
    environment = Environment(
        loader=PackageLoader("isocompute_sdk.training"),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters: dict[str, Any] = environment.filters
    filters.update(sh=_word, comment=comment, heredoc=heredoc)
    try:
        return environment.from_string(template).render(dict(context))
    except TemplateError as error:
        raise BackendError(
            f"the launch template cannot be rendered: {error}",
            "Every variable of a template has to be given; this is a defect of the backend.",
        ) from error


def _word(value: str | float | Undefined) -> str:
    if isinstance(value, Undefined):
        return str(value)  # raises with the variable's name, which `sh` does not know
    return sh(value)


def sh(value: str | int | float) -> str:
    """One shell word that expands to exactly `value`; newlines and unicode are kept.

    Raises:
        BackendError: the value is not text or a number, holds a NUL (no argument can carry one), or holds
            text that is not valid Unicode.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BackendError(
            f"received {value!r} where a script needs one word; accepted: text, a whole number or a decimal",
            "Turn the value into text before it reaches the template.",
        )
    text = value if isinstance(value, str) else repr(value)
    # A leading "=" is safe for bash, but `name==x` reads as a comparison.
    return f"'{text}'" if shlex.quote(_encodable(text)) == text and text.startswith("=") else shlex.quote(text)


def comment(text: str, *, indent: str = "", width: int = 100) -> str:
    """`text` as comment lines; no character of it can end the comment.

    Args:
        text: anything; line breaks and other unprintable characters are shown as escapes.
        indent: put before every line but the first, inside the comment.
        width: columns per line, the leading "# " included. A word longer than that stays whole.
    """
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    lines = textwrap.wrap(
        printable, width - 2, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(f"# {line}" for line in lines) if lines else "#"


def heredoc(text: str, delimiter: str) -> str:
    """`text` as the body of a heredoc with a quoted delimiter, which bash copies byte for byte.

    Raises:
        BackendError: a line of the text equals the delimiter, so that bash would stop there and run the
            rest as commands; or the text holds a NUL or invalid Unicode.
    """
    body = _encodable(text)
    if delimiter in body.split("\n"):
        raise BackendError(
            f"a document for the script holds the line {delimiter!r}, which ends the document early",
            "Choose another delimiter in the template.",
        )
    return body if body.endswith("\n") else body + "\n"


def _encodable(text: str) -> str:
    if "\0" in text:
        raise BackendError(
            f"received {text!r}, which holds a NUL character; no argument or file name can carry one",
            "Remove it.",
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise BackendError(
            f"received {text!r}, which holds half of a surrogate pair and cannot be written as UTF-8",
            "Give the text as valid Unicode.",
        ) from None
    return text
