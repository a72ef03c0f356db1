"""Reading what people have: tables, W&B exports and logs of frameworks; mappings for runs with odd names; a doctor."""

from isocompute_sdk.ingest.assistant.doctor import Diagnosis, RunFinding, diagnose
from isocompute_sdk.ingest.assistant.mapping import RunMap
from isocompute_sdk.ingest.assistant.propose import propose, read_mapped
from isocompute_sdk.ingest.paths import FORMATS
from isocompute_sdk.ingest.reader import read_runs

__all__ = ["FORMATS", "Diagnosis", "RunFinding", "RunMap", "diagnose", "propose", "read_mapped", "read_runs"]
