"""Facts of the host that `doctor` judges, read and nothing more.

Called by `engine.doctor`. It exists so that the judgement is a calculation over plain values: what is read
here could be anything, and each fact is bounded in time and size. What is found out by doing the thing is in
`probes`.
"""

from __future__ import annotations

import argparse
import grp
import os
import pwd
import re
import subprocess
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hive_core.adapters.files import read_regular
from hive_core.adapters.mountinfo import read_mounts
from hive_core.domain.errors import HostUnsuitable, UnsafePath

PROC = Path("/proc")
PACKAGE_DOCS = Path("/usr/share/doc")
_CALL_LIMIT_S = 2.0
_SCAN_LIMIT_S = 1.0
_CHANGELOG_MAX_BYTES = 1024 * 1024
_CHANGELOG_TEXT_MAX_BYTES = 4 * 1024 * 1024
_GZIP = 16 + zlib.MAX_WBITS
_FIRST_ENTRY = re.compile(rb"\S+ \((?:\d+:)?([^)]+)\)")
_INOTIFY = "anon_inode:inotify"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or directory as lstat tells it: `mode` with the type bits."""

    path: Path
    mode: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Space:
    """What is free where a path lies; `inodes` is None on a file system that has no fixed number."""

    path: Path
    free_bytes: int
    inodes: int | None


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the host and the names of all groups it is in."""

    name: str
    uid: int
    gid: int
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class InotifyUse:
    """What root uses of the kernel's inotify limits, and the limits."""

    instances: int
    max_instances: int
    watches: int
    max_watches: int


def entry(path: Path) -> Entry | None:
    """Return what is at a path, following no link; None when nothing is."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return Entry(path, found.st_mode, found.st_uid, found.st_gid)


def space(path: Path) -> Space:
    """Return what is free for users other than root where a path lies."""
    found = os.statvfs(path)
    return Space(path, found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


def file_system(path: Path) -> str:
    """Return the type of the file system a path lies on."""
    table = read_mounts()
    for place in (path, *path.parents):
        mount = table.find(place)
        if mount is not None:
            return mount.fs_type
    raise HostUnsuitable(f"cannot tell the file system of {path}: no mount in the mount table holds it")


def account(name: str) -> Account:
    """Return a user's ids and groups; HostUnsuitable when there is none."""
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise HostUnsuitable(f"there is no user '{name}'", f"useradd --system {name}") from None
    gids = os.getgrouplist(user.pw_name, user.pw_gid)
    return Account(name, user.pw_uid, user.pw_gid, frozenset(_group_name(gid) for gid in gids))


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def group_id(name: str) -> int:
    """Return a group's id; HostUnsuitable when there is none."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise HostUnsuitable(f"there is no group '{name}'", f"groupadd --system {name}") from None


def members(group: str) -> tuple[str, ...]:
    """Return who is in a group, as listed member or by primary group."""
    gid = group_id(group)
    primary = {user.pw_name for user in pwd.getpwall() if user.pw_gid == gid}
    return tuple(sorted(primary | set(grp.getgrnam(group).gr_mem)))


def settings_file(arguments: Sequence[str], default: Path) -> Path:
    """Return the file this daemon's settings come from, by its own command line."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--settings", type=Path)
    chosen, _rest = parser.parse_known_args(list(arguments))
    path = chosen.settings or default
    return Path(os.path.abspath(path))


def git_version() -> str:
    """Return the version of the git that config repos are read with: "2.39.5"."""
    try:
        done = subprocess.run(
            ["git", "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CALL_LIMIT_S,
            check=True,
            cwd="/",
        )
    except (OSError, subprocess.SubprocessError) as fault:
        raise HostUnsuitable(f"cannot run git: {fault}", "install git") from fault
    return done.stdout.decode(errors="replace").removeprefix("git version ").strip()


def backported(package: str, version: str, cves: Iterable[str], docs: Path = PACKAGE_DOCS) -> frozenset[str]:
    """Return those CVEs that the installed package's own changelog says are fixed in it.

    A distribution mends an old version and keeps its number. The changelog counts only when its newest entry
    is the `version` that runs; without one nothing is known, so nothing is returned.
    """
    text = _changelog(docs / package / "changelog.Debian.gz")
    newest = _FIRST_ENTRY.match(text)
    if newest is None or not version or not newest[1].startswith(version.encode()):
        return frozenset()
    return frozenset(cve for cve in cves if re.search(rf"\b{re.escape(cve)}\b".encode(), text))


def _changelog(path: Path) -> bytes:
    try:
        packed = read_regular(path, _CHANGELOG_MAX_BYTES)
        return zlib.decompressobj(_GZIP).decompress(packed, _CHANGELOG_TEXT_MAX_BYTES)
    except (OSError, UnsafePath, zlib.error):
        return b""


def inotify_use(proc: Path = PROC) -> InotifyUse:
    """Return root's use of inotify; counts what could be seen within a second."""
    limits = proc / "sys" / "fs" / "inotify"
    instances = watches = 0
    for descriptor in _inotify_descriptors(proc, time.monotonic() + _SCAN_LIMIT_S):
        instances += 1
        with suppress(OSError):
            watches += descriptor.read_bytes().count(b"inotify wd:")
    return InotifyUse(
        instances,
        int((limits / "max_user_instances").read_text()),
        watches,
        int((limits / "max_user_watches").read_text()),
    )


def _inotify_descriptors(proc: Path, deadline: float) -> Iterator[Path]:
    """Yield the fdinfo file of every inotify instance of root's: the limits count by user."""
    for process in proc.iterdir():
        if time.monotonic() > deadline:
            return
        # A process may end at any moment of the walk: what is gone uses nothing.
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if process.name.isdigit() and process.stat().st_uid == 0:
                yield from _inotify_of(process)


def _inotify_of(process: Path) -> Iterator[Path]:
    for fd in os.listdir(process / "fd"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if os.readlink(process / "fd" / fd) == _INOTIFY:
                yield process / "fdinfo" / fd
