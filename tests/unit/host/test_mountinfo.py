from __future__ import annotations

import os
from pathlib import Path

import pytest

from hive_core.adapters import mounts
from hive_core.adapters.mountinfo import Mount, parse_mounts, read_mounts

LINES = rb"""21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 21 0:25 / /run rw,nosuid,nodev shared:5 - tmpfs tmpfs rw,size=1024k,mode=755
41 30 0:25 /hive/grants /run/hive/grants rw shared:77 master:5 propagate_from:2 - tmpfs tmpfs rw
42 41 8:1 /a\040b\011c\134d\012 /run/hive/grants/r\040s ro,nosuid - ext4 /dev/sda1 rw
43 41 259:300 /x//deleted /run/hive/grants/bob rw unbindable - btrfs /dev/nvme0n1p1 rw
44 43 0:40 / /run/hive/grants/bob rw - tmpfs on\040top rw
45 21 0:41 / /mnt rw master:9 - fuse.sshfs - rw
46 21 0:42 / /odd\377name rw - tmpfs  rw
"""


def _by_id(mount_id: int) -> Mount:
    found = parse_mounts(LINES).by_id(mount_id)
    assert found is not None
    return found


def test_optional_fields_are_any_number_in_any_combination() -> None:
    ties = {mount.mount_id: (mount.shared, mount.master) for mount in parse_mounts(LINES).mounts}
    assert ties == {
        21: (1, None),
        30: (5, None),
        41: (77, 5),
        42: (None, None),
        43: (None, None),
        44: (None, None),
        45: (None, 9),
        46: (None, None),
    }


def test_escapes_are_octal_bytes() -> None:
    assert _by_id(42).root == "/a b\tc\\d\n"
    assert _by_id(42).target == Path("/run/hive/grants/r s")
    assert _by_id(44).source == "on top"
    assert os.fsencode(_by_id(46).target) == b"/odd\xffname"


def test_fields_land_where_they_belong() -> None:
    assert _by_id(43) == Mount(
        mount_id=43,
        parent_id=41,
        dev=os.makedev(259, 300),
        root="/x//deleted",
        target=Path("/run/hive/grants/bob"),
        options=frozenset({"rw"}),
        shared=None,
        master=None,
        fs_type="btrfs",
        source="/dev/nvme0n1p1",
        super_options=frozenset({"rw"}),
    )
    assert _by_id(45).source == "-"
    assert _by_id(46).source == ""


def test_find_returns_the_top_of_a_stack() -> None:
    table = parse_mounts(LINES)
    top = table.find(Path("/run/hive/grants/bob"))
    assert top is not None
    assert top.mount_id == 44
    reversed_lines = b"\n".join(reversed(LINES.splitlines()))
    assert parse_mounts(reversed_lines).find(Path("/run/hive/grants/bob")) == top
    assert table.find(Path("/run/hive")) is None


def test_below_is_strict_by_component_and_deepest_first() -> None:
    table = parse_mounts(LINES)
    assert [mount.mount_id for mount in table.below(Path("/run"))] == [44, 43, 42, 41]
    assert table.below(Path("/run/hive/grants/bob")) == ()
    assert table.below(Path("/run/hive/gr")) == ()


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"1 2 8:1 / / rw shared:1 ext4 /dev/sda1 rw",
        b"x 2 8:1 / / rw - ext4 /dev/sda1 rw",
        b"1 2 8 / / rw - ext4 /dev/sda1 rw",
        b"1 2 8:1 / / rw shared:x - ext4 /dev/sda1 rw",
        b"1 2 8:1 / / rw - ext4",
    ],
)
def test_what_is_no_mountinfo_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a mountinfo line"):
        parse_mounts(line)


def test_a_real_mount_is_seen_as_the_kernel_has_it(root_dir: Path) -> None:
    target = root_dir / "with space"
    target.mkdir()
    assert read_mounts().find(target) is None
    mounts.mount_tmpfs(target, label="hive-test-label", size_bytes=64 * 1024, mode=0o700)
    found = read_mounts().find(target)
    assert found is not None
    assert (found.fs_type, found.source, found.root) == ("tmpfs", "hive-test-label", "/")
    assert found.dev == target.stat().st_dev
    assert {"noexec", "nosuid", "nodev"} <= found.options
    assert "size=64k" in found.super_options
    mounts.make_private(target)
    assert _shared(target) is None
    mounts.make_shared(target)
    assert _shared(target) is not None
    with (
        target.joinpath("held").open("wb"),
        pytest.raises(OSError, match="cannot unmount: Device or resource busy"),
    ):
        mounts.unmount(target)
    mounts.unmount(target)
    assert read_mounts().find(target) is None
    with pytest.raises(OSError, match="cannot unmount: Invalid argument"):
        mounts.unmount(target)
    with pytest.raises(OSError, match="cannot mount: No such file or directory") as failed:
        mounts.bind(root_dir / "absent", target)
    assert failed.value.filename == str(target)


def _shared(target: Path) -> int | None:
    found = read_mounts().find(target)
    assert found is not None
    return found.shared
