"""The page of agents' states: what is shown, what a pass does, what a verb does.

The two tables are not described but calculated: each cell is what planning decides for an agent in exactly
that situation.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import assert_never

from hive_core.domain.agents import AgentRecord, ContainerRecord, Desired, Intent, IntentKind
from hive_core.domain.names import AgentName
from hive_core.domain.observed import ContainerDetail, EngineState, ListedContainer, OurContainer
from hive_core.domain.roster import Shape
from hive_core.domain.spec import ContainerSpec, Limits, spec_hash
from hive_core.planning.actions import Action, AgentState
from hive_core.planning.containers import Case, Cell, plan_container
from hive_core.planning.desired import CrashPolicy, DesiredState
from hive_core.planning.verbs import TABLE, Decision, Effect, NoEffect, Refusal, Situation, Verb
from hive_core.settings import Crashes
from reference.markdown import code, page, table

INTRODUCTION = """\
Two things are kept apart everywhere. The **desired state** is what was asked for: `unspawned`, `running` or
`stopped`. It is stored, and nothing but a verb changes it. The **state** is what the last pass saw and what
hive is doing about it; `hivectl ps` shows it with a reason in words.
"""

BEFORE_THE_TABLE = """\
For each agent, by desired state and by what the engine shows. Actions are done in the order given; after the
arrow stands the state that is shown meanwhile.
"""

BESIDE_THE_STATE = """\
Beside the state, `ps` says *degraded* when the agent's main branch cannot be used (it runs on with its last
good commit), and *needs update* when main, the image or the hive's defaults would now give another container
than the one it has. `hivectl show NAME` lists what differs.
"""

BESIDE_THE_TABLE = """\
Containers that hive has no record of having made are never touched, whatever they are called; they are
reported as `foreign_container`. With an engine that does not answer every cell is: nothing, `unknown`.
"""

WHAT_A_VERB_IS = """\
A verb changes what is desired, durably, and wakes a pass; the pass does the work. It is decided from the
desired state, refined for agents that should run. `kill` is another word for `stop`.
"""

SEVERAL_NAMES = """\
A verb with several names is applied to all of them or, if it is refused for one, to none. `update` and
`spawn` read the config and the image first; if either cannot be used they are refused and nothing changes.
"""

CRASHES = """\
A *crash* is an end that nobody asked for, also one with exit code 0: an agent is meant to keep running. The
same container is started again, after a wait that begins at {initial:g} s, doubles with each further crash up
to {longest:g} s, and varies by 10 %. A run of at least {stable:g} s ends the series.

{count} crashes within {window:g} s make the agent `crash-looping`: it stays down until `start`, `restart` or
`update`, each of which forgives past crashes. A container that cannot even be started (`failed`) is tried
again for ever with the same growing wait: what is in its way lies outside it and may go away.

These ends are no crashes:

| kind | how it is known |
|---|---|
| `requested` | hive had written down that it would stop this very run |
| `host_restart` | the run began before the host was booted |
| `engine_restart` | it ended between 15 s before the engine went away and its return |

Being killed by hand (`docker kill`) *is* a crash. All numbers are [settings](settings.md#crashes), and
everything is derived from the recorded ends, so a restart of the daemon changes neither a wait nor a loop.
"""

WORDS = {
    AgentState.UNSPAWNED: ("made, never run", "`hivectl spawn NAME` when you want it to run"),
    AgentState.STARTING: ("a container is being made or started", "wait a moment"),
    AgentState.RUNNING: ("its container runs", "nothing"),
    AgentState.PAUSED: (
        "it is frozen: somebody paused the container by hand, or it is in quarantine",
        "the reason says which: `hivectl start NAME`, or `release NAME`",
    ),
    AgentState.STOPPING: (
        "it was told to stop and has its grace to do so",
        "wait; `stop --now` skips the grace",
    ),
    AgentState.STOPPED: ("down because somebody asked for it", "`hivectl start NAME`"),
    AgentState.BACKOFF: (
        "it crashed; hive waits before it starts it again",
        "`hivectl logs NAME`; `start` tries now",
    ),
    AgentState.CRASH_LOOPING: (
        "it crashed too often in too short a time and stays down",
        "mend it, then `hivectl start NAME` or `update NAME`",
    ),
    AgentState.FAILED: (
        "its container could not be made or started; hive keeps trying",
        "the reason names what is in the way",
    ),
    AgentState.REMOVING: ("it is being removed", "wait"),
    AgentState.UNKNOWN: (
        "the engine did not answer, so nothing is concluded and nothing done",
        "`hivectl status`",
    ),
}

_NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
_BOOT = _NOW - timedelta(days=1)
_STARTED = _NOW - timedelta(hours=1)
_ENDED = _NOW - timedelta(seconds=0.1)
_SPEC = ContainerSpec(
    name="h-bob",
    image_id="sha256:0",
    command=("program",),
    env=(),
    drop_env=(),
    uid=1,
    gid=1,
    commit="0" * 40,
    mounts=(),
    limits=Limits(1, 1.0, 1, 1, 1, 1, 1),
)
_ID = "c" * 64
_BOB = AgentName("bob")
# Rows of the tables: what the engine shows, and for a container that ended, how.
_ROWS: tuple[tuple[str, EngineState | None, bool], ...] = (
    ("no container", None, False),
    ("created", EngineState.CREATED, False),
    ("running", EngineState.RUNNING, False),
    ("paused", EngineState.PAUSED, False),
    ("restarting", EngineState.RESTARTING, False),
    ("exited by itself (a crash)", EngineState.EXITED, False),
    ("exited on request", EngineState.EXITED, True),
    ("dead, ended by itself", EngineState.DEAD, False),
    ("dead, ended on request", EngineState.DEAD, True),
    ("removing", EngineState.REMOVING, False),
)


def states_page() -> str:
    """Return states.md."""
    words = [(code(state.value), *WORDS[state]) for state in AgentState]
    return page(
        "States and verbs",
        INTRODUCTION,
        "## What `ps` shows",
        table(("state", "meaning", "what to do"), words),
        BESIDE_THE_STATE,
        "## What a pass does",
        BEFORE_THE_TABLE,
        _declared_by_observed(),
        "While a wish is open (a verb was accepted, no pass has carried it out yet) the row is this one:",
        _wishes(),
        BESIDE_THE_TABLE,
        "## What a verb does",
        WHAT_A_VERB_IS,
        _verbs(),
        SEVERAL_NAMES,
        "## Crashes",
        _crashes(),
    )


def _declared_by_observed() -> str:
    rows = [
        (row[0], *(_shown(plan_container(_case(desired, None, row))) for desired in Desired)) for row in _ROWS
    ]
    return table(("the engine shows", *(f"desired {desired.value}" for desired in Desired)), rows)


def _wishes() -> str:
    columns = (
        ("restart", Desired.RUNNING, IntentKind.RESTART),
        ("update", Desired.RUNNING, IntentKind.UPDATE),
        ("start while paused", Desired.RUNNING, IntentKind.UNPAUSE),
        ("update while stopped", Desired.STOPPED, IntentKind.UPDATE),
        ("rm", Desired.STOPPED, IntentKind.REMOVE),
    )
    rows = [
        (row[0], *(_shown(plan_container(_case(desired, kind, row))) for _, desired, kind in columns))
        for row in _ROWS
    ]
    return table(("the engine shows", *(name for name, _, _ in columns)), rows)


def _case(desired: Desired, kind: IntentKind | None, row: tuple[str, EngineState | None, bool]) -> Case:
    _, state, is_requested = row
    container = None if state is None else _container(state)
    return Case(_record(desired, kind), container, _desired_state(is_requested), _NOW)


def _record(desired: Desired, kind: IntentKind | None) -> AgentRecord:
    has_run = desired is not Desired.UNSPAWNED
    return AgentRecord(
        name=_BOB,
        incarnation="i",
        uid=1,
        parent=None,
        is_root=False,
        created_at=_BOOT,
        desired=desired,
        desired_reason="",
        intent=None if kind is None else Intent(kind, _NOW, 10),
        applied=_SPEC if has_run else None,
        applied_hash=spec_hash(_SPEC) if has_run else None,
        applied_commit=_SPEC.commit if has_run else None,
        crashes_reset_at=None,
        exits=(),
    )


def _container(state: EngineState) -> OurContainer:
    has_run = state is not EngineState.CREATED
    has_ended = state in (EngineState.EXITED, EngineState.DEAD)
    detail = ContainerDetail(
        id=_ID,
        name="h-bob",
        state=state,
        labels={},
        created_at=_STARTED,
        started_at=_STARTED if has_run else None,
        finished_at=_ENDED if has_ended else None,
        exit_code=0,
        oom_killed=False,
        error="",
        restart_policy="no",
        pid=0,
    )
    listed = ListedContainer(_ID, "h-bob", state, "", {}, _SPEC.image_id)
    return OurContainer(_BOB, "i", spec_hash(_SPEC), listed, detail)


def _desired_state(is_requested: bool) -> DesiredState:
    asked_at = _ENDED - timedelta(seconds=1) if is_requested else None
    made = ContainerRecord("n", "i", _BOB, _ID, _STARTED, asked_at)
    return DesiredState((), {_ID: made}, None, Shape.TREE, None, None, (), _BOOT, 10, CrashPolicy())


def _shown(cell: Cell) -> str:
    actions = ", ".join(_action_word(action) for action in cell.actions) or "nothing"
    return f"{actions} → {code(cell.state.value)}"


def _action_word(action: Action) -> str:
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(action).__name__)
    return words.strip()


def _verbs() -> str:
    names = {Situation.CRASHING: "backoff, crash-looping, failed", Situation.PAUSED: "paused by hand"}
    rows = [
        (code(verb.value), *(_decision(TABLE[verb, situation]) for situation in Situation)) for verb in Verb
    ]
    return table(("verb", *(names.get(situation, situation.value) for situation in Situation)), rows)


def _decision(decision: Decision) -> str:
    match decision:
        case Refusal():
            return f"refused: {decision.text}"
        case NoEffect():
            return f"ok, {decision.text}"
        case Effect():
            return _effect(decision)
    assert_never(decision)


def _effect(effect: Effect) -> str:
    said = [f"→ {effect.desired.value}"]
    if effect.applies_config:
        said.append("with current config and image")
    match effect.intent:
        case IntentKind.UPDATE:
            is_up = effect.desired is Desired.RUNNING
            said.append("in a new container" if is_up else "taken by the next start in a new container")
        case IntentKind.RESTART:
            said.append("stopped and started")
        case IntentKind.UNPAUSE:
            said.append("resumed")
        case IntentKind.STOP | IntentKind.REMOVE | None:
            pass
        case _:
            assert_never(effect.intent)
    if effect.resets_crashes:
        said.append("crashes forgiven")
    return ", ".join(said)


def _crashes() -> str:
    defaults = Crashes()
    return CRASHES.format(
        initial=defaults.backoff_initial_s,
        longest=defaults.backoff_max_s,
        stable=defaults.stable_s,
        count=defaults.loop_count,
        window=defaults.loop_window_s,
    )
