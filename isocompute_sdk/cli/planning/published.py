"""`isocompute published`: the laws that ship with the package."""

from __future__ import annotations

from typing import Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.display import print_fits
from isocompute_sdk.cli.shared.output import emit_json, say


def published(
    name: Annotated[str | None, typer.Argument(help="Show this law in full.")] = None,
    json: opt.Json = False,
) -> None:
    """List the published laws, or show one with its provenance.

    Examples:
        isocompute published

        isocompute published qwen2.5-7b-instruct/guru-math-easy
    """
    from isocompute_sdk import api

    names = api.list_published() if name is None else (name,)
    laws = {key: api.published(key) for key in names}
    if json:
        emit_json(
            {
                "kind": "published",
                "laws": {
                    key: {
                        "model": fits.model,
                        "laws": fits.to_dict()["laws"],
                        "notes": [note.to_dict() for note in fits.notes],
                    }
                    for key, fits in laws.items()
                },
            }
        )
    elif name is not None:
        print_fits(laws[name])
    else:
        for key, fits in laws.items():
            say(key)
            for law, one in fits.laws.items():
                say(f"  {law}: {one.describe()}")
