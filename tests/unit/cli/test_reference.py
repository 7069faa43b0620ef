import subprocess
import sys
from pathlib import Path

from hivectl.application import COMMANDS

ROOT = Path(__file__).resolve().parents[3]


def test_the_reference_page_is_fresh() -> None:
    argv = [sys.executable, str(ROOT / "scripts/generate-cli-reference"), "--check"]
    ended = subprocess.run(argv, check=False, capture_output=True, timeout=20)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_the_reference_page_has_every_command() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    assert all(f"\n## {name}\n" in page for name in COMMANDS)
