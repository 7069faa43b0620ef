"""What comes back is what went in, and speaks of where it is now."""

from __future__ import annotations

import os
import socket
import stat
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from hive_core.adapters.audit import AuditLog
from hive_core.adapters.clock import Clock
from hive_core.adapters.journal import Journal
from hive_core.adapters.store import Store
from hive_core.domain.agents import Desired, Intent, IntentKind
from hive_core.domain.changes import Asked, Change, Goal, Part, Progress
from hive_core.domain.spec import BindMount, spec_hash
from hive_core.engine.audit import Audit
from hive_core.engine.facts import paused_by, published_roster, reserved_uids
from tests.support.paths import AGENT_UID, OTHER_UID
from tests.support.plan_inputs import NOW, spec
from tests.support.repo_rig import BOB
from tests.unit.backup.small_hive import GIT, INCARNATION, ROSTER, SmallHive, names, tree

MIB = 1 << 20


def _store(data: Path) -> Store:
    return Store(data / "hive.db")


def _fill(state: Path) -> None:
    """Everything an agent can make that is to come back."""
    (state / "plain").write_bytes(os.urandom(3 * MIB + 17))
    (state / "empty").touch()
    (state / "tool").write_text("#!/bin/sh\n")
    (state / "tool").chmod(0o4755)
    (state / "line\nbreak \x1b[31m").write_text("x")
    (state / os.fsdecode(b"latin-\xe9\xff")).write_text("x")
    (state / ("n" * 255)).write_text("x")
    deep = state.joinpath(*["directory-with-a-name"] * 30)
    deep.mkdir(parents=True)
    (deep / "leaf").write_text("x")
    (state / "dangling").symlink_to("/nowhere")
    (state / "loop").symlink_to("loop")
    (state / "up").symlink_to("..")
    (state / "long").symlink_to("t/" * 200)
    (state / "closed").mkdir(0o000)
    for folder, directories, files in os.walk(state):
        for name in (*directories, *files):
            os.chown(Path(folder) / name, AGENT_UID, AGENT_UID, follow_symlinks=False)
    (state / "tool").chmod(0o4755)
    (state / "by-root").write_text("x")
    (state / "by-other").write_text("x")
    os.chown(state / "by-other", OTHER_UID + 5000, OTHER_UID + 5000)
    (state / "by-other").chmod(0o6755)


def test_trees_come_back_with_owners_modes_and_odd_names(small: SmallHive) -> None:
    _fill(small.paths.state)
    (small.paths.home / ".token").write_text("kept")
    here = small.elsewhere()
    done = small.restored(small.back_up(), here)
    assert (done.agents, done.with_state, done.skipped) == (1, True, {})
    before, after = tree(small.paths.state), tree(here.data / "agents" / "bob" / "state")
    # Set-id bits of a file that is not the agent's own would lend somebody else's rights.
    assert after.pop("by-other")[0] == "0o100755"
    del before["by-other"]
    assert after == before
    assert (here.data / "agents" / "bob" / "home" / ".token").read_text() == "kept"
    assert sorted(os.listdir(here.data / "agents" / "bob")) == ["home", "state"]
    times = [(one / "plain").stat().st_mtime for one in (small.paths.state, here.data / "agents/bob/state")]
    assert int(times[0]) == int(times[1])
    for private in ("state", "home"):
        found = (here.data / "agents" / "bob" / private).stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (AGENT_UID, 0o700)


def test_any_tar_reads_the_archive(small: SmallHive) -> None:
    _fill(small.paths.state)
    with (small.paths.state / "sparse").open("wb") as file:
        for at in range(0, 40 * MIB, MIB):
            file.seek(at)
            file.write(b"x" * 4096)
        file.truncate(50 * MIB)
    file_ = small.back_up()
    with tarfile.open(file_, errors="surrogateescape") as tar:
        found = tar.extractfile("agents/bob/state/sparse")
        assert found is not None
        assert found.read() == (small.paths.state / "sparse").read_bytes()
    listed = names(file_)
    assert (listed[:2], listed[-1]) == (["manifest.json", "hive.db"], "end.json")


def test_what_is_no_file_is_left_out_and_counted(small: SmallHive) -> None:
    state = small.paths.state
    os.mkfifo(state / "fifo")
    os.mknod(state / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(state / "socket"))
        file = small.back_up()
    here = small.elsewhere()
    done = small.restored(file, here)
    assert Counter(done.skipped) == {"a FIFO": 1, "a character device": 1, "a socket": 1}
    assert os.listdir(here.data / "agents" / "bob" / "state") == []


def test_a_directory_that_is_too_deep_is_left_out_and_the_rest_is_kept(small: SmallHive) -> None:
    state = small.paths.state
    fd = os.open(state, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    (state / "zebra").write_text("x")
    here = small.elsewhere()
    done = small.restored(small.back_up(), here)
    assert done.skipped == {"a directory deeper than 200": 1}
    assert (here.data / "agents/bob/state/zebra").read_text() == "x"


def test_a_sparse_file_of_two_gigabytes_costs_what_is_in_it(small: SmallHive) -> None:
    big = small.paths.state / "big"
    with big.open("wb") as file:
        file.truncate(2 << 30)
        file.seek(1 << 30)
        file.write(b"island")
    whole = small.paths.state / "hole"
    with whole.open("wb") as file:
        file.truncate(2 << 30)
    archive = small.back_up()
    assert archive.stat().st_size < 8 * MIB
    here = small.elsewhere()
    small.restored(archive, here)
    for name in ("big", "hole"):
        found = (here.data / "agents" / "bob" / "state" / name).stat()
        assert found.st_size == 2 << 30
        assert found.st_blocks * 512 < MIB
    with (here.data / "agents" / "bob" / "state" / "big").open("rb") as file:
        file.seek(1 << 30)
        assert file.read(8) == b"island\0\0"


def test_a_file_that_changes_its_size_while_it_is_read_is_padded_and_noted(small: SmallHive) -> None:
    shrinks, grows = small.paths.state / "shrinks", small.paths.state / "grows"
    shrinks.write_bytes(b"s" * 6 * MIB)
    grows.write_bytes(b"g" * 6 * MIB)
    file = small.root / "backup.tar"
    is_changed = False
    with file.open("wb") as target:
        for piece in small.backup.pieces(with_state=True):
            target.write(piece)
            if not is_changed and (b"s" * 4096 in piece or b"g" * 4096 in piece):
                # One of the two is being read now, the other is read later, as it then is.
                os.truncate(shrinks, 100)
                with grows.open("ab") as more:
                    more.write(b"g" * MIB)
                is_changed = True
    assert is_changed
    here = small.elsewhere()
    small.restored(file, here)
    state = here.data / "agents" / "bob" / "state"
    assert (state / "grows").stat().st_size in (6 * MIB, 7 * MIB)
    assert set((state / "grows").read_bytes()) == {ord("g")}
    content = (state / "shrinks").read_bytes()
    assert len(content) in (100, 6 * MIB)
    assert set(content.rstrip(b"\0")) == {ord("s")}
    if len(content) > 100:
        assert b"became shorter while it was read" in file.read_bytes()[-40_000:]


def test_the_store_speaks_of_where_it_is_and_nothing_is_pending(small: SmallHive) -> None:
    mounted = replace(spec("bob"), mounts=(BindMount("/state", f"{small.data}/agents/bob/state"),))
    small.store.set_applied(INCARNATION, mounted, mounted)
    small.store.set_desired(INCARNATION, Desired.RUNNING, "asked", Intent(IntentKind.RESTART, NOW, 10))
    small.store.open_outage(NOW)
    journal = Journal(small.store)
    part = Part(BOB, INCARNATION, Goal.RUNNING)
    done = replace(part, state=Progress.DONE, text="bob is running")
    journal.add(Change("c-1", "restart", Asked("the tests", "key"), (part, done), NOW))
    here = small.elsewhere()
    small.restored(small.back_up(), here)
    store = _store(here.data)
    try:
        record = store.agent(BOB)
        assert record is not None
        assert record.desired is Desired.RUNNING
        assert record.intent is None
        assert record.applied is not None
        assert [one.source for one in record.applied.mounts] == [f"{here.data}/agents/bob/state"]
        assert record.applied_hash == spec_hash(record.applied)
        assert record.previous == record.applied
        assert store.containers() == ()
        assert all(one.returned_at is not None for one in store.outages())
        assert (paused_by(store), reserved_uids(store)) == ("restore", None)
        assert published_roster(store) == ROSTER
        change = Journal(store).get("c-1")
        assert change is not None
        assert (change.state, [one.text for one in change.parts]) == (
            Progress.FAILED,
            ["ended by a restore", "bob is running"],
        )
        assert change.error is not None
        assert "ended by a restore" in change.error.message
        assert [one.kind for one in store.last_events(1)] == ["restored"]
    finally:
        store.close()
    assert sorted(os.listdir(here.data)) == ["agents", "audit", "hive.db", "meta", "repos"]


def test_meta_repos_and_audit_come_back(small: SmallHive) -> None:
    here = small.elsewhere()
    file = small.back_up()
    (small.data / "meta" / "topology.json").write_text("changed since")
    small.restored(file, here)
    assert tree(here.data / "repos") == tree(small.data / "repos")
    assert (here.data / "meta" / "topology.json").read_bytes() == ROSTER
    history = tree(here.data / "meta" / ".git")
    assert history == tree(small.data / "meta" / ".git")
    audit = Audit(AuditLog(here.data / "audit"), Clock())
    assert audit.verify(small.audit.head).head.seq == small.audit.head.seq + 1
    last = audit.records(-1, 1)[0]
    assert (last["operation"], last["caller"]) == ("restore", "uid 0")


def test_repos_go_to_the_account_that_git_has_here(small: SmallHive) -> None:
    here = replace(small.elsewhere(), git_uid=988_001, git_gid=988_002)
    small.restored(small.back_up(), here)
    before, after = tree(small.data / "repos"), tree(here.data / "repos")
    moved = {GIT[0]: 988_001, GIT[1]: 988_002, 0: 0}
    assert after == {
        path: (mode, moved[uid], moved[gid], content)  # type: ignore[index]
        for path, (mode, uid, gid, content) in before.items()
    }


def test_retired_agents_come_back(small: SmallHive) -> None:
    (small.paths.state / "x").write_text("kept")
    small.dirs.retire(BOB, INCARNATION)
    small.repos.retire(BOB, INCARNATION)
    here = small.elsewhere()
    small.restored(small.back_up(), here)
    assert (here.data / "agents" / ".retired" / f"bob-{INCARNATION}" / "state" / "x").read_text() == "kept"
    assert (here.data / "repos" / "retired" / f"bob-{INCARNATION}.git" / "HEAD").exists()


def test_without_state_agents_begin_with_empty_directories(small: SmallHive) -> None:
    (small.paths.state / "x").write_text("left out")
    file = small.back_up(with_state=False)
    assert not [name for name in names(file) if name.startswith(("agents", "evidence"))]
    here = small.elsewhere()
    assert not small.restored(file, here).with_state
    for private in ("state", "home"):
        found = here.data / "agents" / "bob" / private
        assert os.listdir(found) == []
        assert found.stat().st_uid == AGENT_UID


def test_secrets_exports_and_copies_are_in_no_backup(small: SmallHive) -> None:
    (small.data / "secrets").mkdir()
    (small.data / "secrets" / "key").write_text("canary-of-a-secret")
    (small.data / "hive.db.v1").write_text("old")
    export = small.paths.config_dir("a" * 40)
    export.mkdir()
    (export / "agent.toml").write_text("canary-of-an-export")
    file = small.back_up()
    assert {name.split("/")[0] for name in names(file)} == {
        "manifest.json", "hive.db", "meta", "repos", "agents", "audit", "end.json",
    }  # fmt: skip
    assert b"canary" not in file.read_bytes()


def test_a_copy_that_a_killed_daemon_left_is_swept(small: SmallHive) -> None:
    (small.data / ".backup-0123").write_text("left")
    small.back_up()
    assert not [name for name in os.listdir(small.data) if name.startswith(".backup")]


def test_a_backup_that_is_given_up_holds_nothing_open(small: SmallHive) -> None:
    (small.paths.state / "x").write_bytes(os.urandom(4 * MIB))
    before = len(os.listdir("/proc/self/fd"))
    pieces = small.backup.pieces(with_state=True)
    next(pieces)
    assert len(os.listdir("/proc/self/fd")) > before
    del pieces
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_commit_that_is_pushed_during_the_backup_is_in_it_whole_or_not_at_all(small: SmallHive) -> None:
    listed = names(small.back_up())
    repo = [name for name in listed if name.startswith("repos/bob.git/")]
    refs = [at for at, name in enumerate(repo) if "/refs" in name]
    objects = [at for at, name in enumerate(repo) if "/objects" in name]
    assert max(refs) < min(objects)


def test_a_link_in_a_tree_of_hives_own_is_left_out(small: SmallHive) -> None:
    (small.data / "repos" / "bob.git" / "objects" / "link").symlink_to("/etc/shadow")
    here = small.elsewhere()
    assert small.restored(small.back_up(), here).skipped == {"a symbolic link": 1}


@pytest.mark.parametrize("swapped", ["a-link", "a-fifo"])
def test_a_tree_that_is_swapped_for_something_else_is_left_out(small: SmallHive, swapped: str) -> None:
    small.paths.state.rmdir()
    if swapped == "a-link":
        small.paths.state.symlink_to("/etc")
    else:
        os.mkfifo(small.paths.state)
    assert "agents/bob/state" not in names(small.back_up())
