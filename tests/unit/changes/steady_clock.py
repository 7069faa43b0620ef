"""A clock that stands still until a test lets time pass."""

from datetime import datetime, timedelta

from hive_core.adapters.clock import Clock
from tests.support.plan_inputs import NOW


class SteadyClock(Clock):
    """Both clocks from one count of seconds."""

    def __init__(self) -> None:
        self._passed_s = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self._passed_s)

    def monotonic(self) -> float:
        return 1000.0 + self._passed_s

    def pass_time(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self._passed_s += seconds
