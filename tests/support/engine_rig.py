"""What the contract suite needs besides the port: the same deeds on the fake and on a real engine.

Used by tests/contract and tests/faults. A rig stands for one hive on one engine: its containers carry a label
of their own and are gone when the test is.
"""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import replace

from docker.api.client import APIClient
from docker.errors import APIError

from hive_core.adapters.docker import DockerEngine
from hive_core.domain.observed import EngineState
from hive_core.domain.ports import Engine
from hive_core.domain.spec import LABEL_AGENT, LABEL_HIVE, BindMount, ContainerSpec, Limits
from tests.support.engine_fixtures import EngineImages
from tests.support.fake_engine import FakeEngine
from tests.support.own_engine import OwnEngine
from tests.support.tiny_image import LABEL

UID = 1_987_654_321
LIMITS = Limits(
    memory_bytes=64 << 20, cpus=1.0, pids=64, nofile=512, tmp_bytes=8 << 20, log_bytes=1 << 20, log_files=2
)
SLEEP = ("sleep", "600")
A_FILE = "/bin/sh"
CRASH_CODE = 138  # 128 + SIGUSR1


def spec_for(name: str, image_id: str, command: tuple[str, ...] = SLEEP) -> ContainerSpec:
    """Return a small valid spec."""
    return ContainerSpec(
        name=name,
        image_id=image_id,
        command=command,
        env=(("HIVE", "yes"),),
        drop_env=("FROM_IMAGE",),
        uid=UID,
        gid=UID,
        commit="0" * 40,
        mounts=(),
        limits=LIMITS,
    )


class Rig(ABC):
    """One hive on one engine."""

    engine: Engine

    def __init__(self) -> None:
        self.hive_id = f"t{secrets.token_hex(4)}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of this hive's containers."""
        return {LABEL_HIVE: self.hive_id, LABEL_AGENT: "bob", LABEL: "1"}

    def name(self, agent: str = "bob") -> str:
        """Return the container name of an agent of this hive."""
        return f"h-{self.hive_id}-{agent}"

    def spec(
        self,
        agent: str = "bob",
        *,
        command: tuple[str, ...] = SLEEP,
        image: str = "",
        mounts: tuple[BindMount, ...] = (),
    ) -> ContainerSpec:
        """Return a spec of this hive; `image` is a reference, the usual one if not given."""
        image_id = self.engine.resolve_image(image or EngineImages().usual).id
        return replace(spec_for(self.name(agent), image_id, command), mounts=mounts)

    def make(self, state: EngineState, agent: str = "bob", command: tuple[str, ...] = SLEEP) -> str:
        """Bring a container into this state by the port's own operations, and return its id."""
        container_id = self.engine.create(self.spec(agent, command=command), self.labels)
        if state is not EngineState.CREATED:
            self.engine.start(container_id)
        if state is EngineState.PAUSED:
            self.engine.pause(container_id)
        if state is EngineState.EXITED:
            self.engine.kill(container_id)
        return container_id

    def state(self, container_id: str) -> EngineState:
        """Return the state the engine reports."""
        return self.engine.inspect(container_id).state

    @abstractmethod
    def rename_by_hand(self, container_id: str, name: str) -> None:
        """Rename it with another tool."""

    @abstractmethod
    def remove_by_hand(self, container_id: str) -> None:
        """Remove it with another tool, whatever it does."""

    @abstractmethod
    def crash(self, container_id: str) -> None:
        """Let its program die of a signal that hive did not send: it exits with `CRASH_CODE`."""

    @abstractmethod
    def run_by_hand(self, name: str) -> str:
        """Run a container of nobody's hive with another tool, and return its id."""

    @abstractmethod
    def tag_image(self, reference: str) -> None:
        """Make a reference name the usual image, or a new one."""


class FakeRig(Rig):
    """On the fake engine."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = self.fake = FakeEngine()
        self.fake.source_exists = os.path.exists
        self.fake.runtime_error = _error_of_impossible_mount
        images = EngineImages()
        self.fake.add_image(images.usual, env_names=("FROM_IMAGE", "PATH"))
        self.fake.add_image(images.bare, env_names=("PATH",), has_harness=False)
        self.fake.add_image(images.loud, env_names=("LD_PRELOAD", "PATH"), volumes=("/stray",))

    def rename_by_hand(self, container_id: str, name: str) -> None:
        self.fake.rename_by_hand(container_id, name)

    def remove_by_hand(self, container_id: str) -> None:
        self.fake.remove_by_hand(container_id)

    def crash(self, container_id: str) -> None:
        self.fake.crash(container_id, CRASH_CODE)

    def run_by_hand(self, name: str) -> str:
        return self.fake.run_foreign(name, {})

    def tag_image(self, reference: str) -> None:
        self.fake.add_image(reference)


def _error_of_impossible_mount(spec: ContainerSpec) -> str | None:
    """Say what a runtime says to a directory mounted over the image's shell."""
    is_impossible = any(mount.target == A_FILE for mount in spec.mounts)
    return f'error mounting to rootfs at "{A_FILE}": not a directory' if is_impossible else None


class RealRig(Rig):
    """On a real engine, looked at and meddled with through a client of its own."""

    def __init__(self, own: OwnEngine, engine: DockerEngine) -> None:
        super().__init__()
        self.engine = engine
        self.client: APIClient = own.client()

    def rename_by_hand(self, container_id: str, name: str) -> None:
        self.client.rename(container_id, name)

    def remove_by_hand(self, container_id: str) -> None:
        self.client.remove_container(container_id, force=True)

    def crash(self, container_id: str) -> None:
        self.client.kill(container_id, signal="USR1")
        self.client.wait(container_id, timeout=10)

    def run_by_hand(self, name: str) -> str:
        image = EngineImages().usual
        made = self.client.create_container(
            image,
            list(SLEEP),
            name=name,
            labels={LABEL: "1", f"{LABEL}.rig": self.hive_id},
            host_config=self.client.create_host_config(network_mode="none", init=True),
        )
        self.client.start(made["Id"])
        return str(made["Id"])

    def tag_image(self, reference: str) -> None:
        name, _, tag = reference.partition(":")
        self.client.tag(EngineImages().usual, name, tag)

    def remove_everything(self) -> None:
        """Remove what this rig's hive and hand made."""
        for label in (f"{LABEL_HIVE}={self.hive_id}", f"{LABEL}.rig={self.hive_id}"):
            for row in self.client.containers(all=True, filters={"label": label}):
                with suppress(APIError):
                    self.client.remove_container(row["Id"], force=True, v=True)
        self.client.close()
