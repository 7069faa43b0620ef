"""May this caller do that: every operation against every kind of target, in every state of the roster."""

import pytest

from hive_core.domain.names import AgentName, parse_name
from hive_core.domain.operations import OPERATIONS, Capability, Reach, Surface
from hive_core.domain.roster import Roster, Shape
from hive_core.planning.authorise import (
    AgentCaller,
    Allowed,
    NotPermitted,
    NotReachable,
    Operator,
    Verdict,
    authorise,
)

# ruth ── alice ── bob ── dan     eve (top-level, unrelated)
#      └─ carol
_EDGES = {"ruth": None, "alice": "ruth", "carol": "ruth", "bob": "alice", "dan": "bob", "eve": None}
_PARENTS = {parse_name(one): None if up is None else parse_name(up) for one, up in _EDGES.items()}
TREE = Roster(Shape.TREE, _PARENTS)
FLAT = Roster(Shape.FLAT, dict.fromkeys(_PARENTS))
CALLER = parse_name("alice")

TARGETS: dict[str, AgentName | None] = {
    "self": CALLER,
    "child": parse_name("bob"),
    "grandchild": parse_name("dan"),
    "sibling": parse_name("carol"),
    "parent": parse_name("ruth"),
    "unrelated": parse_name("eve"),
    "unknown": parse_name("nobody"),
    "none": None,
}
BELOW = {"self", "child", "grandchild"}
ROSTERS = {"tree": TREE, "flat": FLAT, "no-roster": None}


def _allowed(operation: str, target: str, roster: str) -> bool:
    if Surface.AGENT not in OPERATIONS[operation].surfaces or roster == "no-roster":
        return False
    if not OPERATIONS[operation].has_target:
        return True
    return target in (BELOW if roster == "tree" else {"self"})


@pytest.mark.parametrize("roster", list(ROSTERS))
@pytest.mark.parametrize("target", list(TARGETS))
@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_agent(operation: str, target: str, roster: str) -> None:
    verdict = authorise(
        AgentCaller(CALLER), OPERATIONS[operation], TARGETS[target], ROSTERS[roster], list(_PARENTS)
    )
    assert isinstance(verdict, Allowed) is _allowed(operation, target, roster)
    if OPERATIONS[operation].reach is Reach.OPERATOR:
        assert isinstance(verdict, NotPermitted)


@pytest.mark.parametrize("roster", list(ROSTERS))
@pytest.mark.parametrize("target", list(TARGETS))
@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_operator(operation: str, target: str, roster: str) -> None:
    """The operator's reach does not hang on the roster: it is every agent there is."""
    verdict = authorise(Operator(), OPERATIONS[operation], TARGETS[target], ROSTERS[roster], list(_PARENTS))
    assert type(verdict) is (NotReachable if target == "unknown" else Allowed)


def _kill(caller: AgentCaller, target: str, roster: Roster | None = TREE) -> Verdict:
    return authorise(caller, OPERATIONS["kill"], TARGETS[target], roster, list(_PARENTS))


def test_out_of_reach_and_non_existent_are_the_same_answer() -> None:
    answers = {
        type(_kill(AgentCaller(CALLER), target)) for target in ("sibling", "parent", "unrelated", "unknown")
    }
    assert answers == {NotReachable}


@pytest.mark.parametrize("target", list(TARGETS))
def test_manage_lifecycle_reaches_who_exists_and_nobody_else(target: str) -> None:
    verdict = _kill(AgentCaller(CALLER, frozenset({Capability.MANAGE_LIFECYCLE})), target)
    assert isinstance(verdict, Allowed) is (target not in ("unknown", "none"))


@pytest.mark.parametrize("capability", [one for one in Capability if one is not Capability.MANAGE_LIFECYCLE])
def test_another_capability_widens_nothing(capability: Capability) -> None:
    assert isinstance(_kill(AgentCaller(CALLER, frozenset({capability})), "sibling"), NotReachable)


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if OPERATIONS[one].reach is Reach.OPERATOR])
def test_no_capability_makes_an_operator(operation: str) -> None:
    caller = AgentCaller(CALLER, frozenset(Capability))
    assert isinstance(authorise(caller, OPERATIONS[operation], CALLER, TREE, [CALLER]), NotPermitted)


def test_without_a_roster_a_capability_reaches_nobody() -> None:
    caller = AgentCaller(CALLER, frozenset(Capability))
    assert {type(_kill(caller, target, None)) for target in TARGETS} == {NotReachable}


def test_a_caller_the_roster_does_not_know_reaches_nobody_not_even_itself() -> None:
    ghost = AgentCaller(parse_name("nobody"), frozenset(Capability))
    assert {type(_kill(ghost, target)) for target in TARGETS} == {NotReachable}


def test_a_name_gives_no_right() -> None:
    assert isinstance(_kill(AgentCaller(parse_name("ruth")), "unrelated"), NotReachable)
    assert isinstance(_kill(AgentCaller(parse_name("ruth")), "self", FLAT), NotReachable)
