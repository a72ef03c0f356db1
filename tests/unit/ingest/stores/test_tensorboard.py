"""TensorBoard event files, written by TensorBoard's own writer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

from isocompute_sdk.ingest.stores.event_files import read_events


def scalar(tag: str, step: int, value: float, wall_time: float = 0.0) -> Event:
    """A value as torch's SummaryWriter and TensorFlow 1 store it."""
    return Event(wall_time=wall_time, step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)]))


def tensor(tag: str, step: int, content: object, plugin: str = "") -> Event:
    """A value as TensorFlow 2 stores it: the plugin's name comes with the first value of a tag only."""
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin))
    value = Summary.Value(tag=tag, tensor=make_tensor_proto(content), metadata=metadata if plugin else None)
    return Event(step=step, summary=Summary(value=[value]))


def write(folder: Path, events: Sequence[Event]) -> Path:
    """One attempt of a run: one event file."""
    before = set(folder.glob("*"))
    writer = EventFileWriter(str(folder), max_queue_size=100)
    for event in events:
        writer.add_event(event)
    writer.close()
    (made,) = set(folder.glob("*")) - before
    return made


def test_every_value_comes_back_however_many_there_are(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=12_000).astype(np.float32)
    write(tmp_path, [scalar("reward", step, float(v), step + 0.5) for step, v in enumerate(values)])
    series = read_events("run", tmp_path, [tmp_path]).series("reward")
    np.testing.assert_array_equal(series.step_T, np.arange(12_000))
    np.testing.assert_array_equal(series.wall_time_T, np.arange(12_000) + 0.5)
    np.testing.assert_array_equal(series.value_T, values.astype(np.float64))


def test_writers_with_different_tags_in_one_folder_do_not_cut_each_other(tmp_path: Path) -> None:
    write(tmp_path, [scalar("train/reward", step, 1.0) for step in range(1, 58)])
    write(tmp_path, [scalar("eval/reward", step, 2.0) for step in (10, 20)])
    run = read_events("run", tmp_path, [tmp_path])
    assert run.tags == ("eval/reward", "train/reward")
    assert len(run.series("train/reward").step_T) == 57


def test_a_writer_that_declares_earlier_values_void_is_believed(tmp_path: Path) -> None:
    write(tmp_path, [scalar("eval", step, 1.0) for step in (10, 20, 30)])
    void = Event(step=15, session_log=SessionLog(status=SessionLog.START))
    write(tmp_path, [void, scalar("train", 16, 2.0)])
    assert read_events("run", tmp_path, [tmp_path]).series("eval").step_T.tolist() == [10]


def test_of_a_step_written_twice_in_one_file_the_last_value_counts(tmp_path: Path) -> None:
    write(tmp_path, [scalar("x", 2, 1.0), scalar("x", 1, 5.0), scalar("x", 2, 3.0)])
    series = read_events("run", tmp_path, [tmp_path]).series("x")
    assert (series.step_T.tolist(), series.value_T.tolist()) == ([1, 2], [5.0, 3.0])


def test_scalars_of_new_writers_are_read_and_texts_are_not(tmp_path: Path) -> None:
    events = [
        tensor("loss", 1, 0.25, "scalars"),
        tensor("loss", 2, 0.125),
        tensor("samples", 1, [b"a text"], "text"),
        tensor("weights", 1, [1.0, 2.0], "histograms"),
        scalar("bad", 1, math.nan),
    ]
    write(tmp_path, events)
    run = read_events("run", tmp_path, [tmp_path])
    assert run.tags == ("bad", "loss")
    assert run.series("loss").value_T.tolist() == [0.25, 0.125]
    assert math.isnan(run.series("bad").value_T[0])


@pytest.mark.parametrize("missing", [1, 4, 11, 30])
def test_a_file_cut_inside_its_last_record_loses_that_record_only(tmp_path: Path, missing: int) -> None:
    file = write(tmp_path, [scalar("reward", step, 1.0) for step in range(100)])
    file.write_bytes(file.read_bytes()[:-missing])
    run = read_events("run", tmp_path, [tmp_path])
    assert run.series("reward").step_T.tolist() == list(range(99))
    assert [(note.code, note.severity) for note in run.notes] == [("log-damaged", "info")]


def test_a_damaged_record_is_left_out_and_the_ones_behind_it_are_read(tmp_path: Path) -> None:
    file = write(tmp_path, [scalar("reward", step, 1.0) for step in range(100)])
    content = bytearray(file.read_bytes())
    # Records of one size: the byte lies inside the message of the 51st value.
    record = len(content) // 101
    content[-50 * record + 20] ^= 0xFF
    file.write_bytes(content)
    run = read_events("run", tmp_path, [tmp_path])
    assert len(run.series("reward").step_T) == 99
    assert [(note.code, note.data["records"]) for note in run.notes] == [("log-damaged", 1)]


def test_where_the_chain_of_records_breaks_everything_before_it_is_kept(tmp_path: Path) -> None:
    file = write(tmp_path, [scalar("reward", step, 1.0) for step in range(100)])
    size = file.stat().st_size
    with file.open("ab") as grown:
        grown.write(bytes(4096))
    run = read_events("run", tmp_path, [tmp_path])
    assert len(run.series("reward").step_T) == 100
    assert [(note.code, note.severity, note.data["offset"]) for note in run.notes] == [("log-damaged", "warning", size)]
