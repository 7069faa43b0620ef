"""Writes hive's own layer of the agent image as a tar stream.

Called by `scripts/build-image`, which puts it on top of the Debian base, and by
`image/Dockerfile`, so that both images have the same content. Runs on the
host's or the image's Python, standard library only.

The stream is a function of the sources alone: no times, no owners, no modes of
the checkout get into it, so equal sources make an equal image.
"""

import argparse
import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

LIBRARY = "usr/local/lib/hive"

# Of the wire contract only what runs on the standard library: the image has no pydantic.
WIRE_FILES = ("hive_api/__init__.py", "hive_api/errors.py", "hive_api/client.py")

# Where the daemon mounts something. They have to exist, because the root file system is
# read-only when a container starts; what is seen there is the mount, so root owns them.
MOUNT_POINTS = ("state", "home/agent", "config", "agents", "meta", "run/hive", "run/hive-secrets")

# The meta repo belongs to root and the agent's git would refuse to read it.
GITCONFIG = "[safe]\n\tdirectory = /meta\n"

# Lets agents' own programs import the client; the launcher does not read it.
PATH_FILE = "/usr/local/lib/hive\n"


def directory(name: str) -> tarfile.TarInfo:
    """Return the header of a directory that root owns and everyone may enter."""
    header = tarfile.TarInfo(name)
    header.type = tarfile.DIRTYPE
    header.mode = 0o755
    return header


def regular(name: str, size_bytes: int, mode: int = 0o644) -> tarfile.TarInfo:
    """Return the header of a regular file that root owns."""
    header = tarfile.TarInfo(name)
    header.size = size_bytes
    header.mode = mode
    return header


def entries(checkout: Path) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Yield every entry of the layer with its content, parents before children.

    Raises FileNotFoundError when a source file is missing from the checkout.
    """
    for name in (*MOUNT_POINTS, LIBRARY, f"{LIBRARY}/hive_agent", f"{LIBRARY}/hive_api"):
        yield directory(name), b""
    for source in sources(checkout):
        content = source.read_bytes()
        yield regular(f"{LIBRARY}/{source.relative_to(checkout)}", len(content)), content
    launcher = (checkout / "image/hive-agent").read_bytes()
    yield regular("usr/local/bin/hive-agent", len(launcher), 0o755), launcher
    for name, text in (("etc/gitconfig", GITCONFIG), ("usr/lib/python3/dist-packages/hive.pth", PATH_FILE)):
        yield regular(name, len(text.encode())), text.encode()


def sources(checkout: Path) -> list[Path]:
    """Return the Python files that go into the image, in a fixed order."""
    return sorted((checkout / "hive_agent").rglob("*.py")) + [checkout / name for name in WIRE_FILES]


def write(checkout: Path, target: BinaryIO) -> None:
    """Write the layer as an uncompressed tar archive to `target`."""
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for header, content in entries(checkout):
            archive.addfile(header, io.BytesIO(content))


def main() -> None:
    """Write the layer of a checkout to standard output."""
    parser = argparse.ArgumentParser(description="Write hive's layer of the agent image as a tar stream.")
    parser.add_argument("checkout", type=Path, help="the root of the source tree")
    chosen = parser.parse_args()
    layer = io.BytesIO()
    try:
        write(chosen.checkout, layer)
    except OSError as error:
        sys.exit(f"layer.py: cannot read {error.filename}: {error.strerror}")
    sys.stdout.buffer.write(layer.getvalue())


if __name__ == "__main__":
    main()
