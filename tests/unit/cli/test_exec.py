import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, unix_serve

from hivectl.commands.shell import LOGIN_SHELL
from tests.support.paths import wait_until
from tests.unit.cli.command_line import CommandLine

OSC_TITLE = b"\x1b]0;owned\x07"
Script = Callable[["Peer"], None]


@dataclass(slots=True)
class Peer:
    """The daemon's side of one exec, for a test to write its part."""

    connection: ServerConnection
    opening: dict[str, Any]

    def out(self, content: bytes, channel: int = 1) -> None:
        self.connection.send(bytes([channel]) + content)

    def say(self, **message: Any) -> None:
        self.connection.send(json.dumps(message))

    def hear(self) -> Any:
        """Return the next frame: bytes, or a decoded message."""
        frame = self.connection.recv(timeout=20)
        return frame if isinstance(frame, bytes) else json.loads(frame)


@dataclass(slots=True)
class ExecServer:
    """A WebSocket server that plays `script` to each client, and remembers how each began."""

    socket_path: Path
    script: Script
    paths: list[str] = field(default_factory=list)
    openings: list[dict[str, Any]] = field(default_factory=list)
    was_left: threading.Event = field(default_factory=threading.Event)

    def handle(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        self.paths.append(connection.request.path)
        try:
            opening = json.loads(connection.recv(timeout=20))
            self.openings.append(opening)
            self.script(Peer(connection, opening))
        except ConnectionClosed:
            self.was_left.set()


@contextmanager
def serving(script: Script) -> Iterator[tuple[ExecServer, CommandLine]]:
    directory = Path(tempfile.mkdtemp(prefix="hive-exec-"))
    server = ExecServer(directory / "admin.sock", script)
    with unix_serve(server.handle, str(server.socket_path), compression=None) as websocket:
        thread = threading.Thread(target=websocket.serve_forever, daemon=True)
        thread.start()
        try:
            yield server, CommandLine(server.socket_path)
        finally:
            websocket.shutdown()
            thread.join(20)
    shutil.rmtree(directory)


def ends(content: bytes, status: int = 0, *, channel: int = 1) -> Script:
    """Return a script that writes `content` and ends."""

    def script(peer: Peer) -> None:
        peer.say(started=True)
        if content:
            peer.out(content, channel)
        peer.say(exit=status)

    return script


@pytest.mark.parametrize("status", [0, 1, 42, 137, 255])
def test_the_exit_code_is_the_commands(status: int) -> None:
    with serving(ends(b"out\n", status)) as (server, hivectl):
        ended = hivectl.run("exec", "bob", "--", "ls", "-l", "--", "-o")
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, b"out\n", b"")
    assert server.paths == ["/v1/agents/bob/exec"]
    assert server.openings[0]["argv"] == ["ls", "-l", "--", "-o"]
    assert server.openings[0]["tty"] is False


def test_stdin_and_its_end_are_forwarded_and_the_streams_kept_apart() -> None:
    def script(peer: Peer) -> None:
        heard = b""
        while isinstance(frame := peer.hear(), bytes):
            assert frame[0] == 0
            heard += frame[1:]
        assert frame == {"stdin": "eof"}
        peer.out(heard)
        peer.out(b"bad\n", channel=2)
        peer.say(exit=0)

    content = bytes(range(256)) * 1000
    with serving(script) as (_, hivectl):
        ended = hivectl.run("exec", "bob", "--", "cat", stdin=content)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, content, b"bad\n")


def _error(peer: Peer) -> None:
    peer.say(error={"code": "conflict", "message": "bob is not running", "hint": "start it"})


def _drop(peer: Peer) -> None:
    peer.say(started=True)
    peer.connection.socket.close()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param(_error, "cannot run ls in bob: bob is not running (start it)", id="refused"),
        pytest.param(lambda peer: None, "the connection ended before the command did", id="closed-early"),
        pytest.param(_drop, "cannot run ls in bob", id="cut"),
    ],
)
def test_a_failure_of_hive_exits_125(script: Script, said: str) -> None:
    with serving(script) as (_, hivectl):
        ended = hivectl.run("exec", "bob", "--", "ls")
    assert ended.returncode == 125
    assert said in ended.stderr.decode()
    assert ended.stderr.count(b"\n") == 1


def test_a_refused_handshake_is_the_daemons_own_error(tmp_path: Path) -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        body = json.dumps({"error": {"code": "not_found", "message": "there is no agent bob", "hint": ""}})
        return connection.respond(HTTPStatus.NOT_FOUND, body)

    path = tmp_path / "s"
    with unix_serve(lambda _: None, str(path), process_request=refuse) as websocket:
        thread = threading.Thread(target=websocket.serve_forever, daemon=True)
        thread.start()
        ended = CommandLine(path).run("exec", "bob", "--", "ls")
        websocket.shutdown()
        thread.join(20)
    assert ended.returncode == 125
    assert ended.stderr == b"hivectl: cannot run ls in bob: there is no agent bob\n"


HOSTILE = b"a\x1b[31mb\x1b]0;own" + b"ed\x07c\xff\n"


def test_a_pipe_gets_the_exact_bytes() -> None:
    with serving(ends(HOSTILE)) as (_, hivectl):
        assert hivectl.run("exec", "bob", "--", "x").stdout == HOSTILE
        assert hivectl.run("exec", "bob", "-t", "--", "x").stdout == HOSTILE


def test_a_terminal_gets_escaped_bytes_unless_raw() -> None:
    with serving(ends(HOSTILE)) as (_, hivectl):
        escaped = hivectl.on_terminal("exec", "bob", "--", "x").screen
        raw = hivectl.on_terminal("exec", "bob", "--raw", "--", "x").screen
    assert escaped == b"a\\x1b[31mb\\x1b]0;owned\\x07c\\xff\r\n"
    assert raw == HOSTILE.replace(b"\n", b"\r\n")


def test_with_a_terminal_control_strings_are_taken_out_wherever_they_are_cut() -> None:
    whole = b"<\x1b[31mred" + OSC_TITLE + b"\x1b]52;c;aGk=\x1b\\" + b">"

    def script(peer: Peer) -> None:
        for byte in whole:
            peer.out(bytes([byte]))
        peer.say(exit=3)

    with serving(script) as (server, hivectl):
        ended = hivectl.on_terminal("exec", "-t", "bob", "--", "sh")
    assert ended.status == 3
    shown, reset = ended.screen.split(b">", 1)
    assert shown == b"<\x1b[31mred"
    assert b"\x1b[!p" in reset
    assert b"\x1b[?25h" in reset
    assert server.openings[0] == {"argv": ["sh"], "tty": True, "rows": 40, "columns": 120}


def test_the_terminal_is_raw_meanwhile_and_restored_whatever_happens() -> None:
    release = threading.Event()

    def script(peer: Peer) -> None:
        peer.out(b"ready")
        keys = b""
        while len(keys) < 3:
            keys += peer.hear()[1:]
        peer.out(b" keys=" + keys.hex().encode())
        assert release.wait(20)
        peer.connection.socket.close()

    with serving(script) as (_, hivectl), hivectl.terminal("exec", "-t", "bob", "--", "sh") as terminal:
        before = termios.tcgetattr(terminal.inner)
        terminal.wait_for(b"ready")
        during = termios.tcgetattr(terminal.inner)
        os.write(terminal.outer, b"\x03\x04\r")
        terminal.wait_for(b"keys=03040d")
        release.set()
        assert terminal.end().status == 125
        assert termios.tcgetattr(terminal.inner) == before
    assert before[3] & termios.ECHO
    assert not during[3] & (termios.ECHO | termios.ICANON | termios.ISIG)


def test_a_resized_window_is_told() -> None:
    def script(peer: Peer) -> None:
        peer.out(b"ready")
        assert peer.hear() == {"resize": [11, 22]}
        peer.say(exit=0)

    with serving(script) as (_, hivectl), hivectl.terminal("exec", "-t", "bob", "--", "sh") as terminal:
        terminal.wait_for(b"ready")
        termios.tcsetwinsize(terminal.inner, (11, 22))
        terminal.process.send_signal(signal.SIGWINCH)
        assert terminal.end().status == 0


def test_an_interrupt_leaves_and_the_daemon_sees_it() -> None:
    def script(peer: Peer) -> None:
        peer.out(b"ready\n")
        peer.hear()

    with serving(script) as (server, hivectl), hivectl.running("exec", "bob", "--", "sleep") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == b""
        assert server.was_left.wait(20)


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    def script(peer: Peer) -> None:
        while True:
            peer.out(b"x" * 60000)

    with serving(script) as (_, hivectl), hivectl.running("exec", "bob", "--", "yes") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(20) == 141
        assert process.stderr.read() == b""


def test_a_shell_is_one_on_the_terminal() -> None:
    with serving(ends(b"$ ", 7)) as (server, hivectl):
        ended = hivectl.on_terminal("shell", "bob")
    assert ended.status == 7
    assert server.paths == ["/v1/agents/bob/exec"]
    assert server.openings[0] == {"argv": list(LOGIN_SHELL), "tty": True, "rows": 40, "columns": 120}


def test_a_rescue_is_asked_for() -> None:
    with serving(ends(b"$ ")) as (server, hivectl):
        assert hivectl.on_terminal("shell", "bob", "--rescue").status == 0
    assert server.openings[0]["rescue"] is True


@pytest.mark.parametrize("installed", [("sh",), ("sh", "bash")], ids=" ".join)
def test_a_login_shell_is_bash_where_there_is_one(tmp_path: Path, installed: tuple[str, ...]) -> None:
    for word in installed:
        (tmp_path / word).symlink_to(f"/bin/{word}")
    (tmp_path / ".profile").write_text("echo profile\n")
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    ran = subprocess.run(
        LOGIN_SHELL,
        check=False,
        env=environment,
        input=b'echo "${BASH_VERSION:+bash}"; exit 7',
        capture_output=True,
        timeout=20,
    )
    expected = b"bash" if "bash" in installed else b""
    assert (ran.returncode, ran.stdout) == (7, b"profile\n" + expected + b"\n"), ran.stderr


def test_a_shell_without_a_terminal_is_refused() -> None:
    with serving(ends(b"")) as (server, hivectl):
        ended = hivectl.run("shell", "bob")
    assert ended.returncode == 2
    assert b"a shell needs a terminal" in ended.stderr
    assert b"hivectl exec bob -- CMD" in ended.stderr
    assert server.paths == []


def test_a_shell_that_cannot_be_had_exits_125(tmp_path: Path) -> None:
    ended = CommandLine(tmp_path / "none.sock").on_terminal("shell", "bob")
    assert ended.status == 125
    assert b"no such socket" in ended.screen


def _waiting_bytes(terminal: int) -> int:
    """Return how much input a terminal holds that nobody has read; the kernel delivers in its own time."""
    return int(struct.unpack("i", fcntl.ioctl(terminal, termios.FIONREAD, b"\0" * 4))[0])


REPLY = b"\x1b[?64;1;2c"
HOLDS_TERMINAL = """
import sys
from hivectl.terminal import raw_terminal
with raw_terminal():
    sys.stderr.write("raw\\n"); sys.stderr.flush()
    open(int(sys.argv[1]), "rb").read(1)
"""


def test_late_replies_of_the_terminal_are_no_input_for_what_comes_next() -> None:
    outer, inner = pty.openpty()
    go_read, go_write = os.pipe()
    argv = [sys.executable, "-c", HOLDS_TERMINAL, str(go_read)]
    with subprocess.Popen(
        argv, stdin=inner, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=(go_read,)
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"raw\n"
        os.write(outer, REPLY)
        wait_until(lambda: _waiting_bytes(inner) == len(REPLY), "the reply to reach the terminal's input")
        os.write(go_write, b"x")
        assert process.wait(20) == 0
    os.write(outer, b"typed\n")
    assert os.read(inner, 100) == b"typed\n"
    for descriptor in (outer, inner, go_read, go_write):
        os.close(descriptor)
