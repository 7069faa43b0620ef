"""Which files are a store, and which are refused without being touched."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hive_core.adapters.schema import MIGRATIONS
from hive_core.adapters.store import Store
from hive_core.domain.errors import StoreUnusable
from tests.support.plan_inputs import NOW, agent


def _refused(path: Path) -> StoreUnusable:
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreUnusable) as caught:
        Store(path)
    if before is not None:
        assert path.read_bytes() == before
    assert str(path) in caught.value.message
    assert caught.value.hint
    return caught.value


def test_a_new_store_is_made_durable_and_of_this_version(path: Path) -> None:
    Store(path).close()
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_store_of_a_newer_hive_is_refused_with_the_way_back(path: Path) -> None:
    Store(path).close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    fault = _refused(path)
    assert f"has version {len(MIGRATIONS) + 1}" in fault.message
    assert "newer hive" in fault.hint


def test_what_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"this was never a database\n" * 100)
    assert "cannot open the store" in _refused(path).message


def test_a_directory_is_refused(path: Path) -> None:
    path.mkdir()
    _refused(path)


def test_a_missing_directory_is_refused_and_not_made(path: Path) -> None:
    _refused(path.parent / "missing" / "hive.db")
    assert not (path.parent / "missing").exists()


def _full(path: Path) -> int:
    """Make a store of several pages and return its page size."""
    store = Store(path)
    for number in range(200):
        store.add_event(NOW, "test", None, "x" * 200, {"number": number})
    store.add_agent(agent())
    store.close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return int(raw.execute("PRAGMA page_size").fetchone()[0])


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_truncated_store_is_refused_at_the_start(path: Path, share: float) -> None:
    page_bytes = _full(path)
    pages = path.stat().st_size // page_bytes
    with path.open("r+b") as raw:
        raw.truncate(int(pages * share) * page_bytes)
    _refused(path)


def test_a_store_with_a_page_of_noise_is_refused_at_the_start(path: Path) -> None:
    page_bytes = _full(path)
    with path.open("r+b") as raw:
        raw.seek(page_bytes)
        raw.write(b"\xa5" * page_bytes)
    _refused(path)


def test_everything_is_there_again_after_reopening(path: Path) -> None:
    store = Store(path)
    store.add_agent(agent())
    store.set_fact("key", b"value")
    store.close()
    again = Store(path)
    assert [one.name for one in again.agents()] == ["bob"]
    assert again.fact("key") == b"value"
    again.close()


def test_what_a_killed_daemon_left_uncommitted_is_not_there(path: Path) -> None:
    """Another connection that goes away in the middle of a write stands for the process that was killed."""
    Store(path).close()
    killed = sqlite3.connect(path, isolation_level=None)
    killed.execute("BEGIN IMMEDIATE")
    killed.execute("INSERT INTO facts VALUES ('half', x'00')")
    killed.close()
    again = Store(path)
    assert again.fact("half") is None
    again.close()
