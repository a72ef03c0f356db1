"""The fast readers of clean files say what the careful ones say, and leave every other file to them."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isocompute_sdk.ingest import tables
from isocompute_sdk.records import RunSet

odd = ["", " ", '"', '""', '"a"', '"a,b"', '"a""b"', "a;b", '"a\nb"', "\r", "\t", "8", "0.5", "é"]
cells = st.sampled_from(odd)
rows = st.lists(st.lists(cells, min_size=1, max_size=3).map(",".join), min_size=1, max_size=5)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(["n,C", "n;C", "n", '"n",C', "n,C,"]), rows, st.sampled_from(["\n", "\r\n"]), st.booleans())
@example("n,C", ['"a,b",1', "2"], "\n", True)
@example("n,C", ["1", "3", "4,5,6"], "\n", True)
def test_what_is_read_fast_is_what_is_read_carefully(header: str, lines: list[str], end: str, ended: bool):
    text = end.join([header, *lines]) + (end if ended else "")
    plain = tables.read_plain(text)
    if plain is None:
        return
    careful, numbers, broken = tables._split(Path("runs.csv"), text)
    assert broken is None
    assert [name.strip() for name in careful[0]] == list(plain)
    assert careful[1:] == [[cell or "" for cell in row] for row in zip(*plain.values(), strict=True)]
    assert numbers[1:] == list(range(2, len(careful) + 1))


@pytest.mark.parametrize("text", ["n,C\n1,2\n", "n,C\r\n1,2\r\n", 'n,C\n"a",2\n', "n;C\n;0.5\n"])
def test_clean_csv_is_read_fast(text: str):
    assert tables.read_plain(text) is not None


def test_a_key_that_appears_only_in_the_middle_is_not_lost(tmp_path: Path):
    lines = [{"n": 8, "C": i, "avg@4": 0.5} for i in range(3000)]
    lines[len(lines) // 2]["best@4"] = 0.75
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert RunSet.read(path).series("best@4")[0].value_T.tolist() == [0.75]


def test_a_whole_number_may_become_a_fraction_far_down(tmp_path: Path):
    lines = [{"n": 8, "C": i, "avg@4": 1} for i in range(3000)]
    lines[len(lines) // 2]["avg@4"] = 0.75
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert min(RunSet.read(path).series("avg@4")[0].value_T) == 0.75
