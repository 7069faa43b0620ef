"""README and tutorial, done as a reader does them: every command in order, and what it prints."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hive_fixtures import MakeHive
from tests.support.live_hive import LiveHive
from tests.unit.docs.console_blocks import Command, WrittenFile, difference, steps

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/tutorial/first-agent.md")
COMMAND_LIMIT_S = 60
SHOWN_LIMIT_S = 20
# What only looks may be asked again: what it is to show may take a moment to happen.
LOOKS = re.compile(r"hivectl (?:ps|events|logs|show|status|roster)\b")
MARK = "--- end of command"


class Reader:
    """One shell that keeps its directory and variables from command to command, as a reader's does."""

    def __init__(self, hive: LiveHive, home: Path) -> None:
        self._hive = hive
        environment = {**hive.hivectl_environment(), "HOME": str(home)}
        environment["DOCKER_HOST"] = f"unix://{hive.engine_socket}"
        environment["PATH"] = os.environ["PATH"]
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def run(self, text: str) -> tuple[int, list[str]]:
        """Run one command; return its status and the lines it printed, stderr included."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{{ {self._here(text)}\n}} </dev/null\nprintf '\\n{MARK} %s\\n' $?\n")
        self._shell.stdin.flush()
        lines: list[str] = []
        for line in self._shell.stdout:
            if line.startswith(MARK):
                return int(line.split()[-1]), [self._as_shown(one) for one in lines]
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"the shell ended in: {text}")

    def write(self, file: WrittenFile) -> None:
        """Write a file below the directory the reader is in."""
        _, where = self.run("pwd")
        target = Path(where[0]) / file.path
        target.write_text(file.content, encoding="utf-8")

    def close(self) -> None:
        """End the shell."""
        self._shell.kill()
        self._shell.communicate()

    def _here(self, text: str) -> str:
        """Return a command for this hive, whose containers' names hold its id."""
        return re.sub(r"\bh-([a-z]+)\b", lambda found: self._hive.container(found[1]), text)

    def _as_shown(self, line: str) -> str:
        return line.replace(f"h-{self._hive.id}-", "h-").replace(str(self._hive.data), "/var/lib/hive")


@pytest.fixture
def demo(make_hive: MakeHive) -> LiveHive:
    """A hive as scripts/up leaves it: ruth, alice and bob, running."""
    hive = make_hive({"hive": {"ruthless": False}, "container": {"memory": "1g"}})
    hive.start().settle()
    hive.wait_state("ruth", "running")
    for name, parent in (("alice", "ruth"), ("bob", "alice")):
        hive.hivectl("init", name, "--from", str(ROOT / "examples" / name), "--parent", parent)
        hive.hivectl("spawn", name)
    return hive


@pytest.fixture
def reader(demo: LiveHive, tmp_path: Path) -> Iterator[Reader]:
    """Somebody who has just run scripts/up, in the checkout, with an empty home."""
    reader = Reader(demo, tmp_path)
    yield reader
    reader.close()


def _do(reader: Reader, step: Command, limit_s: float) -> str:
    """Run a command; return what is wrong with how it ended or what it printed."""
    deadline = time.monotonic() + limit_s
    while True:
        status, printed = reader.run(step.text)
        if (status != 0) is not step.fails:
            return f"it ended with {status}: {printed}"
        fault = difference(step.shown, printed)
        if not fault or not LOOKS.match(step.text) or time.monotonic() > deadline:
            return fault
        time.sleep(0.2)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PAGES)
def test_a_reader_gets_what_the_page_shows(reader: Reader, name: str) -> None:
    for step in steps(ROOT / name):
        if isinstance(step, WrittenFile):
            reader.write(step)
            continue
        fault = _do(reader, step, SHOWN_LIMIT_S)
        assert not fault, f"{name}:{step.line}: {step.text}\n{fault}"
