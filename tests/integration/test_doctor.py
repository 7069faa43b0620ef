"""What `hivectl doctor` says of a hive that is well, and of one that somebody tampered with."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hive_core.engine.checks import CheckName
from tests.support.fault_proxy import Fault, Rule
from tests.support.hive_fixtures import MakeHive
from tests.support.live_hive import LiveHive

pytestmark = pytest.mark.integration

LIMIT_S = 5.0
MANY = 50


@pytest.fixture(scope="module")
def bob(hive: LiveHive) -> Iterator[LiveHive]:
    """The shared hive with bob running in it."""
    hive.spawn("bob")
    yield hive
    hive.remove("bob")


def _examined(hive: LiveHive, *, status: int = 0) -> dict[str, Any]:
    ended = hive.hivectl("doctor", "-o", "json", expect=status)
    return {one["name"]: one for one in ended.json["checks"]}


def _named(checks: dict[str, Any], status: str) -> dict[str, str]:
    return {name: one["text"] for name, one in checks.items() if one["status"] == status}


def test_a_healthy_hive_fails_no_check_and_every_check_looked(bob: LiveHive) -> None:
    checks = _examined(bob)
    assert list(checks) == [str(name) for name in CheckName]
    assert _named(checks, "fail") == {}
    assert all(one["text"] for one in checks.values())
    assert all(one["hint"] for one in checks.values() if one["status"] != "ok")
    assert checks["containers"]["text"] == "all containers are as they were made (1)"
    assert checks["mount namespace"]["status"] == "ok"
    assert checks["live grants"]["status"] == "ok"


def test_looking_leaves_no_mount_and_no_file(bob: LiveHive) -> None:
    def seen() -> tuple[list[str], list[str]]:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return [line for line in mounts if str(bob.root) in line], sorted(os.listdir(bob.data))

    before = seen()
    _examined(bob)
    assert seen() == before


def test_an_admin_socket_for_everybody_is_a_failure(bob: LiveHive) -> None:
    bob.socket.chmod(0o666)
    try:
        failed = _named(_examined(bob, status=1), "fail")
    finally:
        bob.socket.chmod(0o660)
    assert list(failed) == ["admin socket"]
    assert "0666" in failed["admin socket"]


@pytest.mark.parametrize(
    ("place", "mode"),
    [("r/agents", 0o755), ("d/agents/bob/state", 0o777), ("d/hive.db", 0o644), ("d/repos", 0o711)],
)
def test_a_loosened_mode_is_named(bob: LiveHive, place: str, mode: int) -> None:
    path = bob.root / place
    was = path.stat().st_mode & 0o7777
    path.chmod(mode)
    try:
        failed = _named(_examined(bob, status=1), "fail")
    finally:
        path.chmod(was)
    assert list(failed) == ["directories"]
    assert failed["directories"] == f"{path} has mode {mode:04o} instead of {was:04o}"


def test_an_ancestor_that_others_can_write_is_named(bob: LiveHive) -> None:
    bob.root.chmod(0o777)
    try:
        checks = _examined(bob, status=1)
    finally:
        bob.root.chmod(0o755)
    failed = _named(checks, "fail")
    assert str(bob.root) in failed["ancestors"]
    assert str(bob.root) in failed["settings file"]
    assert checks["ancestors"]["hint"] == f"chmod go-w {bob.root}"


def test_settings_that_others_can_write_are_named(bob: LiveHive) -> None:
    bob.settings_file.chmod(0o666)
    try:
        failed = _named(_examined(bob, status=1), "fail")
    finally:
        bob.settings_file.chmod(0o644)
    assert list(failed) == ["settings file"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"mem_limit": "96m", "memswap_limit": "96m"}, "Memory is 100663296 instead of 67108864"),
        ({"restart_policy": {"Name": "always"}}, "RestartPolicy"),
        ({"cpu_shares": 2, "mem_limit": "32m"}, "Memory is 33554432"),
    ],
    ids=["memory", "restart", "less"],
)
def test_a_container_that_was_changed_by_hand_is_named(
    bob: LiveHive, change: dict[str, Any], field: str
) -> None:
    bob.raw.update_container(bob.row("bob")["container_id"], **change)
    checks = _examined(bob, status=1)
    failed = _named(checks, "fail")
    assert list(failed) == ["containers"]
    assert f"{bob.container('bob')}: " in failed["containers"]
    assert field in failed["containers"]
    assert "hivectl update bob" in checks["containers"]["hint"]
    bob.hivectl("update", "bob")
    assert _examined(bob)["containers"]["status"] == "ok"


def test_an_image_that_is_gone_is_named(make_hive: MakeHive) -> None:
    hive = make_hive({"container": {"image": "hive-test:absent"}}).start().settle()
    failed = _named(_examined(hive, status=1), "fail")
    assert list(failed) == ["image"]
    assert "hive-test:absent" in failed["image"]


def test_a_hung_engine_costs_its_own_checks_and_no_more_than_the_limit(make_hive: MakeHive) -> None:
    hive = make_hive(with_proxy=True).start().settle()
    assert hive.proxy is not None
    hive.proxy.add(Rule(Fault.SWALLOW))
    began = time.monotonic()
    answer = hive.api.get("/v1/doctor")
    assert time.monotonic() - began < LIMIT_S
    checks = {one["name"]: one for one in answer["checks"]}
    failed = _named(checks, "fail")
    assert {"engine", "seccomp", "containers", "image"} <= set(failed)
    assert all(checks[name]["status"] == "ok" for name in ("live grants", "admin socket", "store", "git"))


def test_an_engine_that_is_away_is_said(make_hive: MakeHive) -> None:
    hive = make_hive({"engine": {"socket": "/nonexistent/docker.sock"}}).start()
    failed = _named(_examined(hive, status=1), "fail")
    assert {"engine", "mount namespace"} <= set(failed)
    assert "does not answer" in failed["engine"]


@pytest.mark.slow
def test_fifty_agents_are_examined_in_time(make_hive: MakeHive) -> None:
    hive = make_hive().start().settle()
    names = [f"a{number}" for number in range(MANY)]
    for name in names:
        hive.init(name)
    hive.verb("spawn", *names)
    began = time.monotonic()
    checks = _examined(hive)
    assert time.monotonic() - began < LIMIT_S
    assert checks["containers"]["text"] == f"all containers are as they were made ({MANY})"
