from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_core.domain.config_files import (
    MAX_FILES,
    MAX_MANIFEST_BYTES,
    MAX_TOTAL_BYTES,
    ConfigFile,
    parse_config_files,
    path_fault,
)
from hive_core.domain.errors import InvalidRequest

REFUSED = {
    "empty": "",
    "absolute": "/etc/passwd",
    "parent": "../x",
    "parent inside": "a/../x",
    "dot": "./a",
    "double slash": "a//b",
    "trailing slash": "a/",
    "git": ".git/config",
    "git below": "a/.git/hooks/post-checkout",
    "git capitals": "a/.GIT",
    "git mixed": ".Git/config",
    "git short name": "GIT~1/config",
    "git trailing dot": ".git./config",
    "git trailing blank": ".git /config",
    "git stream": ".git::$INDEX_ALLOCATION/config",
    "git with an ignorable": ".g\u200cit/config",
    "backslash": "a\\b",
    "newline": "a\nb",
    "nul": "a\0b",
    "escape": "a\x1b[2J",
    "c1": "a\x9bb",
    "bidi": "a\u202eb",
    "line separator": "a\u2028b",
    "surrogate": "a\udc80b",
    "long component": "x" * 256,
    "long component in bytes": "é" * 128,
    "long path": "/".join(["x" * 200] * 6),
    "deep": "/".join(["x"] * 33),
}
ACCEPTED = {
    "manifest": "agent.toml",
    "hidden": ".gitignore",
    "attributes": ".gitattributes",
    "git as a part": "x.git/config",
    "option": "--upload-pack=x",
    "blanks": "a b/c d",
    "unicode": "grüße/名前",
    "not composed": "e\u0301",
    "quotes": "a'b\"c$(d)",
    "longest component": "x" * 255,
    "deepest": "/".join(["x"] * 32),
}


@pytest.mark.parametrize("path", REFUSED.values(), ids=REFUSED.keys())
def test_a_path_that_somebody_could_read_differently_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot take file"):
        parse_config_files([("agent.toml", b"", False), (path, b"", False)])


@pytest.mark.parametrize("path", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_an_ordinary_path_is_taken(path: str) -> None:
    assert parse_config_files([(path, b"x", True)]) == (ConfigFile(path, b"x", True),)


def test_the_refusal_names_the_file_and_the_rule() -> None:
    with pytest.raises(InvalidRequest, match=r"cannot take file 'a/\.git/x': it lies in a git directory"):
        ConfigFile("a/.git/x", b"", False)


def test_a_refusal_cannot_carry_the_path_into_a_terminal() -> None:
    with pytest.raises(InvalidRequest) as refused:
        ConfigFile("\x1b[2J\u202e" + "x" * 500, b"", False)
    assert refused.value.message.isascii()
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 300


@pytest.mark.parametrize(
    "paths",
    [("a", "a"), ("a", "a/b"), ("a/b/c", "a"), ("a", "a-b", "a/b")],
    ids=["twice", "file then directory", "directory then file", "another sorts between"],
)
def test_paths_that_exclude_each_other_are_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest, match=r"twice|both a file and a directory"):
        parse_config_files((path, b"", False) for path in paths)


def test_no_file_at_all_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no file in it"):
        parse_config_files([])


def test_the_number_of_files_is_limited() -> None:
    most = [(f"f{number}", b"", False) for number in range(MAX_FILES)]
    assert len(parse_config_files(most)) == MAX_FILES
    with pytest.raises(InvalidRequest, match="more than 2000 files"):
        parse_config_files([*most, ("one-more", b"", False)])


def test_the_size_of_all_files_is_limited() -> None:
    half = b"x" * (MAX_TOTAL_BYTES // 2)
    assert len(parse_config_files([("a", half, False), ("b", half, False)])) == 2
    with pytest.raises(InvalidRequest, match="'c': more than 16777216 bytes"):
        parse_config_files([("a", half, False), ("b", half, False), ("c", b"x", False)])


def test_the_manifest_is_limited_and_only_the_manifest() -> None:
    large = b"#" * (MAX_MANIFEST_BYTES + 1)
    assert parse_config_files([("agent.toml", large[1:], False), ("sub/agent.toml", large, False)])
    with pytest.raises(InvalidRequest, match=r"agent\.toml: 65537 bytes, at most 65536"):
        ConfigFile("agent.toml", large, False)


def test_reading_stops_at_the_first_file_too_many() -> None:
    taken = 0

    def endless() -> object:
        nonlocal taken
        while True:
            taken += 1
            yield f"f{taken}", b"", False

    with pytest.raises(InvalidRequest):
        parse_config_files(endless())  # type: ignore[arg-type]
    assert taken == MAX_FILES + 1


def test_files_come_back_in_path_order() -> None:
    assert [
        file.path for file in parse_config_files([("b", b"", False), ("a/z", b"", False), ("a-", b"", False)])
    ] == [
        "a-",
        "a/z",
        "b",
    ]


@given(st.text(st.characters(), max_size=40) | st.text("./\\gGiItT~1: \0\n", max_size=12))
def test_whatever_is_accepted_stays_below_its_directory(path: str) -> None:
    if path_fault(path):
        return
    components = path.split("/")
    assert not {"", ".", ".."} & set(components)
    assert not any(component.lower().rstrip(". ") in (".git", "git~1") for component in components)
    assert path.encode().decode() == path
