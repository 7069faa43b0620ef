"""What `doctor` finds out about the host by doing it: opening, mounting, asking, running.

Called by `engine.doctor`. Nothing here leaves a trace: mounts are made in a namespace that ends with its
process, and every child and every exchange is bounded in time.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hive_core.adapters import mount_probe
from hive_core.adapters.docker_faults import engine_call, short
from hive_core.adapters.docker_transport import api_client
from hive_core.adapters.files import open_path, opened_directory
from hive_core.domain.errors import EngineRefused, EngineUnavailable, HostUnsuitable, UnsafePath

ENGINE_PID_FILE = Path("/run/docker.pid")
_CALL_LIMIT_S = 2.0
_PEERCRED = struct.Struct("iII")
_A_LINK = Path("/proc/self")


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The mount namespace of this process and of the engine's; None where it cannot be told."""

    engine_pid: int
    engine_program: str
    ours: str
    engines: str | None


def open_safely(directory: Path) -> str:
    """Return why directories cannot be opened without following links, empty when they can."""
    with opened_directory(directory):
        pass
    try:
        os.close(open_path(_A_LINK, directory=True))
    except UnsafePath:
        return ""
    return f"the kernel followed the link {_A_LINK}"


def idmap_refusal(directory: Path) -> str:
    """Return why id-mapped mounts of a directory are impossible, empty when one could be made."""
    program = [sys.executable, "-I", "-S", mount_probe.__file__, os.fspath(directory)]
    try:
        done = subprocess.run(
            program,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CALL_LIMIT_S,
            check=False,
            cwd="/",
            env={},
        )
    except subprocess.TimeoutExpired:
        return f"it took longer than {_CALL_LIMIT_S:g} s"
    if done.returncode == 0:
        return ""
    lines = (done.stdout or done.stderr).decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else f"the probe ended with status {done.returncode}"


def can_enter(uid: int, gid: int, directory: Path) -> bool:
    """Whether a process of this user, in no other group, can enter a directory."""
    try:
        done = subprocess.run(
            ["test", "-x", os.fspath(directory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_CALL_LIMIT_S,
            check=False,
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
            user=uid,
            group=gid,
            extra_groups=[],
        )
    except (OSError, subprocess.SubprocessError) as fault:
        raise HostUnsuitable(f"cannot run a program as uid {uid}: {fault}") from fault
    return done.returncode == 0


def namespaces(engine_socket: Path, pid_file: Path = ENGINE_PID_FILE) -> Namespaces:
    """Return the mount namespaces of this process and of the one that listens on the engine's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        wire.settimeout(_CALL_LIMIT_S)
        try:
            wire.connect(os.fspath(engine_socket))
        except OSError as fault:
            raise EngineUnavailable(
                f"cannot connect to {engine_socket}: {fault.strerror or fault}"
            ) from fault
        pid = _PEERCRED.unpack(wire.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size))[0]
    if pid == 1:
        # The init system listens for an engine that it starts on demand.
        pid = _pid_in(pid_file) or pid
    return Namespaces(pid, _program_of(pid), os.readlink("/proc/self/ns/mnt"), _mount_namespace(pid))


def _pid_in(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _program_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "unknown"


def _mount_namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return None


def inspect_containers(
    engine_socket: Path, api: str, container_ids: Sequence[str], limit_s: float
) -> Mapping[str, Mapping[str, Any]]:
    """Return the engine's whole account of each container; one that is gone is left out.

    Raises EngineUnavailable when not all have answered within `limit_s`.
    """
    found: dict[str, Mapping[str, Any]] = {}
    deadline = time.monotonic() + limit_s
    with closing(api_client(os.fspath(engine_socket), _CALL_LIMIT_S, api)) as client:
        for container_id in container_ids:
            if time.monotonic() > deadline:
                raise EngineUnavailable(
                    f"cannot inspect all containers: {len(found)} of {len(container_ids)} in {limit_s:g} s",
                    "the engine is slow; try again",
                )
            try:
                with engine_call(f"inspect {short(container_id)}"):
                    found[container_id] = client.inspect_container(container_id)
            except EngineRefused as refused:
                if not refused.is_gone:
                    raise
    return found
