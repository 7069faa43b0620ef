"""Holding a hive: pause, quarantine, stop all, updates that go wrong, and the evidence they leave."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from functools import partial

import pytest
from websockets.sync.client import unix_connect

from hive_api.client import ApiError
from hive_core.adapters.mountinfo import read_mounts
from hive_core.adapters.run_dirs import RunDirs
from tests.support.live_hive import LiveHive, config, wire

pytestmark = pytest.mark.integration

DEAF = ("sh", "-c", "trap '' TERM; echo deaf; sleep 600 & wait; sleep 600")


@pytest.fixture
def pair(hive: LiveHive) -> Iterator[LiveHive]:
    """bob below alice, both running; gone afterwards."""
    hive.spawn("alice")
    hive.spawn("bob", parent="alice")
    yield hive
    hive.remove(*hive.rows())


def verb(hive: LiveHive, name: str, body: dict[str, object]) -> dict[str, object]:
    """Ask for a lifecycle verb and wait for its change."""
    ended: dict[str, object] = hive.change(hive.api.post(f"/v1/lifecycle/{name}", body))
    return ended


def _is_deaf(hive: LiveHive, name: str) -> bool:
    return "deaf" in hive.hivectl("logs", name).stdout


# ---- quarantine --------------------------------------------------------------------------------------------


def test_what_is_not_in_quarantine_cannot_be_released(pair: LiveHive) -> None:
    with pytest.raises(ApiError, match="not in quarantine"):
        pair.api.post("/v1/lifecycle/release", {"names": ["bob"]})


def test_quarantine_freezes_a_subtree_refuses_verbs_and_release_lets_it_run_on(pair: LiveHive) -> None:
    before = pair.lives()
    verb(pair, "quarantine", {"names": ["alice"], "subtree": True})
    assert {one: pair.inspect(one)["State"]["Status"] for one in ("alice", "bob")} == {
        "alice": "paused",
        "bob": "paused",
    }
    row = pair.row("bob")
    assert (row["state"], row["desired"]) == ("paused", "running")
    assert "hivectl release bob" in row["reason"]
    with pytest.raises(ApiError, match="in quarantine"):
        pair.api.post("/v1/lifecycle/restart", {"names": ["bob"], "now": False})
    verb(pair, "release", {"names": ["alice"], "subtree": True})
    assert pair.lives() == before
    assert {one: pair.row(one)["state"] for one in ("alice", "bob")} == {"alice": "running", "bob": "running"}


def test_what_ends_in_quarantine_stays_down_over_a_restart_of_the_daemon(pair: LiveHive) -> None:
    verb(pair, "quarantine", {"names": ["bob"]})
    pair.raw.kill(pair.container("bob"))
    pair.wait_state("bob", "stopped")
    pair.restart().settle()
    assert pair.row("bob")["state"] == "stopped"
    assert pair.plan()["actions"] == []
    verb(pair, "release", {"names": ["bob"]})
    assert pair.row("bob")["state"] == "running"


# ---- pause -------------------------------------------------------------------------------------------------


def test_while_paused_nothing_is_done_but_what_is_asked_for(pair: LiveHive) -> None:
    pair.api.post("/v1/pause", {})
    try:
        pair.wait_for(lambda: pair.status()["phase"] == "paused", "phase paused")
        pair.raw.kill(pair.container("bob"))
        pair.wait_for(lambda: pair.row("bob")["state"] in ("stopped", "backoff"), "bob's end to be seen")
        pair.reconcile()
        assert pair.inspect("bob")["State"]["Status"] == "exited"
        pair.verb("stop", "alice")
        assert pair.row("alice")["state"] == "stopped"
        pair.restart()
        pair.wait_for(lambda: pair.status()["phase"] == "paused", "phase paused after a restart")
        assert pair.inspect("bob")["State"]["Status"] == "exited"
    finally:
        pair.api.post("/v1/resume", {})
    pair.wait_state("bob", "running")
    assert pair.status()["phase"] == "running"


# ---- stop all ----------------------------------------------------------------------------------------------


def test_stop_all_takes_one_grace_however_many_do_not_listen(hive: LiveHive) -> None:
    names = [f"deaf{number}" for number in range(10)]
    for name in names:
        hive.init(name, *DEAF)
    hive.init("idle")
    try:
        hive.verb("spawn", *names)
        for name in names:
            hive.wait_for(partial(_is_deaf, hive, name), f"{name} to be deaf")
        began = time.monotonic()
        change = hive.change(hive.api.post("/v1/lifecycle/stop-all", {"now": False}))
        assert time.monotonic() - began < 2 * 5 + 4, "one grace is 5 s"
        assert all("forced" in part["text"] for part in change["agents"])
        assert {hive.row(name)["desired"] for name in names} == {"stopped"}
        assert hive.row("idle")["state"] == "unspawned"
    finally:
        hive.remove(*names, "idle")


def test_stop_all_passes_by_who_is_in_quarantine(pair: LiveHive) -> None:
    verb(pair, "quarantine", {"names": ["bob"]})
    change = verb(pair, "stop-all", {"now": True})
    texts = {part["name"]: part["text"] for part in change["agents"]}  # type: ignore[attr-defined]
    assert texts["bob"] == "bob stays frozen in quarantine"
    assert (pair.row("alice")["state"], pair.row("bob")["state"]) == ("stopped", "paused")
    verb(pair, "release", {"names": ["alice"], "subtree": True})
    assert pair.row("bob")["state"] == "running"


# ---- updates that go wrong ---------------------------------------------------------------------------------


def test_an_update_that_does_not_run_goes_back_to_what_did(pair: LiveHive) -> None:
    good = pair.show("bob")["applied_commit"]
    pair.push("bob", config("bob", ("/no/such/program",)))
    change = pair.api.post("/v1/lifecycle/update", {"names": ["bob"], "now": False})
    pair.wait_event("rolled_back", "bob")
    pair.wait_for(lambda: "update failed" in pair.row("bob")["reason"], "bob to be back")
    assert pair.wait_state("bob", "running")
    ended = pair.api.get(f"/v1/changes/{change['id']}", {"wait_s": 20})
    # A machine too loaded for the program to fail within the first look may have called it done by then.
    assert ended["state"] == "done" or "went back" in ended["agents"][0]["text"]
    row = pair.row("bob")
    assert row["needs_update"] is True
    shown = pair.show("bob")
    assert shown["applied_commit"] == good
    assert "commit" in shown["differing"]
    assert pair.events("rolled_back", "bob")
    assert b"/no/such/program" in pair.api.get_bytes("/v1/agents/bob/logs?previous=true")


def test_an_update_that_runs_is_kept(pair: LiveHive) -> None:
    pair.push("bob", config("bob", ("sleep", "601")))
    pair.verb("update", "bob")
    assert pair.show("bob")["command"] == ["sleep", "601"]
    assert pair.row("bob")["needs_update"] is False


# ---- evidence ----------------------------------------------------------------------------------------------


def test_why_tells_a_kill_and_an_update_in_one_sentence_each(pair: LiveHive) -> None:
    pair.raw.kill(pair.container("bob"))
    pair.wait_for(
        lambda: "killed by a signal from outside hive" in pair.api.get("/v1/agents/bob/why")["summary"],
        "why to tell the kill",
    )
    pair.verb("update", "bob")
    assert "update" in pair.api.get("/v1/agents/bob/why")["summary"]


def test_a_log_of_a_container_that_never_was_is_refused(pair: LiveHive) -> None:
    with pytest.raises(ApiError, match="no container of bob was removed yet"):
        pair.api.get_bytes("/v1/agents/bob/logs?previous=true")


# ---- explain, audit and changes ----------------------------------------------------------------------------


def test_explain_gives_the_decision_the_rule_and_the_remedy(pair: LiveHive) -> None:
    allowed = pair.api.get("/v1/explain?caller=alice&operation=restart&target=bob")
    assert allowed["allowed"] is True
    refused = pair.api.get("/v1/explain?caller=bob&operation=restart&target=alice")
    assert (refused["allowed"], refused["decision"]) == (False, "answered not_found")
    assert "above 'alice'" in refused["remedy"]
    denied = pair.api.get("/v1/explain?caller=bob&operation=exec&target=bob")
    assert denied["decision"] == "denied"


def test_every_mutation_is_audited_with_its_end_and_the_chain_holds(pair: LiveHive) -> None:
    change = pair.verb("restart", "bob")
    with pytest.raises(ApiError):
        pair.api.post("/v1/lifecycle/spawn", {"names": ["bob"], "now": False})
    answer = pair.api.get("/v1/audit?limit=1000")
    about = [one for one in answer["records"] if one["operation"] == "restart"]
    assert [one["outcome"] for one in about[-3:]] == ["asked", "accepted", "done"]
    assert about[-1]["change"] == about[-2]["change"] == change["id"]
    refused = [one for one in answer["records"] if one["operation"] == "spawn"][-1]
    assert (refused["outcome"], refused["code"]) == ("refused", "conflict")
    verdict = pair.api.get(f"/v1/audit/verify?head={answer['head']}")
    assert verdict["ok"] is True


def test_changes_and_their_steps_outlive_the_daemon(pair: LiveHive) -> None:
    change = pair.verb("restart", "bob")
    pair.kill9()
    pair.start().settle()
    kept = pair.api.get(f"/v1/changes/{change['id']}")
    assert kept["state"] == "done"
    assert [step["kind"] for step in kept["steps"]] == ["stopped", "started"]


def test_the_same_key_is_the_same_change(pair: LiveHive) -> None:
    body = {"names": ["bob"], "now": False}
    first = pair.change(pair.api.send("POST", "/v1/lifecycle/restart", body=body, key="one-restart"))
    lives = pair.lives()
    again = pair.api.send("POST", "/v1/lifecycle/restart", body=body, key="one-restart")
    assert again["id"] == first["id"]
    assert pair.lives() == lives
    with pytest.raises(ApiError, match="idempotency key"):
        pair.api.send(
            "POST", "/v1/agents", body={"name": "carol", "files": wire(config("carol"))}, key="one-restart"
        )


# ---- disk --------------------------------------------------------------------------------------------------


def test_an_agent_over_its_disk_budget_is_stopped_and_comes_back_once_below(hive: LiveHive) -> None:
    hive.terminate()
    hive.write_settings({"disk": {"budget": "2m", "interval_s": 1}})
    hive.start().settle()
    hive.init(
        "hog", "sh", "-c", "[ -e /state/fat ] || dd if=/dev/zero of=/state/fat bs=1M count=4; sleep 600"
    )
    try:
        hive.hivectl("spawn", "hog", expect=None)
        row = hive.wait_state("hog", "stopped")
        assert "disk full" in row["reason"]
        assert row["desired"] == "running"
        (hive.data / "agents" / "hog" / "state" / "fat").write_bytes(b"small")
        hive.wait_state("hog", "running")
    finally:
        hive.remove("hog")


def test_below_the_low_water_mark_nothing_new_is_made_and_status_says_so(hive: LiveHive) -> None:
    hive.spawn("old")
    hive.terminate()
    hive.write_settings({"disk": {"low_water": "1000000g"}})
    hive.start().settle()
    try:
        assert "disk_low" in hive.problems()
        with pytest.raises(ApiError, match="nearly full"):
            hive.api.post("/v1/agents", {"name": "new", "files": wire(config("new"))})
        with pytest.raises(ApiError, match="nearly full"):
            hive.api.put("/v1/agents/old/config", {"files": wire(config("old"))})
        hive.verb("stop", "old")
        hive.verb("start", "old")
    finally:
        hive.terminate()
        hive.write_settings()
        hive.start().settle()
        hive.remove("old")


# ---- rescue ------------------------------------------------------------------------------------------------


def rescue(hive: LiveHive, name: str, *argv: str) -> tuple[int | None, bytes, str]:
    """Run a command in a rescue container; return its exit status, its output and the refusal."""
    path = f"/v1/agents/{name}/exec"
    with unix_connect(str(hive.socket), f"ws://localhost{path}") as connection:
        connection.send(json.dumps({"argv": list(argv), "rescue": True}))
        output = b""
        for frame in connection:
            if isinstance(frame, bytes):
                output += frame[1:]
            elif "exit" in (told := json.loads(frame)):
                return told["exit"], output, ""
            elif "error" in told:
                return None, output, told["error"]["message"]
    return None, output, "the connection ended"


def test_a_running_agent_needs_no_rescue(pair: LiveHive) -> None:
    assert "it is running" in rescue(pair, "bob", "true")[2]


def test_a_rescue_looks_into_a_crash_looping_agent_and_leaves_nothing(hive: LiveHive) -> None:
    hive.init("broke", "sh", "-c", "echo was here > /state/mark; exit 3")
    try:
        hive.hivectl("spawn", "broke", expect=None)
        hive.wait_state("broke", "crash-looping")
        status, output, _ = rescue(hive, "broke", "sh", "-c", "id -u; cat /state/mark; exit 7")
        assert (status, output.decode().split()) == (7, [str(hive.show("broke")["uid"]), "was", "here"])
        gone = {"label": f"dev.hive.rescue={hive.id}"}
        hive.wait_for(lambda: not hive.raw.containers(all=True, filters=gone), "the rescue container to go")
        assert hive.row("broke")["state"] == "crash-looping"
    finally:
        hive.remove("broke")


def test_a_rescue_that_a_killed_daemon_left_is_removed_by_the_next(hive: LiveHive) -> None:
    hive.spawn("calm")
    hive.verb("stop", "calm")
    mine = {"label": f"dev.hive.rescue={hive.id}"}
    try:
        with unix_connect(str(hive.socket), "ws://localhost/v1/agents/calm/exec") as connection:
            connection.send(json.dumps({"argv": ["sleep", "600"], "rescue": True}))
            assert "started" in json.loads(connection.recv(timeout=20))
            hive.kill9()
        assert len(hive.raw.containers(all=True, filters=mine)) == 1
        hive.start().settle()
        assert hive.raw.containers(all=True, filters=mine) == []
        hive.verb("start", "calm")
    finally:
        hive.remove("calm")


# ---- a run directory that is cleared -----------------------------------------------------------------------


def test_a_run_directory_cleared_under_a_running_daemon_is_made_again(hive: LiveHive) -> None:
    hive.spawn("calm")
    try:
        hive.verb("stop", "calm")
        RunDirs(hive.run_dir).teardown()
        assert not [one for one in read_mounts().below(hive.run_dir) if one.target != hive.run_dir]
        for folder in ("agents", "grants", "secrets"):
            shutil.rmtree(hive.run_dir / folder)
        hive.verb("start", "calm")
        assert hive.row("calm")["state"] == "running"
        assert "admin_socket_gone" not in hive.problems()
    finally:
        hive.remove("calm")
