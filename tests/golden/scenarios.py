"""The passes whose plans are kept as text: what happens to a hive in a life."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hive_core.domain.agents import AgentRecord, Desired, ExitKind, IntentKind, Outage
from hive_core.domain.observed import EngineState, ForeignContainer, Observed, Unknown
from hive_core.domain.roster import Absent, Shape, Unreadable
from hive_core.planning.desired import Declared, DesiredState
from tests.support.plan_inputs import (
    NOW,
    agent,
    ago,
    container,
    crash,
    desired_state,
    journal,
    observed,
    repos,
    spec,
    wish,
)

Scenario = tuple[str, DesiredState, Observed]

RUTH = agent("ruth", is_root=True)
ALICE = agent("alice", parent="ruth")
BOB = agent("bob", parent="alice")
HIVE = (RUTH, ALICE, BOB)


def _settled() -> Scenario:
    wanted = desired_state(*HIVE)
    return "A healthy hive.", wanted, observed(wanted, *map(container, HIVE))


def _first_start() -> Scenario:
    edges = {BOB.name: ALICE.name, ALICE.name: None}
    wanted = desired_state(RUTH, first_edges=edges, published=b"{}\n")
    seen = observed(wanted, repositories=repos("ruth", "alice", "bob", misnamed=("UPPER.git",)))
    return "First start: config repos and the map of an earlier topology.json.", wanted, seen


def _after_reboot() -> Scenario:
    ours = [
        container(one, EngineState.EXITED, started_at=ago(90_000), finished_at=ago(30), exit_code=255)
        for one in HIVE
    ]
    wanted = desired_state(*HIVE, journalled=map(journal, ours))
    return "The host was restarted.", wanted, observed(wanted, *ours)


def _after_engine_restart() -> Scenario:
    ours = [container(one, EngineState.EXITED, finished_at=ago(40), exit_code=143) for one in HIVE]
    wanted = desired_state(*HIVE, journalled=map(journal, ours), outages=(Outage(ago(35), ago(20)),))
    return (
        "The engine was restarted, and everything went down shortly before.",
        wanted,
        observed(wanted, *ours),
    )


def _crashes() -> Scenario:
    first = container(RUTH, EngineState.EXITED, finished_at=NOW, exit_code=3)
    waiting = agent("alice", parent="ruth", exits=[crash(ago(at), of="id-alice") for at in (300, 100, 2)])
    looping = agent("bob", parent="alice", exits=[crash(ago(9 - number)) for number in range(4)])
    fifth = container(
        looping, EngineState.EXITED, started_at=ago(4), finished_at=NOW, exit_code=137, oom_killed=True
    )
    failing = agent("eve", exits=[crash(ago(1), kind=ExitKind.START_FAILED)])
    still = container(waiting, EngineState.EXITED, finished_at=ago(2))
    wanted = desired_state(RUTH, waiting, looping, failing, journalled=[journal(first), journal(fifth)])
    seen = observed(wanted, first, still, fifth)
    return "A first crash, a third, a fifth in a row, and a start that fails.", wanted, seen


def _verbs() -> Scenario:
    stop = agent("a-stop", Desired.STOPPED, intent=wish(IntentKind.STOP, grace_s=0))
    restart = agent("b-restart", intent=wish(IntentKind.RESTART))
    update = agent("c-update", intent=wish(IntentKind.UPDATE))
    resume = agent("d-resume", intent=wish(IntentKind.UNPAUSE))
    later = agent("e-later", Desired.STOPPED, intent=wish(IntentKind.UPDATE))
    wanted = desired_state(stop, restart, update, resume, later, agent("f-new", Desired.UNSPAWNED))
    seen = observed(
        wanted,
        container(stop),
        container(restart),
        container(update),
        container(resume, EngineState.PAUSED),
        container(later, EngineState.EXITED),
    )
    return "One of each verb.", wanted, seen


def _removal() -> Scenario:
    going = agent("alice", Desired.STOPPED, parent="ruth", intent=wish(IntentKind.REMOVE))
    purged = agent("eve", Desired.STOPPED, intent=wish(IntentKind.REMOVE, purge=True))
    wanted = desired_state(RUTH, going, BOB, purged)
    seen = observed(wanted, container(RUTH), container(going), container(BOB))
    return "rm alice, and rm --purge of one without a container.", wanted, seen


def _gone() -> Scenario:
    alice = agent("alice", Desired.STOPPED, parent="ruth")
    wanted = desired_state(RUTH, alice, BOB)
    seen = observed(wanted, container(RUTH), container(BOB), repositories=repos("ruth", "bob"))
    return "The repo and the container of alice were taken away.", wanted, seen


def _by_hand() -> Scenario:
    eve = agent("eve")
    wanted = desired_state(*HIVE, eve, journalled=[journal(container(BOB))])
    seen = observed(
        wanted,
        container(RUTH, listed_name="h-renamed", restart_policy="always"),
        container(ALICE, EngineState.PAUSED),
        container(eve, EngineState.DEAD),
        container(agent("old", incarnation="i-ended")),
        foreign=(ForeignContainer("f" * 64, "h-bob", "bob"),),
    )
    return "Renamed, paused, removed, dead, left over and foreign containers.", wanted, seen


def _drift() -> Scenario:
    moved = Declared(ALICE, spec("alice", commit="d" * 40), "")
    broken = Declared(BOB, None, "agent.toml: unknown key 'container.privileged'")
    wanted = desired_state(RUTH, moved, broken)
    return "alice's main moved on, bob's cannot be used.", wanted, observed(wanted, *map(container, HIVE))


def _roster_lost() -> Scenario:
    wanted = desired_state(*HIVE)
    seen = observed(wanted, *map(container, HIVE), roster=Unreadable("not JSON: it ends early"))
    return "topology.json is half written.", wanted, seen


def _roster_missing() -> Scenario:
    wanted = desired_state(*HIVE, shape=Shape.FLAT)
    seen = observed(wanted, *map(container, HIVE), roster=Absent(), repositories=repos("ruth", "bob"))
    return "topology.json is missing in a flat hive, and so is a repo.", wanted, seen


def _repos_unknown() -> Scenario:
    wanted = desired_state(*HIVE)
    seen = observed(
        wanted,
        container(RUTH),
        container(ALICE),
        container(agent("old", incarnation="i-ended")),
        repositories=Unknown("repos/ is not mounted"),
        roster=Absent(),
    )
    return "repos/ is not mounted and topology.json is away: what runs goes on running.", wanted, seen


def _engine_unknown() -> Scenario:
    wanted = desired_state(*HIVE)
    seen = observed(wanted, containers=Unknown("the engine does not answer"), repositories=repos())
    return "The engine does not answer.", wanted, seen


def _busy() -> Scenario:
    wanted = desired_state(*HIVE)
    return "alice is being worked on.", wanted, observed(wanted, container(RUTH), busy=["alice"])


def _quarantine() -> Scenario:
    ruth, alice, bob = (replace(one, quarantined_at=ago(5)) for one in HIVE)
    ended = container(bob, EngineState.EXITED, started_at=ago(60), finished_at=ago(2), exit_code=1)
    wanted = desired_state(ruth, alice, bob, journalled=[journal(ended)])
    seen = observed(wanted, container(ruth), container(alice, EngineState.PAUSED), ended)
    return "A hive in quarantine: one to be frozen, one frozen, one that has ended since.", wanted, seen


def _disk_full() -> Scenario:
    down = container(BOB, EngineState.EXITED, finished_at=ago(30), exit_code=143)
    excess = {ALICE.name: "12288 MiB of 10240 MiB are used", BOB.name: "1000001 of 1000000 files are used"}
    wanted = replace(desired_state(*HIVE, journalled=[journal(down, ago(40))]), over_budget=excess)
    seen = observed(wanted, container(RUTH), container(ALICE), down)
    return "alice and bob hold more than they may; bob is down for it already.", wanted, seen


def _updated(name: str, updated_s: float) -> AgentRecord:
    return replace(agent(name, reset_at=ago(updated_s)), previous=spec(name, commit="d" * 40))


def _probation() -> Scenario:
    fresh, young, proved, stopped = (_updated(one, 100) for one in ("fresh", "young", "proved", "stopped"))
    stopped = replace(stopped, desired=Desired.STOPPED)
    wanted = desired_state(fresh, young, proved, stopped)
    seen = observed(
        wanted,
        container(fresh, started_at=ago(0.4)),
        container(young, started_at=ago(4)),
        container(proved, started_at=ago(11)),
        container(stopped, EngineState.CREATED),
    )
    return "Updates before their first look, after it, proved, and not started yet.", wanted, seen


def _update_failed() -> Scenario:
    failed, unmade, earlier = (_updated(one, 60) for one in ("failed", "unmade", "earlier"))
    unmade = replace(unmade, exits=(crash(ago(5), kind=ExitKind.START_FAILED, of="none"),))
    ended = container(failed, EngineState.EXITED, started_at=ago(4), finished_at=ago(3), exit_code=1)
    long_run = container(earlier, EngineState.EXITED, started_at=ago(50), finished_at=ago(1), exit_code=1)
    wanted = desired_state(failed, unmade, earlier, journalled=[journal(ended), journal(long_run)])
    seen = observed(wanted, ended, long_run)
    return "An update that ends at once, one that cannot be made, one that ran a while.", wanted, seen


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "settled": _settled,
    "first-start": _first_start,
    "after-reboot": _after_reboot,
    "after-engine-restart": _after_engine_restart,
    "crashes": _crashes,
    "verbs": _verbs,
    "removal": _removal,
    "gone": _gone,
    "by-hand": _by_hand,
    "drift": _drift,
    "roster-unreadable": _roster_lost,
    "roster-missing": _roster_missing,
    "repos-unknown": _repos_unknown,
    "engine-unknown": _engine_unknown,
    "busy": _busy,
    "quarantine": _quarantine,
    "disk-full": _disk_full,
    "probation": _probation,
    "update-failed": _update_failed,
}
