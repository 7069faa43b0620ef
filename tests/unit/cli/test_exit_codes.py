import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stub_admin import Received, Reply, StubAdmin
from tests.unit.cli import answers
from tests.unit.cli.command_line import CommandLine
from tests.unit.cli.nobody import run_as_nobody


def one_line(stderr: bytes) -> str:
    text = stderr.decode()
    assert text.endswith("\n")
    assert text.count("\n") == 1, text
    return text.rstrip("\n")


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "invalid_request", 2),
        (400, "invalid_name", 2),
        (400, "invalid_manifest", 1),
        (403, "denied", 5),
        (404, "not_found", 4),
        (409, "conflict", 6),
        (409, "name_unavailable", 6),
        (500, "internal", 1),
        (503, "engine_unavailable", 1),
        (503, "stopping", 3),
        (504, "timed_out", 7),
    ],
)
def test_each_error_code_has_its_exit_status(
    admin: StubAdmin, hivectl: CommandLine, status: int, code: str, expected: int
) -> None:
    admin.refuse("GET", "/v1/agents/bob", status, code, "it is so", "do this")
    ended = hivectl.run("show", "bob")
    assert (ended.returncode, ended.stdout) == (expected, b"")
    assert one_line(ended.stderr) == "hivectl: cannot show bob: it is so (do this)"
    ended = hivectl.run("show", "bob", "-o", "json")
    assert ended.returncode == expected
    assert json.loads(one_line(ended.stderr)) == {
        "error": {"code": code, "message": "cannot show bob: it is so", "hint": "do this"}
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["shw"], "did you mean show?", id="unknown-command"),
        pytest.param(["zzzzz"], "no such command 'zzzzz' (see hivectl --help)", id="nothing-near"),
        pytest.param(["ps", "--bogus"], "see hivectl ps --help", id="unknown-option"),
        pytest.param(["--bogus"], "see hivectl --help", id="unknown-global-option"),
        pytest.param(["show"], "missing argument 'NAME'", id="missing-name"),
        pytest.param(["stop"], "missing argument 'NAME'", id="missing-names"),
        pytest.param(["ps", "extra"], "see hivectl ps --help", id="extra-argument"),
        pytest.param(["ps", "-o", "xml"], "not one of table, json, jsonl, name", id="bad-format"),
        pytest.param(["logs", "bob", "--tail", "-1"], "not a whole number", id="negative-tail"),
        pytest.param(["logs", "bob", "--tail", "1_0"], "not a whole number", id="odd-number"),
        pytest.param(["show", ""], "the name is empty", id="empty-name"),
        pytest.param(["stop", "bob", "\udcff"], "not valid UTF-8", id="name-is-no-text"),
        pytest.param(["events", "-f", "-o", "name"], "use -o jsonl", id="endless-document"),
        pytest.param(["rm", "bob"], "add --yes", id="rm-without-terminal"),
        pytest.param(["init", "bob", "--from", "/nowhere"], "/nowhere does not exist", id="no-folder"),
        pytest.param(["exec", "bob"], "missing argument 'CMD'", id="exec-without-command"),
        pytest.param(["show", "a\x1b[2J\nb", "--x"], "no such option", id="hostile-argument"),
    ],
)
def test_wrong_usage_exits_2_with_one_line_and_asks_nothing(
    admin: StubAdmin, hivectl: CommandLine, arguments: list[str], said: str
) -> None:
    ended = hivectl.run(*arguments)
    assert (ended.returncode, ended.stdout) == (2, b"")
    line = one_line(ended.stderr)
    assert line.startswith("hivectl: cannot ")
    assert said in line
    assert line.isprintable()
    assert admin.requests == []


def test_usage_errors_are_json_where_json_was_asked_for(hivectl: CommandLine) -> None:
    for words in (["-o", "json"], ["-ojson"], ["--output=jsonl"], ["--output", "json"]):
        ended = hivectl.run("ps", "--bogus", *words)
        assert ended.returncode == 2
        assert json.loads(one_line(ended.stderr))["error"]["code"] == "invalid_request"


def test_a_command_of_exec_does_not_ask_for_json(admin: StubAdmin, hivectl: CommandLine) -> None:
    ended = hivectl.run("exec", "bob", "--", "tool", "-o", "json")
    assert ended.returncode == 125
    assert one_line(ended.stderr).startswith("hivectl: cannot run tool in bob")


def test_help_and_version_succeed(hivectl: CommandLine) -> None:
    for arguments in ([], ["--help"], ["-h"], ["ps", "--help"], ["--version"]):
        ended = hivectl.run(*arguments)
        assert (ended.returncode, ended.stderr) == (0, b""), arguments
        assert ended.stdout


def test_doctor_exits_1_when_a_check_fails(admin: StubAdmin, hivectl: CommandLine) -> None:
    check = {"name": "engine", "status": "warn", "text": "old", "hint": "update it"}
    admin.on("GET", "/v1/doctor", {"checks": [check]})
    assert hivectl.run("doctor").returncode == 0
    admin.on("GET", "/v1/doctor", {"checks": [check, check | {"name": "idmap", "status": "fail"}]})
    ended = hivectl.run("doctor")
    assert (ended.returncode, ended.stderr) == (1, b"")
    assert b"-> update it" in ended.stdout
    assert hivectl.run("doctor", "-o", "name").stdout == b"idmap\n"


@pytest.mark.parametrize("command", [["ps"], ["status"], ["stop", "bob"], ["logs", "bob"]])
def test_a_missing_socket_exits_3(tmp_path: Path, command: list[str]) -> None:
    ended = CommandLine(tmp_path / "none.sock").run(*command)
    assert ended.returncode == 3
    line = one_line(ended.stderr)
    assert "no such socket" in line
    assert "is hived running?" in line


def test_a_dead_socket_exits_3_and_exec_125(tmp_path: Path) -> None:
    path = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    ended = CommandLine(path).run("ps", "-o", "json")
    assert ended.returncode == 3
    assert json.loads(one_line(ended.stderr))["error"]["code"] == "unreachable"
    assert CommandLine(path).run("exec", "bob", "--", "true").returncode == 125


def test_a_silent_daemon_exits_7_within_5_seconds(tmp_path: Path) -> None:
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        began = time.monotonic()
        ended = CommandLine(path).run("status")
    assert ended.returncode == 7
    assert "no answer within 5 s" in one_line(ended.stderr)
    assert time.monotonic() - began < 7  # five, and the start of a process on a busy machine


def _one_then_nothing() -> Iterator[bytes]:
    yield b"first\n"
    threading.Event().wait(30)


def test_the_socket_option_wins_over_the_environment(admin: StubAdmin, tmp_path: Path) -> None:
    admin.on("GET", "/v1/agents", [])
    away = CommandLine(tmp_path / "none.sock")
    assert away.run("--socket", str(admin.socket_path), "ps").returncode == 0


def test_an_interrupt_exits_130_without_a_word(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.route("GET", "/v1/agents/bob/logs", lambda _: Reply(pieces=_one_then_nothing()))
    with hivectl.running("logs", "-f", "bob") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"first\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == b""


def test_a_reader_that_goes_away_ends_it_quietly(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.route("GET", "/v1/agents/bob/logs", lambda _: Reply(pieces=[b"x" * 65535 + b"\n"] * 100))
    with hivectl.running("logs", "bob") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(20) == 141
        assert process.stderr.read() == b""


def test_a_defect_is_one_line_that_shows_no_values(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.on("GET", "/v1/agents", [{"name": "s3cret-token"}])
    ended = hivectl.run("ps")
    assert ended.returncode == 1
    assert "unexpected KeyError" in one_line(ended.stderr)
    assert b"s3cret" not in ended.stdout + ended.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_permission_denied_exits_3(admin: StubAdmin) -> None:
    admin.socket_path.parent.chmod(0o755)
    admin.socket_path.chmod(0o600)
    ended = run_as_nobody("--socket", str(admin.socket_path), "ps")
    assert ended.returncode == 3
    assert "you are not in group hive" in one_line(ended.stderr)


def test_every_route_gets_the_name_as_one_segment(admin: StubAdmin, hivectl: CommandLine) -> None:
    def route(_: Received) -> Reply:
        return Reply(answers.full_agent("x"))

    admin.route("GET", "/v1/agents/../status", route)
    assert hivectl.run("show", "../status").returncode == 0
    assert admin.requests[0].path == "/v1/agents/..%2Fstatus"
