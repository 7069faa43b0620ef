from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hive_core.adapters.docker import DockerEngine
from tests.support.engine_fixtures import EngineImages
from tests.support.engine_rig import RealRig
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.own_engine import OwnEngine

CALL_TIMEOUT_S = 2.5


@pytest.fixture
def proxy(own_engine: OwnEngine) -> Iterator[FaultProxy]:
    """A proxy before the session's engine, without rules."""
    with (
        tempfile.TemporaryDirectory(prefix="hive-proxy-") as directory,
        fault_proxy(Path(directory) / "docker.sock", own_engine.socket) as running,
    ):
        yield running


@pytest.fixture
def engine(proxy: FaultProxy) -> DockerEngine:
    """The adapter behind the proxy, with little patience."""
    return DockerEngine(str(proxy.path), CALL_TIMEOUT_S)


@pytest.fixture
def rig(own_engine: OwnEngine, docker_engine: DockerEngine, engine_images: EngineImages) -> Iterator[RealRig]:
    """A hive of its own that reaches the engine without the proxy."""
    real = RealRig(own_engine, docker_engine)
    try:
        yield real
    finally:
        real.remove_everything()
