"""An engine that is stuck on one container: that one is named, and the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hive_core.adapters.agent_dirs import AgentDirs
from hive_core.adapters.disk_usage import Free
from hive_core.adapters.repos import ConfigRepos
from hive_core.adapters.store import Store
from hive_core.domain.errors import EngineUnavailable
from hive_core.domain.observed import Containers, EngineState, Known, Unknown
from hive_core.domain.roster import Shape
from hive_core.domain.spec import (
    LABEL_AGENT,
    LABEL_CREATE,
    LABEL_HIVE,
    LABEL_INCARNATION,
    LABEL_SPEC,
    spec_hash,
)
from hive_core.engine.config import ConfigSource
from hive_core.engine.details import SILENT
from hive_core.engine.disk import DiskFacts
from hive_core.engine.observe import STUCK_REMOVAL, Observer
from hive_core.planning.actions import AgentState, Plan
from hive_core.planning.plan import plan
from hive_core.settings import Settings
from tests.support.fake_engine import FakeEngine
from tests.support.plan_inputs import BOOT, agent, spec
from tests.unit.changes.steady_clock import SteadyClock

pytestmark = pytest.mark.faults

NAMES = ("alice", "bob", "carol")


@dataclass
class Hive:
    """Three agents that run on a fake engine, and the observer that looks at them."""

    engine: FakeEngine
    store: Store
    observer: Observer
    clock: SteadyClock
    ids: dict[str, str]
    asked: list[str]
    silent: set[str]

    def look(self) -> Known[Containers]:
        """Return what one look sees of the engine."""
        self.asked.clear()
        _, observed = self.observer.observe(frozenset())
        return observed.containers

    def plan(self) -> Plan:
        """Return the plan of one look."""
        self.asked.clear()
        desired, observed = self.observer.observe(frozenset())
        return plan(desired, observed, self.clock.now())

    def states(self, plan: Plan) -> dict[str, AgentState]:
        """Return the state that is shown of each agent."""
        return {str(one.name): one.state for one in plan.views}


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    clock = SteadyClock()
    engine = FakeEngine(clock.now)
    store = Store(Path(":memory:"))
    settings = Settings()
    repos = ConfigRepos(tmp_path / "repos", 65534, 65534)
    config = ConfigSource(settings, repos, AgentDirs(tmp_path / "agents"), engine, clock)
    facts = DiskFacts(Free(1 << 40, 1 << 20), is_low=False, usage={}, over={})
    observer = Observer(
        settings, store, engine, repos, config, tmp_path / "roster", Shape.TREE, BOOT, lambda: facts, clock
    )
    made = Hive(engine, store, observer, clock, {}, [], set())
    image_id = engine.add_image("hive-agent:latest").id
    for name in NAMES:
        made.ids[name] = _running(made, name, image_id)
    engine.before_call = lambda method, target: _answer(made, method, target)
    yield made
    store.close()


def _running(hive: Hive, name: str, image_id: str) -> str:
    record = agent(name)
    wanted = spec(name, image_id=image_id)
    hive.store.add_agent(record)
    hive.store.set_applied(record.incarnation, wanted)
    hive.store.journal_create(f"nonce-{name}", record.incarnation, hive.clock.now())
    labels = {
        LABEL_HIVE: "default",
        LABEL_AGENT: name,
        LABEL_INCARNATION: record.incarnation,
        LABEL_SPEC: spec_hash(wanted),
        LABEL_CREATE: f"nonce-{name}",
    }
    container_id = hive.engine.create(wanted, labels)
    hive.store.confirm_create(f"nonce-{name}", container_id)
    hive.engine.start(container_id)
    return container_id


def _answer(hive: Hive, method: str, target: str) -> None:
    if method == "inspect":
        hive.asked.append(target)
        if target in hive.silent:
            raise EngineUnavailable("cannot inspect it: the engine does not answer", hung=True)


def test_one_container_the_engine_does_not_answer_for_holds_up_no_other(hive: Hive) -> None:
    hive.silent.add(hive.ids["bob"])
    shown = hive.plan()
    assert hive.states(shown) == {
        "alice": AgentState.RUNNING,
        "bob": AgentState.UNKNOWN,
        "carol": AgentState.RUNNING,
    }
    assert [(one.code, one.agent) for one in shown.problems if one.agent] == [("stuck_container", "bob")]
    assert SILENT in next(one.reason for one in shown.views if one.name == "bob")
    assert not [one for one in shown.actions if one.agent == "bob"]
    hive.engine.crash(hive.ids["alice"])
    assert hive.states(hive.plan())["alice"] is not AgentState.RUNNING


def test_it_is_asked_for_again_only_when_there_is_a_reason_and_then_shown_as_it_is(hive: Hive) -> None:
    hive.silent.add(hive.ids["bob"])
    hive.plan()
    for _ in range(3):
        hive.plan()
        assert hive.asked == []
    hive.observer.forget_all()
    hive.plan()
    assert hive.asked.count(hive.ids["bob"]) == 1
    hive.silent.clear()
    hive.observer.forget(hive.ids["bob"])
    assert set(hive.states(hive.plan()).values()) == {AgentState.RUNNING}


def test_however_many_are_stuck_a_look_waits_for_two_at_most_and_later_for_one(hive: Hive) -> None:
    hive.silent.update(hive.ids.values())
    assert isinstance(hive.look(), Unknown)
    assert len(hive.asked) == 2
    seen = hive.look()
    assert isinstance(seen, Containers)
    assert [one.stuck for one in seen.ours] == [SILENT] * len(NAMES)
    assert len(hive.asked) == 1
    hive.observer.forget_all()
    for _ in NAMES:
        assert isinstance(hive.look(), Containers)
        assert len(hive.asked) == 1


def test_an_engine_that_went_away_between_list_and_inspect_is_away(hive: Hive) -> None:
    def answer(method: str, target: str) -> None:
        if method == "inspect":
            raise EngineUnavailable("cannot inspect it: nobody listens")

    hive.engine.before_call = answer
    assert isinstance(hive.look(), Unknown)


def test_a_removal_that_does_not_end_is_named_and_the_others_go_on(hive: Hive) -> None:
    with hive.engine.changing(hive.ids["bob"]) as one:
        one.state = EngineState.REMOVING
    shown = hive.plan()
    assert hive.states(shown)["bob"] is AgentState.REMOVING
    assert not [one for one in shown.problems if one.code == "stuck_container"]
    hive.clock.pass_time(61)
    hive.engine.crash(hive.ids["alice"])
    shown = hive.plan()
    assert [one.text for one in shown.problems if one.code == "stuck_container"] == [
        f"bob ({hive.ids['bob'][:12]}): {STUCK_REMOVAL}"
    ]
    assert hive.states(shown) == {
        "alice": AgentState.BACKOFF,
        "bob": AgentState.REMOVING,
        "carol": AgentState.RUNNING,
    }
    hive.engine.remove_by_hand(hive.ids["bob"])
    shown = hive.plan()
    assert hive.states(shown)["bob"] is AgentState.STARTING
    assert not [one for one in shown.problems if one.code == "stuck_container"]
