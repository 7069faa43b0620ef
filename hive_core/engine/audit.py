"""The audit: who asked for which mutation, what became of it, and who was denied.

Used by the surfaces, before an operation has any effect and once its answer is known, and by `Changes` when
what was asked for has been carried out. What hive does by itself is in the events; this is the record of
callers.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hive_core.adapters.audit import AuditLog, Head, Verdict
from hive_core.adapters.clock import Clock
from hive_core.domain.errors import StoreUnusable
from hive_core.domain.events import timestamp

log = logging.getLogger("hived.audit")

DENIALS_A_MINUTE = 10
_MINUTE_S = 60.0
_HEAD_EVERY = 100
_MAX_TEXT = 500


@dataclass(slots=True)
class _Denials:
    """One caller's denials in the present minute."""

    since: float
    count: int = 0


class Audit:
    """Writes the audit log. Thread-safe."""

    def __init__(self, chain: AuditLog, clock: Clock) -> None:
        self._chain = chain
        self._clock = clock
        self._lock = threading.Lock()
        self._denials: dict[str, _Denials] = {}
        # Told of a full disk, to make room for another try; says whether it could.
        self.make_room: Callable[[], bool] = lambda: False

    def asked(self, caller: str, operation: str, target: str | None, **detail: str | bool | None) -> None:
        """Record a mutation before it has any effect; an operation that cannot be recorded is not done."""
        self._write("asked", caller, operation, target, detail)

    def answered(
        self, caller: str, operation: str, target: str | None, outcome: str, **detail: str | None
    ) -> None:
        """Record the answer: `accepted` with its change, or `refused` with its code."""
        self._write(outcome, caller, operation, target, detail)

    def ended(self, change_id: str, kind: str, outcome: str, text: str) -> None:
        """Record what became of an accepted change."""
        self._write(outcome, "hive", kind, None, {"change": change_id, "text": text[:_MAX_TEXT]})

    def denied(self, caller: str, operation: str, target: str | None, rule: str) -> None:
        """Record a denial; a caller's further ones within a minute are counted and told as one record."""
        with self._lock:
            now = self._clock.monotonic()
            known = self._denials.get(caller)
            if known is None or now - known.since >= _MINUTE_S:
                self._fold(caller, known)
                known = self._denials[caller] = _Denials(now)
            known.count += 1
            if known.count > DENIALS_A_MINUTE:
                return
        self._write("denied", caller, operation, target, {"rule": rule[:_MAX_TEXT]})

    def flush(self, *, is_last: bool = False) -> None:
        """Tell the denials that were only counted, where their minute is over; called with every pass.

        `is_last`: the daemon stops, so nobody tells the others later. What cannot be written now is kept.
        """
        with self._lock:
            now = self._clock.monotonic()
            for caller, known in tuple(self._denials.items()):
                if is_last or now - known.since >= _MINUTE_S:
                    try:
                        self._fold(caller, known)
                    except StoreUnusable as fault:
                        log.error("%s", fault.message)
                        return
                    del self._denials[caller]

    def _fold(self, caller: str, known: _Denials | None) -> None:
        if known is not None and known.count > DENIALS_A_MINUTE:
            count = known.count - DENIALS_A_MINUTE
            self._write("denied", caller, "*", None, {"rule": f"{count} further denials within a minute"})

    @property
    def head(self) -> Head:
        """The last record; keep it elsewhere, and `verify` can show that nothing after it was cut off."""
        return self._chain.head

    def verify(self, kept: Head | None) -> Verdict:
        """Walk the chain; `AuditDamaged` when it does not hold."""
        return self._chain.verify(kept)

    def records(self, after: int, limit: int) -> list[dict[str, Any]]:
        """Return up to `limit` records after a number, oldest first; with `after` negative, the last ones."""
        if after >= 0:
            found = self._chain.records(after)
            return [record for record, _ in zip(found, range(limit), strict=False)]
        return list(self._chain.records(max(0, self._chain.head.seq - limit)))

    def _write(
        self,
        outcome: str,
        caller: str,
        operation: str,
        target: str | None,
        detail: Mapping[str, str | bool | None],
    ) -> None:
        record = {
            "at": timestamp(self._clock.now()),
            "caller": caller,
            "operation": operation,
            "target": target,
            "outcome": outcome,
            **{key: value for key, value in detail.items() if value is not None},
        }
        try:
            head = self._append(record)
        except OSError as fault:
            raise StoreUnusable(
                f"cannot {operation}: it cannot be recorded in the audit log: {fault.strerror or fault}",
                "free some disk space; what cannot be recorded is not done",
            ) from fault
        if head.seq % _HEAD_EVERY == 0:
            log.info("audit head %d:%s", head.seq, head.hash)

    def _append(self, record: Mapping[str, Any]) -> Head:
        try:
            return self._chain.append(record)
        except OSError as fault:
            if fault.errno != errno.ENOSPC or not self.make_room():
                raise
            return self._chain.append(record)


def parse_head(untrusted_text: str) -> Head | None:
    """Return the head written as SEQ:HASH; None when it is not one."""
    seq, _, digest = untrusted_text.partition(":")
    is_hash = len(digest) == 64 and all(character in "0123456789abcdef" for character in digest)
    return Head(int(seq), digest) if seq.isdecimal() and len(seq) < 18 and is_hash else None
