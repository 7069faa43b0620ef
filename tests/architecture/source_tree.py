"""What the checks of this folder look at: the project's own files, found without git.

They work in a checkout, in an unpacked archive and beside files nobody has committed yet.
"""

import ast
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hive_api", "hive_core", "hivectl", "hive_agent")
_NOT_OURS = {"__pycache__", "build", "dist", "node_modules"}


def files() -> Iterator[Path]:
    """Every file of the project that a person wrote; nothing that a tool left behind."""
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = sorted(
            name
            for name in subfolders
            if name not in _NOT_OURS
            and not name.endswith(".egg-info")
            and (not name.startswith(".") or name == ".ci")
        )
        yield from (Path(folder) / name for name in sorted(names))


def has_shebang(path: Path, word: bytes) -> bool:
    with path.open("rb") as file:
        first_line = file.readline(200)
    return first_line.startswith(b"#!") and word in first_line


def python_files() -> list[Path]:
    return [
        path for path in files() if path.suffix == ".py" or (not path.suffix and has_shebang(path, b"python"))
    ]


def shell_files() -> list[Path]:
    return [
        path for path in files() if path.suffix == ".sh" or (not path.suffix and has_shebang(path, b"sh"))
    ]


def package_files(*packages: str) -> list[Path]:
    """The Python files of the given packages (dotted names), or of all that are shipped."""
    folders = [ROOT.joinpath(*package.split(".")) for package in packages or PACKAGES]
    return [path for path in python_files() if any(path.is_relative_to(folder) for folder in folders)]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=shown(path))


def imported_modules(path: Path) -> list[tuple[int, str]]:
    """(line, absolute dotted name) of everything the file imports, wherever in it the import stands.

    `from a.b import c` gives `a.b.c`: only the importer knows whether c is a module.
    """
    package = path.relative_to(ROOT).parent.parts
    found: list[tuple[int, str]] = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found
