"""Segments: begun in time, dropped in time, and no gap passed off as that."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hive_core.adapters.audit import AuditDamaged, AuditLog
from tests.unit.audit.written import segments, written

# Two records of the usual size fill a segment.
SMALL = {"segment_bytes": 400}
FEW = {**SMALL, "keep_segments": 3}


def test_a_full_segment_is_followed_by_one_named_after_its_first_record(directory: Path) -> None:
    log = written(directory, 7, **SMALL)
    assert [path.name for path in segments(directory)] == [f"{seq:012d}.jsonl" for seq in (1, 3, 5, 7)]
    assert log.verify().count == 7
    assert [record["seq"] for record in log.records()] == list(range(1, 8))
    assert AuditLog(directory).head == log.head


@pytest.mark.parametrize("after", range(9))
def test_reading_after_a_number_skips_nothing(directory: Path, after: int) -> None:
    log = written(directory, 7, **SMALL)
    assert [record["seq"] for record in log.records(after)] == list(range(after + 1, 8))


def test_older_segments_are_not_even_opened(directory: Path) -> None:
    log = written(directory, 7, **SMALL)
    segments(directory)[0].write_bytes(b"damaged\n")
    assert [record["seq"] for record in log.records(2)] == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("which", [0, 1, 3])
def test_a_segment_taken_away_shows(directory: Path, which: int) -> None:
    log = written(directory, 7, **SMALL)
    segments(directory)[which].unlink()
    with pytest.raises(AuditDamaged):
        log.verify()


# ---- retention --------------------------------------------------------------------------------------------


def test_the_oldest_segment_goes_when_a_new_one_begins(directory: Path) -> None:
    log = written(directory, 6, **FEW)
    assert log.verify().start.seq == 1
    log.append({"target": "one more"})
    assert [path.name for path in segments(directory)] == [f"{seq:012d}.jsonl" for seq in (3, 5, 7)]
    verdict = log.verify()
    assert (verdict.start.seq, verdict.head.seq, verdict.count) == (3, 7, 5)
    assert next(iter(log.records()))["seq"] == 3


def test_the_chain_holds_through_many_segments_and_restarts(directory: Path) -> None:
    for life in range(1, 10):
        log = written(directory, 3, **FEW)
        assert log.verify().head == log.head
        assert log.head.seq == 3 * life
    assert len(segments(directory)) == 3


def test_without_a_number_nothing_is_dropped(directory: Path) -> None:
    assert written(directory, 20, **SMALL).verify().start.seq == 1


def test_a_smaller_number_takes_effect_with_the_next_segment(directory: Path) -> None:
    written(directory, 8, **SMALL)
    log = AuditLog(directory, segment_bytes=400, keep_segments=2)
    assert len(segments(directory)) == 4
    log.append({"target": "the next"})
    assert len(segments(directory)) == 2
    assert log.verify().start.seq == 7


def test_a_segment_taken_away_is_not_taken_for_one_that_was_dropped(directory: Path) -> None:
    log = written(directory, 9, **FEW)
    assert log.verify().start.seq == 5
    segments(directory)[0].unlink()
    with pytest.raises(AuditDamaged, match="audit records 5 to 6 are missing"):
        log.verify()


def test_a_daemon_killed_before_it_deleted_leaves_too_much_and_no_damage(directory: Path) -> None:
    written(directory, 6, **FEW)
    oldest = segments(directory)[0]
    content = oldest.read_bytes()
    log = written(directory, 1, **FEW)
    assert not oldest.exists()
    oldest.write_bytes(content)
    assert log.verify().start.seq == 1
    written(directory, 2, **FEW)
    assert len(segments(directory)) == 3


def test_a_head_kept_of_a_dropped_record_is_answered_with_where_the_log_begins(directory: Path) -> None:
    log = AuditLog(directory, segment_bytes=400, keep_segments=3)
    heads = [log.append({"target": f"agent-{number}", "operation": "kill"}) for number in range(20)]
    start = log.verify().start
    with pytest.raises(AuditDamaged, match=f"begins with record {start.seq}; record 2, whose hash was kept"):
        log.verify(heads[1])
    # The record right before the first kept one is still bound by it.
    for kept in heads[start.seq - 2 :]:
        log.verify(kept)


def test_reading_and_verifying_go_on_while_segments_come_and_go(directory: Path) -> None:
    log = written(directory, 6, **FEW)
    is_over = threading.Event()
    faults: list[Exception] = []

    def read() -> None:
        try:
            while not is_over.is_set():
                log.verify()
                list(log.records(max(0, log.head.seq - 3)))
        except Exception as fault:
            faults.append(fault)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(20):
        log.append({"target": f"agent-{number}"})
    is_over.set()
    for reader in readers:
        reader.join()
    assert faults == []


def test_appends_from_many_threads_make_one_chain(directory: Path) -> None:
    log = AuditLog(directory)

    def append() -> None:
        for _ in range(10):
            log.append({"target": threading.current_thread().name})

    writers = [threading.Thread(target=append) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert log.verify().count == 40
    assert AuditLog(directory).verify().count == 40
