from dataclasses import replace
from pathlib import Path

import pytest

from hive_core.adapters.host_facts import InotifyUse, Space
from hive_core.adapters.probes import Namespaces
from hive_core.domain.names import AgentName
from hive_core.engine import checks_host
from hive_core.engine.checks import Finding
from hive_core.engine.checks_host import LOW_BYTES, LOW_INODES
from tests.support.plan_inputs import name

OK, WARN, FAIL = Finding.OK, Finding.WARN, Finding.FAIL
DATA = Path("/var/lib/hive")
SHARED = Namespaces(42, "dockerd", "mnt:[1]", "mnt:[1]")
START, COUNT = 1_900_000_000, 100
BOB, RUTH = name("bob"), name("ruth")


@pytest.mark.parametrize(
    ("engines", "status"), [("mnt:[1]", OK), ("mnt:[2]", FAIL), (None, WARN)], ids=["same", "other", "hidden"]
)
def test_mount_namespace(engines: str | None, status: Finding) -> None:
    check = checks_host.mount_namespace(replace(SHARED, engines=engines))
    assert check.status is status
    assert "dockerd (pid 42)" in check.text


def test_a_kernel_that_follows_links_fails() -> None:
    assert checks_host.safe_paths("").status is OK
    assert checks_host.safe_paths("it followed one").status is FAIL


def test_why_live_grants_are_impossible_is_said() -> None:
    assert "possible" in checks_host.live_grants("", DATA).text
    refused = checks_host.live_grants("mount_setattr: Invalid argument", DATA)
    assert refused.status is WARN
    assert "mount_setattr: Invalid argument" in refused.text


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("ext4", OK),
        ("xfs", OK),
        ("btrfs", OK),
        ("tmpfs", WARN),
        ("overlay", WARN),
        ("nfs4", FAIL),
        ("9p", FAIL),
        ("fuse.sshfs", FAIL),
        ("fuseblk", FAIL),
    ],
)
def test_file_system(kind: str, status: Finding) -> None:
    assert checks_host.file_system(kind, DATA).status is status


@pytest.mark.parametrize(
    ("spaces", "status", "hint"),
    [
        ([Space(DATA, LOW_BYTES, LOW_INODES)], OK, ""),
        ([Space(DATA, LOW_BYTES, None)], OK, ""),
        ([Space(DATA, LOW_BYTES - 1, LOW_INODES)], WARN, "free some space: /var/lib/hive"),
        ([Space(DATA, LOW_BYTES, LOW_INODES - 1)], WARN, "free some space: /var/lib/hive"),
        ([Space(DATA, LOW_BYTES, 0)], WARN, "free some space: /var/lib/hive"),
        (
            [Space(DATA, LOW_BYTES, None), Space(Path("/docker"), 0, None)],
            WARN,
            "free some space: /docker",
        ),
    ],
)
def test_disk(spaces: list[Space], status: Finding, hint: str) -> None:
    check = checks_host.disk(spaces)
    assert (check.status, check.hint) == (status, hint)


@pytest.mark.parametrize(
    ("owners", "is_wanted", "is_reserved", "status", "words"),
    [
        ({BOB: START, RUTH: START + COUNT - 1}, True, True, OK, "reserved"),
        ({}, True, False, FAIL, "/etc/subuid"),
        ({}, False, False, WARN, "not reserved"),
        ({BOB: 0, RUTH: START}, True, True, FAIL, "bob would run as root"),
        ({BOB: START + COUNT}, True, True, WARN, "get their ids: bob"),
        ({BOB: START - 1}, True, True, WARN, "outside"),
    ],
)
def test_uids(
    owners: dict[AgentName, int], is_wanted: bool, is_reserved: bool, status: Finding, words: str
) -> None:
    check = checks_host.uids(START, COUNT, owners, is_wanted=is_wanted, is_reserved=is_reserved)
    assert check.status is status
    assert words in check.text


@pytest.mark.parametrize(
    ("version", "mended", "status"),
    [
        ("2.50.1", set(), OK),
        ("2.39.5", set(), WARN),
        ("2.39.5", {"CVE-2025-48384"}, OK),
        ("\x1b[31m", set(), WARN),
    ],
)
def test_git(version: str, mended: set[str], status: Finding) -> None:
    check = checks_host.git(version, frozenset(mended))
    assert check.status is status
    assert "\x1b" not in check.text


@pytest.mark.parametrize(
    ("use", "status", "hint"),
    [
        (InotifyUse(100, 128, 5, 1000), OK, ""),
        (InotifyUse(120, 128, 5, 1000), WARN, "sysctl fs.inotify.max_user_instances=512"),
        (InotifyUse(1, 128, 900, 1000), WARN, "sysctl fs.inotify.max_user_watches=4000"),
    ],
)
def test_inotify(use: InotifyUse, status: Finding, hint: str) -> None:
    check = checks_host.inotify(use)
    assert (check.status, check.hint) == (status, hint)


def test_a_watch_that_polls_is_a_warning() -> None:
    assert checks_host.file_watch("").status is OK
    assert checks_host.file_watch("no watches left").text == "no watches left"
    assert checks_host.file_watch("no watches left").status is WARN
