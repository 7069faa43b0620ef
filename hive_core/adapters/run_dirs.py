"""The run directory: what containers see of the daemon while they run.

The daemon prepares it at start, before any container does; agents come and go in it later. Live data hangs
below `grants/`, so nothing here ever deletes recursively: it unmounts, checks the mount table, and removes
empty directories only.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hive_core.adapters import mounts
from hive_core.adapters.files import check_parent, make_dir
from hive_core.adapters.mountinfo import Mount, read_mounts
from hive_core.domain.errors import Conflict, HostUnsuitable
from hive_core.domain.names import AgentName

SOCKET_NAME = "hive.sock"
_SECRETS_BYTES = 16 * 1024 * 1024
_SECRETS_LABEL = "hive-secrets"


@dataclass(frozen=True, slots=True)
class RunPaths:
    """Where one agent's run directories are: the bind sources of its container."""

    sockets: Path
    grants: Path
    meta: Path
    secrets: Path

    @property
    def socket(self) -> Path:
        """The agent's own socket, in the directory that is mounted into its container."""
        return self.sockets / SOCKET_NAME


@dataclass(frozen=True, slots=True)
class GrantsState:
    """Whether the grants root is a mount of its own, and the peer group its containers are slaves of."""

    is_mounted: bool
    peer_group: int | None

    @property
    def is_shared(self) -> bool:
        """Whether a mount made below the grants root reaches running containers."""
        return self.peer_group is not None


class RunDirs:
    """The run directory of one hive, by default /run/hive."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.agents = root / "agents"
        self.grants = root / "grants"
        self.meta = self.grants / ".meta"
        self.secrets = root / "secrets"

    def paths(self, name: AgentName) -> RunPaths:
        """Return the directories of an agent, whether they exist or not."""
        return RunPaths(self.agents / name, self.grants / name, self.meta / name, self.secrets / name)

    def prepare(self) -> None:
        """Make the directories and the two mounts; safe to repeat while containers run.

        Raises UnsafePath for a directory that is not root's, HostUnsuitable when something else is mounted
        here or the kernel refuses a mount.
        """
        check_parent(self.root)
        make_dir(self.root, mode=0o755)
        for directory in (self.agents, self.grants, self.secrets):
            make_dir(directory, mode=0o700)
        try:
            self._prepare_grants()
            self._prepare_secrets()
        except OSError as fault:
            raise HostUnsuitable(
                f"cannot prepare {self.root}: {fault.filename}: {fault.strerror}",
                "hived needs the right to mount, and the host's own mount namespace",
            ) from fault
        make_dir(self.meta, mode=0o700)

    def _prepare_grants(self) -> None:
        found = read_mounts().find(self.grants)
        if found is None:
            # Never a second time: another bind on top would hide every leaf from the running containers.
            mounts.bind(self.grants, self.grants)
            found = read_mounts().find(self.grants)
        if found is None:
            raise HostUnsuitable(f"cannot prepare {self.grants}: its mount is not in the mount table")
        if found.shared is None:
            mounts.make_shared(self.grants)
        elif self._is_peer_of_parent(found):
            # A bind starts as a peer of the mount it lies in, where each leaf would then be attached twice.
            # No container can be its slave yet: this is undone before the first one is made.
            mounts.make_private(self.grants)
            mounts.make_shared(self.grants)

    def _is_peer_of_parent(self, mount: Mount) -> bool:
        table = read_mounts()
        parent = table.by_id(mount.parent_id)
        return parent is not None and parent.shared == mount.shared and not table.below(self.grants)

    def _prepare_secrets(self) -> None:
        found = read_mounts().find(self.secrets)
        if found is None:
            mounts.mount_tmpfs(self.secrets, label=_SECRETS_LABEL, size_bytes=_SECRETS_BYTES, mode=0o700)
        elif found.fs_type != "tmpfs":
            raise HostUnsuitable(
                f"cannot prepare {self.secrets}: a {found.fs_type} is mounted there", f"umount {self.secrets}"
            )

    def ensure_agent(self, name: AgentName, uid: int) -> RunPaths:
        """Make an agent's directories and return them; idempotent.

        All are root's: the agent reads its own through its container's mounts and can replace nothing.
        """
        paths = self.paths(name)
        for directory in (paths.sockets, paths.grants, paths.meta):
            make_dir(directory, mode=0o755)
        make_dir(paths.secrets, mode=0o750, gid=uid)
        return paths

    def drop_agent(self, name: AgentName) -> None:
        """Remove an agent's empty directories and its socket; what is gone already is fine.

        Raises Conflict while something is mounted there or a directory still has content.
        """
        paths = self.paths(name)
        directories = (paths.sockets, paths.meta, paths.grants, paths.secrets)
        self._refuse_mounts(name, directories)
        _unlink_socket(paths.socket)
        for directory in directories:
            try:
                with suppress(FileNotFoundError):
                    directory.rmdir()
            except OSError as fault:
                raise Conflict(
                    f"cannot remove the run directories of {name}: {directory}: {fault.strerror}",
                    f"look at what is in {directory}",
                ) from fault

    def _refuse_mounts(self, name: AgentName, directories: tuple[Path, ...]) -> None:
        table = read_mounts()
        for directory in directories:
            at = table.find(directory)
            held = table.below(directory) + ((at,) if at else ())
            if held:
                raise Conflict(
                    f"cannot remove the run directories of {name}: {held[0].target} is still mounted",
                    "its grants are revoked first",
                )

    def grants_state(self) -> GrantsState:
        """Return whether the grants root is what running containers need it to be."""
        found = read_mounts().find(self.grants)
        return GrantsState(found is not None, found.shared if found else None)

    def teardown(self) -> None:
        """Unmount what `prepare` mounted; for uninstalling, when no container of this hive is left.

        Remaking the grants root would never reach a container that still runs. Raises Conflict while
        anything is mounted below.
        """
        for target in (self.grants, self.secrets):
            held = read_mounts().below(target)
            if held:
                raise Conflict(f"cannot unmount {target}: {held[0].target} is still mounted below it")
        for target in (self.grants, self.secrets):
            while read_mounts().find(target) is not None:
                try:
                    mounts.unmount(target)
                except OSError as fault:
                    raise Conflict(f"cannot unmount {target}: {os.strerror(fault.errno or 0)}") from fault


def _unlink_socket(path: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
