"""alice keeps a journal of the notes that are dropped into her inbox.

A note is first entered into the journal, then moved away. If she is killed in
between, the note is still in the inbox at the next start; the journal's last
entry then shows that it has been counted, and it is only moved.
"""

import json
import os
import signal
import stat
import time
from collections import Counter
from pathlib import Path
from typing import Any

STATE = Path(os.environ.get("HIVE_STATE", "/state"))
LOOK_S = float(os.environ.get("LOOK_S", "2"))
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}

INBOX, READ, REFUSED = STATE / "inbox", STATE / "read", STATE / "refused"
JOURNAL = STATE / "journal.json"

# A file that was written to less than this ago may not be finished.
SETTLED_S = 1.0
NOTE_LIMIT_BYTES = 1 << 20

# The totals cover all notes ever; of the entries only the newest are kept.
ENTRIES_KEPT = 100

WELCOME = "Whoever drops a text file into this inbox finds it in my journal.\n"

Journal = dict[str, Any]
EMPTY: Journal = {"notes": 0, "words": 0, "entries": []}


def load() -> Journal:
    """Return the journal; a file that cannot be read as one is set aside, not overwritten."""
    try:
        journal = json.loads(JOURNAL.read_bytes())
        if isinstance(journal, dict) and journal.keys() == EMPTY.keys():
            return journal
    except FileNotFoundError:
        return dict(EMPTY)
    except ValueError:
        pass
    JOURNAL.replace(JOURNAL.with_suffix(".unreadable"))
    print("the journal was unreadable: kept as journal.unreadable, beginning a new one", flush=True)
    return dict(EMPTY)


def save(journal: Journal) -> None:
    """Replace the journal in one step, so that a kill leaves the old one or the new."""
    new = JOURNAL.with_suffix(".new")
    with new.open("w") as file:
        json.dump(journal, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    new.replace(JOURNAL)


def put_away(note: Path, folder: Path) -> None:
    """Move a note out of the inbox; a namesake that already lies in `folder` is kept beside it."""
    target = folder / note.name
    if os.path.lexists(target):
        target = folder / f"{note.name[:50]}.{time.time_ns()}"
    note.rename(target)


def refusal(found: os.stat_result) -> str | None:
    """Return why something in the inbox is not a note to be read, if so."""
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    if found.st_size > NOTE_LIMIT_BYTES:
        return f"{found.st_size:,} bytes are more than I read"
    return None


def entry_of(note: Path, found: os.stat_result) -> dict[str, Any]:
    """Read a note and return its journal entry."""
    words = note.read_text(encoding="utf-8", errors="replace").lower().split()
    # Inode and time tell this file from a later one of the same name.
    identity = [note.name, found.st_ino, found.st_mtime_ns]
    telling = Counter(word for word in words if word.isalpha() and len(word) > 3)
    common = [word for word, _ in telling.most_common(3)]
    return {"note": identity, "words": len(words), "common": common}


def take(note: Path, journal: Journal) -> Journal:
    """Enter one note into the journal and put it away; return the journal as it is then."""
    try:
        found = note.lstat()
        reason = refusal(found)
        entry = {} if reason else entry_of(note, found)
    except FileNotFoundError:
        return journal
    except OSError as error:
        reason, entry = str(error.strerror).lower(), {}
    if reason:
        put_away(note, REFUSED)
        print(f"refused {note.name!r}: {reason}", flush=True)
        return journal
    known = journal["entries"][-1:] == [entry]
    if not known:
        journal = enter(entry, journal)
    put_away(note, READ)
    about = f", about {', '.join(entry['common'])}" if entry["common"] else ""
    again = " (counted before my last start)" if known else ""
    print(f"read {note.name!r}: {entry['words']} words{about}; {summary(journal)}{again}", flush=True)
    return journal


def enter(entry: dict[str, Any], journal: Journal) -> Journal:
    """Save the journal with one entry more and return it."""
    journal = {
        "notes": journal["notes"] + 1,
        "words": journal["words"] + entry["words"],
        "entries": [*journal["entries"], entry][-ENTRIES_KEPT:],
    }
    save(journal)
    return journal


def summary(journal: Journal) -> str:
    """Return the journal's totals in words."""
    return f"{journal['notes']} notes and {journal['words']} words so far"


def written_at(note: Path) -> float:
    """Return when a note was last written to; one that has just been taken away again counts as now."""
    try:
        return note.lstat().st_mtime
    except FileNotFoundError:
        return time.time()


def look(journal: Journal) -> Journal:
    """Take every settled note, the oldest first; return the journal as it is then."""
    for note in sorted(INBOX.iterdir(), key=written_at):
        if not note.name.startswith(".") and time.time() - written_at(note) >= SETTLED_S:
            journal = take(note, journal)
    return journal


def main() -> None:
    """Look into the inbox until told to stop."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    for folder in (INBOX, READ, REFUSED):
        folder.mkdir(exist_ok=True)
    journal = load()
    if journal == EMPTY:
        (INBOX / "welcome.txt").write_text(WELCOME)
    print(f"at my desk with {summary(journal)}", flush=True)
    stop = None
    while stop is None:
        journal = look(journal)
        stop = signal.sigtimedwait(STOP_SIGNALS, LOOK_S)
    print(f"leaving my desk with {summary(journal)}", flush=True)


if __name__ == "__main__":
    main()
