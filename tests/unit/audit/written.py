"""An audit log with records in it, and the ways to tamper with its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hive_core.adapters.audit import AuditLog, chain_hash

Tampering = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def written(directory: Path, count: int, **how: Any) -> AuditLog:
    """Return a log with so many records more."""
    log = AuditLog(directory, **how)
    for number in range(count):
        log.append({"operation": "kill", "target": f"agent-{number}", "caller": "uid 0"})
    return log


def segments(directory: Path) -> list[Path]:
    """Return the segment files, oldest first."""
    return sorted(directory.glob("*.jsonl"))


def tamper(directory: Path, change: Tampering) -> None:
    """Write the only segment anew with its records changed, each line as hive would write it."""
    (path,) = segments(directory)
    records = change([json.loads(line) for line in path.read_text("ascii").splitlines()])
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "ascii")


def stamped(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records numbered and chained anew from the first on."""
    before = "0" * 64
    for seq, record in enumerate(records, 1):
        record.pop("hash", None)
        record |= {"seq": seq, "prev": before}
        before = record["hash"] = chain_hash(before, record)
    return records
