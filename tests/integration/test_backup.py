"""A hive that runs is backed up, and comes back on another root: same roster, same state, same owners."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import tarfile
from pathlib import Path

import pytest

from hive_api.client import ApiError
from tests.support.hive_fixtures import MakeHive
from tests.support.live_hive import LiveHive, raw_connection

pytestmark = pytest.mark.integration

# Appends, replaces, deletes, makes links, FIFOs and directories, without a rest.
WRITER = """
cd /state; echo up
i=0
while :; do
  i=$((i+1))
  echo "line $i" >> log
  mkdir -p "d$((i % 7))/e"; echo $i > "d$((i % 7))/e/f$((i % 13))"
  rm -rf "d$(((i + 3) % 7))"
  yes x | head -c 300000 > big; echo short > big
  [ $((i % 50)) = 0 ] && rm -f log
done
"""
KEEPER = "cd /state; [ -e born ] || echo first > born; echo again >> lives; exec sleep 600"


def _owners(root: Path) -> dict[str, tuple[int, int, int, bytes]]:
    found = {}
    for folder, _, files in os.walk(root):
        for path in [Path(folder), *(Path(folder) / name for name in files)]:
            seen = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path.relative_to(root))] = (seen.st_mode, seen.st_uid, seen.st_gid, content)
    return found


def _twin(make_hive: MakeHive, first: LiveHive) -> LiveHive:
    """Return a hive of the same id, and so with the same uids, on a root of its own."""
    other = make_hive()
    other.id = first.id
    other.write_settings()
    return other


def _end(hive: LiveHive) -> None:
    """Take a hive away as a lost host does, its files apart."""
    hive.kill9()
    for row in hive.containers():
        hive.raw.remove_container(row["Id"], force=True)


def _restore(hive: LiveHive, file: Path, status: int = 0) -> str:
    done = subprocess.run(
        hive.daemon_argv("restore", str(file)), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status, done
    return done.stdout + done.stderr


def _outcomes(hive: LiveHive) -> list[str]:
    records = hive.api.get("/v1/audit", {"limit": 100})["records"]
    return [one["outcome"] for one in records if one["operation"] == "backup"]


def test_a_hive_comes_back_on_another_root_paused_and_whole(make_hive: MakeHive, tmp_path: Path) -> None:
    first = make_hive().start().settle()
    first.spawn("ann", "sh", "-c", KEEPER)
    first.spawn("bob", "sh", "-c", KEEPER, parent="ann")
    first.spawn("carol", parent="ann")
    first.init("dave")
    first.hivectl("stop", "carol")
    first.wait_for((first.data / "agents/bob/state/lives").exists, "bob's state")
    file = tmp_path / "hive.tar"
    first.hivectl("backup", str(file))
    roster = first.roster_file.read_bytes()
    state = {name: _owners(first.data / "agents" / name / "state") for name in ("ann", "bob", "carol")}
    repos = _owners(first.data / "repos")
    _end(first)

    other = _twin(make_hive, first)
    said = _restore(other, file)
    assert "4 agents" in said
    assert "hivectl resume" in said
    assert other.roster_file.read_bytes() == roster
    assert _owners(other.data / "repos") == repos
    for name, before in state.items():
        assert _owners(other.data / "agents" / name / "state") == before

    other.start()
    other.wait_for(lambda: other.status()["phase"] == "paused", "phase paused")
    assert other.containers() == []
    other.hivectl("resume")
    other.settle()
    for name in ("ann", "bob"):
        other.wait_state(name, "running")
        row = other.row(name)
        assert not row["needs_update"], row
    assert {name: row["state"] for name, row in other.rows().items() if name not in ("ann", "bob")} == {
        "carol": "stopped", "dave": "unspawned"
    }  # fmt: skip
    assert other.roster_file.read_bytes() == roster
    assert not other.problems()
    other.wait_for(
        lambda: (other.data / "agents/bob/state/lives").read_text() == "again\nagain\n", "bob's second life"
    )
    assert (other.data / "agents/bob/state/born").read_text() == "first\n"
    sources = {one["Source"] for one in other.inspect("bob")["Mounts"]}
    assert not [source for source in sources if source.startswith(str(first.root))]
    assert other.hivectl("audit", "verify").status == 0
    # It is a hive like any other: what it has not run yet it runs.
    other.verb("spawn", "dave")
    other.verb("start", "carol")


def test_backups_of_an_agent_that_writes_all_the_time_are_whole(make_hive: MakeHive, tmp_path: Path) -> None:
    first = make_hive().start().settle()
    first.spawn("bob", "sh", "-c", WRITER)
    first.wait_for((first.data / "agents/bob/state/log").exists, "the first line")
    files = [tmp_path / f"{number}.tar" for number in range(3)]
    for file in files:
        first.hivectl("backup", str(file))
    assert _outcomes(first) == ["asked", "accepted"] * 3
    _end(first)
    for number, file in enumerate(files):
        other = _twin(make_hive, first)
        _restore(other, file)
        log = other.data / "agents/bob/state/log"
        if log.exists():
            lines = log.read_text().splitlines()
            # Whole lines in their order, the last one perhaps in the middle of being written.
            assert all(line.startswith("line ") for line in lines[:-1]), number


def test_nothing_is_restored_under_a_running_daemon_or_over_a_hive(
    make_hive: MakeHive, tmp_path: Path
) -> None:
    hive = make_hive().start().settle()
    file = tmp_path / "hive.tar"
    hive.hivectl("backup", str(file))
    assert "already running" in _restore(hive, file, status=1)
    assert "a daemon answers" in hive.hivectl("restore", str(file), "--yes", expect=6).stderr
    hive.terminate()
    assert "there is a hive" in _restore(hive, file, status=1)
    hive.start().settle()


def test_a_backup_cut_short_by_its_client_is_refused_and_audited(make_hive: MakeHive, tmp_path: Path) -> None:
    hive = make_hive().start().settle()
    hive.spawn("bob")
    with (hive.data / "agents/bob/state/big").open("wb") as big:
        for _ in range(64):
            big.write(os.urandom(1 << 20))
    file = tmp_path / "hive.tar"
    with raw_connection(hive.socket) as wire, file.open("wb") as target:
        wire.sendall(b"GET /v1/backup HTTP/1.1\r\nHost: hive\r\n\r\n")
        for _ in range(16):
            target.write(wire.recv(1 << 16))
        wire.shutdown(socket.SHUT_RDWR)
    hive.wait_for(lambda: _outcomes(hive) == ["asked", "interrupted"], "the record of the interruption")
    hive.terminate()
    content = file.read_bytes()
    file.write_bytes(content[content.index(b"manifest.json") :])
    assert "cut short" in _restore(_twin(make_hive, hive), file, status=1)


def test_secrets_are_refused_by_name_and_the_question_is_audited(hive: LiveHive) -> None:
    with pytest.raises(ApiError, match="no secrets exist yet"):
        hive.api.get("/v1/backup", {"with_secrets": True})
    assert _outcomes(hive)[-2:] == ["asked", "refused"]


def test_without_state_an_agent_begins_anew(make_hive: MakeHive, tmp_path: Path) -> None:
    first = make_hive().start().settle()
    first.spawn("bob", "sh", "-c", KEEPER)
    first.wait_for((first.data / "agents/bob/state/lives").exists, "bob's state")
    file = tmp_path / "hive.tar"
    first.hivectl("backup", str(file), "--no-state")
    with tarfile.open(file) as tar:
        assert not [name for name in tar.getnames() if name.startswith("agents")]
    _end(first)
    other = _twin(make_hive, first)
    assert "without their state and home" in _restore(other, file)
    other.start()
    other.hivectl("resume")
    other.wait_state("bob", "running")
    other.wait_for((other.data / "agents/bob/state/born").exists, "bob's new state")


def test_an_agent_whose_image_is_not_here_says_so(make_hive: MakeHive, tmp_path: Path) -> None:
    first = make_hive().start().settle()
    first.spawn("bob")
    image = first.inspect("bob")["Image"]
    file = tmp_path / "hive.tar"
    first.hivectl("backup", str(file))
    _end(first)
    other = _twin(make_hive, first)
    _restore(other, file)
    # As on a host whose engine never had the image.
    with sqlite3.connect(other.data / "hive.db") as db:
        changed = db.execute(
            "UPDATE agents SET applied_spec = replace(applied_spec, ?, ?)", (image, "sha256:" + "9" * 64)
        )
        assert changed.rowcount == 1
    db.close()
    other.start()
    other.hivectl("resume")
    row = other.wait_for(
        lambda: next((row for row in other.rows().values() if "9999999" in row["reason"]), None),
        "the reason",
    )
    assert row["state"] in ("failed", "backoff"), row
