"""What every container is given and denied: asserted from the engine's side and from inside."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.live_hive import LiveHive

pytestmark = pytest.mark.integration

NOBODY = "nobody has this"

MOUNTS = {
    # target: (source below data or run, writable by the engine's flag, propagation)
    "/state": ("d/agents/bob/state", True, "rprivate"),
    "/home/agent": ("d/agents/bob/home", True, "rprivate"),
    "/config": ("d/agents/bob/config/{commit}", False, "rprivate"),
    "/etc/passwd": ("d/agents/bob/etc/passwd", False, "rprivate"),
    "/etc/group": ("d/agents/bob/etc/group", False, "rprivate"),
    "/run/hive": ("r/agents/bob", False, "rprivate"),
    "/agents": ("r/grants/bob", True, "rslave"),
    "/meta": ("r/grants/.meta/bob", True, "rslave"),
    "/run/hive-secrets": ("r/secrets/bob", False, "rprivate"),
}


@pytest.fixture(scope="module")
def bob(hive: LiveHive) -> Iterator[LiveHive]:
    """The shared hive with bob running in it on the hive's own defaults."""
    hive.spawn("bob")
    yield hive
    hive.remove("bob")


@pytest.fixture(scope="module")
def host(bob: LiveHive) -> dict[str, Any]:
    """The HostConfig of bob's container."""
    return dict(bob.inspect("bob")["HostConfig"])


def inside(hive: LiveHive, script: str, name: str = "bob") -> str:
    """Return what a shell in the agent's container prints."""
    return hive.hivectl("exec", name, "--", "sh", "-c", script).stdout


# ---- as the engine tells ----------------------------------------------------------------------------------


def test_identity_and_program(bob: LiveHive) -> None:
    shown, config = bob.show("bob"), bob.inspect("bob")["Config"]
    assert config["User"] == f"{shown['uid']}:{shown['uid']}"
    assert config["Entrypoint"] == ["/usr/local/bin/hive-agent"]
    assert (config["WorkingDir"], config["Hostname"], config["Tty"]) == ("/state", "bob", False)
    assert config["Volumes"] is None
    ours = {
        "dev.hive.id": bob.id,
        "dev.hive.agent": "bob",
        "dev.hive.incarnation": shown["incarnation"],
        "dev.hive.spec": shown["spec"],
    }
    assert {key: config["Labels"].get(key) for key in ours} == ours
    assert len(config["Labels"]["dev.hive.create"]) == 32
    assert shown["spec"].startswith("v1:")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Privileged", False),
        ("CapDrop", ["ALL"]),
        ("CapAdd", None),
        ("SecurityOpt", ["no-new-privileges"]),
        ("ReadonlyRootfs", True),
        ("Init", True),
        ("NetworkMode", "none"),
        ("PidMode", ""),
        ("IpcMode", "private"),
        ("UTSMode", ""),
        ("UsernsMode", ""),
        ("CgroupnsMode", "private"),
        ("CgroupParent", ""),
        ("RestartPolicy", {"Name": "no", "MaximumRetryCount": 0}),
        ("AutoRemove", False),
        ("Memory", 64 << 20),
        ("MemorySwap", 64 << 20),
        ("NanoCpus", 1_000_000_000),
        ("PidsLimit", 32),
        ("Ulimits", [{"Name": "nofile", "Hard": 4096, "Soft": 4096}]),
        ("LogConfig", {"Type": "json-file", "Config": {"max-size": str(10 << 20), "max-file": "3"}}),
        ("Binds", None),
        ("Devices", None),
        ("DeviceRequests", None),
        ("VolumesFrom", None),
        ("PortBindings", None),
        ("ExtraHosts", None),
        ("Dns", None),
        ("GroupAdd", None),
        ("Sysctls", NOBODY),
    ],
)
def test_host_config(host: dict[str, Any], key: str, value: object) -> None:
    found = host.get(key, NOBODY)
    # An engine may write "none given" as null, as an empty list, or not at all.
    assert (found or None) == (value or None) if value in (None, NOBODY) and not found else found == value


def test_masked_and_read_only_paths_are_the_engines_own(host: dict[str, Any]) -> None:
    assert {"/proc/kcore", "/proc/keys", "/sys/firmware"} <= set(host["MaskedPaths"])
    assert {"/proc/sys", "/proc/sysrq-trigger"} <= set(host["ReadonlyPaths"])


def test_every_mount_is_there_and_no_other(bob: LiveHive) -> None:
    commit = bob.show("bob")["applied_commit"]
    found = {one["Destination"]: one for one in bob.inspect("bob")["Mounts"]}
    assert set(found) == set(MOUNTS)
    for target, (source, is_writable, propagation) in MOUNTS.items():
        mount = found[target]
        assert mount["Source"] == str(bob.root / source.format(commit=commit))
        assert (mount["Type"], mount["RW"], mount["Propagation"]) == ("bind", is_writable, propagation)


def test_no_mount_holds_the_engine_the_admin_socket_or_the_store(bob: LiveHive) -> None:
    for one in bob.inspect("bob")["Mounts"]:
        for guarded in (
            bob.socket,
            bob.data / "hive.db",
            bob.engine_socket,
            bob.run_dir / "grants" / ".meta",
        ):
            assert (
                not str(guarded).startswith(f"{one['Source'].rstrip('/')}/") or one["Destination"] == "/meta"
            )


# ---- as the host's disk tells -----------------------------------------------------------------------------


def test_sources_have_their_owners_and_modes(bob: LiveHive) -> None:
    uid = bob.show("bob")["uid"]
    expected = {
        "d": (0, 0o711),
        "d/meta": (0, 0o755),
        "d/agents": (0, 0o700),
        "d/agents/bob": (0, 0o755),
        "d/agents/bob/state": (uid, 0o700),
        "d/agents/bob/home": (uid, 0o700),
        "d/agents/bob/config": (0, 0o755),
        "d/agents/bob/etc/passwd": (0, 0o644),
        "d/agents/bob/etc/group": (0, 0o644),
        "d/meta/topology.json": (0, 0o644),
        "d/repos": (0, 0o710),
        "d/hive.db": (0, 0o600),
        "d/lock": (0, 0o600),
        "r": (0, 0o755),
        "r/agents": (0, 0o700),
        "r/grants": (0, 0o700),
        "r/secrets": (0, 0o700),
        "r/agents/bob": (0, 0o755),
        "r/grants/bob": (0, 0o755),
        "r/secrets/bob": (0, 0o750),
    }
    for path, (owner, mode) in expected.items():
        found = (bob.root / path).lstat()
        assert (path, found.st_uid, oct(stat.S_IMODE(found.st_mode))) == (path, owner, oct(mode))


# ---- as seen from inside ----------------------------------------------------------------------------------


def test_the_program_itself_has_no_privilege(bob: LiveHive) -> None:
    """Of the program the manifest names, not of an exec: read through the host's /proc."""
    uid = str(bob.show("bob")["uid"])
    pids = [row[1] for row in bob.raw.top(bob.row("bob")["container_id"], "-eo user,pid,args")["Processes"]]
    assert len(pids) >= 2
    for pid in pids:
        with open(f"/proc/{pid}/status") as file:
            facts = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        assert facts["Uid"].split() == facts["Gid"].split() == [uid] * 4
        assert facts["Groups"].split() in ([], [uid])
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(facts[kind], 16) == 0, (pid, kind)
        assert facts["NoNewPrivs"] == "1"
        assert facts["Seccomp"] == "2"


def test_it_has_namespaces_of_its_own(bob: LiveHive) -> None:
    names = ("pid", "net", "ipc", "uts", "mnt", "cgroup")
    own = inside(bob, "; ".join(f"readlink /proc/self/ns/{name}" for name in names)).split()
    host = [os.readlink(f"/proc/self/ns/{name}") for name in names]
    assert not set(own) & set(host)
    assert inside(bob, "ls /sys/class/net").split() == ["lo"]


def test_limits_hold_inside(bob: LiveHive) -> None:
    assert inside(bob, "ulimit -n; ulimit -Hn").split() == ["4096", "4096"]
    limits = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max"
    assert inside(bob, limits).split() == [str(64 << 20)]
    limits = "cat /sys/fs/cgroup/pids/pids.max 2>/dev/null || cat /sys/fs/cgroup/pids.max"
    assert inside(bob, limits).split() == ["32"]


def test_only_its_own_places_can_be_written(bob: LiveHive) -> None:
    script = (
        "for d in / /etc /usr /bin /run /run/hive /run/hive-secrets /config /agents /meta /var /dev /sys;"
        " do touch $d/x 2>/dev/null && echo $d; done; for d in /state /home/agent /tmp /dev/shm;"
        " do touch $d/x && echo own:$d; rm -f $d/x; done"
    )
    assert inside(bob, script).split() == ["own:/state", "own:/home/agent", "own:/tmp", "own:/dev/shm"]


def test_tmp_is_sized_and_executable(bob: LiveHive) -> None:
    options = set(inside(bob, "grep ' /tmp ' /proc/mounts").split()[3].split(","))
    assert {"rw", "nosuid", "nodev", "size=4096k"} <= options
    assert "noexec" not in options
    assert inside(bob, "cp /bin/true /tmp/t && /tmp/t && echo ran").split() == ["ran"]
    refused = bob.hivectl("exec", "bob", "--", "sh", "-c", "head -c 5000000 /dev/zero > /tmp/x", expect=None)
    assert refused.status != 0
    inside(bob, "rm -f /tmp/x /tmp/t")


def test_it_knows_itself_and_nobody_else(bob: LiveHive) -> None:
    uid = bob.show("bob")["uid"]
    assert inside(bob, "whoami; id -un; echo ~").split() == ["agent", "agent", "/home/agent"]
    assert f"agent:x:{uid}:{uid}:" in inside(bob, "cat /etc/passwd")
    assert (
        inside(bob, "ls -A /agents /meta /run/hive /run/hive-secrets 2>&1 | grep -v '^/' | grep .; true")
        == ""
    )
    assert inside(bob, "git config --get safe.directory").split() == ["/meta"]


def test_its_environment_is_hives_own(bob: LiveHive) -> None:
    found = dict(line.split("=", 1) for line in inside(bob, "tr '\\0' '\\n' < /proc/1/environ").splitlines())
    assert found.pop("HOSTNAME") == "bob"
    assert found.pop("PATH").split(":")[0] == "/home/agent/.local/bin"
    assert {key: found[key] for key in ("HIVE_AGENT", "HIVE_ID", "HIVE_SOCKET", "HOME")} == {
        "HIVE_AGENT": "bob", "HIVE_ID": bob.id, "HIVE_SOCKET": "/run/hive/hive.sock", "HOME": "/home/agent"
    }  # fmt: skip
    assert not [key for key in found if "TOKEN" in key or "KEY" in key or "SECRET" in key]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("unshare -m true", id="mount-namespace"),
        pytest.param("unshare -Ur true", id="user-namespace"),
        pytest.param("mount -t tmpfs none /tmp", id="mount"),
        pytest.param("umount /config", id="umount"),
        pytest.param("mount -o remount,rw /config", id="remount"),
        pytest.param("chown 0 /state", id="chown"),
        pytest.param("echo x > /proc/sys/kernel/hostname", id="sysctl"),
        pytest.param("mknod /state/null c 1 3", id="device"),
        pytest.param("kill -9 1; kill -0 1 && false", id="kill-init"),
        pytest.param("echo hi > /dev/kmsg", id="kmsg"),
        pytest.param("nsenter -t 1 -m true", id="nsenter"),
    ],
)
def test_what_would_widen_it_fails(bob: LiveHive, script: str) -> None:
    before = bob.row("bob")
    assert bob.hivectl("exec", "bob", "--", "sh", "-c", script, expect=None).status != 0
    assert bob.row("bob") == before


def test_a_manifest_sets_its_own_limits(bob: LiveHive) -> None:
    bob.spawn("small", memory="32m", cpus=0.5, pids=16, tmp="1m", env={"COLOUR": "blue"})
    try:
        host = bob.inspect("small")["HostConfig"]
        assert (host["Memory"], host["MemorySwap"], host["NanoCpus"], host["PidsLimit"]) == (
            32 << 20, 32 << 20, 500_000_000, 16
        )  # fmt: skip
        assert inside(bob, "echo $COLOUR", "small") == "blue\n"
        assert "size=1024k" in inside(bob, "grep ' /tmp ' /proc/mounts", "small")
        assert bob.show("small")["limits"] == {
            "memory_bytes": 32 << 20, "cpus": 0.5, "pids": 16, "tmp_bytes": 1 << 20
        }  # fmt: skip
    finally:
        bob.remove("small")
