import itertools
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivectl.escape import StreamEscaper, clip, escape, escape_lines, width

FORBIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def test_every_forbidden_character_becomes_visible() -> None:
    """All of Unicode, so all C0, C1, bidi, zero-width and tag characters too."""
    for point in range(sys.maxunicode + 1):
        character = chr(point)
        shown = escape(character)
        if unicodedata.category(character) in FORBIDDEN:
            assert shown.isascii(), hex(point)
            assert shown.isprintable(), hex(point)
            assert shown.startswith("\\"), hex(point)
        else:
            assert shown == character, hex(point)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        pytest.param("\x1b[2J", r"\x1b[2J", id="csi"),
        pytest.param("\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk=\x07", id="osc-clipboard"),
        pytest.param("\x9b2K", r"\x9b2K", id="c1-csi"),
        pytest.param("a\rb", r"a\x0db", id="carriage-return"),
        pytest.param("a\nb\tc", r"a\x0ab\x09c", id="line-feed-and-tab"),
        pytest.param("\u202eabc", r"\u202eabc", id="bidi"),
        pytest.param("\u200b\ufeff", r"\u200b\ufeff", id="zero-width"),
        pytest.param("\u2028\u2029", r"\u2028\u2029", id="separators"),
        pytest.param("\U000e0041", r"\U000e0041", id="tag-character"),
        pytest.param("\udcff", r"\xff", id="raw-byte"),
        pytest.param("\ud800", r"\ud800", id="lone-surrogate"),
        pytest.param("\x7f\x00", r"\x7f\x00", id="delete-and-nul"),
        pytest.param("[/x] [link=a]b", "[/x] [link=a]b", id="markup-is-plain-text"),
        pytest.param("Zoë → 蜂", "Zoë → 蜂", id="other-scripts-stay"),
    ],
)
def test_escape_shows(raw: str, shown: str) -> None:
    assert escape(raw) == shown


def test_lines_keep_only_their_line_feeds() -> None:
    assert escape_lines("a\r\n\x1bb\n") == "a\\x0d\n\\x1bb\n"


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=5))
def test_a_stream_is_escaped_alike_however_it_is_cut(content: bytes, cuts: list[int]) -> None:
    expected = escape_lines(content.decode("utf-8", "surrogateescape")).encode()
    edges = sorted({0, len(content), *(min(cut, len(content)) for cut in cuts)})
    escaper = StreamEscaper()
    shown = b"".join(escaper.feed(content[a:b]) for a, b in itertools.pairwise(edges))
    assert shown + escaper.finish() == expected


def test_clip_counts_columns() -> None:
    assert width("蜂蜂") == 4
    assert width("e\u0301") == 1
    assert clip("蜂蜂蜂蜂", 7) == "蜂蜂..."
    assert clip("abc", 3) == "abc"
