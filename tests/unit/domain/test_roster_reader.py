"""The one reader of topology.json, against everything that must not pass for a roster."""

import json

import pytest

from hive_core.domain.roster import MAX_BYTES, Absent, Present, Shape, Unreadable, decode, state_word

HOSTILE = [
    pytest.param(b"", "not JSON", id="empty-file"),
    pytest.param(b"   \n", "not JSON", id="blanks"),
    pytest.param(b'{"alice": null, "bob": "alice", "alice": "bob"}', "twice", id="duplicate-key"),
    pytest.param(b'{"alice": null, "alice": null}', "twice", id="duplicate-key-same-value"),
    pytest.param(b'{"alice": null, "al\\u0069ce": null}', "twice", id="duplicate-key-spelt-differently"),
    pytest.param(b'["alice", "bob", "alice"]', "twice", id="duplicate-name"),
    pytest.param(b'["alice", {"bob": "alice"}]', "nested", id="mixed-array"),
    pytest.param(b'{"alice": null, "bob": ["alice"]}', "nested", id="mixed-map"),
    pytest.param(b"null", "neither an array", id="null-root"),
    pytest.param(b"7", "neither an array", id="number-root"),
    pytest.param(b'"alice"', "neither an array", id="string-root"),
    pytest.param(b"true", "neither an array", id="bool-root"),
    pytest.param(b'[["alice"]]', "nested", id="nested-list"),
    pytest.param(b'{"alice": {}}', "nested", id="nested-map"),
    pytest.param(b'{"alice": NaN}', "NaN", id="nan"),
    pytest.param(b'{"alice": Infinity}', "Infinity", id="infinity"),
    pytest.param(b'{"alice": -Infinity}', "Infinity", id="minus-infinity"),
    pytest.param(b"[NaN]", "NaN", id="nan-in-array"),
    pytest.param(b'{"alice": 1}', "expected text", id="number-parent"),
    pytest.param(b'{"alice": false}', "expected text", id="bool-parent"),
    pytest.param(b"[1]", "expected text", id="number-name"),
    pytest.param(b"[null]", "expected text", id="null-name"),
    pytest.param(b"[" + b"9" * 5000 + b"]", "", id="5000-digits"),
    pytest.param(b'{"alice": ' + b"9" * 5000 + b"}", "", id="5000-digit-parent"),
    pytest.param(b"[1e999]", "expected text", id="float-overflow"),
    pytest.param(b'\xef\xbb\xbf["alice"]', "byte order mark", id="bom"),
    pytest.param('["alice"]'.encode("utf-16"), "utf-8", id="utf-16"),
    pytest.param('["alice"]'.encode("utf-16-le"), "not JSON", id="utf-16-without-mark"),
    pytest.param('["alice"]'.encode("utf-32"), "utf-8", id="utf-32"),
    pytest.param(b'["al\xffice"]', "utf-8", id="bad-utf-8"),
    pytest.param(b'["al\xed\xa0\x80ice"]', "utf-8", id="encoded-surrogate"),
    pytest.param(b'["\xc0\xae\xc0\xae"]', "utf-8", id="overlong-utf-8"),
    pytest.param(b'["al\\ud800ice"]', "invalid agent name", id="lone-surrogate"),
    pytest.param(b'["alice\\u0000"]', "invalid agent name", id="nul-name"),
    pytest.param(b'["../x"]', "invalid agent name", id="path-name"),
    pytest.param(b'["operator"]', "reserved", id="reserved-name"),
    pytest.param(b'{"alice": "operator"}', "reserved", id="reserved-parent"),
    pytest.param(b'{"alice": ""}', "invalid agent name", id="empty-parent"),
    pytest.param(b'{"": null}', "invalid agent name", id="empty-name"),
    pytest.param(b"[" * 100_000, "nested", id="1e5-deep-arrays"),
    pytest.param(b'{"a":' * 100_000, "nested", id="1e5-deep-maps"),
    pytest.param(b'["]",' * 20_000 + b"[" * 100_000, "", id="depth-hidden-by-strings"),
    pytest.param(b'["' + b"a" * MAX_BYTES + b'"]', "larger than", id="over-1-mib"),
    pytest.param(b'["alice"]' + b" " * MAX_BYTES, "larger than", id="over-1-mib-of-blanks"),
    pytest.param(b'["alice"] ["bob"]', "not JSON", id="trailing-document"),
    pytest.param(b'["alice"]x', "not JSON", id="trailing-text"),
    pytest.param(b'["alice"]\0', "not JSON", id="trailing-nul"),
    pytest.param(b'["alice",]', "not JSON", id="trailing-comma"),
    pytest.param(b'{"alice": null, "bob": "al', "not JSON", id="half-written"),
    pytest.param(b'["alice"', "not JSON", id="half-written-array"),
    pytest.param(b"// comment\n[]", "not JSON", id="comment"),
    pytest.param(b"['alice']", "not JSON", id="single-quotes"),
    pytest.param(b'{"alice": "alice"}', "its own parent", id="self-parent"),
    pytest.param(b'{"alice": "bob", "bob": "alice"}', "its own ancestor", id="2-cycle"),
    pytest.param(b'{"a": "b", "b": "c", "c": "d", "d": "e", "e": "a"}', "its own ancestor", id="5-cycle"),
    pytest.param(
        b'{"free": null, "leaf": "a", "a": "b", "b": "a"}', "its own ancestor", id="cycle-above-a-leaf"
    ),
]


@pytest.mark.parametrize(("content", "reason"), HOSTILE)
def test_a_file_that_is_no_roster_is_unreadable(content: bytes, reason: str) -> None:
    found = decode(content)
    assert isinstance(found, Unreadable)
    assert reason in found.reason
    assert found.reason.isascii()
    assert found.reason.isprintable()
    assert len(found.reason) < 400


def _chain(length: int) -> dict[str, str | None]:
    names = [f"a{number}" for number in range(length)]
    return dict(zip(names, [None, *names], strict=False))


@pytest.mark.parametrize("is_closed", [pytest.param(False, id="chain"), pytest.param(True, id="ring")])
@pytest.mark.timeout(20)
def test_the_longest_chain_that_fits_is_read_in_linear_time(is_closed: bool) -> None:
    edges = _chain(45_000)
    if is_closed:
        edges["a0"] = "a44999"
    content = json.dumps(edges).encode()
    assert len(content) < MAX_BYTES
    found = decode(content)
    assert isinstance(found, Unreadable if is_closed else Present)


ACCEPTED = [
    pytest.param(b"[]", Shape.FLAT, {}, id="empty-array"),
    pytest.param(b"{}", Shape.TREE, {}, id="empty-map"),
    pytest.param(b'["bob", "alice"]', Shape.FLAT, {"alice": None, "bob": None}, id="array"),
    pytest.param(b'{"bob": "alice", "alice": null}', Shape.TREE, {"alice": None, "bob": "alice"}, id="map"),
    pytest.param(b' \r\n\t["bob"]\n\n', Shape.FLAT, {"bob": None}, id="blanks-around"),
    pytest.param(b'{"a": null, "b": null}', Shape.TREE, {"a": None, "b": None}, id="two-roots"),
    pytest.param(b'["\\u0062ob"]', Shape.FLAT, {"bob": None}, id="escaped"),
]


@pytest.mark.parametrize(("content", "shape", "parents"), ACCEPTED)
def test_both_shapes_are_read(content: bytes, shape: Shape, parents: dict[str, str | None]) -> None:
    found = decode(content)
    assert isinstance(found, Present)
    assert (found.roster.shape, dict(found.roster.parents)) == (shape, parents)
    assert list(found.roster) == sorted(parents)
    assert found.content == content
    assert found.notes == ()


def test_a_parent_that_is_no_key_reads_as_none_and_is_noted() -> None:
    found = decode(b'{"bob": "carol", "alice": null}')
    assert isinstance(found, Present)
    assert dict(found.roster.parents) == {"alice": None, "bob": None}
    assert found.notes == ("parent 'carol' of 'bob' is not in the roster; read as no parent",)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        pytest.param(decode(b"[]"), "present", id="present"),
        pytest.param(Absent(), "absent", id="absent"),
        pytest.param(Unreadable("x"), "unreadable", id="unreadable"),
    ],
)
def test_the_three_words_for_a_roster_file(found: Present | Absent | Unreadable, word: str) -> None:
    assert state_word(found) == word
