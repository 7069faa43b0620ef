"""`hivectl wait NAME STATE` and `hivectl wait CHANGE`: return when it is so, or when it cannot become so."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated, Any

import typer

from hive_api.client import ApiError, segment
from hive_api.errors import EXIT_FAILED, ErrorCode
from hivectl.completion import complete_name
from hivectl.escape import escape
from hivectl.failure import ChangeFailed, CommandError, UsageError
from hivectl.following import EventTail, Following
from hivectl.options import Output
from hivectl.output import Format, emit
from hivectl.session import Session, begin, checked_name
from hivectl.waiting import emit_ended, ended, failure

LOOK_S = 1.0  # some states come without an event
MIN_PAUSE_S = 0.2  # a storm of events asks no faster
FOR_EVER = float("inf")
CHANGE_PREFIX = "c-"


class State(StrEnum):
    """The states of an agent, as `hivectl ps` shows them."""

    UNSPAWNED = "unspawned"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    BACKOFF = "backoff"
    CRASH_LOOPING = "crash-looping"
    FAILED = "failed"
    REMOVING = "removing"
    UNKNOWN = "unknown"


Subject = Annotated[
    str,
    typer.Argument(
        metavar="NAME|CHANGE", help="An agent's name, or a change's id.", autocompletion=complete_name
    ),
]
Wanted = Annotated[State | None, typer.Argument(metavar="STATE", help="The state the agent is to be in.")]
Timeout = Annotated[
    int | None, typer.Option("--timeout", metavar="S", help="Give up after so many seconds. Default: never.")
]


def wait(
    context: typer.Context,
    subject: Subject,
    state: Wanted = None,
    timeout: Timeout = None,
    output: Output = Format.TABLE,
) -> None:
    """Wait until an agent is in a state, or a change has ended.

    Exits 0 when it is so, 7 when the time is up, 1 when it cannot be any more: the change failed, or the
    agent is gone.
    """
    deadline = FOR_EVER if timeout is None else time.monotonic() + timeout
    if state is not None:
        session = begin(context, f"wait for {subject} to be {state}")
        _for_agent(session, checked_name(subject), state, deadline, output)
        return
    session = begin(context, f"wait for {subject}")
    if not subject.startswith(CHANGE_PREFIX):
        raise UsageError(
            "it is no change's id, and for an agent the state is missing",
            f"hivectl wait {subject} running, or hivectl wait {CHANGE_PREFIX}...",
        )
    _for_change(session, subject, deadline, output)


def _for_change(session: Session, change_id: str, deadline: float, output: Format) -> None:
    known = session.client().get(f"/v1/changes/{segment(change_id)}")
    change = ended(session, known, None if deadline == FOR_EVER else deadline)
    if change["state"] == "running":
        raise _timed_out("the change still goes on", f"see hivectl changes {change_id}")
    emit_ended(change, output)
    if change["state"] == "failed":
        fault = failure(change)
        fault.status = EXIT_FAILED  # 7 is for the waiting's own time
        raise fault


def _for_agent(session: Session, name: str, state: State, deadline: float, output: Format) -> None:
    daemon = Following(session)
    events = EventTail(daemon)
    _require(daemon, name)
    while True:
        row = _row(daemon, name)
        if row is not None and row["state"] == state:
            emit(output, row, human=lambda: f"{escape(name)} is {state}\n", names=[name])
            return
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise _timed_out(_present(name, row), f"see hivectl why {name}")
        time.sleep(min(MIN_PAUSE_S, left_s))
        events.fresh(max(0.0, min(LOOK_S, deadline - time.monotonic())))


def _row(daemon: Following, name: str) -> dict[str, Any] | None:
    """Return the agent's row; None while no pass has looked at it yet, as after a restart of the daemon."""
    for row in daemon.get("/v1/agents"):
        if row["name"] == name:
            found: dict[str, Any] = row
            return found
    try:
        _require(daemon, name)
    except ApiError as fault:
        if fault.code is ErrorCode.NOT_FOUND:
            raise CommandError(f"{name} was removed", "see hivectl events") from None
        raise
    return None


def _require(daemon: Following, name: str) -> None:
    """Refuse a name without an agent. One that no pass has looked at is there, though it cannot be shown."""
    try:
        daemon.get(f"/v1/agents/{segment(name)}")
    except ApiError as fault:
        if fault.code is not ErrorCode.CONFLICT:
            raise


def _present(name: str, row: dict[str, Any] | None) -> str:
    if row is None:
        return f"no pass has looked at {name} yet"
    reason = f" ({row['reason']})" if row.get("reason") else ""
    return f"it is {row['state']}{reason}"


def _timed_out(present: str, hint: str) -> ChangeFailed:
    return ChangeFailed(ErrorCode.TIMED_OUT, f"the time is up, and {present}", hint)
