"""`isocompute backends`: the training frameworks that launch scripts can be written for."""

from __future__ import annotations

from isocompute_sdk.cli import options as opt
from isocompute_sdk.cli.output import emit_json, say


def backends(json: opt.Json = False) -> None:
    """List the installed backends with what each needs.

    Example:
        isocompute backends --json
    """
    from dataclasses import asdict

    from isocompute_sdk import registry

    found = {name: registry.load(name).describe() for name in registry.available()}
    if json:
        emit_json({"kind": "backends", "backends": {name: asdict(info) for name, info in found.items()}})
        return
    for name, info in found.items():
        say(name)
        for label, value in asdict(info).items():
            if label != "name":
                text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
                say(f"  {label}: {text}")
