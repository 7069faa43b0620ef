from collections.abc import Mapping

import pytest

from hive_core.domain.agents import AgentRecord, Desired, IntentKind
from hive_core.domain.names import AgentName
from hive_core.domain.observed import EngineState, Known, Repos, Unknown
from hive_core.domain.roster import Absent, RosterFile, Shape, Unreadable, decode
from hive_core.planning.actions import Adopt, Plan, Retire
from hive_core.planning.plan import plan
from tests.support.plan_inputs import NOW, agent, container, desired_state, name, observed, repos, wish


def _edges(decided: Plan) -> Mapping[AgentName, AgentName | None] | None:
    return None if decided.roster is None else decided.roster.roster.parents


def _adopted(decided: Plan) -> dict[str, str | None]:
    return {one.agent: one.parent for one in decided.actions if isinstance(one, Adopt)}


def _retired(decided: Plan) -> list[str]:
    return [one.agent for one in decided.actions if isinstance(one, Retire)]


ROOT = agent("ruth", Desired.STOPPED, is_root=True)


# ---- who comes in -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "root", "first_edges", "expected"),
    [
        pytest.param(Shape.TREE, ROOT, None, {"bob": "ruth"}, id="below-the-root-agent"),
        pytest.param(Shape.TREE, None, None, {"bob": None}, id="ruthless"),
        pytest.param(Shape.FLAT, ROOT, None, {"bob": None}, id="flat"),
        pytest.param(Shape.TREE, ROOT, {"bob": None}, {"bob": None}, id="top-level-in-the-first-map"),
        pytest.param(Shape.TREE, ROOT, {"bob": "ruth"}, {"bob": "ruth"}, id="first-map-names-a-record"),
        pytest.param(Shape.TREE, ROOT, {"bob": "gone"}, {"bob": None}, id="first-map-names-nobody"),
        pytest.param(Shape.TREE, ROOT, {"eve": "ruth"}, {"bob": "ruth"}, id="first-map-is-silent"),
        pytest.param(Shape.FLAT, None, {"bob": "ruth"}, {"bob": None}, id="flat-with-a-map"),
    ],
)
def test_a_repo_without_a_record_is_adopted(
    shape: Shape, root: AgentRecord | None, first_edges: Mapping[str, str | None] | None, expected: object
) -> None:
    edges = (
        None
        if first_edges is None
        else {name(one): None if up is None else name(up) for one, up in first_edges.items()}
    )
    wanted = desired_state(*([root] if root else []), shape=shape, first_edges=edges)
    seen = observed(wanted, repositories=repos("bob", *(["ruth"] if root else [])))
    decided = plan(wanted, seen, NOW)
    assert _adopted(decided) == expected
    assert decided.roster is not None
    assert "bob" in decided.roster.roster


def test_a_whole_map_is_adopted_at_first_start() -> None:
    edges = {name("alice"): None, name("bob"): name("alice"), name("dan"): name("bob")}
    wanted = desired_state(first_edges=edges)
    decided = plan(wanted, observed(wanted, repositories=repos("alice", "bob", "dan")), NOW)
    assert _adopted(decided) == edges
    assert _edges(decided) == edges


def test_a_busy_name_is_not_adopted_while_it_is_being_made() -> None:
    wanted = desired_state()
    decided = plan(wanted, observed(wanted, repositories=repos("bob"), busy=["bob"]), NOW)
    assert decided.is_settled


# ---- who leaves -------------------------------------------------------------------------------------------

BOB = agent("bob", Desired.STOPPED)


def test_a_name_leaves_when_repo_and_container_were_seen_to_be_gone() -> None:
    wanted = desired_state(BOB)
    decided = plan(wanted, observed(wanted, repositories=repos()), NOW)
    assert _retired(decided) == ["bob"]
    assert _edges(decided) == {}
    assert decided.views == ()


@pytest.mark.parametrize(
    ("record", "state", "repositories", "busy"),
    [
        pytest.param(BOB, None, repos("bob"), [], id="repo-is-there"),
        pytest.param(BOB, EngineState.EXITED, repos(), [], id="container-is-there"),
        pytest.param(BOB, None, repos(), ["bob"], id="busy"),
        pytest.param(
            agent("bob", Desired.STOPPED, intent=wish(IntentKind.STOP)),
            None,
            repos(),
            [],
            id="a-wish-is-open",
        ),
    ],
)
def test_a_name_stays_while_anything_of_it_is_there(
    record: AgentRecord, state: EngineState | None, repositories: Repos, busy: list[str]
) -> None:
    wanted = desired_state(record)
    ours = [container(record, state)] if state else []
    decided = plan(wanted, observed(wanted, *ours, repositories=repositories, busy=busy), NOW)
    assert _retired(decided) == []
    assert decided.roster is None


@pytest.mark.parametrize(
    "roster",
    [pytest.param(Absent(), id="absent"), pytest.param(Unreadable("half written"), id="unreadable")],
)
def test_a_pass_that_cannot_read_the_roster_writes_it_and_ends_nobody(roster: RosterFile) -> None:
    wanted = desired_state(BOB)
    decided = plan(wanted, observed(wanted, repositories=repos(), roster=roster), NOW)
    assert _retired(decided) == []
    assert _edges(decided) == {"bob": None}


@pytest.mark.parametrize(
    ("repositories", "is_engine_known"),
    [
        pytest.param(Unknown("repos/ is not mounted"), True, id="repos"),
        pytest.param(repos(), False, id="engine"),
        pytest.param(Unknown("repos/ is not mounted"), False, id="both"),
    ],
)
@pytest.mark.parametrize(
    "roster", [pytest.param(Absent(), id="absent"), pytest.param(None, id="as-published")]
)
def test_with_an_input_unknown_the_published_roster_stands(
    repositories: Known[Repos], is_engine_known: bool, roster: RosterFile | None
) -> None:
    wanted = desired_state(BOB, ROOT)
    engine = None if is_engine_known else Unknown("the engine does not answer")
    decided = plan(wanted, observed(wanted, repositories=repositories, containers=engine, roster=roster), NOW)
    assert (decided.roster, decided.is_partial, decided.agents) == (None, True, ())
    assert {view.name for view in decided.views} == {"bob", "ruth"}


# ---- the edges --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "gone", "expected"),
    [
        pytest.param(
            {"ruth": None, "alice": "ruth", "bob": "alice"},
            {"alice"},
            {"ruth": None, "bob": "ruth"},
            id="grandparent",
        ),
        pytest.param(
            {"ruth": None, "alice": "ruth", "bob": "alice", "dan": "bob"},
            {"alice", "bob"},
            {"ruth": None, "dan": "ruth"},
            id="great-grandparent",
        ),
        pytest.param({"alice": None, "bob": "alice"}, {"alice"}, {"bob": None}, id="no-grandparent"),
        pytest.param({"bob": "never"}, set(), {"bob": None}, id="unknown-parent"),
        pytest.param({"bob": "bob"}, set(), {"bob": None}, id="own-parent"),
        pytest.param({"a": "b", "b": "a"}, set(), {"a": None, "b": "a"}, id="2-ring"),
        pytest.param(
            {"a": "b", "b": "c", "c": "d", "d": "e", "e": "a", "x": "c"},
            set(),
            {"a": None, "b": "c", "c": "d", "d": "e", "e": "a", "x": "c"},
            id="5-ring",
        ),
        pytest.param({"a": "b", "b": "a", "x": "a"}, {"a", "b"}, {"x": None}, id="ring-of-the-gone"),
    ],
)
def test_the_published_edges(
    edges: dict[str, str | None], gone: set[str], expected: dict[str, str | None]
) -> None:
    records = [agent(one, Desired.STOPPED, parent=up) for one, up in edges.items()]
    wanted = desired_state(*records, published=b"{}")
    decided = plan(wanted, observed(wanted, repositories=repos(*(edges.keys() - gone))), NOW)
    assert _edges(decided) == expected
    assert sorted(_retired(decided)) == sorted(gone)


def test_a_flat_hive_publishes_names_alone_and_keeps_the_edges() -> None:
    records = [agent("alice", Desired.STOPPED), agent("bob", Desired.STOPPED, parent="alice")]
    wanted = desired_state(*records, shape=Shape.FLAT, published=b"[]\n")
    decided = plan(wanted, observed(wanted), NOW)
    assert decided.roster is not None
    assert decided.roster.content == b'["alice", "bob"]\n'


# ---- publication ------------------------------------------------------------------------------------------

GOOD = b'{"bob": null}\n'


def _found(content: bytes) -> RosterFile:
    return decode(content)


@pytest.mark.parametrize(
    ("published", "found", "expected"),
    [
        pytest.param(GOOD, _found(GOOD), None, id="as-published"),
        pytest.param(b"{}\n", _found(b"{}\n"), (False, "1 agent"), id="changed"),
        pytest.param(GOOD, Absent(), (True, "missing"), id="missing"),
        pytest.param(GOOD, Unreadable("half written"), (True, "unreadable: half written"), id="unreadable"),
        pytest.param(GOOD, _found(b'{"bob":null}'), (True, "by hand"), id="same-roster-other-bytes"),
        pytest.param(GOOD, _found(b'["bob"]'), (True, "by hand"), id="other-shape"),
        pytest.param(GOOD, _found(b'{"bob": null, "eve": null}'), (True, "by hand"), id="name-added"),
        pytest.param(b"{}\n", _found(GOOD), (True, "by hand"), id="foreseen-by-hand"),
    ],
)
def test_what_is_published(published: bytes, found: RosterFile, expected: tuple[bool, str] | None) -> None:
    wanted = desired_state(BOB, published=published)
    decided = plan(wanted, observed(wanted, roster=found), NOW)
    if expected is None:
        assert decided.is_settled
        return
    assert decided.roster is not None
    assert decided.roster.content == GOOD
    assert decided.roster.repaired is expected[0]
    assert expected[1] in decided.roster.reason


def test_the_content_of_a_changed_file_adds_no_name_and_no_edge() -> None:
    alice = agent("alice", Desired.STOPPED)
    wanted = desired_state(BOB, alice)
    forged = _found(b'{"alice": "bob", "bob": null, "eve": "bob"}')
    assert _edges(plan(wanted, observed(wanted, roster=forged), NOW)) == {"alice": None, "bob": None}
