"""The verb × state table: what start, stop and their like mean for an agent as it is.

Called by `engine.lifecycle` for operators, and for agents once they have tools: one table for both. A verb
changes only what is desired; the next pass does the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hive_core.domain.agents import Desired, IntentKind
from hive_core.planning.actions import AgentState


class Verb(StrEnum):
    """The lifecycle verbs; `stop` is the operation `kill`."""

    SPAWN = "spawn"
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    UPDATE = "update"


class Situation(StrEnum):
    """An agent's state as far as verbs differ."""

    UNSPAWNED = "unspawned"
    RUNNING = "running"
    STOPPED = "stopped"
    CRASHING = "crashing"
    PAUSED = "paused"


def situation(desired: Desired, state: AgentState | None) -> Situation:
    """Return the column of the table. The desired state decides; what is seen only refines `running`."""
    match desired:
        case Desired.UNSPAWNED:
            return Situation.UNSPAWNED
        case Desired.STOPPED:
            return Situation.STOPPED
        case Desired.RUNNING:
            if state is AgentState.PAUSED:
                return Situation.PAUSED
            if state in (AgentState.BACKOFF, AgentState.CRASH_LOOPING, AgentState.FAILED):
                return Situation.CRASHING
            return Situation.RUNNING


@dataclass(frozen=True, slots=True)
class Effect:
    """What to write: the new desired state, the wish on top, and whether past crashes are forgiven.

    `applies_config`: current main and image become the applied spec first, or the verb is refused.
    """

    desired: Desired
    intent: IntentKind | None = None
    resets_crashes: bool = False
    applies_config: bool = False


@dataclass(frozen=True, slots=True)
class NoEffect:
    """The agent is already as asked."""

    text: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The verb makes no sense in this state: why, and what to use instead."""

    text: str
    hint: str


Decision = Effect | NoEffect | Refusal

_U, _R, _S, _C, _P = Situation
_STOP = Effect(Desired.STOPPED, IntentKind.STOP)
_UPDATE = Effect(Desired.RUNNING, IntentKind.UPDATE, resets_crashes=True, applies_config=True)
_RESTART = Effect(Desired.RUNNING, IntentKind.RESTART)
_FRESH = Effect(Desired.RUNNING, resets_crashes=True)
_NOT_SPAWNED = Refusal("not spawned yet", "spawn it first: hivectl spawn {name}")
_SPAWNED = Refusal("it is spawned already", "use start, restart or update")

TABLE: dict[tuple[Verb, Situation], Decision] = {
    (Verb.SPAWN, _U): Effect(Desired.RUNNING, applies_config=True),
    (Verb.SPAWN, _R): _SPAWNED,
    (Verb.SPAWN, _S): _SPAWNED,
    (Verb.SPAWN, _C): _SPAWNED,
    (Verb.SPAWN, _P): _SPAWNED,
    (Verb.START, _U): _NOT_SPAWNED,
    (Verb.START, _R): NoEffect("is running already"),
    (Verb.START, _S): _FRESH,
    (Verb.START, _C): _FRESH,
    (Verb.START, _P): Effect(Desired.RUNNING, IntentKind.UNPAUSE),
    (Verb.STOP, _U): _NOT_SPAWNED,
    (Verb.STOP, _R): _STOP,
    (Verb.STOP, _S): NoEffect("is stopped already"),
    (Verb.STOP, _C): _STOP,
    (Verb.STOP, _P): _STOP,
    (Verb.RESTART, _U): _NOT_SPAWNED,
    (Verb.RESTART, _R): _RESTART,
    (Verb.RESTART, _S): Refusal("it is stopped", "start it: hivectl start {name}"),
    (Verb.RESTART, _C): _FRESH,
    (Verb.RESTART, _P): _RESTART,
    (Verb.UPDATE, _U): _NOT_SPAWNED,
    (Verb.UPDATE, _R): _UPDATE,
    (Verb.UPDATE, _S): Effect(Desired.STOPPED, IntentKind.UPDATE, applies_config=True),
    (Verb.UPDATE, _C): _UPDATE,
    (Verb.UPDATE, _P): _UPDATE,
}


def decide(verb: Verb, desired: Desired, state: AgentState | None) -> Decision:
    """Return what a verb does to an agent as it is now."""
    return TABLE[verb, situation(desired, state)]
