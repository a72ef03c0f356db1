"""`isocompute schema`: JSON schemas of the specs, for editors."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.output import say
from isocompute_sdk.errors import SpecError

KINDS = ("study", "budget", "throughput", "hardware", "recipe", "sweep", "run")


def schema(
    kind: Annotated[str, typer.Argument(help="study, budget, throughput, hardware, recipe, sweep or run.")] = "study",
    json: opt.Json = False,
) -> None:
    """Print the JSON schema of a spec, so that an editor checks and completes YAML files.

    Example:
        isocompute schema > study.schema.json
    """
    from isocompute_sdk import specs

    # A schema is JSON with or without the flag, which is there so that programs can pass it to every command.
    del json

    if kind not in KINDS:
        raise SpecError(f"no spec {kind!r}; accepted: {', '.join(KINDS)}", "Use one of these names.")
    home = "RunSpec" if kind == "run" else kind.capitalize()
    say(json_module.dumps(specs.json_schema(getattr(specs, home)), indent=1))
