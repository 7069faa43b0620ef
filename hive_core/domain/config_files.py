"""The files of an agent's config: what may be in one, checked once at the edge.

The admin surface parses what an operator sent with `parse_config_files`; the git adapters hold what they
find in a repo to the same `path_fault`. One rule for both directions matters because every such path is
later written on the host by root: what git, a file system or a terminal might read differently than hive
does is refused by name.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hive_core.domain.errors import InvalidRequest

MAX_FILES = 2000
MAX_TOTAL_BYTES = 16 * 1024 * 1024
MAX_MANIFEST_BYTES = 64 * 1024
MAX_PATH_BYTES = 1024
MAX_COMPONENT_BYTES = 255
MAX_DEPTH = 32
MANIFEST = "agent.toml"

# Controls, invisible formats (one file system ignores some of them inside ".git"), surrogates, line ends.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_GIT_DIRECTORIES = frozenset({".git", "git~1"})


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A regular file of a config: a relative POSIX path, its content, and whether it may be executed."""

    path: str
    content: bytes
    executable: bool

    def __post_init__(self) -> None:
        fault = path_fault(self.path)
        if fault:
            raise InvalidRequest(
                f"cannot take file {_shown(self.path)}: {fault}", "rename or leave out the file"
            )
        if self.path == MANIFEST and len(self.content) > MAX_MANIFEST_BYTES:
            raise InvalidRequest(
                f"cannot take file {MANIFEST}: {len(self.content)} bytes, at most {MAX_MANIFEST_BYTES}",
                "keep large content in files of their own",
            )


def parse_config_files(untrusted_files: Iterable[tuple[str, bytes, bool]]) -> tuple[ConfigFile, ...]:
    """Return the files (path, content, executable) of one config in path order.

    Raises InvalidRequest naming the file that breaks a rule; stops reading at the first limit passed.
    """
    files: dict[str, ConfigFile] = {}
    total_bytes = 0
    for untrusted_path, untrusted_content, executable in untrusted_files:
        file = ConfigFile(untrusted_path, untrusted_content, executable)
        if file.path in files:
            raise InvalidRequest(f"cannot take file {_shown(file.path)}: it is there twice")
        files[file.path] = file
        total_bytes += len(file.content)
        fault = set_fault(len(files), total_bytes)
        if fault:
            raise InvalidRequest(
                f"cannot take file {_shown(file.path)}: {fault}", "a config is small; leave it out"
            )
    if not files:
        raise InvalidRequest(
            "cannot take the config: there is no file in it", f"it needs at least {MANIFEST}"
        )
    _refuse_file_as_directory(files)
    return tuple(files[path] for path in sorted(files))


def set_fault(count: int, total_bytes: int) -> str:
    """Return what is wrong with so many files of so many bytes together, "" when nothing is."""
    if count > MAX_FILES:
        return f"more than {MAX_FILES} files"
    if total_bytes > MAX_TOTAL_BYTES:
        return f"more than {MAX_TOTAL_BYTES} bytes together"
    return ""


def path_fault(untrusted_path: str) -> str:
    """Return which rule a path breaks, "" when it is a plain relative path."""
    encoded_bytes = len(untrusted_path.encode("utf-8", "surrogatepass"))
    if not untrusted_path:
        return "its path is empty"
    if encoded_bytes > MAX_PATH_BYTES:
        return f"its path has {encoded_bytes} bytes, at most {MAX_PATH_BYTES} are allowed"
    if "\\" in untrusted_path:
        return "its path has a backslash"
    if any(unicodedata.category(character) in _REFUSED_CATEGORIES for character in untrusted_path):
        return "its path has a control or invisible character"
    components = untrusted_path.split("/")
    if len(components) > MAX_DEPTH:
        return f"it lies {len(components)} levels deep, at most {MAX_DEPTH} are allowed"
    return _components_fault(components)


def _components_fault(components: Sequence[str]) -> str:
    if components[0] == "":
        return "its path is absolute"
    for component in components:
        if component in ("", ".", ".."):
            return f"its path has the component '{component}'"
        if len(component.encode()) > MAX_COMPONENT_BYTES:
            return f"its path has a component of more than {MAX_COMPONENT_BYTES} bytes"
        if _is_git_directory(component):
            return "it lies in a git directory"
    return ""


def _is_git_directory(component: str) -> bool:
    """Whether git or some file system takes it for `.git`: any case, trailing dots or blanks, a stream."""
    return component.partition(":")[0].rstrip(". ").casefold() in _GIT_DIRECTORIES


def _refuse_file_as_directory(files: Iterable[str]) -> None:
    paths = set(files)
    for path in sorted(paths):
        parts = path.split("/")
        for length in range(1, len(parts)):
            above = "/".join(parts[:length])
            if above in paths:
                raise InvalidRequest(
                    f"cannot take file {_shown(path)}: {_shown(above)} is both a file and a directory"
                )


def _shown(untrusted_path: str) -> str:
    return ascii(untrusted_path[:80])
