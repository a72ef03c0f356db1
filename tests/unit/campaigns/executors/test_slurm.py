"""Requests to Slurm and what follows from its answers, recorded from Slurm 22.05. tests/engines runs a real one."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.executors import Job
from isocompute_sdk.campaigns.executors.cluster import EngineSilent
from isocompute_sdk.campaigns.executors.slurm import SlurmEngine, SlurmSpec, minutes_of
from isocompute_sdk.errors import BackendError, SpecError
from isocompute_sdk.training.backend import Launch, Needs

DOWN = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
Answers = Callable[..., None]


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Put a command on the PATH that notes its arguments and answers."""
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")

    def answer(command: str, out: str = "", *, error: str = "", code: int = 0) -> None:
        script = f'#!/bin/sh\nprintf "%s\\n" "$@" > {place}/{command}.arguments\nenv > {place}/{command}.environment\n'
        script += f"printf '%s\\n' {shlex.quote(out)}\nprintf '%s\\n' {shlex.quote(error)} >&2\nexit {code}\n"
        (place / command).write_text(script)
        (place / command).chmod(0o755)

    return answer


def job(folder: Path, needs: Needs | None = None) -> Job:
    return Job("n4-bp32-seed0", Launch(folder, (), ("bash", "launch.sh")), folder, needs or Needs())


def flags(spec: SlurmSpec, needs: Needs) -> list[str]:
    return list(SlurmEngine(spec).request(job(Path("/runs/one"), needs), 1, ("true",)))


def test_a_request_names_the_resources_of_the_run_and_the_study() -> None:
    spec = SlurmSpec(
        partition="gpu,long",
        time="4:00:00",
        account="lab",
        qos="high",
        cpus=8,
        mem="64G",
        sbatch={"constraint": "a100|h100", "exclusive": True, "nice": 100},
    )
    wanted = {
        *("--partition=gpu,long", "--time=4:00:00", "--account=lab", "--qos=high", "--cpus-per-task=8", "--mem=64G"),
        *("--gpus-per-node=4", "--constraint=a100|h100", "--exclusive", "--nice=100", "--nodes=1", "--ntasks=1"),
    }
    assert wanted <= set(flags(spec, Needs(4)))
    assert not [flag for flag in flags(SlurmSpec(), Needs()) if flag.startswith(("--gpus", "--mem", "--time"))]


def test_hostile_names_reach_the_job_as_one_argument_each() -> None:
    folder = Path("/runs/a 'b' $(touch x); %j")
    command = ("/usr/bin/python3", str(folder / "wrapper.py"), "1")
    request = SlurmEngine().request(job(folder), 1, command)
    (wrap,) = [flag.removeprefix("--wrap=") for flag in request if flag.startswith("--wrap=")]
    assert shlex.split(wrap) == ["exec", *command]
    assert f"--output={folder}/log.txt".replace("%", "%%") in request
    assert f"--chdir={folder}" in request


def test_attempts_and_runs_of_other_studies_have_other_names() -> None:
    names = {
        flag
        for folder in ("/one/n4", "/two/n4")
        for attempt in (1, 2)
        for flag in SlurmEngine().request(job(Path(folder)), attempt, ("true",))
        if flag.startswith("--job-name=")
    }
    assert len(names) == 4


@pytest.mark.parametrize(
    ("time", "minutes"),
    [
        (90, 90),
        ("90", 90),
        ("90:30", 90.5),
        ("4:03:30", 243.5),
        ("2-12", 3600),
        ("1-0:30", 1470),
        ("1-00:00:30", 1440.5),
    ],
)
def test_time_limits_as_slurm_writes_them(time: str | int, minutes: float) -> None:
    assert minutes_of(SlurmSpec(time=time).time or 0) == minutes


@pytest.mark.parametrize(
    "options",
    [
        {"time": "4h"},
        {"time": 0},
        {"time": "0:00"},
        {"gpus_per_node": -1},
        {"sbatch": {"job-name": "mine"}},
        {"sbatch": {"array": "1-4"}},
        {"sbatch": {"mem": "1G"}},
        {"sbatch": {"gpus": 4}},
        {"sbatch": {"wrap true;": "x"}},
        {"sbatch": {"exclusive": False}},
    ],
)
def test_what_would_break_the_bookkeeping_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        SlurmSpec.model_validate({"name": "slurm", **options})


def test_states_and_exit_codes_of_the_queue(answers: Answers) -> None:
    rows = [
        ("10", "PENDING", "0", "Resources"),
        ("11", "RUNNING", "0", "None"),
        ("12", "COMPLETED", "0", "None"),
        ("13", "FAILED", "768", "NonZeroExitCode"),
        ("14", "FAILED", "9", "JobLaunchFailure"),
        ("15", "CANCELLED", "0", "None"),
        ("16", "TIMEOUT", "15", "TimeLimit"),
        ("17", "COMPLETING", "0", "None"),
        ("18", "PENDING", "0", "BeginTime"),
    ]
    answers("squeue", "\n".join(f"{a:<32}{b:<32}{c:<32}{d:<128}" for a, b, c, d in rows))
    seen = SlurmEngine().look([row[0] for row in rows])
    assert {ref: (one.state, one.exit_code) for ref, one in seen.items()} == {
        "10": ("waiting", None),
        "11": ("running", None),
        "12": ("finished", 0),
        "13": ("failed", 3),
        "14": ("failed", -9),
        "15": ("stopped", None),
        "16": ("failed", -15),
        "17": ("running", None),
        "18": ("waiting", None),
    }
    assert "Resources" in seen["10"].reason


def test_silence_is_unknown_and_a_forgotten_job_is_left_out(answers: Answers) -> None:
    answers("squeue", error=DOWN, code=1)
    assert SlurmEngine().look(["10"])["10"].state == "unknown"
    with pytest.raises(EngineSilent):
        SlurmEngine().find(job(Path("/runs/one")), 1)
    answers("squeue", error="slurm_load_jobs error: Invalid job id specified", code=1)
    assert SlurmEngine().look(["10"]) == {}


def test_only_jobs_that_wait_or_run_are_found(answers: Answers) -> None:
    answers("squeue", f"{'7':<32}{'CANCELLED':<32}{'0':<32}{'None':<128}\n{'8':<32}{'RUNNING':<32}{'0':<32}None")
    assert SlurmEngine().find(job(Path("/runs/one")), 1) == "8"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("sbatch: error: Batch job submission failed: Invalid qos specification", BackendError),
        (f"sbatch: error: Batch job submission failed: {DOWN.partition(': ')[2]}", EngineSilent),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates "
         "accounting/QOS policy (job submit limit, user's size and/or time limits)", EngineSilent),
    ],
)  # fmt: skip
def test_a_refusal_ends_the_campaign_and_a_full_or_silent_queue_does_not(
    said: str, error: type[Exception], answers: Answers, tmp_path: Path
) -> None:
    answers("sbatch", error=said, code=1)
    with pytest.raises(error):
        SlurmEngine().submit(job(tmp_path), 1, ("true",))


def test_the_id_is_read_behind_what_a_site_prints(answers: Answers, tmp_path: Path) -> None:
    answers("sbatch", "Welcome to the cluster\n4711;main")
    assert SlurmEngine().submit(job(tmp_path), 1, ("true",)) == "4711"
    answers("sbatch", "Submitted")
    with pytest.raises(BackendError):
        SlurmEngine().submit(job(tmp_path), 1, ("true",))


def test_a_campaign_inside_of_a_job_does_not_pass_that_jobs_variables_on(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_GPUS_PER_NODE", "SQUEUE_STATES", "SLURM_CONF", "SBATCH_ACCOUNT"):
        monkeypatch.setenv(name, "1")
    answers("sbatch", "4711")
    SlurmEngine().submit(job(tmp_path), 1, ("true",))
    passed = {line.partition("=")[0] for line in (tmp_path / "bin" / "sbatch.environment").read_text().splitlines()}
    assert {"SLURM_CONF", "SBATCH_ACCOUNT"} <= passed
    assert passed.isdisjoint({"SLURM_JOB_ID", "SLURM_GPUS_PER_NODE", "SQUEUE_STATES"})


@pytest.mark.parametrize(("own", "seen"), [(None, "local"), ("head:6379", "head:6379")])
def test_a_framework_on_ray_joins_no_cluster_of_another_job(
    own: str | None, seen: str, answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if own is not None:
        monkeypatch.setenv("RAY_ADDRESS", own)
    answers("sbatch", "4711")
    SlurmEngine().submit(job(tmp_path, Needs(4, ray=True)), 1, ("true",))
    assert f"RAY_ADDRESS={seen}" in (tmp_path / "bin" / "sbatch.environment").read_text().splitlines()


@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        (SlurmSpec(), Needs(8, nodes=2, ray=True)),
        (SlurmSpec(gpus_per_node=2), Needs(4)),
        (SlurmSpec(time="1:00:00", partition="short"), Needs()),
    ],
)
def test_what_can_never_start_is_refused(spec: SlurmSpec, needs: Needs, answers: Answers) -> None:
    answers("sbatch")
    answers("sinfo", "main*|infinite|(null)\nshort|10:00|(null)")
    with pytest.raises(BackendError):
        SlurmEngine(spec).check([needs])


@pytest.mark.parametrize(
    ("nodes", "refused"),
    [
        ("idle|8|gpu:8\ndrained*|64|gpu:a100:4(S:0),gpu:v100:2,nvme:1", False),
        ("idle|8|gpu:8\ndown|4|gpu:8", True),
        ("mixed|64|gpu:8\ndown|64|gpu:2", True),
        ("idle|64|gpu:8", True),
    ],
)
def test_what_fits_only_on_a_node_that_is_drained_waits_for_it(nodes: str, refused: bool, answers: Answers) -> None:
    answers("sbatch", error="allocation failure: Requested node configuration is not available", code=1)
    answers("sinfo", nodes)
    engine = SlurmEngine(SlurmSpec(cpus=8))
    if refused:
        with pytest.raises(BackendError):
            engine.check([Needs(6)])
        return
    engine.check([Needs(6)])


def test_runs_that_can_train_on_a_cpu_ask_for_a_gpu_where_there_is_one(answers: Answers) -> None:
    optional = Needs(1, or_cpu=True)
    answers("sinfo", "cpu|1:00|(null)\ngpu*|infinite|gpu:2(S:0)")
    assert "--gpus-per-node=1" in flags(SlurmSpec(), optional)
    assert not [flag for flag in flags(SlurmSpec(partition="cpu"), optional) if flag.startswith("--gpus")]
    answers("sinfo", "cpu*|1:00|(null)\ngpu|infinite|gpu:2(S:0)")
    assert not [flag for flag in flags(SlurmSpec(), optional) if flag.startswith("--gpus")]
    assert "--gpus-per-node=2" in flags(SlurmSpec(gpus_per_node=2), optional)
    answers("sbatch", "")
    none = SlurmEngine(SlurmSpec(gpus_per_node=0))
    none.check([optional])
    with pytest.raises(BackendError):
        none.check([Needs(1)])


def test_a_machine_without_slurm_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match="sbatch"):
        SlurmEngine().check([Needs()])
