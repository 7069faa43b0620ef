"""The container engine: the `Engine` port, spoken to a Docker Engine over its Unix socket.

Made by the composition root, used by every thread that observes or acts. Calls go through docker-py's
low-level client, one request each: its high-level one inspects every listed container and fails when one
vanishes meanwhile. Streams have connections of their own, so that followers never keep a stop waiting.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from docker.api.client import APIClient

from hive_core.adapters.docker_answers import (
    container_detail,
    engine_version,
    image_facts,
    is_id_prefix,
    listed_container,
)
from hive_core.adapters.docker_body import create_body
from hive_core.adapters.docker_exec import DockerExec, start_exec
from hive_core.adapters.docker_faults import engine_call, short
from hive_core.adapters.docker_follow import open_events, open_log
from hive_core.adapters.docker_streams import ClosableIterator, Wire
from hive_core.adapters.docker_transport import api_client
from hive_core.domain.errors import EngineRefused, EngineUnavailable, ImageUnusable
from hive_core.domain.observed import (
    ContainerDetail,
    EngineEvent,
    EngineState,
    EngineVersion,
    ImageFacts,
    ListedContainer,
)
from hive_core.domain.ports import ExecRequest
from hive_core.domain.spec import LABEL_HIVE, ContainerSpec

API_OLDEST = (1, 41)
API_NEWEST = (1, 47)  # the newest whose behaviour is known; a newer engine still speaks it
_POLL_S = 0.02
_DOWN = frozenset({EngineState.CREATED, EngineState.EXITED, EngineState.DEAD, EngineState.REMOVING})
_FULL_ID = re.compile(r"[0-9a-f]{64}")


class DockerEngine:
    """A Docker Engine. Safe to use from many threads; made without contact, so the engine may be away."""

    def __init__(self, socket_path: str, call_timeout_s: float) -> None:
        """`call_timeout_s` bounds every wait for one answer; a stop may take its grace longer."""
        self._socket_path = socket_path
        self._timeout_s = call_timeout_s
        self._agreed: APIClient | None = None
        self._events_known_to: float | None = None

    def version(self) -> EngineVersion:
        """Return the engine's versions."""
        with self._calling("ask the engine for its version") as client:
            return engine_version(client.version(), client.info())

    def list_containers(self, hive_id: str) -> tuple[ListedContainer, ...]:
        """Return every container labelled with this hive, in any state, by one call."""
        with self._calling("list containers") as client:
            rows = client.containers(all=True, filters={"label": f"{LABEL_HIVE}={hive_id}"})
            return tuple(listed_container(row) for row in rows)

    def inspect(self, container_id: str) -> ContainerDetail:
        """Return a container's detail."""
        with self._calling("inspect", container_id) as client:
            detail = container_detail(client.inspect_container(container_id))
        if detail.id != container_id:
            raise _gone("inspect", container_id)
        return detail

    def find_by_name(self, name: str) -> ContainerDetail | None:
        """Return the container with exactly this name: the engine's own look-up also takes id prefixes."""
        with self._calling(f"look for a container named {name}") as client:
            rows = client.containers(all=True, filters={"name": f"^/{re.escape(name)}$"})
            ids = [str(row["Id"]) for row in rows if f"/{name}" in (row.get("Names") or ())]
        try:
            return self.inspect(ids[0]) if ids else None
        except EngineRefused as refused:
            if refused.is_gone:
                return None
            raise

    def resolve_image(self, reference: str) -> ImageFacts:
        """Return the image a reference names now."""
        try:
            with self._calling(f"look for image '{reference}'") as client:
                inspected = client.inspect_image(reference)  # type: ignore[no-untyped-call]
                facts = image_facts(inspected)
        except EngineRefused as refused:
            if refused.status not in (400, 404):
                raise
            raise _no_image(reference) from refused
        if is_id_prefix(reference, inspected):
            raise _no_image(reference)
        return facts

    def create(self, spec: ContainerSpec, labels: Mapping[str, str]) -> str:
        """Create the container and return its id."""
        with self._calling(f"create {spec.name}") as client:
            body = create_body(spec, labels)
            created = client.create_container_from_config(body, spec.name)  # type: ignore[no-untyped-call]
            return str(created["Id"])

    def start(self, container_id: str) -> None:
        """Start a created or exited container; a running one is left alone."""
        with self._calling("start", container_id) as client:
            client.start(container_id)

    def stop(self, container_id: str, grace_s: int) -> None:
        """Ask it to end, kill it after the grace, return once it is down."""
        with self._calling("stop", container_id) as client:
            client.stop(container_id, timeout=grace_s)
        self._await_down("stop", container_id)

    def kill(self, container_id: str) -> None:
        """End it at once. The engine calls it a conflict when it is down already."""
        with _conflict_is_fine(), self._calling("kill", container_id) as client:
            client.kill(container_id)
        self._await_down("kill", container_id)

    def pause(self, container_id: str) -> None:
        """Freeze a running container."""
        with self._calling("pause", container_id) as client:
            client.pause(container_id)

    def unpause(self, container_id: str) -> None:
        """Let a paused container run on. The engine calls a wrong state its own failure; it is a conflict."""
        try:
            with self._calling("unpause", container_id) as client:
                client.unpause(container_id)
        except EngineRefused as refused:
            if refused.status == 500 and self.inspect(container_id).state is not EngineState.PAUSED:
                raise EngineRefused(refused.message, refused.hint, status=409) from refused
            raise

    def remove(self, container_id: str) -> None:
        """Remove a container that is down and wait until its name is free."""
        try:
            with self._calling("remove", container_id) as client:
                client.remove_container(container_id, v=True)
        except EngineRefused as refused:
            if not refused.is_gone and not self._is_being_removed(container_id, refused):
                raise
        self._await(
            lambda: not self._is_listed(container_id), "remove", container_id, "it is still being removed"
        )

    def logs(self, container_id: str, tail: int, follow: bool) -> ClosableIterator[bytes]:
        """Return raw log bytes: the last `tail` lines (at most 10,000), then new ones if asked.

        `close` may be called by any thread. A log that no driver keeps is refused with status 501.
        """
        with self._calling("read the log of", container_id) as client:
            inspected = client.inspect_container(container_id)
            return open_log(self._wire(client), inspected, tail=tail, follow=follow)

    def events(self, hive_id: str, window_s: float) -> ClosableIterator[EngineEvent]:
        """Return events about this hive's containers and about images for one window, then end.

        A window also has what happened since the one before it ended. `close` may be called by any thread.
        """
        with self._calling("follow the engine's events") as client:
            since, self._events_known_to = self._events_known_to, None
            return open_events(self._wire(client), hive_id, window_s, since=since, at_end=self._window_ended)

    def exec(self, container_id: str, request: ExecRequest) -> DockerExec:
        """Start a command in a running container."""
        with self._calling("run a command in", container_id) as client:
            return start_exec(client, self._wire(client), container_id, request)

    def _window_ended(self, until: float) -> None:
        self._events_known_to = until

    def _wire(self, client: APIClient) -> Wire:
        return Wire(self._socket_path, self._timeout_s, client.api_version)

    @contextmanager
    def _calling(self, verb: str, container_id: str | None = None) -> Iterator[APIClient]:
        """Lend the client for one call, and turn what goes wrong into "cannot <verb> <id>: reason".

        A container is named by full id or not at all: the engine would also take a name or the prefix of
        somebody else's id. No lock around agreeing on a version: while the engine hangs, threads would wait
        for it one after the other. After an outage another engine may be there, so it is agreed anew.
        """
        if container_id is not None and not _FULL_ID.fullmatch(container_id):
            raise _gone(verb, container_id)
        try:
            with engine_call(verb if container_id is None else f"{verb} {short(container_id)}"):
                if self._agreed is None:
                    self._agreed = _agree(self._socket_path, self._timeout_s)
                yield self._agreed
        except EngineUnavailable:
            self._agreed = None
            raise

    def _await_down(self, verb: str, container_id: str) -> None:
        self._await(lambda: self._is_down(container_id), verb, container_id, "it is still running")

    def _await(self, is_done: Callable[[], bool], verb: str, container_id: str, complaint: str) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not is_done():
            if time.monotonic() > deadline:
                raise EngineRefused(f"cannot {verb} {short(container_id)}: {complaint}", status=500)
            time.sleep(_POLL_S)

    def _is_down(self, container_id: str) -> bool:
        """Whether it does not run; one that was removed meanwhile does not."""
        try:
            return self.inspect(container_id).state in _DOWN
        except EngineRefused as refused:
            if refused.is_gone:
                return True
            raise

    def _is_being_removed(self, container_id: str, refused: EngineRefused) -> bool:
        """Whether a conflict only says that somebody else is removing it already."""
        if not refused.is_conflict:
            return False
        return "already in progress" in refused.message or not self._is_listed(container_id)

    def _is_listed(self, container_id: str) -> bool:
        """Whether the list still has it: the engine frees the name in the step that ends that."""
        with self._calling(f"look for {short(container_id)}") as client:
            rows = client.containers(all=True, filters={"id": container_id})
            return any(row["Id"] == container_id for row in rows)


@contextmanager
def _conflict_is_fine() -> Iterator[None]:
    try:
        yield
    except EngineRefused as refused:
        if not refused.is_conflict:
            raise


def _agree(socket_path: str, timeout_s: float) -> APIClient:
    """Return a client that speaks the newest API version both sides know."""
    probe = api_client(socket_path, timeout_s, _text(API_OLDEST))
    try:
        offered = tuple(int(part) for part in probe.version(api_version=False)["ApiVersion"].split("."))
    finally:
        probe.close()
    if offered < API_OLDEST:
        raise EngineRefused(
            f"cannot use the engine: its API {_text(offered)} is older than {_text(API_OLDEST)}",
            "install Docker Engine 20.10 or newer",
            status=400,
        )
    return api_client(socket_path, timeout_s, _text(min(offered, API_NEWEST)))


def _text(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _gone(verb: str, container_id: str) -> EngineRefused:
    return EngineRefused(f"cannot {verb} {short(container_id)}: no such container", status=404)


def _no_image(reference: str) -> ImageUnusable:
    return ImageUnusable(
        f"cannot use image '{reference}': no such image on this host", "build or load it, or name another one"
    )
