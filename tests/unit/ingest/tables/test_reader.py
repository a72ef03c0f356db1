"""Folders, globs, formats, and configuration given beside the files."""

import errno
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import diagnose, read
from isocompute_sdk.ingest.paths import accepted_formats
from isocompute_sdk.records import RunSet

TABLE = "n,bp,C,avg@4\n8,32,256,0.5\n8,32,512,0.6\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "easy.csv").write_text(TABLE)
    (tmp_path / "sub" / "hard.csv").write_text(TABLE.replace("0.", "0.0"))
    (tmp_path / "README.md").write_text("notes")
    (tmp_path / ".hidden.csv").write_text("broken")
    return tmp_path


names = ["n", "bp", "C", "step", "run_id", "metric", "value", "reward", "avg@4", "seed", "model", "Step", "_step"]
odd = ["", " ", '"', "a - b", "a - b__MIN", "_runtime", "null", "{}", "[", '{"n": 8}', "\r", "\x00"]
cells = st.sampled_from([*names, *odd, "8", "8.5", "-1", "0.5", "1e999", "nan"])
texts = st.lists(st.lists(cells, min_size=1, max_size=4).map(",".join), max_size=5).map("\n".join)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(["csv", "wandb", "jsonl"]), texts)
def test_any_text_is_either_read_or_refused_with_a_hint(format: str, text: str):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runs.txt")
        path.write_text(text, newline="")
        try:
            outcome = RunSet.read(path, format, metric="avg@4")
        except RecordError as error:
            outcome = error
    if isinstance(outcome, RunSet):
        assert len(outcome) > 0
    else:
        assert outcome.hint
        assert str(path) in outcome.message


def test_runs_of_different_files_never_melt_together(folder: Path):
    assert RunSet.read(folder).run_ids == ("easy/n8-bp32-seed0", "sub/hard/n8-bp32-seed0")


def test_a_table_costs_no_more_to_read_beside_many_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    looked, look = list[Any](), os.stat

    def stat(path: Any, **options: Any) -> os.stat_result:
        looked.append(path)
        return look(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    counts = list[int]()
    for many in (10, 40):
        (tmp_path / str(many)).mkdir()
        for i in range(many):
            (tmp_path / str(many) / f"{i}.csv").write_text(TABLE.replace("0.6", f"0.6{i:03}"))
        looked.clear()
        assert len(RunSet.read(tmp_path / str(many)).run_ids) == many
        counts.append(len(looked))
    assert counts[1] < 6 * counts[0]


def test_a_glob_reads_what_it_matches(folder: Path):
    assert RunSet.read(str(folder / "**" / "*.csv")) == RunSet.read(folder)
    assert RunSet.read(str(folder / "e*.csv")).run_ids == ("n8-bp32-seed0",)


def test_run_ids_in_the_files_join_across_files(folder: Path):
    for name, step in (("easy.csv", 1), ("sub/hard.csv", 2)):
        (folder / name).write_text(f"run_id,n,bp,step,avg@4\na,8,32,{step},0.5\n")
    assert RunSet.read(folder).series("avg@4")[0].step_T.tolist() == [1.0, 2.0]


def test_a_run_that_is_in_two_files_is_refused_by_their_names(folder: Path):
    for name, value in (("easy.csv", 0.5), ("sub/hard.csv", 0.4)):
        (folder / name).write_text(f"run_id,n,bp,step,avg@4\na,8,32,1,{value}\n")
    with pytest.raises(RecordError, match=r"run 'a' is in .*easy.csv .* and in .*hard.csv"):
        RunSet.read(folder)
    assert len(RunSet.read(folder, on_duplicate="last")) == 1


def test_format_overrules_the_ending(tmp_path: Path):
    path = tmp_path / "runs.log"
    path.write_text(TABLE)
    assert len(RunSet.read(path, "csv")) == 2
    with pytest.raises(RecordError, match=r"'\.log'.*\.csv"):
        RunSet.read(path)


def test_an_unknown_format_is_refused(tmp_path: Path):
    with pytest.raises(RecordError, match=r"'jsnol'.*auto, csv(.|\n)*'jsonl'"):
        RunSet.read(tmp_path, "jsnol")
    formats = accepted_formats()
    assert formats[:6] == ("auto", "csv", "parquet", "jsonl", "wandb", "isocompute")
    assert set(formats[6:]) >= {"tensorboard", "verl", "trl"}


def test_a_folder_of_several_formats_needs_a_choice(folder: Path):
    (folder / "easy.jsonl").write_text('{"n": 8, "C": 1, "avg@4": 0.5}\n')
    with pytest.raises(RecordError, match="2 csv, 1 jsonl"):
        RunSet.read(folder)
    assert len(RunSet.read(folder, "jsonl")) == 1
    assert len(RunSet.read(folder, "csv")) == 4


def test_a_path_to_nothing_is_refused_with_the_nearest_name(folder: Path):
    with pytest.raises(RecordError, match=r"esay\.csv\n.*'easy.csv'"):
        RunSet.read(folder / "esay.csv")
    with pytest.raises(RecordError):
        RunSet.read(folder / "nowhere" / "x.csv")
    with pytest.raises(RecordError, match=r"parquet"):
        RunSet.read(str(folder / "*.parquet"))


@pytest.mark.parametrize("path", [None, 5, "", [], [None], b"runs.csv", "a\0b.csv", "x" * 5000])
def test_what_is_no_path_is_refused(path: Any):
    with pytest.raises(RecordError) as caught:
        RunSet.read(path)
    assert caught.value.hint


def test_a_folder_that_may_not_be_looked_into_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch):
    scandir = os.scandir

    # The tests may run as root, whom no permission stops.
    def refusing(path: Any = "."):
        if Path(path).name == "sub":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(RecordError, match=r"sub .*Permission denied"):
        RunSet.read(folder)
    (locked,) = [run for run in diagnose(folder).runs if run.name.endswith("sub")]
    assert len(locked.problems) == 1
    assert str(folder / "sub") in locked.problems[0]


def test_a_folder_without_data_is_refused_with_what_it_holds(tmp_path: Path):
    (tmp_path / "README.md").write_text("notes")
    with pytest.raises(RecordError, match=r"1 \.md.*\.csv"):
        RunSet.read(tmp_path)


def test_runs_describe_any_file_that_has_run_ids(tmp_path: Path):
    path = tmp_path / "runs.csv"
    path.write_text("run,step,avg@4\na,1,0.5\nb,1,0.6\n")
    described = {"a": {"n": 8, "bp": 32}, "b": {"n": 16, "bp": 32}}
    assert [info.rollouts for info in read(path, runs=described).runs()] == [256.0, 512.0]
    with pytest.raises(RecordError, match=r"group_size of run 'b'"):
        read(path, runs={"a": described["a"]})


def test_rename_and_ignore_need_not_fit_every_file(folder: Path):
    (folder / "easy.csv").write_text("n,bp,C,score,host\n8,32,256,0.5,node-1\n")
    runs = RunSet.read(folder, rename={"score": "avg@4"}, ignore=["host"])
    assert runs.metrics == ("avg@4",)


def test_a_plain_table_loads_no_log_format_and_no_backend(tmp_path: Path):
    path = tmp_path / "runs.csv"
    path.write_text("n,B_p,C,avg@4\n8,32,0,0.3\n8,32,2560,0.4\n")
    program = f"import sys, isocompute_sdk as iso; iso.read({str(path)!r}); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if name.startswith(("isocompute_sdk.ingest.f", "isocompute_sdk.ingest.stores"))]
    assert not [name for name in loaded if re.fullmatch(r"isocompute_(?!sdk).*", name)]


def test_a_metric_that_a_table_names_in_its_rows_is_renamed_like_a_column(tmp_path: Path) -> None:
    (tmp_path / "long.csv").write_text("run,n,bp,step,metric,value\na,8,4,0,eval/acc,0.1\na,8,4,9,eval/acc,0.2\n")
    (tmp_path / "wide.csv").write_text("run,n,bp,step,avg@4\nb,4,4,0,0.1\nb,4,4,9,0.3\n")
    assert RunSet.read(tmp_path, rename={"eval/acc": "avg@4"}).metrics == ("avg@4",)
    with pytest.raises(RecordError, match="eval/acd"):
        RunSet.read(tmp_path, rename={"eval/acd": "avg@4"})
