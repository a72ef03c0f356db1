"""Labelling problems with a base model: pass counts, stopped and resumed, and the paper's bands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_torch import label

REWARD = "def reward(prompt, response, answer):\n    return float(response[:1] in answer)\n"


@pytest.fixture
def request_(tmp_path: Path, model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A request for ten problems, four at a time: nothing, the digits and everything is right."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(label, "CHUNK", 4)
    answers = ["", *(["0123456789"] * 8), "0123456789+=*-"]
    rows = [{"question": f"{i}+{i}=", "answer": answer, "level": i} for i, answer in enumerate(answers)]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "reward.py").write_text(REWARD.replace("response[:1] in", "response[:1] != '' and response[0] in"))
    files = {"problems": "problems.jsonl", "model": str(model_folder("qwen2")), "reward": "reward.py"}
    return {**files, "samples": 16, "temperature": 1.0, "max_tokens": 2, "seed": 0}


def run(asked: dict[str, Any], output: str = "out.jsonl") -> int:
    return label.main([json.dumps(asked), output])


def rows(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_every_problem_keeps_its_keys_and_receives_its_passes(request_: dict[str, Any]) -> None:
    assert run(request_) == 0
    found = rows("out.jsonl")
    assert [row["level"] for row in found] == list(range(10))
    assert all(row["pass_rate"] == row["passes"] / 16 for row in found)
    assert found[0]["passes"] == 0
    assert all(0 < row["passes"] < 16 for row in found[1:-1])


def test_stopped_and_started_again_it_counts_the_same(
    request_: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(request_, "whole.jsonl") == 0
    kept, append = Path("out.jsonl.passes"), label.append_line

    def torn(path: Path, text: str, **how: Any) -> None:
        append(path, text, **how)
        if len(path.read_text().splitlines()) == 3:
            path.write_text(path.read_text()[:-5])
            raise KeyboardInterrupt

    monkeypatch.setattr(label, "append_line", torn)
    assert run(request_) == 130
    assert not Path("out.jsonl").exists()
    monkeypatch.setattr(label, "append_line", append)
    capsys.readouterr()
    assert run(request_) == 0
    assert "labelled 4 of 10" not in capsys.readouterr().err, "what was kept is not sampled again"
    assert Path("out.jsonl").read_text() == Path("whole.jsonl").read_text()
    assert kept.exists()
    Path("reward.py").write_text(REWARD)
    assert run(request_) == 2
    assert f"{kept} holds the passes of another" in capsys.readouterr().err


def test_a_model_that_is_not_there_is_named(request_: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run({**request_, "model": "./nowhere"}) == 2
    assert "./nowhere" in capsys.readouterr().err
