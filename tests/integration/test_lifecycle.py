"""The life of agents through hivectl as a process: what it prints, how it exits, what the engine then has."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_hive import SLEEP, LiveHive, config

pytestmark = pytest.mark.integration

MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")
ROW = {
    "name", "parent", "state", "desired", "container_id", "started_at", "reason", "needs_update", "degraded",
}  # fmt: skip
SHOW = ROW | {
    "description", "uid", "incarnation", "created_at", "children", "image", "command", "applied_commit",
    "main_commit", "spec", "limits", "network", "differing", "degraded_reason", "exits", "container_name",
    "desired_reason", "disk_bytes", "disk_inodes",
}  # fmt: skip
CHANGE = {"id", "kind", "state", "agents", "steps", "started_at", "finished_at", "error"}


@pytest.fixture
def bob(hive: LiveHive) -> Iterator[LiveHive]:
    """The shared hive with bob running in it, and without him afterwards."""
    hive.spawn("bob")
    yield hive
    if "bob" in hive.rows():
        hive.remove("bob")


# ---- refusals first ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        pytest.param(("show", "nobody"), 4, "nobody", id="show-unknown"),
        pytest.param(("spawn", "nobody"), 4, "nobody", id="spawn-unknown"),
        pytest.param(("stop", "nobody"), 4, "nobody", id="stop-unknown"),
        pytest.param(("rm", "nobody", "--yes"), 4, "nobody", id="rm-unknown"),
        pytest.param(("logs", "nobody"), 4, "nobody", id="logs-unknown"),
        pytest.param(("exec", "nobody", "--", "true"), 125, "nobody", id="exec-unknown"),
        pytest.param(("init", "Bob"), 2, "Bob", id="invalid-name"),
        pytest.param(("init", "hive"), 2, "reserved", id="reserved-name"),
        pytest.param(("init", "carol", "--parent", "nobody"), 4, "nobody", id="unknown-parent"),
        pytest.param(("init", "carol", "--adopt-state"), 4, "carol", id="nothing-to-adopt"),
        pytest.param(("rm", "nobody"), 2, "--yes", id="rm-without-terminal"),
        pytest.param(("ps", "-o", "yaml"), 2, "yaml", id="unknown-format"),
        pytest.param(("launch",), 2, "launch", id="unknown-command"),
    ],
)
def test_a_refusal_is_one_line_and_its_own_status(
    hive: LiveHive, arguments: tuple[str, ...], status: int, word: str
) -> None:
    refused = hive.hivectl(*arguments, expect=status)
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    assert word in refused.stderr
    assert "carol" not in hive.rows()


def test_a_refusal_is_one_json_line_under_json(hive: LiveHive) -> None:
    refused = hive.hivectl("show", "nobody", "-o", "json", expect=4)
    error = json.loads(refused.stderr)["error"]
    assert set(error) == {"code", "message", "hint"}
    assert error["code"] == "not_found"


def test_verbs_refuse_what_makes_no_sense_in_a_state(bob: LiveHive) -> None:
    bob.init("carol")
    try:
        for verb in ("start", "stop", "restart", "update"):
            assert "not spawned yet" in bob.hivectl(verb, "carol", expect=6).stderr
        assert "spawned already" in bob.hivectl("spawn", "bob", expect=6).stderr
        bob.hivectl("stop", "bob")
        assert "stopped" in bob.hivectl("restart", "bob", expect=6).stderr
        assert bob.row("bob")["state"] == "stopped"
        assert bob.row("carol")["state"] == "unspawned"
    finally:
        bob.remove("carol")


def test_a_verb_on_several_is_done_to_all_or_to_none(bob: LiveHive) -> None:
    before = bob.lives()
    bob.hivectl("restart", "bob", "nobody", expect=4)
    bob.reconcile()
    assert bob.lives() == before


def test_a_name_that_is_taken_is_a_conflict(bob: LiveHive) -> None:
    before = bob.lives()
    assert "taken" in bob.hivectl("init", "bob", expect=6).stderr
    assert bob.lives() == before


# ---- shapes -----------------------------------------------------------------------------------------------


def test_status_has_its_stable_shape(bob: LiveHive) -> None:
    status = bob.hivectl("status", "-o", "json").json
    assert set(status) == {
        "pid", "version", "hive", "phase", "engine", "roster", "last_pass", "disk", "problems"
    }  # fmt: skip
    assert bob.process is not None
    assert status["pid"] == bob.process.pid
    assert status["phase"] == "running"
    assert set(status["engine"]) == {"state", "version"}
    assert status["engine"]["state"] == "ok"
    assert status["roster"] == {"state": "present", "shape": "tree", "agents": 1}
    assert set(status["last_pass"]) == {"age_s", "duration_s", "actions"}
    assert status["problems"] == []


def test_ps_has_its_stable_shape(bob: LiveHive) -> None:
    bob.init("carol")
    try:
        running, unspawned = bob.hivectl("ps", "-o", "json").json
        assert set(running) == set(unspawned) == ROW
        assert (running["name"], running["state"], running["desired"]) == ("bob", "running", "running")
        assert (running["parent"], running["needs_update"], running["degraded"]) == (None, False, False)
        assert MOMENT.fullmatch(running["started_at"])
        assert re.fullmatch(r"[0-9a-f]{64}", running["container_id"])
        assert (unspawned["state"], unspawned["desired"]) == ("unspawned", "unspawned")
        assert unspawned["container_id"] is unspawned["started_at"] is None
    finally:
        bob.remove("carol")


def test_show_has_its_stable_shape(bob: LiveHive) -> None:
    shown = bob.hivectl("show", "bob", "-o", "json").json
    assert set(shown) == SHOW
    assert shown["container_name"] == bob.container("bob")
    assert shown["applied_commit"] == shown["main_commit"]
    assert shown["command"] == list(SLEEP)
    assert (shown["children"], shown["differing"], shown["exits"]) == ([], [], [])
    assert shown["limits"] == {
        "memory_bytes": 64 << 20, "cpus": 1.0, "pids": 32, "tmp_bytes": 4 << 20
    }  # fmt: skip
    assert MOMENT.fullmatch(shown["created_at"])


def test_events_grow_and_carry_their_moment(bob: LiveHive) -> None:
    lines = bob.hivectl("events", "-o", "jsonl", "--limit", "1000").stdout.splitlines()
    events = [json.loads(line) for line in lines]
    numbers = [event["seq"] for event in events]
    assert numbers == sorted(set(numbers))
    for event in events:
        assert {"seq", "at", "kind", "agent", "text"} <= set(event)
        assert MOMENT.fullmatch(event["at"])


def test_the_roster_is_printed_byte_for_byte(bob: LiveHive) -> None:
    bob.init("carol", parent="bob")
    try:
        printed = bob.hivectl("roster", "-o", "json").stdout
        assert printed.encode() == bob.roster_file.read_bytes()
        assert json.loads(printed) == {"bob": None, "carol": "bob"}
        assert bob.show("bob")["children"] == ["carol"]
    finally:
        bob.remove("carol")


def test_a_change_has_its_stable_shape_and_can_be_left_alone(bob: LiveHive) -> None:
    begun = bob.hivectl("stop", "bob", "--no-wait", "-o", "json").json
    assert set(begun) == CHANGE
    ended = bob.change(begun)
    assert set(ended) == CHANGE
    assert ended["agents"] == [{"name": "bob", "state": "done", "text": "bob is stopped (graceful)"}]
    assert ended["error"] is None
    assert MOMENT.fullmatch(ended["finished_at"])


# ---- the life of an agent ---------------------------------------------------------------------------------


def test_from_a_folder_to_a_running_container(hive: LiveHive) -> None:
    files = {**config("erin", ("sh", "-c", "cat /config/greeting; sleep 600")), "greeting": b"hello\n"}
    folder = hive.folder("erin", files)
    hive.hivectl("init", "erin", "--from", str(folder), "--parent", "none")
    try:
        assert hive.containers("erin") == []
        hive.hivectl("spawn", "erin")
        assert hive.row("erin")["state"] == "running"
        assert hive.inspect("erin")["Name"] == f"/{hive.container('erin')}"
        hive.wait_for(lambda: hive.hivectl("logs", "erin").stdout == "hello\n", "its first words")
    finally:
        hive.remove("erin")


def test_the_built_in_template_runs(hive: LiveHive) -> None:
    hive.hivectl("init", "frank")
    try:
        hive.hivectl("spawn", "frank")
        assert hive.row("frank")["state"] == "running"
    finally:
        hive.remove("frank")


def test_stop_and_start_keep_the_container(bob: LiveHive) -> None:
    before = bob.row("bob")
    assert bob.hivectl("stop", "bob").stdout == "bob is stopped (graceful)\n"
    stopped = bob.row("bob")
    assert (stopped["state"], stopped["desired"], stopped["started_at"]) == ("stopped", "stopped", None)
    assert bob.raw.inspect_container(before["container_id"])["State"]["Status"] == "exited"
    assert bob.hivectl("stop", "bob").stdout == "bob is stopped already\n"
    assert bob.hivectl("start", "bob").stdout == "bob is running\n"
    after = bob.row("bob")
    assert after["container_id"] == before["container_id"]
    assert after["started_at"] > before["started_at"]
    assert bob.hivectl("start", "bob").stdout == "bob is running already\n"
    assert bob.row("bob") == after


def test_kill_is_stop(bob: LiveHive) -> None:
    bob.hivectl("kill", "bob", "--now")
    assert bob.row("bob")["state"] == "stopped"


def test_restart_starts_the_same_container_once(bob: LiveHive) -> None:
    before = bob.row("bob")
    bob.hivectl("restart", "bob")
    after = bob.row("bob")
    assert after["container_id"] == before["container_id"]
    assert after["started_at"] > before["started_at"]
    bob.reconcile()
    assert bob.row("bob")["started_at"] == after["started_at"]
    assert [one for one in bob.show("bob")["exits"] if one["kind"] != "requested"] == []


def test_push_changes_nothing_that_runs_until_update(bob: LiveHive) -> None:
    before = bob.row("bob")
    old = bob.show("bob")["applied_commit"]
    folder = bob.folder("bob", {**config("bob", ("sleep", "601"))})
    bob.hivectl("push", "bob", str(folder))
    pushed = bob.wait_for(lambda: row if (row := bob.row("bob"))["needs_update"] else None, "needs_update")
    assert (pushed["container_id"], pushed["started_at"]) == (before["container_id"], before["started_at"])
    assert {"command", "commit"} <= set(bob.show("bob")["differing"])
    bob.hivectl("update", "bob")
    after = bob.show("bob")
    assert after["container_id"] != before["container_id"]
    assert (after["command"], after["needs_update"]) == (["sleep", "601"], False)
    assert after["applied_commit"] == after["main_commit"] != old
    assert len(bob.containers("bob")) == 1
    exports = os.listdir(bob.data / "agents" / "bob" / "config")
    assert exports == [after["applied_commit"]]


def test_update_of_a_stopped_agent_applies_and_does_not_start(bob: LiveHive) -> None:
    bob.hivectl("stop", "bob")
    bob.push("bob", config("bob", ("sleep", "602")))
    bob.hivectl("update", "bob")
    assert bob.row("bob")["state"] == "stopped"
    assert not [one for one in bob.containers("bob") if one["State"] == "running"]
    bob.hivectl("start", "bob")
    assert bob.inspect("bob")["Config"]["Cmd"] == ["sleep", "602"]


# ---- the end of an agent ----------------------------------------------------------------------------------

_KEEP = ("sh", "-c", "echo kept >> /state/mark; echo more >> ~/mark; sleep 600")


def _mark(hive: LiveHive, name: str) -> str:
    return hive.hivectl("exec", name, "--", "cat", "/state/mark", "/home/agent/mark").stdout


def test_rm_retires_and_adopt_state_brings_back_the_tree_and_the_uid(hive: LiveHive) -> None:
    hive.spawn("gina", *_KEEP)
    before = hive.show("gina")
    hive.wait_for(lambda: _mark(hive, "gina") == "kept\nmore\n", "the marks")
    hive.hivectl("rm", "gina", "--yes")
    assert "gina" not in hive.rows()
    assert hive.containers("gina") == []
    assert json.loads(hive.roster_file.read_bytes()) == {}
    assert not (hive.data / "agents" / "gina").exists()
    assert (hive.data / "agents" / ".retired" / f"gina-{before['incarnation']}" / "state" / "mark").exists()
    assert not (hive.data / "repos" / "gina.git").exists()
    assert not (hive.run_dir / "agents" / "gina").exists()

    hive.hivectl("init", "gina", "--adopt-state")
    hive.hivectl("spawn", "gina")
    after = hive.show("gina")
    try:
        assert after["uid"] == before["uid"]
        assert after["incarnation"] != before["incarnation"]
        hive.wait_for(lambda: _mark(hive, "gina") == "kept\nkept\nmore\nmore\n", "old and new marks")
    finally:
        hive.remove("gina")


def test_a_name_that_comes_back_is_somebody_else(hive: LiveHive) -> None:
    hive.spawn("hugo")
    before = hive.show("hugo")
    hive.hivectl("rm", "hugo", "--yes")
    hive.hivectl("init", "hugo")
    after = hive.show("hugo")
    try:
        assert after["uid"] != before["uid"]
        assert after["incarnation"] != before["incarnation"]
        assert os.listdir(hive.data / "agents" / "hugo" / "state") == []
    finally:
        hive.remove("hugo")


def test_purge_deletes_everything(hive: LiveHive) -> None:
    hive.spawn("ivan", *_KEEP)
    incarnation = hive.show("ivan")["incarnation"]
    hive.hivectl("rm", "ivan", "--purge", "--yes")
    assert "ivan" not in hive.rows()
    assert _traces(hive.data, "ivan", incarnation) == []
    assert hive.hivectl("init", "ivan", "--adopt-state", expect=4).stdout == ""


def _traces(data: Path, name: str, incarnation: str) -> list[str]:
    places = (data / "agents", data / "agents" / ".retired", data / "repos", data / "repos" / "retired")
    entries = [entry for place in places if place.is_dir() for entry in os.listdir(place)]
    return [entry for entry in entries if entry.startswith(name) or incarnation in entry]


def test_children_of_a_removed_parent_move_to_their_grandparent(hive: LiveHive) -> None:
    hive.init("top")
    hive.init("mid", parent="top")
    hive.spawn("low", parent="mid")
    before = hive.lives()
    hive.hivectl("rm", "mid", "--yes")
    try:
        assert json.loads(hive.roster_file.read_bytes()) == {"low": "top", "top": None}
        assert hive.row("low")["parent"] == "top"
        assert hive.lives() == before
    finally:
        hive.remove("low", "top")


def test_removing_a_stopped_and_an_unspawned_agent(hive: LiveHive) -> None:
    hive.spawn("jane")
    hive.verb("stop", "jane")
    hive.init("kurt")
    hive.hivectl("rm", "jane", "--yes")
    hive.hivectl("rm", "kurt", "--yes")
    assert hive.rows() == {}
    assert hive.containers() == []
