"""Reading what people have: tables, W&B exports and logs of frameworks; mappings for runs with odd names; a doctor."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isocompute_sdk.ingest.doctor import Diagnosis, RunFinding, diagnose, diagnose_map
    from isocompute_sdk.ingest.formats.log_format import LogFormat, LogStore, Tag
    from isocompute_sdk.ingest.mapping import RunMap, propose, read_mapped
    from isocompute_sdk.ingest.reader import read

__all__ = [
    "Diagnosis",
    "LogFormat",
    "LogStore",
    "RunFinding",
    "RunMap",
    "Tag",
    "diagnose",
    "diagnose_map",
    "propose",
    "read",
    "read_mapped",
]

_HOMES = {
    "doctor": ("Diagnosis", "RunFinding", "diagnose", "diagnose_map"),
    "mapping": ("RunMap", "propose", "read_mapped"),
    "formats.log_format": ("LogFormat", "LogStore", "Tag"),
    "reader": ("read",),
}


def __getattr__(name: str) -> Any:
    """Public names on first use: a backend that knows its log format needs no doctor."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
