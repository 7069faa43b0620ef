"""What a restart of the daemon does to commands: nothing twice, and no wait ended."""

import json
import re
import threading
import time
from collections.abc import Callable

import pytest

from tests.support.paths import wait_until
from tests.support.stub_admin import Received, Reply, StubAdmin
from tests.unit.cli import answers
from tests.unit.cli.command_line import CommandLine

DONE = answers.change("done", ("bob", "done", "bob is running"))
MUTATIONS = [
    pytest.param("POST", "/v1/lifecycle/start", ["start", "bob"], id="start"),
    pytest.param("POST", "/v1/lifecycle/stop", ["stop", "bob"], id="stop"),
    pytest.param("POST", "/v1/lifecycle/stop-all", ["stop", "--all", "--yes"], id="stop-all"),
    pytest.param("POST", "/v1/lifecycle/update", ["update", "bob"], id="update"),
    pytest.param("POST", "/v1/lifecycle/quarantine", ["quarantine", "bob"], id="quarantine"),
    pytest.param("POST", "/v1/lifecycle/release", ["release", "bob"], id="release"),
    pytest.param("POST", "/v1/agents", ["init", "bob"], id="init"),
    pytest.param("POST", "/v1/reconcile", ["reconcile"], id="reconcile"),
    pytest.param("DELETE", "/v1/agents/bob", ["rm", "bob", "--yes"], id="rm"),
]


def first(early: Reply, then: Reply) -> Callable[[Received], Reply]:
    """Return a route that answers the first request otherwise than all later ones."""
    left = [early]
    return lambda _: left.pop() if left else then


@pytest.mark.parametrize(("method", "path", "command"), MUTATIONS)
def test_a_cut_request_is_made_once_more_under_the_same_key(
    admin: StubAdmin, hivectl: CommandLine, method: str, path: str, command: list[str]
) -> None:
    admin.route(method, path, first(Reply(is_cut=True), Reply(DONE)))
    ended = hivectl.run(*command)
    assert (ended.returncode, ended.stdout) == (0, b"bob is running\n")
    assert b"asking again" in ended.stderr
    before, after = admin.asked(method, path)
    assert re.fullmatch("[0-9a-f]{32}", before.key or "")
    assert (before.key, before.content) == (after.key, after.content)


def test_each_run_has_a_key_of_its_own(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.on("POST", "/v1/lifecycle/start", DONE)
    assert hivectl.run("start", "bob").stderr == b""
    assert hivectl.run("start", "bob").stderr == b""
    one, other = admin.asked("POST", "/v1/lifecycle/start")
    assert one.key != other.key


def test_a_request_cut_twice_is_an_error(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.route("POST", "/v1/lifecycle/start", lambda _: Reply(is_cut=True))
    ended = hivectl.run("start", "bob")
    assert ended.returncode == 3
    assert b"cut before the answer was complete" in ended.stderr
    assert len(admin.asked("POST", "/v1/lifecycle/start")) == 2


def test_a_refusal_is_not_asked_again(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.refuse("POST", "/v1/lifecycle/start", 409, "conflict", "not spawned yet")
    assert hivectl.run("start", "bob").returncode == 6
    assert len(admin.asked("POST", "/v1/lifecycle/start")) == 1


def test_the_second_request_waits_for_the_daemon_to_be_back(admin: StubAdmin, hivectl: CommandLine) -> None:
    stopping = {"error": {"code": "stopping", "message": "the daemon is stopping", "hint": ""}}
    was_cut = threading.Event()
    phases = [
        Reply(stopping, 503),
        Reply(answers.status(phase="stopping")),
        Reply(is_cut=True),
        Reply(answers.status(phase="recovering")),
    ]

    def route(_: Received) -> Reply:
        if phases and was_cut.is_set():
            raise AssertionError("asked again too early")
        if not was_cut.is_set():
            was_cut.set()
            return Reply(is_cut=True)
        return Reply(DONE)

    admin.route("POST", "/v1/lifecycle/start", route)
    admin.route("GET", "/v1/status", lambda _: phases.pop(0))
    with hivectl.running("start", "bob") as process:
        assert was_cut.wait(20)
        admin.stop()
        assert process.stderr is not None
        assert process.stdout is not None
        assert b"asking again" in process.stderr.readline()
        admin.start()
        assert process.wait(20) == 0
        assert process.stdout.read() == b"bob is running\n"
    before, after = admin.asked("POST", "/v1/lifecycle/start")
    assert before.key == after.key


@pytest.mark.parametrize("command", [["start", "bob"], ["wait", "c-12"]], ids=["verb", "wait"])
def test_a_wait_for_a_change_outlives_a_restart(
    admin: StubAdmin, hivectl: CommandLine, command: list[str]
) -> None:
    running = answers.change("running", ("bob", "pending", ""), id="c-12")
    admin.on("POST", "/v1/lifecycle/start", running, status=202)
    polled = threading.Event()
    left = [Reply(is_cut=True), *([Reply(running)] if command[0] == "wait" else [])]

    def route(_: Received) -> Reply:
        reply = left.pop() if left else Reply(DONE)
        if reply.is_cut:
            polled.set()
        return reply

    admin.route("GET", "/v1/changes/c-12", route)
    with hivectl.running(*command) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert polled.wait(20)
        admin.stop()
        assert process.stderr.readline() == b"hivectl: hived is away; asking again for up to 30 s\n"
        admin.start()
        assert process.wait(20) == 0
        assert process.stdout.read() == b"bob is running\n"
        assert process.stderr.read() == b"hivectl: hived is back\n"


def test_followed_events_go_on_after_a_restart(admin: StubAdmin, hivectl: CommandLine) -> None:
    polled = threading.Event()

    def route(request: Received) -> Reply:
        after = int(request.query.get("after", -1))
        if after < 0:
            return Reply([answers.event(7)])
        if not polled.is_set():
            polled.set()
            return Reply(is_cut=True)
        return Reply([answers.event(after + 1)])

    admin.route("GET", "/v1/events", route)
    with hivectl.running("events", "-f", "-o", "jsonl") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["seq"] == 7
        assert polled.wait(20)
        admin.stop()
        assert b"hived is away" in process.stderr.readline()
        admin.start()
        assert b"hived is back" in process.stderr.readline()
        assert [json.loads(process.stdout.readline())["seq"] for _ in range(2)] == [8, 9]


def test_a_watched_list_goes_on_after_a_restart(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.on("GET", "/v1/agents", [answers.agent("bob")])
    polled = threading.Event()

    def route(request: Received) -> Reply:
        if "after" in request.query and not polled.is_set():
            polled.set()
            return Reply(is_cut=True)
        return Reply([answers.event(1)])

    admin.route("GET", "/v1/events", route)
    with hivectl.running("ps", "-w", "-o", "jsonl") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["state"] == "running"
        assert polled.wait(20)
        admin.on("GET", "/v1/agents", [answers.agent("bob", state="stopped")])
        assert b"hived is away" in process.stderr.readline()
        assert json.loads(process.stdout.readline())["state"] == "stopped"


@pytest.mark.parametrize(
    "command", [["ps", "-w"], ["events", "-f"], ["audit", "-f"], ["wait", "bob", "running"], ["wait", "c-1"]]
)
def test_a_daemon_that_never_was_there_is_not_waited_for(
    admin: StubAdmin, hivectl: CommandLine, command: list[str]
) -> None:
    admin.stop()
    ended = hivectl.run(*command)
    assert ended.returncode == 3
    assert b"no such socket" in ended.stderr


def test_another_error_ends_a_followed_look(admin: StubAdmin, hivectl: CommandLine) -> None:
    def route(request: Received) -> Reply:
        if "after" not in request.query:
            return Reply([answers.event(7)])
        return Reply({"error": {"code": "internal", "message": "it broke", "hint": ""}}, 500)

    admin.route("GET", "/v1/events", route)
    ended = hivectl.run("events", "-f")
    assert ended.returncode == 1
    assert b"it broke" in ended.stderr


def test_a_daemon_that_lets_its_waiters_go_is_not_stormed(admin: StubAdmin, hivectl: CommandLine) -> None:
    running = answers.change("running", ("bob", "pending", ""), id="c-12")
    asked_at: list[float] = []

    def route(_: Received) -> Reply:
        asked_at.append(time.monotonic())
        return Reply(running)

    admin.on("POST", "/v1/lifecycle/start", running, status=202)
    admin.route("GET", "/v1/changes/c-12", route)
    with hivectl.running("start", "bob"):
        wait_until(lambda: len(asked_at) >= 4, "some polls")
    assert asked_at[3] - asked_at[0] > 0.5
