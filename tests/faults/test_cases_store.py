"""hive's memory after a crash, a full disk or a wrong command: whole, or refused aloud; never begun anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hive_core.adapters.files import write_atomic
from hive_core.adapters.store import Store
from hive_core.domain.errors import StoreUnusable
from hive_core.engine.first_start import refuse_lost_store
from tests.support.hive_fixtures import MakeHive
from tests.support.live_hive import LiveHive
from tests.support.paths import root_dir
from tests.support.plan_inputs import agent

__all__ = ["root_dir"]
pytestmark = pytest.mark.faults


# ---- a store that was lost --------------------------------------------------------------------------------


@pytest.mark.integration
def test_a_lost_store_is_refused_and_everything_is_left_as_it_was(make_hive: MakeHive) -> None:
    hive = make_hive().start().settle()
    hive.spawn("alice")
    hive.spawn("bob", parent="alice")
    hive.terminate()
    store = hive.data / "hive.db"
    kept = store.with_name("kept")
    store.rename(kept)
    lives, roster, left = hive.lives(), hive.roster_file.read_bytes(), _files(hive)
    _refuses(hive, f"{store} is missing")
    store.touch(0o600)
    _refuses(hive, f"{store} is empty")
    store.unlink()
    assert (hive.lives(), hive.roster_file.read_bytes(), _files(hive)) == (lives, roster, left)
    kept.rename(store)
    hive.start().settle()
    assert hive.lives() == lives
    assert {name: row["parent"] for name, row in hive.rows().items()} == {"alice": None, "bob": "alice"}


def _refuses(hive: LiveHive, words: str) -> None:
    process = hive.launch()
    assert process.wait(20) == 1
    assert words in hive.log().splitlines()[-1]


def _files(hive: LiveHive) -> dict[Path, int]:
    """Return what there is in the data directory, the lock apart, and when it was last written."""
    files = {path: path.lstat().st_mtime_ns for path in hive.data.rglob("*") if not path.is_dir()}
    return {path: at for path, at in files.items() if path.name != "lock"}


def test_no_store_is_no_loss_where_there_never_was_an_agent(tmp_path: Path) -> None:
    store, agents = tmp_path / "hive.db", tmp_path / "agents"
    refuse_lost_store(store, agents)
    (agents / ".retired").mkdir(parents=True)
    refuse_lost_store(store, agents)
    (agents / ".retired" / "bob-0").mkdir()
    with pytest.raises(StoreUnusable):
        refuse_lost_store(store, agents)
    store.write_bytes(b"x")
    with pytest.raises(StoreUnusable):
        refuse_lost_store(store, agents)
    store.unlink()
    Store(store).close()
    refuse_lost_store(store, agents)


@pytest.mark.parametrize("left_bytes", [2, 15, 16, 99, 100, 511, 512, 4095, 4097])
def test_a_store_cut_anywhere_is_refused_untouched(tmp_path: Path, left_bytes: int) -> None:
    path = tmp_path / "hive.db"
    made = Store(path)
    made.add_agent(agent())
    made.close()
    with path.open("r+b") as raw:
        raw.truncate(left_bytes)
    before = path.read_bytes()
    with pytest.raises(StoreUnusable):
        Store(path)
    assert path.read_bytes() == before


# ---- what reaches the disk, and in which order ------------------------------------------------------------


def test_a_file_is_on_disk_before_its_name_and_its_name_before_it_is_relied_on(
    root_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[str, int]] = []
    fsync, rename = os.fsync, os.rename

    def seen_fsync(fd: int) -> None:
        order.append(("fsync", os.fstat(fd).st_ino))
        fsync(fd)

    def seen_rename(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        order.append(("rename", os.stat(source, dir_fd=src_dir_fd).st_ino))
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "rename", seen_rename)
    path = root_dir / "topology.json"
    write_atomic(path, b"[]\n", 0o644)
    file, directory = path.stat().st_ino, root_dir.stat().st_ino
    assert order == [("fsync", file), ("rename", file), ("fsync", directory)]
