import json
import signal
import threading
from typing import Any, get_args

import pytest

from hive_api.models import State
from hivectl.commands.wait import State as Word
from tests.support.stub_admin import Received, Reply, StubAdmin
from tests.unit.cli import answers
from tests.unit.cli.command_line import CommandLine


def serve_states(admin: StubAdmin, *states: str | None) -> None:
    """Let each look at the agents find bob in the next state, None: no row; the last one stays."""
    left = list(states)

    def rows(_: Received) -> Reply:
        state = left.pop(0) if len(left) > 1 else left[0]
        return Reply([] if state is None else [answers.agent("bob", state=state, reason="so it is")])

    admin.route("GET", "/v1/agents", rows)
    admin.on("GET", "/v1/agents/bob", answers.full_agent("bob"))
    admin.route("GET", "/v1/events", lambda request: Reply([answers.event(3)]))


def test_a_state_that_is_there_returns_at_once(admin: StubAdmin, hivectl: CommandLine) -> None:
    serve_states(admin, "running")
    ended = hivectl.run("wait", "bob", "running")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"bob is running\n", b"")
    assert json.loads(hivectl.run("wait", "bob", "running", "-o", "json").stdout)["name"] == "bob"
    assert hivectl.run("wait", "bob", "running", "-o", "name").stdout == b"bob\n"


def test_a_state_that_comes_is_waited_for_with_long_polls(admin: StubAdmin, hivectl: CommandLine) -> None:
    serve_states(admin, "backoff", "starting", "crash-looping")
    assert hivectl.run("wait", "bob", "crash-looping", "--timeout", "20").returncode == 0
    polls = [request.query for request in admin.asked("GET", "/v1/events") if "after" in request.query]
    assert polls == [{"after": "3", "limit": "1000", "wait_s": "1.0"}] * 2


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_state_that_does_not_come_in_time_exits_7(
    admin: StubAdmin, hivectl: CommandLine, output: str
) -> None:
    serve_states(admin, "starting")
    ended = hivectl.run("wait", "bob", "running", "--timeout", "0", "-o", output)
    assert (ended.returncode, ended.stdout) == (7, b"")
    said = "cannot wait for bob to be running: the time is up, and it is starting (so it is)"
    if output == "json":
        error = json.loads(ended.stderr)["error"]
        assert (error["code"], error["message"]) == ("timed_out", said)
    else:
        assert ended.stderr.decode() == f"hivectl: {said} (see hivectl why bob)\n"


def test_an_agent_that_no_pass_has_looked_at_is_waited_for(admin: StubAdmin, hivectl: CommandLine) -> None:
    serve_states(admin, None, "running")
    admin.refuse("GET", "/v1/agents/bob", 409, "conflict", "cannot show bob: no pass has looked at it yet")
    assert hivectl.run("wait", "bob", "running", "--timeout", "20").returncode == 0
    serve_states(admin, None)
    admin.refuse("GET", "/v1/agents/bob", 409, "conflict", "cannot show bob: no pass has looked at it yet")
    ended = hivectl.run("wait", "bob", "running", "--timeout", "0")
    assert ended.returncode == 7
    assert b"no pass has looked at bob yet" in ended.stderr


def test_an_unknown_agent_exits_4(admin: StubAdmin, hivectl: CommandLine) -> None:
    serve_states(admin, None)
    admin.refuse("GET", "/v1/agents/bob", 404, "not_found", "there is no agent bob", "hivectl ps")
    assert hivectl.run("wait", "bob", "running").returncode == 4


def test_an_agent_that_is_removed_meanwhile_exits_1(admin: StubAdmin, hivectl: CommandLine) -> None:
    serve_states(admin, "stopping", None)
    gone = {"error": {"code": "not_found", "message": "there is no agent bob", "hint": ""}}
    left = [Reply(answers.full_agent("bob"))]
    admin.route("GET", "/v1/agents/bob", lambda _: left.pop() if left else Reply(gone, 404))
    ended = hivectl.run("wait", "bob", "running", "--timeout", "20")
    assert ended.returncode == 1
    assert b"cannot wait for bob to be running: bob was removed" in ended.stderr


def serve_change(admin: StubAdmin, *changes: dict[str, Any]) -> None:
    left = [change | {"id": "c-12"} for change in changes]
    admin.route("GET", "/v1/changes/c-12", lambda _: Reply(left.pop(0) if len(left) > 1 else left[0]))


STILL = answers.change("running", ("bob", "pending", ""))


def test_a_change_is_waited_for(admin: StubAdmin, hivectl: CommandLine) -> None:
    done = answers.change("done", ("bob", "done", "bob is running"))
    serve_change(admin, STILL, STILL, done)
    ended = hivectl.run("wait", "c-12")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"bob is running\n", b"")
    assert [request.query for request in admin.requests] == [{}, {"wait_s": "25"}, {"wait_s": "25"}]
    assert json.loads(hivectl.run("wait", "c-12", "-o", "json").stdout)["state"] == "done"


@pytest.mark.parametrize("code", ["failed", "timed_out", "conflict"])
def test_a_change_that_failed_exits_1_whatever_its_code(
    admin: StubAdmin, hivectl: CommandLine, code: str
) -> None:
    error = {"code": code, "message": "it broke", "hint": ""}
    serve_change(admin, answers.change("failed", ("bob", "failed", "it broke"), error=error))
    ended = hivectl.run("wait", "c-12")
    assert ended.returncode == 1
    assert b"cannot wait for c-12: it broke" in ended.stderr


def test_a_change_that_goes_on_exits_7(admin: StubAdmin, hivectl: CommandLine) -> None:
    serve_change(admin, STILL)
    ended = hivectl.run("wait", "c-12", "--timeout", "1")
    assert (ended.returncode, ended.stdout) == (7, b"")
    assert b"the change still goes on (see hivectl changes c-12)" in ended.stderr
    polls = [float(request.query["wait_s"]) for request in admin.requests if request.query]
    assert polls
    assert max(polls) <= 1


def test_an_unknown_change_exits_4(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.refuse("GET", "/v1/changes/c-12", 404, "not_found", "there is no change 'c-12'")
    assert hivectl.run("wait", "c-12").returncode == 4


def test_an_interrupt_of_a_waiting_for_an_agent_exits_130(admin: StubAdmin, hivectl: CommandLine) -> None:
    asked = threading.Event()

    def route(request: Received) -> Reply:
        if "after" in request.query:
            asked.set()
        return Reply([])

    serve_states(admin, "starting")
    admin.route("GET", "/v1/events", route)
    with hivectl.running("wait", "bob", "running") as process:
        assert process.stderr is not None
        assert asked.wait(20)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("command", "said"),
    [
        pytest.param(["wait"], "missing argument 'NAME|CHANGE'", id="nothing"),
        pytest.param(["wait", "bob"], "for an agent the state is missing", id="no-state"),
        pytest.param(["wait", "bob", "Running"], "is not one of unspawned, starting", id="unknown-state"),
        pytest.param(["wait", "", "running"], "the name is empty", id="empty-name"),
        pytest.param(["wait", "bob", "running", "--timeout", "-1"], "not a whole number", id="timeout"),
    ],
)
def test_wrong_usage_exits_2_and_asks_nothing(
    admin: StubAdmin, hivectl: CommandLine, command: list[str], said: str
) -> None:
    ended = hivectl.run(*command)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert said in ended.stderr.decode()
    assert admin.requests == []


def test_the_states_are_those_of_the_api() -> None:
    assert [word.value for word in Word] == list(get_args(State))
