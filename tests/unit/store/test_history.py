"""Containers, exits, outages and events: what happened, and how much of it is kept."""

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hive_core.adapters import store as store_module
from hive_core.adapters.store import KEPT_EVENTS, KEPT_EXITS, KEPT_OUTAGES, Store
from hive_core.domain.agents import ContainerRecord, Desired, ExitKind, Outage
from tests.support.plan_inputs import NOW, agent, ago, crash, name

BOB = agent("bob", Desired.UNSPAWNED)


@pytest.fixture
def bob(store: Store) -> Store:
    """The store, with one agent."""
    store.add_agent(BOB)
    return store


# ---- containers -------------------------------------------------------------------------------------------


def test_a_create_is_there_before_its_id_is_known(bob: Store) -> None:
    bob.journal_create("n1", BOB.incarnation, NOW)
    assert bob.containers() == (ContainerRecord("n1", BOB.incarnation, name("bob"), None, NOW, None),)
    bob.confirm_create("n1", "id-1")
    assert [one.id for one in bob.containers()] == ["id-1"]


def test_a_stop_is_written_down_for_the_container_it_is_about(bob: Store) -> None:
    bob.add_agent(agent("eve", Desired.UNSPAWNED))
    for one in ("bob", "eve"):
        bob.journal_create(f"n-{one}", f"i-{one}", NOW)
        bob.confirm_create(f"n-{one}", f"id-{one}")
    bob.request_stop("id-eve", NOW)
    assert {one.id: one.stop_requested_at for one in bob.containers()} == {"id-bob": None, "id-eve": NOW}


@pytest.mark.parametrize("by_id", [pytest.param(True, id="removed"), pytest.param(False, id="never-made")])
def test_a_create_is_forgotten(bob: Store, by_id: bool) -> None:
    bob.journal_create("n1", BOB.incarnation, NOW)
    bob.confirm_create("n1", "id-1")
    bob.journal_create("n2", BOB.incarnation, NOW)
    if by_id:
        bob.forget_container("id-1")
    else:
        bob.forget_create("n1")
    assert [one.nonce for one in bob.containers()] == ["n2"]


def test_a_confirmed_create_is_the_only_one_of_its_incarnation(bob: Store) -> None:
    """What was removed by hand, or never made, would else be remembered for ever."""
    bob.add_agent(agent("eve", Desired.UNSPAWNED))
    bob.journal_create("n0", "i-eve", NOW)
    for number in (1, 2, 3):
        bob.journal_create(f"n{number}", BOB.incarnation, NOW)
    bob.confirm_create("n2", "id-2")
    assert {one.nonce: one.id for one in bob.containers()} == {"n0": None, "n2": "id-2"}


def test_the_containers_of_an_ended_incarnation_are_still_known_as_ours(bob: Store) -> None:
    bob.journal_create("n1", BOB.incarnation, NOW)
    bob.confirm_create("n1", "id-1")
    bob.end_agent(BOB.incarnation, NOW, is_purged=True)
    assert [(one.id, one.agent) for one in bob.containers()] == [("id-1", "bob")]


def test_one_container_is_not_two_creates(bob: Store) -> None:
    bob.add_agent(agent("eve", Desired.UNSPAWNED))
    for one in ("bob", "eve"):
        bob.journal_create(f"n-{one}", f"i-{one}", NOW)
    bob.confirm_create("n-bob", "id-1")
    with pytest.raises(sqlite3.IntegrityError):
        bob.confirm_create("n-eve", "id-1")
    assert {one.nonce: one.id for one in bob.containers()} == {"n-bob": "id-1", "n-eve": None}


# ---- exits ------------------------------------------------------------------------------------------------


def test_an_exit_is_recorded_once_and_reads_back_the_same(bob: Store) -> None:
    one = crash(ago(5))
    assert bob.record_exit(BOB.incarnation, one)
    assert not bob.record_exit(BOB.incarnation, one)
    assert bob.agents()[0].exits == (one,)


def test_exits_come_oldest_first(bob: Store) -> None:
    for seconds in (5, 50, 20):
        bob.record_exit(BOB.incarnation, crash(ago(seconds)))
    assert [one.finished_at for one in bob.agents()[0].exits] == [ago(50), ago(20), ago(5)]


def test_only_the_last_exits_are_kept(bob: Store) -> None:
    for number in range(KEPT_EXITS + 10):
        bob.record_exit(BOB.incarnation, crash(NOW + timedelta(seconds=number)))
    kept = bob.agents()[0].exits
    assert len(kept) == KEPT_EXITS
    assert kept[-1].finished_at == NOW + timedelta(seconds=KEPT_EXITS + 9)


def test_failing_starts_do_not_push_out_the_end_they_follow(bob: Store) -> None:
    """Else that end would look new in every pass, and would be the one that decides the wait."""
    ended = crash(NOW)
    bob.record_exit(BOB.incarnation, ended)
    for number in range(1, KEPT_EXITS * 3):
        at = NOW + timedelta(seconds=number)
        bob.record_exit(BOB.incarnation, crash(at, kind=ExitKind.START_FAILED))
    kept = bob.agents()[0].exits
    assert kept[0] == ended
    assert len(kept) == KEPT_EXITS + 1


def test_exits_of_one_agent_push_out_nobody_elses(bob: Store) -> None:
    bob.add_agent(agent("eve", Desired.UNSPAWNED))
    bob.record_exit("i-eve", crash(ago(9999)))
    for number in range(KEPT_EXITS + 5):
        bob.record_exit(BOB.incarnation, crash(NOW + timedelta(seconds=number)))
    assert [len(one.exits) for one in bob.agents()] == [KEPT_EXITS, 1]


# ---- outages ----------------------------------------------------------------------------------------------


def test_an_outage_is_opened_and_closed_once(store: Store) -> None:
    store.close_outage(ago(99))
    store.open_outage(ago(50))
    store.open_outage(ago(40))
    assert store.outages() == (Outage(ago(50), None),)
    store.close_outage(ago(30))
    store.close_outage(ago(20))
    assert store.outages() == (Outage(ago(50), ago(30)),)


def test_only_the_last_outages_are_kept(store: Store) -> None:
    for number in range(KEPT_OUTAGES + 5):
        store.open_outage(NOW + timedelta(seconds=2 * number))
        store.close_outage(NOW + timedelta(seconds=2 * number + 1))
    kept = store.outages()
    assert len(kept) == KEPT_OUTAGES
    assert kept[0].lost_at == NOW + timedelta(seconds=10)


# ---- events -----------------------------------------------------------------------------------------------


def test_an_event_reads_back_the_same(store: Store) -> None:
    at = datetime(2025, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)
    told = store.add_event(at, "exited", name("bob"), "a\x1b[31m\ud7ff", {"code": 1, "ok": True, "who": None})
    assert store.last_events(9) == (told,)
    assert told.seq == 1


def test_numbers_grow_over_reopening_and_are_never_given_twice(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "KEPT_EVENTS", 0)
    monkeypatch.setattr(store_module, "_TRIM_EVERY", 1)
    seen = []
    for _ in range(3):
        store = Store(path)
        seen += [store.add_event(NOW, "x", None, "", {}).seq for _ in range(2)]
        assert store.last_events(9) == ()
        store.close()
    assert seen == [1, 2, 3, 4, 5, 6]


def test_a_follower_reads_on_from_a_number(store: Store) -> None:
    for number in range(5):
        store.add_event(NOW, "x", None, str(number), {})
    assert [one.text for one in store.events_after(2, 2)] == ["2", "3"]
    assert [one.text for one in store.last_events(2)] == ["3", "4"]
    assert store.events_after(5, 9) == ()


def test_old_events_are_dropped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert KEPT_EVENTS >= 1000
    monkeypatch.setattr(store_module, "KEPT_EVENTS", 10)
    monkeypatch.setattr(store_module, "_TRIM_EVERY", 5)
    for number in range(30):
        store.add_event(NOW, "x", None, str(number), {})
    assert [one.seq for one in store.events_after(0, 99)] == list(range(21, 31))
