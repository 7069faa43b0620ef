"""A command in a running container, and its end.

Used by the Docker adapter's `exec`. The engine never ends a command whose client went away, so `terminate`
does it from outside: it kills the session the command leads, process by process, each only after it was
seen to be in this container.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from docker.api.client import APIClient

from hive_core.adapters.docker_faults import engine_call, short, unavailable
from hive_core.adapters.docker_streams import EngineStream, Wire, deframe
from hive_core.domain.errors import EngineRefused, EngineUnavailable, HiveError
from hive_core.domain.ports import ExecRequest

_POLL_S = 0.02
_PID_WAIT_S = 2.0
_KILL_DEADLINE_S = 5.0
_RESIZE_TRIES = 10
# The engine would take ctrl-p ctrl-q in a terminal for the wish to leave the command running unattended,
# and hold back every ctrl-p to see what follows. It cannot be switched off; nobody types this.
_NO_DETACH = ",".join(["ctrl-^"] * 8)


class DockerExec:
    """One running exec: the `ExecSession` of the port."""

    def __init__(
        self,
        client: APIClient,
        stream: EngineStream,
        container_id: str,
        exec_id: str,
        tty: bool,
        timeout_s: float,
    ) -> None:
        self._client = client
        self._stream = stream
        self._container_id = container_id
        self._exec_id = exec_id
        self._timeout_s = timeout_s
        self._output = _tty_output(stream) if tty else deframe(_chunks(stream))
        self._reading = threading.Lock()
        self._is_over = False

    def read(self) -> tuple[int, bytes] | None:
        """Block for output: (1 or 2, bytes), or None at the end."""
        with self._reading:
            try:
                output = next(self._output, None)
                if output is None:
                    self._stream.release()
                return output
            except (OSError, EOFError, ValueError) as fault:
                if self._is_over:
                    return None
                raise unavailable(self._deed("read from"), fault) from fault

    def write(self, content: bytes) -> None:
        """Send bytes to the command's standard input; a command that is already gone takes none."""
        with suppress(OSError):
            self._stream.write(content)

    def close_stdin(self) -> None:
        """Tell the command that its standard input has ended."""
        with suppress(OSError):  # already gone
            self._stream.end_writing()

    def resize(self, rows: int, columns: int) -> None:
        """Tell the command's terminal its new size. The engine refuses until the command has started."""
        for _ in range(_RESIZE_TRIES):
            try:
                with engine_call(self._deed("resize the terminal of")):
                    self._client.exec_resize(self._exec_id, height=rows, width=columns)
                return
            except EngineRefused:
                if self._has_ended():
                    return
                time.sleep(_POLL_S)

    def exit_code(self) -> int:
        """Return the command's exit status; the engine knows it a moment after the output has ended."""
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            inspected = self._inspect()
            if not inspected["Running"] and inspected["ExitCode"] is not None:
                return int(inspected["ExitCode"])
            time.sleep(_POLL_S)
        raise EngineUnavailable(
            f"cannot {self._deed('learn the exit status of')}: it still runs though its output has ended"
        )

    def terminate(self) -> None:
        """End the command and everything in its session, and release the connection. Idempotent."""
        if self._is_over:
            return
        self._is_over = True
        try:
            leader = self._host_pid()
            if leader:
                kill_session(leader, self._container_id)
        finally:
            self._stream.close()
            with self._reading:
                self._stream.release()

    def _host_pid(self) -> int:
        """Return the command's host pid, once the engine has started it; 0 when it is gone."""
        deadline = time.monotonic() + _PID_WAIT_S
        while time.monotonic() < deadline:
            try:
                inspected = self._inspect()
            except EngineRefused:
                return 0
            if inspected["Pid"] or inspected["ExitCode"] is not None:
                return int(inspected["Pid"] or 0)
            time.sleep(_POLL_S)
        return 0

    def _has_ended(self) -> bool:
        try:
            return self._inspect()["ExitCode"] is not None
        except HiveError:
            return True

    def _inspect(self) -> dict[str, Any]:
        with engine_call(self._deed("look at")):
            inspected: dict[str, Any] = self._client.exec_inspect(self._exec_id)
        return inspected

    def _deed(self, verb: str) -> str:
        return f"{verb} a command in {short(self._container_id)}"


def start_exec(client: APIClient, wire: Wire, container_id: str, request: ExecRequest) -> DockerExec:
    """Start the command and return its session."""
    created = client.exec_create(
        container_id,
        list(request.argv),
        stdin=True,
        tty=request.tty,
        user=f"{request.uid}:{request.gid}",
        environment=[f"{name}={value}" for name, value in request.env],
        workdir=request.working_dir,
        detach_keys=_NO_DETACH,
    )
    body: dict[str, Any] = {"Detach": False, "Tty": request.tty}
    if request.tty:
        body["ConsoleSize"] = [request.rows, request.columns]  # engines before API 1.42 do not know it
    deed = f"run a command in {short(container_id)}"
    stream = wire.open("POST", f"/exec/{created['Id']}/start", deed=deed, body=body)
    session = DockerExec(client, stream, container_id, created["Id"], request.tty, wire.timeout_s)
    if request.tty:
        session.resize(request.rows, request.columns)
    return session


def _chunks(stream: EngineStream) -> Iterator[bytes]:
    while chunk := stream.read(None):
        yield chunk


def _tty_output(stream: EngineStream) -> Iterator[tuple[int, bytes]]:
    return ((1, chunk) for chunk in _chunks(stream))


def kill_session(leader: int, container_id: str) -> None:
    """SIGKILL every process of the session that host pid `leader` leads, as long as it is in this container.

    A fork may be under way while the list is read, so it goes on until nobody is left. The kernel does not
    reuse a session's number while it has members, so the number means the same session throughout.
    """
    deadline = time.monotonic() + _KILL_DEADLINE_S
    while time.monotonic() < deadline:
        members = [pid for pid in _pids() if _is_member(pid, leader, container_id)]
        if not members:
            return
        for pid in members:
            _kill_member(pid, leader, container_id)
        time.sleep(_POLL_S)


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _is_member(pid: int, session: int, container_id: str) -> bool:
    """Whether the process lives, in this session and in this container (by cgroup path, v1 and v2 alike)."""
    try:
        # The command name in parentheses may itself hold anything, so the fields are counted from its end.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        if fields[0] in (b"Z", b"X") or int(fields[3]) != session:
            return False
        return container_id in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


def _kill_member(pid: int, session: int, container_id: str) -> None:
    """Check between taking hold of the process and killing it: its pid may have been recycled meanwhile."""
    try:
        held = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if _is_member(pid, session, container_id):
            signal.pidfd_send_signal(held, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(held)
