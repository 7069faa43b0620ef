"""What containers are made of goes missing or is swapped on disk: nobody starts on it, nothing is made up."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hive_core.adapters import mounts
from tests.support.hive_fixtures import MakeHive
from tests.support.live_hive import LiveHive

pytestmark = [pytest.mark.integration, pytest.mark.faults]

OTHER_UID = 1_987_654_322


@pytest.fixture
def bob(hive: LiveHive) -> Iterator[LiveHive]:
    """The shared hive with bob stopped in it, and without him afterwards."""
    hive.spawn("bob", "sh", "-c", "echo here >> /state/mark; sleep 600")
    hive.wait_for((hive.data / "agents/bob/state/mark").exists, "his mark")
    hive.verb("stop", "bob")
    yield hive
    hive.remove("bob")


# Each takes a path, puts something wrong there, and returns what puts it right again.
Repair = Callable[[], None]


def _aside(path: Path) -> Path:
    away = path.with_name(f"{path.name}.away")
    path.rename(away)
    return away


def _back(path: Path, away: Path) -> Repair:
    def repair() -> None:
        if path.is_symlink() or path.is_file() or path.is_fifo():
            path.unlink()
        elif path.exists():
            path.rmdir()
        away.rename(path)

    return repair


def _missing(path: Path) -> Repair:
    return _back(path, _aside(path))


def _symlink(path: Path) -> Repair:
    away = _aside(path)
    path.symlink_to("/etc")
    return _back(path, away)


def _symlink_to_itself(path: Path) -> Repair:
    away = _aside(path)
    path.symlink_to(away)
    return _back(path, away)


def _file(path: Path) -> Repair:
    away = _aside(path)
    path.write_bytes(b"")
    return _back(path, away)


def _fifo(path: Path) -> Repair:
    away = _aside(path)
    os.mkfifo(path)
    return _back(path, away)


def _wrong_owner(path: Path) -> Repair:
    owner = path.stat()
    os.chown(path, OTHER_UID, OTHER_UID)
    return lambda: os.chown(path, owner.st_uid, owner.st_gid)


CASES = [
    *(
        pytest.param(place, wrong, id=f"{place.rsplit('/', 1)[1]}-{wrong.__name__.strip('_')}")
        for place in ("d/agents/bob/state", "d/agents/bob/home")
        for wrong in (_missing, _symlink, _symlink_to_itself, _file, _fifo, _wrong_owner)
    ),
    *(
        pytest.param(place, wrong, id=f"{place.replace('/', '-')}-{wrong.__name__.strip('_')}")
        for place in ("d/agents/bob", "d/agents/bob/etc", "r/agents/bob", "r/grants/bob", "r/secrets/bob")
        for wrong in (_symlink, _symlink_to_itself, _file)
    ),
    pytest.param("d/agents/bob/etc/passwd", _symlink, id="passwd-symlink"),
    pytest.param("d/agents/bob/etc/group", _fifo, id="group-fifo"),
]


def _shown(directory: Path) -> list[tuple[str, int, int]]:
    """Return what is in a directory, without following anything."""
    found = []
    for folder, directories, files in os.walk(directory):
        for entry in (*directories, *files):
            stat = os.lstat(os.path.join(folder, entry))
            found.append((os.path.join(folder, entry), stat.st_mode, stat.st_uid))
    return sorted(found)


@pytest.mark.parametrize(("place", "wrong"), CASES)
def test_nobody_starts_on_a_source_that_is_not_what_it_must_be(
    bob: LiveHive, place: str, wrong: Callable[[Path], Repair]
) -> None:
    path = bob.root / place
    etc = sorted(os.listdir("/etc"))
    repair = wrong(path)
    before = _shown(path.parent)
    try:
        refused = bob.hivectl("start", "bob", expect=None)
        assert refused.status != 0
        row = bob.wait_state("bob", "failed")
        assert str(path) in row["reason"]
        assert not bob.raw.inspect_container(row["container_id"])["State"]["Running"]
        assert _shown(path.parent) == before
        assert sorted(os.listdir("/etc")) == etc
        assert bob.status()["phase"] == "running"
    finally:
        repair()
    bob.wait_state("bob", "running")
    assert (bob.data / "agents/bob/state/mark").exists()


def test_a_new_container_is_not_made_on_a_missing_source(bob: LiveHive) -> None:
    """The same on the way of a create: its container was removed by hand as well."""
    state = bob.data / "agents/bob/state"
    bob.raw.remove_container(bob.row("bob")["container_id"])
    bob.wait_for(lambda: bob.row("bob")["container_id"] is None, "its end")
    repair = _missing(state)
    try:
        assert bob.hivectl("start", "bob", expect=None).status != 0
        assert str(state) in bob.wait_state("bob", "failed")["reason"]
        assert not state.exists()
        assert bob.containers("bob") == []
    finally:
        repair()
    bob.wait_state("bob", "running")
    assert (state / "mark").read_text().splitlines()[0] == "here"


def test_what_hive_can_make_again_it_makes_again(bob: LiveHive) -> None:
    agent = bob.data / "agents/bob"
    shutil.rmtree(agent / "config")
    (agent / "etc/passwd").unlink()
    bob.hivectl("start", "bob")
    assert bob.hivectl("exec", "bob", "--", "cat", "/config/agent.toml").stdout.startswith("name")
    assert "agent" in bob.hivectl("exec", "bob", "--", "id", "-un").stdout


def test_a_source_swapped_while_it_runs_is_refused_at_the_next_start(bob: LiveHive) -> None:
    bob.verb("start", "bob")
    state = bob.data / "agents/bob/state"
    repair = _symlink(state)
    try:
        bob.hivectl("restart", "bob", expect=None)
        assert str(state) in bob.wait_state("bob", "failed")["reason"]
    finally:
        repair()
    bob.wait_state("bob", "running")


def test_one_agents_missing_source_is_nobody_elses(bob: LiveHive) -> None:
    bob.spawn("carol")
    repair = _missing(bob.data / "agents/bob/home")
    try:
        bob.hivectl("start", "bob", expect=None)
        bob.wait_state("bob", "failed")
        bob.hivectl("restart", "carol")
        assert bob.row("carol")["state"] == "running"
    finally:
        repair()
        bob.remove("carol")
    bob.wait_state("bob", "running")


# ---- repos/ that is not there -----------------------------------------------------------------------------


@pytest.fixture
def pair(make_hive: MakeHive) -> LiveHive:
    """A hive of its own with two agents running."""
    hive = make_hive().start().settle()
    hive.spawn("bob")
    hive.spawn("carol", parent="bob")
    return hive.settle()


def _without(repos: Path) -> Repair:
    return _missing(repos)


def _empty(repos: Path) -> Repair:
    away = _aside(repos)
    repos.mkdir(mode=0o755)
    return _back(repos, away)


def _unmarked(repos: Path) -> Repair:
    return _missing(repos / ".hive")


def _foreign(repos: Path) -> Repair:
    content = (repos / ".hive").read_bytes()
    (repos / ".hive").write_bytes(b"another\n")

    def repair() -> None:
        (repos / ".hive").write_bytes(content)

    return repair


@pytest.mark.parametrize("wrong", [_without, _empty, _unmarked, _foreign])
def test_unmounted_repos_remove_nobody(pair: LiveHive, wrong: Callable[[Path], Repair]) -> None:
    repos = pair.data / "repos"
    lives, rows, roster = pair.lives(), pair.rows(), pair.roster_file.read_bytes()
    repair = wrong(repos)
    try:
        pair.wait_for(lambda: pair.status()["phase"] == "degraded", "phase degraded")
        assert "repos" in pair.problems()["repos_unknown"]
        pair.hivectl("init", "dave", expect=None)
        assert "dave" not in pair.rows()
        assert (
            pair.hivectl("push", "bob", str(pair.folder("bob", {"agent.toml": b""})), expect=None).status != 0
        )
        pair.restart()
        pair.wait_for(lambda: pair.status()["phase"] == "degraded", "phase degraded again")
        assert {name: row["state"] for name, row in pair.rows().items()} == dict.fromkeys(rows, "running")
        assert pair.lives() == lives
        assert pair.roster_file.read_bytes() == roster
        assert not (repos / ".hive").exists() or wrong is _foreign
    finally:
        repair()
    pair.wait_for(lambda: pair.status()["phase"] == "running", "phase running", limit_s=10)
    pair.settle()
    assert pair.lives() == lives
    assert pair.roster_file.read_bytes() == roster


def test_repos_on_a_mount_that_goes_and_comes_back(make_hive: MakeHive) -> None:
    # The same directory put back at once looks to the watch as if it had never gone: the timer sees it.
    hive = make_hive({"reconcile": {"interval_s": 2}})
    hive.data.mkdir(mode=0o711)
    repos, disk = hive.data / "repos", hive.root / "disk"
    for folder in (repos, disk):
        folder.mkdir(mode=0o755)
    mounts.bind(disk, repos)
    hive.start().settle()
    hive.spawn("bob")
    lives, roster = hive.lives(), hive.roster_file.read_bytes()
    # Lazily: the daemon's watch keeps the directory open, which a plain umount takes for busy.
    subprocess.run(["umount", "--lazy", str(repos)], check=True, timeout=10)
    hive.wait_for(lambda: hive.status()["phase"] == "degraded", "phase degraded", limit_s=10)
    assert os.listdir(repos) == []
    assert hive.lives() == lives
    mounts.bind(disk, repos)
    hive.wait_for(lambda: hive.status()["phase"] == "running", "phase running", limit_s=10)
    hive.settle()
    assert hive.lives() == lives
    assert hive.roster_file.read_bytes() == roster


def test_a_repo_that_is_really_gone_leaves_with_its_container_only(pair: LiveHive) -> None:
    """Its absence was seen, but its container is still there: it stays until that is gone too."""
    shutil.rmtree(pair.data / "repos" / "carol.git")
    pair.reconcile()
    assert pair.row("carol")["state"] == "running"
    assert pair.row("carol")["degraded"]
    pair.hivectl("rm", "carol", "--yes")
    assert "carol" not in pair.rows()
    assert pair.row("bob")["state"] == "running"
