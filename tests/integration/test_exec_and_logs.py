"""exec, logs and completion on a real hive: codes, identities, endings, and output that bites terminals."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.live_hive import LiveHive, raw_connection
from tests.support.terminals import on_terminal

pytestmark = pytest.mark.integration

# What an agent might print to drive the operator's terminal: clear, title, link, clipboard, NUL, bad UTF-8.
NASTY = rb"A\033[2J\033]0;pwned\007\033]8;;http://x\033\\\033]52;c;cHduZWQ=\007\000\377\302\233mB"
# Older engines tell a terminal its size only after its command has begun.
AWAIT_SIZE = 'until [ "$(stty size)" != "0 0" ]; do :; done'
ESCAPES = (b"\x1b", b"\x9b", b"\x07", b"\x00", b"\xff")


@pytest.fixture(scope="module")
def bob(hive: LiveHive) -> Iterator[LiveHive]:
    """The shared hive with bob running in it: he says five lines and sleeps."""
    hive.spawn(
        "bob",
        "sh",
        "-c",
        f"for n in 1 2 3 4 5; do echo line $n; done; printf '{NASTY.decode()}\\n'; sleep 600",
    )
    hive.wait_for(lambda: "B\n" in hive.hivectl("logs", "bob").stdout, "his words")
    yield hive
    hive.remove("bob")


# ---- exec -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 3, 42, 125, 255])
def test_exec_exits_as_its_command(bob: LiveHive, code: int) -> None:
    bob.hivectl("exec", "bob", "--", "sh", "-c", f"exit {code}", expect=code)


def test_exec_of_a_missing_program_and_a_signal(bob: LiveHive) -> None:
    missing = bob.hivectl("exec", "bob", "--", "no-such-program", expect=None)
    assert missing.status in (126, 127)
    bob.hivectl("exec", "bob", "--", "sh", "-c", "kill -9 $$", expect=137)


def test_exec_runs_as_the_agent_and_nobody_else(bob: LiveHive) -> None:
    uid = bob.show("bob")["uid"]
    assert (
        bob.hivectl("exec", "bob", "--", "id").stdout
        == f"uid={uid}(agent) gid={uid}(agent) groups={uid}(agent)\n"
    )
    script = (
        "pwd; echo $HOME; echo $HIVE_AGENT; grep -E 'Cap(Eff|Prm|Bnd|Inh|Amb)|NoNewPrivs' /proc/self/status"
    )
    said = bob.hivectl("exec", "bob", "--", "sh", "-c", script).stdout.splitlines()
    assert said[:3] == ["/state", "/home/agent", "bob"]
    facts = dict(line.split(":\t") for line in said[3:])
    assert facts.pop("NoNewPrivs") == "1"
    assert set(facts.values()) == {"0" * 16}


def test_exec_keeps_its_streams_apart_and_its_bytes_whole(bob: LiveHive) -> None:
    ran = subprocess.run(
        bob.hivectl_argv("exec", "bob", "--", "sh", "-c", "cat; printf error >&2"),
        env=bob.hivectl_environment(),
        input=bytes(range(256)) * 1000,
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert ran.stdout == bytes(range(256)) * 1000
    assert ran.stderr == b"error"


def test_exec_is_in_the_events(bob: LiveHive) -> None:
    seq = bob.last_seq()
    bob.hivectl("exec", "bob", "--", "true")
    assert "true" in bob.wait_event("exec", "bob", seq)["text"]


def test_exec_with_a_terminal_knows_its_size(bob: LiveHive) -> None:
    status, screen = on_terminal(
        bob, "exec", "-t", "bob", "--", "sh", "-c", f"{AWAIT_SIZE}; stty size; tty; exit 9"
    )
    assert status == 9
    assert b"33 111" in screen
    assert b"/dev/pts/" in screen


def test_exec_ends_its_command_when_the_client_goes(bob: LiveHive) -> None:
    script = "echo $$ > /state/pid; sleep 300 & sleep 300"
    with subprocess.Popen(
        bob.hivectl_argv("exec", "bob", "--", "sh", "-c", script),
        env=bob.hivectl_environment(),
        stdin=subprocess.PIPE,
    ) as client:
        bob.wait_for(lambda: _sleeps(bob) == 2, "the command")
        client.kill()
    bob.wait_for(lambda: _sleeps(bob) == 0, "its end")
    assert bob.row("bob")["state"] == "running"


def _sleeps(hive: LiveHive) -> int:
    """Return how many `sleep 300` run in bob's container, as the host sees it."""
    container_id = hive.row("bob")["container_id"]
    count = 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            is_one = Path(f"/proc/{entry}/cmdline").read_bytes() == b"sleep\x00300\x00"
            count += is_one and container_id in Path(f"/proc/{entry}/cgroup").read_text()
        except OSError:
            continue
    return count


def test_exec_in_a_stopped_agent_is_hives_failure(bob: LiveHive) -> None:
    bob.init("idle")
    try:
        refused = bob.hivectl("exec", "idle", "--", "true", expect=125)
        assert "no container" in refused.stderr
        bob.verb("spawn", "idle")
        bob.verb("stop", "idle")
        refused = bob.hivectl("exec", "idle", "--", "true", expect=125)
        assert refused.stderr.count("\n") == 1
    finally:
        bob.remove("idle")


# ---- logs -------------------------------------------------------------------------------------------------


def test_logs_tail(bob: LiveHive) -> None:
    everything = bob.hivectl("logs", "bob").stdout.splitlines()
    assert everything[:5] == [f"line {number}" for number in range(1, 6)]
    assert bob.hivectl("logs", "bob", "--tail", "2").stdout.splitlines() == everything[-2:]
    assert bob.hivectl("logs", "bob", "--tail", "0").stdout == ""
    bob.hivectl("logs", "bob", "--tail", "-1", expect=2)
    bob.hivectl("logs", "bob", "--tail", "many", expect=2)


def test_logs_are_escaped_for_people_and_exact_when_raw(bob: LiveHive) -> None:
    shown = _bytes(bob, "logs", "bob", "--tail", "1")
    assert not [code for code in ESCAPES if code in shown]
    assert shown.startswith(b"A")
    # The engine's log file holds text: what is no UTF-8 is replaced there already.
    said = b"A\x1b[2J\x1b]0;pwned\x07\x1b]8;;http://x\x1b\\\x1b]52;c;cHduZWQ=\x07\x00\xff\xc2\x9bmB\n"
    assert _bytes(bob, "logs", "bob", "--tail", "1", "--raw") == said.replace(
        b"\xff", "\N{REPLACEMENT CHARACTER}".encode()
    )


def _bytes(hive: LiveHive, *arguments: str) -> bytes:
    """Return exactly what hivectl writes into a pipe."""
    ran = subprocess.run(
        hive.hivectl_argv(*arguments),
        env=hive.hivectl_environment(),
        capture_output=True,
        check=True,
        timeout=20,
    )
    return ran.stdout


def test_nothing_an_agent_wrote_drives_a_terminal(bob: LiveHive) -> None:
    status, screen = on_terminal(bob, "logs", "bob")
    assert status == 0
    assert not [code for code in ESCAPES if code in screen]
    assert b"line 5" in screen
    status, screen = on_terminal(bob, "logs", "bob", "--raw")
    assert status == 2
    status, screen = on_terminal(bob, "exec", "bob", "--", "printf", NASTY.decode())
    assert status == 0
    assert not [code for code in ESCAPES if code in screen]
    status, screen = on_terminal(bob, "exec", "-t", "bob", "--", "printf", NASTY.decode())
    assert status == 0
    assert b"\x1b]" not in screen
    assert b"pwned" not in screen


def test_logs_follow(bob: LiveHive) -> None:
    bob.spawn(
        "talker",
        "sh",
        "-c",
        "echo first; until [ -e /state/go ]; do sleep 0.05; done; echo second; sleep 600",
    )
    try:
        with subprocess.Popen(
            bob.hivectl_argv("logs", "-f", "talker"), env=bob.hivectl_environment(), stdout=subprocess.PIPE
        ) as following:
            assert following.stdout is not None
            assert following.stdout.readline() == b"first\n"
            bob.hivectl("exec", "talker", "--", "touch", "/state/go")
            assert following.stdout.readline() == b"second\n"
            bob.verb("stop", "talker")
            assert following.stdout.read() == b""
            assert following.wait(20) == 0
    finally:
        bob.remove("talker")


def test_sixty_followers_leave_stop_fast(bob: LiveHive) -> None:
    bob.spawn("quick")
    request = b"GET /v1/agents/bob/logs?follow=true HTTP/1.1\r\nHost: hive\r\n\r\n"
    with ExitStack() as followers:
        for _ in range(60):
            wire = followers.enter_context(raw_connection(bob.socket))
            wire.sendall(request)
            assert wire.recv(12) == b"HTTP/1.1 200"
        began = time.monotonic()
        bob.verb("stop", "quick")
        assert time.monotonic() - began < 3
        assert bob.answers()
    bob.remove("quick")


# ---- completion -------------------------------------------------------------------------------------------


def _completed(hive: LiveHive, line: str, socket: Path | None = None) -> list[str]:
    words = line.split(" ")
    ran = subprocess.run(
        hive.hivectl_argv(),
        env={
            **hive.hivectl_environment(),
            "HIVE_ADMIN_SOCKET": str(socket or hive.socket),
            "_HIVECTL_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        timeout=10,
        check=False,
    )
    assert ran.stderr == b""
    return ran.stdout.decode().split()


def test_completion_asks_the_daemon_and_is_silent_without_one(bob: LiveHive) -> None:
    bob.init("bella")
    try:
        assert _completed(bob, "hivectl show b") == ["bella", "bob"]
        assert _completed(bob, "hivectl stop bob b") == ["bella"]
        assert _completed(bob, "hivectl show x") == []
        assert _completed(bob, "hivectl show b", bob.root / "nobody.sock") == []
    finally:
        bob.remove("bella")
