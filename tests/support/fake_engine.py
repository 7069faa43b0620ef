"""An engine in memory: the port's second implementation, held to the real one by the contract suite.

Used by unit, property and bench tests that need thousands of containers or an engine that fails on cue. What
it answers in each state was measured on a real engine. It never sleeps: a stop is over at once unless the
test's `before_call` hook holds it up; `events` and followed logs wait on a condition that changes notify.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hive_core.domain.errors import EngineRefused, EngineUnavailable, HiveError, ImageUnusable
from hive_core.domain.observed import (
    ContainerDetail,
    EngineEvent,
    EngineState,
    EngineVersion,
    ImageFacts,
    ListedContainer,
)
from hive_core.domain.ports import ExecRequest, ExecSession
from hive_core.domain.spec import LABEL_HIVE, ContainerSpec
from tests.support.fake_container import FakeContainer, detail, listed
from tests.support.fake_exec import EXIT_KILLED, ExecAnswer, FakeExec

EXIT_TERMINATED = 143
EXIT_NO_COMMAND = 127
_UP = frozenset({EngineState.RUNNING, EngineState.PAUSED, EngineState.RESTARTING})
_EVENTS_KEPT = 256
_ID_LENGTH = 64
_LOG_TAIL_MAX = 10_000


@dataclass(frozen=True, slots=True)
class _Fault:
    error: HiveError
    after: bool


class FakeEngine:
    """The `Engine` port in memory, plus what a test does to it. Thread-safe."""

    def __init__(self, clock: Callable[[], datetime] | None = None) -> None:
        """Without a clock every change is one second after the one before."""
        self.calls: Counter[str] = Counter()
        self.before_call: Callable[[str, str], None] | None = None
        self.source_exists: Callable[[str], bool] = lambda _source: True
        self.runtime_error: Callable[[ContainerSpec], str | None] = lambda _spec: None
        self.exec_answer: Callable[[ExecRequest], ExecAnswer] = lambda _request: ExecAnswer()
        self.execs: list[FakeExec] = []
        self._containers: dict[str, FakeContainer] = {}
        self._images: dict[str, ImageFacts] = {}
        self._without_harness: set[str] = set()
        self._faults: defaultdict[str, deque[_Fault]] = defaultdict(deque)
        self._absence: EngineUnavailable | None = None
        self._events: deque[tuple[int, EngineEvent, str]] = deque(maxlen=_EVENTS_KEPT)
        self._numbers = itertools.count(1)
        self._outages = 0
        self._told_to: int | None = None
        self._clock = clock or _ticking_clock()
        self._changed = threading.Condition(threading.RLock())

    # The port.

    def version(self) -> EngineVersion:
        with self._call("version"):
            return EngineVersion(
                engine="20.10.24",
                api="1.41",
                runtime="1.1.5",
                runtime_build="1.1.5-1",
                default_runtime="runc",
                live_restore=False,
                security_options=("name=seccomp,profile=default",),
                cgroup_version="2",
                missing_limits=(),
                storage_driver="overlay2",
                root_dir="/var/lib/docker",
                kernel="6.1.0",
                time=datetime.now(UTC),
            )

    def list_containers(self, hive_id: str) -> tuple[ListedContainer, ...]:
        with self._call("list_containers"):
            ours = (one for one in self._containers.values() if one.labels.get(LABEL_HIVE) == hive_id)
            return tuple(listed(container) for container in ours)

    def inspect(self, container_id: str) -> ContainerDetail:
        with self._call("inspect", container_id):
            return detail(self._get("inspect", container_id))

    def find_by_name(self, name: str) -> ContainerDetail | None:
        with self._call("find_by_name", name):
            return next((detail(one) for one in self._containers.values() if one.name == name), None)

    def resolve_image(self, reference: str) -> ImageFacts:
        with self._call("resolve_image", reference):
            facts = self._images.get(reference)
            if facts is None:
                raise ImageUnusable(f"cannot use image '{reference}': no such image on this host")
            return facts

    def create(self, spec: ContainerSpec, labels: Mapping[str, str]) -> str:
        with self._call("create", spec.name):
            if all(facts.id != spec.image_id for facts in self._images.values()):
                raise _refused("create", spec.name, 404, f"No such image: {spec.image_id}")
            if any(container.name == spec.name for container in self._containers.values()):
                raise _refused(
                    "create", spec.name, 409, f'Conflict. The name "/{spec.name}" is already in use'
                )
            self._require_sources("create", spec.name, spec)
            return self._add(spec.name, labels, spec.image_id, spec).id

    def start(self, container_id: str) -> None:
        with self._call("start", container_id):
            container = self._get("start", container_id)
            match container.state:
                case EngineState.RUNNING | EngineState.RESTARTING:
                    return
                case EngineState.PAUSED:
                    raise _refused("start", container_id, 409, "cannot start a paused container, try unpause")
                case EngineState.DEAD | EngineState.REMOVING:
                    raise _refused("start", container_id, 409, "container is marked for removal")
                case EngineState.CREATED | EngineState.EXITED:
                    self._start(container)

    def stop(self, container_id: str, grace_s: int) -> None:
        with self._call("stop", container_id):
            container = self._get("stop", container_id)
            if container.state in _UP:
                code = EXIT_KILLED if container.ignores_term else EXIT_TERMINATED
                self._end(container, code, "kill", "die", "stop")

    def kill(self, container_id: str) -> None:
        with self._call("kill", container_id):
            container = self._get("kill", container_id)
            if container.state in _UP:
                self._end(container, EXIT_KILLED, "kill", "die")

    def pause(self, container_id: str) -> None:
        with self._call("pause", container_id):
            self._pause(self._get("pause", container_id))

    def unpause(self, container_id: str) -> None:
        with self._call("unpause", container_id):
            container = self._get("unpause", container_id)
            if container.state is not EngineState.PAUSED:
                raise _refused("unpause", container_id, 409, "container is not paused")
            container.state = EngineState.RUNNING
            self._tell("container", "unpause", container.id, container.labels)

    def remove(self, container_id: str) -> None:
        with self._call("remove", container_id):
            container = self._containers.get(container_id)
            if container is None:
                return
            if container.state in _UP:
                raise _refused("remove", container_id, 409, "cannot remove a running container")
            if container.state is EngineState.REMOVING:
                raise _refused("remove", container_id, 500, "it is still being removed")
            self._remove(container)

    def logs(self, container_id: str, tail: int, follow: bool) -> Iterator[bytes]:
        with self._call("logs", container_id):
            container = self._get("read the log of", container_id)
            if not container.keeps_log:
                raise _refused(
                    "read the log of", container_id, 501, "none is kept (its log driver is 'none')"
                )
            known = len(container.log)
            lines = b"".join(container.log).splitlines(keepends=True)
            wanted = min(max(tail, 0), _LOG_TAIL_MAX)
        return self._follow(container, lines[len(lines) - min(wanted, len(lines)) :], known, follow)

    def events(self, hive_id: str, window_s: float) -> Iterator[EngineEvent]:
        with self._call("events", hive_id):
            newest = self._events[-1][0] if self._events else 0
            since, self._told_to = self._told_to, None
            seen = newest if since is None else since
            return self._window(hive_id, seen, self._outages, time.monotonic() + window_s)

    def exec(self, container_id: str, request: ExecRequest) -> ExecSession:
        with self._call("exec", container_id):
            container = self._get("run a command in", container_id)
            if container.state is not EngineState.RUNNING:
                raise _refused("run a command in", container_id, 409, f"container is {container.state}")
            session = FakeExec(self.exec_answer(request))
            self.execs.append(session)
            return session

    # Faults.

    def fail_next(self, method: str, error: HiveError, *, times: int = 1, after: bool = False) -> None:
        """Let the next calls of a method fail; `after` does the deed first, as when an answer gets lost."""
        with self._changed:
            self._faults[method].extend(_Fault(error, after) for _ in range(times))

    def go_away(self, *, hung: bool = False) -> None:
        """Answer nothing from now on; event streams break."""
        with self._changed:
            self._absence = EngineUnavailable("cannot reach the engine: it does not answer", hung=hung)
            self._outages += 1
            self._changed.notify_all()

    def come_back(self) -> None:
        """Answer again, with everything as it was left."""
        with self._changed:
            self._absence = None

    def restart(self) -> None:
        """Restart the engine without live restore: what ran has ended, streams break, history is gone."""
        with self._changed:
            for container in self._containers.values():
                if container.state in _UP:
                    self._end(container, EXIT_TERMINATED)
            self._events.clear()
            self._outages += 1
            self._changed.notify_all()

    # What the world does to an engine behind hive's back.

    def add_image(
        self,
        reference: str,
        *,
        env_names: tuple[str, ...] = (),
        volumes: tuple[str, ...] = (),
        has_harness: bool = True,
    ) -> ImageFacts:
        """Have an image under this reference; a new one each time, as after a rebuild."""
        with self._changed:
            facts = ImageFacts(f"sha256:{self._new_id('image')}", env_names, volumes)
            self._images[reference] = self._images[facts.id] = facts
            if not has_harness:
                self._without_harness.add(facts.id)
            self._tell("image", "tag", facts.id, {})
            return facts

    def remove_image(self, reference: str) -> None:
        """Take a reference away."""
        with self._changed:
            facts = self._images.pop(reference)
            self._tell("image", "untag", facts.id, {})

    def crash(self, container_id: str, code: int = 1) -> None:
        """Let a container end by itself."""
        with self._changed:
            self._end(self._containers[container_id], code, "die")

    def run_out_of_memory(self, container_id: str) -> None:
        """Let the kernel end a container that used more memory than it may."""
        with self._changed:
            container = self._containers[container_id]
            self._end(container, EXIT_KILLED, "oom", "die")
            container.oom_killed = True

    def pause_by_hand(self, container_id: str) -> None:
        """Pause a container as somebody with the engine's own tool would."""
        with self._changed:
            self._pause(self._containers[container_id])

    def rename_by_hand(self, container_id: str, name: str) -> None:
        """Give a container another name."""
        with self._changed:
            container = self._containers[container_id]
            container.name = name
            self._tell("container", "rename", container_id, container.labels)

    def remove_by_hand(self, container_id: str) -> None:
        """Remove a container whatever it does."""
        with self._changed:
            container = self._containers[container_id]
            if container.state in _UP:
                self._end(container, EXIT_KILLED, "kill", "die")
            self._remove(container)

    def run_foreign(self, name: str, labels: Mapping[str, str]) -> str:
        """Have a running container that hive did not create, and return its id."""
        with self._changed:
            container = self._add(name, labels, "sha256:" + "0" * 64, None)
            self._start(container)
            return container.id

    def write_log(self, container_id: str, content: bytes) -> None:
        """Let a container print something."""
        with self._changed:
            self._containers[container_id].log.append(content)
            self._changed.notify_all()

    @contextmanager
    def changing(self, container_id: str) -> Iterator[FakeContainer]:
        """Lend a container for any other change (a stuck state, a foreign restart policy, ...)."""
        with self._changed:
            yield self._containers[container_id]
            self._changed.notify_all()

    def containers(self) -> tuple[FakeContainer, ...]:
        """Return every container there is, in order of creation."""
        with self._changed:
            return tuple(self._containers.values())

    # Within.

    @contextmanager
    def _call(self, method: str, target: str = "") -> Iterator[None]:
        with self._changed:
            self.calls[method] += 1
        if self.before_call is not None:
            self.before_call(method, target)
        with self._changed:
            if self._absence is not None:
                raise self._absence
            fault = self._faults[method].popleft() if self._faults[method] else None
            if fault is not None and not fault.after:
                raise fault.error
            yield
            if fault is not None:
                raise fault.error

    def _get(self, verb: str, container_id: str) -> FakeContainer:
        container = self._containers.get(container_id)
        if container is None:
            raise _refused(verb, container_id, 404, "no such container")
        return container

    def _new_id(self, kind: str) -> str:
        return hashlib.sha256(f"{kind} {next(self._numbers)}".encode()).hexdigest()

    def _add(
        self, name: str, labels: Mapping[str, str], image_id: str, spec: ContainerSpec | None
    ) -> FakeContainer:
        container = FakeContainer(
            self._new_id("container"), name, dict(labels), image_id, spec, created_at=self._clock()
        )
        self._containers[container.id] = container
        self._tell("container", "create", container.id, container.labels)
        return container

    def _require_sources(self, verb: str, target: str, spec: ContainerSpec) -> None:
        for mount in spec.mounts:
            if not self.source_exists(mount.source):
                reason = (
                    f'invalid mount config for type "bind": bind source path does not exist: {mount.source}'
                )
                raise _refused(verb, target, 400, reason)

    def _start(self, container: FakeContainer) -> None:
        if container.spec is not None:
            self._require_sources("start", container.id, container.spec)
            container.error = self.runtime_error(container.spec) or ""
        if container.error:
            container.exit_code = EXIT_NO_COMMAND
            raise _refused("start", container.id, 400, container.error)
        container.state = EngineState.RUNNING
        container.started_at, container.exit_code, container.error = self._clock(), 0, ""
        container.oom_killed = False
        container.pid = 1000 + next(self._numbers)
        self._tell("container", "start", container.id, container.labels)
        if container.image_id in self._without_harness:  # the init runs, and finds nothing to run
            self._end(container, EXIT_NO_COMMAND, "die")

    def _pause(self, container: FakeContainer) -> None:
        if container.state is not EngineState.RUNNING:
            raise _refused("pause", container.id, 409, f"container is {container.state}")
        container.state = EngineState.PAUSED
        self._tell("container", "pause", container.id, container.labels)

    def _end(self, container: FakeContainer, code: int, *actions: str) -> None:
        container.state = EngineState.EXITED
        container.finished_at, container.exit_code, container.pid = self._clock(), code, 0
        for action in actions:
            self._tell("container", action, container.id, container.labels)

    def _remove(self, container: FakeContainer) -> None:
        del self._containers[container.id]
        self._tell("container", "destroy", container.id, container.labels)

    def _tell(self, kind: str, action: str, subject: str, labels: Mapping[str, str]) -> None:
        """Record an event; images belong to every hive, which the empty id stands for."""
        of_hive = labels.get(LABEL_HIVE) if kind == "container" else ""
        if of_hive is not None:
            self._events.append((next(self._numbers), EngineEvent(kind, action, subject), of_hive))
        self._changed.notify_all()

    def _window(self, hive_id: str, seen: int, outages: int, deadline: float) -> Iterator[EngineEvent]:
        while True:
            with self._changed:
                if self._outages != outages:
                    raise EngineUnavailable("cannot follow the engine's events: the engine ended the stream")
                fresh = [entry for entry in self._events if entry[0] > seen]
                left_s = deadline - time.monotonic()
                if not fresh and left_s > 0:
                    self._changed.wait(left_s)
                    continue
                if not fresh:
                    self._told_to = seen
                    return
            seen = fresh[-1][0]
            yield from (event for _, event, of_hive in fresh if of_hive in ("", hive_id))

    def _follow(
        self, container: FakeContainer, lines: list[bytes], known: int, follow: bool
    ) -> Iterator[bytes]:
        yield from lines
        while follow:
            with self._changed:
                fresh = container.log[known:]
                known += len(fresh)
                if not fresh and container.state in _UP and container.id in self._containers:
                    self._changed.wait()
                    continue
            if not fresh:
                return
            yield from fresh


def _ticking_clock() -> Callable[[], datetime]:
    ticks = itertools.count()
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return lambda: start + timedelta(seconds=next(ticks))


def _refused(verb: str, target: str, status: int, reason: str) -> EngineRefused:
    shown = target[:12] if len(target) == _ID_LENGTH else target
    return EngineRefused(f"cannot {verb} {shown}: {reason}", status=status)
