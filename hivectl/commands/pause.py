"""`hivectl pause` and `resume`: automation off, observation on; and on again."""

from __future__ import annotations

import typer

from hivectl.asking import ask
from hivectl.options import Output
from hivectl.output import Format, emit
from hivectl.session import begin

_PAUSED = "automation is off until hivectl resume: hive does what it is told, and nothing by itself"
_RESUMED = "automation is on"


def pause(context: typer.Context, output: Output = Format.TABLE) -> None:
    """Switch automation off; agents are still watched.

    Until resume, nothing is started, repaired or updated by itself. What runs runs on, and what you ask for
    is done.
    """
    _switch(context, "pause", output)


def resume(context: typer.Context, output: Output = Format.TABLE) -> None:
    """Switch automation on again."""
    _switch(context, "resume", output)


def _switch(context: typer.Context, word: str, output: Format) -> None:
    session = begin(context, f"{word} automation")
    answer = ask(session, "POST", f"/v1/{word}")
    emit(output, answer, human=lambda: f"{_PAUSED if answer['paused'] else _RESUMED}\n")
