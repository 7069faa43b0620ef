"""The engine port: what hive asks of a container engine.

Implemented by `adapters.docker` and by the in-memory fake of the tests; one contract suite holds both to
it. A Protocol exists here only where there is a second implementation.

Every call is bounded in time and raises `EngineUnavailable` when the engine does not answer (`hung` when it
accepted the connection but stayed silent), `EngineRefused` with the HTTP status when it answers with a
refusal. Containers are addressed by full id only: a name or an id prefix may be somebody else's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from hive_core.domain.observed import (
    ContainerDetail,
    EngineEvent,
    EngineVersion,
    ImageFacts,
    ListedContainer,
)
from hive_core.domain.spec import ContainerSpec


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """A command to run in a running container as `uid:gid` with exactly this environment added."""

    argv: tuple[str, ...]
    uid: int
    gid: int
    env: tuple[tuple[str, str], ...]
    working_dir: str
    tty: bool
    rows: int = 24
    columns: int = 80


class ExecSession(Protocol):
    """One running exec. Used by one reader and one writer thread at a time."""

    def read(self) -> tuple[int, bytes] | None:
        """Block for output: (1 or 2 for stdout or stderr, bytes), or None at the end. TTY output is all 1."""

    def write(self, content: bytes) -> None:
        """Send bytes to the command's standard input."""

    def close_stdin(self) -> None:
        """Tell the command that its standard input has ended."""

    def resize(self, rows: int, columns: int) -> None:
        """Tell the command's terminal its new size; a command that is already gone is no error."""

    def exit_code(self) -> int:
        """Return the command's exit status once `read` has returned None."""

    def terminate(self) -> None:
        """End the command and everything in its session, and release the connection. Idempotent."""


class Engine(Protocol):
    """A container engine on this host."""

    def version(self) -> EngineVersion:
        """Return the engine's versions; the cheapest proof that it answers."""

    def list_containers(self, hive_id: str) -> tuple[ListedContainer, ...]:
        """Return every container labelled with this hive, in any state, by one call."""

    def inspect(self, container_id: str) -> ContainerDetail:
        """Return a container's detail; `EngineRefused` with status 404 when none has this full id."""

    def find_by_name(self, name: str) -> ContainerDetail | None:
        """Return the container with exactly this name, None when there is none."""

    def resolve_image(self, reference: str) -> ImageFacts:
        """Return the image a reference names now; `ImageUnusable` when there is none."""

    def create(self, spec: ContainerSpec, labels: Mapping[str, str]) -> str:
        """Create the container, return its id. 409 when the name is taken, 400 for a missing mount source."""

    def start(self, container_id: str) -> None:
        """Start a created or exited container; a running one is left alone. 409 when it is paused."""

    def stop(self, container_id: str, grace_s: int) -> None:
        """Ask it to end, kill it after the grace, return once it is down. One that is down is fine."""

    def kill(self, container_id: str) -> None:
        """End it at once. One that is down already is fine."""

    def pause(self, container_id: str) -> None:
        """Freeze a running container. 409 when it is not running or already paused."""

    def unpause(self, container_id: str) -> None:
        """Let a paused container run on. 409 when it is not paused."""

    def remove(self, container_id: str) -> None:
        """Remove a container that is down and wait until its name is free. One that is gone is fine."""

    def logs(self, container_id: str, tail: int, follow: bool) -> Iterator[bytes]:
        """Yield raw log bytes, stdout and stderr as they came: the last `tail` lines, then new ones."""

    def events(self, hive_id: str, window_s: float) -> Iterator[EngineEvent]:
        """Return, once the stream is open, one window of events about this hive's containers and images.

        Raises `EngineUnavailable` when the stream breaks or stays open past the window.
        """

    def exec(self, container_id: str, request: ExecRequest) -> ExecSession:
        """Start a command in a running container. 409 when the container does not run."""
