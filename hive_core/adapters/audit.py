"""The audit log: an append-only chain of records in segment files, each bound to the one before by its hash.

Written by `engine.audit` before a mutation has an effect and once its outcome is known; read by `hivectl
audit`. The chain shows edits, reorderings and gaps. That its end was not cut off only a head kept elsewhere
can show: `head` is what to keep, and `verify` takes it back.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hive_core.adapters.files import make_dir, opened_directory, read_regular
from hive_core.domain.errors import HiveError, StoreUnusable

SEGMENT_BYTES = 4 * 1024 * 1024
_MAX_SEGMENT_BYTES = 2 * SEGMENT_BYTES
_GENESIS = "0" * 64
_SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class Head:
    """The last record's number and hash: kept outside, it proves that nothing after it was cut off."""

    seq: int
    hash: str


class AuditDamaged(HiveError):
    """The chain does not hold; the message says from which record on."""


def chain_hash(before: str, record: Mapping[str, Any]) -> str:
    """Return the hash that binds a record (without its own hash) to the one before it."""
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(f"{before}\n{canonical}".encode("ascii")).hexdigest()


class AuditLog:
    """One hive's audit directory. Thread-safe; one writer, the daemon that holds the hive's lock."""

    def __init__(self, directory: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Open or begin the log; a line that a crash left torn is moved aside into its own file."""
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        make_dir(directory, mode=0o700)
        self.torn = self._heal()
        self._head = self._find_head()

    @property
    def head(self) -> Head:
        """The last record."""
        return self._head

    def append(self, record: Mapping[str, Any]) -> Head:
        """Append a record durably and return the new head. `seq`, `prev` and `hash` are added here."""
        with self._lock:
            body = {**record, "seq": self._head.seq + 1, "prev": self._head.hash}
            digest = chain_hash(self._head.hash, body)
            line = json.dumps({**body, "hash": digest}, ensure_ascii=True) + "\n"
            self._write(line.encode("ascii"))
            self._head = Head(self._head.seq + 1, digest)
            return self._head

    def records(self, after: int = 0) -> Iterator[dict[str, Any]]:
        """Yield the records after a number, oldest first, as they stand; nothing is checked."""
        for path in self._segments():
            for line in self._lines(path):
                try:
                    record = json.loads(line)
                except ValueError:
                    raise AuditDamaged(f"audit segment {path.name} holds a line that is no record") from None
                if record.get("seq", 0) > after:
                    yield record

    def verify(self, kept: Head | None = None) -> Head:
        """Walk the whole chain and return its head; `AuditDamaged` names the first record that is wrong.

        With a head kept elsewhere, the chain must contain that very record: a log that was cut shorter, or
        written anew from some point on, does not.
        """
        head = Head(0, _GENESIS)
        is_met = kept is None or kept == head
        for record in self.records():
            head = _follow(head, record)
            is_met = is_met or head == kept
        if kept is not None and not is_met:
            raise AuditDamaged(
                f"the audit log does not contain record {kept.seq} with the hash that was kept",
                "it was cut off or written anew; compare it with a backup",
            )
        return head

    def _segments(self) -> list[Path]:
        return sorted(self._directory.glob(f"*{_SUFFIX}"))

    def _lines(self, path: Path) -> list[bytes]:
        return read_regular(path, _MAX_SEGMENT_BYTES).splitlines()

    def _write(self, line: bytes) -> None:
        segments = self._segments()
        current = segments[-1] if segments else None
        is_new = current is None or current.stat().st_size + len(line) > self._segment_bytes
        if current is None or is_new:
            current = self._directory / f"{self._head.seq + 1:012d}{_SUFFIX}"
        fd = os.open(current, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            before = os.fstat(fd).st_size
            try:
                if os.write(fd, line) != len(line):
                    raise OSError("the audit record was written in part")
                os.fdatasync(fd)
            except OSError:
                os.ftruncate(fd, before)
                raise
        finally:
            os.close(fd)
        if is_new:
            with opened_directory(self._directory) as directory_fd:
                os.fsync(directory_fd)

    def _heal(self) -> str:
        """Take a last line without its end out of the chain: it was being written when the power went."""
        segments = self._segments()
        if not segments:
            return ""
        content = read_regular(segments[-1], _MAX_SEGMENT_BYTES)
        whole = content.rfind(b"\n") + 1
        if whole == len(content):
            return ""
        aside = segments[-1].with_suffix(f".torn-{self._count_torn()}")
        aside.write_bytes(content[whole:])
        os.truncate(segments[-1], whole)
        return f"the last audit record was torn; what there was of it is kept in {aside}"

    def _count_torn(self) -> int:
        return sum(1 for _ in self._directory.glob("*.torn-*"))

    def _find_head(self) -> Head:
        for path in reversed(self._segments()):
            lines = self._lines(path)
            if lines:
                try:
                    last = json.loads(lines[-1])
                    return Head(int(last["seq"]), str(last["hash"]))
                except (ValueError, KeyError, TypeError):
                    raise StoreUnusable(
                        f"the audit log's last record in {path} cannot be read",
                        "move the audit directory aside; a new chain begins, and the old one stays evidence",
                    ) from None
        return Head(0, _GENESIS)


def _follow(head: Head, record: dict[str, Any]) -> Head:
    body = {key: value for key, value in record.items() if key != "hash"}
    if record.get("seq") != head.seq + 1:
        raise AuditDamaged(f"audit record {head.seq + 1} is missing or out of order")
    if record.get("prev") != head.hash or record.get("hash") != chain_hash(head.hash, body):
        raise AuditDamaged(f"audit record {record['seq']} does not fit the one before it")
    return Head(head.seq + 1, str(record["hash"]))
