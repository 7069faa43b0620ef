"""Cases that other systems of this kind met in use: the live ones that no other module here is about.

docs/explanation/cases.md lists all of them, each with the test that shows what hive does.
"""

from __future__ import annotations

import hashlib
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from hive_api.client import ApiError, ClientError
from hive_api.errors import ErrorCode
from hive_core.adapters import mounts
from tests.support.hive_fixtures import MakeHive
from tests.support.live_hive import FOREIGN_LABEL, LiveHive, config, wire

pytestmark = pytest.mark.integration

DEAF = ("sh", "-c", "trap '' TERM; echo deaf; sleep 600")
VERB_LIMIT_S = 15.0
AT_ONCE = (("restart", False), ("stop", True), ("stop", False), ("start", False))
LONG = pytest.mark.timeout(600)


@pytest.fixture
def bob(hive: LiveHive) -> Iterator[LiveHive]:
    """The shared hive with bob running in it, and without anybody afterwards."""
    hive.spawn("bob")
    yield hive
    hive.remove(*hive.rows())


# ---- several want something of one agent at once ----------------------------------------------------------


@pytest.mark.parametrize(
    "rounds", [pytest.param(4, id="few"), pytest.param(50, id="many", marks=[pytest.mark.slow, LONG])]
)
def test_verbs_at_once_all_return_and_the_last_accepted_one_holds(bob: LiveHive, rounds: int) -> None:
    with ThreadPoolExecutor(len(AT_ONCE)) as threads:
        for _ in range(rounds):
            asked = [threads.submit(_ask, bob, verb, now) for verb, now in AT_ONCE]
            accepted = {change for one in asked if (change := one.result(VERB_LIMIT_S))}
            for change in accepted:
                bob.wait_for(partial(_has_ended, bob, change), "the end of every change", VERB_LIMIT_S)
            bob.settle()
            last = next(one for one in bob.api.get("/v1/changes") if one["id"] in accepted)
            is_up = last["kind"] != "stop"
            row = bob.row("bob")
            assert (row["desired"], row["state"]) == (("running",) * 2 if is_up else ("stopped",) * 2)
            assert [one["State"] for one in bob.containers("bob")] == ["running" if is_up else "exited"]
            bob.verb("start", "bob")


def _ask(hive: LiveHive, verb: str, now: bool) -> str | None:
    """Ask for a verb and return its change, None when it makes no sense any more."""
    try:
        return str(hive.api.post(f"/v1/lifecycle/{verb}", {"names": ["bob"], "now": now})["id"])
    except ApiError as refused:
        if refused.code is not ErrorCode.CONFLICT:
            raise
        return None


def _has_ended(hive: LiveHive, change: str) -> bool:
    return bool(hive.api.get(f"/v1/changes/{change}")["state"] != "running")


# ---- somebody interferes while something is under way -----------------------------------------------------


@pytest.mark.parametrize("verb", ["restart", "update"])
def test_a_container_removed_in_the_middle_of_a_verb_is_made_again(bob: LiveHive, verb: str) -> None:
    before = bob.spawn("deaf", *DEAF)["container_id"]
    bob.wait_for(lambda: "deaf" in bob.hivectl("logs", "deaf").stdout, "its deafness")
    change = bob.api.post(f"/v1/lifecycle/{verb}", {"names": ["deaf"], "now": False})
    bob.wait_for(lambda: bob.row("deaf")["state"] in ("starting", "stopping"), "the stop's grace")
    bob.raw.remove_container(before, force=True)
    bob.wait_for(lambda: bob.row("deaf")["container_id"] not in (None, before), "another container")
    assert bob.wait_state("deaf", "running")["desired"] == "running"
    bob.wait_for(lambda: _has_ended(bob, change["id"]), "the end of the change")
    assert len(bob.containers("deaf")) == 1


def test_the_engines_own_restarts_do_not_outlive_a_stop_or_a_removal(bob: LiveHive) -> None:
    container_id = bob.row("bob")["container_id"]
    bob.raw.update_container(container_id, restart_policy={"Name": "always"})
    bob.raw.kill(container_id)
    bob.wait_for(lambda: bob.problems().get("foreign_restart_policy"), "the problem")
    bob.wait_state("bob", "running")
    bob.hivectl("stop", "bob")
    bob.settle()
    assert [one["State"] for one in bob.containers("bob")] == ["exited"]
    bob.hivectl("start", "bob")
    bob.hivectl("rm", "bob", "--yes")
    bob.settle()
    assert bob.containers("bob") == []


def test_nothing_mounted_into_an_agents_directory_is_deleted_with_it(bob: LiveHive) -> None:
    script = "for n in 1 2 3; do echo $n > /state/$n; done; mkdir /state/d; echo x > /state/d/x; sleep 600"
    bob.spawn("alice", "sh", "-c", script)
    state = bob.data / "agents" / "alice" / "state"
    bob.wait_for((state / "d" / "x").exists, "her files")
    before = _digest(state)
    target = bob.data / "agents" / "bob" / "state" / "hers"
    target.mkdir()
    mounts.bind(state, target)
    try:
        bob.hivectl("rm", "bob", "--purge", "--yes", expect=None, limit_s=20)
        bob.wait_for(lambda: bob.row("bob")["state"] != "running", "his end")
        assert _digest(state) == before
    finally:
        mounts.unmount(target)
    bob.wait_for(lambda: "bob" not in bob.rows(), "the end of his removal", 60)
    assert _digest(state) == before
    assert not (bob.data / "agents" / "bob").exists()


def _digest(tree: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(tree.rglob("*")):
        found.update(f"{path.relative_to(tree)} {path.stat().st_mode}\n".encode())
        found.update(path.read_bytes() if path.is_file() else b"")
    return found.hexdigest()


# ---- the daemon ends while requests come ------------------------------------------------------------------


def test_a_request_during_shutdown_is_done_or_refused_and_never_half(make_hive: MakeHive) -> None:
    hive = make_hive().start().settle()
    accepted: list[str] = []
    ended = threading.Event()
    numbers = count()

    def ask() -> None:
        while not ended.is_set():
            name = f"a{next(numbers)}"
            body = {"name": name, "parent": None, "top_level": True, "files": wire(config(name))}
            with suppress(ClientError):
                hive.api.post("/v1/agents", body)
                accepted.append(name)

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for one in askers:
        one.start()
    hive.wait_for(lambda: len(accepted) >= 4, "requests in flight")
    hive.terminate()
    ended.set()
    for one in askers:
        one.join(20)
    hive.start().settle()
    rows = hive.rows()
    assert set(accepted) <= rows.keys()
    for name in rows:
        assert hive.show(name)["main_commit"]
    # What was begun is whole, what was refused left nothing.
    repos = {path.name.removesuffix(".git") for path in (hive.data / "repos").glob("*.git")}
    assert repos == rows.keys()


# ---- slow: floods and power loss --------------------------------------------------------------------------


@pytest.mark.slow
def test_events_missed_by_a_reader_that_hangs_cost_nothing(make_hive: MakeHive) -> None:
    hive = make_hive({"reconcile": {"interval_s": 5}}).start().settle()
    names = ["a", "b", "c", "d"]
    for name in names:
        hive.spawn(name)
    ids = {name: hive.row(name)["container_id"] for name in names}
    assert hive.process is not None
    hive.process.send_signal(signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(len(names)) as threads:
            list(threads.map(partial(_flap, hive, 40), ids.values()))
        hive.raw.kill(ids["a"])
        hive.raw.remove_container(ids["b"], force=True)
        hive.raw.pause(ids["c"])
    finally:
        hive.process.send_signal(signal.SIGCONT)
    hive.wait_state("c", "paused")
    hive.wait_for(lambda: hive.row("b")["container_id"] not in (None, ids["b"]), "b's next container")
    for name in ("a", "b", "d"):
        hive.wait_state(name, "running")
    assert len(hive.containers()) == len(names)


def _flap(hive: LiveHive, times: int, container_id: str) -> None:
    client = hive.raw
    for _ in range(times):
        client.pause(container_id)
        client.unpause(container_id)


@pytest.mark.slow
@LONG
def test_a_thousand_dead_containers_of_others_cost_a_pass_nothing(make_hive: MakeHive) -> None:
    hive = make_hive(with_proxy=True).start().settle()
    assert hive.proxy is not None
    hive.spawn("bob")
    hive.settle()

    def foreign(number: int) -> None:
        hive.raw.create_container(
            hive.image, ["true"], name=f"foreign-{hive.id}-{number}", labels={FOREIGN_LABEL: hive.id}
        )

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(foreign, range(1000)))
    hive.reconcile()
    before = hive.proxy.count()
    for _ in range(5):
        hive.reconcile()
        assert hive.status()["last_pass"]["duration_s"] < 2
    assert hive.proxy.count() - before <= 2 * 5
    assert hive.row("bob")["state"] == "running"
