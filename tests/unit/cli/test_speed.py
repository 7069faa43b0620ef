import subprocess
import sys

import pytest

from tests.support.stub_admin import StubAdmin
from tests.unit.cli import answers

HEAVY = ("pydantic", "docker", "fastapi", "git", "hive_core", "rich", "websockets", "http", "ssl", "asyncio")
PROGRAM = """
import sys
from hivectl.application import run
status = run(sys.argv[1:])
loaded = [name for name in %r if name in sys.modules]
sys.stderr.write(" ".join(loaded))
sys.exit(status)
"""


@pytest.mark.parametrize("command", [["ps"], ["status"], ["--help"], ["ps", "--help"], ["ps", "-o", "json"]])
def test_fast_commands_load_nothing_heavy(admin: StubAdmin, command: list[str]) -> None:
    admin.on("GET", "/v1/agents", [answers.agent("bob")])
    admin.on("GET", "/v1/status", answers.status())
    argv = [sys.executable, "-c", PROGRAM % (HEAVY,), "--socket", str(admin.socket_path), *command]
    ended = subprocess.run(argv, check=False, capture_output=True, timeout=20)
    assert (ended.returncode, ended.stderr) == (0, b"")
