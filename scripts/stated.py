"""What a table or log states, as a short reader of the standard library understands it; none of the package's readers.

`difference` compares it with a `RunSet` that was read from the same file.
"""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

EXCUSES = {"log-damaged", "text-not-utf8", "values-not-finite", "columns-left-out", "run-left-out", "files-not-read"}
"""Notes that say that something was left out."""
Key = tuple[str, str, str, float]
"""Run, metric, evaluation set, step; of a log without run names the run is empty."""
Fields = dict[str, Any]
"""Column -> what the file states: a number, or a text."""
SPACE = " \t\n\r\v\f\x85\xa0"
"""What may stand around a cell; `str.strip` takes the separators of ASCII for space too."""
PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


@dataclass
class Stated:
    """What a file states."""

    points: list[tuple[Key, Fields]] = field(default_factory=list[tuple[Key, Fields]])
    """In the order of the file, repeats included."""
    unread: list[str] = field(default_factory=list[str])
    """Lines that are no record."""
    understood: bool = True
    """False if the file is not of the form that the short reader knows."""
    steps: list[float] = field(default_factory=list[float])
    """The step of every record, in the order of the file."""
    again: bool = False
    """Whether a record contradicts another one of its step, in what is no metric too."""


Reader = Callable[[bytes, bytes], Stated]
"""The damaged and the clean file, and what the damaged one states."""


def of_text(read: Callable[[str], Stated]) -> Reader:
    """A reader of text, which needs no clean file."""
    # Zeros beside digits hide some of them.
    hidden = r"(?<![\d.])\0+(?![\d.])"
    return lambda after, clean: read(
        re.sub(hidden, "", after.decode("utf-8-sig", errors="replace")).replace("\0", "\ufffd")
    )


def number(text: str) -> float | str:
    """A number in plain digits, not-a-number for the words that mean no finite one, any other text as it stands."""
    text = text.strip(SPACE)
    if PLAIN.fullmatch(text):
        return float(text)
    return math.nan if text.lower().lstrip("+-") in ("nan", "inf", "infinity") else text


def of_csv(text: str, delimiter: str = ",") -> Stated:
    """A wide table with columns run, n, B_p and step; all others are metrics."""
    found = Stated()
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]
    header = [name.strip(SPACE) for name in rows[0]] if rows else []
    if len({*header}) < len(header) or not {"run", "n", "B_p", "step"} <= {*header}:
        return Stated(understood=False)
    for row in rows[1:]:
        if len(row) != len(header):
            found.unread.append(",".join(row))
            continue
        cells = dict(zip(header, row, strict=True))
        run, n, problems, step = (
            cells.pop("run").strip(SPACE),
            *(number(cells.pop(name)) for name in ("n", "B_p", "step")),
        )
        if not isinstance(step, float):
            found.unread.append(",".join(row))
            continue
        # An empty cell has the value of its run elsewhere.
        sizes = {name: size for name, size in (("group_size", n), ("problems_per_batch", problems)) if size != ""}
        if isinstance(n, float) and isinstance(problems, float):
            sizes["rollouts"] = n * problems * step
        for metric, cell in cells.items():
            if cell.strip(SPACE) and metric:
                found.points.append(((run, metric, "validation", step), {"value": number(cell), **sizes}))
    return found


def cells(text: str, found: Stated) -> Iterator[dict[str, str]]:
    """The rows of a table as objects, without empty cells."""
    header, *rows = [[cell.strip(SPACE) for cell in row] for row in csv.reader(io.StringIO(text, newline="")) if row]
    found.understood = len({*header}) == len(header)
    for row in rows:
        if len(row) == len(header):
            yield {name: cell for name, cell in zip(header, row, strict=True) if cell}
        else:
            found.unread.append(",".join(row))


def of_chart(text: str) -> Stated:
    """A chart of W&B: a column for each run and metric, and two more that repeat it."""
    found = Stated()
    for row in cells(text, found):
        step = number(row.pop("Step", row.pop("step", "")))
        if not isinstance(step, float):
            found.unread.append(str(row))
            continue
        found.steps.append(step)
        for column, cell in row.items():
            run, _, metric = (part.strip() for part in column.rpartition(" - "))
            if metric and not column.endswith(("__MIN", "__MAX")):
                found.points.append(((run, metric, "validation", step), {"value": number(cell)}))
    return found


def objects(text: str, found: Stated) -> Iterator[dict[str, Any]]:
    """The objects of JSON lines."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        whole = dict(pairs)
        if any(whole[key] != value for key, value in pairs):
            raise ValueError("a key is there twice")
        return whole

    for line in filter(str.strip, text.split("\n")):
        try:
            row = json.loads(line, object_pairs_hook=once, strict=False)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            yield row
        else:
            found.unread.append(line)


def value_of(cell: Any) -> Any:
    """A JSON value: a number as float, everything else as text."""
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return number(cell) if isinstance(cell, str) else json.dumps(cell)
    return float(cell) if abs(cell) < 2**1024 else str(cell)


def of_long(text: str) -> Stated:
    """The table of `of_jsonl` as CSV."""
    found = Stated()
    rows = [*cells(text, found)]
    found.understood &= all("run_id" in row for row in rows)
    return _long(rows, found)


def of_jsonl(text: str) -> Stated:
    """A table with one row per measured value, in our own names."""
    found = Stated()
    return _long([*objects(text, found)], found)


def _long(rows: list[dict[str, Any]], found: Stated) -> Stated:
    if not any("metric" in row for row in rows):
        return Stated(understood=False)
    every = [{name: value_of(cell) for name, cell in row.items() if cell is not None} for row in rows]
    sizes_of = dict[Any, Fields]()
    for fields in every:
        sizes_of.setdefault(fields.get("run_id"), {}).update(
            {name: fields[name] for name in ("group_size", "problems_per_batch") if name in fields}
        )
    for row, fields in zip(rows, every, strict=True):
        run, metric, place = (str(row.get(name)).strip(SPACE) for name in ("run_id", "metric", "eval_set"))
        place = "validation" if place == "None" else place
        # A row without n or B_p has that of its run elsewhere.
        whole = sizes_of[fields.get("run_id")] | fields
        sizes = [whole.get(name) for name in ("rollouts", "group_size", "problems_per_batch")]
        numbers = [size for size in sizes if isinstance(size, float) and size]
        # C = n B_p steps says the step of a row without one.
        derived = 0.0 if sizes[0] == 0 else numbers[0] / (numbers[1] * numbers[2]) if len(numbers) == 3 else None
        step = fields.pop("step", derived)
        if not isinstance(step, float) or "value" not in fields:
            found.unread.append(str(row))
            continue
        for name in ("run_id", "metric", "eval_set"):
            fields.pop(name, None)
        found.points.append(((run, metric, place, step), fields))
    return found


def difference(stated: Stated, runs: Any, known: Iterable[str], run: str = "") -> str:
    """In which way a `RunSet` silently differs from what its file states, with an example; empty if in none.

    Args:
        stated: what the file states.
        runs: the `RunSet`.
        known: codes of the notes that the clean file has too.
        run: the run of a log that names none.
    """
    codes = {note.code for note in runs.notes}
    excused = bool((codes - {*known}) & EXCUSES)

    def plain(metric: str) -> str:
        """Averages over an unknown number of samples are called so, with a note."""
        return re.sub(r"^avg@.+", "avg@?", metric) if "evaluation-samples-unknown" in codes else metric

    said: dict[Key, list[Fields]] = {}
    for (name, metric, *rest), fields in stated.points:
        said.setdefault((name or run, plain(metric), *rest), []).append(fields)
    held: set[Key] = set()
    derived = {"step_seconds", "startup_seconds"} - {metric for (_, metric, *_), _ in stated.points}
    nameless = not any(name for (name, *_), _ in stated.points)
    alone = nameless and len({re.sub(r"/\d+$", "", name) for name in runs.run_ids}) == 1
    for row in runs.to_polars().iter_rows(named=True):
        # The launches that a console shows have numbers; without its first line a log may be named by its file.
        if row["metric"] in derived:
            continue
        key: Key = (run if alone else row["run_id"], plain(row["metric"]), row["eval_set"], row["step"])
        held.add(key)
        if key not in said:
            return f"appears: {key} {row['value']}"
        if not any(_agree(row, fields) for fields in said[key]):
            return f"another value: {key} {row} for {said[key]}"
        # Of several launches each has a last one; a copy may be none.
        launches = alone and len(runs.run_ids) > 1
        new = [fields for i, fields in enumerate(said[key]) if fields not in said[key][:i]]
        if not (excused or launches or any(_agree(row, fields) for fields in (said[key][-1], new[-1]))):
            return f"not the last: {key} {row['value']} of {[fields['value'] for fields in said[key]]}"
    if excused:
        return ""
    falls = [
        (b, c - b) for a, b, c in zip(stated.steps, stated.steps[1:], [*stated.steps[2:], 0.0], strict=False) if b <= a
    ]
    given_up = min((step - max(gap, 0.0) for step, gap in falls), default=math.inf)
    repeated = stated.again or any(len(several) > 1 for several in said.values())
    for key in said.keys() - held:
        if not (repeated and key[3] > given_up):
            return f"left out: {key} {said[key]}"
    return f"left out: {stated.unread[0]}" if stated.unread else ""


def _agree(row: Mapping[str, Any], fields: Fields) -> bool:
    """Whether a row of a `RunSet` has what the file states; columns that it does not know are of no account."""
    return all(
        row[name] == value
        or (isinstance(row[name], str) and str(number(row[name])) == str(value))
        or (isinstance(value, float) and name == "rollouts" and abs(row[name] - value) <= 1)
        for name, value in fields.items()
        if name in row
    )
