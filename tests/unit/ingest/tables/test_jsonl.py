"""Reading JSON lines."""

import json
from pathlib import Path

import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.records import RunSet

LINES = [
    {"run_id": "a", "n": 8, "bp": 32, "step": 0, "avg@4": 0.5},
    {"run_id": "a", "step": 1, "entropy": 0.7},
    {"run_id": "a", "step": 2, "avg@4": 0.6, "entropy": 0.6, "note\u2028": None},
]


def write(folder: Path, text: str) -> Path:
    path = folder / "metrics.jsonl"
    path.write_text(text, encoding="utf-8")
    return path


def test_keys_may_be_absent_from_some_lines(tmp_path: Path):
    path = write(tmp_path, "\n\n".join(json.dumps(line, ensure_ascii=False) for line in LINES))
    runs = RunSet.read(path)
    assert runs.series("avg@4")[0].rollouts_T.tolist() == [0.0, 512.0]
    assert runs.series("entropy")[0].value_T.tolist() == [0.7, 0.6]


def test_a_broken_line_is_left_out_with_a_note(tmp_path: Path):
    text = "\n".join(map(json.dumps, LINES))
    path = write(tmp_path, text[:-9])
    cut = RunSet.read(path)
    assert [note.code for note in cut.notes] == ["log-cut-off"]
    assert cut == RunSet.read(write(tmp_path, text.rsplit("\n", 1)[0]))
    damaged = RunSet.read(write(tmp_path, text.replace('{"run_id": "a", "step": 1', '{"run', 1)))
    assert [note.code for note in damaged.notes] == ["log-damaged"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("[1, 2]\n", r"metrics\.jsonl:1:.*\[1, 2\]"),
        ('\n{"n": 8.5, "C": 1, "avg@4": 1}\n', r"metrics.jsonl:2, column n \(group_size\).*8\.5"),
    ],
)
def test_broken_lines_are_refused_by_number(tmp_path: Path, text: str, message: str):
    with pytest.raises(RecordError, match=message):
        RunSet.read(write(tmp_path, text))


def test_only_a_line_cut_off_leaves_nothing_to_read(tmp_path: Path):
    with pytest.raises(RecordError):
        RunSet.read(write(tmp_path, '{"n": 8'))


def test_a_whole_number_may_become_a_fraction_far_down(tmp_path: Path):
    lines = [{"n": 8, "C": i, "avg@4": 1} for i in range(3000)]
    lines[len(lines) // 2]["avg@4"] = 0.75
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert min(RunSet.read(path).series("avg@4")[0].value_T) == 0.75
