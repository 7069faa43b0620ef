"""What is written of callers: mutations, their ends, and denials, folded when there are many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hive_core.adapters.audit import AuditLog, Head
from hive_core.engine.audit import DENIALS_A_MINUTE, Audit, parse_head
from tests.unit.changes.steady_clock import SteadyClock


class Desk:
    """An audit with a clock of its own."""

    def __init__(self, directory: Path) -> None:
        self.clock = SteadyClock()
        self.chain = AuditLog(directory)
        self.audit = Audit(self.chain, self.clock)

    def deny(self, count: int, caller: str = "uid 7") -> None:
        """Deny a caller so many times."""
        for _ in range(count):
            self.audit.denied(caller, "kill", "bob", "only the operator may kill")

    def denials(self) -> list[tuple[str, str]]:
        """Return (caller, rule) of every denial on record."""
        return [(one["caller"], one["rule"]) for one in self.chain.records() if one["outcome"] == "denied"]


@pytest.fixture
def desk(directory: Path) -> Desk:
    """An audit that has just begun."""
    return Desk(directory)


SINGLE = ("uid 7", "only the operator may kill")
FOLDED = ("uid 7", "15 further denials within a minute")


def test_a_mutation_is_on_record_before_and_after(desk: Desk) -> None:
    desk.audit.asked("uid 0", "kill", "bob", now=True, key=None)
    desk.audit.answered("uid 0", "kill", "bob", "accepted", change="c-1", code=None)
    desk.audit.ended("c-1", "stop", "done", "bob is stopped" + "!" * 1000)
    asked, answered, ended = ({**one} for one in desk.chain.records())
    expected: dict[str, Any] = {"caller": "uid 0", "operation": "kill", "target": "bob"}
    assert asked.items() >= {**expected, "outcome": "asked", "now": True}.items()
    assert answered.items() >= {**expected, "outcome": "accepted", "change": "c-1"}.items()
    assert ended.items() >= {"caller": "hive", "operation": "stop", "outcome": "done"}.items()
    assert ("key" in asked, "code" in answered, len(ended["text"])) == (False, False, 500)


def test_up_to_ten_denials_a_minute_are_each_on_record(desk: Desk) -> None:
    desk.deny(DENIALS_A_MINUTE)
    desk.clock.pass_time(60)
    desk.audit.flush()
    assert desk.denials() == [SINGLE] * DENIALS_A_MINUTE


def test_further_ones_are_counted_and_told_once_the_minute_is_over(desk: Desk) -> None:
    desk.deny(25)
    assert desk.denials() == [SINGLE] * 10
    desk.clock.pass_time(59.9)
    desk.audit.flush()
    assert desk.denials() == [SINGLE] * 10
    desk.clock.pass_time(0.1)
    for _ in range(3):
        desk.audit.flush()
    assert desk.denials() == [*[SINGLE] * 10, FOLDED]


def test_the_next_denial_tells_them_too(desk: Desk) -> None:
    desk.deny(25)
    desk.clock.pass_time(61)
    desk.deny(1)
    assert desk.denials() == [*[SINGLE] * 10, FOLDED, SINGLE]


def test_one_caller_does_not_hide_another(desk: Desk) -> None:
    desk.deny(25)
    desk.deny(1, "uid 8")
    assert desk.denials()[-1] == ("uid 8", SINGLE[1])


def test_what_was_only_counted_is_told_when_the_daemon_stops(desk: Desk) -> None:
    desk.deny(25)
    desk.audit.flush(is_last=True)
    assert desk.denials()[-1] == FOLDED
    desk.audit.flush(is_last=True)
    assert len(desk.denials()) == 11


def test_what_cannot_be_told_now_is_told_later(desk: Desk, directory: Path) -> None:
    desk.deny(25)
    desk.clock.pass_time(60)
    moved = directory.rename(directory.with_name("away"))
    desk.audit.flush()
    moved.rename(directory)
    desk.audit.flush()
    assert desk.denials()[-1] == FOLDED


@pytest.mark.parametrize(
    ("after", "limit", "expected"),
    [
        pytest.param(-1, 3, [8, 9, 10], id="the-last"),
        pytest.param(-1, 99, [*range(1, 11)], id="more-than-there-are"),
        pytest.param(0, 2, [1, 2], id="the-first"),
        pytest.param(7, 99, [8, 9, 10], id="after"),
        pytest.param(10, 5, [], id="after-the-last"),
    ],
)
def test_records(desk: Desk, after: int, limit: int, expected: list[int]) -> None:
    desk.deny(10)
    assert [one["seq"] for one in desk.audit.records(after, limit)] == expected


A = "a" * 64


@pytest.mark.parametrize(
    "text", ["", "12", f":{A}", f"-1:{A}", f"1:{'g' * 64}", f"1:{A[1:]}", f"{'9' * 18}:{A}"]
)
def test_what_is_no_head(text: str) -> None:
    assert parse_head(text) is None


def test_a_head_is_read_as_it_is_printed() -> None:
    assert parse_head(f"12:{A}") == Head(12, A)
