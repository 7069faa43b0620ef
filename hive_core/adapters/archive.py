"""The backup archive: a plain tar whose first member says what it is and whose last one seals it.

Written by `archive_trees` and `engine.backup`, read by `engine.restore`. Plain, because compressing costs
the daemon twenty times what hashing does and whoever wants it can pipe the file through a compressor; tar,
because an archive must be readable without hive. The seal has a fixed place at the end and the SHA-256 of all
before it, so an archive that was cut short or altered is refused before anything of it is believed.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from hive_core.domain.errors import InvalidRequest

FORMAT = 1
MANIFEST = "manifest.json"
SEAL = "end.json"
PIECE_BYTES = 1024 * 1024
MAX_MANIFEST_BYTES = 64 * 1024
_SEAL_BYTES = 32 * 1024
_TAIL_BYTES = 2 * tarfile.BLOCKSIZE
_MAX_NOTES = 100
_MAX_NOTE = 200
_COMPRESSED = {
    b"\x1f\x8b": "gzip -d",
    b"\x28\xb5\x2f\xfd": "zstd -d",
    b"\xfd7zXZ": "xz -d",
    b"BZh": "bzip2 -d",
}
_WAY_OUT = "use another copy of the backup"
_EXTENTS_IN_HEADER = 4
_EXTENTS_IN_BLOCK = 21
_OCTAL_LIMIT = 8**11
_KINDS = {
    tarfile.REGTYPE: stat.S_IFREG,
    tarfile.GNUTYPE_SPARSE: stat.S_IFREG,
    tarfile.DIRTYPE: stat.S_IFDIR,
    tarfile.SYMTYPE: stat.S_IFLNK,
}

Extent = tuple[int, int]


@dataclass(slots=True)
class Notes:
    """What a backup left out or found changing, for people: counts by kind, and the first cases in words."""

    skipped: Counter[str] = field(default_factory=Counter)
    texts: list[str] = field(default_factory=list)

    def skip(self, kind: str, path: str) -> None:
        """Count something that is not in the archive."""
        self.skipped[kind] += 1
        self.tell(f"left out {kind}", path)

    def tell(self, text: str, path: str) -> None:
        """Keep a remark on a path, if there is room for it still."""
        if len(self.texts) < _MAX_NOTES:
            self.texts.append(f"{text}: {ascii(path)[1:-1]}"[:_MAX_NOTE])


class ArchiveWriter:
    """Makes the bytes of an archive, member by member; each is handed out once, in order, and not kept."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.members = 0
        self.written_bytes = 0
        self._digest = hashlib.sha256()

    def pieces(self, *contents: bytes) -> Iterator[bytes]:
        """Pass bytes of the archive on, counted and hashed."""
        for content in contents:
            self._digest.update(content)
            self.written_bytes += len(content)
            yield content

    def header(self, member: tarfile.TarInfo) -> Iterator[bytes]:
        """Yield the header of a member; its content has to follow, padded by `padding`."""
        self.members += 1
        yield from self.pieces(_encoded(member))

    def sparse_header(self, member: tarfile.TarInfo, extents: Iterable[Extent], size: int) -> Iterator[bytes]:
        """Yield the header of a file of `size` with holes; the content that follows is that of the extents.

        `member.size` is the sum of the extents. The layout is that of GNU tar, which reads it.
        """
        self.members += 1
        member.type = tarfile.GNUTYPE_SPARSE
        left = iter(extents)
        header = bytearray(_encoded(member))
        block = memoryview(header)[-tarfile.BLOCKSIZE :]
        block[386:482] = _extent_fields(left, _EXTENTS_IN_HEADER)
        following = _extent_fields(left, _EXTENTS_IN_BLOCK)
        block[482] = any(following)
        block[483:495] = _number(size)
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
        yield from self.pieces(bytes(header))
        while any(following):
            fields, following = following, _extent_fields(left, _EXTENTS_IN_BLOCK)
            more = bytes([any(following)]) + bytes(tarfile.BLOCKSIZE - len(fields) - 1)
            yield from self.pieces(fields + more)

    def padding(self, size: int) -> Iterator[bytes]:
        """Yield what fills a content of `size` up to a whole block."""
        if size % tarfile.BLOCKSIZE:
            yield from self.pieces(bytes(-size % tarfile.BLOCKSIZE))

    def document(self, name: str, content: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield a whole member that is a JSON document."""
        text = json.dumps(content, indent=1).encode("ascii") + b"\n"
        yield from self.header(_document(name, len(text)))
        yield from self.pieces(text)
        yield from self.padding(len(text))

    def seal(self) -> Iterator[bytes]:
        """Yield the last member and the end of the archive."""
        content = {
            "sha256": self._digest.hexdigest(),
            "members": self.members,
            "skipped": dict(self.notes.skipped),
            "notes": self.notes.texts,
        }
        text = json.dumps(content).encode("ascii").ljust(_SEAL_BYTES - 1) + b"\n"
        yield from self.pieces(_encoded(_document(SEAL, len(text))), text, bytes(_TAIL_BYTES))


def _document(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    return member


def _encoded(member: tarfile.TarInfo) -> bytes:
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _number(value: int) -> bytes:
    """Return a twelve-byte number field: octal, or binary with the top bit set where octal is too short."""
    return b"%011o\0" % value if value < _OCTAL_LIMIT else b"\x80" + value.to_bytes(11, "big")


def _extent_fields(extents: Iterator[Extent], count: int) -> bytes:
    fields = b"".join(_number(offset) + _number(size) for offset, size in islice(extents, count))
    return fields.ljust(24 * count, b"\0")


# ---- reading ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """One member: a regular file, a directory or a symbolic link, whose name was split and looked at."""

    parts: tuple[str, ...]
    kind: int
    uid: int
    gid: int
    mode: int
    mtime_s: int
    size: int
    link: str
    at: int
    extents: tuple[Extent, ...]

    @property
    def shown(self) -> str:
        """Its name, for messages."""
        return ascii("/".join(self.parts))[1:-1][:_MAX_NOTE]


class Archive:
    """An archive that holds what was sealed; made by `opened_archive`."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        """Raises InvalidRequest when it is no archive of ours, or not all of it is there."""
        self.path = path
        self._file = file
        self.seal = self._unsealed()
        first = next(self.members(), None)
        if first is None or first.parts != (MANIFEST,) or not 0 < first.size <= MAX_MANIFEST_BYTES:
            raise self.refused("it does not begin with its manifest")
        self.manifest = self._document(self._at(first.at, first.size))

    def members(self) -> Iterator[Member]:
        """Yield the members in order, the manifest first, without the seal."""
        self._file.seek(0)
        with (
            self._damage(),
            tarfile.open(fileobj=self._file, mode="r:", encoding="utf-8", errors="surrogateescape") as tar,
        ):
            while (found := tar.next()) is not None:
                # The library keeps every member it has read.
                tar.members.clear()  # type: ignore[attr-defined]  # not in the stubs
                if found.name == SEAL:
                    return
                yield self._checked(found)
        raise self.refused("it ends early")

    def content(self, member: Member) -> Iterator[tuple[int, bytes]]:
        """Yield a file's content as (offset in the file, bytes); what is not covered is a hole."""
        at = member.at
        for offset, size in member.extents:
            for begun in range(0, size, PIECE_BYTES):
                piece = self._at(at + begun, min(PIECE_BYTES, size - begun))
                yield offset + begun, piece
            at += size

    def refused(self, reason: str, hint: str = _WAY_OUT) -> InvalidRequest:
        """Return the error that says why this archive cannot be restored."""
        return InvalidRequest(f"cannot restore {self.path}: {reason}", hint)

    def _unsealed(self) -> Mapping[str, Any]:
        """Return the seal, once all before it has the hash it names."""
        at = self._file.seek(0, os.SEEK_END) - _SEAL_BYTES - tarfile.BLOCKSIZE - _TAIL_BYTES
        if not self._is_header_of(MANIFEST, 0):
            raise self._foreign()
        if not self._is_header_of(SEAL, at):
            raise self.refused("it was cut short")
        seal = self._document(self._at(at + tarfile.BLOCKSIZE, _SEAL_BYTES))
        digest = hashlib.sha256()
        self._file.seek(0)
        for begun in range(0, at, PIECE_BYTES):
            digest.update(self._file.read(min(PIECE_BYTES, at - begun)))
        if digest.hexdigest() != seal.get("sha256"):
            raise self.refused("it was damaged: its content does not have the hash it was sealed with")
        return seal

    def _foreign(self) -> InvalidRequest:
        self._file.seek(0)
        begin = self._file.read(8)
        for magic, command in _COMPRESSED.items():
            if begin.startswith(magic):
                return self.refused("it is compressed", f"decompress it first: {command}")
        return self.refused("it is no backup of a hive", "name a file that hivectl backup wrote")

    def _is_header_of(self, name: str, at: int) -> bool:
        if at < 0:
            return False
        self._file.seek(at)
        return self._file.read(100).rstrip(b"\0") == name.encode()

    def _at(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        content = self._file.read(size)
        if len(content) != size:
            raise self.refused("it ends early")
        return content

    def _document(self, content: bytes) -> Mapping[str, Any]:
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            raise self.refused("one of its documents cannot be read") from None
        if not isinstance(found, dict):
            raise self.refused("one of its documents is not what it must be")
        return found

    def _checked(self, found: tarfile.TarInfo) -> Member:
        parts = tuple(found.name.removesuffix("/").split("/"))
        if any(part in ("", ".", "..") for part in parts):
            raise self.refused(f"it holds a member with an unusable name: {found.name[:80]!a}")
        kind = _KINDS.get(found.type)
        if kind is None or found.pax_headers:
            raise self.refused(f"{found.name[:80]!a} in it is neither a file, a directory nor a link")
        extents = self._checked_extents(found) if kind == stat.S_IFREG else ()
        return Member(
            parts,
            kind,
            found.uid,
            found.gid,
            found.mode,
            int(found.mtime),
            found.size,
            found.linkname,
            found.offset_data,
            extents,
        )

    def _checked_extents(self, found: tarfile.TarInfo) -> tuple[Extent, ...]:
        """Return where a file has content: all of it, unless it was written with holes."""
        noted = ((0, found.size),) if found.sparse is None else cast(Iterable[Extent], found.sparse)
        extents = tuple((offset, size) for offset, size in noted if size)
        end = 0
        for offset, size in extents:
            if offset < end or size < 0:
                raise self.refused(f"the file {found.name[:80]!a} in it has impossible holes")
            end = offset + size
        if end > found.size:
            raise self.refused(f"the file {found.name[:80]!a} in it is longer than itself")
        return extents

    @contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            yield
        except (tarfile.TarError, ValueError, OverflowError, EOFError) as fault:
            raise self.refused(f"it cannot be read: {ascii(str(fault))[1:-1][:120]}") from fault


@contextmanager
def opened_archive(path: Path) -> Iterator[Archive]:
    """Hold an archive open, its seal checked. Raises InvalidRequest when it cannot be restored."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as fault:
        raise InvalidRequest(f"cannot restore {path}: {fault.strerror}", "name the backup's file") from fault
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise InvalidRequest(f"cannot restore {path}: it is no regular file", "name the backup's file")
        yield Archive(path, file)
