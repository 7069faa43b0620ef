"""Waits for changes and says how they ended. Used by every command that changes something.

A change belongs to the daemon: it goes on when the waiting ends, whatever the reason, and over a restart of
the daemon. So an interrupt detaches, and a failed change is an error of this command with the change's own
reason.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import typer

from hive_api.client import segment
from hive_api.errors import ErrorCode
from hivectl.escape import clip, escape
from hivectl.failure import ChangeFailed
from hivectl.following import Following
from hivectl.moments import span
from hivectl.output import Format, emit, note
from hivectl.session import Session

LONG_POLL_S = 25
PROGRESS_POLL_S = 1  # often enough for a line that counts seconds
EXIT_INTERRUPTED = 130
_CLEAR_LINE = "\r\x1b[K"


def finish(
    session: Session, change: dict[str, Any], output: Format, no_wait: bool, *, empty: str = ""
) -> None:
    """Wait for a change unless told not to, and write the result; `ChangeFailed` if it failed.

    `empty` is what to say of a change that touched no agent.
    """
    if no_wait:
        emit(output, change, human=lambda: f"{escape(change['id'])}\n", names=[change["id"]])
        return
    final = ended(session, change)
    emit_ended(final, output, empty=empty)
    if final["state"] == "failed":
        raise failure(final)


def emit_ended(change: dict[str, Any], output: Format, *, empty: str = "") -> None:
    """Write the result of a change that has ended."""
    emit(output, change, human=lambda: successes(change, empty), names=names_of(change, "done"))


def ended(session: Session, change: dict[str, Any], deadline: float | None = None) -> dict[str, Any]:
    """Return a change once it has ended, or as it is when the (monotonic) deadline passes.

    A daemon that was there a moment ago is given the time of a restart. An interrupt ends the command.
    """
    change_id, progress = str(change["id"]), _Progress()
    daemon = Following(session, has_answered=True, say=progress.interject)
    try:
        while change["state"] == "running":
            wait_s: float = PROGRESS_POLL_S if progress.is_shown else LONG_POLL_S
            if deadline is not None:
                wait_s = min(wait_s, deadline - time.monotonic())
                if wait_s <= 0:
                    break
            change = daemon.poll(f"/v1/changes/{segment(change_id)}", {}, wait_s, _has_ended)
            progress.show(change, session.purpose)
        return change
    except KeyboardInterrupt:
        progress.clear()
        note(f"no longer waiting; the change goes on (look: hivectl changes {change_id})")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    finally:
        progress.clear()


def _has_ended(change: dict[str, Any]) -> bool:
    return bool(change["state"] != "running")


class _Progress:
    """One line on a terminal's stderr, rewritten; nothing elsewhere."""

    def __init__(self) -> None:
        self.is_shown = sys.stderr.isatty()
        self._began = time.monotonic()
        self._is_dirty = False

    def show(self, change: dict[str, Any], purpose: str) -> None:
        if not self.is_shown or _has_ended(change):
            return
        import shutil

        agents = change["agents"]
        waiting = [agent["name"] for agent in agents if agent["state"] == "pending"]
        count = f" {len(agents) - len(waiting)} of {len(agents)}" if len(agents) > 1 else ""
        line = f"{purpose}:{count} {span(time.monotonic() - self._began)}"
        if len(agents) > 1 and waiting:
            line += f", waiting for {', '.join(waiting)}"
        room = shutil.get_terminal_size().columns - 1
        sys.stderr.write(_CLEAR_LINE + clip(escape(line), room))
        sys.stderr.flush()
        self._is_dirty = True

    def interject(self, text: str) -> None:
        self.clear()
        note(text)

    def clear(self) -> None:
        if self._is_dirty:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
            self._is_dirty = False


def names_of(change: dict[str, Any], state: str) -> list[str]:
    """Return the agents whose part of a change is in that state."""
    return [agent["name"] for agent in change["agents"] if agent["state"] == state]


def agent_sentence(agent: dict[str, Any]) -> str:
    """Return what became of one agent of a change, as a sentence that names it."""
    name, text = str(agent["name"]), str(agent.get("text") or agent["state"])
    is_sentence = text.startswith((f"{name} ", "cannot "))
    return text if is_sentence else f"{name}: {text}"


def successes(change: dict[str, Any], empty: str = "") -> str:
    """Return a line for each part of a change that is done."""
    if not change["agents"] and empty and change["state"] == "done":
        return empty + "\n"
    done = [agent for agent in change["agents"] if agent["state"] == "done"]
    return "".join(f"{escape(agent_sentence(agent))}\n" for agent in done)


def failure(change: dict[str, Any]) -> ChangeFailed:
    """Return a failed change as this command's error."""
    error = change.get("error") or {}
    failed = [agent for agent in change["agents"] if agent["state"] == "failed"]
    code = _code(error.get("code"))
    hint = str(error.get("hint") or "") or f"see hivectl changes {change['id']}"
    if len(failed) > 1:
        reasons = "; ".join(agent_sentence(agent) for agent in failed)
        return ChangeFailed(code, f"{len(failed)} of {len(change['agents'])} agents failed: {reasons}", hint)
    if failed and failed[0].get("text"):
        return ChangeFailed(code, _sole_reason(failed[0]), hint)
    return ChangeFailed(code, str(error.get("message") or "the change failed"), hint)


def _sole_reason(agent: dict[str, Any]) -> str:
    return str(agent["text"]).removeprefix(f"{agent['name']}: ")


def _code(untrusted_code: object) -> ErrorCode:
    try:
        return ErrorCode(str(untrusted_code))
    except ValueError:
        return ErrorCode.FAILED
