"""Reads directory trees into a backup archive, those of agents among them, while they are being written.

Called by `engine.backup`. What is in an agent's tree was put there by somebody who is not trusted and may
replace any of it at any moment: so everything is opened relative to an open directory, never through a link
and never waiting, only regular files are read, and no more of one than it had when it was opened. Hive's own
trees are read the same way.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from hive_core.adapters.archive import PIECE_BYTES, ArchiveWriter, Extent
from hive_core.adapters.files import kind_of

# Two descriptors a level: deeper than any program means to go, and far below what a process may open.
MAX_DEPTH = 200
_MAX_EXTENTS = 1_000_000
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_STAT_BLOCK_BYTES = 512


@dataclass(slots=True)
class _Level:
    """A directory that is being read: where it is, and what is left of it."""

    fd: int
    path: str
    names: Iterator[str]


class TreeReader:
    """Puts trees into an archive. Memory is bounded by depth and a piece, not by what the trees hold."""

    def __init__(self, writer: ArchiveWriter, *, with_links: bool) -> None:
        """`with_links`: symbolic links are kept as links; otherwise they are left out and noted."""
        self._writer = writer
        self._notes = writer.notes
        self._with_links = with_links

    def tree(self, parent_fd: int, name: str, path: str) -> Iterator[bytes]:
        """Yield the members of a directory and all in it, as `path` in the archive; one missing is noted."""
        stack: list[_Level] = []
        device = os.fstat(parent_fd).st_dev
        try:
            yield from self._entry(parent_fd, name, path, device, stack)
            while stack:
                level = stack[-1]
                below = next(level.names, None)
                if below is None:
                    os.close(stack.pop().fd)
                else:
                    yield from self._entry(level.fd, below, f"{level.path}/{below}", device, stack)
        finally:
            for level in stack:
                os.close(level.fd)

    def file(self, fd: int, path: str) -> Iterator[bytes]:
        """Yield an open regular file as a member."""
        yield from self._content(fd, os.fstat(fd), path)

    def directory(self, path: str, mode: int, gid: int = 0) -> Iterator[bytes]:
        """Yield a directory of root's that is only there to hold others."""
        member = tarfile.TarInfo(path)
        member.type, member.mode, member.gid = tarfile.DIRTYPE, mode, gid
        yield from self._writer.header(member)

    def _entry(
        self, parent_fd: int, name: str, path: str, device: int, stack: list[_Level]
    ) -> Iterator[bytes]:
        try:
            found = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
            if found.st_dev != device:
                self._notes.skip("a mount", path)
            elif stat.S_ISDIR(found.st_mode):
                yield from self._enter(parent_fd, name, path, stack)
            elif stat.S_ISREG(found.st_mode):
                yield from self._regular(parent_fd, name, path)
            elif stat.S_ISLNK(found.st_mode) and self._with_links:
                member = _member(path, found)
                member.type, member.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=parent_fd)
                yield from self._writer.header(member)
            else:
                self._notes.skip(kind_of(found.st_mode), path)
        except OSError as fault:
            self._notes.skip(f"what could not be read ({(fault.strerror or 'error').lower()})", path)

    def _enter(self, parent_fd: int, name: str, path: str, stack: list[_Level]) -> Iterator[bytes]:
        if len(stack) >= MAX_DEPTH:
            self._notes.skip(f"a directory deeper than {MAX_DEPTH}", path)
            return
        fd = os.open(name, _DIRECTORY_FLAGS, dir_fd=parent_fd)
        stack.append(_Level(fd, path, self._names(fd, path)))
        member = _member(path, os.fstat(fd))
        member.type = tarfile.DIRTYPE
        yield from self._writer.header(member)

    def _names(self, fd: int, path: str) -> Iterator[str]:
        """Yield what is in a directory, a git repo's objects last.

        Git writes objects before it names them: read in the reverse order, every commit that is named in
        the archive is in it too, however many are made meanwhile.
        """
        objects = []
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    if entry.name == "objects":
                        objects.append(entry.name)
                    else:
                        yield entry.name
        except OSError as fault:
            self._notes.skip(f"the rest of a directory ({(fault.strerror or 'error').lower()})", path)
        yield from objects

    # ---- regular files -------------------------------------------------------------------------------------

    def _regular(self, parent_fd: int, name: str, path: str) -> Iterator[bytes]:
        fd = os.open(name, _FILE_FLAGS, dir_fd=parent_fd)
        try:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode):
                yield from self._content(fd, found, path)
            else:
                self._notes.skip(kind_of(found.st_mode), path)
        finally:
            os.close(fd)

    def _content(self, fd: int, found: os.stat_result, path: str) -> Iterator[bytes]:
        """Yield a file as long as it was when it was opened, its holes kept as holes.

        Nothing below raises: once the header is out, the content it announces has to follow.
        """
        member = _member(path, found)
        member.size = found.st_size
        extents: Iterator[Extent] = iter(((0, found.st_size),))
        if found.st_blocks * _STAT_BLOCK_BYTES < found.st_size:
            flat = _extents(fd, found.st_size)
            if len(flat) > 2 * _MAX_EXTENTS:
                self._notes.skip("a file in too many pieces", path)
                return
            member.size = sum(flat[1::2])
            extents = _pairs(flat)
            yield from self._writer.sparse_header(member, _pairs(flat), found.st_size)
        else:
            yield from self._writer.header(member)
        is_steady = True
        for offset, size in extents:
            for at in range(offset, offset + size, PIECE_BYTES):
                wanted = min(PIECE_BYTES, offset + size - at)
                content = _read(fd, at, wanted)
                is_steady = is_steady and len(content) == wanted
                yield from self._writer.pieces(content.ljust(wanted, b"\0"))
        yield from self._writer.padding(member.size)
        if not is_steady:
            self._notes.tell("became shorter while it was read, or could not be read whole", path)


def _member(path: str, found: os.stat_result) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.uid, member.gid = found.st_uid, found.st_gid
    member.mode, member.mtime = stat.S_IMODE(found.st_mode), max(0, int(found.st_mtime))
    return member


def _read(fd: int, at: int, size: int) -> bytes:
    """Return the bytes at an offset, fewer where there are no more or they cannot be read."""
    chunks = []
    try:
        while size > 0 and (chunk := os.pread(fd, size, at)):
            chunks.append(chunk)
            at, size = at + len(chunk), size - len(chunk)
    except OSError:
        pass
    return b"".join(chunks)


def _extents(fd: int, size: int) -> array[int]:
    """Return where a file has content: offset, length, offset, length, ...; all of it if that is unknown."""
    flat = array("Q")
    end = 0
    try:
        while end < size and len(flat) <= 2 * _MAX_EXTENTS:
            begun = os.lseek(fd, end, os.SEEK_DATA)
            if begun >= size:
                break
            end = min(size, os.lseek(fd, begun, os.SEEK_HOLE))
            flat.extend((begun, end - begun))
    except OSError as fault:
        # ENXIO: nothing but a hole from here on. Anything else: where its holes are cannot be told.
        return flat if fault.errno == errno.ENXIO else array("Q", (0, size))
    return flat


def _pairs(flat: array[int]) -> Iterator[Extent]:
    return zip(flat[::2], flat[1::2], strict=True)


def gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces of about PIECE_BYTES: handing each on costs the same, however small."""
    kept: list[bytes] = []
    size = 0
    for piece in pieces:
        kept.append(piece)
        size += len(piece)
        if size >= PIECE_BYTES:
            yield b"".join(kept)
            kept, size = [], 0
    yield b"".join(kept)
