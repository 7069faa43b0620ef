"""The root agent's first program: it keeps the hive's watch book.

Every few seconds it looks at what the hive lets it see, the roster at
/meta/topology.json and the agents' directories below /agents, and notes what
has changed since its last look, over restarts too. What it may see is the
operator's decision and can change while it runs, so "nothing" is a normal
answer here, never an error.

/state/watch.json holds the last look, /state/watchbook.jsonl one line per event.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STATE = Path(os.environ.get("HIVE_STATE", "/state"))
META = Path(os.environ.get("HIVE_META", "/meta"))
AGENTS = Path(os.environ.get("HIVE_AGENTS", "/agents"))
LOOK_S = float(os.environ.get("LOOK_S", "10"))
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}

# The book is cut to its newer half when it passes this.
BOOK_LIMIT_BYTES = 1 << 20

Look = dict[str, Any]
Roster = dict[str, str | None]

# `roster` is None while it cannot be seen: that is not the same as a hive without agents.
FIRST_LOOK: Look = {"watches": 0, "on_watch": False, "roster": None, "within_reach": []}


def read_roster() -> Roster | None:
    """Return every agent's parent by name, or None if no roster is to be seen."""
    try:
        roster = json.loads((META / "topology.json").read_bytes())
    except (OSError, ValueError):
        return None
    if isinstance(roster, list) and all(isinstance(name, str) for name in roster):
        return dict.fromkeys(roster)
    if isinstance(roster, dict) and all(isinstance(parent, str | None) for parent in roster.values()):
        return roster
    return None


def read_within_reach() -> list[str]:
    """Return the names of the agents that have something mounted below /agents."""
    try:
        return sorted(entry.name for entry in AGENTS.iterdir())
    except OSError:
        return []


def roster_changes(before: Roster | None, after: Roster | None) -> Iterator[str]:
    """Say in words what became different between two looks at the roster."""
    if after is None:
        if before is not None:
            yield "the roster is no longer visible"
        return
    if before is None:
        yield f"the roster is visible: {', '.join(after) or 'nobody'}"
        return
    yield from (f"{name} joined, child of {after[name] or 'nobody'}" for name in after.keys() - before.keys())
    yield from (f"{name} left" for name in before.keys() - after.keys())
    for name in after.keys() & before.keys():
        if after[name] != before[name]:
            yield f"{name} moved from {before[name] or 'nobody'} to {after[name] or 'nobody'}"


def changes(before: Look, after: Look) -> list[str]:
    """Return one sentence for everything that is different between two looks."""
    seen, held = set(after["within_reach"]), set(before["within_reach"])
    return [
        *sorted(roster_changes(before["roster"], after["roster"])),
        *(f"{name} came within reach" for name in sorted(seen - held)),
        *(f"{name} is out of reach" for name in sorted(held - seen)),
    ]


def load(path: Path) -> Look:
    """Return the last look saved at `path`; a file that cannot be read as one is set aside."""
    try:
        saved = json.loads(path.read_bytes())
        if isinstance(saved, dict) and saved.keys() == FIRST_LOOK.keys():
            return saved
    except FileNotFoundError:
        return dict(FIRST_LOOK)
    except ValueError:
        pass
    path.replace(path.with_suffix(".unreadable"))
    note(f"{path.name} was unreadable: kept as {path.stem}.unreadable, looking anew")
    return dict(FIRST_LOOK)


def save(path: Path, text: str) -> None:
    """Replace `path` by `text` in one step, so that a kill leaves the old content or the new."""
    new = path.with_suffix(".new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def note(event: str) -> None:
    """Write one event into the log and into the watch book."""
    print(event, flush=True)
    book = STATE / "watchbook.jsonl"
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with book.open("a") as file:
        file.write(json.dumps({"at": at, "event": event}) + "\n")
    if book.stat().st_size > BOOK_LIMIT_BYTES:
        lines = book.read_text().splitlines(keepends=True)
        save(book, "".join(lines[len(lines) // 2 :]))


def look(before: Look) -> Look:
    """Look around once, note what changed, and save what was seen."""
    after = before | {"roster": read_roster(), "within_reach": read_within_reach()}
    for event in changes(before, after):
        note(event)
    if after != before:
        save(STATE / "watch.json", json.dumps(after, indent=2))
    return after


def begin() -> Look:
    """Open a new watch, say how the last one ended, and return what that one saw."""
    seen = load(STATE / "watch.json")
    if not seen["watches"]:
        ending = "the first"
    else:
        ending = "the last one was cut short" if seen["on_watch"] else "the last one ended in order"
    seen |= {"watches": seen["watches"] + 1, "on_watch": True}
    save(STATE / "watch.json", json.dumps(seen, indent=2))
    note(f"watch {seen['watches']} begins, {ending}")
    return seen


def main() -> None:
    """Keep watch until told to stop."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    seen = look(begin())
    if seen["roster"] is None:
        note("the roster is not visible to me")
    while signal.sigtimedwait(STOP_SIGNALS, LOOK_S) is None:
        seen = look(seen)
    save(STATE / "watch.json", json.dumps(seen | {"on_watch": False}, indent=2))
    note(f"watch {seen['watches']} ends in order")


if __name__ == "__main__":
    main()
