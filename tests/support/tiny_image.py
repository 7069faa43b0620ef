"""A small image for engine tests, made of programs this host already has.

Imported by the engine fixtures: importing the real agent image costs seconds, this one a fraction of one.
It holds a shell and a few programs with the libraries they load, and an entrypoint at the path every
container spec names.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
from functools import cache
from pathlib import Path

from docker.api.client import APIClient

LABEL = "dev.hive.test"
PROGRAMS = ("sh", "cat", "chmod", "env", "grep", "head", "id", "ls", "mkdir", "rm", "seq", "sleep", "stat",
            "stty", "touch", "tr", "yes")  # fmt: skip
DIRECTORIES = ("bin", "dev", "etc", "proc", "state", "sys", "tmp", "usr", "usr/local", "usr/local/bin")
_ENTRYPOINT = b'#!/bin/sh\nexec "$@"\n'
_LIBRARY = re.compile(r"(/\S+) \(0x")


def import_image(
    client: APIClient, reference: str, changes: tuple[str, ...] = (), *, has_harness: bool = True
) -> str:
    """Import the image under `reference` ("name:tag") and return its id.

    `changes` are lines such as `ENV A=b` or `VOLUME /x`.
    """
    name, _, tag = reference.partition(":")
    client.import_image_from_data(
        tarball(has_harness),
        repository=name,
        tag=tag,
        changes=[f"LABEL {LABEL}=1", "ENV PATH=/usr/local/bin:/bin", *changes],
    )
    return str(client.inspect_image(reference)["Id"])  # type: ignore[no-untyped-call]


@cache
def tarball(has_harness: bool) -> bytes:
    """Return the image's file system as an uncompressed tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for directory in DIRECTORIES:
            _add_directory(archive, directory)
        libraries: set[str] = set()
        for program in PROGRAMS:
            path = shutil.which(program)
            if path is None:
                raise FileNotFoundError(f"cannot build the test image: no '{program}' on this host")
            _add_file(archive, f"bin/{program}", Path(path).resolve().read_bytes(), 0o755)
            libraries |= _libraries_of(os.path.realpath(path))
        for library in sorted(libraries):
            _add_file(archive, library.lstrip("/"), Path(library).read_bytes(), 0o755)
        if has_harness:
            _add_file(archive, "usr/local/bin/hive-agent", _ENTRYPOINT, 0o755)
    return buffer.getvalue()


def _libraries_of(program: str) -> set[str]:
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True, timeout=10)
    return set(_LIBRARY.findall(listed.stdout))


def _add_directory(archive: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type = tarfile.DIRTYPE
    entry.mode = 0o755
    archive.addfile(entry)


def _add_file(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(content))
