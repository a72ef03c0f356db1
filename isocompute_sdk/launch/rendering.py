"""Templates to text: an undefined variable is an error, and a value meets the shell through `| sh` only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, StrictUndefined, TemplateError, Undefined

from isocompute_sdk.errors import BackendError
from isocompute_sdk.launch.quoting import comment, heredoc, sh


def render(template: str, context: Mapping[str, Any]) -> str:
    """Fill `template` (Jinja2) with `context`.

    Filters: `sh` for one quoted word, `comment` for comment lines, `heredoc("MARK")` for the body of a
    quoted heredoc.

    Raises:
        BackendError: a variable is undefined, the template is malformed, or a filter refuses a value.
    """
    environment = Environment(
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
