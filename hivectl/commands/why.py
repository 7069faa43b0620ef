"""`hivectl why NAME`: how an agent came to be as it is, in sentences."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hive_api.client import segment
from hivectl.escape import clip, escape
from hivectl.options import Name, Output
from hivectl.output import Format, emit
from hivectl.session import begin, checked_name

SHOWN_TEXT_CHARS = 2000
INDENT = "  "

Limit = Annotated[int, typer.Option("--limit", metavar="N", help="How many of the latest sentences.")]


def why(context: typer.Context, name: Name, limit: Limit = 12, output: Output = Format.TABLE) -> None:
    """Tell why an agent is as it is.

    First its present state in one sentence, then how it came to it, oldest first.
    """
    session = begin(context, f"tell why {name} is as it is")
    path = f"/v1/agents/{segment(checked_name(name))}/why"
    answer = session.client().get(path, {"limit": limit})
    emit(output, answer, human=lambda: _human(answer))


def _human(answer: dict[str, Any]) -> str:
    lines = [_shown(answer["summary"]), *(INDENT + _shown(one) for one in answer["sentences"])]
    return "".join(f"{line}\n" for line in lines)


def _shown(text: object) -> str:
    return clip(escape(str(text)), SHOWN_TEXT_CHARS)
