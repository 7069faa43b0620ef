"""Images that ask for more than they may: what is refused, and what is neutralised."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.engine_fixtures import EngineImages
from tests.support.live_hive import LiveHive, live_hive
from tests.support.own_engine import OwnEngine
from tests.support.tiny_image import import_image

pytestmark = [pytest.mark.integration, pytest.mark.security]

SLY = "hive-test:sly"


@pytest.fixture(scope="module")
def hive(own_engine: OwnEngine, engine_images: EngineImages) -> Iterator[LiveHive]:
    """A hive whose agents run on the small image."""
    client = own_engine.client()
    try:
        import_image(
            client,
            SLY,
            (
                "ENV LD_PRELOAD=/evil.so LD_LIBRARY_PATH=/evil PYTHONPATH=/evil BASH_ENV=/evil ENV=/evil",
                "ENV HIVE_AGENT=ruth HIVE_SOCKET=/evil.sock HOME=/root FROM_IMAGE=1 GIT_SSH_COMMAND=/evil",
                "LABEL dev.hive.id=other dev.hive.agent=ruth dev.hive.incarnation=0 dev.hive.spec=v1:0",
                'ENTRYPOINT ["/bin/sh", "-c", "sleep 1000"]',
                'CMD ["evil"]',
                "USER 0",
                "WORKDIR /etc",
                "EXPOSE 80",
            ),
        )
    finally:
        client.close()
    with live_hive(own_engine, engine_images.usual) as shared:
        yield shared.start().settle()


def test_an_image_with_volumes_is_refused_by_name(hive: LiveHive, engine_images: EngineImages) -> None:
    hive.init("loud", image=engine_images.loud)
    try:
        refused = hive.hivectl("spawn", "loud", expect=1)
        assert "/stray" in refused.stderr
        assert "VOLUME" in refused.stderr
        assert hive.containers("loud") == []
        assert hive.row("loud")["desired"] == "unspawned"
    finally:
        hive.remove("loud")


def test_an_image_without_the_harness_fails_by_name(hive: LiveHive, engine_images: EngineImages) -> None:
    hive.init("bare", image=engine_images.bare)
    try:
        hive.hivectl("spawn", "bare", expect=None)
        hive.wait_state("bare", "crash-looping")
        assert hive.show("bare")["exits"][-1]["exit_code"] == 127
        assert "hive-agent" in hive.hivectl("logs", "bare").stdout
        assert len(hive.containers("bare")) == 1
        hive.hivectl("stop", "bare")
    finally:
        hive.remove("bare")
    assert hive.containers("bare") == []


def test_what_an_image_sets_does_not_reach_the_program(hive: LiveHive) -> None:
    hive.spawn("sly", image=SLY)
    try:
        shown, inspected = hive.show("sly"), hive.inspect("sly")
        config = inspected["Config"]
        assert config["Entrypoint"] == ["/usr/local/bin/hive-agent"]
        assert config["Cmd"] == ["sleep", "600"]
        assert (config["User"], config["WorkingDir"]) == (f"{shown['uid']}:{shown['uid']}", "/state")
        assert config["Labels"]["dev.hive.id"] == hive.id
        assert config["Labels"]["dev.hive.agent"] == "sly"
        assert config["Labels"]["dev.hive.incarnation"] == shown["incarnation"]
        assert config["Labels"]["dev.hive.spec"] == shown["spec"]
        script = "cat /proc/1/environ /proc/self/environ | tr '\\0' '\\n'"
        said = hive.hivectl("exec", "sly", "--", "sh", "-c", script).stdout
        assert "evil" not in said
        assert "HIVE_AGENT=sly" in said.splitlines()
        assert "HOME=/home/agent" in said.splitlines()
        assert "FROM_IMAGE=1" in said.splitlines()
        assert hive.problems() == {}
    finally:
        hive.remove("sly")
