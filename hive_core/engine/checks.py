"""The checks of `doctor` by name, and the form of their results.

Used by `engine.doctor` and by the `checks_*` modules, each of which judges one kind of fact.
`docs/reference/doctor.md` lists the names in this order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckName(StrEnum):
    """Every check, in the order it is shown."""

    ENGINE = "engine"
    RUNTIME = "runtime"
    SECCOMP = "seccomp"
    USER_NAMESPACES = "user namespaces"
    ROOTLESS = "rootless"
    LIVE_RESTORE = "live-restore"
    LIMITS = "limits"
    STORAGE_DRIVER = "storage driver"
    CLOCK = "clock"
    IMAGE = "image"
    CONTAINERS = "containers"
    MOUNT_NAMESPACE = "mount namespace"
    GRANTS = "grants"
    SAFE_PATHS = "safe paths"
    LIVE_GRANTS = "live grants"
    FILE_SYSTEM = "file system"
    DISK = "disk"
    STORE = "store"
    UIDS = "uids"
    ANCESTORS = "ancestors"
    DIRECTORIES = "directories"
    ADMIN_SOCKET = "admin socket"
    SETTINGS_FILE = "settings file"
    OPERATORS = "operators"
    GIT_ACCOUNT = "git account"
    GIT = "git"
    INOTIFY = "inotify"
    FILE_WATCH = "file watch"


class Finding(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was looked at, how it is, and the way out."""

    name: CheckName
    status: Finding
    text: str
    hint: str = ""


def ok(name: CheckName, text: str) -> Check:
    """Return a check that found what hive needs."""
    return Check(name, Finding.OK, text)


def warn(name: CheckName, text: str, hint: str) -> Check:
    """Return a check that found less than hive could use; every promise is kept."""
    return Check(name, Finding.WARN, text, hint)


def fail(name: CheckName, text: str, hint: str) -> Check:
    """Return a check that found a promise broken."""
    return Check(name, Finding.FAIL, text, hint)
