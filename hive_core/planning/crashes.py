"""Exits and crashes: what a container's end means, and when its agent may run again.

Used by `planning.containers`. Everything is derived from the recorded exits, so a restart of the daemon
changes neither a backoff nor a crash loop, and there is no counter that could disagree with the history.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hive_core.domain.agents import ContainerRecord, ExitKind, ExitRecord, Outage
from hive_core.domain.observed import ContainerDetail
from hive_core.planning.desired import CrashPolicy

_BEFORE_OUTAGE = timedelta(seconds=15)
_JITTER = 0.1


def classify_exit(
    detail: ContainerDetail,
    record: ContainerRecord | None,
    boot_at: datetime,
    outages: Sequence[Outage],
) -> ExitRecord:
    """Return the record of a container's last exit, with the kind that decides what follows.

    The finish time of a run cut off by a reboot is whatever the engine made up when it came back, so the
    boot is recognised by the start: a run that began before this boot ended with it.
    """
    finished_at = detail.finished_at or detail.created_at
    kind = _kind(detail, record, boot_at, outages, finished_at)
    return ExitRecord(
        container_id=detail.id,
        started_at=detail.started_at,
        finished_at=finished_at,
        exit_code=detail.exit_code,
        oom_killed=detail.oom_killed,
        kind=kind,
        text=_describe(detail, kind),
    )


def _kind(
    detail: ContainerDetail,
    record: ContainerRecord | None,
    boot_at: datetime,
    outages: Sequence[Outage],
    finished_at: datetime,
) -> ExitKind:
    if record is not None and _was_asked(record.stop_requested_at, detail.started_at):
        return ExitKind.REQUESTED
    if detail.started_at is not None and detail.started_at < boot_at:
        return ExitKind.HOST_RESTART
    return ExitKind.ENGINE_RESTART if _is_in_outage(finished_at, outages) else ExitKind.CRASH


def _is_in_outage(at: datetime, outages: Sequence[Outage]) -> bool:
    """Whether the engine was away at a time, or went away soon after: it ends containers before it goes."""
    return any(
        at >= outage.lost_at - _BEFORE_OUTAGE and (outage.returned_at is None or at <= outage.returned_at)
        for outage in outages
    )


def in_view_of(exits: Sequence[ExitRecord], outages: Sequence[Outage]) -> tuple[ExitRecord, ...]:
    """Return exits as they look once it is known when the engine went away.

    An engine that is told to stop ends its containers while it still answers: what was recorded as a crash,
    or as a start that failed, was the engine going.
    """
    return tuple(_told_by_outage(one) if _is_of_outage(one, outages) else one for one in exits)


def _is_of_outage(one: ExitRecord, outages: Sequence[Outage]) -> bool:
    is_failure = one.kind in (ExitKind.CRASH, ExitKind.START_FAILED)
    return is_failure and _is_in_outage(one.finished_at, outages)


def _told_by_outage(one: ExitRecord) -> ExitRecord:
    text = f"ended with a restart of the engine (exit code {one.exit_code})"
    return replace(one, kind=ExitKind.ENGINE_RESTART, text=text)


def _was_asked(stop_requested_at: datetime | None, started_at: datetime | None) -> bool:
    """Whether a stop was asked for during this very run; one from before its start is another run's."""
    return stop_requested_at is not None and (started_at is None or stop_requested_at >= started_at)


def _describe(detail: ContainerDetail, kind: ExitKind) -> str:
    match kind:
        case ExitKind.REQUESTED:
            return f"stopped on request (exit code {detail.exit_code})"
        case ExitKind.HOST_RESTART:
            return "ended with a restart of the host"
        case ExitKind.ENGINE_RESTART:
            return f"ended with a restart of the engine (exit code {detail.exit_code})"
        case ExitKind.START_FAILED:
            return f"could not be started: {detail.error}"
        case ExitKind.CRASH if detail.oom_killed:
            return f"killed: out of memory (exit code {detail.exit_code})"
        case ExitKind.CRASH if detail.exit_code == 137:
            return "killed by a signal from outside hive (exit code 137)"
        case ExitKind.CRASH:
            return f"its program ended by itself with exit code {detail.exit_code}"


@dataclass(frozen=True, slots=True)
class CrashState:
    """Where an agent stands: crashes in a row, when it may start again, whether it is looping."""

    streak: int
    start_at: datetime | None
    is_looping: bool


def crash_state(
    exits: Sequence[ExitRecord], reset_at: datetime | None, policy: CrashPolicy, now: datetime
) -> CrashState:
    """Return the crash state after `exits` (oldest first), counting those after `reset_at` only.

    Exits of a time that is yet to come are from before the clock was set back. They count no more: else
    they would outlive every reset, and stand behind each new crash as the one that decides the wait.
    """
    crashes = _streak([one for one in exits if one.finished_at <= now], reset_at, policy)
    if not crashes:
        return CrashState(0, None, False)
    last = crashes[-1]
    if _is_loop(crashes, policy):
        return CrashState(len(crashes), None, True)
    delay = min(policy.backoff_initial_s * 2 ** min(len(crashes) - 1, 30), policy.backoff_max_s)
    start_at = last.finished_at + timedelta(seconds=delay * _jitter(last))
    return CrashState(len(crashes), start_at, False)


def _streak(exits: Sequence[ExitRecord], reset_at: datetime | None, policy: CrashPolicy) -> list[ExitRecord]:
    """Return the crashes in a row at the end of the history, oldest first.

    A run long enough to count as stable starts a new streak with its own crash; any other kind of end
    clears it.
    """
    streak: list[ExitRecord] = []
    for one in exits:
        if reset_at is not None and one.finished_at <= reset_at:
            continue
        if one.kind not in (ExitKind.CRASH, ExitKind.START_FAILED):
            streak.clear()
            continue
        if (
            one.started_at is not None
            and (one.finished_at - one.started_at).total_seconds() >= policy.stable_s
        ):
            streak.clear()
        streak.append(one)
    return streak


def _is_loop(crashes: Sequence[ExitRecord], policy: CrashPolicy) -> bool:
    """Whether the last crashes came too close together. A start that fails is retried for ever instead:
    what stands in its way is outside the container and may go away.
    """
    ended = [crash for crash in crashes if crash.kind is ExitKind.CRASH]
    if len(ended) < policy.loop_count or crashes[-1].kind is not ExitKind.CRASH:
        return False
    first = ended[-policy.loop_count]
    return (ended[-1].finished_at - first.finished_at).total_seconds() <= policy.loop_window_s


def _jitter(crash: ExitRecord) -> float:
    """Return a factor within 10 % of 1, the same for the same crash, so that a plan stays repeatable."""
    digest = hashlib.sha256(f"{crash.container_id}{crash.finished_at.isoformat()}".encode()).digest()
    return 1 - _JITTER + 2 * _JITTER * digest[0] / 255
