"""Reading what people have: tables, W&B exports and logs of frameworks; mappings for runs with odd names; a doctor."""

from isocompute_sdk.ingest.assistant.doctor import Diagnosis, RunFinding, diagnose, diagnose_map
from isocompute_sdk.ingest.assistant.mapping import RunMap
from isocompute_sdk.ingest.assistant.propose import propose, read_mapped
from isocompute_sdk.ingest.finding.paths import accepted_formats
from isocompute_sdk.ingest.formats.log_format import LogFormat, LogStore, Tag
from isocompute_sdk.ingest.reader import read_runs

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
    "read_mapped",
    "read_runs",
]


def __getattr__(name: str) -> tuple[str, ...]:
    """`FORMATS`: accepted values of `format=`, those of installed plug-ins included."""
    if name == "FORMATS":
        return accepted_formats()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
