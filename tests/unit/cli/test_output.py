import json
import threading
from typing import Any

import pytest

from tests.support.paths import wait_until
from tests.support.stub_admin import Received, Reply, StubAdmin
from tests.unit.cli import answers
from tests.unit.cli.command_line import CommandLine

HOSTILE = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)])) + (
    "\u202e\u2066\u200b\ufeff\u2028\u2029\ue000\U000e0041[/x][link=http://x]y"
)
READS = [["status"], ["ps"], ["show", "bob"], ["roster"], ["events"], ["doctor"], ["changes"]]
READS += [["why", "bob"], ["audit"], ["audit", "verify"], ["explain", "eve", "start"], ["changes", "c12"]]


def serve_hostile(admin: StubAdmin) -> None:
    """Let every text that an agent may have written be as bad as it can be."""
    row = answers.full_agent("bob", reason=HOSTILE, description=HOSTILE, command=[HOSTILE], degraded=True)
    row |= {"degraded_reason": HOSTILE, "exits": [{"text": HOSTILE, "kind": HOSTILE, "exit_code": 1}]}
    problem = {"code": "x", "text": HOSTILE, "agent": HOSTILE}
    admin.on("GET", "/v1/agents", [row])
    admin.on("GET", "/v1/agents/bob", row)
    admin.on("GET", "/v1/status", answers.status(problems=[problem], phase=HOSTILE))
    admin.on("GET", "/v1/roster", b'{"bob": null}')
    admin.on("GET", "/v1/events", [answers.event(1, text=HOSTILE, kind=HOSTILE)])
    admin.on("GET", "/v1/doctor", {"checks": [{"name": "x", "status": "ok", "text": HOSTILE, "hint": ""}]})
    admin.on("GET", "/v1/agents/bob/why", {"summary": HOSTILE, "sentences": [HOSTILE, HOSTILE]})
    record = {"seq": 1, "at": HOSTILE, "caller": HOSTILE, "operation": HOSTILE, "target": HOSTILE}
    admin.on("GET", "/v1/audit", {"records": [record | {HOSTILE: HOSTILE}], "head": HOSTILE})
    admin.on("GET", "/v1/audit/verify", {"ok": True, "records": 1, "head": HOSTILE, "fault": None})
    admin.on(
        "GET",
        "/v1/explain",
        {"allowed": True, "decision": HOSTILE, "rule": HOSTILE, "remedy": HOSTILE},
    )
    step = {"at": HOSTILE, "agent": HOSTILE, "kind": HOSTILE, "text": HOSTILE}
    admin.on("GET", "/v1/changes/c12", answers.change("done", (HOSTILE, "done", HOSTILE), steps=[step]))
    admin.on("GET", "/v1/changes", [answers.change("done", (HOSTILE, "done", HOSTILE))])


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_no_control_byte_reaches_a_terminal(
    admin: StubAdmin, hivectl: CommandLine, command: list[str]
) -> None:
    serve_hostile(admin)
    for output in ("table", "json", "jsonl"):
        ended = hivectl.on_terminal(*command, "-o", output)
        assert ended.status == 0, ended.screen
        text = ended.screen.decode().replace("\r\n", "")
        assert text.isprintable(), (output, text)


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_json_is_one_ascii_document_and_jsonl_one_a_line(
    admin: StubAdmin, hivectl: CommandLine, command: list[str]
) -> None:
    serve_hostile(admin)
    document = hivectl.run(*command, "-o", "json").stdout.decode("ascii")
    parsed = json.loads(document)
    lines = hivectl.run(*command, "-o", "jsonl").stdout.decode("ascii").splitlines()
    rows = [json.loads(line) for line in lines]
    if command == ["roster"]:
        assert (document, rows) == ('{"bob": null}', [{"name": "bob", "parent": None}])
    else:
        assert (rows if isinstance(parsed, list) else rows[0]) == parsed


def test_markup_is_printed_as_it_is(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.on("GET", "/v1/agents", [answers.agent("bob", reason="[/x] [bold] [link=http://x]y[/link]")])
    assert b"[/x] [bold] [link=http://x]y[/link]\n" in hivectl.run("ps").stdout


def test_the_table_is_aligned_and_says_what_is_to_be_known(admin: StubAdmin, hivectl: CommandLine) -> None:
    rows = [
        answers.agent("alice", parent="ruth", needs_update=True),
        answers.agent("bob", state="crash-looping", degraded=True, reason="exit code 1"),
        answers.agent("eve", state="unspawned", started_at=None, reason=None),
    ]
    admin.on("GET", "/v1/agents", rows)
    lines = hivectl.run("ps").stdout.decode().splitlines()
    assert lines[0].split() == ["NAME", "PARENT", "STATE", "SINCE", "REASON"]
    column = lines[0].index("STATE")
    assert [line[column:].split()[0] for line in lines[1:]] == ["running", "crash-looping", "unspawned"]
    assert lines[1].endswith("started by the operator, needs update")
    assert lines[2].endswith("exit code 1, degraded")
    assert all(line == line.rstrip() for line in lines)
    assert hivectl.run("ps", "-o", "name").stdout == b"alice\nbob\neve\n"


def test_long_text_is_clipped_on_a_terminal_and_whole_elsewhere(
    admin: StubAdmin, hivectl: CommandLine
) -> None:
    admin.on("GET", "/v1/agents", [answers.agent("bob", reason="x" * 1_000_000)])
    screen = hivectl.on_terminal("ps").screen.decode()
    assert max(len(line) for line in screen.split("\r\n")) == 120
    assert screen.rstrip().endswith("...")
    assert json.loads(hivectl.run("ps", "-o", "json").stdout)[0]["reason"] == "x" * 1_000_000


def test_colour_is_for_terminals_that_want_it(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.on("GET", "/v1/agents", [answers.agent("bob")])
    assert b"\x1b[32mrunning\x1b[0m" in hivectl.on_terminal("ps", colour=True).screen
    assert b"\x1b" not in hivectl.on_terminal("ps").screen
    assert b"\x1b" not in hivectl.run("ps").stdout


@pytest.mark.parametrize("command", [["ps"], ["roster"], ["events"], ["changes"]], ids=lambda c: c[0])
def test_nothing_yet_is_said(admin: StubAdmin, hivectl: CommandLine, command: list[str]) -> None:
    for path in ("agents", "events", "changes"):
        admin.on("GET", f"/v1/{path}", [])
    admin.on("GET", "/v1/roster", b"[]")
    assert b" yet" in hivectl.run(*command).stdout
    assert hivectl.run(*command, "-o", "name").stdout == b""


def test_status_bears_a_daemon_that_has_seen_nothing(admin: StubAdmin, hivectl: CommandLine) -> None:
    empty = {"state": "absent", "shape": None, "agents": None}
    engine = {"state": "unreachable", "version": None}
    admin.on(
        "GET", "/v1/status", answers.status(phase="recovering", roster=empty, engine=engine, last_pass=None)
    )
    text = hivectl.run("status").stdout.decode()
    assert "recovering" in text
    assert "unreachable" in text
    assert "none yet" in text


@pytest.mark.parametrize(
    ("published", "tree"),
    [
        pytest.param(b'["alice","bob"]', "alice\nbob\n", id="flat"),
        pytest.param(b'{"c": "b", "a": null, "b": "a"}', "a\n  b\n    c\n", id="tree"),
        pytest.param(b'{"b": "gone"}', "b\n", id="parent-is-no-key"),
    ],
)
def test_the_roster_is_a_tree_for_people_and_bytes_for_programs(
    admin: StubAdmin, hivectl: CommandLine, published: bytes, tree: str
) -> None:
    admin.on("GET", "/v1/roster", published)
    assert hivectl.run("roster").stdout.decode() == tree
    assert hivectl.run("roster", "-o", "json").stdout == published


def test_events_are_followed_from_the_last_one_shown(admin: StubAdmin, hivectl: CommandLine) -> None:
    def route(request: Received) -> Reply:
        after = request.query.get("after")
        if after is None:
            return Reply([answers.event(7)])
        if after == "7":
            return Reply([answers.event(8), answers.event(9)])
        threading.Event().wait(30)
        return Reply([])

    admin.route("GET", "/v1/events", route)
    with hivectl.running("events", "-f", "--limit", "1", "-o", "jsonl") as process:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["seq"] for _ in range(3)] == [7, 8, 9]
        wait_until(lambda: len(admin.requests) > 2, "the request for what comes next")
    assert [request.query.get("after") for request in admin.requests[:3]] == [None, "7", "9"]


def test_watching_prints_only_what_changed_on_a_pipe(admin: StubAdmin, hivectl: CommandLine) -> None:
    states: list[Any] = ["running", "running", "stopped"]
    admin.route(
        "GET",
        "/v1/agents",
        lambda _: Reply([answers.agent("bob", state=states.pop(0) if len(states) > 1 else states[0])]),
    )
    admin.on("GET", "/v1/events", [answers.event(1)])
    with hivectl.running("ps", "-w", "-o", "jsonl") as process:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["state"] for _ in range(2)] == ["running", "stopped"]


def test_watching_redraws_a_terminal(admin: StubAdmin, hivectl: CommandLine) -> None:
    rows = [[answers.agent("bob", state="starting")], [answers.agent("bob", reason="is up")]]
    admin.route("GET", "/v1/agents", lambda _: Reply(rows.pop(0) if len(rows) > 1 else rows[0]))
    admin.on("GET", "/v1/events", [answers.event(1)])
    with hivectl.terminal("ps", "-w") as terminal:
        terminal.wait_for(b"starting")
        terminal.wait_for(b"is up")
        assert terminal.screen.count(b"\x1b[2J") == 1
