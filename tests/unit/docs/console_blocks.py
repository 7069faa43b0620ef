"""What README and tutorial show, as steps that can be run: commands with the output they promise.

Used by tests/integration/test_tutorial.py, which runs them in order, and by the tests beside this file.

A ```console block holds commands after "$ " and below each the output it prints. "..." stands for any lines,
also for none. A block whose info string has file=PATH is a file's content. A command is meant to fail exactly
if its output has an error, as in "hivectl: cannot ...".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ANY_LINES = "..."
PROMPT = "$ "
_ERROR = re.compile(r"\w+: cannot ")
_FENCE = "```"
_FILE = re.compile(r"\bfile=(\S+)")
# What differs from run to run: ids, and anything that was counted or measured.
_ID = re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{8,64}\b|\bc-[0-9a-f]{12}\b")
_SPAN = re.compile(r"\b(?:just now|\d+ ?(?:s|ms|m|h|d)(?: ago)?)(?= |$|,|;|\))")
_NUMBER = re.compile(r"\d[\d,.]*\d|\d")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file the reader is told to write."""

    line: int
    path: str
    content: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command, and the lines it is said to print."""

    line: int
    text: str
    shown: tuple[str, ...]

    @property
    def fails(self) -> bool:
        """Whether the reader is told to expect an error."""
        return any(_ERROR.match(line) for line in self.shown)


Step = WrittenFile | Command


def steps(page: Path) -> tuple[Step, ...]:
    """Return the steps of a page in order."""
    return tuple(_steps(page.read_text(encoding="utf-8")))


def _steps(text: str) -> Iterator[Step]:
    for line, label, content in blocks(text):
        named = _FILE.search(label)
        if named:
            yield WrittenFile(line, named[1], "".join(f"{one}\n" for one in content))
        elif label == "console":
            yield from _commands(line, content)


def blocks(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the line, the info string and the content of every fenced block."""
    inside: tuple[int, str, list[str]] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if inside is None and line.startswith(_FENCE):
            inside = (number, line.removeprefix(_FENCE).strip(), [])
        elif inside is not None and line == _FENCE:
            yield inside
            inside = None
        elif inside is not None:
            inside[2].append(line)
    if inside is not None:
        raise ValueError(f"line {inside[0]}: the block has no end")


def _commands(line: int, content: Sequence[str]) -> Iterator[Command]:
    if not content or not content[0].startswith(PROMPT):
        raise ValueError(f"line {line}: a console block begins with '{PROMPT}'")
    starts = [number for number, one in enumerate(content) if one.startswith(PROMPT)]
    for start, end in zip(starts, [*starts[1:], len(content)], strict=True):
        shown = tuple(one for one in content[start + 1 : end] if one)
        yield Command(line + start + 1, content[start].removeprefix(PROMPT), shown)


def normal(line: str) -> str:
    """Return a line without what differs from run to run: ids, numbers, ages, the width of columns."""
    line = _ID.sub("ID", line)
    line = _SPAN.sub("AGE", line)
    line = _NUMBER.sub("N", line)
    return " ".join(line.split())


def difference(shown: Sequence[str], printed: Sequence[str]) -> str:
    """Return how what was printed departs from what is shown, "" if it does not."""
    wanted = [normal(line) if line != ANY_LINES else ANY_LINES for line in shown]
    got = [normal(line) for line in printed if line.strip()]
    if _matches(wanted, got):
        return ""
    return "\n".join(
        ["shown:", *(f"  {line}" for line in shown), "printed:", *(f"  {line}" for line in printed)]
    )


def _matches(wanted: Sequence[str], got: Sequence[str]) -> bool:
    if not wanted:
        return not got
    if wanted[0] == ANY_LINES:
        return any(_matches(wanted[1:], got[skipped:]) for skipped in range(len(got) + 1))
    return bool(got) and wanted[0] == got[0] and _matches(wanted[1:], got[1:])
