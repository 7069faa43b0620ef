"""Checks of the host below the hive: kernel, mounts, disk, uids, git.

Called by `engine.doctor`; pure, over facts that adapters found by looking or by doing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hive_core.adapters.host_facts import InotifyUse, Space
from hive_core.adapters.probes import Namespaces
from hive_core.domain.names import AgentName
from hive_core.engine.checks import Check, CheckName, fail, ok, warn
from hive_core.engine.versions import GIT_SUBMODULES

LOW_BYTES = 2 * 1024**3
LOW_INODES = 10_000
_INOTIFY_FULL = 0.9
_GOOD_FILE_SYSTEMS = frozenset({"ext4", "xfs", "btrfs", "ext3", "f2fs"})
_REMOTE_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "glusterfs"})


def mount_namespace(found: Namespaces) -> Check:
    """Judge whether the engine sees the mounts that hived makes."""
    name, engine = CheckName.MOUNT_NAMESPACE, f"{found.engine_program} (pid {found.engine_pid})"
    if found.engines is None:
        text = f"cannot tell the mount namespace of the engine's process, {engine}"
        return warn(name, text, "run the engine on this host, outside any container")
    if found.engines != found.ours:
        return fail(
            name,
            f"hived and {engine} have different mount namespaces: live grants would not reach containers",
            "take PrivateTmp=, ProtectSystem=, ReadOnlyPaths= and the like out of both units",
        )
    return ok(name, f"hived and {engine} share one mount namespace")


def safe_paths(refusal: str) -> Check:
    """Judge whether paths can be opened without following links."""
    name = CheckName.SAFE_PATHS
    if refusal:
        return fail(
            name,
            f"cannot open paths safely: {refusal}",
            "use Linux 5.6 or later, without a filter on openat2",
        )
    return ok(name, "the kernel opens paths without following links (openat2)")


def live_grants(refusal: str, directory: Path) -> Check:
    """Judge whether one agent's files can be shown to another as its own."""
    name = CheckName.LIVE_GRANTS
    if refusal:
        return warn(
            name,
            f"live grants are impossible: no id-mapped mount of {directory} ({refusal})",
            "use Linux 5.12 or later, and ext4, xfs or btrfs for paths.data",
        )
    return ok(name, f"live grants are possible: an id-mapped mount of {directory} could be made")


def file_system(kind: str, directory: Path) -> Check:
    """Judge what the hive's durable things are kept on."""
    name, text = CheckName.FILE_SYSTEM, f"{directory} is on {kind}"
    hint = "move paths.data to a local ext4, xfs or btrfs"
    if kind in _GOOD_FILE_SYSTEMS:
        return ok(name, text)
    if kind in _REMOTE_FILE_SYSTEMS or kind.startswith("fuse"):
        return fail(name, f"{text}: the store's locks and syncs cannot be trusted there", hint)
    if kind in ("tmpfs", "ramfs"):
        return warn(name, f"{text}: everything is lost at a reboot", hint)
    return warn(name, f"{text}, with which hive was not tried", hint)


def disk(spaces: Sequence[Space]) -> Check:
    """Judge what is free where the hive and the engine write."""
    name = CheckName.DISK
    text = "; ".join(_space(one) for one in spaces)
    low = [one for one in spaces if one.free_bytes < LOW_BYTES or 0 <= _inodes(one) < LOW_INODES]
    if low:
        return warn(name, text, f"free some space: {', '.join(str(one.path) for one in low)}")
    return ok(name, text)


def _inodes(found: Space) -> int:
    return -1 if found.inodes is None else found.inodes


def _space(found: Space) -> str:
    inodes = "" if found.inodes is None else f" and {found.inodes} inodes"
    return f"{found.free_bytes // 1024**2} MiB{inodes} free below {found.path}"


def uids(
    start: int, count: int, owners: Mapping[AgentName, int], *, is_wanted: bool, is_reserved: bool
) -> Check:
    """Judge the uid range, which is known to be nobody else's, and the agents' uids.

    `owners` are the agents and their uids; `is_wanted` is the setting to reserve the range.
    """
    name, shown = CheckName.UIDS, f"uids {start}-{start + count - 1}"
    roots = [agent for agent, uid in owners.items() if uid == 0]
    if roots:
        return fail(name, f"{', '.join(roots)} would run as root", f"hivectl rm {' '.join(roots)}")
    outside = [agent for agent, uid in owners.items() if not start <= uid < start + count]
    if outside:
        text = f"agents outside {shown}, where others may get their ids: {', '.join(outside)}"
        return warn(name, text, "set uids.start and uids.count so that they include them")
    if not is_wanted:
        return warn(name, f"{shown} are free but not reserved", "set uids.reserve = true")
    if not is_reserved:
        text = f"the line for {shown} is gone from /etc/subuid or /etc/subgid"
        return fail(name, text, "restart hived: it writes the line again")
    return ok(name, f"{shown} are reserved in /etc/subuid and /etc/subgid, and nobody else's")


def git(version: str, mended: frozenset[str]) -> Check:
    """Judge the git that config repos are read with; `mended` are holes its package says are fixed."""
    name, hole = CheckName.GIT, GIT_SUBMODULES.ids[0]
    if GIT_SUBMODULES.is_in(version) is None:
        return warn(name, f"git calls itself {version[:40]!a}, which is no version", "look: git --version")
    if GIT_SUBMODULES.is_in(version) and hole not in mended:
        text = f"git {version} has {hole} (submodules run code); hive never checks submodules out"
        return warn(name, text, "update git before you clone what agents wrote")
    return ok(name, f"git {version} has no hole that hive knows of")


def inotify(use: InotifyUse) -> Check:
    """Judge whether watching directories can go on."""
    name = CheckName.INOTIFY
    text = (
        f"root uses {use.instances} of {use.max_instances} inotify instances "
        f"and {use.watches} of {use.max_watches} watches"
    )
    if use.instances >= _INOTIFY_FULL * use.max_instances:
        return warn(name, text, f"sysctl fs.inotify.max_user_instances={use.max_instances * 4}")
    if use.watches >= _INOTIFY_FULL * use.max_watches:
        return warn(name, text, f"sysctl fs.inotify.max_user_watches={use.max_watches * 4}")
    return ok(name, text)


def file_watch(problem: str) -> Check:
    """Judge whether changes of files wake a pass."""
    name = CheckName.FILE_WATCH
    if problem:
        return warn(name, problem, "passes by the timer see the changes too, later")
    return ok(name, "changes to the meta repo and the config repos wake a pass")
