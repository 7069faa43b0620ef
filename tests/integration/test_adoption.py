"""The daemon goes and comes back: what ran runs on, what was stopped stays so, nothing is doubled."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.hive_fixtures import MakeHive
from tests.support.live_hive import LiveHive, config

pytestmark = pytest.mark.integration

KILLS = 20


def test_agents_outlive_twenty_daemons(make_hive: MakeHive) -> None:
    hive = make_hive().start().settle()
    names = ["a", "b", "c", "d", "e"]
    for name, parent in zip(names, [None, "a", "b", "c", "d"], strict=True):
        hive.init(name, parent=parent)
    hive.verb("spawn", *names)
    before, rows = hive.lives(), hive.rows()
    assert len(before) == len(names)
    for round_ in range(KILLS):
        hive.kill9()
        if round_ % 2:
            hive.start()
        else:
            hive.launch()
    hive.wait_for(hive.answers, "an answer")
    hive.settle()
    assert hive.lives() == before
    assert hive.rows() == rows
    assert [one["kind"] for one in hive.events() if one["kind"] in ("exited", "stopped")] == []


def test_what_is_stopped_stays_down_over_restarts(make_hive: MakeHive) -> None:
    hive = make_hive().start().settle()
    hive.spawn("bob")
    hive.spawn("carol")
    hive.init("dave")
    hive.hivectl("stop", "bob")
    hive.restart().settle()
    assert hive.row("bob")["state"] == "stopped"
    assert hive.row("dave")["state"] == "unspawned"
    hive.kill9()
    hive.start().settle()
    assert {name: row["state"] for name, row in hive.rows().items()} == {
        "bob": "stopped", "carol": "running", "dave": "unspawned"
    }  # fmt: skip
    assert [one["State"] for one in hive.containers("bob")] == ["exited"]


def test_what_ended_while_the_daemon_was_away_is_seen_and_mended(make_hive: MakeHive) -> None:
    hive = make_hive().start().settle()
    for name in ("killed", "removed", "kept"):
        hive.spawn(name)
    before = {name: row["container_id"] for name, row in hive.rows().items()}
    hive.kill9()
    hive.raw.kill(before["killed"])
    hive.raw.remove_container(before["removed"], force=True)
    hive.start().settle()
    for name in before:
        hive.wait_state(name, "running")
    after = {name: row["container_id"] for name, row in hive.rows().items()}
    assert after["kept"] == before["kept"]
    assert after["killed"] == before["killed"]
    assert after["removed"] != before["removed"]
    assert hive.events("exited", "killed")[-1]["cause"] == "crash"
    assert len(hive.containers()) == len(before)


def test_event_numbers_go_on_after_a_restart(make_hive: MakeHive) -> None:
    hive = make_hive().start().settle()
    last = hive.last_seq()
    hive.restart().settle()
    numbers = [one["seq"] for one in hive.events()]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] > last


# ---- the roster found at the very first start -------------------------------------------------------------


def _place_repo(hive: LiveHive, name: str) -> None:
    """Put a bare repo where the hive keeps them, the way somebody restoring a backup would."""
    source = hive.folder(name, config(name))
    bare = hive.data / "repos" / f"{name}.git"
    _git(source, "init", "-q", "-b", "main")
    _git(source, "add", ".")
    _git(source, "commit", "-q", "-m", "first")
    _git(hive.root, "clone", "-q", "--bare", "--no-hardlinks", str(source), str(bare))
    shutil.rmtree(source)


def _git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@invalid", "-c", "core.hooksPath=/dev/null"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, timeout=20)


def _first_start(hive: LiveHive, roster: str, names: Sequence[str]) -> None:
    """Start a hive for the first time on a roster and config repos that are there already."""
    hive.data.mkdir(mode=0o711)
    for folder in ("meta", "repos"):
        (hive.data / folder).mkdir(mode=0o755)
    (hive.data / "repos" / ".hive").write_text(f"{hive.id}\n")
    hive.roster_file.write_text(roster)
    for name in names:
        _place_repo(hive, name)
    hive.start()
    hive.wait_for(lambda: sorted(hive.rows()) == sorted(names), "every repo's agent")


def test_an_array_found_at_first_start_makes_a_flat_hive(make_hive: MakeHive) -> None:
    hive = make_hive()
    _first_start(hive, '["alice", "bob"]', ["alice", "bob"])
    hive.settle()
    assert json.loads(hive.roster_file.read_bytes()) == ["alice", "bob"]
    assert hive.status()["roster"] == {"state": "present", "shape": "flat", "agents": 2}
    hive.hivectl("spawn", "alice", "bob")
    assert {row["parent"] for row in hive.rows().values()} == {None}
    assert "flat" in hive.hivectl("init", "carol", "--parent", "bob", expect=6).stderr
    hive.hivectl("init", "carol")
    hive.restart().settle()
    assert json.loads(hive.roster_file.read_bytes()) == ["alice", "bob", "carol"]


def test_a_map_found_at_first_start_makes_a_tree_with_its_edges(make_hive: MakeHive) -> None:
    hive = make_hive()
    edges = {"alice": None, "bob": "alice", "carol": "bob"}
    _first_start(hive, json.dumps(edges), list(edges))
    hive.settle()
    assert json.loads(hive.roster_file.read_bytes()) == edges
    assert {name: row["parent"] for name, row in hive.rows().items()} == edges
    hive.hivectl("spawn", *edges)
    hive.restart().settle()
    assert {name: row["state"] for name, row in hive.rows().items()} == dict.fromkeys(edges, "running")
    assert json.loads(hive.roster_file.read_bytes()) == edges


def test_a_repo_placed_later_gets_no_edge_from_the_file(make_hive: MakeHive) -> None:
    hive = make_hive().start().settle()
    hive.init("alice")
    hive.roster_file.write_text('{"alice": null, "bob": "alice"}')
    _place_repo(hive, "bob")
    hive.wait_for(lambda: "bob" in hive.rows(), "bob")
    hive.settle()
    assert json.loads(hive.roster_file.read_bytes()) == {"alice": None, "bob": None}
