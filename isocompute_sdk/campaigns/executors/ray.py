"""Ray: one job per run, through Ray's Jobs API.

Tested with Ray 2.60. A framework that starts Ray itself, such as OpenRLHF and veRL, joins the cluster from its job and
reserves GPUs in placement groups. Its job must hold no GPU of its own, or it waits for itself for ever; so Ray does not
queue such jobs, and the GPUs that runs have reserved are counted here, over all campaigns, from what each job says of
itself.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Annotated, Any, TypeVar

from pydantic import Field
from typing_extensions import override

from isocompute_sdk.campaigns.executors.base import GRACE_SECONDS, Job, Seen, State
from isocompute_sdk.campaigns.executors.cluster import ClusterExecutor, Engine, EngineSilent
from isocompute_sdk.errors import BackendError
from isocompute_sdk.phrases import counted
from isocompute_sdk.specs import ExecutorSpec
from isocompute_sdk.specs.base import Count, Text, in_unit
from isocompute_sdk.specs.run import FolderName, OptionName
from isocompute_sdk.training.backend import Needs

Answer = TypeVar("Answer")

CALL_SECONDS = 20.0
"""Time limit of a call; Ray's own client waits without limit for a head that does not answer."""
SECONDS_BEYOND_GRACE = 10
"""Time after the wrapper's own SIGKILL at which Ray kills what is left."""
GPUS = "isocompute_gpus"
"""Metadata of a job: GPUs that the run needs, held by the job or by its placement groups."""
_ADDRESS = "RAY_API_SERVER_ADDRESS"
_STATES: dict[str, State] = {
    "PENDING": "waiting",
    "RUNNING": "running",
    "SUCCEEDED": "finished",
    "FAILED": "failed",
    "STOPPED": "stopped",
}


class RaySpec(ExecutorSpec):
    """Runs as jobs of a Ray cluster. The folder of the runs must be shared by all nodes."""

    name: FolderName = "ray"
    """Name of this executor."""
    address: Text | None = None
    """Address of the dashboard, such as `http://head:8265`. None: as RAY_API_SERVER_ADDRESS or RAY_ADDRESS says, else
    the cluster on this machine."""
    cpus: Annotated[Count, in_unit("cores")] = 1
    """Cores that Ray reserves for a run; a framework that starts Ray itself reserves its own."""
    gpus: Annotated[Count | None, in_unit("GPUs")] = None
    """GPUs of the cluster at its full size, if it adds nodes on demand. None: those it has now."""
    env: dict[OptionName, str] = Field(default_factory=dict[str, str])
    """Environment variables for the runs, which see those of the cluster and not those of `isocompute run`. Ray's
    dashboard shows them."""
    python: Text | None = None
    """Python 3.10 or newer on the nodes, which starts a run. None: the interpreter that runs isocompute."""

    def executor(self) -> ClusterExecutor:
        """The executor."""
        return ClusterExecutor(RayEngine(self), self.parallel, self.grace_seconds)


@dataclass(frozen=True)
class RayEngine(Engine):
    """Hands runs to the Jobs API of a Ray cluster."""

    spec: RaySpec = field(default_factory=RaySpec)
    _ended: set[str] = field(default_factory=set[str], init=False, repr=False, compare=False)
    """Submission ids of jobs that were asked to end."""

    @property
    @override
    def name(self) -> str:
        return "ray"

    @property
    @override
    def python(self) -> str:
        return self.spec.python or sys.executable

    @cached_property
    def client(self) -> Any:
        """Ray's JobSubmissionClient.

        Raises:
            EngineSilent: the cluster does not answer.
            BackendError: the package is not installed.
        """
        try:
            module = import_module("ray.job_submission")
        except ModuleNotFoundError as error:
            raise BackendError(
                f"executor ray: no package {error.name}", "Install it: pip install 'isocompute[ray]'"
            ) from error
        return self._call(lambda: module.JobSubmissionClient(self.spec.address))

    @override
    def check(self, needs: Sequence[Needs]) -> None:
        try:
            nodes = self._nodes()
        except EngineSilent as silent:
            raise BackendError(
                f"the Ray cluster does not answer: {silent}",
                "Set executor.address in the study to the address of its dashboard, such as http://head:8265.",
            ) from None
        for one in dict.fromkeys(needs):
            self._refuse_never_fitting(one, nodes)

    @override
    def room(self, job: Job) -> bool:
        nodes = self._nodes()
        wanted = _gpus(job.needs, nodes) * job.needs.nodes
        if not wanted:
            return True
        going = (one for one in self._jobs() if _state(one) in ("waiting", "running"))
        taken = sum(int((one.metadata or {}).get(GPUS, 0)) for one in going)
        return taken + wanted <= (self.spec.gpus or sum(_amount(one, "GPU") for one in nodes))

    @override
    def find(self, job: Job, attempt: int) -> str | None:
        name = job.label(attempt)
        found = next((one for one in self._jobs() if one.submission_id == name), None)
        return name if found is not None and _state(found) in ("waiting", "running") else None

    @override
    def submit(self, job: Job, attempt: int, command: Sequence[str]) -> str:
        request = self.request(job, attempt, command, self._nodes())
        name = str(request["submission_id"])
        if any(one.submission_id == name for one in self._jobs()):
            # An ended job of a run folder that was removed since. Ray takes each id once.
            self._call(lambda: self.client.delete_job(name))
        return str(self._call(lambda: self.client.submit_job(**request)))

    @override
    def look(self, refs: Sequence[str]) -> Mapping[str, Seen]:
        try:
            jobs = {str(one.submission_id): one for one in self._jobs()}
        except EngineSilent as silent:
            return dict.fromkeys(refs, Seen("unknown", reason=str(silent)))
        return {ref: self._engine_job(ref, jobs[ref]) for ref in refs if ref in jobs}

    @override
    def end(self, ref: str, *, at_once: bool) -> None:
        del at_once
        if any(one.submission_id == ref and _state(one) in ("waiting", "running") for one in self._jobs()):
            self._call(lambda: self.client.stop_job(ref))
            self._ended.add(ref)

    def request(
        self, job: Job, attempt: int, command: Sequence[str], nodes: Sequence[Mapping[str, float]] = ()
    ) -> dict[str, Any]:
        """Arguments of `JobSubmissionClient.submit_job` that submit an attempt; `nodes` are their resources."""
        needs = job.needs
        gpus = _gpus(needs, nodes)
        passed = {name: os.environ[name] for name in ("PYTHON",) if name in os.environ}
        stop = {
            "RAY_JOB_STOP_WAIT_TIME_S": str(
                round(GRACE_SECONDS if job.grace_seconds is None else job.grace_seconds) + SECONDS_BEYOND_GRACE
            )
        }
        return {
            # Without exec, the signal that ends the job would reach a shell as well.
            "entrypoint": f"exec {shlex.join(command)}",
            "submission_id": job.label(attempt),
            "entrypoint_num_cpus": 0 if needs.ray else self.spec.cpus,
            "entrypoint_num_gpus": 0 if needs.ray else gpus,
            "metadata": {GPUS: str(gpus * needs.nodes)},
            "runtime_env": {"env_vars": {**passed, **self.spec.env, **stop}},
        }

    def _refuse_never_fitting(self, needs: Needs, nodes: Sequence[Mapping[str, float]]) -> None:
        gpus, cpus = _gpus(needs, nodes), 0 if needs.ray else self.spec.cpus
        if self.spec.gpus is not None:
            fits = gpus * needs.nodes <= self.spec.gpus
            has = f"executor.gpus is {self.spec.gpus}"
        else:
            fits = sum(_fitting(one, gpus, cpus) for one in nodes) >= needs.nodes
            listed = ", ".join(
                f"{counted(_amount(one, 'GPU'), 'GPU')} and {counted(_amount(one, 'CPU'), 'core')}" for one in nodes
            )
            has = f"the nodes of the cluster have {listed or 'nothing'}"
        if not fits:
            on = f" on each of {needs.nodes} nodes" if needs.nodes > 1 else ""
            raise BackendError(
                f"a run needs {counted(gpus, 'GPU')} ({needs.source}) and {counted(cpus, 'core')}{on}; {has}",
                f"Change {needs.source} or executor.cpus in the study, or add nodes to the cluster.",
            )

    def _engine_job(self, ref: str, job: Any) -> Seen:
        state = _state(job)
        words = str(job.status.value)
        if state == "waiting" and ref in self._ended:
            # Ray keeps such a job until there is room, starts it, and ends it at once.
            return Seen("stopped", reason=f"{words}, withdrawn")
        if state == "failed":
            # The last line is that of the job's log, or what has happened to its node.
            last = str(job.message or "").strip().rpartition("\n")[2].strip()
            words = ": ".join(part for part in (words, str(job.error_type or ""), last[:200]) if part)
        return Seen(state, job.driver_exit_code if state in ("finished", "failed") else None, words)

    def _jobs(self) -> list[Any]:
        """All jobs that were submitted to the cluster."""
        client = self.client
        listed: list[Any] = self._call(client.list_jobs)
        return [one for one in listed if one.submission_id]

    def _nodes(self) -> list[dict[str, float]]:
        """Resources of each node that is alive."""
        address = self.client.get_address()
        state = import_module("ray.util.state")
        listed: list[Any] = self._call(
            lambda: state.list_nodes(
                address=address, limit=10_000, detail=True, timeout=int(CALL_SECONDS), raise_on_missing_output=False
            ),
            address,
        )
        return [dict(one.resources_total or {}) for one in listed if one.state == "ALIVE"]

    def _call(self, call: Callable[[], Answer], address: str | None = None) -> Answer:
        """Call Ray's client, in a thread of its own because the client has no time limit."""
        answers: list[Answer] = []
        errors: list[Exception] = []

        def run() -> None:
            try:
                answers.append(call())
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        with _talking_to(address or self.spec.address):
            thread.start()
            thread.join(CALL_SECONDS)
        if answers:
            return answers[0]
        if not errors:
            raise EngineSilent(f"no answer in {CALL_SECONDS:g} s")
        error = errors[0]
        text = str(error).strip()
        if type(error).__name__ == "AuthenticationError" or "status code 40" in text:
            raise BackendError(
                f"the Ray cluster refuses the request: {text.partition(chr(10))[0]}",
                "If it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH as on the cluster.",
            ) from error
        raise EngineSilent(text.rpartition("\n")[2] or type(error).__name__) from error


def _gpus(needs: Needs, nodes: Sequence[Mapping[str, float]]) -> int:
    """GPUs of a run on each of its nodes."""
    # A framework on Ray has no CPU mode: its `or_cpu` says that the GPUs may be on other machines than the driver.
    optional = needs.or_cpu and not needs.ray
    return 0 if optional and not any(_amount(one, "GPU") for one in nodes) else needs.gpus


def _fitting(node: Mapping[str, float], gpus: int, cpus: int) -> int:
    """How often a node has these GPUs and cores."""
    shares = [_amount(node, name) // wanted for name, wanted in (("GPU", gpus), ("CPU", cpus)) if wanted]
    return min(shares, default=1)


def _amount(node: Mapping[str, float], resource: str) -> int:
    return int(node.get(resource, 0))


def _state(job: Any) -> State:
    return _STATES.get(str(job.status.value), "unknown")


@contextmanager
def _talking_to(address: str | None) -> Generator[None]:
    """Let the address of the study win over RAY_ADDRESS, which Ray's client prefers to its own argument."""
    if address is None:
        yield
        return
    earlier = os.environ.get(_ADDRESS)
    os.environ[_ADDRESS] = address
    try:
        yield
    finally:
        if earlier is None:
            os.environ.pop(_ADDRESS, None)
        else:
            os.environ[_ADDRESS] = earlier
