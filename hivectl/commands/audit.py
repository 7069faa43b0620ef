"""`hivectl audit` and `hivectl audit verify`: who asked for what, and whether that record still holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from hivectl.escape import clip, escape
from hivectl.failure import CommandError, UsageError
from hivectl.following import BATCH, Following
from hivectl.moments import ago, clock
from hivectl.options import Output
from hivectl.output import CellValue, Format, emit, json_line, table, write
from hivectl.session import Session, begin

USUAL_LIMIT = 50
FOLLOW_PAUSE_S = 1.0
VERIFY_TIMEOUT_S = 120.0  # the whole chain is read and hashed
SHOWN_TEXT_CHARS = 500
HEADER = ("WHEN", "CALLER", "OPERATION", "TARGET", "OUTCOME", "MORE")
_COLUMNS = (10, 12, 9, 9)
_OWN_COLUMN = frozenset({"at", "caller", "operation", "target", "outcome"})
_FOR_PROGRAMS = frozenset({"seq", "prev", "hash", "key"})


class Action(StrEnum):
    """What else than showing the record can be done with it."""

    VERIFY = "verify"


What = Annotated[
    Action | None, typer.Argument(metavar="verify", help="Check the whole record instead of showing it.")
]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new records.")]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", help=f"How many of the latest to show. Default: {USUAL_LIMIT}."),
]
Head = Annotated[
    str | None,
    typer.Option("--head", metavar="SEQ:HASH", help="With verify: a head kept earlier, which must be in it."),
]


def audit(
    context: typer.Context,
    what: What = None,
    follow: Follow = False,
    limit: Limit = None,
    head: Head = None,
    output: Output = Format.TABLE,
) -> None:
    """Show who asked for what, and what became of it.

    hivectl audit verify checks that the record holds, and exits 1 if not. The head is the last record: kept
    elsewhere and given to verify later, it shows that nothing up to it was changed or cut off.
    """
    if what is Action.VERIFY:
        session = begin(context, "verify the audit log")
        if follow or limit is not None:
            raise UsageError("-f and --limit are for showing records", "leave them out")
        _verify(session, head, output)
        return
    session = begin(context, "read the audit log")
    if head is not None:
        raise UsageError("--head is for verify", "hivectl audit verify --head SEQ:HASH")
    count = USUAL_LIMIT if limit is None else limit
    if follow:
        _follow(session, count, _writer(output))
        return
    answer = session.client().get("/v1/audit", {"limit": max(count, 1)})
    records = answer["records"] if count else []
    emit(output, records, human=lambda: _human(records, str(answer["head"])))


def _verify(session: Session, head: str | None, output: Format) -> None:
    query = {} if head is None else {"head": head}
    verdict = session.client(VERIFY_TIMEOUT_S).get("/v1/audit/verify", query)
    emit(output, verdict, human=lambda: _verdict(verdict))
    if not verdict["ok"]:
        hint = "keep the audit folder as it is, and compare it with a backup"
        raise CommandError(f"it does not hold: {verdict.get('fault') or 'no reason was given'}", hint)


def _verdict(verdict: dict[str, Any]) -> str:
    if not verdict["ok"]:
        return ""
    rows: list[list[CellValue]] = [
        ["the audit log holds", f"{verdict['records']} records"],
        *_dropped(str(verdict.get("start") or "")),
        ["head to keep elsewhere", str(verdict["head"])],
    ]
    return table((), rows)


def _dropped(start: str) -> list[list[CellValue]]:
    first = start.partition(":")[0]
    if first in ("", "0", "1"):
        return []
    return [["older ones were dropped", f"it begins with record {first}"]]


def _follow(session: Session, count: int, show: Callable[[list[dict[str, Any]]], None]) -> None:
    daemon = Following(session)
    # One is always asked for: its number is where following begins.
    records = daemon.get("/v1/audit", {"limit": max(count, 1)})["records"]
    seq = int(records[-1]["seq"]) if records else 0
    show(records if count else [])
    while True:
        time.sleep(FOLLOW_PAUSE_S)
        fresh = daemon.get("/v1/audit", {"after": seq, "limit": BATCH})["records"]
        if fresh:
            seq = int(fresh[-1]["seq"])
            show(fresh)


def _writer(output: Format) -> Callable[[list[dict[str, Any]]], None]:
    match output:
        case Format.TABLE:
            return lambda batch: write("".join(map(_line, batch)))
        case Format.JSONL:
            return lambda batch: write("".join(map(json_line, batch)))
        case Format.JSON | Format.NAME:
            raise UsageError(f"-f has no end, and -o {output} needs one", "use -o jsonl")


def _human(records: list[dict[str, Any]], head: str) -> str:
    if not records:
        return f"no records to show; head {escape(head)}\n"
    rows: list[list[CellValue]] = [[ago(record.get("at")), *_cells(record)] for record in records]
    return table(HEADER, rows) + f"\nhead {escape(head)}\n"


def _line(record: dict[str, Any]) -> str:
    *cells, more = map(escape, _cells(record))
    padded = [cell.ljust(size) for cell, size in zip(cells, _COLUMNS, strict=True)]
    return "   ".join([clock(record.get("at")), *padded, more]).rstrip() + "\n"


def _cells(record: dict[str, Any]) -> list[str]:
    own = [str(record.get(key) or "-") for key in ("caller", "operation", "target", "outcome")]
    return [*own, clip(escape(_more(record)), SHOWN_TEXT_CHARS)]


def _more(record: dict[str, Any]) -> str:
    hidden = _OWN_COLUMN | _FOR_PROGRAMS
    told = {key: value for key, value in record.items() if key not in hidden}
    return ", ".join(f"{key} {_as_json(value)}" for key, value in told.items())


def _as_json(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
