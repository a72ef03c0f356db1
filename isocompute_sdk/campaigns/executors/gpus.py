"""The GPUs that processes started here may use, and the claims that keep runs apart."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from isocompute_sdk.run_folders.wrapper import LEAST_DESCRIPTOR

VARIABLE = "CUDA_VISIBLE_DEVICES"
NVIDIA_SMI_SECONDS = 60
"""Time limit of nvidia-smi, which takes seconds on a machine with many GPUs and no persistence daemon."""
_LISTED = re.compile(r"^(?P<indent>\s*)(?P<kind>GPU|MIG) .*\(UUID: (?P<uuid>[^)\s]+)\)")


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one MIG slice of a GPU."""

    token: str
    """Its name in CUDA_VISIBLE_DEVICES: an index, a GPU UUID or a MIG UUID."""
    uuid: str
    """Its UUID; the token if nothing tells the UUID."""


def visible_gpus() -> tuple[Gpu, ...]:
    """GPUs of CUDA_VISIBLE_DEVICES; all GPUs of the machine if it is unset.

    Like CUDA, ends the list at the first token that names no device: "" and "-1" are no GPU, "0,-1,1" is GPU 0.
    """
    stated = os.environ.get(VARIABLE)
    # Nothing runs for a variable that hides every GPU.
    if stated is not None and (not stated.strip() or stated.strip().startswith("-")):
        return ()
    listed = _machine()
    if stated is None:
        return tuple(Gpu(uuid, uuid) for _, uuid in listed)
    found: dict[str, Gpu] = {}
    for token in (part.strip() for part in stated.split(",")):
        uuid = _uuid(token, listed)
        if uuid is None:
            break
        found.setdefault(uuid, Gpu(token, uuid))
    return tuple(found.values())


def claim(gpus: Sequence[Gpu], count: int) -> tuple[tuple[Gpu, ...], tuple[socket.socket, ...]] | None:
    """Claim `count` of the GPUs that no other run on this machine has claimed; None if there are fewer.

    A claim lasts until every process that has inherited its socket has ended, whatever ended them, so that a run keeps
    its GPUs when its controller is killed. It holds against all campaigns and users in one network namespace.
    """
    with ExitStack() as stack:
        claimed: list[tuple[Gpu, socket.socket]] = []
        for gpu in gpus:
            if len(claimed) == count:
                break
            # A name in the abstract namespace of Unix sockets: unlike a lock file, nothing can remove it.
            claimant = stack.enter_context(socket.socket(socket.AF_UNIX))
            try:
                claimant.bind(f"\0isocompute-gpu-{gpu.uuid}"[:100])
            except OSError:
                continue
            claimed.append((gpu, claimant))
        if len(claimed) < count:
            return None
        kept = tuple((gpu, _out_of_the_way(claimant)) for gpu, claimant in claimed)
        return tuple(gpu for gpu, _ in kept), tuple(claimant for _, claimant in kept)


def _out_of_the_way(claimant: socket.socket) -> socket.socket:
    """A copy with a number that scripts, which inherit it, do not use for files of their own."""
    return socket.socket(fileno=fcntl.fcntl(claimant, fcntl.F_DUPFD_CLOEXEC, LEAST_DESCRIPTOR))


def _uuid(token: str, listed: Sequence[tuple[int, str]]) -> str | None:
    """UUID of a token; None if it names no device."""
    if token.isdecimal():
        if not listed:
            return token
        return next((uuid for index, uuid in listed if index == int(token)), None)
    if not token.startswith(("GPU-", "MIG-")):
        return None
    # CUDA accepts the beginning of a UUID.
    return next((uuid for _, uuid in listed if uuid.startswith(token)), token)


def _machine() -> list[tuple[int, str]]:
    """Index and UUID of all GPUs of the machine; of a GPU with MIG slices, those of the slices.

    Empty if nvidia-smi cannot tell.
    """
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=NVIDIA_SMI_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    gpus: list[list[str]] = []
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        match = _LISTED.match(line)
        if match is None:
            continue
        if match["kind"] == "GPU":
            gpus.append([match["uuid"]])
        elif gpus:
            gpus[-1].append(match["uuid"])
    return [(index, uuid) for index, uuids in enumerate(gpus) for uuid in uuids[1:] or uuids]
