import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.stub_admin import Received, Reply, StubAdmin
from tests.unit.cli import answers
from tests.unit.cli.command_line import CommandLine

BOB_DONE = ("bob", "done", "bob is running")


def serve(admin: StubAdmin, method: str, path: str, *polls: dict[str, Any]) -> None:
    """Let `path` begin a change, and each poll bring the next of `polls`."""
    left = list(polls)
    admin.on(method, path, answers.change("running", ("bob", "pending", "")), status=202)
    admin.route("GET", "/v1/changes/c12", lambda _: Reply(left.pop(0) if len(left) > 1 else left[0]))


@pytest.mark.parametrize("verb", ["spawn", "start", "stop", "restart", "update"])
def test_a_verb_waits_and_says_what_became_of_it(admin: StubAdmin, hivectl: CommandLine, verb: str) -> None:
    still = answers.change("running", ("bob", "pending", ""))
    serve(admin, "POST", f"/v1/lifecycle/{verb}", still, answers.change("done", BOB_DONE))
    ended = hivectl.run(verb, "bob", "bob")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"bob is running\n", b"")
    assert admin.requests[0].json() == {"names": ["bob"], "now": False}
    assert [request.query for request in admin.asked("GET", "/v1/changes/c12")] == [{"wait_s": "25"}] * 2


def test_kill_is_stop_and_now_is_passed_on(admin: StubAdmin, hivectl: CommandLine) -> None:
    done = answers.change("done", ("bob", "done", "stopped"), ("eve", "done", "eve is stopped"))
    serve(admin, "POST", "/v1/lifecycle/stop", done)
    ended = hivectl.run("kill", "--now", "bob", "eve")
    assert ended.stdout == b"bob: stopped\neve is stopped\n"
    assert admin.requests[0].json() == {"names": ["bob", "eve"], "now": True}


def test_no_wait_prints_the_id_and_polls_nothing(admin: StubAdmin, hivectl: CommandLine) -> None:
    serve(admin, "POST", "/v1/lifecycle/start", answers.change("done", BOB_DONE))
    assert hivectl.run("start", "bob", "--no-wait").stdout == b"c12\n"
    assert json.loads(hivectl.run("start", "bob", "--no-wait", "-o", "json").stdout)["id"] == "c12"
    assert admin.asked("GET", "/v1/changes/c12") == []


def test_json_is_the_finished_change_and_name_the_agents(admin: StubAdmin, hivectl: CommandLine) -> None:
    done = answers.change("done", BOB_DONE)
    serve(admin, "POST", "/v1/lifecycle/start", done)
    assert json.loads(hivectl.run("start", "bob", "-o", "json").stdout) == done
    assert hivectl.run("start", "bob", "-o", "name").stdout == b"bob\n"


@pytest.mark.parametrize(
    ("final", "status", "said"),
    [
        pytest.param(
            answers.change("failed", ("bob", "failed", "cannot start bob: image is gone")),
            1,
            "hivectl: cannot start bob: image is gone (see hivectl changes c12)",
            id="the-agents-own-sentence",
        ),
        pytest.param(
            answers.change(
                "failed",
                ("bob", "failed", "it is still running"),
                error={"code": "timed_out", "message": "x", "hint": "try stop --now"},
            ),
            7,
            "hivectl: cannot start bob: it is still running (try stop --now)",
            id="code-of-the-change",
        ),
        pytest.param(
            answers.change("failed", error={"code": "conflict", "message": "the pass failed", "hint": ""}),
            6,
            "hivectl: cannot start bob: the pass failed (see hivectl changes c12)",
            id="no-agent",
        ),
        pytest.param(
            answers.change("failed", ("a", "failed", "x\x1b\ny"), ("b", "failed", "z"), BOB_DONE),
            1,
            "hivectl: cannot start bob: 2 of 3 agents failed: "
            "a: x\\x1b\\x0ay; b: z (see hivectl changes c12)",
            id="several",
        ),
    ],
)
def test_a_failed_change_is_this_commands_error(
    admin: StubAdmin, hivectl: CommandLine, final: dict[str, Any], status: int, said: str
) -> None:
    serve(admin, "POST", "/v1/lifecycle/start", final)
    ended = hivectl.run("start", "bob")
    assert ended.returncode == status
    assert ended.stderr.decode() == said + "\n"
    has_success = any(agent["state"] == "done" for agent in final["agents"])
    assert ended.stdout == (b"bob is running\n" if has_success else b"")


def test_a_refusal_at_once_is_the_error(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.refuse(
        "POST", "/v1/lifecycle/start", 409, "conflict", "cannot start bob: not spawned yet", "spawn it"
    )
    ended = hivectl.run("start", "bob")
    assert ended.returncode == 6
    assert ended.stderr == b"hivectl: cannot start bob: not spawned yet (spawn it)\n"


def test_an_interrupt_detaches_and_says_how_to_look(admin: StubAdmin, hivectl: CommandLine) -> None:
    serve(admin, "POST", "/v1/lifecycle/stop", answers.change("running", ("bob", "pending", "")))
    with hivectl.terminal("stop", "bob") as terminal:
        terminal.wait_for(b"stop bob:")
        terminal.process.send_signal(signal.SIGINT)
        ended = terminal.end()
    assert ended.status == 130
    assert b"the change goes on (look: hivectl changes c12)" in ended.screen


def test_progress_is_one_line_on_a_terminal_and_gone_at_the_end(
    admin: StubAdmin, hivectl: CommandLine
) -> None:
    still = answers.change("running", ("al", "done", "x"), ("bob", "pending", ""))
    serve(admin, "POST", "/v1/lifecycle/stop", still, still, answers.change("done", BOB_DONE))
    screen = hivectl.on_terminal("stop", "al", "bob").screen
    assert b"\r\x1b[Kstop al, bob: 1 of 2 0s, waiting for bob" in screen
    assert screen.endswith(b"\r\x1b[Kbob is running\r\n")


def test_a_change_can_be_looked_at(admin: StubAdmin, hivectl: CommandLine) -> None:
    error = {"code": "failed", "message": "it broke", "hint": "mend it"}
    failed = answers.change("failed", ("bob", "failed", "cannot stop bob: it broke"), error=error)
    admin.on("GET", "/v1/changes/c12", failed)
    text = hivectl.run("changes", "c12").stdout.decode()
    assert "cannot stop bob: it broke" in text
    assert "mend it" in text
    admin.on("GET", "/v1/changes", [failed])
    assert hivectl.run("changes", "-o", "name").stdout == b"c12\n"


def test_reconcile_says_when_there_is_nothing_to_do(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.on("POST", "/v1/reconcile", {"actions": [], "problems": []})
    ended = hivectl.run("reconcile", "--dry-run")
    assert (ended.stdout, ended.stderr) == (b"nothing to do\n", b"")
    assert admin.requests[0].json() == {"dry_run": True}
    serve(admin, "POST", "/v1/reconcile", answers.change("done"))
    assert hivectl.run("reconcile").stdout == b"nothing to do\n"


def test_a_dry_run_shows_each_action_with_its_reason(admin: StubAdmin, hivectl: CommandLine) -> None:
    actions = [{"agent": "bob", "action": "start", "reason": "it crashed\x1b[2J"}]
    problems = [{"code": "x", "text": "the disk is low", "agent": None}]
    admin.on("POST", "/v1/reconcile", {"actions": actions, "problems": problems})
    ended = hivectl.run("reconcile", "--dry-run")
    assert ended.stdout == b"bob   start   it crashed\\x1b[2J\n"
    assert ended.stderr == b"hivectl: problem: the disk is low\n"


def serve_removal(admin: StubAdmin) -> None:
    row = answers.full_agent("bob", children=["carl"], parent="ruth")
    admin.on("GET", "/v1/agents/bob", row)
    admin.on("DELETE", "/v1/agents/bob", answers.change("done", ("bob", "done", "bob is retired")))


@pytest.mark.parametrize(
    ("keys", "options", "status", "purge"),
    [
        pytest.param(b"y\n", [], 0, "false", id="yes"),
        pytest.param(b"yes\n", ["--purge"], 0, "true", id="purge"),
        pytest.param(b"n\n", [], 1, None, id="no"),
        pytest.param(b"\n", [], 1, None, id="default-is-no"),
        pytest.param(b"\x04", [], 1, None, id="end-of-input"),
    ],
)
def test_rm_says_what_it_will_do_and_asks(
    admin: StubAdmin, hivectl: CommandLine, keys: bytes, options: list[str], status: int, purge: str | None
) -> None:
    serve_removal(admin)
    with hivectl.terminal("rm", "bob", *options) as terminal:
        terminal.wait_for(b"[y/N] ")
        os.write(terminal.outer, keys)
        ended = terminal.end()
    assert ended.status == status
    assert b"put carl under ruth" in ended.screen
    assert (b"DELETE" in ended.screen) == ("--purge" in options)
    asked = [request.query["purge"] for request in admin.asked("DELETE", "/v1/agents/bob")]
    assert asked == ([] if purge is None else [purge])


def test_rm_with_yes_asks_nothing(admin: StubAdmin, hivectl: CommandLine) -> None:
    serve_removal(admin)
    assert hivectl.run("rm", "bob", "--yes").stdout == b"bob is retired\n"
    assert [request.method for request in admin.requests] == ["DELETE"]


def test_rm_without_a_terminal_does_nothing(admin: StubAdmin, hivectl: CommandLine) -> None:
    serve_removal(admin)
    ended = hivectl.run("rm", "bob", stdin=b"y\n")
    assert ended.returncode == 2
    assert admin.requests == []


@pytest.mark.parametrize(
    ("options", "parent", "top_level", "adopt"),
    [
        pytest.param([], None, False, False, id="default"),
        pytest.param(["--parent", "ruth"], "ruth", False, False, id="parent"),
        pytest.param(["--parent", "none"], None, True, False, id="top-level"),
        pytest.param(["--adopt-state"], None, False, True, id="adopt"),
    ],
)
def test_init_asks_for_what_was_said(
    admin: StubAdmin,
    hivectl: CommandLine,
    options: list[str],
    parent: str | None,
    top_level: bool,
    adopt: bool,
) -> None:
    serve(admin, "POST", "/v1/agents", answers.change("done", ("bob", "done", "bob is made")))
    assert hivectl.run("init", "bob", *options).stdout == b"bob is made\n"
    assert admin.requests[0].json() == {
        "name": "bob",
        "parent": parent,
        "top_level": top_level,
        "adopt_state": adopt,
        "files": None,
    }


def test_push_sends_the_folder(admin: StubAdmin, hivectl: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_bytes(b'name = "bob"\n')
    received: list[Received] = []

    def route(request: Received) -> Reply:
        received.append(request)
        return Reply(answers.change("done", ("bob", "done", "bob is at ab12")))

    admin.route("PUT", "/v1/agents/bob/config", route)
    assert hivectl.run("push", "bob", str(tmp_path)).stdout == b"bob is at ab12\n"
    expected = {"path": "agent.toml", "content": "bmFtZSA9ICJib2IiCg==", "executable": False}
    assert received[0].json() == {"files": [expected]}
