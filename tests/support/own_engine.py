"""A Docker Engine of the tests' own: started, killed and cleaned away without touching the host's.

Used by the engine fixtures, and by tests that need an engine they may restart or kill. It has its own network
namespace (a second engine in the host's would delete the first one's bridge), its own containerd (the engine
would otherwise join one that already runs on the host), its own data and exec roots and sockets. It shares
the host's mount namespace on purpose: live grants are mounts that have to reach its containers.

Everything it starts or mounts is found again by its directory's unique path, and goes with it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import requests
from docker.api.client import APIClient
from docker.errors import APIError, DockerException

from hive_core.adapters.docker_transport import api_client
from tests.support.host_processes import all_pids, command_line, is_alive, parent, started_at

PARENT = Path("/var/tmp")  # on disk: image layers in a memory file system would eat the host's memory
PREFIX = "hive-engine-"
OWNER = "owner"  # in each engine's directory: the process that runs it, and when that one started
START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 15.0
_POLL_S = 0.02
_MNT_DETACH = 2
_LOG_TAIL_BYTES = 4000
_libc = ctypes.CDLL(None, use_errno=True)


class OwnEngineError(Exception):
    """The engine of the tests did not start or did not go away; carries the end of its log."""


class OwnEngine:
    """One engine in one directory. Not thread-safe: one test or fixture drives it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "docker.sock"
        self.containerd_log = directory / "containerd.log"
        self.log = directory / "dockerd.log"
        self._containerd_socket = directory / "containerd.sock"
        self._containerd: subprocess.Popen[bytes] | None = None
        self._dockerd: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The engine's process id; `OwnEngineError` when it does not run."""
        if self._dockerd is None:
            raise OwnEngineError("the engine is not running")
        return self._dockerd.pid

    def start(self) -> None:
        """Start the engine (and its containerd) and return once it answers."""
        if self._containerd is None or self._containerd.poll() is not None:
            self._containerd = self._spawn(self._containerd_argv(), self.containerd_log)
            self._wait(self._containerd_socket.exists, self._containerd, self.containerd_log, "containerd")
        (self.directory / "docker.pid").unlink(missing_ok=True)
        self._dockerd = self._spawn(self._dockerd_argv(), self.log)
        self._wait(self.answers, self._dockerd, self.log, "dockerd")

    def answers(self) -> bool:
        """Whether the engine answers a ping now."""
        client = self.client(timeout_s=2)
        try:
            return bool(client.ping())
        except (requests.RequestException, DockerException):
            return False
        finally:
            client.close()

    def client(self, timeout_s: int = 30) -> APIClient:
        """Return a plain client to prepare and look at the engine with."""
        return api_client(str(self.socket), timeout_s, "1.41")

    def restart(self) -> None:
        """Stop the engine the way a package upgrade does, and start it again."""
        self._end(self._dockerd)
        self.start()

    def kill(self) -> None:
        """Kill the engine and its containerd at once; containers' processes live on, as after a crash."""
        for process in (self._dockerd, self._containerd):
            if process is not None:
                process.kill()
                process.wait()
        self._dockerd = self._containerd = None

    def stop(self) -> None:
        """End everything and remove every trace, whatever state it is in."""
        if self._dockerd is not None and self._dockerd.poll() is None:
            self._kill_containers()
        self._end(self._dockerd)
        self._end(self._containerd)
        self._dockerd = self._containerd = None
        self._kill_leftover_processes()
        _unmount_below(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)
        if self.directory.exists():
            raise OwnEngineError(f"cannot remove {self.directory}: something still holds it")

    def log_tail(self) -> str:
        """Return the end of the engine's log, for messages of failing tests."""
        return _tail(self.log)

    def _containerd_argv(self) -> list[str]:
        return [
            "containerd",
            *("--address", str(self._containerd_socket)),
            *("--root", str(self.directory / "containerd-root")),
            *("--state", str(self.directory / "containerd-state")),
            *("--config", str(self._containerd_config())),
            *("--log-level", "warn"),
        ]

    def _containerd_config(self) -> Path:
        """Switch off what the tests never use; it halves the start time and the log."""
        config = self.directory / "containerd.toml"
        config.write_text(
            "version = 2\n"
            'disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt",'
            ' "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",'
            ' "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]\n'
        )
        return config

    def _dockerd_argv(self) -> list[str]:
        return [
            *("dockerd", "--host", f"unix://{self.socket}", "--group", "root"),
            *("--containerd", str(self._containerd_socket)),
            *("--data-root", str(self.directory / "data")),
            *("--exec-root", str(self.directory / "exec")),
            *("--pidfile", str(self.directory / "docker.pid")),
            *("--config-file", str(self._empty_config())),
            *("--bridge=none", "--iptables=false", "--ip-masq=false", "--ip-forward=false"),
            *("--log-level", "warn"),
        ]

    def _empty_config(self) -> Path:
        """Keep the host's /etc/docker/daemon.json out of it."""
        config = self.directory / "daemon.json"
        config.write_text("{}\n")
        return config

    def _spawn(self, argv: list[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                ["unshare", "--net", "--", *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _wait(
        self, is_ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, name: str
    ) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while not is_ready():
            if process.poll() is not None:
                raise OwnEngineError(f"{name} ended with status {process.returncode}:\n{_tail(log)}")
            if time.monotonic() > deadline:
                raise OwnEngineError(f"{name} did not answer in {START_DEADLINE_S:g} s:\n{_tail(log)}")
            time.sleep(_POLL_S)

    def _kill_containers(self) -> None:
        """The engine would stop leftovers politely, one grace each: kill them first."""
        with suppress(requests.RequestException, DockerException):
            client = self.client(timeout_s=10)
            for container in client.containers(quiet=True):
                with suppress(APIError):
                    client.kill(container["Id"])
            client.close()

    def _end(self, process: subprocess.Popen[bytes] | None) -> None:
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _kill_leftover_processes(self) -> None:
        """End what a killed engine or a killed test run left: daemons and shims that name this directory,
        and the containers below the shims."""
        daemons = [pid for pid in all_pids() if self._is_of_this_engine(pid)]
        victims = daemons + [pid for pid in all_pids() if parent(pid) in daemons and parent(pid) > 1]
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + STOP_DEADLINE_S
        while any(is_alive(pid) for pid in victims) and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _is_of_this_engine(self, pid: int) -> bool:
        program, *arguments = command_line(pid) or [""]
        is_daemon = os.path.basename(program).startswith(("dockerd", "containerd"))
        return is_daemon and any(f"{self.directory}/" in argument for argument in arguments)


@contextmanager
def own_engine() -> Iterator[OwnEngine]:
    """Run an engine of one's own for the length of a `with`; it is gone afterwards, also on failure."""
    sweep()
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=PARENT))
    (directory / OWNER).write_text(f"{os.getpid()} {started_at(os.getpid())}")
    engine = OwnEngine(directory)
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()


def sweep() -> None:
    """Remove the engines of test runs that were killed before they could do it themselves."""
    for directory in PARENT.glob(f"{PREFIX}*"):
        with suppress(FileNotFoundError, ValueError):
            pid, started = (directory / OWNER).read_text().split()
            if started_at(int(pid)) != int(started):
                OwnEngine(directory).stop()


def _tail(log: Path) -> str:
    try:
        return log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
    except FileNotFoundError:
        return ""


def _unmount_below(directory: Path) -> None:
    """Detach every mount below the directory, deepest first, so that removing it can follow none."""
    mounts = _mounts_below(directory)
    for mount in sorted(mounts, key=len, reverse=True):
        _libc.umount2(os.fsencode(mount), _MNT_DETACH)
    left = _mounts_below(directory)
    if left:
        raise OwnEngineError(f"cannot unmount {', '.join(left)}")


def _mounts_below(directory: Path) -> list[str]:
    below = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount = line.split()[4].encode().decode("unicode_escape")
        if mount.startswith(f"{directory}/"):
            below.append(mount)
    return below
