"""Times as people read them. Used by every command that shows one; JSON keeps the daemon's own form."""

from __future__ import annotations

from datetime import UTC, datetime

_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 86400


def age_s(moment: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds since an RFC 3339 time; None if it is unknown or no time."""
    try:
        then = datetime.fromisoformat(moment or "")
    except ValueError:
        return None
    if then.tzinfo is None:
        return None
    return ((now or datetime.now(UTC)) - then).total_seconds()


def ago(moment: str | None, now: datetime | None = None) -> str:
    """Return "3m ago" for an RFC 3339 time, "-" if it is unknown."""
    seconds = age_s(moment, now)
    return "-" if seconds is None else f"{span(seconds)} ago"


def clock(moment: str | None) -> str:
    """Return an RFC 3339 time as date and time of day here."""
    try:
        return datetime.fromisoformat(moment or "").astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return "-"


def span(seconds: float) -> str:
    """Return a duration in its largest unit: 4s, 3m, 2h, 5d."""
    whole = max(0, int(seconds))
    if whole < _MINUTE_S:
        return f"{whole}s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S}m"
    if whole < 2 * _DAY_S:
        return f"{whole // _HOUR_S}h"
    return f"{whole // _DAY_S}d"
