"""What tampering the chain shows, and what only a head that was kept elsewhere shows."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from hive_core.adapters.audit import AuditDamaged, AuditLog, Head
from hive_core.domain.errors import StoreUnusable
from tests.unit.audit.written import Tampering, segments, stamped, tamper, written

Records = list[dict[str, Any]]


def _edited(records: Records) -> Records:
    records[3]["target"] = "somebody-else"
    return records


def _edited_with_its_own_hash(records: Records) -> Records:
    whole = stamped([dict(one) for one in _edited(records)])
    records[3]["hash"] = whole[3]["hash"]
    return records


def _without_hash(records: Records) -> Records:
    del records[3]["hash"]
    return records


def _reordered(records: Records) -> Records:
    records[3], records[4] = records[4], records[3]
    return records


def _dropped(records: Records) -> Records:
    return records[:3] + records[4:]


def _first_dropped(records: Records) -> Records:
    return records[1:]


def _repeated(records: Records) -> Records:
    return [*records[:4], *records[3:]]


def _restarted_in_the_middle(records: Records) -> Records:
    return [*records[:3], *stamped(records[3:])]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param(_edited, "record 4 does not fit", id="edit"),
        pytest.param(_edited_with_its_own_hash, "record 5 does not fit", id="edit-with-new-hash"),
        pytest.param(_without_hash, "record 4 does not fit", id="hash-taken-away"),
        pytest.param(_reordered, "record 4 is missing or out of order", id="reorder"),
        pytest.param(_dropped, "record 4 is missing or out of order", id="drop"),
        pytest.param(_first_dropped, "records 1 to 1 are missing", id="drop-the-first"),
        pytest.param(_repeated, "record 5 is missing or out of order", id="repeat"),
        pytest.param(_restarted_in_the_middle, "record 4 is missing or out of order", id="second-chain"),
    ],
)
def test_tampering_shows_by_itself(directory: Path, change: Tampering, text: str) -> None:
    written(directory, 8)
    tamper(directory, change)
    with pytest.raises(AuditDamaged, match=text):
        AuditLog(directory).verify()


@pytest.mark.parametrize(
    ("line", "text"),
    [
        pytest.param("", "holds a line that is no record", id="empty"),
        pytest.param("[]", "holds a line that is no record", id="list"),
        pytest.param("7", "holds a line that is no record", id="number"),
        pytest.param('{"seq": "4"}', "holds a line that is no record", id="number-as-text"),
        pytest.param('{"seq": true}', "holds a line that is no record", id="true-for-a-number"),
        pytest.param("{", "holds a line that is no record", id="not-json"),
        pytest.param('{"seq": 4}', "record 4 does not fit", id="bare"),
    ],
)
def test_a_line_that_is_no_record_is_damage_wherever_it_is_read(
    directory: Path, line: str, text: str
) -> None:
    written(directory, 8)
    (path,) = segments(directory)
    lines = path.read_text("ascii").splitlines()
    path.write_text("\n".join([*lines[:3], line, *lines[4:]]) + "\n", "ascii")
    with pytest.raises(AuditDamaged, match=text):
        AuditLog(directory).verify()


@pytest.mark.parametrize(
    "disguise",
    [
        pytest.param(lambda line: line.replace("{", '{"target": "nobody", ', 1), id="key-given-twice"),
        pytest.param(lambda line: line.replace(", ", " , ", 1), id="spaces"),
        pytest.param(lambda line: line.replace("agent", "\\u0061gent", 1), id="escapes"),
    ],
)
def test_what_parses_to_the_same_record_is_an_edit_all_the_same(directory: Path, disguise: Any) -> None:
    """Who reads the file with other eyes than hive's must read the same."""
    written(directory, 8)
    (path,) = segments(directory)
    lines = path.read_text("ascii").splitlines()
    changed = disguise(lines[3])
    assert changed != lines[3]
    assert json.loads(changed) == json.loads(lines[3])
    path.write_text("\n".join([*lines[:3], changed, *lines[4:]]) + "\n", "ascii")
    with pytest.raises(AuditDamaged, match="record 4 is not written as hive writes it"):
        AuditLog(directory).verify()


# ---- what a kept head adds --------------------------------------------------------------------------------


def _cut(records: Records) -> Records:
    return records[:5]


def _written_anew(records: Records) -> Records:
    return stamped(_edited(records))


@pytest.mark.parametrize(
    "change", [pytest.param(_cut, id="truncate"), pytest.param(_written_anew, id="re-stamp")]
)
def test_what_the_chain_cannot_show_a_kept_head_shows(directory: Path, change: Tampering) -> None:
    kept = written(directory, 8).head
    tamper(directory, change)
    again = AuditLog(directory)
    again.verify()
    with pytest.raises(AuditDamaged, match="does not contain record 8 with the hash that was kept"):
        again.verify(kept)


def test_a_log_that_was_cut_and_went_on_does_not_contain_the_kept_head(directory: Path) -> None:
    kept = written(directory, 8).head
    tamper(directory, _cut)
    again = written(directory, 5)
    assert again.verify().head.seq == 10
    with pytest.raises(AuditDamaged, match="does not contain record 8 with the hash that was kept"):
        again.verify(kept)


@pytest.mark.parametrize(
    "change", [pytest.param(_cut, id="truncate"), pytest.param(_written_anew, id="re-stamp")]
)
def test_the_daemon_that_wrote_the_log_needs_no_kept_head(directory: Path, change: Tampering) -> None:
    log = written(directory, 8)
    tamper(directory, change)
    with pytest.raises(AuditDamaged, match="does not contain record 8"):
        log.verify()


def test_every_head_ever_kept_is_contained(directory: Path) -> None:
    log = AuditLog(directory)
    heads = [log.head] + [log.append({"number": number}) for number in range(6)]
    for kept in heads:
        verdict = log.verify(kept)
        assert (verdict.start, verdict.head, verdict.count) == (heads[1], heads[-1], 6)


def test_a_kept_head_with_another_hash_is_not_contained(directory: Path) -> None:
    log = written(directory, 4)
    for seq in (0, 2, 4, 9):
        with pytest.raises(AuditDamaged):
            log.verify(Head(seq, "f" * 64))


# ---- an ordinary life -------------------------------------------------------------------------------------


def test_an_empty_log_holds(directory: Path) -> None:
    verdict = AuditLog(directory).verify()
    assert (verdict.head, verdict.count) == (Head(0, "0" * 64), 0)


def test_a_log_goes_on_where_it_ended(directory: Path) -> None:
    first = written(directory, 3).head
    again = AuditLog(directory)
    assert again.head == first
    again.append({"text": 'quotes " and \n lines and \x1b and ünï'})
    assert again.verify(first).head == again.head
    assert [record["seq"] for record in again.records(after=2)] == [3, 4]


def test_only_root_can_read_it(directory: Path) -> None:
    written(directory, 1)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in segments(directory)] == [0o600]


def test_a_link_in_place_of_a_segment_is_neither_read_nor_written(directory: Path) -> None:
    written(directory, 3)
    log = AuditLog(directory)
    (path,) = segments(directory)
    moved = path.rename(path.with_name("elsewhere"))
    path.symlink_to(moved)
    with pytest.raises(AuditDamaged, match="is a symbolic link"):
        log.verify()
    with pytest.raises(OSError, match="symbolic links"):
        log.append({})
    assert len(moved.read_bytes().splitlines()) == 3


def test_a_last_record_that_cannot_be_read_ends_the_start(directory: Path) -> None:
    written(directory, 3)
    (path,) = segments(directory)
    path.write_bytes(path.read_bytes() + b"{}\n")
    with pytest.raises(StoreUnusable, match=r"last record in .* cannot be read"):
        AuditLog(directory)
