"""GPUs: which there are, claims on them, and runs that share them out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.executors import Job, LocalExecutor, run_jobs
from isocompute_sdk.campaigns.executors.local import Gpu, claim, visible_gpus
from isocompute_sdk.errors import BackendError
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs import Hardware, RunSpec
from isocompute_sdk.training import registry
from isocompute_sdk.training.backend import Launch, Needs, needs_of
from tests.backends.framework_runs import contract_run
from tests.parameters import few
from tests.processes import HANG_SECONDS, wait_for
from tests.unit.campaigns.executors.fake_gpus import install, listing, uuids

NOTE = """
import json, os, sys, time
def note(event):
    with open(sys.argv[1], "a") as file:
        file.write(json.dumps([time.monotonic(), event, os.environ.get("CUDA_VISIBLE_DEVICES")]) + "\\n")
note("start")
while open(sys.argv[1]).read().count("start") < int(sys.argv[2]):
    time.sleep(0.01)
while sys.argv[3] and not os.path.exists(sys.argv[3]):
    time.sleep(0.01)
note("stop")
"""


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """UUIDs of four GPUs that nvidia-smi lists."""
    found = uuids(4)
    install(monkeypatch, tmp_path / "bin", listing({gpu: [] for gpu in found}))
    return found


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    """A job that notes its GPUs with its start and stop in `tmp_path/events`; it stops once so many have started and
    a file is there."""
    program = tmp_path / "note.py"
    program.write_text(NOTE)

    def make(name: str, gpus: int = 1, starts: int = 1, until: str | Path = "", **needs: object) -> Job:
        folder = tmp_path / name
        folder.mkdir()
        argv = (sys.executable, "-I", "-S", str(program), str(tmp_path / "events"), str(starts), str(until))
        return Job(name, Launch(folder, (), argv), tmp_path, Needs(gpus, **needs))  # type: ignore[arg-type]

    return make


def quick(parallel: int | None = None) -> LocalExecutor:
    return LocalExecutor(parallel, poll_seconds=0.02, grace_seconds=HANG_SECONDS)


def events(folder: Path) -> list[tuple[str, str | None]]:
    noted = sorted(json.loads(line) for line in (folder / "events").read_text().splitlines())
    return [(event, devices) for _, event, devices in noted]


def use(noted: list[tuple[str, str | None]]) -> tuple[set[str], int]:
    """All GPUs that were used, and the most runs at a time; fails where a GPU had two runs at a time."""
    busy: list[str] = []
    used: set[str] = set()
    runs = most = 0
    for event, devices in noted:
        assert devices is not None
        for one in devices.split(","):
            if event == "start":
                assert one not in busy
                busy.append(one)
                used.add(one)
            else:
                busy.remove(one)
        runs += 1 if event == "start" else -1
        most = max(most, runs)
    assert not busy
    return used, most


@pytest.mark.parametrize(("each", "at_a_time"), few([(2, 2), (1, 4), (3, 1)], 1))
def test_runs_share_out_all_gpus_and_never_one_gpu(
    gpus: list[str], job: Callable[..., Job], tmp_path: Path, each: int, at_a_time: int
) -> None:
    jobs = [job(f"job{i}", each, starts=at_a_time) for i in range(5)]
    assert all(result.exit_code == 0 for result in run_jobs(quick(), jobs))
    noted = events(tmp_path)
    used, most = use(noted)
    assert most == at_a_time
    assert {len((devices or "").split(",")) for _, devices in noted} == {each}
    assert used == set(gpus[: each * at_a_time])


def test_two_campaigns_at_a_time_take_different_gpus(gpus: list[str], job: Callable[..., Job], tmp_path: Path) -> None:
    mine, other = quick(), quick()
    first = job("first", 2, until=tmp_path / "no such file")
    handle = other.submit(first, 1)
    assert handle is not None
    assert handle.started is not None
    run_jobs(mine, [job(f"job{i}", 2) for i in range(3)])
    assert use([event for event in events(tmp_path) if event[1] != ",".join(handle.started.devices)]) == (
        set(gpus[2:]),
        1,
    )
    other.cancel(handle)
    wait_for(lambda: other.poll([handle])[0].state != "running")


def test_a_run_without_gpus_sees_none_of_those_that_are_there(
    gpus: list[str], job: Callable[..., Job], tmp_path: Path
) -> None:
    run_jobs(quick(), [job("cpu", 0)])
    assert events(tmp_path) == [("start", ""), ("stop", "")]


@pytest.mark.parametrize("stated", [None, "", "0,1"])
def test_more_gpus_than_there_are_is_refused_before_anything_starts(
    gpus: list[str], job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: str | None
) -> None:
    if stated is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", stated)
    with pytest.raises(BackendError) as caught:
        run_jobs(quick(), [job("one"), job("five", 5, source="options.width")])
    assert not (tmp_path / "events").exists()
    if stated is None:
        assert all(gpu in caught.value.message for gpu in gpus)
    if stated != "":
        assert "options.width" in f"{caught.value.message} {caught.value.hint}"


def test_status_names_the_gpus_while_the_run_goes_on(gpus: list[str], job: Callable[..., Job], tmp_path: Path) -> None:
    go = tmp_path / "go"
    one = job("one", 2, until=go)
    seen: list[tuple[str, tuple[str, ...]]] = []

    def look() -> None:
        status = store.RunWatch(one.launch.folder).status()
        seen.append((status.state, status.devices))
        if status.state == "running":
            go.touch()

    run_jobs(quick(), [one], look)
    assert ("running", tuple(gpus[:2])) in seen
    assert seen[-1] == ("finished", ())


def run_for(backend: str, gpus: int = 1, **options: object) -> RunSpec:
    return contract_run(backend=backend, hardware=Hardware(gpus=gpus), options=options)


@pytest.mark.parametrize(
    ("run", "needs"),
    [
        (run_for("simulator", 8), (0, False)),
        (run_for("torch"), (1, True)),
        (run_for("torch", device="cpu"), (0, False)),
        (run_for("torch", device="cuda"), (1, False)),
        (run_for("trl", 4), (4, False)),
        (run_for("trl", device="cpu", sampler="transformers"), (0, False)),
        (run_for("verl", 8), (8, False)),
        (run_for("verl", 16), (8, True)),
        (run_for("openrlhf", 8), (8, False)),
        (run_for("openrlhf", 16), (8, True)),
    ],
)
def test_what_a_run_needs_follows_from_its_hardware_and_options(
    monkeypatch: pytest.MonkeyPatch, run: RunSpec, needs: tuple[int, bool]
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    found = needs_of(registry.load(run.backend), run)
    assert (found.gpus, found.or_cpu) == needs


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
