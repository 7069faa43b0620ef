"""Sizes that readers can hold in their head; complexity is ruff's to measure (C901)."""

import ast
import tomllib
from pathlib import Path

from tests.architecture.source_tree import ROOT, package_files, parsed, python_files, shown

_MODULE_LINES = 600
_FUNCTION_LINES = 60
_LONG_FUNCTION_LINES = 30
_LONG_FUNCTION_SHARE = 0.10
_COMPLEXITY = 8

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(path: Path) -> list[Function]:
    return [node for node in ast.walk(parsed(path)) if isinstance(node, Function)]


def _lines(function: Function) -> int:
    """Lines from `def` to the end, without the docstring: explaining more must cost nothing."""
    whole = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is None:
        return whole
    return whole - ((first.end_lineno or first.lineno) - first.lineno + 1)


def _named(path: Path, function: Function) -> str:
    return f"{shown(path)}:{function.lineno} {function.name}: {_lines(function)} lines"


def test_modules_are_short() -> None:
    sizes = {shown(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    too_long = [f"{name}: {size} lines" for name, size in sizes.items() if size > _MODULE_LINES]
    assert not too_long, f"over {_MODULE_LINES} lines:\n" + "\n".join(too_long)


def test_functions_are_short() -> None:
    too_long = [
        _named(path, function)
        for path in python_files()
        for function in _functions(path)
        if _lines(function) > _FUNCTION_LINES
    ]
    assert not too_long, f"over {_FUNCTION_LINES} lines:\n" + "\n".join(too_long)


def test_long_functions_are_the_exception() -> None:
    functions = [(path, function) for path in package_files() for function in _functions(path)]
    long = [_named(path, function) for path, function in functions if _lines(function) > _LONG_FUNCTION_LINES]
    share = len(long) / max(len(functions), 1)
    assert share <= _LONG_FUNCTION_SHARE, (
        f"{len(long)} of {len(functions)} functions have over {_LONG_FUNCTION_LINES} lines:\n"
        + "\n".join(long)
    )


def test_ruff_measures_complexity() -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    ignored = [*lint["ignore"], *(code for codes in lint["per-file-ignores"].values() for code in codes)]
    assert "C90" in lint["select"]
    assert not [code for code in ignored if code.startswith("C9")]
    assert lint["mccabe"]["max-complexity"] <= _COMPLEXITY
