import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.stub_admin import StubAdmin
from tests.unit.cli.command_line import CommandLine


def complete(socket_path: Path, words: str) -> tuple[list[str], bytes]:
    """Return what bash would offer after `words`, and stderr."""
    environment = os.environ | {
        "_HIVECTL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "HIVE_ADMIN_SOCKET": str(socket_path),
    }
    argv = [sys.executable, "-m", "hivectl"]
    ended = subprocess.run(argv, env=environment, check=False, capture_output=True, timeout=20)
    return ended.stdout.decode().split(), ended.stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        pytest.param("hivectl show ", ["alice", "al-2", "bob"], id="all"),
        pytest.param("hivectl show al", ["alice", "al-2"], id="prefix"),
        pytest.param("hivectl stop bob al", ["alice", "al-2"], id="second-name"),
        pytest.param("hivectl stop bob ", ["alice", "al-2"], id="not-twice"),
        pytest.param("hivectl init new --parent b", ["bob"], id="parent"),
        pytest.param("hivectl init ", [], id="a-new-name"),
        pytest.param("hivectl rec", ["reconcile"], id="command"),
        pytest.param("hivectl quarantine bob al", ["alice", "al-2"], id="quarantine"),
        pytest.param("hivectl stop --all al", ["alice", "al-2"], id="optional-names"),
        pytest.param("hivectl wait al", ["alice", "al-2"], id="wait-for-an-agent"),
        pytest.param("hivectl wait bob cr", ["crash-looping"], id="wait-for-a-state"),
        pytest.param("hivectl explain bo", ["bob"], id="caller"),
        pytest.param("hivectl explain bob start al", ["alice", "al-2"], id="target"),
        pytest.param("hivectl audit v", ["verify"], id="verify"),
        pytest.param("hivectl ps -o j", ["json", "jsonl"], id="format"),
    ],
)
def test_completion_offers(admin: StubAdmin, words: str, offered: list[str]) -> None:
    admin.on("GET", "/v1/names", ["alice", "al-2", "bob", "$(reboot)", 7])
    assert complete(admin.socket_path, words) == (offered, b"")


def test_completion_is_silent_when_the_daemon_is_away(tmp_path: Path, admin: StubAdmin) -> None:
    assert complete(tmp_path / "none.sock", "hivectl show ") == ([], b"")
    admin.on("GET", "/v1/names", b"nonsense")
    assert complete(admin.socket_path, "hivectl show ") == ([], b"")
    admin.on("GET", "/v1/names", {"error": 1}, status=500)
    assert complete(admin.socket_path, "hivectl show ") == ([], b"")


def test_completion_gives_a_silent_daemon_little_time(tmp_path: Path) -> None:
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        began = time.monotonic()
        assert complete(path, "hivectl show ") == ([], b"")
    assert time.monotonic() - began < 2  # 0.15 s, and the start of a process on a busy machine


def test_the_completion_script_can_be_shown(hivectl: CommandLine) -> None:
    environment = os.environ | {"_HIVECTL_COMPLETE": "source_bash"}
    argv = [sys.executable, "-m", "hivectl"]
    ended = subprocess.run(argv, env=environment, check=False, capture_output=True, timeout=20)
    assert ended.returncode == 0
    assert b"complete" in ended.stdout
