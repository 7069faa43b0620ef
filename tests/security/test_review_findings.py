"""Attacks that once worked, or had an effect nobody wanted: each must fail for good."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hive_core.adapters.docker_answers import engine_event
from hive_core.adapters.docker_body import create_body
from hive_core.domain.errors import InvalidManifest, InvalidSettings
from hive_core.domain.names import parse_name
from hive_core.domain.spec import LABEL_HIVE
from hive_core.manifest import parse_manifest
from hive_core.settings import load_settings
from tests.support.engine_rig import spec_for
from tests.support.live_hive import LiveHive, config
from tests.support.paths import AGENT_UID

pytestmark = pytest.mark.security

# One more than the daemon has threads for streams.
FOLLOWERS = 129
STEP_S = 10.0
STUCK_LOOKS = 30
HUGE_NUMBER = "1" * 5000
HUGE_CPUS = "1" * 400


# ---- manifests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"pids = {HUGE_NUMBER}", id="a-number-too-long-to-be-converted"),
        pytest.param(f"cpus = {HUGE_CPUS}", id="a-number-too-large-for-a-float"),
        pytest.param('image = "a/../../containers/h-ruth"', id="another-path-of-the-engine-s-api"),
        pytest.param('image = "a//b"', id="an-empty-part-of-a-path"),
    ],
)
def test_a_manifest_that_trips_a_parser_is_refused_as_a_manifest(line: str) -> None:
    text = f'name = "bob"\n[container]\ncommand = ["true"]\n{line}\n'
    with pytest.raises(InvalidManifest, match=r"agent\.toml"):
        parse_manifest(text.encode(), parse_name("bob"))


@pytest.mark.integration
def test_a_hostile_manifest_costs_its_own_agent_only(hive: LiveHive) -> None:
    hive.spawn("bob")
    hive.spawn("ann")
    try:
        hostile = config("bob", ("true",))["agent.toml"] + f"\ncpus = {HUGE_CPUS}\n".encode()
        hive.push("bob", {"agent.toml": hostile}, state="failed")
        hive.wait_for(lambda: hive.row("bob")["degraded"], "bob degraded")
        hive.verb("stop", "ann", now=True)
        assert hive.row("ann")["state"] == "stopped"
    finally:
        hive.remove("bob", "ann")


# ---- what an image brings along ---------------------------------------------------------------------------


def test_an_image_s_own_check_and_stop_signal_do_not_count() -> None:
    body = create_body(spec_for("h-bob", "sha256:0"), {})
    assert body["Healthcheck"] == {"Test": ["NONE"]}
    assert body["StopSignal"] == "SIGTERM"


# ---- availability -----------------------------------------------------------------------------------------


def test_children_killed_for_lack_of_memory_wake_nobody() -> None:
    actor = {"ID": "0" * 64, "Attributes": {LABEL_HIVE: "default"}}
    assert engine_event({"Type": "container", "Action": "oom", "Actor": actor}, "default") is None
    assert engine_event({"Type": "container", "Action": "die", "Actor": actor}, "default") is not None


@pytest.fixture
def silent(hive: LiveHive) -> Iterator[LiveHive]:
    """The shared hive with an agent that never writes a line."""
    hive.spawn("silent")
    yield hive
    hive.remove("silent")


@pytest.mark.integration
def test_followers_of_a_silent_agent_that_went_away_hold_nothing(silent: LiveHive) -> None:
    for _ in range(FOLLOWERS):
        with socket.socket(socket.AF_UNIX) as follower:
            follower.settimeout(STEP_S)
            follower.connect(str(silent.socket))
            follower.sendall(b"GET /v1/agents/silent/logs?tail=0&follow=true HTTP/1.1\r\nHost: hive\r\n\r\n")
            assert follower.recv(64).startswith(b"HTTP/1.1 200")
    silent.hivectl("logs", "silent", limit_s=STEP_S)
    silent.hivectl("exec", "silent", "--", "true", limit_s=STEP_S)


@pytest.mark.integration
def test_a_command_that_takes_no_input_ends_with_its_client(silent: LiveHive) -> None:
    command = "sleep 7357"
    with Path("/dev/zero").open("rb") as endless:
        client = subprocess.Popen(
            silent.hivectl_argv("exec", "silent", "--", *command.split()),
            env=silent.hivectl_environment(),
            stdin=endless,
        )
    try:
        silent.wait_for(lambda: command in _processes(silent), "the command")
        read_bytes: list[int] = []
        silent.wait_for(lambda: _is_stuck(client.pid, read_bytes), "a client whose input nobody takes")
    finally:
        client.kill()
        client.wait()
    silent.wait_for(lambda: command not in _processes(silent), "the end of the command")


def _is_stuck(pid: int, read_bytes: list[int]) -> bool:
    """Whether a process read nothing over the last times this was asked."""
    counters = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    read_bytes.append(int(counters["rchar"]))
    return len(set(read_bytes[-STUCK_LOOKS:])) == 1 and len(read_bytes) > STUCK_LOOKS


def _processes(hive: LiveHive) -> str:
    top = hive.raw.top(hive.row("silent")["container_id"])
    return "\n".join(process[-1] for process in top["Processes"])


# ---- settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "uid"),
    [
        pytest.param(0o664, 0, id="group-can-write"),
        pytest.param(0o646, 0, id="everybody-can-write"),
        pytest.param(0o600, AGENT_UID, id="somebody-else-s"),
    ],
)
def test_settings_that_others_can_write_are_refused(tmp_path: Path, mode: int, uid: int) -> None:
    file = tmp_path / "hive.toml"
    file.write_text('[hive]\nid = "x"\n')
    file.chmod(0o600)
    assert load_settings(file).hive.id == "x"
    os.chown(file, uid, uid)
    file.chmod(mode)
    with pytest.raises(InvalidSettings, match="can be written by others"):
        load_settings(file)


def test_settings_that_are_a_fifo_or_endless_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(InvalidSettings, match="no regular file"):
            load_settings(path)
    (tmp_path / "large").write_bytes(b"#" * (2 << 20))
    with pytest.raises(InvalidSettings, match="larger than"):
        load_settings(tmp_path / "large")
