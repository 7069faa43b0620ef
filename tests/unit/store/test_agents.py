from dataclasses import replace
from datetime import timedelta

import pytest

from hive_core.adapters.store import Store
from hive_core.domain.agents import AgentRecord, Desired, IntentKind
from hive_core.domain.errors import HostUnsuitable, NameUnavailable
from hive_core.domain.spec import spec_hash
from tests.support.plan_inputs import NOW, agent, name, spec, wish


def _add(store: Store, agent_name: str, uid: int, parent: str | None = None, life: int = 1) -> AgentRecord:
    record = agent(agent_name, Desired.UNSPAWNED, parent=parent, incarnation=f"{agent_name}-{life}")
    record = replace(record, uid=uid)
    store.add_agent(record)
    return record


def _parents(store: Store) -> dict[str, str | None]:
    return {one.name: one.parent for one in store.agents()}


def test_a_record_reads_back_the_same(store: Store) -> None:
    record = replace(agent("ruth", Desired.UNSPAWNED, is_root=True, parent="bob"), created_at=NOW)
    store.add_agent(record)
    assert store.agents() == (record,)
    assert store.agent(name("ruth")) == record
    assert store.agent(name("bob")) is None


def test_agents_come_in_name_order(store: Store) -> None:
    for number, one in enumerate(["eve", "alice", "bob"]):
        _add(store, one, number)
    assert [one.name for one in store.agents()] == ["alice", "bob", "eve"]


# ---- names and uids ---------------------------------------------------------------------------------------


def test_a_name_is_live_once(store: Store) -> None:
    _add(store, "bob", 1)
    with pytest.raises(NameUnavailable, match="cannot create bob"):
        _add(store, "bob", 2, life=2)
    assert [one.uid for one in store.agents()] == [1]


def test_a_name_comes_back_as_another_incarnation(store: Store) -> None:
    first = _add(store, "bob", 1)
    store.end_agent(first.incarnation, NOW, is_purged=False)
    second = _add(store, "bob", 2, life=2)
    assert [one.incarnation for one in store.agents()] == [second.incarnation]
    assert store.agents()[0].exits == ()


def test_a_live_uid_is_nobody_elses(store: Store) -> None:
    _add(store, "bob", 1)
    with pytest.raises(NameUnavailable):
        _add(store, "eve", 1)


def test_a_uid_is_never_used_twice(store: Store) -> None:
    given = []
    for number in range(4):
        uid = store.next_uid(1000, 16)
        record = _add(store, "bob", uid, life=number)
        store.end_agent(record.incarnation, NOW, is_purged=number % 2 == 0)
        given.append(uid)
    assert given == [1000, 1001, 1002, 1003]


def test_a_range_that_is_used_up_is_refused_even_when_nobody_lives(store: Store) -> None:
    for number in range(2):
        record = _add(store, "bob", store.next_uid(1000, 2), life=number)
        store.end_agent(record.incarnation, NOW, is_purged=True)
    with pytest.raises(HostUnsuitable, match="all 2 uids from 1000 on have been used"):
        store.next_uid(1000, 2)


def test_uids_of_another_range_do_not_count(store: Store) -> None:
    _add(store, "bob", 5000)
    assert store.next_uid(1000, 16) == 1000


# ---- ends -------------------------------------------------------------------------------------------------


def test_the_children_of_the_ended_go_to_the_grandparent(store: Store) -> None:
    for uid, (one, parent) in enumerate(
        [("ruth", None), ("alice", "ruth"), ("bob", "alice"), ("carol", "alice"), ("eve", None)]
    ):
        _add(store, one, uid, parent)
    store.end_agent("alice-1", NOW, is_purged=False)
    assert _parents(store) == {"bob": "ruth", "carol": "ruth", "eve": None, "ruth": None}
    store.end_agent("ruth-1", NOW, is_purged=False)
    assert _parents(store) == {"bob": None, "carol": None, "eve": None}


def test_an_end_is_once(store: Store) -> None:
    _add(store, "bob", 1)
    store.end_agent("bob-1", NOW, is_purged=False)
    _add(store, "bob", 2, life=2)
    _add(store, "eve", 3, parent="bob")
    store.end_agent("bob-1", NOW, is_purged=True)
    assert _parents(store) == {"bob": None, "eve": "bob"}
    assert store.last_retired(name("bob")) == ("bob-1", 1)


def test_the_last_retired_life_is_found_and_a_purged_one_is_not(store: Store) -> None:
    assert store.last_retired(name("bob")) is None
    for life, is_purged in enumerate([False, False, True]):
        _add(store, "bob", life, life=life)
        store.end_agent(f"bob-{life}", NOW + timedelta(seconds=life), is_purged=is_purged)
    assert store.last_retired(name("bob")) == ("bob-1", 1)
    assert store.is_retired(name("bob"))
    assert not store.is_retired(name("eve"))


# ---- what is desired --------------------------------------------------------------------------------------


def test_desired_state_wish_and_reset_are_one_write(store: Store) -> None:
    _add(store, "bob", 1)
    wished = wish(IntentKind.REMOVE, grace_s=3, purge=True)
    store.set_desired("bob-1", Desired.STOPPED, "remove requested", wished, NOW)
    (found,) = store.agents()
    assert (found.desired, found.desired_reason) == (Desired.STOPPED, "remove requested")
    assert (found.intent, found.crashes_reset_at) == (wished, NOW)


def test_a_later_verb_keeps_the_reset_and_replaces_the_wish(store: Store) -> None:
    _add(store, "bob", 1)
    store.set_desired("bob-1", Desired.RUNNING, "start", wish(IntentKind.RESTART), NOW)
    store.set_desired("bob-1", Desired.STOPPED, "stop")
    (found,) = store.agents()
    assert (found.intent, found.crashes_reset_at) == (None, NOW)


@pytest.mark.parametrize(
    ("newer", "is_cleared"),
    [
        pytest.param(wish(IntentKind.RESTART), True, id="the-same"),
        pytest.param(wish(IntentKind.RESTART, NOW), False, id="later"),
        pytest.param(wish(IntentKind.UPDATE), False, id="another-of-the-same-instant"),
    ],
)
def test_a_wish_is_cleared_only_if_it_is_still_the_same(
    store: Store, newer: object, is_cleared: bool
) -> None:
    done = wish(IntentKind.RESTART)
    _add(store, "bob", 1)
    store.set_desired("bob-1", Desired.RUNNING, "restart", newer)  # type: ignore[arg-type]
    store.clear_intent("bob-1", done)
    assert store.agents()[0].intent == (None if is_cleared else newer)


def test_the_applied_spec_is_kept_whole(store: Store) -> None:
    _add(store, "bob", 1)
    store.set_applied("bob-1", spec("bob"))
    (found,) = store.agents()
    assert (found.applied, found.applied_hash) == (spec("bob"), spec_hash(spec("bob")))
    assert found.applied_commit == spec("bob").commit


# ---- facts and transactions -------------------------------------------------------------------------------


def test_facts_are_set_replaced_and_forgotten(store: Store) -> None:
    assert store.fact("key") is None
    store.set_fact("key", b"one")
    store.set_fact("key", b"\x00two")
    assert store.fact("key") == b"\x00two"
    store.set_fact("key", None)
    assert store.fact("key") is None


def _break_off(store: Store) -> None:
    with store.transaction():
        _add(store, "bob", 1)
        store.set_fact("key", b"value")
        with store.transaction():
            store.set_desired("bob-1", Desired.RUNNING, "spawn")
        assert store.agents()[0].desired is Desired.RUNNING
        raise KeyError


def test_a_transaction_that_fails_leaves_nothing_behind(store: Store) -> None:
    with pytest.raises(KeyError):
        _break_off(store)
    assert store.agents() == ()
    assert store.fact("key") is None
    _add(store, "eve", 1)
    assert [one.name for one in store.agents()] == ["eve"]


def _add_two(store: Store) -> None:
    with store.transaction():
        _add(store, "alice", 2)
        _add(store, "bob", 3, life=2)


def test_a_refused_name_inside_a_transaction_undoes_all_of_it(store: Store) -> None:
    _add(store, "bob", 1)
    with pytest.raises(NameUnavailable):
        _add_two(store)
    assert [one.name for one in store.agents()] == ["bob"]
