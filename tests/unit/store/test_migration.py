"""A store of every earlier version opens, keeps its rows, and leaves a copy for the way back."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hive_core.adapters import store as store_module
from hive_core.adapters.journal import Journal
from hive_core.adapters.rows import stamp
from hive_core.adapters.schema import MIGRATIONS
from hive_core.adapters.store import Store
from hive_core.domain.agents import Desired, ExitKind, ExitRecord, Intent, IntentKind, Outage
from hive_core.domain.errors import StoreUnusable
from hive_core.domain.spec import dump, spec_hash
from tests.support.plan_inputs import NOW, ago, name, spec

OLDER = range(1, len(MIGRATIONS))


def _stamp(seconds: float) -> str:
    text = stamp(ago(seconds))
    assert text is not None
    return text


def _of_version(path: Path, version: int) -> None:
    """Make a store as the hive of an earlier version left it."""
    spent = spec("bob")
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode=WAL")
        for number, statements in enumerate(MIGRATIONS[:version], 1):
            raw.executescript(f"BEGIN; {statements}; PRAGMA user_version={number}; COMMIT;")
        agents = (
            "INSERT INTO agents (incarnation, name, uid, parent, is_root, created_at, ended_at, desired, "
            "desired_reason, intent, intent_at, intent_grace_s, intent_purge, applied_spec, applied_hash, "
            "applied_commit, crashes_reset_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
        wish = ("restart", _stamp(30), 7, 0, dump(spent), spec_hash(spent), spent.commit, _stamp(100))
        nothing = (None,) * 8
        raw.execute(agents, ("r-1", "ruth", 1, None, 1, _stamp(900), None, "stopped", "down", *nothing))
        raw.execute(agents, ("b-1", "bob", 2, "ruth", 0, _stamp(800), None, "running", "spawned", *wish))
        raw.execute(agents, ("o-1", "old", 3, None, 0, _stamp(999), _stamp(500), "stopped", "gone", *nothing))
        raw.execute("INSERT INTO containers VALUES ('n-1', 'b-1', 'id-1', ?, ?)", (_stamp(700), _stamp(40)))
        raw.execute(
            "INSERT INTO exits VALUES ('id-1', ?, 'b-1', ?, 3, 1, 'crash', 'ended')", (_stamp(50), _stamp(60))
        )
        raw.execute("INSERT INTO outages VALUES (?, ?)", (_stamp(400), _stamp(390)))
        raw.execute(
            "INSERT INTO events (at, kind, agent, text, fields) VALUES (?, 'started', 'bob', 'spawned', ?)",
            (_stamp(650), '{"container_id": "id-1"}'),
        )
        raw.execute("INSERT INTO facts VALUES ('hive_id', ?)", (b"default",))


@contextmanager
def _opened(path: Path) -> Iterator[Store]:
    store = Store(path)
    try:
        yield store
    finally:
        store.close()


@pytest.mark.parametrize("version", OLDER)
def test_everything_of_an_older_store_is_readable(path: Path, version: int) -> None:
    _of_version(path, version)
    with _opened(path) as store:
        bob, ruth = store.agents()
        assert (bob.name, bob.uid, bob.parent, bob.is_root) == ("bob", 2, "ruth", False)
        assert (bob.created_at, bob.desired, bob.desired_reason) == (ago(800), Desired.RUNNING, "spawned")
        assert bob.intent == Intent(IntentKind.RESTART, ago(30), 7)
        assert (bob.applied, bob.applied_hash) == (spec("bob"), spec_hash(spec("bob")))
        assert bob.crashes_reset_at == ago(100)
        crashed = ExitRecord("id-1", ago(60), ago(50), 3, True, ExitKind.CRASH, "ended")
        assert bob.exits == (crashed,)
        assert (bob.previous, bob.quarantined_at) == (None, None)
        assert (ruth.is_root, ruth.intent, ruth.applied) == (True, None, None)
        assert store.last_retired(name("old")) == ("o-1", 3)
        (one,) = store.containers()
        assert (one.nonce, one.id, one.agent, one.stop_requested_at) == ("n-1", "id-1", "bob", ago(40))
        assert store.outages() == (Outage(ago(400), ago(390)),)
        (event,) = store.events_of_agent(name("bob"), 10)
        assert (event.at, event.kind, event.fields) == (ago(650), "started", {"container_id": "id-1"})
        assert store.fact("hive_id") == b"default"
        assert Journal(store).recent(10) == ()


@pytest.mark.parametrize("version", OLDER)
def test_what_is_new_can_be_written(path: Path, version: int) -> None:
    _of_version(path, version)
    with _opened(path) as store:
        store.set_applied("b-1", spec("bob", commit="d" * 40), spec("bob"))
        store.set_quarantined("b-1", NOW)
        store.add_event(NOW, "x", name("bob"), "text", {}, "c-1")
    with _opened(path) as again:
        bob = again.agents()[0]
        assert (bob.previous, bob.quarantined_at) == (spec("bob"), NOW)
        assert [event.kind for event in again.events_of_change("c-1")] == ["x"]


@pytest.mark.parametrize("version", OLDER)
def test_the_copy_is_what_the_older_hive_knew_and_roots_alone(path: Path, version: int) -> None:
    _of_version(path, version)
    before = os.umask(0)
    try:
        Store(path).close()
    finally:
        os.umask(before)
    copy = path.with_name(f"hive.db.v{version}")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with closing(sqlite3.connect(copy)) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (version,)
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert raw.execute("SELECT name FROM agents ORDER BY uid").fetchall() == [
            ("ruth",),
            ("bob",),
            ("old",),
        ]


def test_the_older_hive_opens_the_copy_and_refuses_the_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _of_version(path, 1)
    Store(path).close()
    monkeypatch.setattr(store_module, "MIGRATIONS", MIGRATIONS[:1])
    with pytest.raises(StoreUnusable, match=f"has version {len(MIGRATIONS)}; this hive knows up to 1") as no:
        Store(path)
    assert "the copy it made" in no.value.hint
    copy = path.with_name("hive.db.v1")
    with _opened(copy) as store:
        assert store.fact("hive_id") == b"default"
        store.set_fact("key", b"it works")


def test_a_new_store_needs_no_copy(path: Path) -> None:
    for _ in range(2):
        Store(path).close()
    assert [one.name for one in path.parent.iterdir()] == ["hive.db"]


def test_a_step_that_fails_leaves_the_older_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `kill -9` in the middle does: all of a step is one transaction."""
    _of_version(path, 1)
    broken = (*MIGRATIONS, "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1)")
    monkeypatch.setattr(store_module, "MIGRATIONS", broken)
    with pytest.raises(StoreUnusable, match="cannot open the store"):
        Store(path)
    monkeypatch.undo()
    with _opened(path) as store:
        assert len(store.agents()) == 2
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'half'").fetchone() == (0,)


def test_a_copy_that_a_killed_daemon_left_half_is_made_anew(path: Path) -> None:
    _of_version(path, 1)
    copy = path.with_name("hive.db.v1")
    Store(path).close()
    whole = copy.stat().st_size
    path.unlink()
    _of_version(path, 1)
    with copy.open("r+b") as file:
        file.truncate(0)
    Store(path).close()
    assert copy.stat().st_size == whole


def test_a_backup_is_whole_while_the_store_is_in_use(path: Path, store: Store) -> None:
    store.set_fact("key", b"value")
    with store.transaction():
        store.set_fact("under-way", b"x")
    target = path.with_name("copy.db")
    store.backup(target)
    store.set_fact("key", b"later")
    with _opened(target) as copy:
        assert (copy.fact("key"), copy.fact("under-way")) == (b"value", b"x")
