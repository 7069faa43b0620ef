"""`hivectl doctor`: does this host have what a hive needs."""

from __future__ import annotations

from typing import Any

import typer

from hive_api.errors import EXIT_FAILED
from hivectl.options import Output
from hivectl.output import Cell, CellValue, Format, Style, emit, table
from hivectl.session import begin

PROBE_TIMEOUT_S = 30.0  # some checks are made by doing the thing on the engine
_STYLES = {"ok": Style.GOOD, "warn": Style.WARN, "fail": Style.BAD}


def doctor(context: typer.Context, output: Output = Format.TABLE) -> None:
    """Check what a hive needs of this host.

    Exits 1 if a check fails.
    """
    session = begin(context, "check the host")
    report = session.client(PROBE_TIMEOUT_S).get("/v1/doctor")
    checks = report["checks"]
    failed = [str(check["name"]) for check in checks if check["status"] == "fail"]
    emit(output, report, human=lambda: _human(checks), names=failed)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _human(checks: list[dict[str, Any]]) -> str:
    rows: list[list[CellValue]] = []
    for check in checks:
        status = str(check["status"])
        rows.append([Cell(status, _STYLES.get(status)), str(check["name"]), str(check["text"])])
        if status != "ok" and check.get("hint"):
            rows.append(["", "", f"-> {check['hint']}"])
    return table((), rows)
