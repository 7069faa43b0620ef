"""May this caller do this to that target: the one decision, for every surface.

Called by the surfaces before an operation and by the engine again when a queued one is applied. Pure, over
the roster that is authority at that moment (None when nobody has any).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import assert_never

from hive_core.domain.names import AgentName
from hive_core.domain.operations import Capability, Operation, Reach, Surface
from hive_core.domain.roster import Roster


@dataclass(frozen=True, slots=True)
class Operator:
    """Whoever the admin socket let in."""


@dataclass(frozen=True, slots=True)
class AgentCaller:
    """The agent whose socket accepted the call, and what it holds."""

    name: AgentName
    capabilities: frozenset[Capability] = frozenset()


Caller = Operator | AgentCaller


@dataclass(frozen=True, slots=True)
class Allowed:
    """The call may go on; `rule` says why."""

    rule: str


@dataclass(frozen=True, slots=True)
class NotReachable:
    """Answered `not_found`, so that a caller cannot tell what it may not reach from what does not exist."""

    rule: str


@dataclass(frozen=True, slots=True)
class NotPermitted:
    """The caller may not use the operation at all; the answer tells nothing about the target."""

    rule: str


Verdict = Allowed | NotReachable | NotPermitted


def authorise(
    caller: Caller,
    operation: Operation,
    target: AgentName | None,
    roster: Roster | None,
    existing: Collection[AgentName],
) -> Verdict:
    """Decide one call. `existing` are the agents there are; the operator's reach is all of them.

    An agent's reach is judged on `roster` alone: without an authoritative roster it reaches nobody, not
    even itself.
    """
    match caller:
        case Operator():
            return _operator(operation, target, existing)
        case AgentCaller():
            return _agent(caller, operation, target, roster)
    assert_never(caller)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A verdict in words: the decision, the rule behind it, and what would turn it."""

    is_allowed: bool
    decision: str
    rule: str
    remedy: str


def explain(
    caller: Caller,
    operation: Operation,
    target: AgentName | None,
    roster: Roster | None,
    existing: Collection[AgentName],
) -> Explanation:
    """Return the verdict on a call in words, with what would allow it where anything would."""
    verdict = authorise(caller, operation, target, roster, existing)
    match verdict:
        case Allowed():
            return Explanation(True, "allowed", verdict.rule, "")
        case NotReachable():
            remedy = _remedy(caller, operation, target, roster)
            return Explanation(False, "answered not_found", verdict.rule, remedy)
        case NotPermitted():
            return Explanation(False, "denied", verdict.rule, "nothing: no grant reaches it")
    assert_never(verdict)


def _remedy(caller: Caller, operation: Operation, target: AgentName | None, roster: Roster | None) -> str:
    if isinstance(caller, Operator):
        return f"an agent '{target}'"
    if roster is None:
        return "a published roster: the next pass writes it"
    if caller.name not in roster:
        return f"'{caller.name}' in the roster"
    if target is None:
        return "a call that names a target"
    if target not in roster:
        return f"an agent '{target}'"
    if operation.widened_by is not None:
        return f"being above '{target}' in the roster, or holding {operation.widened_by}"
    return f"being above '{target}' in the roster"


def _operator(operation: Operation, target: AgentName | None, existing: Collection[AgentName]) -> Verdict:
    if Surface.ADMIN not in operation.surfaces:
        return NotPermitted(f"{operation.name} is not an operator's operation")
    if target is not None and target not in existing:
        return NotReachable(f"there is no agent '{target}'")
    return Allowed("the operator reaches every agent")


def _agent(
    caller: AgentCaller, operation: Operation, target: AgentName | None, roster: Roster | None
) -> Verdict:
    if Surface.AGENT not in operation.surfaces or operation.reach is Reach.OPERATOR:
        return NotPermitted(f"only the operator may {operation.name}")
    if roster is None or caller.name not in roster:
        return NotReachable("no roster gives the caller authority now")
    if operation.reach is Reach.HIVE or not operation.has_target:
        return Allowed(f"{operation.name} has no target")
    if target is None:
        return NotReachable(f"{operation.name} needs a target")
    if target in roster.subtree(caller.name):
        return Allowed(f"'{target}' is in the subtree of '{caller.name}'")
    if operation.widened_by in caller.capabilities and target in roster:
        return Allowed(f"'{caller.name}' holds {operation.widened_by}")
    return NotReachable(f"'{target}' is not in the subtree of '{caller.name}'")
