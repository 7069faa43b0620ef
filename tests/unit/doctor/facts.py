"""Facts of a host and an engine that are well, for tests that change one of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hive_core.domain.observed import EngineVersion
from hive_core.engine.checks_engine import Clocks

KERNEL = "6.12.9"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ENGINE = EngineVersion(
    engine="29.7.0",
    api="1.53",
    runtime="1.4.0",
    runtime_build="v1.4.0-0-g8bd78a99",
    default_runtime="runc",
    live_restore=True,
    security_options=("name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"),
    cgroup_version="2",
    missing_limits=(),
    storage_driver="overlay2",
    root_dir="/var/lib/docker",
    kernel=KERNEL,
    time=NOW,
)
CLOCKS = Clocks(NOW, NOW, NOW, 0.0, NOW - timedelta(days=1), NOW - timedelta(hours=1))


def engine(**changes: Any) -> EngineVersion:
    """Return an engine that is well but for these facts."""
    return replace(ENGINE, **changes)


def clocks(**changes: Any) -> Clocks:
    """Return clocks that agree but for these facts."""
    return replace(CLOCKS, **changes)


def later(seconds: float) -> datetime:
    """Return so many seconds after `NOW`."""
    return NOW + timedelta(seconds=seconds)
