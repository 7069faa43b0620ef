"""A whole hive for tests: a real daemon process on a real engine, driven the way an operator drives it.

Used by tests/integration, tests/faults and tests/security through the fixtures in `hive_fixtures`. Each hive
has an id, roots, a uid range and, if wanted, a fault proxy of its own, so it meets neither other hives on the
host nor other tests. Whatever happens in a test, `close` leaves nothing behind: no process, container, mount
or directory.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from docker.api.client import APIClient
from docker.errors import APIError

from hive_api.client import POLL_TIMEOUT_S, AdminClient, ClientError
from hive_core.domain.names import AgentName, container_name
from hive_core.domain.spec import LABEL_HIVE
from tests.support.fault_proxy import FaultProxy
from tests.support.own_engine import OwnEngine
from tests.support.paths import make_root, remove_root
from tests.support.tiny_image import LABEL

T = TypeVar("T")
Json = Any

SLEEP = ("sleep", "600")
FOREIGN_LABEL = f"{LABEL}.rig"
DEADLINE_S = 30.0
STOP_DEADLINE_S = 25.0
UIDS = 256
_PROGRAMS = Path(sys.executable).parent
_POLL_S = 0.03
_FIRST_UID = 1_910_000_000
_LOG_TAIL_BYTES = 6000

Settings = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command line ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Json:
        """Stdout, parsed."""
        return json.loads(self.stdout)


@dataclass(slots=True)
class LiveHive:
    """One hive. Not started by being made; see `live_hive`."""

    engine_socket: Path
    image: str
    raw: APIClient
    overrides: Settings
    with_proxy: bool = False
    root: Path = field(default_factory=make_root)
    id: str = field(default_factory=lambda: f"t{secrets.token_hex(4)}")
    proxy: FaultProxy | None = None
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        if self.with_proxy:
            self.proxy = FaultProxy(self.root / "e.sock", self.engine_socket)
            self.proxy.start()
        self.write_settings()

    # ---- places --------------------------------------------------------------------------------------------

    @property
    def data(self) -> Path:
        """Its paths.data."""
        return self.root / "d"

    @property
    def run_dir(self) -> Path:
        """Its paths.run."""
        return self.root / "r"

    @property
    def socket(self) -> Path:
        """Its admin socket."""
        return self.run_dir / "admin.sock"

    @property
    def roster_file(self) -> Path:
        """Where it publishes its roster."""
        return self.data / "meta" / "topology.json"

    @property
    def settings_file(self) -> Path:
        """The settings it is started with."""
        return self.root / "hive.toml"

    @property
    def log_file(self) -> Path:
        """What the daemon wrote to stderr, over all its lives."""
        return self.root / "hived.log"

    def log(self) -> str:
        """Return what the daemon wrote."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def complaint(self, what: str) -> str:
        """Return the message of a failure: what went wrong, and the end of the daemon's log."""
        return f"{what}\n--- the log of hived ({self.id}):\n{self.log()[-_LOG_TAIL_BYTES:]}"

    # ---- settings ------------------------------------------------------------------------------------------

    def write_settings(self, overrides: Settings | None = None) -> None:
        """Write the settings file: the harness's own, what this hive was made with, then `overrides`."""
        tables: dict[str, dict[str, object]] = {
            "hive": {"id": self.id, "ruthless": True},
            "paths": {"data": str(self.data), "run": str(self.run_dir)},
            "engine": {"socket": str(self.proxy.path if self.proxy else self.engine_socket)},
            "reconcile": {"interval_s": 30},
            "crashes": {"backoff_initial_s": 0.05, "backoff_max_s": 1},
            "uids": {"reserve": False, "count": UIDS, "start": _FIRST_UID + int(self.id[1:5], 16) * UIDS},
            "container": {"image": self.image, "memory": "64m", "pids": 32, "tmp": "4m", "stop_grace_s": 5},
        }
        for layer in (self.overrides, overrides or {}):
            for table, values in layer.items():
                tables.setdefault(table, {}).update(values)
        text = "".join(
            f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
            for table, values in tables.items()
        )
        self.settings_file.write_text(text)

    # ---- the daemon ----------------------------------------------------------------------------------------

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the daemon and return at once."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self.daemon_argv(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**_environment(), **self.environment},
            )
        return self.process

    def daemon_argv(self, *arguments: str) -> list[str]:
        """Return the command line of this hive's daemon."""
        return [str(_PROGRAMS / "hived"), "--settings", str(self.settings_file), *arguments]

    def start(self) -> LiveHive:
        """Start the daemon and return once its socket answers."""
        process = self.launch()
        deadline = time.monotonic() + DEADLINE_S
        while not self.answers():
            assert process.poll() is None, self.complaint(f"hived ended with {process.returncode}")
            assert time.monotonic() < deadline, self.complaint("hived does not answer")
            time.sleep(_POLL_S)
        return self

    def settle(self) -> LiveHive:
        """Return once a pass has ended and the hive is in phase `running` with nothing to do."""
        self.wait_for(lambda: self.status()["phase"] == "running", "phase running")
        self.wait_for(lambda: not self.plan()["actions"], "an empty plan")
        return self

    def answers(self) -> bool:
        """Whether the daemon answers on its socket."""
        try:
            self.status()
        except ClientError:
            return False
        return True

    def kill9(self) -> None:
        """Kill the daemon at once."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self, limit_s: float = STOP_DEADLINE_S) -> float:
        """Stop the daemon the polite way, demand status 0, and return how long it took in seconds."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.complaint(f"hived still runs {limit_s:g} s after SIGTERM")) from None
        assert status == 0, self.complaint(f"hived ended with {status}")
        return time.monotonic() - began

    def restart(self) -> LiveHive:
        """Stop the daemon the polite way and start it again."""
        self.terminate()
        return self.start()

    def close(self) -> None:
        """Take everything away, whatever state it is in."""
        try:
            if self.process is not None and self.process.poll() is None:
                self.kill9()
            if self.proxy is not None:
                self.proxy.stop()
            self._remove_containers()
        finally:
            self.raw.close()
            remove_root(self.root)

    def _remove_containers(self) -> None:
        for label in (f"{LABEL_HIVE}={self.id}", f"{FOREIGN_LABEL}={self.id}"):
            for row in self.raw.containers(all=True, filters={"label": label}):
                with suppress(APIError):
                    self.raw.remove_container(row["Id"], force=True, v=True)

    # ---- what an operator does -----------------------------------------------------------------------------

    @property
    def api(self) -> AdminClient:
        """A client of the admin API."""
        return AdminClient(str(self.socket), POLL_TIMEOUT_S)

    def hivectl(self, *arguments: str, expect: int | None = 0, limit_s: float = 60.0) -> Finished:
        """Run the command line as a process; `expect` is the exit status it must have, None for any."""
        done = subprocess.run(
            self.hivectl_argv(*arguments),
            env=self.hivectl_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
        ended = Finished(
            done.returncode,
            done.stdout.decode(errors="surrogateescape"),
            done.stderr.decode(errors="replace"),
        )
        said = f"hivectl {' '.join(arguments)} ended with {ended.status}: {ended.stdout}{ended.stderr}"
        assert expect is None or ended.status == expect, self.complaint(said)
        return ended

    @staticmethod
    def hivectl_argv(*arguments: str) -> list[str]:
        """Return a command line of hivectl."""
        return [str(_PROGRAMS / "hivectl"), *arguments]

    def hivectl_environment(self) -> dict[str, str]:
        """Return the environment that leads hivectl here."""
        return {**_environment(), "HIVE_ADMIN_SOCKET": str(self.socket), "TERM": "xterm", "NO_COLOR": "1"}

    def change(self, change: Json, state: str = "done") -> Json:
        """Wait for the end of a change and demand how it ended."""
        deadline = time.monotonic() + DEADLINE_S
        while change["state"] == "running":
            assert time.monotonic() < deadline, self.complaint(f"the change goes on for ever: {change}")
            change = self.api.get(f"/v1/changes/{change['id']}", {"wait_s": 5})
        assert change["state"] == state, self.complaint(f"the change ended otherwise: {change}")
        return change

    def init(self, name: str, *command: str, parent: str | None = None, **container: object) -> None:
        """Create an agent that runs `command` (one that sleeps if none is given), by the API."""
        files = config(name, command or SLEEP, **container)
        body = {"name": name, "parent": parent, "top_level": parent is None, "files": wire(files)}
        self.change(self.api.post("/v1/agents", body))

    def push(self, name: str, files: Mapping[str, bytes], state: str = "done") -> Json:
        """Push config files by the API."""
        return self.change(self.api.put(f"/v1/agents/{name}/config", {"files": wire(files)}), state)

    def verb(self, verb: str, *names: str, now: bool = False, state: str = "done") -> Json:
        """Apply a lifecycle verb by the API and wait for its change."""
        body = {"names": list(names), "now": now}
        return self.change(self.api.post(f"/v1/lifecycle/{verb}", body), state)

    def spawn(self, name: str, *command: str, parent: str | None = None, **container: object) -> Json:
        """Create an agent, spawn it, and return its row."""
        self.init(name, *command, parent=parent, **container)
        self.verb("spawn", name)
        return self.row(name)

    def remove(self, *names: str) -> None:
        """Purge agents that a shared hive should no longer have."""
        for name in names:
            self.change(self.api.delete(f"/v1/agents/{name}", {"purge": True}))

    def folder(self, name: str, files: Mapping[str, bytes]) -> Path:
        """Write config files into a folder of the operator's."""
        folder = self.root / "folders" / f"{name}-{secrets.token_hex(3)}"
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        return folder

    # ---- what is seen --------------------------------------------------------------------------------------

    def status(self) -> Json:
        """Return the daemon's status."""
        return AdminClient(str(self.socket), 5.0).get("/v1/status")

    def problems(self) -> dict[str, str]:
        """Return the problems by code; of several with one code, the last."""
        return {one["code"]: one["text"] for one in self.status()["problems"]}

    def plan(self) -> Json:
        """Return what a pass would do now."""
        return self.api.post("/v1/reconcile", {"dry_run": True})

    def reconcile(self) -> None:
        """Run a pass and wait for it and what it decided."""
        self.change(self.api.post("/v1/reconcile", {"dry_run": False}))

    def rows(self) -> dict[str, Json]:
        """Return the rows of `ps` by name."""
        return {row["name"]: row for row in self.api.get("/v1/agents")}

    def row(self, name: str) -> Json:
        """Return one agent's row."""
        return self.rows()[name]

    def show(self, name: str) -> Json:
        """Return everything about one agent."""
        return self.api.get(f"/v1/agents/{name}")

    def events(self, kind: str = "", agent: str | None = None) -> list[Json]:
        """Return the last thousand events, those of a kind and an agent if given."""
        found = self.api.get("/v1/events", {"limit": 1000})
        return [
            one for one in found if kind in ("", one["kind"]) and (agent is None or agent == one["agent"])
        ]

    def container(self, name: str) -> str:
        """Return the name of an agent's container."""
        return container_name(self.id, AgentName(name))

    def inspect(self, name: str) -> Json:
        """Return what the engine says of an agent's container, asked by the id hive shows."""
        return self.raw.inspect_container(self.row(name)["container_id"])

    def containers(self, name: str | None = None) -> list[Json]:
        """Return the engine's rows of this hive's containers, or of one agent's."""
        labels = [f"{LABEL_HIVE}={self.id}", *([f"dev.hive.agent={name}"] if name else [])]
        return list(self.raw.containers(all=True, filters={"label": labels}))

    def lives(self) -> dict[str, tuple[str, str]]:
        """Return the (id, StartedAt) of every container by its name, straight from the engine."""
        found = {}
        for row in self.containers():
            detail = self.raw.inspect_container(row["Id"])
            found[detail["Name"].removeprefix("/")] = (detail["Id"], detail["State"]["StartedAt"])
        return found

    # ---- waiting -------------------------------------------------------------------------------------------

    def wait_for(self, condition: Callable[[], T | None], what: str, limit_s: float = DEADLINE_S) -> T:
        """Return the first true answer of `condition`; fails with `what` and the log when it never comes."""
        deadline = time.monotonic() + limit_s
        while not (found := condition()):
            assert time.monotonic() < deadline, self.complaint(f"waited {limit_s:g} s for {what}")
            time.sleep(_POLL_S)
        return found

    def wait_state(self, name: str, state: str, limit_s: float = DEADLINE_S) -> Json:
        """Return an agent's row once it is in a state."""
        deadline = time.monotonic() + limit_s
        while (row := self.rows().get(name)) is None or row["state"] != state:
            assert time.monotonic() < deadline, self.complaint(f"{name} never became {state}: {row}")
            time.sleep(_POLL_S)
        return row

    def wait_event(
        self, kind: str, agent: str | None = None, after: int = 0, limit_s: float = DEADLINE_S
    ) -> Json:
        """Return the first event of a kind after a number, waiting for it."""
        return self.wait_for(
            lambda: next((one for one in self.events(kind, agent) if one["seq"] > after), None),
            f"an event {kind} of {agent or 'anybody'}",
            limit_s,
        )

    def last_seq(self) -> int:
        """Return the number of the newest event."""
        events = self.api.get("/v1/events", {"limit": 1})
        return int(events[-1]["seq"]) if events else 0


def config(name: str, command: Sequence[str] = SLEEP, **container: object) -> dict[str, bytes]:
    """Return the files of a config repo whose agent runs `command`; `container` are manifest keys."""
    keys: dict[str, object] = {"command": list(command), **container}
    lines = "".join(f"{key} = {_toml(value)}\n" for key, value in keys.items())
    return {"agent.toml": f'name = "{name}"\ndescription = "A test."\n[container]\n{lines}'.encode()}


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {json.dumps(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


def wire(files: Mapping[str, bytes]) -> list[dict[str, object]]:
    """Return config files as the API takes them."""
    return [
        {"path": path, "content": base64.b64encode(content).decode(), "executable": False}
        for path, content in files.items()
    ]


def _environment() -> dict[str, str]:
    """The test's own environment without what would lead hive's programs elsewhere."""
    foreign = ("HIVE_", "NOTIFY_SOCKET", "WATCHDOG_", "DOCKER_")
    return {key: value for key, value in os.environ.items() if not key.startswith(foreign)}


@contextmanager
def live_hive(
    engine: OwnEngine, image: str, settings: Settings | None = None, *, with_proxy: bool = False
) -> Iterator[LiveHive]:
    """Make a hive, not started, for the length of a `with`."""
    hive = LiveHive(engine.socket, image, engine.client(), settings or {}, with_proxy)
    try:
        yield hive
    finally:
        hive.close()


@contextmanager
def raw_connection(path: Path, limit_s: float = 10.0) -> Iterator[socket.socket]:
    """Connect to a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire_:
        wire_.settimeout(limit_s)
        wire_.connect(str(path))
        yield wire_
