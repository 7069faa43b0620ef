"""Fixtures that give tests an engine: one real one for the session, or the fake.

Loaded by tests/conftest.py. The real engine is the tests' own and starts at the first test that asks for it;
tests that use it carry the `integration` mark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hive_core.adapters.docker import DockerEngine
from tests.support.own_engine import OwnEngine
from tests.support.own_engine import own_engine as run_own_engine
from tests.support.tiny_image import import_image

CALL_TIMEOUT_S = 20.0
AGENT_IMAGE = "hive-agent:test"
BUILD_IMAGE = Path(__file__).parents[2] / "scripts" / "build-image"
BUILD_DEADLINE_S = 300
IMAGE = "hive-test:tiny"
IMAGE_BARE = "hive-test:bare"
IMAGE_LOUD = "hive-test:loud"


@dataclass(frozen=True, slots=True)
class EngineImages:
    """References of the images for tests: the usual one; one without a harness; one with VOLUME and ENV."""

    usual: str = IMAGE
    bare: str = IMAGE_BARE
    loud: str = IMAGE_LOUD


@pytest.fixture(scope="session")
def own_engine() -> Iterator[OwnEngine]:
    """A real engine of the tests' own, shared by the session: do not stop it, start another one for that."""
    if os.geteuid() != 0:
        pytest.skip("needs root, like the daemon")
    if shutil.which("dockerd") is None or shutil.which("containerd") is None:
        pytest.fail("needs dockerd and containerd: install the packages docker.io and iptables")
    with run_own_engine() as engine:
        yield engine


@pytest.fixture(scope="session")
def engine_socket(own_engine: OwnEngine) -> Path:
    """The socket of the session's engine."""
    return own_engine.socket


@pytest.fixture(scope="session")
def docker_engine(engine_socket: Path) -> DockerEngine:
    """The adapter under test, on the session's engine."""
    return DockerEngine(str(engine_socket), CALL_TIMEOUT_S)


@pytest.fixture(scope="session")
def engine_images(own_engine: OwnEngine) -> EngineImages:
    """The small test images, imported into the session's engine."""
    client = own_engine.client()
    try:
        import_image(client, IMAGE, ("ENV FROM_IMAGE=1",))
        import_image(client, IMAGE_BARE, has_harness=False)
        import_image(
            client, IMAGE_LOUD, ("ENV LD_PRELOAD=/evil.so", "VOLUME /stray", "LABEL dev.hive.id=other")
        )
    finally:
        client.close()
    return EngineImages()


@pytest.fixture(scope="session")
def agent_image(own_engine: OwnEngine) -> str:
    """The reference of the real agent image in the session's engine; importing it costs seconds."""
    loading = [str(BUILD_IMAGE), "--load", "--host", f"unix://{own_engine.socket}", "--tag", AGENT_IMAGE]
    loaded = subprocess.run(loading, capture_output=True, text=True, timeout=BUILD_DEADLINE_S, check=False)
    if loaded.returncode != 0:
        pytest.fail(f"cannot build the agent image:\n{loaded.stderr[-2000:]}")
    return AGENT_IMAGE


@pytest.fixture(scope="session")
def engine_image(docker_engine: DockerEngine, engine_images: EngineImages) -> str:
    """The id of the usual small test image."""
    return docker_engine.resolve_image(engine_images.usual).id
