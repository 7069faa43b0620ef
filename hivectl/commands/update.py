"""`hivectl update`: a container of the current config and image, for some agents or all that need one.

With --one-at-a-time the loop is here, not in the daemon: the operator watches it, and Ctrl-C ends it between
two agents.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hive_api.client import ClientError, Unreachable
from hive_api.errors import EXIT_FAILED
from hivectl.asking import ask
from hivectl.failure import CommandError, UsageError, describe
from hivectl.options import NoWait, OptionalNames, Output
from hivectl.output import Format, emit, note
from hivectl.session import Session, begin, checked_choice
from hivectl.waiting import emit_ended, ended, failure, finish

NOTHING = "nothing needs an update"

All = Annotated[bool, typer.Option("--all", help="Every spawned agent that needs an update, by name.")]
OneAtATime = Annotated[
    bool,
    typer.Option("--one-at-a-time", help="The next only when the one before is done; ends at a failure."),
]


def update(
    context: typer.Context,
    names: OptionalNames = None,
    everyone: All = False,
    one_at_a_time: OneAtATime = False,
    output: Output = Format.TABLE,
    no_wait: NoWait = False,
) -> None:
    """Give agents a container of their current config and image.

    In JSON that is a change, null if nothing needs an update, or with --one-at-a-time a list of changes.
    """
    session = begin(context, f"update {'all agents' if everyone else ', '.join(names or ())}".rstrip())
    chosen = checked_choice(names, is_all=everyone)
    if one_at_a_time and no_wait:
        raise UsageError(
            "--one-at-a-time waits for each agent, so --no-wait cannot be", "leave out one of them"
        )
    if everyone:
        chosen = _needing(session)
        if not chosen:
            emit(output, [] if one_at_a_time else None, human=lambda: f"{NOTHING}\n", names=[])
            return
    if one_at_a_time:
        _each(session, chosen, output)
    else:
        finish(session, _request(session, chosen), output, no_wait)


def _needing(session: Session) -> list[str]:
    rows = session.client().get("/v1/agents")
    return sorted(str(row["name"]) for row in rows if row["needs_update"] and row["desired"] != "unspawned")


def _request(session: Session, names: list[str]) -> dict[str, Any]:
    body = {"names": names, "now": False}
    change: dict[str, Any] = ask(session, "POST", "/v1/lifecycle/update", body=body)
    return change


def _each(session: Session, names: list[str], output: Format) -> None:
    """Update one after the other and tell each at once; a JSON document is written at the end."""
    changes: list[dict[str, Any]] = []
    try:
        for position, name in enumerate(names):
            try:
                _one(session, name, output, changes)
            except typer.Exit:  # an interrupt: this change goes on, the next ones are not made
                note(f"not begun: {', '.join(names[position + 1 :]) or 'none'}")
                raise
    except (ClientError, CommandError) as fault:
        raise _stopped(fault, session.purpose, names, changes) from None
    finally:
        if output is Format.JSON:
            emit(output, changes, human=str)


def _one(session: Session, name: str, output: Format, changes: list[dict[str, Any]]) -> None:
    session.purpose = f"update {name}"
    change = ended(session, _request(session, [name]))
    changes.append(change)
    if output is not Format.JSON:
        emit_ended(change, output)
    if change["state"] == "failed":
        raise failure(change)


def _stopped(
    fault: ClientError | CommandError, purpose: str, names: list[str], changes: list[dict[str, Any]]
) -> CommandError:
    """Return the error of a loop that a failure ended, with who was updated and who was not."""
    told = describe(fault, purpose)
    count = sum(change["state"] == "done" for change in changes)
    done = f"updated: {', '.join(names[:count])}" if count else "none was updated"
    stopped = CommandError(f"{told.message}; {done}; not updated: {', '.join(names[count:])}", told.hint)
    stopped.code = told.code
    is_away = isinstance(fault, Unreachable)
    stopped.status = told.status if is_away else EXIT_FAILED
    return stopped
