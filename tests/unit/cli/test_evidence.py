"""The commands that tell how things came about: why, explain, audit, the steps of a change, kept logs."""

import json
from typing import Any

import pytest

from tests.support.stub_admin import Received, Reply, StubAdmin
from tests.unit.cli import answers
from tests.unit.cli.command_line import CommandLine

WHY = {
    "summary": "bob is stopped since 2025-01-02T03:04:05.678Z: stop requested by the operator",
    "sentences": ["2025-01-02T03:00:00.000Z it was started: spawned", "it ended: out of memory\x1b[2J"],
}
HEAD = "2:" + "ab" * 32


def record(seq: int, **fields: Any) -> dict[str, Any]:
    """Return an audit record."""
    usual = {
        "at": answers.STARTED,
        "caller": "uid 0",
        "operation": "start",
        "target": "bob",
        "outcome": "asked",
        "key": "6b" * 16,
        "seq": seq,
        "prev": "0" * 64,
        "hash": "ab" * 32,
    }
    return usual | fields


def test_why_begins_with_the_summary(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.on("GET", "/v1/agents/bob/why", WHY)
    lines = hivectl.run("why", "bob").stdout.decode().splitlines()
    assert lines[0] == WHY["summary"]
    assert lines[1:] == [
        "  2025-01-02T03:00:00.000Z it was started: spawned",
        "  it ended: out of memory\\x1b[2J",
    ]
    assert json.loads(hivectl.run("why", "bob", "--limit", "3", "-o", "json").stdout) == WHY
    assert [request.query for request in admin.requests] == [{"limit": "12"}, {"limit": "3"}]


def test_why_of_nobody_exits_4(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.refuse("GET", "/v1/agents/bob/why", 404, "not_found", "there is no agent bob", "hivectl ps")
    ended = hivectl.run("why", "bob")
    assert ended.returncode == 4
    assert ended.stderr == b"hivectl: cannot tell why bob is as it is: there is no agent bob (hivectl ps)\n"


ALLOWED = {"allowed": True, "decision": "allowed", "rule": "'bob' is below 'ruth'", "remedy": ""}
DENIED = {
    "allowed": False,
    "decision": "answered not_found",
    "rule": "'bob' is not in the subtree of 'eve'",
    "remedy": "being above 'bob' in the roster",
}


@pytest.mark.parametrize(("answer", "status"), [(ALLOWED, 0), (DENIED, 5)], ids=["allowed", "denied"])
def test_explain_tells_decision_rule_and_remedy(
    admin: StubAdmin, hivectl: CommandLine, answer: dict[str, Any], status: int
) -> None:
    admin.on("GET", "/v1/explain", answer)
    ended = hivectl.run("explain", "eve", "restart", "bob")
    assert (ended.returncode, ended.stderr) == (status, b"")
    text = ended.stdout.decode()
    assert answer["decision"] in text
    assert answer["rule"] in text
    assert ("allowed by   being above 'bob'" in text) == (not answer["allowed"])
    ended = hivectl.run("explain", "eve", "names", "-o", "json")
    assert (ended.returncode, json.loads(ended.stdout)) == (status, answer)
    assert [request.query for request in admin.requests] == [
        {"caller": "eve", "operation": "restart", "target": "bob"},
        {"caller": "eve", "operation": "names"},
    ]


def test_explain_of_an_unknown_operation_is_no_denial(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.refuse("GET", "/v1/explain", 404, "not_found", "there is no operation 'fly'", "known: start")
    assert hivectl.run("explain", "eve", "fly").returncode == 4


def test_the_audit_is_a_table_with_its_head(admin: StubAdmin, hivectl: CommandLine) -> None:
    records = [
        record(1),
        record(2, outcome="refused", code="conflict", state=True, target=None, caller="uid 7\x1b[2J"),
    ]
    admin.on("GET", "/v1/audit", {"records": records, "head": HEAD})
    lines = hivectl.run("audit", "--limit", "7").stdout.decode().splitlines()
    assert lines[0].split() == ["WHEN", "CALLER", "OPERATION", "TARGET", "OUTCOME", "MORE"]
    assert lines[1].split()[-5:] == ["uid", "0", "start", "bob", "asked"]
    assert lines[2].endswith("uid 7\\x1b[2J   start       -        refused   code conflict, state true")
    assert lines[-1] == f"head {HEAD}"
    assert json.loads(hivectl.run("audit", "-o", "json").stdout) == records
    assert [request.query for request in admin.requests] == [{"limit": "7"}, {"limit": "50"}]


def test_an_audit_without_records_says_so(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.on("GET", "/v1/audit", {"records": [], "head": "0:" + "0" * 64})
    assert hivectl.run("audit").stdout.startswith(b"no records")
    assert hivectl.run("audit", "-o", "json").stdout == b"[]\n"


@pytest.mark.parametrize("output", ["table", "jsonl"])
def test_the_audit_is_followed_from_the_last_record(
    admin: StubAdmin, hivectl: CommandLine, output: str
) -> None:
    def route(request: Received) -> Reply:
        after = request.query.get("after")
        fresh = {None: [record(7)], "7": [record(8), record(9)]}
        return Reply({"records": fresh.get(after, []), "head": HEAD})

    admin.route("GET", "/v1/audit", route)
    with hivectl.running("audit", "-f", "-o", output) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
    if output == "jsonl":
        assert [json.loads(line)["seq"] for line in lines] == [7, 8, 9]
    else:
        assert all(b"   uid 0        start          bob         asked" in line for line in lines), lines


def test_a_chain_that_holds_prints_the_head_to_keep(admin: StubAdmin, hivectl: CommandLine) -> None:
    verdict = {"ok": True, "records": 2, "head": HEAD, "fault": None}
    admin.on("GET", "/v1/audit/verify", verdict)
    ended = hivectl.run("audit", "verify")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"2 records" in ended.stdout
    assert HEAD.encode() in ended.stdout
    assert json.loads(hivectl.run("audit", "verify", "--head", HEAD, "-o", "json").stdout) == verdict
    assert [request.query for request in admin.requests] == [{}, {"head": HEAD}]


def test_a_chain_that_does_not_hold_exits_1_with_the_fault(admin: StubAdmin, hivectl: CommandLine) -> None:
    verdict = {"ok": False, "records": 2, "head": None, "fault": "audit record 2 is missing\x1b[2J"}
    admin.on("GET", "/v1/audit/verify", verdict)
    ended = hivectl.run("audit", "verify")
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert ended.stderr.decode().startswith(
        "hivectl: cannot verify the audit log: it does not hold: audit record 2 is missing\\x1b[2J ("
    )
    ended = hivectl.run("audit", "verify", "-o", "json")
    assert (ended.returncode, json.loads(ended.stdout)) == (1, verdict)


def test_a_head_that_is_none_exits_2(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.refuse("GET", "/v1/audit/verify", 400, "invalid_request", "a head is written SEQ:HASH")
    assert hivectl.run("audit", "verify", "--head", "x").returncode == 2


@pytest.mark.parametrize(
    ("command", "said"),
    [
        pytest.param(["audit", "verifi"], "not one of verify", id="other-word"),
        pytest.param(["audit", "--head", HEAD], "--head is for verify", id="head-without-verify"),
        pytest.param(["audit", "verify", "-f"], "-f and --limit", id="verify-followed"),
        pytest.param(["audit", "verify", "--limit", "1"], "-f and --limit", id="verify-limited"),
        pytest.param(["audit", "-f", "-o", "json"], "use -o jsonl", id="endless-document"),
        pytest.param(["logs", "bob", "--previous", "-f"], "no more to follow", id="previous-followed"),
        pytest.param(["explain", "eve"], "missing argument 'OPERATION'", id="explain-nothing"),
        pytest.param(["explain", "", "start"], "the name is empty", id="explain-nobody"),
        pytest.param(["why"], "missing argument 'NAME'", id="why-nobody"),
    ],
)
def test_wrong_usage_exits_2_and_asks_nothing(
    admin: StubAdmin, hivectl: CommandLine, command: list[str], said: str
) -> None:
    ended = hivectl.run(*command)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert said in ended.stderr.decode()
    assert admin.requests == []


def test_a_change_is_shown_with_its_steps(admin: StubAdmin, hivectl: CommandLine) -> None:
    steps = [
        {"at": answers.STARTED, "agent": "bob", "kind": "stopped", "text": "graceful\x1b[2J"},
        {"at": answers.STARTED, "agent": None, "kind": "phase", "text": "the daemon came back"},
    ]
    change = answers.change("done", ("bob", "done", "bob is stopped"), steps=steps)
    admin.on("GET", "/v1/changes/c12", change)
    lines = hivectl.run("changes", "c12").stdout.decode().splitlines()
    at = lines.index("")
    assert lines[at + 1].split() == ["WHEN", "AGENT", "STEP", "TEXT"]
    assert lines[at + 2].endswith("bob     stopped   graceful\\x1b[2J")
    assert lines[at + 3].endswith("-       phase     the daemon came back")
    assert json.loads(hivectl.run("changes", "c12", "-o", "json").stdout) == change


def test_a_kept_log_is_asked_for_and_cut_to_its_last_lines(admin: StubAdmin, hivectl: CommandLine) -> None:
    content = b"".join(b"line %d\n" % number for number in range(300)) + b"half\x1b"
    admin.route("GET", "/v1/agents/bob/logs", lambda _: Reply(pieces=[content[:1000], content[1000:]]))
    assert hivectl.run("logs", "bob", "--previous", "--tail", "2").stdout == b"line 299\nhalf\\x1b"
    assert hivectl.run("logs", "bob", "--previous", "--raw", "--tail", "999").stdout == content
    assert hivectl.run("logs", "bob", "--previous", "--tail", "0").stdout == b""
    assert admin.requests[0].query == {"previous": "true"}


def test_no_kept_log_exits_4(admin: StubAdmin, hivectl: CommandLine) -> None:
    admin.refuse("GET", "/v1/agents/bob/logs", 404, "not_found", "no container of bob was removed yet")
    assert hivectl.run("logs", "bob", "--previous").returncode == 4
