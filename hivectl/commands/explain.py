"""`hivectl explain CALLER OPERATION [TARGET]`: may this caller do that, and by which rule."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hive_api.errors import EXIT_DENIED
from hivectl.completion import complete_name
from hivectl.options import Output
from hivectl.output import Cell, CellValue, Format, Style, emit, table
from hivectl.session import begin, checked_name

Caller = Annotated[
    str,
    typer.Argument(metavar="CALLER", help="An agent's name, or operator.", autocompletion=complete_name),
]
Operation = Annotated[str, typer.Argument(metavar="OPERATION", help="For example restart or get_logs.")]
Target = Annotated[
    str | None,
    typer.Argument(metavar="TARGET", help="The agent it would be done to.", autocompletion=complete_name),
]


def explain(
    context: typer.Context,
    caller: Caller,
    operation: Operation,
    target: Target = None,
    output: Output = Format.TABLE,
) -> None:
    """Tell whether a caller may do something, and why.

    Nothing is done. Exits 0 if it is allowed, 5 if not.
    """
    session = begin(context, f"explain {operation}")
    query = {"caller": checked_name(caller), "operation": checked_name(operation)}
    if target is not None:
        query["target"] = checked_name(target)
    answer = session.client().get("/v1/explain", query)
    emit(output, answer, human=lambda: _human(answer))
    if not answer["allowed"]:
        raise typer.Exit(EXIT_DENIED)


def _human(answer: dict[str, Any]) -> str:
    style = Style.GOOD if answer["allowed"] else Style.BAD
    rows: list[list[CellValue]] = [
        ["decision", Cell(str(answer["decision"]), style)],
        ["rule", str(answer["rule"])],
    ]
    if answer.get("remedy"):
        rows.append(["allowed by", str(answer["remedy"])])
    return table((), rows)
