from collections.abc import Callable
from datetime import timedelta

import pytest

from hive_core.domain.observed import EngineVersion
from hive_core.engine import checks_engine
from hive_core.engine.checks import Check, CheckName, Finding
from tests.unit.doctor.facts import CLOCKS, ENGINE, KERNEL, NOW, clocks, engine, later

OK, WARN, FAIL = Finding.OK, Finding.WARN, Finding.FAIL
NONE: frozenset[str] = frozenset()
Judge = Callable[[EngineVersion], Check]

JUDGES: dict[CheckName, Judge] = {
    CheckName.ENGINE: lambda facts: checks_engine.engine(facts, KERNEL),
    CheckName.RUNTIME: lambda facts: checks_engine.runtime(facts, NONE),
    CheckName.SECCOMP: checks_engine.seccomp,
    CheckName.USER_NAMESPACES: checks_engine.user_namespaces,
    CheckName.ROOTLESS: checks_engine.rootless,
    CheckName.LIVE_RESTORE: checks_engine.live_restore,
    CheckName.LIMITS: checks_engine.limits,
    CheckName.STORAGE_DRIVER: checks_engine.storage_driver,
}


@pytest.mark.parametrize("name", JUDGES)
def test_an_engine_that_is_well_passes(name: CheckName) -> None:
    check = JUDGES[name](ENGINE)
    assert (check.name, check.status, check.hint) == (name, OK, "")


@pytest.mark.parametrize(
    ("name", "facts", "status", "words"),
    [
        ("engine", engine(engine="29.6.0"), WARN, "hive never uses them"),
        ("engine", engine(engine="20.10.24+dfsg1"), WARN, "29.7.0"),
        ("engine", engine(engine="dev"), WARN, "dev"),
        ("engine", engine(kernel="5.10.1"), FAIL, "runs on another host"),
        ("runtime", engine(runtime="1.1.5+ds1"), FAIL, "CVE-2024-21626"),
        ("runtime", engine(runtime="1.1.12"), WARN, "CVE-2025-31133"),
        ("runtime", engine(runtime="1.3.2"), WARN, "CVE-2025-52881"),
        ("runtime", engine(runtime="1.4.0-rc.1"), WARN, "CVE-2025-52565"),
        ("runtime", engine(runtime=""), WARN, "does not say"),
        ("runtime", engine(default_runtime="kata"), WARN, "kata"),
        ("seccomp", engine(security_options=()), FAIL, "no seccomp"),
        ("seccomp", engine(security_options=("name=seccomp,profile=unconfined",)), FAIL, "unconfined"),
        ("seccomp", engine(security_options=("name=seccomp,profile=/etc/own.json",)), WARN, "/etc/own.json"),
        ("user namespaces", engine(security_options=("name=seccomp", "name=userns")), FAIL, "userns-remap"),
        ("rootless", engine(security_options=("name=seccomp", "name=rootless")), FAIL, "rootless"),
        ("live-restore", engine(live_restore=False), WARN, "ends every container"),
        ("limits", engine(missing_limits=("memory", "swap"), cgroup_version="1"), FAIL, "memory, swap"),
        ("storage driver", engine(storage_driver="vfs"), WARN, "vfs copies the whole image"),
        ("storage driver", engine(storage_driver="aufs"), WARN, "aufs"),
        ("storage driver", engine(storage_driver=""), WARN, "unknown"),
    ],
)
def test_what_is_wrong_is_said_with_a_way_out(
    name: str, facts: EngineVersion, status: Finding, words: str
) -> None:
    check = JUDGES[CheckName(name)](facts)
    assert (check.name, check.status) == (name, status)
    assert words in check.text
    assert check.hint


@pytest.mark.parametrize("profile", ["default", "builtin"])
def test_both_names_of_the_engines_own_profile_pass(profile: str) -> None:
    facts = engine(security_options=(f"name=seccomp,profile={profile}",))
    assert checks_engine.seccomp(facts).status is OK


@pytest.mark.parametrize(
    ("mended", "status"),
    [
        ({"CVE-2024-21626"}, WARN),
        ({"CVE-2024-21626", "CVE-2025-31133"}, WARN),
        ({"CVE-2024-21626", "CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"}, OK),
        ({"CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"}, FAIL),
    ],
)
def test_what_a_package_mended_counts(mended: set[str], status: Finding) -> None:
    check = checks_engine.runtime(engine(runtime="1.1.5+ds1"), frozenset(mended))
    assert check.status is status
    assert not any(hole in check.text for hole in mended)


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({}, OK, "agree"),
        ({"engine": later(1.9)}, OK, "agree"),
        ({"engine": later(3)}, FAIL, "3 s apart"),
        ({"engine": later(-600)}, FAIL, "600 s apart"),
        # A slow answer is no wrong clock: the engine's time lies between our two.
        ({"engine": later(4), "after": later(8), "waited_s": 8.0}, OK, "agree"),
        ({"engine": later(4), "after": later(8), "waited_s": 0.1}, WARN, "moved by 8 s"),
        ({"engine": None}, WARN, "does not tell"),
        ({"booted_at": NOW + timedelta(days=1)}, WARN, "before this host booted"),
        ({"newest": NOW + timedelta(days=1)}, WARN, "before hive's newest record (2026-01-03 03:04:05 UTC)"),
        ({"newest": later(1)}, OK, "agree"),
        ({"newest": None}, OK, "agree"),
    ],
)
def test_clocks(changes: dict[str, object], status: Finding, words: str) -> None:
    check = checks_engine.clock(clocks(**changes))
    assert check.status is status
    assert words in check.text
    assert CLOCKS.engine == NOW
