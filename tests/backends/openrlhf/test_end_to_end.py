"""The whole script, run by bash and the real Python, up to and including OpenRLHF's parser and executor.

OpenRLHF's own `train` needs GPUs; fake_train.py stands in for it and says what it imitates.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from isocompute_sdk.specs import RunSpec
from tests.backends.openrlhf.inputs import start


def samples(work: Path) -> list[dict[str, Any]]:
    files = sorted(work.glob("out*/tiny/samples.*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def summary(work: Path) -> dict[str, Any]:
    (path,) = work.glob("out*/tiny/model/summary.json")
    return json.loads(path.read_text())


def test_a_run_makes_exactly_m_steps_and_records_every_sample(small: RunSpec, site: Path, work: Path) -> None:
    finished = start(small, site, work)
    assert finished.returncode == 0, finished.stderr
    result = summary(work)
    assert (result["steps"], result["rows"]) == (7, 21)
    assert result["rewards"] == [[1.0, 0.0] * 3] * 7
    found = samples(work)
    train = [record for record in found if record["split"] == "train"]
    validation = [record for record in found if record["split"] == "validation"]
    assert len(train) == small.rollouts == 2 * 3 * 7
    assert Counter(record["id"] for record in validation) == {"val0": 8, "val1": 8}  # two evaluations of four samples
    assert {record["id"] for record in train} == {f"tra{i}" for i in range(5)}
    assert sum(record["score"] for record in found) == len(found) / 2
    assert all(record["error"] is None for record in found)
    assert not (work / "x").exists()


def test_a_working_folder_that_openrlhf_would_misread_stops_the_script(
    small: RunSpec, site: Path, work: Path, tmp_path: Path
) -> None:
    odd = work.rename(tmp_path / "a,b")
    finished = start(small, site, odd)
    assert finished.returncode == 2
    assert "a,b" in finished.stderr
