"""The audit log: an append-only chain of records in segment files, each bound to the one before by its hash.

Written by `engine.audit` before a mutation has an effect and once its outcome is known; read by `hivectl
audit`. The chain shows edits, reorderings and gaps. That its end was not cut off only a head kept elsewhere
can show: `head` is what to keep, and `verify` takes it back. Old segments are dropped whole, and the chain
itself says up to where, so that nobody can pass off a deletion as that.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from hive_core.adapters.files import make_dir, opened_directory, read_regular, write_atomic
from hive_core.domain.errors import HiveError, StoreUnusable, UnsafePath

SEGMENT_BYTES = 4 * 1024 * 1024
_MAX_SEGMENT_BYTES = 2 * SEGMENT_BYTES
_GENESIS = "0" * 64
_SEGMENT = re.compile(r"[0-9]{12}\.jsonl")
# In the first record of a segment, when old ones are dropped: the number of the first record still kept.
_KEPT_FROM = "kept_from"


@dataclass(frozen=True, slots=True)
class Head:
    """A record's number and hash. The last one, kept outside, proves that nothing before it was changed."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A chain that holds: the first record that is still kept, and the last one."""

    start: Head
    head: Head

    @property
    def count(self) -> int:
        """How many records are kept."""
        return self.head.seq - self.start.seq + 1 if self.head.seq else 0


class AuditDamaged(HiveError):
    """The chain does not hold; the message says from which record on."""


def chain_hash(before: str, record: Mapping[str, Any]) -> str:
    """Return the hash that binds a record (without its own hash) to the one before it."""
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(f"{before}\n{canonical}".encode("ascii")).hexdigest()


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=True).encode("ascii")


class AuditLog:
    """One hive's audit directory. Thread-safe; one writer, the daemon that holds the hive's lock."""

    def __init__(
        self, directory: Path, segment_bytes: int = SEGMENT_BYTES, keep_segments: int | None = None
    ) -> None:
        """Open or begin the log; a line that a crash left torn is moved aside into its own file.

        Of the segments the last `keep_segments` are kept (at least 2), with None all.
        """
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._keep_segments = keep_segments
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
            segments = self._segments()
            body = {**record, "seq": self._head.seq + 1, "prev": self._head.hash}
            outlived: list[Path] = []
            if not segments or segments[-1].stat().st_size >= self._segment_bytes:
                segments.append(self._begin_segment())
                outlived = segments[: -self._keep_segments] if self._keep_segments else []
            if outlived:
                body[_KEPT_FROM] = int(segments[len(outlived)].stem)
            digest = chain_hash(self._head.hash, body)
            self._write(segments[-1], _line({**body, "hash": digest}) + b"\n")
            self._head = Head(self._head.seq + 1, digest)
            # Only once the chain says so: a crash in between leaves too much, never too little; what is left
            # goes with the next segment.
            for path in outlived:
                with suppress(OSError):
                    path.unlink()
            return self._head

    def records(self, after: int = 0) -> Iterator[dict[str, Any]]:
        """Yield the records after a number, oldest first, as they stand; nothing is checked."""
        while True:
            try:
                for _, record in self._parsed(after):
                    after = record["seq"]
                    yield record
            except FileNotFoundError:
                continue  # dropped meanwhile: go on with what is kept
            return

    def verify(self, kept: Head | None = None) -> Verdict:
        """Walk the whole chain; `AuditDamaged` names the first record that is wrong.

        The chain must contain the last record that this process wrote or found, and the head that was kept
        elsewhere, if one is given: a log that was cut shorter, or written anew from some point on, does not.
        """
        while True:
            try:
                return self._verify(self._head, kept)
            except FileNotFoundError:
                continue  # a segment was dropped meanwhile: what is kept now is another chain

    def _verify(self, own: Head, kept: Head | None) -> Verdict:
        wanted = {own} if kept is None else {own, kept}
        head = start = Head(0, _GENESIS)
        kept_from = 1
        for line, record in self._parsed(0):
            if start.seq == 0:
                head = _before(record)
                wanted.discard(head)
            head = _follow(head, line, record)
            start = start if start.seq else head
            kept_from = max(kept_from, _kept_from(record))
            wanted.discard(head)
        if start.seq > kept_from:
            raise AuditDamaged(f"audit records {kept_from} to {start.seq - 1} are missing")
        wanted.discard(Head(0, _GENESIS))
        if own != kept and own.seq < start.seq:
            wanted.discard(own)  # written to while it was read, until retention dropped that record
        for lost in wanted:
            raise _without(lost, start)
        return Verdict(start, head)

    def _segments(self) -> list[Path]:
        return sorted(path for path in self._directory.iterdir() if _SEGMENT.fullmatch(path.name))

    def _parsed(self, after: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Yield each line after a number with the record it holds, skipping segments that are older."""
        with self._lock:
            segments = self._segments()
        for path, following in zip_longest(segments, segments[1:]):
            if following is not None and int(following.stem) <= after + 1:
                continue
            for line in self._lines(path):
                record = _record(line, path)
                if record["seq"] > after:
                    yield line, record

    def _lines(self, path: Path) -> list[bytes]:
        """Return the lines of a segment, none of them half written."""
        try:
            with self._lock:
                content = read_regular(path, _MAX_SEGMENT_BYTES)
        except UnsafePath as fault:
            raise AuditDamaged(f"an audit segment cannot be used: {fault.message}") from fault
        return content.removesuffix(b"\n").split(b"\n") if content else []

    def _begin_segment(self) -> Path:
        path = self._directory / f"{self._head.seq + 1:012d}.jsonl"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        with opened_directory(self._directory) as directory_fd:
            os.fsync(directory_fd)
        return path

    def _write(self, segment: Path, line: bytes) -> None:
        fd = os.open(segment, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            before = os.fstat(fd).st_size
            try:
                left = memoryview(line)
                while left:
                    left = left[os.write(fd, left) :]
                os.fdatasync(fd)
            except OSError:
                os.ftruncate(fd, before)
                raise
        finally:
            os.close(fd)

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
        try:
            write_atomic(aside, content[whole:], 0o600)
            os.truncate(segments[-1], whole)
        except OSError as fault:
            raise StoreUnusable(
                f"cannot take the torn last record out of the audit log: {fault.strerror}",
                "free some disk space",
            ) from fault
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


def _record(line: bytes, path: Path) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict) or type(record.get("seq")) is not int:
        raise AuditDamaged(f"audit segment {path.name} holds a line that is no record")
    return record


def _before(first: dict[str, Any]) -> Head:
    """Return the head that the first kept record was appended to."""
    if first["seq"] <= 1:
        return Head(0, _GENESIS)
    return Head(first["seq"] - 1, str(first.get("prev")))


def _kept_from(record: dict[str, Any]) -> int:
    told = record.get(_KEPT_FROM)
    return told if type(told) is int else 1


def _follow(head: Head, line: bytes, record: dict[str, Any]) -> Head:
    body = {key: value for key, value in record.items() if key != "hash"}
    if record["seq"] != head.seq + 1:
        raise AuditDamaged(f"audit record {head.seq + 1} is missing or out of order")
    if record.get("prev") != head.hash or record.get("hash") != chain_hash(head.hash, body):
        raise AuditDamaged(f"audit record {record['seq']} does not fit the one before it")
    if line != _line(record):
        raise AuditDamaged(f"audit record {record['seq']} is not written as hive writes it")
    return Head(head.seq + 1, str(record["hash"]))


def _without(lost: Head, start: Head) -> AuditDamaged:
    if lost.seq < start.seq:
        return AuditDamaged(
            f"the audit log begins with record {start.seq}; record {lost.seq}, whose hash was kept, is gone",
            "verify with the head of a later record",
        )
    return AuditDamaged(
        f"the audit log does not contain record {lost.seq} with the hash that was kept",
        "it was cut off or written anew; compare it with a backup",
    )
