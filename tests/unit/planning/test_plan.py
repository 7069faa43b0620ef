from dataclasses import replace

import pytest

from hive_core.domain.agents import Desired, ExitKind, IntentKind
from hive_core.domain.observed import Containers, EngineState, ForeignContainer, Unknown
from hive_core.domain.roster import Absent, Unreadable
from hive_core.planning.actions import AgentState, Create, Plan, RecordExit, Remove, Start, Stop
from hive_core.planning.desired import Declared
from hive_core.planning.plan import plan
from hive_core.planning.shutdown import plan_shutdown
from tests.support.plan_inputs import (
    NOW,
    agent,
    ago,
    container,
    crash,
    desired_state,
    journal,
    name,
    observed,
    repos,
    spec,
    wish,
)


def _starts(decided: Plan) -> list[tuple[str, str | None]]:
    return [
        (one.agent, one.after)
        for one in decided.agents
        if any(isinstance(step, Start) for step in one.actions)
    ]


# ---- order ------------------------------------------------------------------------------------------------


def test_the_root_agent_starts_first_then_parents_then_by_name() -> None:
    records = [
        agent("dan", parent="bob"),
        agent("bob", parent="alice"),
        agent("alice", parent="zoe"),
        agent("carol", parent="zoe"),
        agent("eve"),
        agent("zoe", is_root=True),
    ]
    wanted = desired_state(*records)
    assert _starts(plan(wanted, observed(wanted), NOW)) == [
        ("zoe", None), ("eve", None), ("alice", "zoe"), ("carol", "zoe"), ("bob", "alice"), ("dan", "bob"),
    ]  # fmt: skip


def test_who_starts_waits_only_for_an_ancestor_that_starts_too() -> None:
    records = [agent("ruth", is_root=True), agent("alice", parent="ruth"), agent("bob", parent="alice")]
    wanted = desired_state(*records)
    runs = container(records[1])
    assert _starts(plan(wanted, observed(wanted, runs), NOW)) == [("ruth", None), ("bob", "ruth")]
    runs = container(records[0])
    assert _starts(plan(wanted, observed(wanted, runs), NOW)) == [("alice", None), ("bob", "alice")]


def test_a_ring_of_parents_has_an_order_too() -> None:
    wanted = desired_state(agent("alice", parent="bob"), agent("bob", parent="alice"), published=b"{}")
    assert {one for one, _ in _starts(plan(wanted, observed(wanted), NOW))} == {"alice", "bob"}


def test_a_stop_waits_for_nobody() -> None:
    down = wish(IntentKind.STOP)
    records = [
        agent("ruth", Desired.STOPPED, intent=down, is_root=True),
        agent("bob", Desired.STOPPED, intent=down, parent="ruth"),
    ]
    wanted = desired_state(*records)
    decided = plan(wanted, observed(wanted, *map(container, records)), NOW)
    assert [one.after for one in decided.agents] == [None, None]


# ---- what is unknown or busy ------------------------------------------------------------------------------


@pytest.mark.parametrize("wished", ["none", *(kind.value for kind in IntentKind)])
@pytest.mark.parametrize("desired", list(Desired), ids=lambda one: one.value)
def test_an_engine_that_does_not_answer_leaves_every_cell_unknown(desired: Desired, wished: str) -> None:
    record = agent(desired=desired, intent=None if wished == "none" else wish(IntentKind(wished)))
    wanted = desired_state(record)
    decided = plan(wanted, observed(wanted, containers=Unknown("it does not answer")), NOW)
    (view,) = decided.views
    assert (decided.agents, decided.roster, decided.is_partial) == ((), None, True)
    assert (view.state, view.reason, view.container_id) == (AgentState.UNKNOWN, "it does not answer", None)
    assert [one.code for one in decided.problems] == ["engine_unknown"]


def test_a_busy_agent_is_left_alone_and_the_others_are_not() -> None:
    wanted = desired_state(agent("alice"), agent("bob"))
    decided = plan(wanted, observed(wanted, busy=["bob"]), NOW)
    assert [one.agent for one in decided.agents] == ["alice"]
    assert not decided.is_partial


@pytest.mark.parametrize(
    "desired", [pytest.param(Desired.RUNNING, id="running"), pytest.param(Desired.STOPPED, id="stopped")]
)
def test_verbs_work_while_the_repos_are_unknown(desired: Desired) -> None:
    """Starting and stopping need no config: only what would end an agent waits."""
    record = agent(desired=desired)
    ours = [container(record)] if desired is Desired.STOPPED else []
    wanted = desired_state(record)
    decided = plan(wanted, observed(wanted, *ours, repositories=Unknown("not mounted")), NOW)
    wished = Stop if desired is Desired.STOPPED else Start
    assert any(isinstance(one, wished) for one in decided.actions)


# ---- what is not ours, or no longer -----------------------------------------------------------------------

ENDED = agent("bob", incarnation="i-old")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(EngineState.CREATED, [Remove], id="created"),
        pytest.param(EngineState.RUNNING, [Stop, Remove], id="running"),
        pytest.param(EngineState.PAUSED, [Stop, Remove], id="paused"),
        pytest.param(EngineState.RESTARTING, [Stop, Remove], id="restarting"),
        pytest.param(EngineState.EXITED, [Remove], id="exited"),
        pytest.param(EngineState.DEAD, [Remove], id="dead"),
        pytest.param(EngineState.REMOVING, [], id="removing"),
    ],
)
def test_the_container_of_an_ended_incarnation_goes(state: EngineState, expected: list[type]) -> None:
    wanted = desired_state()
    decided = plan(wanted, observed(wanted, container(ENDED, state)), NOW)
    assert [type(one) for one in decided.actions] == expected


def test_it_goes_before_the_next_incarnation_of_the_name_is_made() -> None:
    wanted = desired_state(agent("bob", incarnation="i-new"))
    decided = plan(wanted, observed(wanted, container(ENDED, container_id="id-old")), NOW)
    assert [type(one) for one in decided.actions] == [Stop, Remove, Create, Start]
    assert len(decided.agents) == 1


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param({"repositories": Unknown("not mounted")}, id="repos-unknown"),
        pytest.param({"roster": Absent()}, id="roster-absent"),
        pytest.param({"roster": Unreadable("torn")}, id="roster-unreadable"),
        pytest.param({"busy": ["bob"]}, id="busy"),
    ],
)
def test_it_stays_while_something_was_not_seen(seen: dict[str, object]) -> None:
    wanted = desired_state()
    decided = plan(wanted, observed(wanted, container(ENDED), **seen), NOW)  # type: ignore[arg-type]
    assert decided.agents == ()


def test_a_foreign_container_is_reported_and_left_alone() -> None:
    wanted = desired_state(agent("bob", Desired.STOPPED))
    foreign = ForeignContainer("f" * 64, "h-bob", "bob")
    decided = plan(wanted, observed(wanted, foreign=(foreign,)), NOW)
    assert decided.is_settled
    (problem,) = decided.problems
    assert problem.code == "foreign_container"
    assert "h-bob (ffffffffffff)" in problem.text


# ---- what is shown ----------------------------------------------------------------------------------------


def test_a_settled_agent_is_shown_as_it_is() -> None:
    record = agent("bob", parent="ruth")
    wanted = desired_state(record, agent("ruth", Desired.STOPPED, is_root=True))
    decided = plan(wanted, observed(wanted, container(record)), NOW)
    view = decided.views[0]
    assert decided.is_settled
    assert (view.name, view.parent, view.state) == ("bob", "ruth", AgentState.RUNNING)
    assert (view.container_id, view.started_at) == ("id-bob", ago(3600))
    assert (view.needs_update, view.degraded, view.reason) == (False, False, "running as asked")


def test_an_agent_that_is_down_has_no_start_time() -> None:
    record = agent("bob", Desired.STOPPED)
    one = container(record, EngineState.EXITED)
    wanted = desired_state(record, journalled=[journal(one, NOW)])
    (view,) = plan(wanted, observed(wanted, one), NOW).views
    assert (view.container_id, view.started_at) == ("id-bob", None)


def test_a_crash_says_why_it_runs_again() -> None:
    record = agent("bob", exits=[crash(ago(60))])
    wanted = desired_state(record)
    (view,) = plan(wanted, observed(wanted, container(record, started_at=ago(58))), NOW).views
    assert view.reason == "started again after: ended as crash"


def test_a_crashed_agent_waits_and_the_pass_says_until_when() -> None:
    record = agent("bob")
    one = container(record, EngineState.EXITED, finished_at=NOW, exit_code=3)
    wanted = desired_state(record, journalled=[journal(one)])
    decided = plan(wanted, observed(wanted, one), NOW)
    assert [type(step) for step in decided.actions] == [RecordExit]
    assert decided.views[0].state is AgentState.BACKOFF
    assert decided.wake_at is not None
    assert 0.9 <= (decided.wake_at - NOW).total_seconds() <= 1.1


def test_a_start_that_keeps_failing_is_failed_not_looping() -> None:
    record = agent(
        "bob", exits=[crash(ago(number), kind=ExitKind.START_FAILED) for number in range(9, -1, -1)]
    )
    wanted = desired_state(record)
    decided = plan(wanted, observed(wanted), NOW)
    assert decided.views[0].state is AgentState.FAILED
    assert [one.code for one in decided.problems] == ["failed"]
    assert decided.wake_at is not None


@pytest.mark.parametrize(
    ("candidate", "label_of", "differing"),
    [
        pytest.param(spec("bob"), None, (), id="same"),
        pytest.param(spec("bob", commit="d" * 40), None, ("commit",), id="main-moved"),
        pytest.param(None, None, (), id="main-unusable"),
        pytest.param(spec("bob"), spec("bob", uid=7), ("spec",), id="container-from-another-spec"),
        pytest.param(None, spec("bob", uid=7), ("spec",), id="unusable-and-from-another-spec"),
    ],
)
def test_drift_is_shown_and_never_applied(
    candidate: object, label_of: object, differing: tuple[str, ...]
) -> None:
    record = agent("bob")
    fault = "" if candidate is not None else "agent.toml: unknown key 'x'"
    one = container(record, of=label_of)  # type: ignore[arg-type]
    wanted = desired_state(Declared(record, candidate, fault))  # type: ignore[arg-type]
    decided = plan(wanted, observed(wanted, one), NOW)
    (view,) = decided.views
    assert decided.is_settled
    assert (view.differing, view.needs_update) == (differing, bool(differing))
    assert (view.degraded, view.fault) == (bool(fault), fault)
    assert [problem.code for problem in decided.problems] == (["degraded"] if fault else [])


def test_a_label_of_an_unknown_version_is_no_drift() -> None:
    record = agent("bob")
    one = replace(container(record), spec_label="v9:abc")
    wanted = desired_state(record)
    assert not plan(wanted, observed(wanted, one), NOW).views[0].needs_update


# ---- problems ---------------------------------------------------------------------------------------------


def test_what_somebody_did_to_a_container_by_hand_is_told() -> None:
    record = agent("bob")
    one = container(record, listed_name="h-eve", restart_policy="always")
    wanted = desired_state(record)
    decided = plan(wanted, observed(wanted, one), NOW)
    assert decided.is_settled
    assert [problem.code for problem in decided.problems] == ["renamed_container", "foreign_restart_policy"]
    assert {problem.agent for problem in decided.problems} == {"bob"}


def test_of_several_containers_the_one_that_runs_is_the_agents() -> None:
    record = agent("bob")
    runs = container(record, container_id="id-1")
    copy = container(record, EngineState.EXITED, container_id="id-2", finished_at=ago(9))
    wanted = desired_state(record)
    for ours in ((runs, copy), (copy, runs)):
        decided = plan(wanted, observed(wanted, *ours), NOW)
        assert decided.is_settled
        assert decided.views[0].container_id == "id-1"
        assert [problem.code for problem in decided.problems] == ["several_containers"]


@pytest.mark.parametrize(
    ("seen", "codes"),
    [
        pytest.param({"repositories": Unknown("not mounted")}, ["repos_unknown"], id="repos-unknown"),
        pytest.param(
            {"repositories": repos("bob", misnamed=("UPPER.git",))}, ["misnamed_repo"], id="misnamed"
        ),
        pytest.param({"roster": Unreadable("torn")}, ["roster_unreadable"], id="roster-unreadable"),
    ],
)
def test_what_is_wrong_with_the_host_is_told(seen: dict[str, object], codes: list[str]) -> None:
    wanted = desired_state(agent("bob", Desired.STOPPED))
    decided = plan(wanted, observed(wanted, **seen), NOW)  # type: ignore[arg-type]
    assert [problem.code for problem in decided.problems] == codes


# ---- the whole hive down ----------------------------------------------------------------------------------


def test_taking_the_hive_down_stops_what_is_up_and_nothing_else() -> None:
    records = [agent(one.value[:9], incarnation=one.value) for one in EngineState]
    ours = tuple(container(record, state) for record, state in zip(records, EngineState, strict=True))
    plans = plan_shutdown(Containers(ours, ()), 7)
    stops = [step for one in plans for step in one.actions]
    assert all(isinstance(step, Stop) and step.grace_s == 7 for step in stops)
    assert [step.agent for step in stops] == [name("running"), name("paused"), name("restartin")]
