"""`isocompute backends`: the training frameworks with launch scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.output import emit_json, say, terminal

if TYPE_CHECKING:
    from isocompute_sdk.training.backend import BackendInfo


def backends(
    name: Annotated[str | None, typer.Argument(help="Show this one with its options.", show_default=False)] = None,
    json: opt.Json = False,
) -> None:
    """List the installed backends with what each needs, or one with its options.

    Examples:
        isocompute backends

        isocompute backends openrlhf
    """
    from isocompute_sdk.errors import BackendError
    from isocompute_sdk.training import registry

    found: dict[str, BackendInfo] = {}
    broken: dict[str, str] = {}
    for one in registry.available() if name is None else [name]:
        try:
            found[one] = registry.load(one).describe()
        except BackendError as error:
            if name is not None:
                raise
            # A broken plug-in must not hide the others.
            broken[one] = error.message
    if json:
        described = {one: info.to_dict() for one, info in found.items()}
        emit_json({"kind": "backends", "backends": described, "broken": broken})
        return
    _print(found, broken, with_options=name is not None)


INPUTS = (
    "problems (data.train, data.validation): JSON lines such as",
    '  {"id": "1", "prompt": "What is 2 + 3?", "answer": "5"}',
    "  isocompute problems SOURCE   writes them from a data set",
    "reward (data.reward): a Python file with",
    "  def reward(prompt, response, answer): return float(response.strip().endswith(str(answer)))",
    "  isocompute problems SOURCE --reward reward.py   writes one for mathematics (pip install 'isocompute[math]')",
    "docs/backends.md has the study file and an example of each",
)
"""What every backend that trains a model reads."""


def _print(found: dict[str, BackendInfo], broken: dict[str, str], *, with_options: bool) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console = terminal()

    def indented(text: str, columns: int = 2) -> None:
        console.print(Padding(Text(text), (0, 0, 0, columns)))

    def verbatim(line: str) -> None:
        """A line that is copied, so that it must not be broken."""
        console.print(Text(f"  {line}"), soft_wrap=True)

    for one, info in found.items():
        console.print(Text(f"{one}: {info.framework} {info.version} ({', '.join(info.algorithms)})", style="bold"))
        indented(info.summary)
        indented("needs")
        for need in info.needs:
            indented(f"- {need}", 4)
        if with_options:
            console.print(Text("install", style="bold"))
            for line in info.install or ("pip install isocompute",):
                verbatim(line)
            console.print(Text("inputs", style="bold"))
            for line in INPUTS:
                verbatim(line)
        if with_options and info.options:
            console.print(Text("options", style="bold"))
        for option in info.options if with_options else ():
            default = "" if option.default is None else f", default {option.default}"
            indented(f"{option.name} ({option.type}{default})")
            indented(option.description, 4)
        if with_options and info.passes:
            console.print(Text(f"flags of {info.framework} that --option also takes, by its own names", style="bold"))
            for pattern in info.passes:
                indented(pattern)
    for one, message in broken.items():
        console.print(Text(f"{one}: cannot be loaded", style="bold red"))
        indented(message)
    if not with_options:
        say("isocompute backends NAME shows the options of one.")
