import pytest

from hive_core.adapters.store import Store
from hive_core.domain.errors import StoreUnusable
from hive_core.domain.roster import Absent, RosterFile, Shape, Unreadable, decode
from hive_core.engine import facts


def test_a_store_belongs_to_one_hive(store: Store) -> None:
    assert facts.claim_hive_id(store, "default")
    assert not facts.claim_hive_id(store, "default")
    with pytest.raises(StoreUnusable, match="belongs to hive 'default', the settings say 'lab'"):
        facts.claim_hive_id(store, "lab")


@pytest.mark.parametrize(
    ("wished", "found", "expected"),
    [
        pytest.param(None, decode(b'["bob"]'), Shape.FLAT, id="auto-array"),
        pytest.param(None, decode(b"{}"), Shape.TREE, id="auto-map"),
        pytest.param(None, Absent(), Shape.TREE, id="auto-absent"),
        pytest.param(None, Unreadable("torn"), Shape.TREE, id="auto-unreadable"),
        pytest.param(Shape.TREE, decode(b'["bob"]'), Shape.TREE, id="tree-over-array"),
        pytest.param(Shape.FLAT, decode(b"{}"), Shape.FLAT, id="flat-over-map"),
    ],
)
def test_the_first_shape_is_remembered(
    store: Store, wished: Shape | None, found: RosterFile, expected: Shape
) -> None:
    assert facts.roster_shape(store, wished, found) is expected
    for later in (decode(b"[]"), decode(b"{}"), Absent()):
        assert facts.roster_shape(store, None, later) is expected


def test_a_wished_shape_is_remembered_over_an_earlier_one(store: Store) -> None:
    facts.roster_shape(store, Shape.FLAT, Absent())
    facts.roster_shape(store, Shape.TREE, Absent())
    assert facts.roster_shape(store, None, decode(b"[]")) is Shape.TREE


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(decode(b'{"bob": "al", "al": null}'), {"al": None, "bob": "al"}, id="map"),
        pytest.param(decode(b'["bob"]'), None, id="array"),
        pytest.param(Absent(), None, id="absent"),
        pytest.param(Unreadable("torn"), None, id="unreadable"),
    ],
)
def test_the_edges_of_the_first_map_are_kept_until_used(
    store: Store, found: RosterFile, expected: dict[str, str | None] | None
) -> None:
    facts.remember_first_edges(store, found)
    assert facts.first_edges(store) == expected
    facts.forget_first_edges(store)
    assert facts.first_edges(store) is None


def test_the_published_bytes_are_kept_exactly(store: Store) -> None:
    assert facts.published_roster(store) is None
    facts.remember_published(store, b'{"bob": null}\n')
    assert facts.published_roster(store) == b'{"bob": null}\n'


def test_the_reserved_uids_are_kept(store: Store) -> None:
    assert facts.reserved_uids(store) is None
    facts.remember_uids(store, 1_900_000_000, 65_536)
    assert facts.reserved_uids(store) == (1_900_000_000, 65_536)
