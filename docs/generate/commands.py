"""A page per command, from the words of its `--help`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from typer.main import get_command

from generate.markdown import code, prose, table
from isocompute_sdk.cli.app import app

TYPES = {"str": "TEXT", "int": "INTEGER", "float": "NUMBER", "Path": "PATH"}
"""Words for the types of options that name no form of their own."""


def pages() -> Iterator[tuple[str, str]]:
    """The list of commands, and a page for each."""
    group: Any = get_command(app)
    rows = [
        (f"[`isocompute {name}`](reference/commands/{name}.md)", _summary(one)) for name, one in group.commands.items()
    ]
    yield "parts/commands.md", table(("command", "what it does"), rows)
    for name, command in group.commands.items():
        yield f"commands/{name}.md", _page(name, command)


def _summary(command: Any) -> str:
    return prose(_paragraphs(command)[0])


def _paragraphs(command: Any) -> list[str]:
    """The help text before its examples."""
    return [part for part in command.help.partition("Examples:")[0].strip().split("\n\n") if part.strip()]


def _page(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    usage = " ".join(["isocompute", name, "[OPTIONS]", *map(_usage, arguments)])
    parts = [f"# isocompute {name}", *map(prose, _paragraphs(command)), f"```text\n{usage}\n```"]
    examples = textwrap.dedent(command.help.partition("Examples:")[2]).strip()
    if examples:
        parts += ["## Examples", f"```bash\n{examples.replace(chr(10) * 2, chr(10))}\n```"]
    panels: dict[str, list[Any]] = {}
    for one in command.params:
        if not one.hidden:
            panel = "Arguments" if one in arguments else one.rich_help_panel or "Options"
            panels.setdefault(panel, []).append(one)
    for panel in sorted(panels, key=lambda title: (title != "Arguments", title != "Options")):
        parts += [f"## {panel}", table(("", "takes", "meaning"), map(_row, panels[panel]))]
    return "\n\n".join(parts) + "\n"


def _usage(argument: Any) -> str:
    word = argument.name.upper() + ("..." if argument.nargs == -1 else "")
    return word if argument.required else f"[{word}]"


def _row(one: Any) -> tuple[str, str, str]:
    if one.param_type_name == "argument":
        name = code(one.name.upper())
    else:
        name = ", ".join(map(code, [*one.opts, *one.secondary_opts]))
    about = [prose(one.help or "")]
    if one.show_default and not (one.default is None or one.default is False):
        shown = ",".join(map(str, one.default)) if isinstance(one.default, tuple) else one.default
        about.append(f"Default: {code(shown)}.")
    if one.required:
        about.append("Required.")
    return name, _takes(one), " ".join(about)


def _takes(one: Any) -> str:
    """What follows the flag, in words; nothing after a switch."""
    annotation = one.type_descriptor.annotation
    if annotation is bool:
        return ""
    return code(one.metavar or _type_words(annotation))


def _type_words(annotation: Any) -> str:
    if get_origin(annotation) in (list, tuple):
        return ",".join(_type_words(part) for part in get_args(annotation) if part is not ...)
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    return TYPES[annotation.__name__]
