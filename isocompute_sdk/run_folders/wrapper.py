"""Run one attempt at a run and record it in the run's folder, in the same way on every executor.

    python3 -I -S wrapper.py FOLDER ATTEMPT [LOCK]

Every run folder carries this program. It needs Python 3.10 or newer and the standard library only. It

* reads job.json and leaves with status 75 if that names another attempt: this one is out of date;
* takes the lock of the folder, or inherits it as file descriptor LOCK, and waits until no process of an earlier attempt
  lives; after ten minutes it leaves with status 75;
* runs the command of job.json in a session of its own, which inherits the lock; output goes to log.txt;
* renews beat.json every few seconds, for machines that see neither the lock nor the process;
* passes TERM, INT and HUP on to the command's process group as TERM, and kills it after `grace_seconds`, or on QUIT;
* asks the command to end after `limit_seconds`;
* without LOCK, kills the command's process group if it is killed itself: nobody on another machine could tell that the
  command lives, and its engine gives its GPUs to the next job;
* writes exit.json and leaves with the status of the command, 128 + N if signal N ended it.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

WRAPPER_FILE, JOB_FILE, BEAT_FILE, EXIT_FILE = "wrapper.py", "job.json", "beat.json", "exit.json"
LOG_FILE, STOP_FILE = "log.txt", ".stop"
LOCK_FILE, RUNNER_LOCK_FILE = ".launch.lock", ".lock"
"""Locks of whoever starts a run, and of the training program itself."""
BEAT_SECONDS = 5.0
STALE_SECONDS = 60.0
"""Age from which a beat of another machine no longer counts."""
PATIENCE_SECONDS = 600.0
"""Longest wait for an earlier attempt."""
BUSY = 75
"""Exit status if the attempt has not begun, because another one has the folder or has replaced it."""
ATTEMPT_VARIABLE = "ISOCOMPUTE_ATTEMPT"
"""Holds the number of the attempt for the command."""
DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""Set by the executor only, never by job.json."""
OUT_OF_TIME = "reached its time limit"
"""Reason in exit.json of an attempt that ran into `limit_seconds`."""
MIN_DESCRIPTOR = 100
"""Least number of an inherited file descriptor."""
_PROC = Path("/proc")
_ENDED = frozenset("ZX")
"""States in /proc/PID/stat of a process that has ended and waits for its parent."""
_ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_WATCHED = frozenset({signal.SIGCHLD, *_ASKED})


def main(argv: list[str]) -> int:
    """Run the attempt named on the command line; returns its exit status."""
    if len(argv) not in (2, 3):
        sys.stderr.write("usage: wrapper.py FOLDER ATTEMPT [LOCK]\n")
        return 2
    # From here on signals wait until `sigtimedwait` asks for them, so that none is lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    folder, attempt = Path(argv[0]), int(argv[1])
    lock = int(argv[2]) if len(argv) == 3 else None
    begun = _begin(folder, attempt, lock)
    if isinstance(begun, int):
        return begun
    return Attempt(folder, attempt, begun, guarded=lock is None).run()


def _begin(folder: Path, attempt: int, lock: int | None) -> dict[str, Any] | int:
    """Reserve the folder; returns the content of job.json, or the exit status if the attempt must not begin."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    own = process_ref(os.getpid())
    while True:
        job = read_json(folder / JOB_FILE)
        if job is None or job.get("attempt") != attempt:
            _say(f"attempt {attempt} is out of date: {JOB_FILE} in {folder} names another one")
            return BUSY
        held = lock if lock is not None else take_lock(folder)
        if held is not None:
            if not is_beating(folder, own):
                break
            if lock is None:
                os.close(held)
        if time.monotonic() > deadline:
            _say(f"another attempt has been using {folder} for {PATIENCE_SECONDS:.0f} s")
            return BUSY
        asked = signal.sigtimedwait(_ASKED, 0.5)
        if asked is not None:
            return 128 + asked.si_signo
    os.set_inheritable(held, True)
    if (folder / STOP_FILE).exists():
        # Looked up under the lock, so that no run starts behind the back of `isocompute stop`.
        write_exit(folder, attempt, -signal.SIGTERM, stopped=True)
        return 128 + signal.SIGTERM
    return job


class Attempt:
    """One attempt that has the folder's lock."""

    def __init__(self, folder: Path, attempt: int, job: dict[str, Any], *, guarded: bool) -> None:
        self.folder, self.attempt, self.job = folder, attempt, job
        self.guard = Guard() if guarded else None
        self.beat = {
            "kind": "run-beat",
            "schema_version": 1,
            "attempt": attempt,
            "host": socket.gethostname(),
            "namespace": pid_namespace(),
            "process": process_ref(os.getpid()) or "",
            "command": "",
        }
        self.stopped = False
        """Whether the attempt was asked to end."""
        self.kill_at = math.inf
        """Time of SIGKILL."""
        limit = job.get("limit_seconds")
        self.end_at = math.inf if limit is None else time.monotonic() + float(limit)
        self.reason = ""

    def run(self) -> int:
        """Run the command to its end, record how it ended and return the exit status."""
        with suppress(FileNotFoundError):
            (self.folder / EXIT_FILE).unlink()
        self._renew_beat()
        try:
            child = self._start()
        except OSError as error:
            self._note(f"{self.job['argv'][0]} cannot be started in {self.job['cwd']}: {error.strerror}")
            return self._end(127)
        if self.guard is not None:
            self.guard.watch(child.pid)
        self.beat["command"] = process_ref(child.pid) or ""
        self._renew_beat()
        code = self._watch(child)
        if self.stopped:
            self._end_group(child.pid)
        return self._end(code)

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **self.job["env"], ATTEMPT_VARIABLE: str(self.attempt)}
        environment.pop(DEVICES_VARIABLE, None)
        if DEVICES_VARIABLE in os.environ:
            environment[DEVICES_VARIABLE] = os.environ[DEVICES_VARIABLE]
        with (self.folder / LOG_FILE).open("ab") as log:
            return subprocess.Popen(
                self.job["argv"],
                cwd=self.job["cwd"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                close_fds=False,  # It inherits the lock and the claims on devices.
                preexec_fn=_deliver_signals,  # noqa: PLW1509 (no threads here)
            )

    def _watch(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for the command, pass requests on and renew the beat; returns its exit code."""
        while True:
            code = child.poll()
            if code is not None:
                return code
            left = min(self.end_at, self.kill_at) - time.monotonic()
            caught = signal.sigtimedwait(_WATCHED, min(BEAT_SECONDS, max(0.0, left)))
            if caught is not None and caught.si_signo in _ASKED:
                self._pass_on(child.pid, caught.si_signo)
            elif caught is None:
                self._renew_beat()
            if time.monotonic() >= self.end_at:
                self.end_at, self.reason = math.inf, self.reason if self.stopped else OUT_OF_TIME
                self._pass_on(child.pid, signal.SIGTERM)
            if time.monotonic() >= self.kill_at:
                _signal_group(child.pid, signal.SIGKILL)
                self.kill_at = time.monotonic() + BEAT_SECONDS

    def _pass_on(self, group: int, number: int) -> None:
        now = time.monotonic()
        if number == signal.SIGQUIT:
            self.stopped, self.kill_at = True, now
            return
        if not self.stopped:
            self.stopped, self.kill_at = True, now + float(self.job["grace_seconds"])
        # Commands that a shell has put into the background ignore SIGINT.
        _signal_group(group, signal.SIGTERM)

    def _end_group(self, group: int) -> None:
        """Wait for what the command has left in its process group, and kill it when its time is over."""
        while _has_member(group):
            if time.monotonic() >= self.kill_at:
                _signal_group(group, signal.SIGKILL)
                return
            caught = signal.sigtimedwait(_ASKED, 0.05)
            if caught is not None and caught.si_signo == signal.SIGQUIT:
                self.kill_at = time.monotonic()

    def _end(self, code: int) -> int:
        write_exit(self.folder, self.attempt, code, stopped=self.stopped, reason=self.reason)
        with suppress(OSError):
            (self.folder / BEAT_FILE).unlink()
        if self.guard is not None:
            self.guard.dismiss()
        return code if code >= 0 else 128 - code

    def _renew_beat(self) -> None:
        # A full disk does not end a run.
        with suppress(OSError):
            write_json(self.folder / BEAT_FILE, self.beat)

    def _note(self, message: str) -> None:
        with suppress(OSError), (self.folder / LOG_FILE).open("a", encoding="utf-8") as log:
            log.write(message + "\n")


class Guard:
    """A process that kills a process group when this process ends without having dismissed it."""

    _DISMISSED = b"0"

    def __init__(self) -> None:
        orders, self._orders = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            os.close(self._orders)
            self._stand(orders)
        os.close(orders)

    def watch(self, group: int) -> None:
        """Kill this group if need be."""
        os.write(self._orders, b"%d\n" % group)

    def dismiss(self) -> None:
        """Let the guard go."""
        os.write(self._orders, self._DISMISSED + b"\n")
        os.close(self._orders)
        os.waitpid(self._process, 0)

    def _stand(self, orders: int) -> None:
        # In a session of its own: what kills the process group of the wrapper must not kill its guard.
        os.setsid()
        given = b""
        while read := os.read(orders, 64):
            given += read
        last = int(given.split()[-1]) if given else 0
        if last:
            _signal_group(last, signal.SIGKILL)
        os._exit(0)


def take_lock(folder: Path) -> int | None:
    """Lock the folder for all processes that inherit the returned file descriptor; None if it is locked.

    On a file system without locks the descriptor locks nothing: there the beat keeps attempts apart.
    """
    folder.mkdir(parents=True, exist_ok=True)
    low = open_own(folder / LOCK_FILE)
    # Scripts use descriptors below 10 for files of their own, which would drop the lock that they have inherited.
    descriptor = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, MIN_DESCRIPTOR)
    os.close(low)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        return descriptor
    if is_locked(folder / RUNNER_LOCK_FILE):
        os.close(descriptor)
        return None
    return descriptor


def open_own(path: Path) -> int:
    """A file of a run folder, made if it is missing, for reading and writing; never one to which a link leads.

    Raises:
        OSError: it is a link, or cannot be opened.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def is_locked(path: Path) -> bool:
    """Whether a process holds a lock file."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        try:
            # Shared, so that two people who only look do not take each other for a run.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False


def is_beating(folder: Path, own: str | None = None) -> bool:
    """Whether the last attempt lives, by its processes if they can be seen from here, else by the age of its beat.

    Args:
        folder: folder of the run.
        own: reference of a process whose beat does not count.
    """
    path = folder / BEAT_FILE
    beat = read_json(path)
    if beat is None or beat.get("process") == own:
        return False
    if boot_id() in str(beat.get("process")) and beat.get("namespace") == pid_namespace():
        return any(is_process(str(beat.get(name))) for name in ("process", "command"))
    try:
        renewed = path.stat().st_mtime
        if abs(time.time() - renewed) < STALE_SECONDS:
            return True
        # The clock of the file system decides: that of this machine may be ahead or behind.
        with tempfile.TemporaryFile(dir=folder) as probe:
            now = os.fstat(probe.fileno()).st_mtime
    except OSError:
        return False
    return now - renewed < STALE_SECONDS


def process_ref(pid: int) -> str | None:
    """Text that names a process and, unlike its id, never another one; None if it has ended.

    It holds the process id, the start in clock ticks after boot (field 22 of /proc/PID/stat) and the id of the boot.
    """
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The program's name, in brackets, may itself hold spaces and brackets.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in _ENDED else f"{pid} {fields[19]} {boot_id()}"


def is_process(ref: str) -> bool:
    """Whether the process behind a reference of `process_ref` lives."""
    pid = ref.partition(" ")[0]
    return pid.isdecimal() and process_ref(int(pid)) == ref


def boot_id() -> str:
    """Id of this machine's boot."""
    try:
        return (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return "unknown"


def pid_namespace() -> str:
    """Namespace in which process ids of this process hold; containers have their own."""
    try:
        return os.readlink(_PROC / "self" / "ns" / "pid")
    except OSError:
        return "unknown"


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is no such file or it holds something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def write_json(path: Path, value: object) -> None:
    """Replace a JSON file atomically."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    with temporary.open("x", encoding="utf-8") as file:
        file.write(json.dumps(value, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_exit(folder: Path, attempt: int, code: int, *, stopped: bool, reason: str = "") -> None:
    """Record how an attempt ended; on a full disk, one that has ended by itself leaves no record."""
    record = {"exit_code": code, "attempt": attempt, "stopped": stopped, "reason": reason}
    with suppress(OSError):
        write_json(folder / EXIT_FILE, {"kind": "run-exit", "schema_version": 2, **record})


def _deliver_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, cast("Iterable[int]", _WATCHED))


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _has_member(group: int) -> bool:
    """Whether a process of a group lives; in some containers those that have ended stay in the list of processes."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    for place in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = place.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if fields[0] not in _ENDED and int(fields[2]) == group:
                return True
    return False


def _say(message: str) -> None:
    sys.stderr.write(f"wrapper: {message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
