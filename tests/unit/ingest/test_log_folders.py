"""Log folders as strangers left them against what they hold, where the data lies beside the checkout.

`python tests/unit/ingest/test_log_folders.py` prints the table.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.ingest import Diagnosis, RunFinding, diagnose
from isocompute_sdk.records import RunSet

FOLDERS = Path(__file__).resolve().parents[4] / "shared" / "data" / "logs"
"""Folders with `truth.json`: runs with n, B_p, C, metric, first and last value, attempts."""
LEFT_OUT = ("left out", "written twice")


@dataclass(frozen=True)
class Outcome:
    """What `doctor` says of a folder, judged."""

    verdict: str
    """`right`, `asked`, `not RL`, or what is wrong."""
    shown: tuple[str, ...]
    """Its runs."""
    question: str | None


def cases() -> Mapping[str, Any]:
    """Folder -> truth."""
    path = FOLDERS / "truth.json"
    return json.loads(path.read_text())["cases"] if path.is_file() else {}


def look(name: str, truth: Mapping[str, Any]) -> Outcome:
    """Read a folder as `doctor` does, and by the command that it gives next."""
    found = diagnose(FOLDERS / name)
    runs = [one for one in found.runs if one.readable and not any(word in p for p in one.problems for word in LEFT_OUT)]
    shown = tuple(f"n={r.group_size} B_p={r.problems_per_batch} C={r.rollouts} {r.metric}" for r in runs)
    if truth.get("not_rl"):
        said = found.verdict == "unusable" and all("logs no reward" in " ".join(one.problems) for one in found.runs)
        return Outcome("not RL" if said else "taken for RL", shown, found.question)
    if found.verdict == "question" and not truth["derivable"]:
        return Outcome("asked", shown, found.question)
    wrong = _wrong(runs, truth["runs"], values(found))
    if found.verdict != "ready":
        wrong = [found.verdict, *wrong]
    return Outcome("; ".join(wrong) or "right", shown, found.question)


def values(found: Diagnosis) -> dict[str, dict[str, tuple[float, float]]]:
    """Run -> metric -> first and last value, by the command that `doctor` gives next."""
    if not found.next.startswith("isocompute doctor") or found.verdict != "ready":
        return {}
    words = shlex.split(found.next)[2:]
    try:
        runs = RunSet.read(words[: words.index("--output")])
    except IsoComputeError:
        return {}
    every: dict[str, dict[str, tuple[float, float]]] = {}
    for metric in runs.metrics:
        for one in runs.filter(metric=metric).series(metric):
            every.setdefault(one.run_id, {})[metric] = (float(one.value_T[0]), float(one.value_T[-1]))
    return every


def _wrong(
    runs: Sequence[RunFinding],
    truth: Sequence[Mapping[str, Any]],
    read: Mapping[str, Mapping[str, tuple[float, float]]],
) -> list[str]:
    """Runs of the truth that are absent, and runs that are in no truth."""
    left = list(runs)
    absent: list[str] = []
    for true in truth:
        match = next((one for one in left if _fits(one, true, read.get(one.name, {}))), None)
        if match is not None:
            left.remove(match)
        elif not true["optional"]:
            absent.append(f"lacks n={true['group_size']} B_p={true['problems_per_batch']} C={true['rollouts']}")
    return [*absent, *(f"invents {one.name}" for one in left)]


def _fits(one: RunFinding, true: Mapping[str, Any], read: Mapping[str, tuple[float, float]]) -> bool:
    batch = true["problems_per_batch"]
    accepted = [str(round(each)) for each in (batch if isinstance(batch, list) else [batch]) if each >= 1]
    ends = read.get(str(one.metric))
    return (
        one.group_size == str(true["group_size"])
        and one.problems_per_batch in accepted
        and one.rollouts in true["rollouts"]
        and one.attempts in true["attempts"]
        and one.metric in str(true["metric"]).split("|")
        and ends is not None
        and all(math.isclose(a, true[end], rel_tol=1e-6) for a, end in zip(ends, ("first", "last"), strict=True))
    )


ACCEPTED = ("right", "asked", "not RL")


here = pytest.mark.skipif(not cases(), reason="the folders do not lie beside the checkout")


@here
@pytest.mark.parametrize("name", cases())
def test_a_folder_that_says_it_is_read_right_and_no_other_silently_wrong(name: str) -> None:
    outcome = look(name, cases()[name])
    assert outcome.verdict in ACCEPTED, outcome


@here
def test_run_files_that_no_reader_knows_are_named() -> None:
    found = diagnose(FOLDERS / "pods-json")
    assert not found.usable
    assert "checkpoint-" in found.runs[0].problems[0]


if __name__ == "__main__":
    for case, what in cases().items():
        try:
            seen = look(case, what)
        except Exception as error:  # the table shows every folder
            seen = Outcome(f"{type(error).__name__}: {error}", (), None)
        print(f"{case:24}{'knows' if what['derivable'] else 'open':8}{seen.verdict}")
        for line in (*seen.shown, *([f"? {seen.question}"] if seen.question else [])):
            print(f"{'':24}{line}")
