"""Rules of STYLE.md that no linter knows."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source_tree import (
    PACKAGES,
    ROOT,
    files,
    imported_modules,
    package_files,
    parsed,
    python_files,
    shell_files,
    shown,
)

# Written in halves, so that this file keeps the rules it checks.
_UNFINISHED = re.compile(
    r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error"]) + r")\b"
)
_MACHINE_PATH = re.compile(
    r"(?<![\w.$}/-])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "Us" + "ers"]) + r")/[\w.]"
)
_REGISTRY = re.compile(
    "|".join(["py" + r"pi\.org", "python" + r"hosted\.org", "deb" + r"ian\.org", "npm" + r"js\.(?:org|com)"])
)


def _matches(paths: list[Path], pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in paths:
        text = path.read_bytes().decode("utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            if pattern.search(line):
                found.append(f"{shown(path)}:{number}: {line.strip()[:100]}")
    return found


def test_nothing_is_left_unfinished() -> None:
    found = _matches([*python_files(), *shell_files()], _UNFINISHED)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "pattern", [pytest.param(_MACHINE_PATH, id="path"), pytest.param(_REGISTRY, id="registry")]
)
def test_no_file_tells_of_the_machine_it_was_written_on(pattern: re.Pattern[str]) -> None:
    found = _matches(list(files()), pattern)
    assert not found, "\n".join(found)


def _importers(module: str) -> set[str]:
    return {
        shown(path)
        for path in package_files()
        for _, name in imported_modules(path)
        if name == module or name.startswith(f"{module}.")
    }


def test_only_the_meta_adapter_imports_gitpython() -> None:
    allowed = re.compile(r"hive_core/adapters/meta(?:\.py|/.*)")
    assert not [name for name in _importers("git") if not allowed.fullmatch(name)]


def test_import_search_finds_what_is_there() -> None:
    """The rules above would hold for an empty search too."""
    assert shown(Path(__file__)) in {shown(path) for path in python_files()}
    names = {name for _, name in imported_modules(Path(__file__))}
    assert {"re", "collections.abc.Iterator", "tests.architecture.source_tree.PACKAGES"} <= names


# _typeshed exists for type checkers only; an import of it that runs fails at once.
_STANDARD = {*sys.stdlib_module_names, "_typeshed"}


@pytest.mark.parametrize(
    ("module", "others"),
    [
        pytest.param("hive_core.domain", {"hive_core.domain", "hive_api.errors"}, id="domain"),
        pytest.param("hive_agent", {"hive_agent", "hive_api.client", "hive_api.errors"}, id="agent"),
        pytest.param("hive_api.client", {"hive_api.client", "hive_api.errors"}, id="client"),
        pytest.param("hive_api.errors", {"hive_api.errors"}, id="errors"),
    ],
)
def test_standard_library_only(module: str, others: set[str]) -> None:
    """No list of forbidden packages is complete; what is allowed can be listed."""
    folder = ROOT.joinpath(*module.split("."))
    paths = [folder.with_suffix(".py")] if folder.with_suffix(".py").is_file() else package_files(module)
    assert paths
    found = []
    for path in paths:
        for line, name in imported_modules(path):
            is_other = any(name == other or name.startswith(f"{other}.") for other in others)
            if name.split(".", 1)[0] not in _STANDARD and not is_other:
                found.append(f"{shown(path)}:{line}: {name}")
    # `from hive_api import errors` reads as hive_api.errors and passes; the bare package does not.
    assert not found, "\n".join(found)


_IMPURE_CALLS = {"now", "utcnow", "today", "open", "print", "input", "urandom", "uuid4", "token_hex"}


def _called_name(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def test_planning_is_a_calculation() -> None:
    found = []
    for path in package_files("hive_core.planning"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                found.append(f"{shown(path)}:{node.lineno}: async")
            elif isinstance(node, ast.Call) and _called_name(node) in _IMPURE_CALLS:
                found.append(f"{shown(path)}:{node.lineno}: calls {_called_name(node)}()")
    assert not found, "\n".join(found)


def _skips(path: Path) -> Iterator[tuple[int, bool]]:
    """(line, has a reason) of every pytest.skip(), mark.skip and mark.skipif."""
    calls = {
        id(node.func): node
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.Attribute) or node.attr not in {
            "skip",
            "skipif",
            "importorskip",
            "xfail",
        }:
            continue
        call = calls.get(id(node))
        if call is None:
            yield node.lineno, False
            continue
        is_plain_call = isinstance(node.value, ast.Name)
        reasons = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
        if is_plain_call and node.attr in {"skip", "xfail"}:
            reasons += call.args[:1]
        yield node.lineno, any(not (isinstance(r, ast.Constant) and not r.value) for r in reasons)


def test_every_skip_has_a_reason() -> None:
    found = [
        f"{shown(path)}:{line}"
        for path in python_files()
        if path.is_relative_to(ROOT / "tests")
        for line, has_reason in _skips(path)
        if not has_reason
    ]
    assert not found, "\n".join(found)


_VAGUE = {"utils", "util", "helpers", "helper", "manager", "managers", "misc", "common", "data", "info"}


def test_modules_are_named_by_meaning() -> None:
    found = [shown(path) for path in python_files() if path.stem in _VAGUE or path.parent.name in _VAGUE]
    assert not found, "\n".join(found)


def test_every_package_is_shipped_and_documented() -> None:
    for package in PACKAGES:
        assert ast.get_docstring(parsed(ROOT / package / "__init__.py"))
