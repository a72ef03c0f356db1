"""What CoinRL logs: progress.ndjson, one JSON object a line, and config.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from isocompute_sdk.ingest import LogFormat, LogStore, Tag
from isocompute_sdk.ingest.attempts import attempts_from_rows, numeric
from isocompute_sdk.ingest.formats.configuration import Configuration, Keys, Said
from isocompute_sdk.ingest.formats.log_format import RunLog
from isocompute_sdk.ingest.tables import first_objects, read_objects

FILE = "progress.ndjson"


def holds(path: Path) -> bool:
    """Whether a file is a log of CoinRL; asked of every file, so that names go first."""
    return path.name == FILE and any("update" in row for row in first_objects(path, 65_536))


def read(paths: Sequence[Path], name: str) -> RunLog:
    """One run. Where the update goes back, a resumed attempt begins; isocompute stitches attempts by itself."""
    rows, _, notes = read_objects(paths[0])
    steps = [row["update"] for row in rows]
    values = [{tag: value for tag, value in numeric(row).items() if tag != "update"} for row in rows]
    return RunLog(name, paths[0], "coinrl", attempts_from_rows(paths[0], steps, values, notes), notes)


def fields(keys: Keys) -> Mapping[str, Said | None]:
    """Columns of a run from config.json; what is not there stays unknown."""
    return {
        "group_size": keys.get("samples_per_question"),
        "problems_per_batch": keys.get("questions"),
        "model": keys.get("base_model"),
        "learning_rate": keys.get("optimizer.lr"),
        "temperature": keys.get("sampler.temperature"),
        "filter": keys.switch("drop_equal_groups", "zero-variance", "none"),
    }


FORMAT = LogFormat(
    name="coinrl",
    framework="CoinRL",
    signature=r"heldout/mean_of_\d+",
    tags=(
        Tag(r"heldout/mean_of_(?P<k>\d+)", "avg@{k}", "validation"),
        Tag(r"heldout/max_of_(?P<k>\d+)", "best@{k}", "validation"),
        Tag("reward", "train_reward"),
        Tag("tokens_per_response", "response_length"),
        Tag("update_ms", "step_seconds", factor=0.001),
        Tag("sampling_ms", "sampling_seconds", factor=0.001),
    ),
    step="rollout_batches",
    components=r"reward/.+",
    configurations=(Configuration("coinrl", "samples_per_question", fields),),
    store=LogStore("coinrl", holds, lambda path: path.parent, read),
)
