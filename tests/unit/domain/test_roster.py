import pytest

from hive_core.domain.errors import InvalidRoster
from hive_core.domain.names import AgentName, parse_name
from hive_core.domain.roster import EMPTY, Present, Roster, Shape, decode, encode

# ruth ── alice ── bob ── dan
#      └─ carol            eve (top-level)
EDGES = {"ruth": None, "alice": "ruth", "carol": "ruth", "bob": "alice", "dan": "bob", "eve": None}


def _roster(edges: dict[str, str | None], shape: Shape = Shape.TREE) -> Roster:
    return Roster(
        shape, {parse_name(one): None if up is None else parse_name(up) for one, up in edges.items()}
    )


TREE = _roster(EDGES)


@pytest.mark.parametrize(
    ("name", "ancestors", "children", "subtree"),
    [
        pytest.param("ruth", "", "alice carol", "ruth alice carol bob dan", id="root"),
        pytest.param("alice", "ruth", "bob", "alice bob dan", id="inner"),
        pytest.param("dan", "bob alice ruth", "", "dan", id="leaf"),
        pytest.param("eve", "", "", "eve", id="alone"),
        pytest.param("nobody", "", "", "", id="unknown"),
    ],
)
def test_who_is_above_and_below(name: str, ancestors: str, children: str, subtree: str) -> None:
    agent = AgentName(name)
    assert TREE.ancestors(agent) == tuple(ancestors.split())
    assert TREE.children(agent) == tuple(children.split())
    assert TREE.subtree(agent) == frozenset(subtree.split())
    assert TREE.parent(agent) == (ancestors.split(maxsplit=1)[0] if ancestors else None)


def test_in_a_flat_hive_nobody_is_below_anybody() -> None:
    flat = _roster(dict.fromkeys(EDGES), Shape.FLAT)
    assert all(flat.subtree(name) == {name} for name in flat)
    assert not any(flat.ancestors(name) or flat.children(name) for name in flat)


@pytest.mark.parametrize(
    "edges",
    [
        pytest.param({"a": "b"}, id="unknown-parent"),
        pytest.param({"a": "a"}, id="self-parent"),
        pytest.param({"a": "b", "b": "a"}, id="2-cycle"),
        pytest.param({"a": "b", "b": "c", "c": "d", "d": "e", "e": "a"}, id="5-cycle"),
        pytest.param({"x": "a", "a": "b", "b": "a"}, id="cycle-above-another"),
    ],
)
def test_a_roster_that_contradicts_itself_cannot_exist(edges: dict[str, str | None]) -> None:
    with pytest.raises(InvalidRoster):
        _roster(edges)


@pytest.mark.parametrize(
    ("roster", "content"),
    [
        pytest.param(EMPTY, b"{}\n", id="empty-tree"),
        pytest.param(Roster(Shape.FLAT, {}), b"[]\n", id="empty-flat"),
        pytest.param(_roster({"bob": "al", "al": None}), b'{"al": null, "bob": "al"}\n', id="tree"),
        pytest.param(_roster({"bob": None, "al": None}, Shape.FLAT), b'["al", "bob"]\n', id="flat"),
    ],
)
def test_the_published_bytes_are_exact_and_read_back_the_same(roster: Roster, content: bytes) -> None:
    assert encode(roster) == content
    found = decode(content)
    assert isinstance(found, Present)
    assert found.roster == roster
    assert hash(found.roster) == hash(roster)
    assert encode(found.roster) == content


def test_order_makes_no_difference_and_shape_does() -> None:
    backwards = _roster(dict(reversed(EDGES.items())))
    assert backwards == TREE
    assert encode(backwards) == encode(TREE)
    assert _roster({"a": None}) != _roster({"a": None}, Shape.FLAT)
    assert TREE != EDGES


def test_nobody_can_change_a_roster_from_outside() -> None:
    edges = {parse_name("a"): None}
    roster = Roster(Shape.TREE, edges)
    edges[parse_name("b")] = None
    assert list(roster) == ["a"]
    with pytest.raises(TypeError):
        roster.parents[parse_name("b")] = None  # type: ignore[index]  # that is what is tested
