"""`hivectl backup FILE`: the whole hive in one archive, taken while it runs.

The daemon streams it and the file is written here, with the operator's own rights. It gets its name only
when it is whole and on disk, so what has the name can be restored.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from hivectl.escape import escape
from hivectl.failure import CommandError, UsageError
from hivectl.options import Output
from hivectl.output import Format, emit
from hivectl.session import begin

BEGIN_TIMEOUT_S = 120.0  # the daemon copies its store before the first byte
MODE = 0o600
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))

File = Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the archive (tar).")]
NoState = Annotated[bool, typer.Option("--no-state", help="Leave out the agents' state and home folders.")]
WithSecrets = Annotated[bool, typer.Option("--with-secrets", help="Also the secrets, encrypted.")]
Force = Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")]


def backup(
    context: typer.Context,
    file: File,
    no_state: NoState = False,
    with_secrets: WithSecrets = False,
    force: Force = False,
    output: Output = Format.TABLE,
) -> None:
    """Write a backup of the whole hive to a file.

    It is taken while the hive runs, and holds no secrets unless --with-secrets is given.
    """
    session = begin(context, f"back up to {file}")
    _check(file, force)
    query = {"state": not no_state} | ({"with_secrets": True} if with_secrets else {})
    with session.client(BEGIN_TIMEOUT_S).stream("/v1/backup", query) as pieces:
        size_bytes = _write(file, pieces, force)
    result = {"file": str(file), "bytes": size_bytes, "state": not no_state, "secrets": with_secrets}
    emit(output, result, human=lambda: f"wrote {escape(str(file))}, {_size(size_bytes)}\n")


def _check(file: Path, force: bool) -> None:
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}", "make it, or name another one")
    try:
        mode = file.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as fault:
        raise UsageError(f"{fault.strerror}", "name another file") from None
    if not stat.S_ISREG(mode):
        raise UsageError("it exists and is no regular file", "name another one")
    if not force:
        raise UsageError("it exists", "name another file, or add --force to replace it")


def _write(file: Path, pieces: Iterable[bytes], force: bool) -> int:
    """Write the archive beside its place, then put it there; what was begun and not ended is removed."""
    partial = file.with_name(f"{file.name}.partial")
    size_bytes = 0
    with _own_errors(partial):
        with suppress(FileNotFoundError):
            partial.unlink()
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, MODE)
    try:
        try:
            for piece in pieces:
                with _own_errors(partial):
                    _write_all(descriptor, piece)
                size_bytes += len(piece)
            with _own_errors(partial):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        _check(file, force)
        with _own_errors(file):
            partial.rename(file)
            _sync_folder(file.parent)
    finally:
        partial.unlink(missing_ok=True)
    return size_bytes


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _own_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise CommandError(f"{path}: {fault.strerror or fault}", "nothing was left behind") from None


def _size(size_bytes: int) -> str:
    for unit, factor in _UNITS:
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} bytes"
