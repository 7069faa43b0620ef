"""What people and other tools do to containers behind hive's back, and what hive then does about it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.live_hive import FOREIGN_LABEL, LiveHive

pytestmark = pytest.mark.integration


@pytest.fixture
def bob(hive: LiveHive) -> Iterator[LiveHive]:
    """The shared hive with bob running in it, and without him afterwards."""
    hive.spawn("bob")
    yield hive
    hive.remove("bob")


def _foreign(hive: LiveHive, name: str, labels: dict[str, str] | None = None) -> str:
    """Run a container of nobody's hive, by hand."""
    made = hive.raw.create_container(
        hive.image,
        ["sleep", "600"],
        name=name,
        labels={FOREIGN_LABEL: hive.id, **(labels or {})},
        host_config=hive.raw.create_host_config(network_mode="none", init=True),
    )
    hive.raw.start(made["Id"])
    return str(made["Id"])


def _is_up(hive: LiveHive, container_id: str) -> bool:
    return bool(hive.raw.inspect_container(container_id)["State"]["Running"])


def test_a_killed_container_comes_back_with_a_reason(bob: LiveHive) -> None:
    before, seq = bob.row("bob"), bob.last_seq()
    bob.raw.kill(before["container_id"])
    ended = bob.wait_event("exited", "bob", seq)
    assert (ended["cause"], ended["exit_code"]) == ("crash", 137)
    assert "signal from outside hive" in ended["text"]
    started = bob.wait_event("started", "bob", ended["seq"])
    assert started["text"].startswith("started again after: killed by a signal")
    after = bob.wait_state("bob", "running")
    assert after["container_id"] == before["container_id"]
    assert after["started_at"] > before["started_at"]
    assert "killed by a signal" in after["reason"]
    printed = [json.loads(line) for line in bob.hivectl("events", "-o", "jsonl").stdout.splitlines()]
    assert started in printed


def test_a_container_stopped_by_hand_comes_back(bob: LiveHive) -> None:
    seq = bob.last_seq()
    bob.raw.stop(bob.row("bob")["container_id"], timeout=5)
    assert bob.wait_event("exited", "bob", seq)["exit_code"] == 143
    bob.wait_event("started", "bob", seq)
    bob.wait_state("bob", "running")


def test_a_removed_container_is_made_again_from_the_applied_spec(bob: LiveHive) -> None:
    before, seq = bob.show("bob"), bob.last_seq()
    bob.push("bob", {"agent.toml": b'name = "bob"\n[container]\ncommand = ["sleep", "999"]\n'})
    bob.raw.remove_container(before["container_id"], force=True)
    made = bob.wait_event("container_created", "bob", seq)
    assert "removed outside hive" in made["text"]
    bob.wait_event("started", "bob", seq)
    after = bob.wait_state("bob", "running")
    assert after["container_id"] != before["container_id"]
    assert after["needs_update"]
    shown = bob.show("bob")
    assert (shown["command"], shown["spec"]) == (before["command"], before["spec"])
    assert bob.inspect("bob")["Config"]["Cmd"] == before["command"]
    assert len(bob.containers("bob")) == 1


def test_a_paused_container_is_shown_and_left_until_start(bob: LiveHive) -> None:
    container_id = bob.row("bob")["container_id"]
    bob.raw.pause(container_id)
    paused = bob.wait_state("bob", "paused")
    assert "by hand" in paused["reason"]
    assert "hivectl start bob" in paused["reason"]
    bob.reconcile()
    assert bob.raw.inspect_container(container_id)["State"]["Paused"]
    assert bob.plan()["actions"] == []
    bob.hivectl("logs", "bob")
    bob.hivectl("exec", "bob", "--", "true", expect=125)
    bob.hivectl("start", "bob")
    after = bob.row("bob")
    assert (after["state"], after["started_at"]) == ("running", paused["started_at"])
    assert not bob.raw.inspect_container(container_id)["State"]["Paused"]


@pytest.mark.parametrize("verb", ["stop", "restart", "update"])
def test_verbs_work_on_a_paused_container(bob: LiveHive, verb: str) -> None:
    bob.raw.pause(bob.row("bob")["container_id"])
    bob.wait_state("bob", "paused")
    bob.hivectl(verb, "bob")
    assert bob.row("bob")["state"] == ("stopped" if verb == "stop" else "running")
    assert len(bob.containers("bob")) == 1


def test_a_renamed_container_stays_ours_until_update(bob: LiveHive) -> None:
    before = bob.row("bob")
    other = f"{bob.container('bob')}-other"
    bob.raw.rename(before["container_id"], other)
    problem = bob.wait_for(lambda: bob.problems().get("renamed_container"), "the problem")
    assert other in problem
    assert "update" in problem
    bob.reconcile()
    row = bob.row("bob")
    assert (row["container_id"], row["state"]) == (before["container_id"], "running")
    assert len(bob.containers("bob")) == 1
    bob.hivectl("update", "bob")
    assert bob.inspect("bob")["Name"] == f"/{bob.container('bob')}"
    bob.wait_for(lambda: "renamed_container" not in bob.problems(), "the end of the problem")


def test_a_stopped_agent_started_by_hand_is_stopped_again(bob: LiveHive) -> None:
    container_id = bob.row("bob")["container_id"]
    bob.hivectl("stop", "bob")
    seq = bob.last_seq()
    bob.raw.start(container_id)
    stopped = bob.wait_event("stopped", "bob", seq)
    assert "stop requested" in stopped["text"]
    bob.wait_for(lambda: not _is_up(bob, container_id), "its end")
    assert bob.wait_state("bob", "stopped")["desired"] == "stopped"


def test_a_foreign_container_with_an_agents_name_is_named_and_untouched(hive: LiveHive) -> None:
    hive.init("carol")
    foreign = _foreign(hive, hive.container("carol"))
    try:
        failed = hive.hivectl("spawn", "carol", expect=None)
        assert failed.status in (1, 6)
        assert foreign[:12] in failed.stderr
        row = hive.wait_state("carol", "failed")
        assert "is taken" in row["reason"]
        assert "docker rename" in row["reason"] + failed.stderr
        hive.wait_for(lambda: "is taken" in hive.problems().get("failed", ""), "the problem")
        assert _is_up(hive, foreign)
        assert [one["Id"] for one in hive.containers("carol")] == []
        hive.raw.rename(foreign, f"{hive.container('carol')}-was")
        assert hive.wait_state("carol", "running")["container_id"] != foreign
        assert _is_up(hive, foreign)
    finally:
        hive.raw.remove_container(foreign, force=True)
        hive.remove("carol")


def test_a_foreign_container_with_our_label_is_reported_and_untouched(bob: LiveHive) -> None:
    record = bob.show("bob")
    labels = dict(bob.inspect("bob")["Config"]["Labels"])
    before = bob.roster_file.read_bytes()
    foreign = _foreign(bob, f"stray-{bob.id}", {**labels, "dev.hive.create": "0" * 32})
    try:
        problem = bob.wait_for(lambda: bob.problems().get("foreign_container"), "the problem")
        assert foreign[:12] in problem
        bob.reconcile()
        assert bob.row("bob")["container_id"] == record["container_id"]
        bob.hivectl("restart", "bob")
        bob.hivectl("stop", "bob")
        assert _is_up(bob, foreign)
        assert bob.roster_file.read_bytes() == before
    finally:
        bob.raw.remove_container(foreign, force=True)
    bob.wait_for(lambda: "foreign_container" not in bob.problems(), "the end of the problem")


def test_a_foreign_container_that_claims_an_unknown_agent_is_no_agent(hive: LiveHive) -> None:
    before = hive.roster_file.read_bytes()
    labels = {"dev.hive.id": hive.id, "dev.hive.agent": "mallory", "dev.hive.incarnation": "0" * 16}
    foreign = _foreign(hive, f"mallory-{hive.id}", labels)
    try:
        hive.wait_for(lambda: hive.problems().get("foreign_container"), "the problem")
        assert "mallory" not in hive.rows()
        assert hive.roster_file.read_bytes() == before
        hive.hivectl("stop", "mallory", expect=4)
        assert _is_up(hive, foreign)
    finally:
        hive.raw.remove_container(foreign, force=True)


def test_an_agent_named_like_a_container_id_means_only_itself(bob: LiveHive) -> None:
    """The engine itself would take the name for the prefix of bob's id."""
    prefix = "a" + bob.row("bob")["container_id"][:8]
    short = next(
        (
            name
            for name in (bob.row("bob")["container_id"][:length] for length in (4, 5, 6))
            if name[0].isalpha()
        ),
        prefix,
    )
    before = bob.lives()
    for verb in ("stop", "restart", "update"):
        bob.hivectl(verb, short, expect=4)
    bob.hivectl("logs", short, expect=4)
    bob.init(short)
    try:
        bob.hivectl("exec", short, "--", "true", expect=125)
        bob.hivectl("logs", short, expect=6)
        bob.hivectl("stop", short, expect=6)
        assert bob.lives() == before
    finally:
        bob.remove(short)
    assert bob.lives() == before


def test_a_restart_policy_given_by_hand_is_reported(bob: LiveHive) -> None:
    container_id = bob.row("bob")["container_id"]
    bob.raw.update_container(container_id, restart_policy={"Name": "always"})
    bob.raw.kill(container_id)
    bob.wait_for(lambda: bob.problems().get("foreign_restart_policy"), "the problem")
    bob.wait_state("bob", "running")
    bob.hivectl("update", "bob")
    assert bob.inspect("bob")["HostConfig"]["RestartPolicy"]["Name"] == "no"
