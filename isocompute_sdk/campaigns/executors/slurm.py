"""Slurm: one job per run, through Slurm's own commands.

Tested with Slurm 22.05. No accounting database is needed: `squeue` knows a job until a few minutes after its end, and
the run folder knows the rest.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import override

from isocompute_sdk.campaigns.executors.base import Job, Seen, State
from isocompute_sdk.campaigns.executors.cluster import ClusterExecutor, Engine, EngineSilent
from isocompute_sdk.errors import BackendError
from isocompute_sdk.phrases import counted
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs import ExecutorSpec
from isocompute_sdk.specs.base import Count, Text, in_unit
from isocompute_sdk.specs.run import FolderName
from isocompute_sdk.specs.syntax.complaints import problem
from isocompute_sdk.training.backend import Needs

ASK_SECONDS = 10.0
"""Time between two looks at the queue."""
COMMAND_SECONDS = 90.0
"""Time limit of a command; Slurm's own are 9 to 18 s while its controller daemon is down."""
_FORMS = (r"\d+", r"\d+:\d\d", r"\d+:\d\d:\d\d", r"\d+-\d+(:\d\d){0,2}")
_TIME = re.compile("|".join(f"({form})" for form in _FORMS))
_FLAG = re.compile(r"[a-z][a-z0-9-]*")
_STATES: dict[str, State] = {
    "PENDING": "waiting",
    "REQUEUED": "waiting",
    "REQUEUE_HOLD": "waiting",
    "REQUEUE_FED": "waiting",
    "SPECIAL_EXIT": "waiting",
    "RESV_DEL_HOLD": "waiting",
    "COMPLETED": "finished",
    "CANCELLED": "stopped",
    "REVOKED": "stopped",
    "FAILED": "failed",
    "TIMEOUT": "failed",
    "DEADLINE": "failed",
    "NODE_FAIL": "failed",
    "BOOT_FAIL": "failed",
    "PREEMPTED": "failed",
    "OUT_OF_MEMORY": "failed",
}
"""Our state for each of Slurm's; a job in any other state has its resources, such as RUNNING and COMPLETING."""
_OWN_FLAGS = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "time": "time",
    "gpus": "gpus_per_node",
    "gpus-per-node": "gpus_per_node",
    "gpus-per-task": "gpus_per_node",
    "cpus-per-task": "cpus",
    "mem": "mem",
}
"""Flags of sbatch that have a setting of their own."""
_FIXED_FLAGS = (
    *("array", "chdir", "clusters", "help", "input", "job-name", "nodes", "ntasks", "open-mode", "output"),
    *("parsable", "test-only", "usage", "version", "wait", "wrap"),
)
"""Flags on which finding, following and ending a job depend."""
_SILENT = re.compile(
    r"slurm controller|timed out|connect|communicat|socket|zero bytes|not respond|temporarily", re.IGNORECASE
)
"""Words of errors that say nothing about the request."""
_ON_LEAVE = re.compile(r"down|drain|fail|maint|reboot|unknown|\*")
"""States of nodes that take no job now but may later."""
_GPUS = re.compile(r"\bgpu(?::[^:,()]+)?:(\d+)")
_QUEUE_FORMAT = "JobID:32,State:32,exit_code:32,Reason:128"


def _time(value: str | int) -> str | int:
    if isinstance(value, bool) or (isinstance(value, int) and value < 1):
        raise problem(accepted="minutes from 1 up, or text such as 4:00:00 or 2-12:00:00 (2 days and 12 hours)")
    if isinstance(value, str) and (not _TIME.fullmatch(value) or not minutes_of(value)):
        raise problem(accepted="minutes, or text such as 4:00:00 (hours) or 2-12:00:00 (days-hours)")
    return value


def _flag(name: str) -> str:
    if not _FLAG.fullmatch(name):
        raise problem(accepted="long flags of sbatch without the leading --, such as constraint")
    if name in _OWN_FLAGS:
        raise problem(accepted="flags without a setting of their own", hint=f"Use executor.{_OWN_FLAGS[name]}.")
    if name in _FIXED_FLAGS:
        raise problem(accepted=f"flags that isocompute does not set itself; it sets {', '.join(_FIXED_FLAGS)}")
    return name


class SlurmSpec(ExecutorSpec):
    """Runs as Slurm jobs, one job for each run on one node. The folder of the runs must be shared by all nodes."""

    name: FolderName = "slurm"
    """Name of this executor."""
    partition: Text | None = None
    """Partition. None: the default one."""
    time: Annotated[str | int, AfterValidator(_time)] | None = None
    """Time limit of a job: minutes, `HH:MM:SS` or `D-HH:MM:SS`. A run that reaches it goes on in another job, from its
    checkpoint. None: the limit of the partition."""
    account: Text | None = None
    """Account to charge. None: the default one."""
    qos: Text | None = None
    """Quality of service. None: the default one."""
    gpus_per_node: Annotated[Annotated[int, Field(ge=0)] | None, in_unit("GPUs")] = None
    """GPUs of a job. None: what the run needs."""
    cpus: Annotated[Count | None, in_unit("cores")] = None
    """Cores of a job. None: Slurm's default, often 1."""
    mem: Text | None = None
    """Memory of a job, such as `64G`. None: Slurm's default."""
    sbatch: dict[Annotated[str, AfterValidator(_flag)], str | int | bool] = Field(
        default_factory=dict[str, "str | int | bool"]
    )
    """Further flags of sbatch, without the leading --, such as `constraint: a100`. true: a flag without a value."""
    warn_seconds: Annotated[Count, in_unit("seconds")] = 120
    """Time before its time limit at which a run is asked to end. Slurm may ask a minute earlier."""
    python: Text | None = None
    """Python 3.10 or newer on the nodes, which starts a run. None: the interpreter that runs isocompute."""

    def executor(self) -> ClusterExecutor:
        """The executor."""
        return ClusterExecutor(SlurmEngine(self), self.parallel, self.grace_seconds, ask_seconds=ASK_SECONDS)

    @model_validator(mode="after")
    def _flags_have_values(self) -> Self:
        for name, value in self.sbatch.items():
            if value is False or value == "":
                raise problem(message=f"{name} has no value", hint="Remove it, or set true.", field="sbatch")
        return self


@dataclass(frozen=True)
class SlurmEngine(Engine):
    """Hands runs to Slurm. All text that a user wrote reaches it as one argument, without a shell."""

    spec: SlurmSpec = field(default_factory=SlurmSpec)

    @property
    @override
    def name(self) -> str:
        return "slurm"

    @property
    @override
    def python(self) -> str:
        return self.spec.python or sys.executable

    @override
    def check(self, needs: Sequence[Needs]) -> None:
        try:
            for one in dict.fromkeys(needs):
                self._refuse_never_fitting(one)
        except EngineSilent as silent:
            raise BackendError(f"Slurm does not answer: {silent}", "Try again once `sinfo` answers.") from None

    @override
    def find(self, job: Job, attempt: int) -> str | None:
        listed = self._queue("--me", f"--name={job.label(attempt)}")
        return next((ref for ref, one in listed.items() if one.state in ("waiting", "running")), None)

    @override
    def submit(self, job: Job, attempt: int, command: Sequence[str]) -> str:
        # Otherwise Ray joins the cluster of a job beside this one, which has no GPU left.
        share = {"RAY_ADDRESS": "local"} if job.needs.ray else {}
        done = _run(self.request(job, attempt, command), cwd=str(job.launch.folder), share=share)
        if done.returncode:
            raise self._refusal(done.stderr, job.name)
        return _job_id(done.stdout)

    @override
    def look(self, refs: Sequence[str]) -> Mapping[str, Seen]:
        try:
            return self._queue("--states=all", f"--jobs={','.join(refs)}")
        except EngineSilent as silent:
            return dict.fromkeys(refs, Seen("unknown", reason=str(silent)))

    @override
    def end(self, ref: str, *, at_once: bool) -> None:
        # A job in the queue has no process to ask. No job can start between the two commands unseen by the second.
        self._cancel("--state=PENDING", ref)
        self._cancel("--batch", f"--signal={'QUIT' if at_once else 'TERM'}", ref)
        if at_once:
            self._cancel(ref)

    def request(self, job: Job, attempt: int, command: Sequence[str]) -> tuple[str, ...]:
        """The sbatch command that submits an attempt."""
        folder = job.launch.folder.absolute()
        log = str(folder / store.LOG_FILE)
        # In file names of sbatch, % starts a pattern unless there is a backslash.
        return (
            "sbatch",
            "--parsable",
            f"--job-name={job.label(attempt)}",
            f"--chdir={folder}",
            f"--output={log if chr(92) in log else log.replace('%', '%%')}",
            "--open-mode=append",
            "--requeue",
            f"--signal=B:TERM@{self.spec.warn_seconds}",
            *self._resources(job.needs),
            # Without exec, a signal would reach the shell only.
            f"--wrap=exec {shlex.join(command)}",
        )

    def _resources(self, needs: Needs) -> tuple[str, ...]:
        own = self.spec
        gpus = self._gpus(needs)
        chosen = {
            "partition": own.partition,
            "time": own.time,
            "account": own.account,
            "qos": own.qos,
            "gpus-per-node": gpus or None,
            "cpus-per-task": own.cpus,
            "mem": own.mem,
            **own.sbatch,
        }
        flags = (
            f"--{name}" if value is True else f"--{name}={value}" for name, value in chosen.items() if value is not None
        )
        return ("--nodes=1", "--ntasks=1", *flags)

    def _gpus(self, needs: Needs) -> int:
        if self.spec.gpus_per_node is not None:
            return self.spec.gpus_per_node
        return 0 if needs.or_cpu and not self._partition()[1] else needs.gpus

    def _refuse_never_fitting(self, needs: Needs) -> None:
        own = self.spec
        if needs.nodes > 1:
            raise BackendError(
                f"a run needs {needs.nodes} nodes ({needs.source}); accepted: one node per Slurm job",
                "Start a Ray cluster on several nodes and run the study with executor: ray.",
            )
        given = own.gpus_per_node
        if given is not None and given < needs.gpus and not (needs.or_cpu and given == 0):
            raise BackendError(
                f"a run needs {counted(needs.gpus, 'GPU')} ({needs.source}); executor.gpus_per_node is {given}",
                f"Change {needs.source} or executor.gpus_per_node in the study.",
            )
        resources = self._resources(needs)
        done = _run(("sbatch", "--test-only", *resources, "--wrap=true"))
        if done.returncode and not self._fits_a_node_on_leave(needs):
            raise self._refusal(done.stderr, " ".join(resources))
        limit, _ = self._partition()
        if own.time is not None and limit is not None and minutes_of(own.time) > limit:
            raise BackendError(
                f"executor.time = {own.time} is longer than the partition's limit of {limit:g} minutes",
                "Give a shorter time (a run that reaches its limit goes on in another job), or another partition.",
            )

    def _fits_a_node_on_leave(self, needs: Needs) -> bool:
        """Whether a node that is down or drained has what a run needs: sbatch's test leaves such nodes out."""
        chosen = () if self.spec.partition is None else (f"--partition={self.spec.partition}",)
        for line in _ask("sinfo", "--noheader", "--Node", "--format=%T|%c|%G", *chosen).splitlines():
            state, cores, devices = line.split("|")
            gpus = sum(map(int, _GPUS.findall(devices)))
            if _ON_LEAVE.search(state) and gpus >= self._gpus(needs) and int(cores) >= (self.spec.cpus or 1):
                return True
        return False

    def _partition(self) -> tuple[float | None, bool]:
        """Time limit of the partition in minutes, None without one, and whether it has GPUs."""
        rows = [
            line.split("|") for line in _ask("sinfo", "--noheader", "--format=%P|%l|%G").splitlines() if "|" in line
        ]
        chosen = self.spec.partition.split(",") if self.spec.partition is not None else None
        own = [row for row in rows if (row[0].endswith("*") if chosen is None else row[0].rstrip("*") in chosen)]
        limits = [minutes_of(row[1]) if _TIME.fullmatch(row[1]) else None for row in own]
        known = [limit for limit in limits if limit is not None]
        return max(known) if known and len(known) == len(limits) else None, any("gpu" in row[2] for row in own)

    def _queue(self, *chosen: str) -> dict[str, Seen]:
        """Jobs in the queue, by id."""
        done = _run(("squeue", "--noheader", f"--Format={_QUEUE_FORMAT}", *chosen))
        if done.returncode and "Invalid job id" not in done.stderr:
            raise EngineSilent(_last_line(done.stderr) or f"squeue exited with code {done.returncode}")
        found: dict[str, Seen] = {}
        for line in done.stdout.splitlines():
            ref, state, status, *reason = [*line.split(), "", "", ""]
            if not ref.isdecimal():
                continue
            ours, why = _STATES.get(state, "running"), " ".join(reason).strip()
            ended = ours in ("finished", "failed") and status.isdecimal()
            words = state if why in ("", "None", "(null)") else f"{state} ({why})"
            found[ref] = Seen(ours, os.waitstatus_to_exitcode(int(status)) if ended else None, words)
        return found

    def _cancel(self, *arguments: str) -> None:
        done = _run(("scancel", *arguments))
        if done.returncode and _SILENT.search(done.stderr):
            raise EngineSilent(_last_line(done.stderr))

    def _refusal(self, said: str, what: str) -> BackendError:
        """The error for a request that Slurm refuses."""
        # Sites limit the number of jobs in the queue: a later attempt succeeds.
        if _SILENT.search(said) or "MaxSubmit" in said:
            raise EngineSilent(_last_line(said))
        return BackendError(
            f"Slurm refuses {what}: {'; '.join(said.split(chr(10))).strip('; ')}",
            "Change hardware or executor in the study; `sinfo -o '%P %l %c %m %G'` lists what each partition has.",
        )


def minutes_of(time: str | int) -> float:
    """A time limit as Slurm writes it, in minutes."""
    days, _, rest = f"-{time}".rpartition("-")
    parts = [float(part) for part in rest.split(":")]
    if days.strip("-"):
        hours, minutes, seconds = [*parts, 0.0, 0.0][:3]
        return (int(days.strip("-")) * 24 + hours) * 60 + minutes + seconds / 60
    if len(parts) == 3:
        return parts[0] * 60 + parts[1] + parts[2] / 60
    return parts[0] + (parts[1] / 60 if len(parts) == 2 else 0.0)


def _job_id(printed: str) -> str:
    """Id of the job from what `sbatch --parsable` printed, `ID` or `ID;CLUSTER` on the last line."""
    ref = printed.strip().rpartition("\n")[2].partition(";")[0]
    if not ref.isdecimal():
        raise BackendError(
            f"sbatch printed {printed!r}; accepted: a job id",
            "Try `sbatch --parsable --wrap true` by hand: a wrapper around sbatch may print something else.",
        )
    return ref


def _environment() -> dict[str, str]:
    """This process's variables without those that change what Slurm's commands do or print.

    Variables of the job in which isocompute may itself run would override requests, and squeue's and sinfo's would hide
    jobs.
    """
    kept = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS"}
    dropped = re.compile(r"(SLURM|SQUEUE|SINFO|SCANCEL|PMI|PMIX)_.*|SBATCH_(ARRAY_INX|WAIT|CLUSTERS)|SLURMD_.*")
    return {name: value for name, value in os.environ.items() if name in kept or not dropped.fullmatch(name)}


def _run(
    argv: Sequence[str], cwd: str | None = None, share: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands.

    Args:
        argv: the command.
        cwd: its working directory. None: that of this process.
        share: variables that this process's own win over.
    """
    try:
        return subprocess.run(
            argv,
            cwd=cwd,
            env={**(share or {}), **_environment()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EngineSilent(f"{argv[0]} took longer than {COMMAND_SECONDS:g} s") from None
    except FileNotFoundError:
        raise BackendError(
            f"{argv[0]} is not on the PATH", "Run isocompute on a machine with Slurm's commands, such as a login node."
        ) from None


def _ask(*argv: str) -> str:
    """Output of one of Slurm's commands."""
    done = _run(argv)
    if done.returncode:
        raise EngineSilent(_last_line(done.stderr) or f"{argv[0]} exited with code {done.returncode}")
    return done.stdout


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip()
