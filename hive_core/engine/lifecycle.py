"""The verbs: what operators, and later agents, ask to be done with agents.

Called by the surfaces. A verb checks the table in `planning.verbs`, prepares what must not fail later (the
config is read, the image resolved), writes what is desired in one transaction, and wakes the loop; the
answer is a change to wait for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from hive_core.adapters.clock import Clock
from hive_core.adapters.store import Store
from hive_core.domain.agents import AgentRecord, Desired, Intent, IntentKind
from hive_core.domain.changes import Asked, Change, Goal, Part, Progress
from hive_core.domain.errors import Conflict, HiveError, InvalidRequest, NotFound, Stopping, owned
from hive_core.domain.names import AgentName, parse_name
from hive_core.domain.roster import Roster, Shape
from hive_core.domain.spec import ContainerSpec
from hive_core.engine.changes import Changes
from hive_core.engine.config import ConfigSource
from hive_core.engine.dispatch import Dispatcher
from hive_core.engine.reconcile import Reconciler
from hive_core.planning.verbs import Effect, NoEffect, Refusal, Verb, decide
from hive_core.settings import Settings

_MAX_NAMES = 1000
_READERS = 4
_FROZEN = NoEffect("stays frozen in quarantine")


class Lifecycle:
    """spawn, start, stop, restart, update, remove, quarantine, release."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        config: ConfigSource,
        reconciler: Reconciler,
        dispatcher: Dispatcher,
        changes: Changes,
        require_space: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._store = store
        self._config = config
        self._reconciler = reconciler
        self._dispatcher = dispatcher
        self._changes = changes
        self._require_space = require_space
        self._clock = clock
        self._lock = threading.Lock()
        self._is_stopping = False

    def refuse_more(self) -> None:
        """Take no more verbs: the daemon is stopping."""
        self._is_stopping = True

    def require(self, untrusted_name: object) -> AgentRecord:
        """Return the live agent of a name, or raise `InvalidName` or `NotFound`."""
        name = parse_name(untrusted_name)
        record = self._store.agent(name)
        if record is None:
            raise NotFound(f"there is no agent '{name}'", "hivectl ps lists the agents")
        return record

    def run(
        self,
        verb: Verb,
        untrusted_names: Sequence[object],
        *,
        now: bool,
        asked: Asked,
        spares_frozen: bool = False,
    ) -> Change:
        """Apply a verb to one or more agents: to all of them, or, if it is refused for one, to none.

        `now` skips the grace of a stop. Who asked ends up in the reason shown. `spares_frozen`: an agent in
        quarantine is left in it and does not refuse the verb for the others.
        """
        _require_some(verb.value, untrusted_names)
        with self._asking(verb.value, asked) as known:
            if known is not None:
                return known
            records = {record.name: record for record in map(self.require, untrusted_names)}
            if verb is Verb.SPAWN:
                self._require_space("spawn")
            decisions = {
                name: _FROZEN
                if spares_frozen and record.quarantined_at is not None
                else self._decide(verb, record)
                for name, record in records.items()
            }
            specs = self._prepare(verb, [records[name] for name in decisions if _applies(decisions[name])])
            with self._store.transaction():
                for name, decision in decisions.items():
                    if isinstance(decision, Effect):
                        self._write(verb, records[name], decision, specs.get(name), now, asked.by)
                parts = [_part(records[name], decisions[name]) for name in sorted(records)]
                change = self._changes.begin(verb.value, parts, asked)
        return self._go(change)

    def stop_all(self, *, now: bool, asked: Asked) -> Change:
        """Stop every agent that was spawned; they stay down until started."""
        spawned = [one.name for one in self._store.agents() if one.desired is not Desired.UNSPAWNED]
        leaving = [name for name in spawned if not self._is_leaving(name)]
        if not leaving:
            raise Conflict("cannot stop all: no agent was spawned", "hivectl ps lists the agents")
        return self.run(Verb.STOP, leaving, now=now, asked=asked, spares_frozen=True)

    def remove(self, untrusted_name: object, *, purge: bool, asked: Asked) -> Change:
        """End an agent: its container goes, its data is retired, or deleted with `purge`."""
        with self._asking("remove", asked) as known:
            if known is not None:
                return known
            record = self.require(untrusted_name)
            _refuse_removal(record, "remove")
            how = "purge" if purge else "remove"
            wish = Intent(IntentKind.REMOVE, self._clock.now(), self._settings.container.stop_grace_s, purge)
            with self._store.transaction():
                self._store.set_desired(
                    record.incarnation, Desired.STOPPED, f"{how} requested by {asked.by}", wish
                )
                part = Part(record.name, record.incarnation, Goal.GONE)
                change = self._changes.begin("remove", [part], asked)
        return self._go(change)

    def quarantine(self, untrusted_names: Sequence[object], *, subtree: bool, asked: Asked) -> Change:
        """Freeze agents as they are and keep hands off them, with `subtree` all below them too."""
        _require_some("quarantine", untrusted_names)
        with self._asking("quarantine", asked) as known:
            if known is not None:
                return known
            chosen = {record.name: record for record in map(self.require, untrusted_names)}
            if subtree:
                chosen.update(self._below(chosen))
            for record in chosen.values():
                _refuse_removal(record, "quarantine")
            with self._store.transaction():
                for record in chosen.values():
                    self._store.set_quarantined(record.incarnation, self._clock.now())
                parts = [Part(name, chosen[name].incarnation, Goal.PAUSED) for name in sorted(chosen)]
                change = self._changes.begin("quarantine", parts, asked)
        return self._go(change)

    def release(self, untrusted_names: Sequence[object], *, subtree: bool, asked: Asked) -> Change:
        """End quarantines: what was frozen runs on, what has ended since is started as desired."""
        _require_some("release", untrusted_names)
        with self._asking("release", asked) as known:
            if known is not None:
                return known
            chosen = {record.name: record for record in map(self.require, untrusted_names)}
            if subtree:
                everybody = {**chosen, **self._below(chosen)}
                held = {name: one for name, one in everybody.items() if one.quarantined_at is not None}
                chosen = held or chosen
            for record in chosen.values():
                if record.quarantined_at is None:
                    raise Conflict(f"cannot release {record.name}: it is not in quarantine", "hivectl ps")
            with self._store.transaction():
                for record in chosen.values():
                    self._let_go(record, asked.by)
                parts = [Part(name, chosen[name].incarnation, Goal.LISTED) for name in sorted(chosen)]
                change = self._changes.begin("release", parts, asked)
        return self._go(change)

    def _let_go(self, record: AgentRecord, by: str) -> None:
        self._store.set_quarantined(record.incarnation, None)
        if record.desired is Desired.RUNNING:
            wish = Intent(IntentKind.UNPAUSE, self._clock.now(), self._settings.container.stop_grace_s)
            self._store.set_desired(record.incarnation, record.desired, f"release requested by {by}", wish)

    def _below(self, chosen: Mapping[AgentName, AgentRecord]) -> dict[AgentName, AgentRecord]:
        """Return everybody below the chosen ones, by the edges as they are stored."""
        records = {record.name: record for record in self._store.agents()}
        parents = {name: one.parent if one.parent in records else None for name, one in records.items()}
        roster = Roster(Shape.TREE, parents)
        return {name: records[name] for top in chosen for name in roster.subtree(top)}

    @contextmanager
    def _asking(self, kind: str, asked: Asked) -> Iterator[Change | None]:
        """Take one verb at a time; hand out the change that this very request has made before, if it has."""
        with self._lock:
            if self._is_stopping:
                raise Stopping(f"cannot {kind}: the daemon is stopping", "try again once it is back")
            yield self._changes.same_as_before(kind, asked.key)

    def _go(self, change: Change) -> Change:
        """Let the passes at a change that is written down."""
        change = self._changes.release(change)
        for part in change.parts:
            self._dispatcher.release(part.name)
        self._reconciler.wake()
        return change

    def _is_leaving(self, name: AgentName) -> bool:
        record = self._store.agent(name)
        return record is None or (record.intent is not None and record.intent.kind is IntentKind.REMOVE)

    def _decide(self, verb: Verb, record: AgentRecord) -> Effect | NoEffect:
        _refuse_removal(record, verb.value)
        if record.quarantined_at is not None:
            hint = f"hivectl release {record.name} ends it"
            raise Conflict(f"cannot {verb} {record.name}: it is in quarantine", hint)
        view = self._reconciler.snapshot.views.get(record.name)
        decision = decide(verb, record.desired, view.state if view is not None else None)
        if isinstance(decision, Refusal):
            hint = decision.hint.format(name=record.name)
            raise Conflict(f"cannot {verb} {record.name}: {decision.text}", hint)
        return decision

    def _prepare(self, verb: Verb, records: Sequence[AgentRecord]) -> dict[AgentName, ContainerSpec]:
        """Read what the agents are to run with, several at once: each waits for git processes."""
        if not records:
            return {}
        self._config.forget_images()
        with ThreadPoolExecutor(min(_READERS, len(records)), thread_name_prefix="prepare") as pool:
            specs = pool.map(lambda record: self._prepared(verb, record), records)
            return {record.name: spec for record, spec in zip(records, specs, strict=True)}

    def _prepared(self, verb: Verb, record: AgentRecord) -> ContainerSpec:
        try:
            return self._config.prepare(record)
        except (HiveError, OSError) as fault:
            raise owned(fault).about(f"cannot {verb} {record.name}") from fault

    def _write(
        self,
        verb: Verb,
        record: AgentRecord,
        effect: Effect,
        spec: ContainerSpec | None,
        now: bool,
        asked_by: str,
    ) -> None:
        grace_s = 0 if now else self._settings.container.stop_grace_s
        at = self._clock.now()
        if spec is not None:
            # What ran before is kept until the new spec has proved itself; a second try keeps the first's.
            before = record.previous or record.applied
            self._store.set_applied(record.incarnation, spec, None if before == spec else before)
        self._store.set_desired(
            record.incarnation,
            effect.desired,
            f"{verb} requested by {asked_by}",
            Intent(effect.intent, at, grace_s) if effect.intent is not None else None,
            at if effect.resets_crashes else None,
        )


def _refuse_removal(record: AgentRecord, verb: str) -> None:
    if record.intent is not None and record.intent.kind is IntentKind.REMOVE:
        raise Conflict(f"cannot {verb} {record.name}: it is being removed", "wait until it is gone")


def _applies(decision: Effect | NoEffect) -> bool:
    return isinstance(decision, Effect) and decision.applies_config


def _require_some(kind: str, untrusted_names: Sequence[object]) -> None:
    if not 0 < len(untrusted_names) <= _MAX_NAMES:
        raise InvalidRequest(f"cannot {kind}: name 1 to {_MAX_NAMES} agents", "hivectl ps lists them")


def _part(record: AgentRecord, decision: Effect | NoEffect) -> Part:
    if isinstance(decision, NoEffect):
        text = f"{record.name} {decision.text}"
        return Part(record.name, record.incarnation, Goal.LISTED, Progress.DONE, text)
    goal = Goal.STOPPED if decision.desired is Desired.STOPPED else Goal.RUNNING
    return Part(record.name, record.incarnation, goal)
