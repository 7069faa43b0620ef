"""Long looks at the daemon that outlive its restart.

Used by `wait`, `ps -w`, `events -f`, `audit -f`, and by every wait for a change. A restart takes seconds and
changes nothing that is looked at, so it ends no look: the request is made again until the daemon is back. One
that never answered is another matter, and is told at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from hive_api.client import POLL_TIMEOUT_S, ClientError
from hivectl.asking import PATIENCE_S, PAUSE_S, is_restarting
from hivectl.output import note
from hivectl.session import Session

BATCH = 1000


class Following:
    """Reads from one daemon again and again; `say` is told when it goes away and when it is back."""

    def __init__(
        self, session: Session, *, has_answered: bool = False, say: Callable[[str], None] = note
    ) -> None:
        """`has_answered`: the daemon was there a moment ago, so its absence is a restart."""
        self._session = session
        self._has_answered = has_answered
        self._say = say

    def get(
        self, path: str, query: Mapping[str, object] | None = None, timeout_s: float = POLL_TIMEOUT_S
    ) -> Any:
        """Return the decoded JSON of `path`, asking for up to 30 s while the daemon is away."""
        away_since: float | None = None
        while True:
            try:
                answer = self._session.client(timeout_s).get(path, query)
            except ClientError as fault:
                now = time.monotonic()
                if not self._has_answered or not is_restarting(fault):
                    raise
                if away_since is None:
                    away_since = now
                    self._say(f"hived is away; asking again for up to {PATIENCE_S:g} s")
                elif now - away_since >= PATIENCE_S:
                    raise
                time.sleep(PAUSE_S)
                continue
            self._has_answered = True
            if away_since is not None:
                self._say("hived is back")
            return answer

    def poll(
        self, path: str, query: Mapping[str, object], wait_s: float, is_news: Callable[[Any], bool]
    ) -> Any:
        """Return the answer of a long poll, which the daemon may end early only for news."""
        began = time.monotonic()
        answer = self.get(path, {**query, "wait_s": wait_s})
        # A daemon that stops lets its waiters go: without this they would come back in a storm.
        if not is_news(answer) and time.monotonic() - began < wait_s / 2:
            time.sleep(min(PAUSE_S, wait_s))
        return answer


class EventTail:
    """The events from now on."""

    def __init__(self, daemon: Following, seq: int | None = None) -> None:
        """Begin after event `seq`, or after the newest one there is."""
        self._daemon = daemon
        if seq is None:
            newest = daemon.get("/v1/events", {"limit": 1})
            seq = int(newest[-1]["seq"]) if newest else 0
        self._seq = seq

    def fresh(self, wait_s: float) -> list[dict[str, Any]]:
        """Return the events since the last call, waiting up to `wait_s` for one."""
        query = {"after": self._seq, "limit": BATCH}
        events: list[dict[str, Any]] = self._daemon.poll("/v1/events", query, wait_s, bool)
        if events:
            self._seq = int(events[-1]["seq"])
        return events
