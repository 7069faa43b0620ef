"""Checks of the container engine, judged from what it says of itself.

Called by `engine.doctor`; pure, over the engine's own facts and what the host's packages say is mended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from hive_core.domain.observed import EngineVersion
from hive_core.engine.checks import Check, CheckName, fail, ok, warn
from hive_core.engine.versions import ENGINE_ARCHIVE, RUNC_LEAKED_FD, RUNC_REDIRECTS

_DAEMON_JSON = "/etc/docker/daemon.json"
_CLOCK_TOLERANCE_S = 2.0
_KNOWN_DRIVERS = frozenset({"overlay2", "overlayfs", "btrfs", "zfs", "fuse-overlayfs"})


@dataclass(frozen=True, slots=True)
class Clocks:
    """The engine's clock between two looks at ours, and what else tells the time.

    `waited_s` is the monotonic time between the two looks; `newest` the latest time in hive's own records.
    """

    before: datetime
    engine: datetime | None
    after: datetime
    waited_s: float
    booted_at: datetime
    newest: datetime | None


def engine(version: EngineVersion, our_kernel: str) -> Check:
    """Judge the engine itself: that it answers, that it is on this host, and its age."""
    name, shown = CheckName.ENGINE, f"engine {version.engine}, API {version.api}"
    if version.kernel not in ("", our_kernel):
        text = f"{shown} runs on another host: its kernel is {version.kernel}, this one's {our_kernel}"
        return fail(name, text, "set engine.socket to the socket of an engine on this host")
    if ENGINE_ARCHIVE.is_in(version.engine) is False:
        return ok(name, shown)
    return warn(
        name,
        f"{shown}: its copy and archive calls have known holes before 29.7.0; hive never uses them",
        "do not use docker cp on agents' containers, or update the engine",
    )


def runtime(version: EngineVersion, mended: frozenset[str]) -> Check:
    """Judge the program that makes containers; `mended` are holes its package says are fixed in it."""
    name = CheckName.RUNTIME
    if version.default_runtime not in ("runc", ""):
        text = f"the engine's default runtime is {version.default_runtime}, whose holes hive does not know"
        return warn(name, text, f'set "default-runtime": "runc" in {_DAEMON_JSON}, or see to its updates')
    shown = f"runc {version.runtime_build or version.runtime}"
    if RUNC_LEAKED_FD.is_in(version.runtime) is None:
        return warn(name, "the engine does not say which runc it runs", "look: runc --version")
    left = {
        hole: [one for one in hole.ids if one not in mended]
        for hole in (RUNC_LEAKED_FD, RUNC_REDIRECTS)
        if hole.is_in(version.runtime)
    }
    if left.get(RUNC_LEAKED_FD):
        text = f"{shown} has {RUNC_LEAKED_FD.ids[0]}: a container can take over the host"
        return fail(
            name, text, "update runc to 1.1.12 or later, or to a package whose changelog names the fix"
        )
    if left.get(RUNC_REDIRECTS):
        text = f"{shown} has {', '.join(left[RUNC_REDIRECTS])}: containers that share mounts may break out"
        return warn(name, text, "update runc to 1.2.8, 1.3.3, 1.4.0 or later")
    return ok(name, f"{shown} has no hole that hive knows of")


def seccomp(version: EngineVersion) -> Check:
    """Judge the system call filter: it is what keeps agents from making mount namespaces."""
    name, options = CheckName.SECCOMP, _options(version)
    hint = f'take "seccomp-profile" out of {_DAEMON_JSON} and restart the engine'
    if "seccomp" not in options:
        text = "the engine has no seccomp: agents could use every system call of the kernel"
        return fail(name, text, "use a kernel and an engine built with seccomp")
    profile = options["seccomp"]
    if profile == "unconfined":
        return fail(name, "the engine's seccomp profile is unconfined: it filters nothing", hint)
    if profile not in ("", "default", "builtin"):
        return warn(name, f"the engine's seccomp profile is {profile}, not its own: it may allow more", hint)
    return ok(name, "containers run under the engine's own seccomp profile")


def user_namespaces(version: EngineVersion) -> Check:
    """Judge whether a uid in a container is the same number on the host."""
    name = CheckName.USER_NAMESPACES
    if "userns" not in _options(version):
        return ok(name, "uids in containers are the host's: each agent's files are its own")
    text = "the engine remaps uids (userns-remap): agents would run as other uids than own their files"
    return fail(name, text, f'take "userns-remap" out of {_DAEMON_JSON} and restart the engine')


def rootless(version: EngineVersion) -> Check:
    """Judge whether the engine has the host's powers."""
    name = CheckName.ROOTLESS
    if "rootless" not in _options(version):
        return ok(name, "the engine runs as root, as hive needs it")
    text = "the engine is rootless: it cannot run agents as their uids, nor see hive's mounts"
    return fail(name, text, "set engine.socket to the socket of the system's engine")


def live_restore(version: EngineVersion) -> Check:
    """Judge what a restart of the engine does to agents."""
    name = CheckName.LIVE_RESTORE
    if version.live_restore:
        return ok(name, "agents run on while the engine is restarted")
    text = "a restart of the engine ends every container; hive starts the agents again"
    return warn(name, text, f'set "live-restore": true in {_DAEMON_JSON} to keep them running')


def limits(version: EngineVersion) -> Check:
    """Judge whether the limits in each spec are enforced."""
    name, group = CheckName.LIMITS, f"cgroup v{version.cgroup_version or '?'}"
    if not version.missing_limits:
        return ok(name, f"memory, swap, processes and cpus are limited ({group})")
    text = f"the engine cannot limit {', '.join(version.missing_limits)} here ({group})"
    return fail(
        name, text, "enable the controller: on cgroup v1 boot with cgroup_enable=memory swapaccount=1"
    )


def storage_driver(version: EngineVersion) -> Check:
    """Judge how containers' root file systems are made."""
    name, driver = CheckName.STORAGE_DRIVER, version.storage_driver or "unknown"
    if driver in _KNOWN_DRIVERS:
        return ok(name, f"storage driver {driver}")
    reason = "copies the whole image for every agent" if driver == "vfs" else "is not one hive was tried with"
    return warn(
        name, f"storage driver {driver} {reason}", f'set "storage-driver": "overlay2" in {_DAEMON_JSON}'
    )


def clock(clocks: Clocks) -> Check:
    """Judge whether times can be compared: the engine's with ours, and now with what was recorded."""
    name, hint = CheckName.CLOCK, "set the clock, and keep it by NTP"
    if clocks.engine is None:
        return warn(name, "the engine does not tell its time", "update the engine")
    apart_s = _distance_s(clocks)
    if apart_s > _CLOCK_TOLERANCE_S:
        text = f"the engine's clock and hived's are {apart_s:.0f} s apart: exits would be judged wrongly"
        return fail(name, text, "run the engine on this host; " + hint)
    went_s = (clocks.after - clocks.before).total_seconds()
    if abs(went_s - clocks.waited_s) > _CLOCK_TOLERANCE_S:
        text = f"the clock was moved by {went_s - clocks.waited_s:.0f} s just now"
        return warn(name, text, hint)
    allowed = timedelta(seconds=_CLOCK_TOLERANCE_S)
    for what, at in (("this host booted", clocks.booted_at), ("hive's newest record", clocks.newest)):
        if at is not None and clocks.after + allowed < at:
            return warn(name, f"the clock shows a time before {what} ({at:%Y-%m-%d %H:%M:%S} UTC)", hint)
    return ok(name, f"the engine's clock and hived's agree within {_CLOCK_TOLERANCE_S:g} s")


def _distance_s(clocks: Clocks) -> float:
    """Return by how much the engine's time lies outside the time in which it was asked."""
    if clocks.engine is None:
        return 0.0
    early_s = (clocks.before - clocks.engine).total_seconds()
    late_s = (clocks.engine - clocks.after).total_seconds()
    return max(early_s, late_s, 0.0)


def _options(version: EngineVersion) -> Mapping[str, str]:
    """Return the engine's security options: the name of each, and its profile where it has one."""
    found = {}
    for option in version.security_options:
        pairs = dict(part.partition("=")[::2] for part in option.split(","))
        found[pairs.get("name", option)] = pairs.get("profile", "")
    return found
