"""A decision in words: the rule behind it, and what would turn it."""

from __future__ import annotations

import pytest

from hive_core.domain.names import AgentName
from hive_core.domain.operations import OPERATIONS, Operation, Reach, Surface
from hive_core.domain.roster import Roster
from hive_core.planning.authorise import AgentCaller, Allowed, Caller, Operator, authorise, explain
from tests.support.plan_inputs import name
from tests.unit.planning.test_authorise import CALLER, ROSTERS, TARGETS, TREE

EXISTING = list(TREE.parents)
FOR_AGENTS = next(
    one
    for one in OPERATIONS.values()
    if Surface.AGENT in one.surfaces and one.has_target and one.reach is not Reach.OPERATOR
)
FOR_OPERATORS = next(one for one in OPERATIONS.values() if one.reach is Reach.OPERATOR)


@pytest.mark.parametrize("caller", [Operator(), AgentCaller(CALLER), AgentCaller(name("nobody"))])
@pytest.mark.parametrize("roster", list(ROSTERS))
@pytest.mark.parametrize("target", list(TARGETS))
@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_it_says_what_is_decided(operation: str, target: str, roster: str, caller: Caller) -> None:
    asked = (caller, OPERATIONS[operation], TARGETS[target], ROSTERS[roster], EXISTING)
    verdict, found = authorise(*asked), explain(*asked)
    assert found.is_allowed is isinstance(verdict, Allowed)
    assert found.rule == verdict.rule
    assert bool(found.remedy) is not found.is_allowed
    assert "None" not in found.remedy + found.rule


BOB, EVE, NOBODY = (name(one) for one in ("bob", "eve", "nobody"))


@pytest.mark.parametrize(
    ("caller", "operation", "target", "roster", "decision", "remedy"),
    [
        pytest.param(Operator(), FOR_OPERATORS, BOB, TREE, "allowed", "", id="operator"),
        pytest.param(
            Operator(), FOR_AGENTS, NOBODY, None, "answered not_found", "an agent 'nobody'", id="nobody"
        ),
        pytest.param(AgentCaller(CALLER), FOR_AGENTS, BOB, TREE, "allowed", "", id="own-child"),
        pytest.param(
            AgentCaller(CALLER),
            FOR_OPERATORS,
            BOB,
            TREE,
            "denied",
            "nothing: no grant reaches it",
            id="never",
        ),
        pytest.param(
            AgentCaller(CALLER),
            FOR_AGENTS,
            BOB,
            None,
            "answered not_found",
            "a published roster: the next pass writes it",
            id="no-roster",
        ),
        pytest.param(
            AgentCaller(NOBODY),
            FOR_AGENTS,
            BOB,
            TREE,
            "answered not_found",
            "'nobody' in the roster",
            id="caller-not-listed",
        ),
        pytest.param(
            AgentCaller(CALLER),
            FOR_AGENTS,
            None,
            TREE,
            "answered not_found",
            "a call that names a target",
            id="no-target",
        ),
        pytest.param(
            AgentCaller(CALLER),
            FOR_AGENTS,
            NOBODY,
            TREE,
            "answered not_found",
            "an agent 'nobody'",
            id="no-such-target",
        ),
    ],
)
def test_the_remedy(
    caller: Caller,
    operation: Operation,
    target: AgentName | None,
    roster: Roster | None,
    decision: str,
    remedy: str,
) -> None:
    found = explain(caller, operation, target, roster, EXISTING)
    assert (found.decision, found.remedy) == (decision, remedy)


def test_out_of_reach_the_remedy_is_the_position_or_the_capability() -> None:
    for operation in OPERATIONS.values():
        if Surface.AGENT not in operation.surfaces or not operation.has_target:
            continue
        found = explain(AgentCaller(CALLER), operation, EVE, TREE, EXISTING)
        if operation.reach is Reach.OPERATOR:
            continue
        widened = f", or holding {operation.widened_by}" if operation.widened_by else ""
        assert found.remedy == f"being above 'eve' in the roster{widened}"
