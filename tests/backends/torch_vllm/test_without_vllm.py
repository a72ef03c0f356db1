"""Where vLLM is missing, whatever asks for it is refused before anything is loaded, with the line that installs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk.errors import BackendError
from isocompute_sdk.run_folders import journal_records
from isocompute_sdk.specs import RunSpec
from isocompute_torch import TorchBackend, train
from isocompute_torch.configuration import INSTALL
from tests.backends.framework_runs import keyed

SCRIPT = "scripts/install_vllm_cpu.sh"


@pytest.fixture(autouse=True)
def no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is how Python itself marks a module that cannot be imported."""
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.delenv("PYTHON", raising=False)


def test_preflight_refuses_with_the_install_line(run_spec: Callable[[str], RunSpec], tmp_path: Path) -> None:
    notes = keyed(TorchBackend().preflight(run_spec("model")))
    assert notes["options.sampler"].severity == "refuse"
    assert INSTALL in notes["options.sampler"].message
    with pytest.raises(BackendError, match=r"\[unsupported: options\.sampler\]"):
        TorchBackend().prepare(run_spec("model"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_is_refused_before_the_model_is_looked_for(
    prepared: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON", "/the/interpreter/of/the/script")
    folder = prepared("run", "no-such-model")
    assert train.main([str(folder)]) == 2
    complaint = capsys.readouterr().err
    assert INSTALL in complaint
    assert journal_records.read(folder / "metrics.jsonl")[-1]["status"] == "failed"
