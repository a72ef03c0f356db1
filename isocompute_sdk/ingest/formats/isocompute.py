"""What our own journal means: metrics.jsonl of the built-in runner, the simulator and the programs beside TRL.

Its lines name our metrics and its first line n, B_p and context: tags need no translation, and no configuration is
looked for beside it. `run_folders.journal_records` declares the lines.
"""

from __future__ import annotations

import re

from isocompute_sdk.ingest.formats.log_format import METRICS, Journal, LogFormat, Tag, validation
from isocompute_sdk.ingest.stores.journal import looks_like_journal, read_journal
from isocompute_sdk.run_folders.progress import journal_progress
from isocompute_sdk.run_folders.store import METRICS_FILE

FORMAT = LogFormat(
    name="isocompute",
    framework="isocompute",
    # Tables of other programs may have our names too: a journal is known by its first line.
    signature="(?!)",
    tags=(
        *(validation(rf"{name}@(?P<k>\d+)", f"{name}@{{k}}") for name in ("avg", "best", "worst")),
        *(Tag(re.escape(name), name) for name in METRICS),
    ),
    step="rollout_batches",
    journal=Journal(METRICS_FILE, looks_like_journal, read_journal, journal_progress),
)
