"""The page of cases: none is missing, none is there twice, and every test that a row names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
PAGE = TESTS.parent / "docs" / "explanation" / "cases.md"
ROW = re.compile(r"\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|")
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
EXPECTED = [
    *(1, 2, 3, 4, 6, 8, 10, 11, 12),
    *(13, 15, 16, 17, 18, 19, 21, 22, 23, 25, 27),
    *(28, 29, 30, 32, 33, 35, 36, 37, 38, 39),
    *(40, 41, 42, 43, 45),
    *(47, 48, 49, 50, 52, 53),
    *(55, 56, 57, 59, 61, 62, 63, 64, 65),
    *(66, 68),
    *(82, 84, 85, 88, 89, 90, 92, 94),
    *(95, 97, 99, 100, 102),
]
ROWS = [found for line in PAGE.read_text(encoding="utf-8").splitlines() if (found := ROW.fullmatch(line))]


def test_every_case_is_there_once() -> None:
    assert [int(row[1]) for row in ROWS] == EXPECTED


@pytest.mark.parametrize("row", [pytest.param(row, id=row[1]) for row in ROWS])
def test_what_shows_it_exists(row: re.Match[str]) -> None:
    named = NAMED.findall(row[4])
    assert named
    assert ", ".join(f"`{path}::{name}`" for path, name in named) == row[4]
    assert [f"{path}::{name}" for path, name in named if name not in _tests_of(path)] == []


@cache
def _tests_of(path: str) -> frozenset[str]:
    """Return the names of a module's tests."""
    if not (TESTS / path).is_file():
        return frozenset()
    module = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(module) if isinstance(node, ast.FunctionDef))
