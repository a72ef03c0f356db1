"""Which GPUs are visible, and claims on them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.executors.local import Gpu, claim, visible_gpus
from tests.unit.campaigns.executors.fake_gpus import install, listing, uuids

PLAIN = [f"GPU-{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "abc"]
SLICES = [f"MIG-{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "de"]


def tokens() -> list[str]:
    return [gpu.token for gpu in visible_gpus()]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Three GPUs."""
    install(monkeypatch, tmp_path / "bin", listing({gpu: [] for gpu in PLAIN}))
    return monkeypatch


def test_all_gpus_of_the_machine_by_uuid_if_nothing_is_stated(machine: pytest.MonkeyPatch) -> None:
    assert tokens() == PLAIN


def test_slices_take_the_place_of_the_gpu_that_is_divided(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(machine, tmp_path / "bin", listing({PLAIN[0]: [], PLAIN[1]: SLICES}))
    assert tokens() == [PLAIN[0], *SLICES]


@pytest.mark.parametrize("printed", ["", "No devices were found\n"])
def test_no_gpu_where_nvidia_smi_lists_none_or_fails(machine: pytest.MonkeyPatch, tmp_path: Path, printed: str) -> None:
    install(machine, tmp_path / "bin", printed, code=9)
    assert tokens() == []
    (tmp_path / "bin" / "nvidia-smi").unlink()
    assert tokens() == []


@pytest.mark.parametrize(
    ("stated", "seen"),
    [
        ("", []),
        (" ", []),
        ("-1", []),
        ("2,0", ["2", "0"]),
        (" 1 , 2 ", ["1", "2"]),
        ("0,-1,1", ["0"]),
        ("0,7,1", ["0"]),
        ("0,0", ["0"]),
        ("none", []),
        (PLAIN[1], [PLAIN[1]]),
        (f"{SLICES[0]},{PLAIN[2]}", [SLICES[0], PLAIN[2]]),
    ],
)
def test_what_is_stated_is_kept_as_text_up_to_the_first_token_that_is_no_device(
    machine: pytest.MonkeyPatch, stated: str, seen: list[str]
) -> None:
    machine.setenv("CUDA_VISIBLE_DEVICES", stated)
    assert tokens() == seen


def test_an_index_and_the_beginning_of_a_uuid_are_the_same_gpu(machine: pytest.MonkeyPatch) -> None:
    machine.setenv("CUDA_VISIBLE_DEVICES", "1")
    (by_index,) = visible_gpus()
    machine.setenv("CUDA_VISIBLE_DEVICES", PLAIN[1][:12])
    (by_uuid,) = visible_gpus()
    assert (by_index.uuid, by_uuid.uuid) == (PLAIN[1], PLAIN[1])


def test_stated_gpus_are_believed_where_nothing_can_list_them(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin" / "nvidia-smi").unlink()
    machine.setenv("CUDA_VISIBLE_DEVICES", "3,MIG-7")
    assert visible_gpus() == (Gpu("3", "3"), Gpu("MIG-7", "MIG-7"))


def test_claims_exclude_each_other_and_last_until_the_last_heir_ends() -> None:
    gpus = [Gpu(one, one) for one in uuids(3)]
    first = claim(gpus, 2)
    assert first is not None
    assert first[0] == tuple(gpus[:2])
    assert claim(gpus, 2) is None
    child = subprocess.Popen(["sleep", "600"], pass_fds=[one.fileno() for one in first[1]])
    for one in first[1]:
        one.close()
    third = claim(gpus, 1)
    assert third is not None
    assert third[0] == (gpus[2],)
    third[1][0].close()
    assert claim(gpus, 2) is None
    child.kill()
    child.wait()
    everything = claim(gpus, 3)
    assert everything is not None
    for one in everything[1]:
        one.close()
