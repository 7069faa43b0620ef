"""Time and the boot of this host. Wall time is for records, monotonic time for waiting."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path


class Clock:
    """The host's clocks; tests hand in another one."""

    def now(self) -> datetime:
        """Return the wall time as aware UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()


def boot_time(stat: Path = Path("/proc/stat")) -> datetime:
    """Return when this host booted, to the second."""
    for line in stat.read_text(encoding="ascii").splitlines():
        if line.startswith("btime "):
            return datetime.fromtimestamp(int(line.split()[1]), UTC)
    raise OSError(f"{stat} does not tell the boot time")
