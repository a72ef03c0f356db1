"""Launch scripts from templates, and quoting of values for the shell.

An undefined variable is an error. The quoting functions return text that bash reads back as exactly the given value, or
raise; only `comment` replaces anything: unprintable characters by escapes.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template, TemplateError, Undefined

from isocompute_sdk.errors import BackendError


def render(template: str, context: Mapping[str, Any]) -> str:
    """Fill `template` (Jinja2) with `context`.

    Filters: `sh` for one quoted word, `comment` for comment lines, `heredoc("MARK")` for the body of a quoted heredoc.

    `{% include "size.sh.j2" %}` inserts a shared part of templates/: `run` (model, recipe and `size`), `notes` and
    `where` are comments for the top; `strict` stops the script at the first error; `folder` creates the run folder. A
    script that prepares problem rows takes `place` (interpreter, model, run folder), `prepare` (the steps before
    training) and, at its end, `files` (what it carries). They read `run`, `folder`, `notes`, `documents` and `beside`,
    which `ScriptBackend` gives.
    """
    try:
        return _compiled(template).render(dict(context))
    except TemplateError as error:
        raise BackendError(
            f"the launch template cannot be rendered: {error}",
            "This is a defect of the backend: every variable of its template must be given.",
        ) from error


@lru_cache(maxsize=64)
def _compiled(template: str) -> Template:
    """A template, ready to be filled; to compile one takes longer than to fill it."""
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
    return environment.from_string(template)


def _word(value: str | float | Undefined) -> str:
    if isinstance(value, Undefined):
        return str(value)  # raises an error with the variable's name, which `sh` does not know
    return sh(value)


def sh(value: str | int | float) -> str:
    """One shell word that expands to exactly `value`, newlines and unicode included."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BackendError(
            f"received {value!r} for one word of a script; accepted: text, a whole number or a decimal",
            "Convert the value to text before it reaches the template.",
        )
    text = value if isinstance(value, str) else repr(value)
    # A leading "=" is safe for bash, but `name==x` looks like a comparison.
    return f"'{text}'" if shlex.quote(_encodable(text)) == text and text.startswith("=") else shlex.quote(text)


def comment(text: str, *, indent: str = "", width: int = 100) -> str:
    """`text` as comment lines; no character can end the comment.

    Args:
        text: any text; line breaks and other unprintable characters become escapes.
        indent: text inside the comment before every line but the first.
        width: columns per line including "# "; longer words stay whole.
    """
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    lines = textwrap.wrap(
        printable, width - 2, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(f"# {line}" for line in lines) if lines else "#"


def heredoc(text: str, delimiter: str) -> str:
    """`text` as the body of a heredoc with a quoted delimiter, which bash copies byte for byte."""
    body = _encodable(text)
    if delimiter in body.split("\n"):
        raise BackendError(
            f"a document of the script contains the line {delimiter!r}, which would end it early",
            "Choose another delimiter in the template.",
        )
    return body if body.endswith("\n") else body + "\n"


def _encodable(text: str) -> str:
    if "\0" in text:
        raise BackendError(
            f"received {text!r}, which contains a NUL character; arguments and file names cannot",
            "Remove it.",
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise BackendError(
            f"received {text!r}, which contains half of a surrogate pair and is not valid Unicode",
            "Give the text as valid Unicode.",
        ) from None
    return text
