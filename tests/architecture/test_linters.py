"""Linters are tests: what they say is in the test's output, and nobody has to remember to run them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, shell_files, shown

_BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["ruff", "check", "--no-fix", "."], id="ruff"),
        pytest.param(["ruff", "format", "--check", "--diff", "."], id="format"),
        pytest.param(["mypy"], id="mypy"),
        pytest.param(["lint-imports", "--no-cache"], id="imports"),
    ],
)
def test_linter_has_nothing_to_say(command: list[str]) -> None:
    program, *arguments = command
    outcome = subprocess.run(
        [str(_BIN / program), *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, f"{' '.join(command)}\n{outcome.stdout}\n{outcome.stderr}"


def test_shell_scripts_parse() -> None:
    scripts = shell_files()
    assert scripts, "no shell script found: the search is broken"
    refused = []
    for script in scripts:
        outcome = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
        if outcome.returncode != 0:
            refused.append(f"{shown(script)}: {outcome.stderr.strip()}")
    assert not refused, "\n".join(refused)
