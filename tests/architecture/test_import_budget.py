"""The commands people type all day start fast: they load nothing but the standard library and Typer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT

_HEAVY = {
    "docker",
    "fastapi",
    "git",
    "hive_core",
    "pydantic",
    "starlette",
    "uvicorn",
    "watchfiles",
    "websockets",
}
_UNREACHABLE = 3


def _loaded(arguments: list[str], socket: Path) -> tuple[int, set[str], str]:
    """Exit code, top-level names of all modules loaded, stderr, of one run of the command line."""
    outcome = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "hivectl", *arguments],
        cwd=ROOT,
        env={**os.environ, "HIVE_ADMIN_SOCKET": str(socket)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in outcome.stderr.splitlines() if line.startswith("import time:")]
    modules = {line.rsplit("|", 1)[-1].strip().split(".", 1)[0] for line in lines}
    said = "\n".join(line for line in outcome.stderr.splitlines() if line not in lines)
    return outcome.returncode, modules, said


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        pytest.param(["--help"], 0, id="help"),
        pytest.param(["ps"], _UNREACHABLE, id="ps"),
        pytest.param(["status"], _UNREACHABLE, id="status"),
    ],
)
def test_daily_commands_load_nothing_heavy(arguments: list[str], exit_code: int, tmp_path: Path) -> None:
    code, modules, said = _loaded(arguments, tmp_path / "nobody.sock")
    assert code == exit_code, said
    assert "hivectl" in modules
    assert not modules & _HEAVY
