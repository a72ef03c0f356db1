"""The corpus of real sweeps: what ships, and folders in the same form."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import isocompute_sdk as iso


@pytest.fixture(scope="module")
def corpus() -> dict[str, iso.RecordedSweep]:
    return {one.name: one for one in iso.sweeps()}


def test_every_sweep_has_two_group_sizes_and_the_metrics_it_names(corpus: dict[str, iso.RecordedSweep]) -> None:
    assert len(corpus) == 23
    for one in corpus.values():
        for metric in one.provenance.metrics:
            assert len({run.group_size for run in one.runs.series(metric)}) >= 2, one.name
    families = {one.provenance.family for one in corpus.values()}
    assert families == {"arithmetic", "qwen2.5-7b", "qwen3-4b", "llama-3.1-8b", "trl"}


@pytest.mark.parametrize(
    ("name", "peaks"),
    [
        ("qwen3-4b-easy", {8: 0.5925, 64: 0.622, 128: 0.5945}),
        ("qwen3-4b-hard", {4: 0.0313, 8: 0.0314, 16: 0.0400, 32: 0.0498}),
        ("llama-3.1-8b-easy", {8: 0.749, 16: 0.778, 128: 0.718}),
        ("qwen2.5-7b-easy-d500", {8: 0.523, 256: 0.551, 512: 0.538}),
        ("qwen2.5-7b-easy-d6000", {8: 0.588, 256: 0.666, 512: 0.685}),
    ],
)
def test_peaks_of_the_digitised_figures_are_those_read_off(
    corpus: dict[str, iso.RecordedSweep], name: str, peaks: dict[int, float]
) -> None:
    found = {run.group_size: float(np.max(run.value_T)) for run in corpus[name].runs.series("avg@4")}
    assert found == pytest.approx(peaks, abs=0.006)


def test_a_folder_in_the_same_form_is_read_and_a_table_without_provenance_is_refused(
    corpus: dict[str, iso.RecordedSweep], tmp_path: Path, repository: Path
) -> None:
    shipped = repository / "isocompute_sdk" / "laws" / "data" / "sweeps"
    for ending in (".csv", ".yaml"):
        shutil.copy(shipped / f"trl-sort{ending}", tmp_path / f"mine{ending}")
    (mine,) = iso.sweeps(tmp_path)
    assert (mine.name, mine.provenance, mine.runs) == ("mine", *reversed(corpus["trl-sort"][1:]))
    shutil.copy(tmp_path / "mine.csv", tmp_path / "other.csv")
    with pytest.raises(iso.RecordError, match=r"other\.yaml"):
        iso.sweeps(tmp_path)
    with pytest.raises(iso.RecordError, match=r"NAME\.yaml"):
        iso.sweeps(tmp_path / "absent")
