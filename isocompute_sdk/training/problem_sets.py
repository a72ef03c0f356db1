"""Problem sets of others as JSON lines, which every backend reads: data sets of a hub, Parquet, CSV and JSON files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.errors import BackendError
from isocompute_sdk.files import write_text
from isocompute_sdk.training.payload.problem_files import ANSWER_KEYS, PROMPT_KEYS

_TABLES = {".parquet": "scan_parquet", ".csv": "scan_csv", ".jsonl": "scan_ndjson", ".ndjson": "scan_ndjson"}


def read_rows(source: str, *, split: str = "train", config: str | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a data set.

    Args:
        source: a Parquet, CSV, JSON or JSON-lines file; or a folder or hub name that `datasets.load_dataset` takes.
        split: split of a data set; files have none.
        config: configuration of a data set.

    Raises:
        BackendError: the file cannot be read, or the package datasets is missing or cannot load the data set.
    """
    path = Path(source)
    if path.is_file():
        yield from _file_rows(path)
        return
    try:
        from datasets import load_dataset
    except ModuleNotFoundError as error:
        raise BackendError(
            f"{source!r} is no file, and {error.name} is not installed, which loads data sets by name",
            "pip install 'isocompute[data]', or give a Parquet, CSV, JSON or JSON-lines file.",
        ) from error
    try:
        found = cast("Iterable[Mapping[str, Any]]", load_dataset(source, config, split=split))
    except Exception as error:  # a hub can fail in many ways
        raise BackendError(
            f"data set {source!r}, split {split!r}: {type(error).__name__}: {' '.join(str(error).split())[:300]}",
            "Check its name, --split and --config; without a network give a local file or folder.",
        ) from error
    for row in found:
        yield dict(row)


def write_problems(
    rows: Iterable[Mapping[str, Any]],
    path: str | Path,
    *,
    prompt_key: str | None = None,
    answer_key: str | None = None,
    limit: int | None = None,
) -> int:
    """Write rows as problems `{"id", "prompt", "answer"}`; returns how many.

    A prompt may be a chat. Rows of veRL's form hold the answer in `reward_model.ground_truth`.

    Raises:
        BackendError: a row has no prompt or no answer under the keys, or there is no row.
    """
    lines: list[str] = []
    for number, row in enumerate(islice(rows, limit)):
        prompt, answer = _value(row, prompt_key, PROMPT_KEYS, "prompt"), _answer(row, answer_key)
        name = row.get("id")
        if isinstance(prompt, Mapping | list):
            prompt = [dict(message) for message in cast("list[Mapping[str, Any]]", prompt)]
        problem = {"id": str(number if name is None else name), "prompt": prompt, "answer": answer}
        lines.append(json.dumps(problem, ensure_ascii=False, default=str) + "\n")
    if not lines:
        raise BackendError("the data set has no rows", "Give another split or file.")
    write_text(path, "".join(lines))
    return len(lines)


def _file_rows(path: Path) -> Iterator[dict[str, Any]]:
    import polars as pl

    try:
        if path.suffix == ".json":
            yield from pl.read_json(path).iter_rows(named=True)
        elif path.suffix in _TABLES:
            yield from getattr(pl, _TABLES[path.suffix])(path).collect().iter_rows(named=True)
        else:
            raise BackendError(
                f"{path}: accepted: .json, {', '.join(_TABLES)}", "Convert it, or give the name of a data set."
            )
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BackendError(f"{path} cannot be read: {error}", "Check that the file is whole.") from error


def _answer(row: Mapping[str, Any], key: str | None) -> Any:
    nested: Any = row.get("reward_model")
    if key is None and isinstance(nested, Mapping) and "ground_truth" in nested:
        return cast("Mapping[str, Any]", nested)["ground_truth"]
    return _value(row, key, ANSWER_KEYS, "answer")


def _value(row: Mapping[str, Any], key: str | None, usual: tuple[str, ...], what: str) -> Any:
    present = [name for name in ((key,) if key is not None else usual) if row.get(name) is not None]
    if len(present) != 1:
        found = f"{len(present)} of them ({', '.join(present)})" if present else "none of them"
        wanted = repr(key) if key is not None else ", ".join(usual)
        raise BackendError(
            f"a row holds {found}, of {wanted}, for the {what}; its keys are {', '.join(map(str, row))}",
            f"Name the key with --{what}-key.",
        )
    return row[present[0]]
