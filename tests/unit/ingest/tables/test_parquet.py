"""Reading Parquet files."""

from pathlib import Path

import polars as pl
import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.records import RunSet

WIDE = {"n": [8, 8], "C": [1, 2], "avg@4": [0.5, None]}


def test_types_of_the_file_are_kept(tmp_path: Path):
    path = tmp_path / "runs.parquet"
    pl.DataFrame(WIDE).write_parquet(path)
    assert RunSet.read(path) == RunSet.from_columns(WIDE)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_cut_file_is_refused(tmp_path: Path, share: float):
    path = tmp_path / "runs.parquet"
    pl.DataFrame(WIDE).write_parquet(path)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(RecordError, match=r"runs\.parquet"):
        RunSet.read(path)


def test_an_error_names_file_and_row(tmp_path: Path):
    path = tmp_path / "runs.pq"
    pl.DataFrame({**WIDE, "n": [8.0, 8.5]}).write_parquet(path)
    with pytest.raises(RecordError, match=r"runs\.pq: row 2 \(index 1\), column n \(group_size\).*8\.5"):
        RunSet.read(path)
