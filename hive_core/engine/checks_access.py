"""Checks of who may touch what: directories, sockets, settings, accounts.

Called by `engine.doctor`; pure, over owners and modes as they are.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hive_core.adapters.files import kind_of
from hive_core.adapters.host_facts import Account, Entry
from hive_core.engine.checks import Check, CheckName, fail, ok

ENGINE_GROUP = "docker"
_ADMIN_MODE = 0o660
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Wanted:
    """What has to be at a path. `is_required` False: it may also not be there yet."""

    path: Path
    mode: int
    uid: int = 0
    gid: int = 0
    is_directory: bool = True
    is_required: bool = True


def directories(pairs: Sequence[tuple[Wanted, Entry | None]]) -> Check:
    """Judge owners and modes of the hive's own directories and files."""
    name = CheckName.DIRECTORIES
    faults = [fault for wanted, found in pairs for fault in _faults(wanted, found)]
    if faults:
        more = f", and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        hint = "find out who changed it, then restart hived, which puts in order what it safely can"
        return fail(name, "; ".join(faults[:_SHOWN]) + more, hint)
    return ok(name, f"{len(pairs)} directories and files have the owners and modes they need")


def _faults(wanted: Wanted, found: Entry | None) -> Iterator[str]:
    if found is None:
        if wanted.is_required:
            yield f"{wanted.path} is missing"
        return
    kind = stat.S_IFDIR if wanted.is_directory else stat.S_IFREG
    if stat.S_IFMT(found.mode) != kind:
        yield f"{wanted.path} is {kind_of(found.mode)}"
        return
    if (found.uid, found.gid) != (wanted.uid, wanted.gid):
        yield f"{wanted.path} belongs to {found.uid}:{found.gid} instead of {wanted.uid}:{wanted.gid}"
    if stat.S_IMODE(found.mode) != wanted.mode:
        yield f"{wanted.path} has mode {stat.S_IMODE(found.mode):04o} instead of {wanted.mode:04o}"


def admin_socket(path: Path, found: Entry | None, gid: int) -> Check:
    """Judge who can connect to the admin socket."""
    name, hint = CheckName.ADMIN_SOCKET, "restart hived"
    if found is None:
        return fail(name, f"{path} is missing: hivectl cannot reach hived by it", hint)
    if not stat.S_ISSOCK(found.mode):
        return fail(name, f"{path} is {kind_of(found.mode)}", f"move it away and {hint}")
    if (found.uid, found.gid) != (0, gid):
        return fail(name, f"{path} belongs to {found.uid}:{found.gid} instead of 0:{gid}", hint)
    mode = stat.S_IMODE(found.mode)
    if mode != _ADMIN_MODE:
        return fail(name, f"{path} has mode {mode:04o} instead of {_ADMIN_MODE:04o}", hint)
    return ok(name, f"{path} is root's and the operator group's alone (mode 0660)")


def settings_file(path: Path, found: Entry | None) -> Check:
    """Judge who can write the settings, whose author is as good as root."""
    name = CheckName.SETTINGS_FILE
    if found is None:
        return ok(name, f"there is no {path}: every setting has its default")
    if not stat.S_ISREG(found.mode):
        return fail(name, f"{path} is {kind_of(found.mode)}", "put a regular file of root's there")
    if found.uid != 0:
        return fail(name, f"{path} belongs to uid {found.uid}", f"chown root {path}")
    if found.mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(found.mode)
        return fail(name, f"{path} can be written by others (mode {mode:04o})", f"chmod go-w {path}")
    return ok(name, f"{path} can be written by root alone")


def operators(group: str, members: Sequence[str]) -> Check:
    """Say who may drive the hive; that is for the operator to judge."""
    shown = ", ".join(members) if members else "nobody"
    return ok(CheckName.OPERATORS, f"beside root, {shown} may drive this hive (group {group})")


def git_account(account: Account, operator_group: str, repos: Path, *, can_enter: bool) -> Check:
    """Judge the account that git runs as: it reads what agents wrote, so it may have no power."""
    name = CheckName.GIT_ACCOUNT
    if account.uid == 0 or account.gid == 0:
        text = f"{account.name} is root, and git would run as it on what agents wrote"
        return fail(name, text, "name a user that can do nothing else in git.user")
    powerful = sorted(account.groups & {operator_group, ENGINE_GROUP, "root", "sudo", "wheel"})
    if powerful:
        text = f"{account.name} is in the group {', '.join(powerful)}: a hole in git would reach the host"
        return fail(name, text, f"gpasswd --delete {account.name} {powerful[0]}")
    if not can_enter:
        text = f"{account.name} cannot enter {repos}: no config can be read"
        return fail(name, text, f"every directory above {repos} needs the x bit for others")
    return ok(name, f"{account.name} (uid {account.uid}) can read {repos} and nothing special")


def ancestors(paths: Sequence[Path]) -> Check:
    """Say that only root can replace the hive's directories; the look has raised otherwise."""
    return ok(CheckName.ANCESTORS, f"only root can replace {' or '.join(str(path) for path in paths)}")


def store(path: Path, agents: int) -> Check:
    """Say that the store's file is sound; opening it has raised otherwise."""
    return ok(CheckName.STORE, f"{path} passes its check and knows {agents} agents")
