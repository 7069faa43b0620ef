"""What holds for every hive, whatever happens to it."""

from hypothesis import given
from hypothesis import strategies as st

from hive_core.domain.agents import AgentRecord, Desired, IntentKind
from hive_core.domain.observed import EngineState, Unknown
from hive_core.domain.roster import Absent, Unreadable
from hive_core.domain.spec import LABEL_INCARNATION, LABEL_SPEC
from hive_core.planning.actions import (
    Adopt,
    Approve,
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
from hive_core.planning.plan import plan
from tests.property.strategies import Kind, hives, world_of
from tests.property.world import World
from tests.support.plan_inputs import name

_DOWN = (EngineState.CREATED, EngineState.EXITED, EngineState.DEAD)


@given(hives())
def test_a_settled_hive_plans_nothing(kinds: tuple[Kind, ...]) -> None:
    world = world_of(kinds)
    world.settle()
    before = world.engine.calls.copy()
    for _ in range(3):
        decided = world.plan()
        assert decided.is_settled
        world.carry_out(decided)
        world.stays_up()
    touching = {"create", "start", "stop", "kill", "unpause", "remove"}
    assert {call: world.engine.calls[call] - before[call] for call in touching} == dict.fromkeys(touching, 0)


@given(hives())
def test_who_is_to_run_runs_and_who_is_to_be_down_is_down(kinds: tuple[Kind, ...]) -> None:
    """Except what somebody paused by hand, what the engine says it is restarting, and what is kept down."""
    world = world_of(kinds)
    world.settle()
    for record in world.store.agents():
        states = {
            one.state
            for one in world.engine.containers()
            if one.labels.get(LABEL_INCARNATION) == record.incarnation
        }
        if record.quarantined_at is not None:
            assert EngineState.RUNNING not in states
            continue
        match record.desired:
            case Desired.RUNNING if record.name in world.over_budget:
                assert states <= set(_DOWN)
            case Desired.RUNNING:
                assert states <= {EngineState.RUNNING, EngineState.PAUSED, EngineState.RESTARTING}
                assert len(states) == 1
            case Desired.STOPPED:
                assert states <= set(_DOWN)
            case Desired.UNSPAWNED:
                assert not states


@given(hives(), st.lists(st.integers(1, 6), max_size=3))
def test_who_is_in_quarantine_is_frozen_and_nothing_else(kinds: tuple[Kind, ...], crashes: list[int]) -> None:
    """Except that it may be removed, by wish or by taking its repo away while it is down."""
    world = world_of(kinds)
    kept = {
        one.name
        for one in world.store.agents()
        if one.quarantined_at is not None and one.name in world.repos and not _is_leaving(one)
    }
    lives = {one.incarnation for one in world.store.agents() if one.name in kept}
    before = {one.id for one in world.engine.containers()}
    for limit in [*crashes, *[None] * 3]:
        decided = world.plan()
        assert {type(one) for one in decided.actions if one.agent in kept} <= {Pause, RecordExit}
        world.carry_out(decided, limit)
    own = {one.id for one in world.engine.containers() if one.labels.get(LABEL_INCARNATION) in lives}
    assert own <= before
    assert not own & (world.starts.keys() | world.stops.keys())


def _is_leaving(record: AgentRecord) -> bool:
    return record.intent is not None and record.intent.kind is IntentKind.REMOVE


@given(hives())
def test_a_spec_on_probation_is_judged_once(kinds: tuple[Kind, ...]) -> None:
    """Kept or taken back; what runs for good has nothing to go back to any more."""
    world = world_of(kinds)
    judged: list[str] = []
    for _ in range(12):
        decided = world.plan()
        if decided.is_settled:
            world.stays_up()
        judged += [one.agent for one in decided.actions if isinstance(one, Approve | RollBack)]
        world.carry_out(decided)
        world.finish_removals()
    assert len(judged) == len(set(judged))
    for record in world.store.agents():
        runs = [
            one.labels[LABEL_SPEC]
            for one in world.engine.containers()
            if one.labels.get(LABEL_INCARNATION) == record.incarnation and one.state is EngineState.RUNNING
        ]
        assert record.previous is None or record.applied_hash not in runs


def _addressed(decided: Plan) -> set[str]:
    return {
        action.container_id
        for action in decided.actions
        if isinstance(action, Start | Stop | Pause | Unpause | Remove) and action.container_id is not None
    }


@given(hives(), st.lists(st.integers(1, 6), max_size=4))
def test_nothing_that_is_not_ours_is_ever_touched(kinds: tuple[Kind, ...], crashes: list[int]) -> None:
    world = world_of(kinds)
    stranger = next(one for one in world.engine.containers() if one.name == "somebody")
    before = (stranger.state, stranger.started_at)
    for limit in [*crashes, None]:
        decided = world.plan()
        ours = {one.id for one in world.store.containers()}
        assert _addressed(decided) <= ours - {stranger.id}
        world.carry_out(decided, limit)
    world.settle()
    assert (stranger.state, stranger.started_at) == before
    assert stranger in world.engine.containers()


UNSEEN = st.sampled_from(
    [
        {"roster": Absent()},
        {"roster": Unreadable("half written")},
        {"repos": Unknown("repos/ is not mounted")},
        {"containers": Unknown("the engine does not answer")},
        {"repos": Unknown("repos/ is not mounted"), "roster": Absent()},
        {"containers": Unknown("the engine does not answer"), "roster": Unreadable("half written")},
    ]
)


def _has_orphan(world: World) -> None:
    """Leave a running container of an incarnation that has ended."""
    record = world.add(name("orphan"), Desired.RUNNING, None, is_root=False)
    world.bring(record, EngineState.RUNNING)
    world.store.end_agent(record.incarnation, world.now, is_purged=False)
    world.repos.discard(record.name)


@given(hives(may_wish=False), UNSEEN, st.sets(st.integers(0, 3)))
def test_what_was_not_seen_ends_nothing(
    kinds: tuple[Kind, ...], unseen: dict[str, object], without_repo: set[int]
) -> None:
    """Whoever is up stays up, nobody leaves, and with an input unknown nothing is published."""
    kinds = tuple(
        kind
        if kind.desired is not Desired.STOPPED
        else Kind(Desired.RUNNING, None, kind.state, kind.parent, True)
        for kind in kinds
    )
    world = world_of(kinds)
    _has_orphan(world)
    for number in without_repo:
        world.repos -= {one.name for one in world.store.agents()[number : number + 1]}
    states = {one.id: one.state for one in world.engine.containers()}
    decided = plan(world.desired(), world.observed(**unseen), world.now)  # type: ignore[arg-type]
    assert not [action for action in decided.actions if isinstance(action, Stop | Retire)]
    for one in decided.agents:
        removed = [action for action in one.actions if isinstance(action, Remove)]
        assert all(states[action.container_id] in _DOWN for action in removed)
        assert not removed or any(isinstance(action, Create) for action in one.actions)
    if set(unseen) & {"repos", "containers"}:
        assert decided.roster is None
        assert decided.is_partial
    if "containers" in unseen:
        assert decided.agents == () or all(isinstance(action, Adopt) for action in decided.actions)


@given(hives(), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_a_daemon_killed_at_any_step_comes_to_the_same_end(
    kinds: tuple[Kind, ...], crashes: list[int]
) -> None:
    undisturbed, killed = world_of(kinds), world_of(kinds)
    undisturbed.settle()
    for limit in crashes:
        killed.carry_out(killed.plan(), limit)
        killed.finish_removals()
    killed.settle()
    assert killed.outcome() == undisturbed.outcome()
    assert killed.file == undisturbed.file


@given(st.sampled_from([EngineState.EXITED, EngineState.DEAD]), st.integers(1, 12))
def test_a_daemon_killed_on_the_way_back_from_an_update_does_not_start_what_failed(
    state: EngineState, crash_after: int
) -> None:
    failing = (Kind(Desired.RUNNING, None, state, None, True, has_previous=True),)
    undisturbed, killed = world_of(failing), world_of(failing)
    undisturbed.settle()
    killed.carry_out(killed.plan(), crash_after)
    killed.settle()
    assert killed.outcome() == undisturbed.outcome()


@given(hives(), st.integers(1, 9))
def test_no_container_is_stopped_or_started_twice_for_one_wish(
    kinds: tuple[Kind, ...], crash_after: int
) -> None:
    """A daemon killed between writing a stop down and asking for it asks again; one that asked does not."""
    world = world_of(kinds)
    world.carry_out(world.plan(), crash_after)
    world.settle()
    assert all(count == 1 for count in world.stops.values())
    assert all(count == 1 for count in world.starts.values())
    names = [one.name for one in world.engine.containers()]
    assert len(names) == len(set(names))


@given(hives(may_wish=False), st.integers(0, 3))
def test_what_runs_undisturbed_is_never_restarted(kinds: tuple[Kind, ...], passes: int) -> None:
    world = world_of(kinds)
    wanted = {one.incarnation for one in world.store.agents() if one.desired is Desired.RUNNING}
    up = {
        one.id: one.started_at
        for one in world.engine.containers()
        if one.state is EngineState.RUNNING and one.labels.get(LABEL_INCARNATION) in wanted
    }
    for _ in range(passes + 1):
        world.carry_out(world.plan())
    assert up.items() <= {one.id: one.started_at for one in world.engine.containers()}.items()
