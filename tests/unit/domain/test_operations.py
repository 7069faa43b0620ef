from hive_core.domain.operations import OPERATIONS, Capability, Operation, Reach, Surface, ToolGroup


def _those(**facts: object) -> set[str]:
    return {
        name
        for name, operation in OPERATIONS.items()
        if all(getattr(operation, key) == value for key, value in facts.items())
    }


def test_every_operation_is_listed_under_its_own_name_with_a_summary() -> None:
    for name, operation in OPERATIONS.items():
        assert isinstance(operation, Operation)
        assert name == operation.name
        assert operation.surfaces
        assert operation.summary
        assert not operation.summary.endswith(".")


def test_only_the_operator_creates_ends_and_enters_agents() -> None:
    assert {"init", "push", "spawn", "remove", "exec", "reconcile"} <= _those(reach=Reach.OPERATOR)


def test_what_is_only_the_operators_is_on_no_agents_socket() -> None:
    for operation in OPERATIONS.values():
        assert (operation.reach is Reach.OPERATOR) == (Surface.AGENT not in operation.surfaces)
        assert (operation.tool_group is None) == (Surface.AGENT not in operation.surfaces)


def test_the_lifecycle_group_is_widened_by_its_capability_alone() -> None:
    lifecycle = _those(tool_group=ToolGroup.LIFECYCLE)
    assert lifecycle == {"list_containers", "start", "kill", "restart", "update", "get_logs"}
    assert lifecycle == _those(widened_by=Capability.MANAGE_LIFECYCLE)


def test_every_mutation_an_agent_may_ask_for_names_a_target() -> None:
    for operation in OPERATIONS.values():
        if operation.mutates and Surface.AGENT in operation.surfaces:
            assert operation.has_target, operation.name


def test_reads_are_marked_as_reads() -> None:
    reads = {
        "audit", "backup", "changes", "doctor", "events", "explain", "get_logs", "list_containers", "names",
        "roster", "show", "status", "why",
    }  # fmt: skip
    assert _those(mutates=False) == reads
