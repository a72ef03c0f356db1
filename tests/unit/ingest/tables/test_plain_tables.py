"""CSV files, JSON lines and Parquet, whole and broken ones, and the digitised figures that ship with the package."""

import json
from importlib.resources import as_file, files
from pathlib import Path

import polars as pl
import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.records import RunSet

DATA = files("isocompute_sdk") / "laws" / "data"


def write(folder: Path, text: str, name: str = "runs.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def read_shipped(name: str, **options) -> RunSet:
    with as_file(DATA / name) as path:
        return RunSet.read(path, **options)


def test_cells_stay_text_until_their_column_is_known(tmp_path: Path):
    path = write(tmp_path, "run_id,n,C,avg@4\n007,8.0,1e3,.5\n")
    runs = RunSet.read(path)
    assert runs.run_ids == ("007",)
    assert runs.series("avg@4")[0].rollouts_T.tolist() == [1000.0]


@pytest.mark.parametrize(
    "text",
    [
        "n,C,avg@4\r\n8,1,0.5\r\n",
        "\ufeffn,C,avg@4\n8,1,0.5\n",
        "n;C;avg@4\n8;1;0.5\n",
        "n\tC\tavg@4\n8\t1\t0.5",
        ' n , C ,avg@4\n\n"8", 1 ,0.5\n\n',
        ",n,C,avg@4\n0,8,1,0.5\n",
    ],
)
def test_dialects_read_alike(tmp_path: Path, text: str):
    assert RunSet.read(write(tmp_path, text)) == RunSet.from_columns({"n": [8], "C": [1], "avg@4": [0.5]})


def test_an_error_names_file_and_line_even_after_quoted_line_ends(tmp_path: Path):
    path = write(tmp_path, 'run_id,n,C,avg@4\n"two\nlines",8,1,0.5\n\nb,8.5,1,0.5\n')
    with pytest.raises(RecordError) as caught:
        RunSet.read(path)
    assert str(caught.value).startswith(f"{path}:5, column n (group_size): received '8.5'")


@pytest.mark.parametrize("cut", ["8,3", "8,3,", '8,3,"0.6', "8"])
def test_a_line_that_was_cut_off_is_left_out_with_a_note(tmp_path: Path, cut: str):
    path = write(tmp_path, f"n,C,avg@4,best@4\n8,1,0.5,0.6\n8,2,0.55,0.65\n{cut}")
    whole = RunSet.read(path)
    assert [(note.code, note.data["line"]) for note in whole.notes] == [("log-damaged", 4)]
    assert whole.series("avg@4")[0].value_T.tolist() == [0.5, 0.55]


def test_a_last_line_as_long_as_the_one_before_it_is_whole(tmp_path: Path):
    rows = [f"8,{compute},{0.5 if compute > 8 else 0.512}" for compute in range(1, 11)]
    runs = RunSet.read(write(tmp_path, "\n".join(["n,C,avg@4", *rows])))
    assert (len(runs), [note.code for note in runs.notes]) == (10, [])


@pytest.mark.parametrize("broken", ["8,1,0.5,9\n8,2,0.5\n", "8,1\n8,2,0.5\n"])
def test_rows_with_other_cells_than_the_header_are_left_out_with_a_warning(tmp_path: Path, broken: str):
    runs = RunSet.read(write(tmp_path, f"n,C,avg@4\n{broken}"))
    assert len(runs) == 1
    assert [(note.code, note.severity, note.data["line"]) for note in runs.notes] == [("log-damaged", "warning", 2)]


def test_a_column_without_any_entry_is_as_if_it_were_not_there(tmp_path: Path):
    path = write(tmp_path, "n,C,avg@4,best@4,seed,note\n8,1,0.5,,, \n")
    assert RunSet.read(path).metrics == ("avg@4",)


def test_shipped_data_cut_anywhere_never_reads_as_other_numbers(tmp_path: Path):
    raw = (DATA / "sweeps" / "qwen2.5-7b-hard.csv").read_bytes()
    expected = read_shipped("sweeps/qwen2.5-7b-hard.csv").to_polars()
    path = tmp_path / "cut.csv"
    for length in range(raw.index(b"\n") + 400, len(raw) - 1, 37):
        path.write_bytes(raw[:length])
        kept = RunSet.read(path).to_polars()
        assert kept.join(expected, on=["run_id", "rollouts", "value"], how="anti").is_empty()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("n,C,avg@4\n", "table is empty: columns n, C, avg@4, no rows"),
        ("8,1,0.5\n8,2,0.6\n", "runs.csv:1: .*column names in the first line"),
        ("n,C,n\n8,1,8\n", "runs.csv:1: columns n appear twice"),
        ("n,C,avg@4\n8,1,0.5\n8,1,0.6\n", "runs.csv:3 repeats .*runs.csv:2"),
        # A header that fits fewer than half of the rows.
        ("n,bp,step,avg@4,8,32\n8,32,1,0.5\n8,32,2,0.6\n8,32,3,0.7,16,32\n", "runs.csv:2"),
        # A quote left open further up is no cut.
        ('n,C,avg@4\n8,1,0.5\n8,2,"0.55\n8,3,0.6\n', "runs.csv:3:"),
        # Zeros that a crash left inside a number make no other number.
        ("n,C,avg@4\n8,1,0.25\n8,2,0.\0\0\n", "runs.csv:3"),
    ],
)
def test_broken_files_are_refused_by_name_and_line(tmp_path: Path, text: str, message: str):
    with pytest.raises(RecordError, match=message):
        RunSet.read(write(tmp_path, text))


LINES = [
    {"run_id": "a", "n": 8, "bp": 32, "step": 0, "avg@4": 0.5},
    {"run_id": "a", "step": 1, "entropy": 0.7},
    {"run_id": "a", "step": 2, "avg@4": 0.6, "entropy": 0.6, "note\u2028": None},
]


def write_lines(folder: Path, text: str) -> Path:
    return write(folder, text, "metrics.jsonl")


def test_keys_may_be_absent_from_some_lines(tmp_path: Path):
    path = write_lines(tmp_path, "\n\n".join(json.dumps(line, ensure_ascii=False) for line in LINES))
    runs = RunSet.read(path)
    assert runs.series("avg@4")[0].rollouts_T.tolist() == [0.0, 512.0]
    assert runs.series("entropy")[0].value_T.tolist() == [0.7, 0.6]


def test_a_broken_line_is_left_out_with_a_note(tmp_path: Path):
    text = "\n".join(map(json.dumps, LINES))
    path = write_lines(tmp_path, text[:-9])
    cut = RunSet.read(path)
    assert [note.code for note in cut.notes] == ["log-damaged"]
    assert cut == RunSet.read(write_lines(tmp_path, text.rsplit("\n", 1)[0]))
    damaged = RunSet.read(write_lines(tmp_path, text.replace('{"run_id": "a", "step": 1', '{"run', 1)))
    assert [note.code for note in damaged.notes] == ["log-damaged"]


@pytest.mark.parametrize("broken", range(1, 6))
def test_the_line_that_is_left_out_is_named_once(tmp_path: Path, broken: int):
    lines = [json.dumps({"n": 8, "bp": 32, "step": step, "avg@4": 0.5}) for step in range(5)]
    lines[broken - 1] = lines[broken - 1][:-3]
    path = write_lines(tmp_path, "\n".join(lines) + "\n")
    (note,) = RunSet.read(path).notes
    assert note.data["line"] == broken
    assert note.message.startswith(f"{path}:{broken}:")
    assert note.message.count(path.name) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("[1, 2]\n", r"metrics\.jsonl:1:.*\[1, 2\]"),
        ('\n\n{"n": 8\n', r"metrics\.jsonl:3:"),
        ('{"n": 8', r"metrics\.jsonl"),
        ('\n{"n": 8.5, "C": 1, "avg@4": 1}\n', r"metrics.jsonl:2, column n \(group_size\).*8\.5"),
    ],
)
def test_broken_lines_are_refused_by_number(tmp_path: Path, text: str, message: str):
    with pytest.raises(RecordError, match=message):
        RunSet.read(write_lines(tmp_path, text))


def test_a_whole_number_may_become_a_fraction_far_down(tmp_path: Path):
    lines = [{"n": 8, "C": i, "avg@4": 1} for i in range(3000)]
    lines[len(lines) // 2]["avg@4"] = 0.75
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert min(RunSet.read(path).series("avg@4")[0].value_T) == 0.75


WIDE = {"n": [8, 8], "C": [1, 2], "avg@4": [0.5, None]}


def test_types_of_a_parquet_file_are_kept(tmp_path: Path):
    path = tmp_path / "runs.parquet"
    pl.DataFrame(WIDE).write_parquet(path)
    assert RunSet.read(path) == RunSet.from_columns(WIDE)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_cut_parquet_file_is_refused(tmp_path: Path, share: float):
    path = tmp_path / "runs.parquet"
    pl.DataFrame(WIDE).write_parquet(path)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(RecordError, match=r"runs\.parquet"):
        RunSet.read(path)


def test_an_error_in_parquet_names_file_and_row(tmp_path: Path):
    path = tmp_path / "runs.pq"
    pl.DataFrame({**WIDE, "n": [8.0, 8.5]}).write_parquet(path)
    with pytest.raises(RecordError, match=r"runs\.pq: row 2 \(index 1\), column n \(group_size\).*8\.5"):
        RunSet.read(path)
