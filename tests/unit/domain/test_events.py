from datetime import UTC, datetime, timedelta, timezone

import pytest

from hive_core.domain.events import timestamp


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        pytest.param(None, None, id="unknown"),
        pytest.param(datetime(2025, 3, 1, 12, 0, tzinfo=UTC), "2025-03-01T12:00:00.000Z", id="whole-second"),
        pytest.param(
            datetime(2025, 3, 1, 12, 0, 0, 1999, tzinfo=UTC), "2025-03-01T12:00:00.001Z", id="cut-not-rounded"
        ),
        pytest.param(
            datetime(2025, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            "2025-12-31T23:59:59.999Z",
            id="end-of-year",
        ),
        pytest.param(
            datetime(2025, 3, 1, 2, 0, tzinfo=timezone(timedelta(hours=5))),
            "2025-02-28T21:00:00.000Z",
            id="zone",
        ),
    ],
)
def test_times_leave_the_daemon_as_utc_with_milliseconds(at: datetime | None, expected: str | None) -> None:
    assert timestamp(at) == expected
