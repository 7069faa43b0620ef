"""The kernel's own list of what is mounted where, parsed.

Read by everything that mounts, unmounts, moves or deletes below the hive's roots. It exists because the list
is the only truth about mounts: a path alone does not tell whether a directory is a mount, whether mounts
made below it reach containers, or what a delete would walk into.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc/self/mountinfo")
_ESCAPE = re.compile(rb"\\([0-7]{3})")
_SEPARATOR = b"-"


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount. `dev` compares with `st_dev`; `root` is the mounted part of its filesystem.

    `shared` and `master` are peer group ids: mounts made below a shared one appear in all its peers and in
    the slaves that name its group as their master. None where the mount has no such tie.
    """

    mount_id: int
    parent_id: int
    dev: int
    root: str
    target: Path
    options: frozenset[str]
    shared: int | None
    master: int | None
    fs_type: str
    source: str
    super_options: frozenset[str]


@dataclass(frozen=True, slots=True)
class MountTable:
    """Everything mounted in this process's mount namespace at one moment."""

    mounts: tuple[Mount, ...]

    def find(self, target: Path) -> Mount | None:
        """Return the mount at exactly this path, the topmost of a stack; None when it is no mount point."""
        stack = [mount for mount in self.mounts if mount.target == target]
        covered = {mount.parent_id for mount in stack if mount.parent_id != mount.mount_id}
        return next((mount for mount in stack if mount.mount_id not in covered), None)

    def by_id(self, mount_id: int) -> Mount | None:
        """Return the mount with this id; None when it is not in this namespace."""
        return next((mount for mount in self.mounts if mount.mount_id == mount_id), None)

    def below(self, path: Path) -> tuple[Mount, ...]:
        """Return the mounts strictly below a path, deepest first: an order in which they can be unmounted."""
        found = [mount for mount in self.mounts if path in mount.target.parents]
        return tuple(sorted(found, key=lambda mount: (-len(mount.target.parts), -mount.mount_id)))


def read_mounts(source: Path = PROC) -> MountTable:
    """Return the mount table as it is now. Raises OSError where /proc is not mounted."""
    return parse_mounts(source.read_bytes())


def parse_mounts(content: bytes) -> MountTable:
    """Parse the text of a mountinfo file; raises ValueError for a line that is none."""
    return MountTable(tuple(_parse_line(line) for line in content.splitlines() if line))


def _parse_line(line: bytes) -> Mount:
    fields = line.split(b" ")
    # Any number of optional fields stands between the sixth field and a lone dash.
    try:
        end = fields.index(_SEPARATOR, 6)
        fs_type, source, super_options = fields[end + 1 : end + 4]
        major, minor = fields[2].split(b":")
        optional = dict(field.partition(b":")[::2] for field in fields[6:end])
        return Mount(
            mount_id=int(fields[0]),
            parent_id=int(fields[1]),
            dev=os.makedev(int(major), int(minor)),
            root=_text(fields[3]),
            target=Path(_text(fields[4])),
            options=_options(fields[5]),
            shared=_group(optional.get(b"shared")),
            master=_group(optional.get(b"master")),
            fs_type=_text(fs_type),
            source=_text(source),
            super_options=_options(super_options),
        )
    except ValueError as fault:
        raise ValueError(f"not a mountinfo line: {line[:200]!a}") from fault


def _text(field: bytes) -> str:
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), field))


def _options(field: bytes) -> frozenset[str]:
    return frozenset(_text(part) for part in field.split(b","))


def _group(field: bytes | None) -> int | None:
    return None if field is None else int(field)
