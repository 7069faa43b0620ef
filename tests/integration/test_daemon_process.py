"""hived as a process: one per hive, told by systemd's protocol, and gone in time whatever hangs on it."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.hive_fixtures import MakeHive
from tests.support.live_hive import LiveHive, raw_connection

pytestmark = pytest.mark.integration

LIMIT_S = 20.0


def _run(hive: LiveHive, *arguments: str, limit_s: float = 30.0) -> subprocess.CompletedProcess[str]:
    """Run a further daemon of the same settings to its end."""
    return subprocess.run(
        hive.daemon_argv(*arguments), capture_output=True, text=True, timeout=limit_s, check=False
    )


# ---- what keeps it from starting --------------------------------------------------------------------------


def test_a_second_daemon_says_so_and_the_first_lives(hive: LiveHive) -> None:
    hive.spawn("bob")
    try:
        before, lives, status = hive.socket.stat(), hive.lives(), hive.status()
        second = _run(hive)
        assert second.returncode == 1
        assert second.stderr.count("\n") == 1
        assert f"another hived (pid {status['pid']}) is already running" in second.stderr
        assert hive.status()["pid"] == status["pid"]
        assert hive.socket.stat().st_ino == before.st_ino
        assert hive.lives() == lives
        hive.hivectl("stop", "bob")
    finally:
        hive.remove("bob")


def test_settings_that_are_none_are_a_usage_error(make_hive: MakeHive) -> None:
    hive = make_hive()
    for overrides, word in (
        ({"reconcile": {"intervall_s": 5}}, "intervall_s"),
        ({"hive": {"id": "Not An Id"}}, "id"),
        ({"paths": {"data": "relative"}}, "data"),
        ({"container": {"memory": "lots"}}, "memory"),
    ):
        hive.write_settings(overrides)
        refused = _run(hive, "check")
        assert refused.returncode == 2
        assert word in refused.stderr
        assert refused.stderr.count("\n") == 1
    assert _run(hive).returncode == 2
    assert not hive.data.exists()
    hive.write_settings()
    assert _run(hive, "check").returncode == 0
    assert not hive.data.exists()


def test_accounts_that_are_not_there_are_named_with_the_way_out(make_hive: MakeHive) -> None:
    hive = make_hive({"admin": {"group": "no-such-group"}})
    refused = _run(hive)
    assert refused.returncode == 1
    assert "groupadd --system no-such-group" in refused.stderr
    hive.write_settings({"admin": {"group": "hive"}, "git": {"user": "no-such-user"}})
    refused = _run(hive)
    assert refused.returncode == 1
    assert "useradd" in refused.stderr


def test_a_store_of_another_hive_is_refused(make_hive: MakeHive) -> None:
    hive = make_hive().start().settle()
    hive.terminate()
    hive.write_settings({"hive": {"id": "other"}})
    refused = _run(hive)
    assert refused.returncode == 1
    assert hive.id in refused.stderr


def test_a_root_that_others_can_write_is_refused(make_hive: MakeHive) -> None:
    hive = make_hive()
    hive.root.chmod(0o777)
    try:
        refused = _run(hive)
        assert refused.returncode == 1
        assert "others can write" in refused.stderr
    finally:
        hive.root.chmod(0o755)


# ---- how it stops -----------------------------------------------------------------------------------------


def test_sigterm_ends_it_in_time_whatever_hangs_on_it(make_hive: MakeHive) -> None:
    """A long poll, a change's wait, a followed log, an exec, a half-sent request and an idle connection."""
    hive = make_hive().start().settle()
    hive.spawn("bob", "sh", "-c", "echo ready; sleep 600")
    lives = hive.lives()
    after = hive.last_seq()
    clients = [
        _client(hive, "logs", "-f", "bob"),
        _client(hive, "exec", "bob", "--", "sh", "-c", "touch /state/mark; sleep 500"),
        _client(hive, "events", "-f"),
        _client(hive, "ps", "-w"),
    ]
    mark = hive.data / "agents" / "bob" / "state" / "mark"
    try:
        hive.wait_for(mark.exists, "the exec")
        with (
            raw_connection(hive.socket),
            raw_connection(hive.socket) as half,
            raw_connection(hive.socket) as poll,
        ):
            half.sendall(b"POST /v1/reconcile HTTP/1.1\r\nHost: hive\r\nContent-Length: 100\r\n\r\n{")
            poll.sendall(
                f"GET /v1/events?after={after + 5}&wait_s=25 HTTP/1.1\r\nHost: hive\r\n\r\n".encode()
            )
            took_s = hive.terminate()
        assert took_s < LIMIT_S
        # What follows one agent's stream ends with it; what follows the hive waits for the next daemon.
        for client in clients[:2]:
            assert client.wait(10) != 0
    finally:
        for client in clients:
            client.kill()
            client.communicate()
    assert hive.lives() == lives
    assert not hive.socket.exists() or not hive.answers()
    hive.start().settle()
    assert hive.lives() == lives
    assert hive.row("bob")["state"] == "running"


def _client(hive: LiveHive, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        hive.hivectl_argv(*arguments),
        env=hive.hivectl_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_sigterm_in_the_middle_of_a_stop_finishes_it_or_leaves_it_to_the_next(make_hive: MakeHive) -> None:
    hive = make_hive().start().settle()
    hive.spawn("deaf", "sh", "-c", "trap '' TERM; echo deaf; sleep 600")
    hive.wait_for(lambda: "deaf" in hive.hivectl("logs", "deaf").stdout, "its deafness")
    hive.hivectl("stop", "deaf", "--no-wait")
    hive.wait_state("deaf", "stopping")
    assert hive.terminate() < LIMIT_S
    hive.start().settle()
    assert hive.wait_state("deaf", "stopped")["desired"] == "stopped"
    assert [one["cause"] for one in hive.events("exited", "deaf")] in ([], ["requested"])


# ---- systemd ----------------------------------------------------------------------------------------------


class Notifications:
    """The receiving end of systemd's notification protocol."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self.seen: list[str] = []

    def wait_for(self, wanted: str, limit_s: float = 20.0) -> None:
        self._socket.settimeout(limit_s)
        while wanted not in self.seen:
            self.seen.append(self._socket.recv(4096).decode())

    def close(self) -> None:
        self._socket.close()


def test_systemd_is_told_ready_watchdog_and_stopping(make_hive: MakeHive) -> None:
    hive = make_hive()
    notes = Notifications(hive.root / "notify")
    try:
        hive.environment = {"NOTIFY_SOCKET": str(hive.root / "notify"), "WATCHDOG_USEC": str(600_000)}
        hive.start()
        notes.wait_for("READY=1")
        for _ in range(5):
            notes.seen.clear()
            notes.wait_for("WATCHDOG=1")
        assert "READY=1" not in notes.seen
        hive.terminate()
        notes.wait_for("STOPPING=1")
    finally:
        notes.close()


def test_ready_is_told_in_time_though_the_engine_is_away(make_hive: MakeHive) -> None:
    hive = make_hive({"engine": {"socket": "/nonexistent/engine.sock"}})
    notes = Notifications(hive.root / "notify")
    try:
        hive.environment = {"NOTIFY_SOCKET": str(hive.root / "notify")}
        hive.start()
        notes.wait_for("READY=1")
        assert hive.status()["phase"] == "degraded"
        assert hive.status()["engine"]["state"] == "unreachable"
        hive.terminate()
    finally:
        notes.close()


# ---- what its children get --------------------------------------------------------------------------------


def test_the_lock_is_nobody_elses_and_ends_with_the_daemon(make_hive: MakeHive) -> None:
    hive = make_hive().start().settle()
    hive.spawn("bob")
    assert hive.process is not None
    lock = (hive.data / "lock").stat()
    assert (lock.st_uid, lock.st_mode & 0o777) == (0, 0o600)
    hive.kill9()
    second = make_hive()
    second.settings_file.write_text(hive.settings_file.read_text())
    again = subprocess.Popen(second.daemon_argv(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        hive.wait_for(lambda: hive.answers() and hive.status()["pid"] == again.pid, "the next daemon")
    finally:
        again.terminate()
        assert again.wait(LIMIT_S) == 0


def test_a_foreign_git_environment_leads_nowhere(make_hive: MakeHive) -> None:
    hive = make_hive()
    hive.environment = {
        "GIT_DIR": "/nonexistent",
        "GIT_WORK_TREE": "/nonexistent",
        "GIT_INDEX_FILE": "/nonexistent/index",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": f"touch {hive.root}/pwned",
    }
    hive.start().settle()
    hive.spawn("bob")
    hive.push("bob", {"agent.toml": b'name = "bob"\n[container]\ncommand = ["sleep", "9"]\n'})
    assert not os.path.lexists(hive.root / "pwned")
    assert hive.status()["phase"] == "running"
