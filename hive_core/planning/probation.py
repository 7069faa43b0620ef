"""Probation: whether a spec that an update applied has shown that it runs, or that it does not.

Used by `planning.containers`. While the spec that ran before is kept, the new one is on probation: an end
within the first seconds, or a start that fails, sends the agent back; a longer run makes it the good one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from hive_core.domain.agents import AgentRecord, ExitKind, ExitRecord
from hive_core.domain.observed import EngineState, OurContainer

PROBATION = timedelta(seconds=10)
# A program that cannot work at all mostly says so within this: an update is not called done before.
FIRST_LOOK = timedelta(seconds=2)


def failure(
    record: AgentRecord, container: OurContainer | None, exits: Sequence[ExitRecord]
) -> ExitRecord | None:
    """Return the end that shows that the applied spec does not run, None while nothing does.

    Only what came after the update counts, and only of the container made from the new spec.
    """
    since = record.crashes_reset_at
    if record.previous is None or since is None:
        return None
    is_new = container is not None and container.spec_label == record.applied_hash
    for one in reversed(exits):
        if one.finished_at <= since:
            return None
        if one.kind is ExitKind.START_FAILED:
            return one
        is_of_new = is_new and container is not None and one.container_id == container.id
        if is_of_new and one.kind is ExitKind.CRASH and _length(one) < PROBATION:
            return one
    return None


def _length(one: ExitRecord) -> timedelta:
    return timedelta() if one.started_at is None else one.finished_at - one.started_at


def proves_itself_at(record: AgentRecord, container: OurContainer) -> datetime | None:
    """Return when the applied spec has run long enough, None when it is not on probation or not running."""
    detail = container.detail
    if record.previous is None or detail is None or detail.started_at is None:
        return None
    is_new = container.spec_label == record.applied_hash
    return detail.started_at + PROBATION if is_new and container.state is EngineState.RUNNING else None
