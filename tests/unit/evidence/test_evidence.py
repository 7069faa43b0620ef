"""What is kept of removed containers, for how long, and who can read it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hive_core.adapters import evidence
from hive_core.adapters.evidence import KEPT, LOG_BYTES, Evidence, EvidenceRoom
from hive_core.adapters.store import KEPT_LIVES, Store
from tests.support.plan_inputs import NOW, agent, crash

FOUND = Evidence("c" * 64, NOW, 137, True, "update", ("command", "memory"), None)


@pytest.fixture
def room(root_dir: Path, store: Store) -> EvidenceRoom:
    """An empty room; bob is alive."""
    store.add_agent(agent())
    return EvidenceRoom(root_dir / "evidence", store)


def _files(root_dir: Path) -> list[Path]:
    return sorted(path for path in (root_dir / "evidence").rglob("*") if path.is_file())


def test_an_end_and_its_log_are_kept_as_they_were(room: EvidenceRoom) -> None:
    room.keep("i-bob", FOUND, [b"one\n", b"two\x1b[31m\n"])
    (found,) = room.of("i-bob")
    assert replace(found, log_file=None) == FOUND
    assert room.log("i-bob", found) == b"one\ntwo\x1b[31m\n"


def test_only_root_can_read_it(room: EvidenceRoom, root_dir: Path) -> None:
    """Agents print secrets."""
    before = os.umask(0)
    try:
        room.keep("i-bob", FOUND, [b"secret"])
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (root_dir / "evidence").rglob("*")}
    assert modes == {0o700, 0o600}
    assert stat.S_IMODE((root_dir / "evidence").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param([], b"", id="nothing"),
        pytest.param([b"x" * LOG_BYTES], b"x" * LOG_BYTES, id="exactly-so-much"),
        pytest.param([b"a" + b"x" * LOG_BYTES], b"x" * LOG_BYTES, id="one-chunk-too-large"),
        pytest.param([b"a" * 10, b"x" * (LOG_BYTES - 4)], b"a" * 4 + b"x" * (LOG_BYTES - 4), id="cut-chunk"),
        pytest.param([b"a" * LOG_BYTES, b"x" * LOG_BYTES], b"x" * LOG_BYTES, id="the-last-of-two"),
    ],
)
def test_of_a_long_log_the_end_is_kept(room: EvidenceRoom, chunks: list[bytes], expected: bytes) -> None:
    room.keep("i-bob", FOUND, chunks)
    assert room.log("i-bob", room.of("i-bob")[0]) == expected


def test_an_endless_log_is_never_held_whole() -> None:
    alive = 0
    most = 0

    class Chunk(bytes):
        def __new__(cls) -> Chunk:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return super().__new__(cls, 64 * 1024)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def flood() -> Iterator[bytes]:
        for _ in range(200):
            yield Chunk()

    assert len(evidence._last(flood())) == LOG_BYTES
    assert most <= LOG_BYTES // (64 * 1024) + 3


def test_the_last_few_of_each_agent_are_kept_with_their_files(room: EvidenceRoom, root_dir: Path) -> None:
    for number in range(KEPT + 3):
        room.keep("i-bob", replace(FOUND, reason=f"end {number}"), [b"%d" % number])
    kept = room.of("i-bob")
    assert [one.reason for one in kept] == [f"end {number}" for number in range(3, KEPT + 3)]
    assert [room.log("i-bob", one) for one in kept] == [b"%d" % number for number in range(3, KEPT + 3)]
    assert len(_files(root_dir)) == KEPT


def test_a_log_whose_file_was_taken_away_reads_as_empty(room: EvidenceRoom, root_dir: Path) -> None:
    room.keep("i-bob", FOUND, [b"log"])
    _files(root_dir)[0].unlink()
    assert room.log("i-bob", room.of("i-bob")[0]) == b""


# ---- retention --------------------------------------------------------------------------------------------


def test_dropping_takes_rows_and_files_and_can_be_repeated(
    room: EvidenceRoom, store: Store, root_dir: Path
) -> None:
    store.add_agent(agent("eve"))
    for one in ("i-bob", "i-eve"):
        room.keep(one, FOUND, [b"log"])
    for _ in range(2):
        room.drop("i-bob")
    assert room.of("i-bob") == ()
    assert [path.parent.name for path in _files(root_dir)] == ["i-eve"]
    room.drop("i-never-was")


def test_of_a_purged_life_nothing_is_kept_even_later(
    room: EvidenceRoom, store: Store, root_dir: Path
) -> None:
    room.keep("i-bob", FOUND, [b"log"])
    store.record_exit("i-bob", crash(NOW))
    store.end_agent("i-bob", NOW, is_purged=True)
    room.drop_old()
    room.keep("i-bob", FOUND, [b"the log of a second container"])
    assert room.of("i-bob") == ()
    assert _files(root_dir) == []
    assert _exits_of(store, "i-bob") == 0


def test_of_retired_lives_the_last_are_kept(room: EvidenceRoom, store: Store, root_dir: Path) -> None:
    """Whoever lives keeps everything, however long ago it began."""
    room.keep("i-bob", FOUND, [b"log"])
    store.record_exit("i-bob", crash(NOW))
    for number in range(KEPT_LIVES + 2):
        life = f"i-eve-{number}"
        store.add_agent(replace(agent("eve", incarnation=life), uid=5000 + number))
        store.record_exit(life, crash(NOW, of=life))
        if number < 3:
            room.keep(life, FOUND, [b"log"])
        store.end_agent(life, NOW + timedelta(seconds=number), is_purged=False)
        room.drop_old()
    assert [bool(room.of(f"i-eve-{number}")) for number in range(3)] == [False, False, True]
    assert [_exits_of(store, f"i-eve-{number}") for number in range(3)] == [0, 0, 1]
    assert (len(room.of("i-bob")), _exits_of(store, "i-bob")) == (1, 1)
    assert [path.parent.name for path in _files(root_dir)] == ["i-bob", "i-eve-2"]


def _exits_of(store: Store, incarnation: str) -> int:
    with store.reading() as db:
        query = "SELECT count(*) FROM exits WHERE incarnation = ?"
        return int(db.execute(query, (incarnation,)).fetchone()[0])
