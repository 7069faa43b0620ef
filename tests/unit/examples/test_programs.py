import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.harness.child import Child

CHECKOUT = Path(__file__).parents[3]
PROGRAMS = {
    "alice": "examples/alice/main.py",
    "bob": "examples/bob/main.py",
    "agent": "hive_core/templates/agent/main.py",
    "root": "hive_core/templates/root/main.py",
}
FIRST_LINE = {"alice": "at my desk", "bob": "primes below", "agent": "start 1", "root": "watch 1 begins"}
STATE_FILE = {"alice": "journal", "bob": "checkpoint", "agent": "heartbeat", "root": "watch"}

# Far longer than a test waits: what it waits for must come without a pause having ended.
LONG_S = "3600"


def program(name: str, state: Path, **environment: str) -> Child:
    return Child(
        [sys.executable, "-I", str(CHECKOUT / PROGRAMS[name])],
        environment={"HIVE_STATE": str(state), **environment},
    )


def saved(state: Path, name: str) -> Any:
    return json.loads((state / f"{name}.json").read_text())


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_ends_in_order_and_at_once_when_told(tmp_path: Path, name: str, stop: signal.Signals) -> None:
    pauses = {"LOOK_S": LONG_S, "BEAT_S": LONG_S, "PAUSE_S": LONG_S}
    with program(name, tmp_path, **pauses) as running:
        running.wait_for(FIRST_LINE[name])
        asked = time.monotonic()
        running.signal(stop)
        assert running.wait() == 0
        assert time.monotonic() - asked < 5
        assert "Traceback" not in "\n".join(running.lines)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("content", ["", "{", "[]", '{"other": 1}', "\x00" * 64], ids=ascii)
def test_sets_a_damaged_file_aside_and_begins_anew(tmp_path: Path, name: str, content: str) -> None:
    damaged = STATE_FILE[name]
    (tmp_path / f"{damaged}.json").write_text(content)
    with program(name, tmp_path) as running:
        running.wait_for(f"kept as {damaged}.unreadable")
        running.wait_for(FIRST_LINE[name])
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
    assert (tmp_path / f"{damaged}.unreadable").read_text() == content


# -- bob ---------------------------------------------------------------------------------------------------


def test_bob_counts_primes_right(tmp_path: Path) -> None:
    with program("bob", tmp_path, BATCH="100000", PAUSE_S="0") as bob:
        assert bob.wait_for("below 100,000") == "9,592 primes below 100,000"
        assert bob.wait_for("below 1,000,000") == "78,498 primes below 1,000,000"


@pytest.mark.parametrize("batch", ["1", "2", "3", "7"])
def test_bob_counts_right_in_batches_as_small_as_can_be(tmp_path: Path, batch: str) -> None:
    with program("bob", tmp_path, BATCH=batch, PAUSE_S="0") as bob:
        counts = [bob.wait_for("primes below").split() for _ in range(20)]
    for primes, _, _, below in counts:
        assert int(primes) == sum(all(n % d for d in range(2, n)) for n in range(2, int(below)))


def test_bob_goes_on_where_he_was_killed(tmp_path: Path) -> None:
    with program("bob", tmp_path, BATCH="100000", PAUSE_S="0") as bob:
        bob.wait_for("below 300,000")
        bob.signal(signal.SIGKILL)
        bob.wait()
    reached = saved(tmp_path, "checkpoint")
    assert reached["next"] >= 300_000
    with program("bob", tmp_path, BATCH="100000", PAUSE_S="0") as bob:
        assert bob.wait_for("counting from") == (
            f"counting from {reached['next']:,} with {reached['primes']:,} primes known"
        )
        if reached["next"] < 1_000_000:
            assert bob.wait_for("below 1,000,000") == "78,498 primes below 1,000,000"


# -- alice -------------------------------------------------------------------------------------------------


def drop(state: Path, name: str, text: str, age_s: float = 60) -> Path:
    note = state / "inbox" / name
    note.parent.mkdir(exist_ok=True)
    note.write_text(text)
    os.utime(note, (time.time() - age_s,) * 2)
    return note


def test_alice_reads_notes_the_oldest_first(tmp_path: Path) -> None:
    drop(tmp_path, "b.txt", "more honey, more bread, more honey\n", age_s=20)
    drop(tmp_path, "a.txt", "later\n", age_s=10)
    with program("alice", tmp_path, LOOK_S="0.01") as alice:
        alice.wait_for("read 'b.txt': 6 words, about more")
        alice.wait_for("read 'a.txt': 1 words, about later; 2 notes and 7 words so far")
        # She greets whoever finds her journal empty, once the note has settled.
        alice.wait_for("read 'welcome.txt': 13 words")
        alice.signal(signal.SIGTERM)
        assert alice.wait() == 0
    assert sorted(path.name for path in (tmp_path / "read").iterdir()) == ["a.txt", "b.txt", "welcome.txt"]
    assert list((tmp_path / "inbox").iterdir()) == []


def test_alice_neither_loses_nor_doubles_a_note_when_killed_before_it_was_moved(tmp_path: Path) -> None:
    drop(tmp_path, "a.txt", "one two three\n")
    with program("alice", tmp_path, LOOK_S=LONG_S) as alice:
        alice.wait_for("read 'a.txt'")
        alice.signal(signal.SIGTERM)
        alice.wait()
    # What a kill between the journal and the move leaves behind.
    (tmp_path / "read/a.txt").rename(tmp_path / "inbox/a.txt")
    drop(tmp_path, "b.txt", "four\n", age_s=1.5)
    with program("alice", tmp_path, LOOK_S=LONG_S) as alice:
        assert "1 notes and 3 words" in alice.wait_for("at my desk")
        alice.wait_for("read 'a.txt': 3 words, about three; 1 notes and 3 words so far (counted before")
        alice.wait_for("read 'b.txt': 1 words, about four; 2 notes and 4 words so far")
        alice.signal(signal.SIGTERM)
        alice.wait()
    assert {"a.txt", "b.txt"} <= {path.name for path in (tmp_path / "read").iterdir()}


def test_alice_counts_a_second_note_of_the_same_name_and_keeps_both(tmp_path: Path) -> None:
    drop(tmp_path, "a.txt", "one\n")
    with program("alice", tmp_path, LOOK_S="0.01") as alice:
        alice.wait_for("read 'a.txt'")
        drop(tmp_path, "a.txt", "one\n", age_s=30)
        alice.wait_for("read 'a.txt': 1 words; 2 notes and 2 words so far")
        alice.signal(signal.SIGTERM)
        alice.wait()
    assert len(list((tmp_path / "read").glob("a.txt*"))) == 2


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "large"])
def test_alice_refuses_what_is_no_note_and_goes_on(tmp_path: Path, kind: str) -> None:
    odd = tmp_path / "inbox/odd"
    odd.parent.mkdir()
    match kind:
        case "link":
            odd.symlink_to("/etc/passwd")
        case "fifo":
            os.mkfifo(odd)
        case "folder":
            odd.mkdir()
        case _:
            odd.write_bytes(bytes((1 << 20) + 1))
    os.utime(odd, (time.time() - 60,) * 2, follow_symlinks=False)
    drop(tmp_path, "z.txt", "fine\n", age_s=10)
    with program("alice", tmp_path, LOOK_S=LONG_S) as alice:
        alice.wait_for("refused 'odd': ")
        alice.wait_for("read 'z.txt'")
        alice.signal(signal.SIGTERM)
        assert alice.wait() == 0
    assert [path.name for path in (tmp_path / "refused").iterdir()] == ["odd"]


def test_alice_survives_hostile_names_and_text(tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    note = os.fsencode(inbox) + b"/\xff\x1b]0;x\x07\n"
    with open(note, "wb") as file:
        file.write(b"\x1b[31mloud \xff\x00 \x1b]52;c;x\x07 plain words\n")
    os.utime(note, (time.time() - 60,) * 2)
    with program("alice", tmp_path, LOOK_S=LONG_S) as alice:
        line = alice.wait_for("read '")
        assert line.isprintable()
        assert "about plain, words" in line
        alice.signal(signal.SIGTERM)
        assert alice.wait() == 0


# -- the templates -----------------------------------------------------------------------------------------


def test_the_default_agent_counts_its_starts_over_kills(tmp_path: Path) -> None:
    for start in (1, 2, 3):
        with program("agent", tmp_path, BEAT_S=LONG_S) as agent:
            line = agent.wait_for("last heartbeat")
            assert line.startswith(f"start {start}; ")
            assert line.endswith(": never") is (start == 1)
            # The first beat follows at once; a pause begins only after it has been saved.
            while (
                not (tmp_path / "heartbeat.json").exists() or saved(tmp_path, "heartbeat")["starts"] < start
            ):
                os.sched_yield()
            agent.signal(signal.SIGKILL)
            agent.wait()
    assert saved(tmp_path, "heartbeat")["beats"] == 3


def root_agent(tmp_path: Path) -> Child:
    for name in ("state", "meta", "agents"):
        (tmp_path / name).mkdir(exist_ok=True)
    places = {"HIVE_META": str(tmp_path / "meta"), "HIVE_AGENTS": str(tmp_path / "agents")}
    return program("root", tmp_path / "state", LOOK_S="0.01", **places)


def publish(tmp_path: Path, roster: object) -> None:
    new = tmp_path / "meta/new"
    new.write_text(json.dumps(roster))
    new.rename(tmp_path / "meta/topology.json")


def test_the_root_agent_notes_who_comes_and_goes(tmp_path: Path) -> None:
    with root_agent(tmp_path) as root:
        root.wait_for("watch 1 begins, the first")
        root.wait_for("the roster is not visible to me")
        publish(tmp_path, {"ruth": None, "alice": "ruth"})
        root.wait_for("the roster is visible: ruth, alice")
        publish(tmp_path, {"ruth": None, "alice": "ruth", "bob": "alice"})
        root.wait_for("bob joined, child of alice")
        publish(tmp_path, {"ruth": None, "bob": "ruth"})
        root.wait_for("alice left")
        root.wait_for("bob moved from alice to ruth")
        (tmp_path / "agents/bob").mkdir()
        root.wait_for("bob came within reach")
        (tmp_path / "agents/bob").rmdir()
        root.wait_for("bob is out of reach")
        publish(tmp_path, ["ruth"])
        root.wait_for("bob left")
        root.signal(signal.SIGTERM)
        assert root.wait() == 0
    book = [json.loads(line) for line in (tmp_path / "state/watchbook.jsonl").read_text().splitlines()]
    assert [entry["event"] for entry in book] == root.lines


@pytest.mark.parametrize("roster", [[1], {"a": 1}, "text", 7, [["a"]]], ids=str)
def test_the_root_agent_takes_no_nonsense_for_a_roster(tmp_path: Path, roster: object) -> None:
    (tmp_path / "meta").mkdir()
    publish(tmp_path, roster)
    with root_agent(tmp_path) as root:
        root.wait_for("the roster is not visible to me")


def test_the_root_agent_knows_over_a_kill_what_it_saw_last(tmp_path: Path) -> None:
    (tmp_path / "meta").mkdir()
    publish(tmp_path, ["ruth", "alice"])
    with root_agent(tmp_path) as root:
        root.wait_for("the roster is visible: ruth, alice")
        root.signal(signal.SIGTERM)
        root.wait()
    publish(tmp_path, ["ruth"])
    with root_agent(tmp_path) as root:
        root.wait_for("watch 2 begins, the last one ended in order")
        root.wait_for("alice left")
        root.signal(signal.SIGKILL)
        root.wait()
    with root_agent(tmp_path) as root:
        root.wait_for("watch 3 begins, the last one was cut short")


def test_the_root_agent_bounds_its_book(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    line = json.dumps({"at": "2026-01-01T00:00:00Z", "event": "x" * 60}) + "\n"
    book = tmp_path / "state/watchbook.jsonl"
    book.write_text(line * ((1 << 20) // len(line) + 1))
    before = book.stat().st_size
    with root_agent(tmp_path) as root:
        root.wait_for("the roster is not visible to me")
        root.signal(signal.SIGTERM)
        root.wait()
    assert book.stat().st_size < before * 0.6
    assert "ends in order" in book.read_text().splitlines()[-1]
