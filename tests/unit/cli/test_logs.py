import threading
from collections.abc import Iterator

import pytest

from tests.support.stub_admin import Reply, StubAdmin
from tests.unit.cli.command_line import CommandLine

BYTES = b"\x1b]0;t\x07\x1b[31mred\x1b[0m\r\n\xff\xfe\x00\xe2\x82\xac\n"
SHOWN = "\\x1b]0;t\\x07\\x1b[31mred\\x1b[0m\\x0d\n\\xff\\xfe\\x00€\n".encode()


@pytest.fixture
def log(admin: StubAdmin) -> StubAdmin:
    """bob's log, which comes cut in the middle of a character."""
    admin.route("GET", "/v1/agents/bob/logs", lambda _: Reply(pieces=[BYTES[:-2], BYTES[-2:]]))
    return admin


def test_a_log_is_escaped_and_raw_is_exact(log: StubAdmin, hivectl: CommandLine) -> None:
    assert hivectl.run("logs", "bob").stdout == SHOWN
    assert hivectl.run("logs", "bob", "--raw", "--tail", "7").stdout == BYTES
    asked = [request.query for request in log.requests]
    assert asked == [{"tail": "100", "follow": "false"}, {"tail": "7", "follow": "false"}]


def test_a_terminal_gets_no_raw_bytes(log: StubAdmin, hivectl: CommandLine) -> None:
    ended = hivectl.on_terminal("logs", "bob")
    assert ended.screen == SHOWN.replace(b"\n", b"\r\n")
    refused = hivectl.on_terminal("logs", "bob", "--raw")
    assert refused.status == 2
    assert b"\x1b" not in refused.screen


def test_following_shows_lines_as_they_come(admin: StubAdmin, hivectl: CommandLine) -> None:
    first_seen = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"one\n"
        assert first_seen.wait(20)
        yield b"two\n"

    admin.route("GET", "/v1/agents/bob/logs", lambda _: Reply(pieces=pieces()))
    with hivectl.running("logs", "-f", "bob") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        first_seen.set()
        assert process.stdout.readline() == b"two\n"
        assert process.wait(20) == 0
    assert admin.requests[0].query == {"tail": "100", "follow": "true"}
