import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivectl.control_strings import ControlStringFilter

DANGEROUS = (b"\x1b]", b"\x1bP", b"\x1bX", b"\x1b^", b"\x1b_", b"\x1bk")
C1 = ("\x90", "\x98", "\x9d", "\x9e", "\x9f")


def passed(*pieces: bytes) -> bytes:
    chosen = ControlStringFilter()
    return b"".join(map(chosen.feed, pieces)) + chosen.finish()


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        pytest.param(b"a\x1b]0;title\x07b", b"ab", id="osc-bel"),
        pytest.param(b"a\x1b]52;c;aGk=\x1b\\b", b"ab", id="osc-st"),
        pytest.param(b"a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", b"alinkb", id="osc-link"),
        pytest.param(b"a\x1bPq\x07still\x1b\\b", b"ab", id="dcs-ignores-bel"),
        pytest.param(b"a\x1b_x\x1b\\b\x1b^y\x1b\\c\x1bXz\x1b\\d", b"abcd", id="apc-pm-sos"),
        pytest.param(b"a\x1bktitle\x1b\\b", b"ab", id="screen-title"),
        pytest.param("a\x9d0;t\x9cb".encode(), b"ab", id="c1-osc-in-utf8"),
        pytest.param(b"a\x9d0;t\x9cb", b"ab", id="c1-osc-raw-bytes"),
        pytest.param(b"a\x1b\n]0;t\x07b", b"a\nb", id="control-between-esc-and-bracket"),
        pytest.param(b"a\x1b\x7f]0;t\x07b", b"a\x7fb", id="delete-between"),
        pytest.param(b"a\x1b\x1b]0;t\x07b", b"ab", id="double-esc"),
        pytest.param("a\x1b\x9d0;t\x07b".encode(), b"ab", id="esc-then-c1"),
        pytest.param(b"a\x1b]0;t\x1b]52;c;x\x07b", b"ab", id="string-begins-in-string"),
        pytest.param(b"a\x1b]0;t\x18b", b"ab", id="cancelled"),
        pytest.param(b"a\x1b]0;never ended", b"a", id="unterminated"),
        pytest.param(b"a\x1b]0;t\x1b[1mb", b"a\x1b[1mb", id="aborted-by-csi"),
    ],
)
def test_control_strings_do_not_pass(raw: bytes, kept: bytes) -> None:
    assert passed(raw) == kept
    assert passed(*(bytes([byte]) for byte in raw)) == kept


@pytest.mark.parametrize(
    "raw",
    [
        b"\x1b[31mred\x1b[0m\r\n",
        b"\x1b[2J\x1b[H\x1b(B\x1b7\x1b8\x1b=\x1bM",
        "\u201cquoted\u201d \u671d \u0150 \u00dd".encode(),  # their bytes hold 0x9d and 0x90
        b"\xff\xfe\xc3(",
    ],
)
def test_all_else_passes_unchanged(raw: bytes) -> None:
    assert passed(raw) == raw
    assert passed(*(bytes([byte]) for byte in raw)) == raw


pieces = st.sampled_from([*DANGEROUS, b"\x1b", b"\\", b"\x07", b"\n", b"a", b"\x18", b"\x9d", b"\xc2", b"]"])


@given(st.lists(pieces, max_size=14), st.lists(st.integers(0, 30), max_size=4))
def test_no_introducer_ever_passes_and_cuts_change_nothing(parts: list[bytes], cuts: list[int]) -> None:
    raw = b"".join(parts)
    whole = passed(raw)
    edges = sorted({0, len(raw), *(min(cut, len(raw)) for cut in cuts)})
    assert passed(*(raw[a:b] for a, b in itertools.pairwise(edges))) == whole
    # What a terminal would see: control characters inside an escape are executed and left out.
    seen = whole.decode("utf-8", "surrogateescape")
    for ignorable in "\n\x07\x7f":
        seen = seen.replace(ignorable, "")
    assert not any(introducer.decode() in seen for introducer in DANGEROUS)
    assert not any(character in seen for character in C1)
    assert not any(chr(0xDC00 + ord(character)) in seen for character in C1)
