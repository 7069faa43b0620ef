"""Logs and events: the engine's one-way streams as the port wants them.

Used by the Docker adapter. Both are bounded in memory whatever the other side sends. An event stream is
bounded in time as well: a dead one cannot be told from a quiet hive, so each is read for one window that the
engine is asked to end itself; if it does not, it is not there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hive_core.adapters.docker_answers import CONTAINER_ACTIONS, IMAGE_ACTIONS, engine_event
from hive_core.adapters.docker_faults import engine_call, short
from hive_core.adapters.docker_streams import ClosableIterator, EngineStream, Wire, deframe, json_lines
from hive_core.domain.errors import EngineRefused, EngineUnavailable
from hive_core.domain.observed import EngineEvent

LOG_TAIL_MAX = 10_000
FOLLOW_EVENTS = "follow the engine's events"
_WINDOW_SLACK_S = 2.0
_EARLY_S = 0.5


def open_log(wire: Wire, inspected: Mapping[str, Any], *, tail: int, follow: bool) -> ClosableIterator[bytes]:
    """Open the log of an inspected container. The engine reads a negative tail as "everything"."""
    deed = f"read the log of {short(inspected['Id'])}"
    if inspected["HostConfig"]["LogConfig"]["Type"] == "none":
        raise EngineRefused(f"cannot {deed}: none is kept (its log driver is 'none')", status=501)
    tty = bool(inspected["Config"]["Tty"])
    lines = min(max(tail, 0), LOG_TAIL_MAX)
    query = {"stdout": "1", "stderr": "1", "tail": str(lines), "follow": str(int(follow))}
    stream = wire.open("GET", f"/containers/{inspected['Id']}/logs", deed=deed, query=query)
    silence_s = None if follow else wire.timeout_s
    return ClosableIterator(stream, lambda opened: _log_bytes(opened, silence_s, tty, deed))


def _log_bytes(stream: EngineStream, silence_s: float | None, tty: bool, deed: str) -> Iterator[bytes]:
    """A follower waits as long as the agent is silent; one that only wants what is there does not."""
    with engine_call(deed):
        chunks = iter(lambda: stream.read(silence_s), b"")
        yield from chunks if tty else (piece for _, piece in deframe(chunks))


def open_events(
    wire: Wire, hive_id: str, window_s: float, *, since: float | None, at_end: Callable[[float], None]
) -> ClosableIterator[EngineEvent]:
    """Open one window of events. A proper end calls `at_end` with its time, for the next window's `since`."""
    deadline = time.monotonic() + window_s
    now = time.time()
    until = now + window_s
    # The engine's label filter would drop image events, so it only narrows by what an event is.
    filters = {"type": ["container", "image"], "event": sorted(CONTAINER_ACTIONS | IMAGE_ACTIONS)}
    # Without a beginning the engine would repeat every event it remembers.
    times = {"since": f"{now if since is None else since:.6f}", "until": f"{until:.6f}"}
    query = {**times, "filters": json.dumps(filters)}
    stream = wire.open("GET", "/events", deed=FOLLOW_EVENTS, query=query)

    def items(opened: EngineStream) -> Iterator[EngineEvent]:
        yield from _window(opened, hive_id, deadline)
        at_end(until)

    return ClosableIterator(stream, items)


def _window(stream: EngineStream, hive_id: str, deadline: float) -> Iterator[EngineEvent]:
    with engine_call(FOLLOW_EVENTS):
        for message in json_lines(_until(stream, deadline + _WINDOW_SLACK_S)):
            event = engine_event(message, hive_id)
            if event is not None:
                yield event
    if not stream.is_closed and time.monotonic() < deadline - _EARLY_S:
        raise EngineUnavailable(f"cannot {FOLLOW_EVENTS}: the engine ended the stream early")


def _until(stream: EngineStream, deadline: float) -> Iterator[bytes]:
    """Yield chunks; a stream that is still open at the deadline has lost its engine."""
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the stream outlived its window")
        chunk = stream.read(left_s)
        if not chunk:
            return
        yield chunk
