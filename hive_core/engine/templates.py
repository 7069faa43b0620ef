"""The built-in config repos: of the root agent, and of `init` without a folder."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

from hive_core.domain.config_files import ConfigFile, parse_config_files
from hive_core.domain.names import AgentName

ROOT = "root"
AGENT = "agent"
_PLACEHOLDER = b"@NAME@"


def template(kind: str, name: AgentName) -> tuple[ConfigFile, ...]:
    """Return the files of a built-in config repo for an agent of this name."""
    folder = files("hive_core") / "templates" / kind
    named = ((path, content.replace(_PLACEHOLDER, name.encode())) for path, content in _walk(folder, ""))
    return parse_config_files((path, content, False) for path, content in named)


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            if entry.name != "__pycache__":
                found.extend(_walk(entry, f"{path}/"))
        else:
            found.append((path, entry.read_bytes()))
    return found
