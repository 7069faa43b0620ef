import pytest

from hive_core.domain.errors import InvalidName
from hive_core.domain.names import RESERVED, container_name, parse_hive_id, parse_name

HOSTILE = [
    pytest.param("", id="empty"),
    pytest.param("../x", id="dot-dot-slash"),
    pytest.param("/etc", id="absolute"),
    pytest.param("a/b", id="slash"),
    pytest.param(".", id="dot"),
    pytest.param("..", id="dot-dot"),
    pytest.param("-rm", id="option"),
    pytest.param("a\n", id="newline-at-end"),
    pytest.param("\na", id="newline-at-start"),
    pytest.param("a b", id="blank"),
    pytest.param("%2e%2e", id="percent"),
    pytest.param("\N{CYRILLIC SMALL LETTER A}lice", id="cyrillic"),
    pytest.param("a\N{COMBINING ACUTE ACCENT}", id="combining"),
    pytest.param("a\N{ARABIC-INDIC DIGIT ONE}", id="other-digit"),
    pytest.param("a\N{ZERO WIDTH SPACE}", id="zero-width"),
    pytest.param("abcdefghij", id="ten-characters"),
    pytest.param("Bob", id="upper-case"),
    pytest.param("bOB", id="upper-case-inside"),
    pytest.param("9lives", id="digit-first"),
    pytest.param("a\0", id="nul"),
    pytest.param("a\x1b[31m", id="escape"),
    pytest.param("a.b", id="dot-inside"),
    pytest.param("a_b", id="underscore"),
    pytest.param("a:b", id="colon"),
    pytest.param("*", id="star"),
    pytest.param("\ud800", id="lone-surrogate"),
    pytest.param("a" * 100_000, id="endless"),
]


@pytest.mark.parametrize("untrusted_name", HOSTILE)
def test_a_hostile_name_is_refused(untrusted_name: str) -> None:
    with pytest.raises(InvalidName) as caught:
        parse_name(untrusted_name)
    assert caught.value.message.startswith("invalid agent name ")
    assert len(caught.value.message) < 300
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()
    assert "1 to 9 characters" in caught.value.hint


@pytest.mark.parametrize("untrusted_name", sorted(RESERVED))
def test_a_reserved_name_is_refused(untrusted_name: str) -> None:
    with pytest.raises(InvalidName, match="it is reserved"):
        parse_name(untrusted_name)


def test_the_words_with_a_meaning_of_their_own_are_reserved() -> None:
    assert {"operator", "hive", "all", "none", "root", "admin", "null", "self"} <= RESERVED


@pytest.mark.parametrize(
    "untrusted_name",
    [
        pytest.param(None, id="none"),
        pytest.param(7, id="number"),
        pytest.param(True, id="bool"),
        pytest.param(b"bob", id="bytes"),
        pytest.param(["bob"], id="list"),
        pytest.param({"bob": None}, id="dict"),
    ],
)
def test_what_is_no_text_is_no_name(untrusted_name: object) -> None:
    with pytest.raises(InvalidName, match="expected text, got"):
        parse_name(untrusted_name)


@pytest.mark.parametrize("untrusted_name", ["a", "bob", "a-b", "x9", "abcdefghi", "a--"])
def test_a_plain_name_stays_as_it_is(untrusted_name: str) -> None:
    assert parse_name(untrusted_name) == untrusted_name


@pytest.mark.parametrize(
    "untrusted_id",
    [
        pytest.param("", id="empty"),
        pytest.param("a-b", id="dash"),
        pytest.param("Default", id="upper-case"),
        pytest.param("x" * 13, id="thirteen-characters"),
        pytest.param("a\n", id="newline"),
        pytest.param("../x", id="path"),
        pytest.param(5, id="number"),
        pytest.param(None, id="none"),
    ],
)
def test_a_bad_hive_id_is_refused(untrusted_id: object) -> None:
    with pytest.raises(InvalidName, match="invalid hive id"):
        parse_hive_id(untrusted_id)


@pytest.mark.parametrize(
    ("hive_id", "expected"),
    [pytest.param("default", "h-bob", id="default"), pytest.param("lab", "h-lab-bob", id="other")],
)
def test_the_container_name_follows_from_hive_and_agent(hive_id: str, expected: str) -> None:
    assert container_name(parse_hive_id(hive_id), parse_name("bob")) == expected
