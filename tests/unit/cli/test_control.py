"""The commands that hold a hive: stop --all, update --all, quarantine, release, pause, resume."""

import json
import os
import signal
from typing import Any

import pytest

from tests.support.stub_admin import Received, Reply, StubAdmin
from tests.unit.cli import answers
from tests.unit.cli.command_line import CommandLine

ROWS = [
    answers.agent("carl", parent="bob", needs_update=True),
    answers.agent("bob", parent="ruth", needs_update=True),
    answers.agent("eve", parent="ruth", state="stopped", desired="stopped", needs_update=True),
    answers.agent("new", state="unspawned", desired="unspawned", needs_update=True),
    answers.agent("ruth"),
]


@pytest.fixture
def fleet(admin: StubAdmin) -> StubAdmin:
    """Five agents: three that run, one that is stopped, one never spawned."""
    admin.on("GET", "/v1/agents", ROWS)
    done = answers.change("done", ("bob", "done", "bob is stopped"), ("ruth", "done", "ruth is stopped"))
    admin.on("POST", "/v1/lifecycle/stop-all", done)
    frozen = answers.change("done", ("bob", "done", "bob is in quarantine (paused)"))
    admin.on("POST", "/v1/lifecycle/quarantine", frozen)
    admin.on("POST", "/v1/lifecycle/release", answers.change("done", ("bob", "done", "bob is running")))
    return admin


@pytest.mark.parametrize("verb", ["stop", "kill"])
@pytest.mark.parametrize(("keys", "status", "count"), [(b"y\n", 0, 1), (b"n\n", 1, 0), (b"\n", 1, 0)])
def test_stop_all_says_what_it_will_do_and_asks(
    fleet: StubAdmin, hivectl: CommandLine, verb: str, keys: bytes, status: int, count: int
) -> None:
    with hivectl.terminal(verb, "--all") as terminal:
        terminal.wait_for(b"[y/N] ")
        os.write(terminal.outer, keys)
        ended = terminal.end()
    assert ended.status == status
    assert b"stop 3 of 5: carl, bob, ruth" in ended.screen
    assert len(fleet.asked("POST", "/v1/lifecycle/stop-all")) == count
    assert (b"no agent was stopped" in ended.screen) == (count == 0)


def test_stop_all_with_yes_asks_nothing_and_passes_now_on(fleet: StubAdmin, hivectl: CommandLine) -> None:
    ended = hivectl.run("stop", "--all", "--now", "--yes")
    assert (ended.returncode, ended.stdout) == (0, b"bob is stopped\nruth is stopped\n")
    assert [request.json() for request in fleet.requests] == [{"now": True}]
    document = json.loads(hivectl.run("stop", "--all", "--yes", "-o", "json").stdout)
    assert [agent["name"] for agent in document["agents"]] == ["bob", "ruth"]
    assert hivectl.run("stop", "--all", "--yes", "--no-wait").stdout == b"c12\n"


def test_stop_all_of_a_hive_without_spawned_agents_is_refused(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.refuse(
        "POST", "/v1/lifecycle/stop-all", 409, "conflict", "cannot stop all: no agent was spawned", "ps"
    )
    ended = hivectl.run("stop", "--all", "--yes")
    assert (ended.returncode, ended.stderr) == (6, b"hivectl: cannot stop all: no agent was spawned (ps)\n")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        pytest.param(["stop", "--all"], "add --yes", id="stop-all-without-terminal"),
        pytest.param(["kill", "--all"], "add --yes", id="kill-all-without-terminal"),
        pytest.param(["stop", "bob", "--all", "--yes"], "exclude each other", id="stop-names-and-all"),
        pytest.param(["kill", "bob", "--all", "--yes"], "exclude each other", id="kill-names-and-all"),
        pytest.param(["kill"], "missing argument 'NAME'", id="kill-nobody"),
        pytest.param(["update"], "missing argument 'NAME'", id="update-nobody"),
        pytest.param(["update", "bob", "--all"], "exclude each other", id="update-names-and-all"),
        pytest.param(["update", "--all", "--one-at-a-time", "--no-wait"], "--no-wait", id="one-without-wait"),
        pytest.param(["quarantine", "bob", "--subtree"], "add --yes", id="subtree-without-terminal"),
        pytest.param(["quarantine"], "missing argument 'NAME'", id="quarantine-nobody"),
        pytest.param(["release"], "missing argument 'NAME'", id="release-nobody"),
        pytest.param(["pause", "bob"], "see hivectl pause --help", id="pause-somebody"),
    ],
)
def test_wrong_usage_exits_2_and_asks_nothing(
    admin: StubAdmin, hivectl: CommandLine, command: list[str], said: str
) -> None:
    ended = hivectl.run(*command, stdin=b"y\n")
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert said in ended.stderr.decode()
    assert admin.requests == []


def serve_updates(admin: StubAdmin, **texts: str) -> None:
    """Let each update end at once; an agent with a text fails with it, others are done."""

    def route(request: Received) -> Reply:
        names = request.json()["names"]
        rows = [
            (name, "failed" if name in texts else "done", texts.get(name, f"{name} is new")) for name in names
        ]
        state = "failed" if any(name in texts for name in names) else "done"
        return Reply(answers.change(state, *rows, kind="update"), 202)

    admin.route("POST", "/v1/lifecycle/update", route)


def updated(admin: StubAdmin) -> list[Any]:
    return [request.json()["names"] for request in admin.asked("POST", "/v1/lifecycle/update")]


def test_update_all_is_one_request_for_the_spawned_ones_that_need_it(
    fleet: StubAdmin, hivectl: CommandLine
) -> None:
    serve_updates(fleet)
    ended = hivectl.run("update", "--all")
    assert (ended.returncode, ended.stdout) == (0, b"bob is new\ncarl is new\neve is new\n")
    assert updated(fleet) == [["bob", "carl", "eve"]]
    assert json.loads(hivectl.run("update", "--all", "-o", "json").stdout)["kind"] == "update"
    assert hivectl.run("update", "--all", "--no-wait").stdout == b"c12\n"


@pytest.mark.parametrize(
    ("options", "document"), [([], None), (["--one-at-a-time"], [])], ids=["at-once", "one-at-a-time"]
)
def test_update_all_says_when_nothing_needs_it(
    admin: StubAdmin, hivectl: CommandLine, options: list[str], document: Any
) -> None:
    admin.on("GET", "/v1/agents", [answers.agent("bob"), ROWS[3]])
    ended = hivectl.run("update", "--all", *options)
    assert (ended.returncode, ended.stdout) == (0, b"nothing needs an update\n")
    assert json.loads(hivectl.run("update", "--all", *options, "-o", "json").stdout) == document
    assert hivectl.run("update", "--all", *options, "-o", "name").stdout == b""
    assert updated(admin) == []


def test_one_at_a_time_goes_by_name_and_tells_each(fleet: StubAdmin, hivectl: CommandLine) -> None:
    serve_updates(fleet)
    ended = hivectl.run("update", "--all", "--one-at-a-time")
    assert (ended.returncode, ended.stdout) == (0, b"bob is new\ncarl is new\neve is new\n")
    assert updated(fleet) == [["bob"], ["carl"], ["eve"]]
    assert len({request.key for request in fleet.asked("POST", "/v1/lifecycle/update")}) == 3
    document = json.loads(hivectl.run("update", "--all", "--one-at-a-time", "-o", "json").stdout)
    assert [change["agents"][0]["name"] for change in document] == ["bob", "carl", "eve"]
    lines = hivectl.run("update", "--all", "--one-at-a-time", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["done"] * 3
    assert hivectl.run("update", "--all", "--one-at-a-time", "-o", "name").stdout == b"bob\ncarl\neve\n"


def test_one_at_a_time_takes_names_in_their_order(fleet: StubAdmin, hivectl: CommandLine) -> None:
    serve_updates(fleet)
    assert hivectl.run("update", "--one-at-a-time", "ruth", "bob").stdout == b"ruth is new\nbob is new\n"


def test_one_at_a_time_stops_at_a_failed_change(fleet: StubAdmin, hivectl: CommandLine) -> None:
    serve_updates(fleet, carl="cannot start carl: image is gone")
    ended = hivectl.run("update", "--all", "--one-at-a-time")
    assert (ended.returncode, ended.stdout) == (1, b"bob is new\n")
    assert ended.stderr.decode() == (
        "hivectl: cannot start carl: image is gone; updated: bob; not updated: carl, eve"
        " (see hivectl changes c12)\n"
    )
    assert updated(fleet) == [["bob"], ["carl"]]
    ended = hivectl.run("update", "--all", "--one-at-a-time", "-o", "json")
    assert [change["state"] for change in json.loads(ended.stdout)] == ["done", "failed"]
    assert "not updated: carl, eve" in json.loads(ended.stderr)["error"]["message"]


def test_one_at_a_time_stops_at_a_refusal_with_1(fleet: StubAdmin, hivectl: CommandLine) -> None:
    fleet.refuse("POST", "/v1/lifecycle/update", 409, "conflict", "cannot update bob: it is being removed")
    ended = hivectl.run("update", "--all", "--one-at-a-time")
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert ended.stderr.decode() == (
        "hivectl: cannot update bob: it is being removed; none was updated; not updated: bob, carl, eve\n"
    )


def test_an_interrupt_of_one_at_a_time_says_who_was_not_begun(fleet: StubAdmin, hivectl: CommandLine) -> None:
    running = answers.change("running", ("bob", "pending", ""))
    fleet.on("POST", "/v1/lifecycle/update", running, status=202)
    fleet.on("GET", "/v1/changes/c12", running)
    with hivectl.terminal("update", "--all", "--one-at-a-time") as terminal:
        terminal.wait_for(b"update bob:")
        terminal.process.send_signal(signal.SIGINT)
        ended = terminal.end()
    assert ended.status == 130
    assert b"the change goes on (look: hivectl changes c12)" in ended.screen
    assert b"not begun: carl, eve" in ended.screen


@pytest.mark.parametrize("verb", ["quarantine", "release"])
def test_quarantine_and_release_ask_only_the_daemon(
    fleet: StubAdmin, hivectl: CommandLine, verb: str
) -> None:
    ended = hivectl.run(verb, "bob", "eve", "bob", "-o", "json")
    assert ended.returncode == 0
    assert json.loads(ended.stdout)["state"] == "done"
    assert [request.json() for request in fleet.requests] == [{"names": ["bob", "eve"], "subtree": False}]


def test_quarantine_of_a_subtree_says_who_is_in_it_and_asks(fleet: StubAdmin, hivectl: CommandLine) -> None:
    for keys, status, count in ((b"n\n", 1, 0), (b"y\n", 0, 1)):
        with hivectl.terminal("quarantine", "ruth", "--subtree") as terminal:
            terminal.wait_for(b"[y/N] ")
            os.write(terminal.outer, keys)
            ended = terminal.end()
        assert ended.status == status
        assert b"freeze ruth\r\n" in ended.screen
        assert b"freeze bob, carl, eve below" in ended.screen
        assert len(fleet.asked("POST", "/v1/lifecycle/quarantine")) == count
    assert fleet.requests[-1].json() == {"names": ["ruth"], "subtree": True}


def test_a_subtree_asks_nothing_with_yes_or_for_a_release(fleet: StubAdmin, hivectl: CommandLine) -> None:
    assert hivectl.run("quarantine", "ruth", "--subtree", "--yes").returncode == 0
    assert hivectl.run("release", "ruth", "--subtree").stdout == b"bob is running\n"
    assert [request.json()["subtree"] for request in fleet.requests] == [True, True]


def test_a_refused_release_is_the_error(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.refuse(
        "POST", "/v1/lifecycle/release", 409, "conflict", "cannot release bob: it is not in quarantine"
    )
    assert hivectl.run("release", "bob").returncode == 6


@pytest.mark.parametrize(("verb", "paused", "said"), [("pause", True, b"off"), ("resume", False, b"on")])
def test_automation_is_switched(
    admin: StubAdmin, hivectl: CommandLine, verb: str, paused: bool, said: bytes
) -> None:
    admin.on("POST", f"/v1/{verb}", {"paused": paused})
    ended = hivectl.run(verb)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"automation is " + said in ended.stdout
    assert json.loads(hivectl.run(verb, "-o", "json").stdout) == {"paused": paused}
    assert admin.requests[0].key
