"""A hive without a daemon: the real store and plan over the fake engine, killed wherever a test wants.

Every action is taken apart into the steps that a killed daemon could stop between: what is written down
before, what is asked of the engine, what is written down after.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import assert_never

from hive_core.adapters.store import Store
from hive_core.domain.agents import AgentRecord, Desired, Intent, IntentKind
from hive_core.domain.names import AgentName
from hive_core.domain.observed import (
    Containers,
    EngineState,
    ForeignContainer,
    Known,
    ListedContainer,
    Observed,
    ObservedRepo,
    OurContainer,
    Repos,
)
from hive_core.domain.roster import Absent, RosterFile, Shape, decode
from hive_core.domain.spec import (
    LABEL_AGENT,
    LABEL_CREATE,
    LABEL_HIVE,
    LABEL_INCARNATION,
    LABEL_SPEC,
    ContainerSpec,
    spec_hash,
)
from hive_core.planning.actions import (
    Action,
    Adopt,
    Approve,
    ClearIntent,
    Create,
    Pause,
    Plan,
    RecordExit,
    Remove,
    Retire,
    RollBack,
    Start,
    Stop,
    Unpause,
)
from hive_core.planning.desired import CrashPolicy, Declared, DesiredState
from hive_core.planning.plan import plan
from tests.support.fake_engine import FakeEngine
from tests.support.plan_inputs import BOOT, COMMIT, GRACE_S, NOW, agent, spec

HIVE = "default"


class World:
    """One hive: what it remembers, what is on its disk, and its engine."""

    def __init__(self) -> None:
        self.now = NOW
        self.store = Store(Path(":memory:"))
        weakref.finalize(self, self.store.close)
        self.engine = FakeEngine(self._tick)
        self._image_id = self.engine.add_image("hive-agent:latest").id
        self.repos: set[AgentName] = set()
        self.file: bytes | None = None
        self.published: bytes | None = None
        self.over_budget: set[AgentName] = set()
        self.stops: Counter[str] = Counter()
        self.starts: Counter[str] = Counter()
        self._lives = 0
        self._nonces = 0

    def _tick(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    # ---- what somebody asks for, and what the world does --------------------------------------------------

    def add(
        self, name: AgentName, desired: Desired, parent: AgentName | None, *, is_root: bool
    ) -> AgentRecord:
        """Have an agent with a config repo; one that is spawned has the usual spec applied."""
        self._lives += 1
        record = agent(
            name, Desired.UNSPAWNED, parent=parent, is_root=is_root, incarnation=f"{name}-{self._lives}"
        )
        self.store.add_agent(replace(record, uid=1000 + self._lives, created_at=self._tick()))
        self.repos.add(name)
        if desired is not Desired.UNSPAWNED:
            self.store.set_applied(record.incarnation, self._spec(name))
        self.store.set_desired(record.incarnation, desired, f"{desired.value} as asked")
        return record

    def wish(self, name: AgentName, kind: IntentKind) -> None:
        """Have somebody wish something of an agent."""
        record = self.store.agent(name)
        assert record is not None
        is_down = kind in (IntentKind.STOP, IntentKind.REMOVE)
        desired = Desired.STOPPED if is_down else record.desired
        at = self._tick()
        reset_at = at if kind is IntentKind.UPDATE else None
        self.store.set_desired(record.incarnation, desired, kind.value, Intent(kind, at, GRACE_S), reset_at)

    def put_on_probation(self, record: AgentRecord) -> None:
        """Have the agent just updated: what ran before is another commit."""
        before = replace(self._spec(record.name), commit="d" * 40)
        self.store.set_applied(record.incarnation, self._spec(record.name), before)
        self.store.set_desired(record.incarnation, record.desired, "updated", None, self._tick())

    def bring(self, record: AgentRecord, state: EngineState) -> str:
        """Have the agent's container in a state, as hive left it or as somebody made it."""
        container_id = self._made(record.incarnation, record.name, self._spec(record.name))
        if state not in (EngineState.CREATED, EngineState.REMOVING):
            self.engine.start(container_id)
        if state is EngineState.PAUSED:
            self.engine.pause_by_hand(container_id)
        if state in (EngineState.EXITED, EngineState.DEAD):
            self.engine.crash(container_id)
        if state in (EngineState.DEAD, EngineState.RESTARTING, EngineState.REMOVING):
            with self.engine.changing(container_id) as one:
                one.state = state
        return container_id

    def _spec(self, name: AgentName) -> ContainerSpec:
        return spec(name, image_id=self._image_id)

    def _made(self, incarnation: str, name: AgentName, wanted: ContainerSpec) -> str:
        *_, container_id = self._create(incarnation, name, wanted)
        return container_id

    def finish_removals(self) -> None:
        """Let the engine finish what it was removing."""
        for one in self.engine.containers():
            if one.state is EngineState.REMOVING:
                self.engine.remove_by_hand(one.id)

    def stays_up(self) -> None:
        """Let so much time pass that every wait is over and every run was a stable one."""
        self.now += timedelta(hours=1)

    # ---- one pass -----------------------------------------------------------------------------------------

    def desired(self) -> DesiredState:
        """Return what the store says is wanted."""
        records = self.store.agents()
        return DesiredState(
            agents=tuple(Declared(one, one.applied, "") for one in records),
            containers={one.id: one for one in self.store.containers() if one.id is not None},
            published=self.published,
            shape=Shape.TREE,
            root_agent=next((one.name for one in records if one.is_root), None),
            first_edges=None,
            outages=(),
            boot_at=BOOT,
            grace_s=GRACE_S,
            crashes=CrashPolicy(),
            over_budget=dict.fromkeys(self.over_budget, "too much"),
        )

    def observed(
        self,
        *,
        roster: RosterFile | None = None,
        repos: Known[Repos] | None = None,
        containers: Known[Containers] | None = None,
    ) -> Observed:
        """Return what is seen of the world; tests say what cannot be seen."""
        found = Repos({one: ObservedRepo(one, COMMIT, "") for one in sorted(self.repos)}, ())
        on_disk: RosterFile = Absent() if self.file is None else decode(self.file)
        return Observed(
            at=self.now,
            containers=self._sorted() if containers is None else containers,
            repos=found if repos is None else repos,
            roster=on_disk if roster is None else roster,
            busy=frozenset(),
        )

    def _sorted(self) -> Containers:
        ours, foreign = [], []
        for listed in self.engine.list_containers(HIVE):
            found = self._ours(listed)
            if found is None:
                foreign.append(ForeignContainer(listed.id, listed.name, listed.labels.get(LABEL_AGENT, "")))
            else:
                ours.append(found)
        return Containers(tuple(ours), tuple(foreign))

    def _ours(self, listed: ListedContainer) -> OurContainer | None:
        nonce = listed.labels.get(LABEL_CREATE)
        for record in self.store.containers():
            if record.id == listed.id or (record.id is None and record.nonce == nonce):
                if record.id is None:
                    self.store.confirm_create(record.nonce, listed.id)
                detail = self.engine.inspect(listed.id)
                return OurContainer(
                    record.agent, record.incarnation, listed.labels[LABEL_SPEC], listed, detail
                )
        return None

    def plan(self) -> Plan:
        """Return what a pass would do now."""
        return plan(self.desired(), self.observed(), self.now)

    # ---- carrying it out ----------------------------------------------------------------------------------

    def carry_out(self, decided: Plan, limit: int | None = None) -> int:
        """Do the plan's steps in order, at most so many, and return how many were done."""
        done = 0
        for _ in self._steps(decided):
            done += 1
            if limit is not None and done >= limit:
                break
        return done

    def settle(self, passes: int = 12) -> int:
        """Run passes until one has nothing to do; return how many that took, fail if it takes too many."""
        for number in range(passes):
            decided = self.plan()
            if decided.is_settled and decided.wake_at is None:
                return number
            if decided.is_settled:
                self.stays_up()
            self.carry_out(decided)
            self.finish_removals()
        raise AssertionError(f"not settled after {passes} passes: {self.plan()}")

    def _steps(self, decided: Plan) -> Iterator[None]:
        if decided.roster is not None:
            self.published = decided.roster.content
            yield
            self.file = decided.roster.content
            yield
        for one in decided.agents:
            container_id = ""
            for action in one.actions:
                for step in self._carry_out(action, container_id):
                    container_id = step or container_id
                    yield

    def _carry_out(self, action: Action, made: str) -> Iterator[str]:
        match action:
            case RecordExit() | ClearIntent() | Retire() | Adopt() | RollBack() | Approve():
                self._note(action)
                yield ""
            case Create():
                yield from self._create(action.incarnation, action.agent, action.spec)
            case Remove():
                self.engine.remove(action.container_id)
                yield ""
                self.store.forget_container(action.container_id)
                yield ""
            case Start() | Stop() | Pause() | Unpause():
                yield from self._run(action, made)
            case _:
                assert_never(action)

    def _run(self, action: Start | Stop | Pause | Unpause, made: str) -> Iterator[str]:
        match action:
            case Start():
                self.starts[action.container_id or made] += 1
                self.engine.start(action.container_id or made)
                yield ""
            case Stop():
                self.store.request_stop(action.container_id, self._tick())
                yield ""
                self.stops[action.container_id] += 1
                self.engine.stop(action.container_id, action.grace_s)
                yield ""
            case Pause():
                self.engine.pause(action.container_id)
                yield ""
            case Unpause():
                self.engine.unpause(action.container_id)
                yield ""

    def _create(self, incarnation: str, name: AgentName, wanted: ContainerSpec) -> Iterator[str]:
        self._nonces += 1
        nonce = f"nonce-{self._nonces}"
        self.store.journal_create(nonce, incarnation, self._tick())
        yield ""
        labels = {
            LABEL_HIVE: HIVE,
            LABEL_AGENT: name,
            LABEL_INCARNATION: incarnation,
            LABEL_SPEC: spec_hash(wanted),
            LABEL_CREATE: nonce,
        }
        container_id = self.engine.create(wanted, labels)
        yield container_id
        self.store.confirm_create(nonce, container_id)
        yield container_id

    def _note(self, action: RecordExit | ClearIntent | Retire | Adopt | RollBack | Approve) -> None:
        match action:
            case RecordExit():
                self.store.record_exit(action.incarnation, action.exit)
            case ClearIntent():
                self.store.clear_intent(action.incarnation, action.intent)
            case Retire():
                self.repos.discard(action.agent)
                self.store.end_agent(action.incarnation, self._tick(), is_purged=action.purge)
            case RollBack():
                at = self._tick()
                self.store.set_applied(action.incarnation, action.spec)
                wish = Intent(IntentKind.UPDATE, at, GRACE_S)
                self.store.set_desired(action.incarnation, Desired.RUNNING, action.reason, wish, at)
            case Approve():
                self.store.forget_previous(action.incarnation)
            case Adopt():
                self.add(action.agent, Desired.UNSPAWNED, action.parent, is_root=False)

    # ---- what became of it --------------------------------------------------------------------------------

    def outcome(self) -> dict[str, tuple[object, ...]]:
        """Return what matters of the end: who there is, as what, with which containers in which state."""
        found: dict[str, tuple[object, ...]] = {}
        for record in self.store.agents():
            own = [
                (one.state.value, one.labels[LABEL_SPEC], one.name)
                for one in self.engine.containers()
                if one.labels.get(LABEL_INCARNATION) == record.incarnation
            ]
            found[record.name] = (record.desired, record.intent, record.parent, *own)
        return found
