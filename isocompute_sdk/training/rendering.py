"""Templates to text: an undefined variable is an error, and a value meets the shell through `| sh` only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateError, Undefined

from isocompute_sdk.errors import BackendError
from isocompute_sdk.training.quoting import comment, heredoc, sh


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
