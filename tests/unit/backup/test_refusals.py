"""What is refused, and that nothing is left behind when it is."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from hive_core.adapters import mounts
from hive_core.adapters.clock import Clock
from hive_core.domain.errors import Conflict, HiveError, InvalidRequest
from hive_core.engine.backup import Backup
from hive_core.engine.restore import refuse_half_restored
from tests.support.paths import AGENT_UID
from tests.unit.backup.small_hive import HIVE, UIDS, SmallHive, copied, member, sealed

STATE = "agents/bob/state"


def _manifest(small: SmallHive, **changes: object) -> dict[str, object]:
    with tarfile.open(small.back_up()) as tar:
        found = tar.extractfile("manifest.json")
        assert found is not None
        return {**json.load(found), **changes}


def _refused(small: SmallHive, file: Path, uids: range = UIDS) -> HiveError:
    here = small.elsewhere()
    with pytest.raises(HiveError) as caught:
        small.restored(file, here, uids)
    assert os.listdir(here.data) == [], "something was left behind"
    return caught.value


@pytest.mark.parametrize("left", [0.2, 0.9, 0.999])
def test_a_truncated_archive_is_refused_before_anything_is_written(shared: SmallHive, left: float) -> None:
    file = shared.back_up()
    os.truncate(file, int(file.stat().st_size * left))
    assert "it was cut short" in _refused(shared, file).message


def test_one_cut_at_a_member_is_refused_too(shared: SmallHive) -> None:
    file = shared.back_up()
    with tarfile.open(file) as tar:
        at = tar.getmember("repos").offset
    content = file.read_bytes()[:at] + bytes(10240)
    file.write_bytes(content)
    assert "it was cut short" in _refused(shared, file).message


def test_a_flipped_bit_is_refused(shared: SmallHive) -> None:
    file = shared.back_up()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert "it was damaged" in _refused(shared, file).message


def test_a_foreign_tar_is_refused(shared: SmallHive) -> None:
    file = shared.root / "foreign.tar"
    with tarfile.open(file, "w") as tar:
        tar.add(shared.paths.passwd, "etc/passwd")
    assert "it is no backup of a hive" in _refused(shared, file).message


@pytest.mark.parametrize("content", [b"", b"x", bytes(100_000), b"\xff" * 100_000])
def test_what_is_no_tar_is_refused(shared: SmallHive, content: bytes) -> None:
    file = shared.root / "odd"
    file.write_bytes(content)
    assert "it is no backup of a hive" in _refused(shared, file).message


def test_a_compressed_one_is_refused_with_the_way_to_decompress_it(shared: SmallHive) -> None:
    file = shared.root / "backup.tar.gz"
    file.write_bytes(gzip.compress(shared.back_up().read_bytes(), 1))
    fault = _refused(shared, file)
    assert "it is compressed" in fault.message
    assert fault.hint == "decompress it first: gzip -d"


def test_a_fifo_or_a_missing_file_is_refused_and_not_waited_for(shared: SmallHive) -> None:
    os.mkfifo(shared.root / "fifo")
    assert "no regular file" in _refused(shared, shared.root / "fifo").message
    assert "No such file" in _refused(shared, shared.root / "nothing").message


def test_a_newer_format_is_refused_with_the_version_that_reads_it(shared: SmallHive) -> None:
    file = sealed(shared.root / "new.tar", [], _manifest(shared, format=2, version="7.1"))
    fault = _refused(shared, file)
    assert "its format is 2, this hive knows up to 1" in fault.message
    assert "7.1" in fault.hint


def test_a_newer_store_is_refused(shared: SmallHive) -> None:
    file = sealed(shared.root / "new.tar", [], _manifest(shared, schema=99))
    assert "its store has version 99" in _refused(shared, file).message


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "one"},
        {"hive": 5},
        {"hive": "a\nb"},
        {"paths": None},
        {"git": [1]},
        {"made_at": None},
        {"schema": "x"},
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(shared: SmallHive, changes: dict[str, object]) -> None:
    file = sealed(shared.root / "odd.tar", [], _manifest(shared, **changes))
    assert isinstance(_refused(shared, file), InvalidRequest)


def test_a_backup_of_another_hive_is_refused_with_the_setting_to_change(shared: SmallHive) -> None:
    file = sealed(shared.root / "other.tar", [], _manifest(shared, hive="other"))
    fault = _refused(shared, file)
    assert f"it is of hive 'other', the settings say '{HIVE}'" in fault.message
    assert 'id = "other"' in fault.hint


def test_uids_outside_the_range_are_refused_with_the_range_that_is_needed(shared: SmallHive) -> None:
    fault = _refused(shared, shared.back_up(), range(100_000, 100_016))
    assert f"agent bob has uid {AGENT_UID}" in fault.message
    assert f"{AGENT_UID}-{AGENT_UID}" in fault.hint


def test_a_hive_that_is_there_is_never_overwritten(shared: SmallHive) -> None:
    file = shared.back_up()
    before = sorted(os.listdir(shared.data))
    with pytest.raises(Conflict, match="there is a hive") as caught:
        shared.restored(file, shared.origin)
    assert caught.value.hint == f"move it away first: mv {shared.data} {shared.data}.before"
    assert sorted(os.listdir(shared.data)) == before


def test_a_directory_that_holds_anything_else_is_refused(small: SmallHive) -> None:
    file, here = small.back_up(), small.elsewhere()
    (here.data / "lock").touch()
    (here.data / "lost+found").mkdir()
    (here.data / "thesis.txt").write_text("mine")
    with pytest.raises(Conflict, match="it is not empty"):
        small.restored(file, here)
    assert sorted(os.listdir(here.data)) == ["lock", "lost+found", "thesis.txt"]
    (here.data / "thesis.txt").unlink()
    small.restored(file, here)


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(member("/etc/cron.d/x"), id="absolute"),
        pytest.param(member("../x"), id="above"),
        pytest.param(member(f"{STATE}/../../../x"), id="above-later"),
        pytest.param(member("x"), id="unknown-top"),
        pytest.param(member("lock"), id="the-lock"),
        pytest.param(member("secrets/i-1", tarfile.DIRTYPE), id="secrets"),
        pytest.param(member("hive.db-wal"), id="a-store-journal"),
        pytest.param(member("agents/bob/config/x"), id="an-export"),
        pytest.param(member("agents/bob/etc/passwd"), id="generated-file"),
        pytest.param(member("agents/Bob!", tarfile.DIRTYPE), id="no-agent-name"),
        pytest.param(member("agents/.retired/../x", tarfile.DIRTYPE), id="above-retired"),
        pytest.param(member("agents/carol/state/x"), id="in-no-directory"),
        pytest.param(member("agents/carol"), id="an-agent-that-is-a-file"),
        pytest.param(member("agents/carol", tarfile.SYMTYPE, "/etc"), id="an-agent-that-is-a-link"),
        pytest.param(member(f"{STATE}x", tarfile.SYMTYPE, "/etc"), id="a-link-beside-state"),
        pytest.param(member("repos/x.git", tarfile.SYMTYPE, "/etc"), id="a-link-in-repos"),
        pytest.param(member("meta/x", tarfile.SYMTYPE, "/etc"), id="a-link-in-meta"),
        pytest.param(member("meta", tarfile.SYMTYPE, "/etc"), id="a-link-at-the-top"),
        pytest.param(member(f"{STATE}/x", tarfile.LNKTYPE, "hive.db"), id="a-hard-link"),
        pytest.param(member(f"{STATE}/x", tarfile.CHRTYPE, devmajor=1), id="a-device"),
        pytest.param(member(f"{STATE}/x", tarfile.FIFOTYPE), id="a-fifo"),
        pytest.param(member(STATE, tarfile.DIRTYPE), id="a-directory-twice"),
        pytest.param(member("repos/.hive"), id="a-file-twice"),
        pytest.param(member("hive.db/x"), id="below-a-file"),
        pytest.param(member("/".join([STATE, *["d"] * 300])), id="too-deep"),
    ],
)
def test_members_that_no_backup_holds_are_refused(shared: SmallHive, odd: tarfile.TarInfo) -> None:
    file = sealed(shared.root / "odd.tar", [*copied(shared.back_up()), (odd, b"")], _manifest(shared))
    assert isinstance(_refused(shared, file), InvalidRequest)
    assert not (shared.root / "x").exists()


def test_nothing_is_written_through_a_link_of_the_archive(shared: SmallHive, root_dir: Path) -> None:
    aim = root_dir / "aim"
    aim.mkdir()
    tricks = [
        (member(f"{STATE}/door", tarfile.SYMTYPE, str(aim)), b""),
        (member(f"{STATE}/door/x"), b"written outside"),
    ]
    file = sealed(shared.root / "odd.tar", [*copied(shared.back_up()), *tricks], _manifest(shared))
    assert "lies in no directory" in _refused(shared, file).message
    assert os.listdir(aim) == []


def test_a_link_and_a_file_of_one_name_are_refused(shared: SmallHive) -> None:
    tricks = [(member(f"{STATE}/x", tarfile.SYMTYPE, "/etc/passwd"), b""), (member(f"{STATE}/x"), b"y")]
    file = sealed(shared.root / "odd.tar", [*copied(shared.back_up()), *tricks], _manifest(shared))
    assert "is in it twice" in _refused(shared, file).message


def test_a_store_that_is_no_database_is_refused(shared: SmallHive) -> None:
    file = sealed(shared.root / "odd.tar", [(member("hive.db"), b"x" * 9000)], _manifest(shared))
    assert "cannot open the store" in _refused(shared, file).message


def test_a_full_disk_leaves_nothing_behind(small: SmallHive) -> None:
    (small.paths.state / "big").write_bytes(os.urandom(3 << 20))
    file, here = small.back_up(), small.elsewhere()
    mounts.mount_tmpfs(here.data, label="hive-test-disk", size_bytes=2 << 20, mode=0o711)
    with pytest.raises(HiveError, match="No space left on device") as caught:
        small.restored(file, here)
    assert caught.value.hint == "free some disk space"
    assert os.listdir(here.data) == []
    assert os.statvfs(here.data).f_bavail == os.statvfs(here.data).f_blocks


def test_a_data_directory_may_be_a_mount(small: SmallHive) -> None:
    file, here = small.back_up(), small.elsewhere()
    mounts.mount_tmpfs(here.data, label="hive-test-disk", size_bytes=16 << 20, mode=0o711)
    assert small.restored(file, here).agents == 1


def test_no_daemon_starts_where_a_restore_was_interrupted_and_the_next_restore_begins_anew(
    small: SmallHive,
) -> None:
    file, here = small.back_up(), small.elsewhere()
    refuse_half_restored(here.data)
    # As it is between two of the last renames.
    (here.data / ".restoring").mkdir()
    (here.data / ".restoring" / "hive.db").write_bytes(b"not yet in its place")
    (here.data / "repos").mkdir()
    with pytest.raises(Conflict, match="a restore was interrupted"):
        refuse_half_restored(here.data)
    small.restored(file, here)
    refuse_half_restored(here.data)
    # And right after the last one.
    (here.data / ".restoring").mkdir()
    refuse_half_restored(here.data)
    assert not (here.data / ".restoring").exists()


def test_a_full_disk_refuses_a_backup_and_keeps_no_copy(small: SmallHive) -> None:
    small.store.set_fact("big", bytes(4 << 20))
    disk = small.root / "disk"
    disk.mkdir()
    mounts.mount_tmpfs(disk, label="hive-test-disk", size_bytes=1 << 20, mode=0o755)
    backup = Backup(replace(small.origin, data=disk), small.store, Clock())
    with pytest.raises(HiveError, match="cannot copy the store"):
        next(backup.pieces(with_state=False))
    assert os.listdir(disk) == []
