from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.engine_rig import FakeRig, RealRig, Rig


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.integration)])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A hive of its own on the fake and on the real engine in turn."""
    if request.param == "fake":
        yield FakeRig()
        return
    request.getfixturevalue("engine_images")
    real = RealRig(request.getfixturevalue("own_engine"), request.getfixturevalue("docker_engine"))
    try:
        yield real
    finally:
        real.remove_everything()
