"""The contract of every registered log format, and what happens to formats that do not meet it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.formats import registry
from isocompute_sdk.ingest.formats.configuration import STEPS_PER_BATCH, Keys
from isocompute_sdk.ingest.formats.log_format import METRICS, TRAIN_REWARD, TRAIN_SET, LogFormat
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.columns import PER_RUN
from tests.packages import note_installed
from tests.unit.ingest.log_files import OPENRLHF, write_events

Install = Callable[..., None]


@pytest.fixture(params=registry.available())
def form(request: pytest.FixtureRequest) -> LogFormat:
    return registry.load(request.param)


def test_every_tag_has_a_name_of_ours_with_a_unit(form: LogFormat) -> None:
    for row in form.tags:
        re.compile(row.pattern)
        named = re.fullmatch(r"(avg|best|worst|maj)@\{k\}(:bootstrap)?", row.metric)
        assert named or row.metric in METRICS, row
        assert row.factor > 0


def test_one_tag_or_more_hold_the_training_reward_and_none_of_them_is_a_component(form: LogFormat) -> None:
    rewards = [row for row in form.tags if (row.metric, row.eval_set) == (TRAIN_REWARD, TRAIN_SET)]
    assert rewards
    assert not any(re.fullmatch(form.components, row.pattern) for row in form.tags)


def test_a_configuration_that_says_nothing_gives_nothing_and_only_columns_of_a_run(form: LogFormat) -> None:
    for one in form.configurations:
        fields = one.fields(Keys(Path("config.json"), {}))
        assert set(fields) <= {*PER_RUN, STEPS_PER_BATCH}
        assert {"group_size", "problems_per_batch"} <= set(fields)
        assert fields["group_size"] is None
        assert one.batch(Keys(Path("config.json"), {})) is None


def test_files_of_other_kinds_are_not_taken_for_its_own(form: LogFormat, tmp_path: Path) -> None:
    for name, text in (("a.jsonl", '{"n": 8}\n'), ("b.csv", "n\n8\n"), ("1.jsonl", "{broken"), ("c.txt", "")):
        (tmp_path / name).write_text(text)
        assert form.store is None or not form.store.holds(tmp_path / name)
        assert not form.is_dump(tmp_path / name)
        assert form.journal is None or not form.journal.holds(tmp_path / name)
    if form.console is not None:
        assert form.console.parse("epoch 1, loss 0.5") is None


def test_no_other_format_has_its_name_its_store_or_its_kind_of_folder(form: LogFormat) -> None:
    for other in registry.formats():
        if other.name != form.name:
            assert form.store is None or other.store is None or form.store.name != other.store.name
            assert form.run_folder is None or other.run_folder is None or form.run_folder.kind != other.run_folder.kind
            assert form.journal is None or other.journal is None or form.journal.file != other.journal.file


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a module and a dist-info with its entry point on the path, as pip would."""

    def put(name: str, text: str, module: str) -> None:
        site = tmp_path / "site"
        note_installed(site, "someones-logs", entries={registry.GROUP: {name: f"{module}:FORMAT"}})
        (site / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, module, raising=False)

    return put


def test_a_format_that_cannot_be_loaded_is_named_with_its_cause_and_stops_no_other(
    install: Install, tmp_path: Path
) -> None:
    install("torn", "raise RuntimeError('no such library')\n", "torn_logs")
    with pytest.raises(RecordError, match=r"someones-logs 1\.0") as caught:
        registry.load("torn")
    assert isinstance(caught.value.__cause__, RuntimeError)
    write_events(tmp_path / "a", range(1, 31), OPENRLHF)
    runs = RunSet.read(tmp_path / "a", n=8, bp=32)
    (note,) = [note for note in runs.notes if note.code == "log-format-broken"]
    assert (note.severity, note.data["format"]) == ("warning", "torn")
    assert "avg@4" in runs.metrics


VERL = "from isocompute_verl.logs import FORMAT\n"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [("mine", "FORMAT = 3\n", "'mine'"), ("mine", VERL, "'mine'"), ("verl", VERL, " 2 ")],
    ids=["no-format", "another-name", "twice"],
)
def test_what_is_registered_has_to_be_the_one_format_of_that_name(
    install: Install, name: str, text: str, says: str
) -> None:
    install(name, text, "my_logs")
    with pytest.raises(RecordError, match=says):
        registry.load(name)


def test_an_unknown_name_is_met_with_the_nearest_one() -> None:
    with pytest.raises(RecordError, match="verl") as caught:
        registry.load("vrl")
    assert caught.value.hint is not None
    assert "verl" in caught.value.hint
