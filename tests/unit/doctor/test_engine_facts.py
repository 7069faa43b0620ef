"""The engine's own words, as the facts that the checks judge."""

from datetime import UTC, datetime
from typing import Any

from hive_core.adapters.docker_answers import engine_version

VERSION: dict[str, Any] = {
    "Version": "20.10.24+dfsg1",
    "ApiVersion": "1.41",
    "Components": [
        {"Name": "Engine", "Version": "20.10.24+dfsg1", "Details": {"KernelVersion": "6.1.0"}},
        {"Name": "runc", "Version": "1.1.5+ds1", "Details": {"GitCommit": "1.1.5+ds1-1+deb12u1"}},
    ],
}
SUMMARY: dict[str, Any] = {
    "DefaultRuntime": "runc",
    "LiveRestoreEnabled": True,
    "SecurityOptions": ["name=seccomp,profile=default"],
    "CgroupVersion": "1",
    "MemoryLimit": True,
    "SwapLimit": False,
    "PidsLimit": False,
    "CpuCfsQuota": True,
    "Driver": "overlay2",
    "DockerRootDir": "/var/lib/docker",
    "KernelVersion": "6.1.0",
    "SystemTime": "2026-11-30T14:35:20.455008138Z",
}


def test_everything_an_engine_says_arrives() -> None:
    facts = engine_version(VERSION, SUMMARY)
    assert (facts.engine, facts.api, facts.kernel) == ("20.10.24+dfsg1", "1.41", "6.1.0")
    assert (facts.runtime, facts.runtime_build) == ("1.1.5+ds1", "1.1.5+ds1-1+deb12u1")
    assert (facts.default_runtime, facts.live_restore) == ("runc", True)
    assert facts.security_options == ("name=seccomp,profile=default",)
    assert (facts.cgroup_version, facts.missing_limits) == ("1", ("swap", "processes"))
    assert (facts.storage_driver, facts.root_dir) == ("overlay2", "/var/lib/docker")
    assert facts.time == datetime(2026, 11, 30, 14, 35, 20, 455008, UTC)


def test_what_an_engine_does_not_say_is_empty() -> None:
    facts = engine_version({"Version": "1", "ApiVersion": "1.41", "Components": None}, {})
    assert (facts.runtime, facts.runtime_build, facts.default_runtime, facts.kernel) == ("", "", "", "")
    assert (facts.security_options, facts.missing_limits, facts.time) == ((), (), None)
    assert facts.live_restore is False
