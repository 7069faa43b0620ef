"""A plan as text that a person can review."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import assert_never

from hive_core.domain.observed import Observed, Unknown
from hive_core.domain.roster import state_word
from hive_core.planning.actions import (
    Action,
    Adopt,
    AgentView,
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
from hive_core.planning.desired import DesiredState


def rendered(title: str, desired: DesiredState, observed: Observed, decided: Plan) -> str:
    """Return what one pass found, and what it decided."""
    lines = [title, "", *_inputs(desired, observed), "", *_actions(decided), ""]
    lines += ["views:", *(f"  {_view(view, observed.at)}" for view in decided.views)]
    if decided.problems:
        lines += ["", "problems:"]
        lines += [
            f"  {one.code}{f' ({one.agent})' if one.agent else ''}: {one.text}" for one in decided.problems
        ]
    if decided.wake_at is not None:
        lines += ["", f"looks again in {(decided.wake_at - observed.at).total_seconds():.2f} s"]
    return "\n".join(lines) + "\n"


def _inputs(desired: DesiredState, observed: Observed) -> Iterator[str]:
    yield "found:"
    for one in desired.agents:
        record = one.record
        intent = f" + {record.intent.kind.value}" if record.intent else ""
        parent = f" below {record.parent}" if record.parent else ""
        ends = f", {len(record.exits)} ends recorded" if record.exits else ""
        frozen = ", in quarantine" if record.quarantined_at is not None else ""
        before = f", commit {record.previous.commit[:7]} to go back to" if record.previous is not None else ""
        over = f", disk: {desired.over_budget[record.name]}" if record.name in desired.over_budget else ""
        yield f"  agent {record.name}{parent}: {record.desired.value}{intent}{ends}{frozen}{before}{over}"
    if isinstance(observed.containers, Unknown):
        yield f"  containers: unknown, {observed.containers.reason}"
    else:
        for container in observed.containers.ours:
            yield f"  container {container.id} of {container.agent}: {container.state.value}"
        for foreign in observed.containers.foreign:
            yield f"  container {foreign.name}: foreign"
    if isinstance(observed.repos, Unknown):
        yield f"  repos: unknown, {observed.repos.reason}"
    else:
        yield f"  repos: {' '.join(sorted(observed.repos.repos)) or 'none'}"
    yield f"  roster: {state_word(observed.roster)}"
    if observed.busy:
        yield f"  busy: {' '.join(sorted(observed.busy))}"


def _actions(decided: Plan) -> Iterator[str]:
    yield "does:" if not decided.is_settled else "does nothing"
    if decided.roster is not None:
        word = "repairs" if decided.roster.repaired else "publishes"
        yield f"  {word} {decided.roster.content.decode().strip()}: {decided.roster.reason}"
    for one in decided.agents:
        after = f" (after {one.after})" if one.after else ""
        yield f"  {one.agent}{after}:"
        for action in one.actions:
            yield f"    {_named(action)}: {action.reason}"


def _named(action: Action) -> str:
    match action:
        case RecordExit() | ClearIntent() | Retire() | Adopt() | RollBack() | Approve():
            return _note(action)
        case Create():
            return f"create {action.spec.name} at commit {action.spec.commit[:7]}"
        case Start():
            return f"start {action.container_id or 'the new container'}"
        case Stop():
            return f"stop {action.container_id} within {action.grace_s} s"
        case Pause():
            return f"pause {action.container_id}"
        case Unpause():
            return f"unpause {action.container_id}"
        case Remove():
            return f"remove {action.container_id}"
    assert_never(action)


def _note(action: RecordExit | ClearIntent | Retire | Adopt | RollBack | Approve) -> str:
    match action:
        case RecordExit():
            return f"record the end of {action.exit.container_id} as {action.exit.kind.value}"
        case ClearIntent():
            return f"clear the wish to {action.intent.kind.value}"
        case Retire():
            return f"{'purge' if action.purge else 'retire'} {action.incarnation}"
        case Adopt():
            return f"adopt below {action.parent}" if action.parent else "adopt at the top"
        case RollBack():
            return f"go back to commit {action.spec.commit[:7]}"
        case Approve():
            return "keep the applied spec"
    assert_never(action)


def _view(view: AgentView, now: datetime) -> str:
    up = f", up {(now - view.started_at).total_seconds():.0f} s" if view.started_at else ""
    marks = "".join(
        f", {mark}"
        for mark, is_set in (
            (f"needs update: {', '.join(view.differing)}", view.needs_update),
            (f"degraded: {view.fault}", view.degraded),
        )
        if is_set
    )
    parent = f" below {view.parent}" if view.parent else ""
    return f"{view.name}{parent}: {view.state.value}{up} ({view.reason}){marks}"
