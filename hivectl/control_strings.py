r"""Takes control strings out of a terminal stream. Used by `exec -t`, where escapes must pass but not these.

An interactive program needs cursor movement and colour. It needs no OSC (which sets the clipboard, the title
and links), no DCS, APC, PM or SOS, and no `ESC k` title: those reach the operator's terminal program itself.
The filter is a terminal parser's skeleton. It decides on characters, since a C1 introducer such as U+009D is
two bytes in UTF-8 while the byte 0x9D is also the end of harmless characters; and it keeps its state between
pieces, because whoever writes a sequence chooses where it is cut.
"""

from __future__ import annotations

import codecs
from enum import Enum, auto

_ESC = "\x1b"
_BEL = "\x07"
_STRING_END = frozenset("\x9c\udc9c")
_CANCEL = frozenset("\x18\x1a")
# The value says whether a BEL ends the string: it does for OSC alone.
_ESC_INTRODUCERS = {"]": True, "P": False, "X": False, "^": False, "_": False, "k": False}
# As code points, and as raw bytes that are no UTF-8 (a terminal in an 8-bit mode obeys those).
_C1_CODES = {0x9D: True, 0x90: False, 0x98: False, 0x9E: False, 0x9F: False}
_RAW_BYTES = 0xDC00
_C1_INTRODUCERS = {
    chr(base + code): ends_with_bel for base in (0, _RAW_BYTES) for code, ends_with_bel in _C1_CODES.items()
}
_FIRST_PRINTABLE = " "
_DELETE = "\x7f"


class _State(Enum):
    GROUND = auto()
    ESCAPE = auto()  # an ESC is held back until the next character says what it begins
    STRING = auto()  # inside a control string: everything is dropped
    STRING_ESCAPE = auto()  # an ESC inside a string: its end if a backslash follows, else a new sequence


class ControlStringFilter:
    """Passes a byte stream on without control strings, whatever pieces it comes in."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._state = _State.GROUND
        self._ends_with_bel = False

    def feed(self, piece: bytes) -> bytes:
        """Return what of the next piece may pass."""
        text = self._decoder.decode(piece)
        if self._state is _State.GROUND and text.isascii() and _ESC not in text:
            return text.encode("ascii")
        return self._passed(text)

    def finish(self) -> bytes:
        """Return what was held back only for a character to become whole; an open sequence stays dropped."""
        return self._passed(self._decoder.decode(b"", final=True))

    def _passed(self, text: str) -> bytes:
        return "".join(map(self._step, text)).encode("utf-8", "surrogateescape")

    def _step(self, character: str) -> str:
        match self._state:
            case _State.GROUND:
                return self._ground(character)
            case _State.ESCAPE:
                return self._escape(character)
            case _State.STRING:
                return self._string(character)
            case _State.STRING_ESCAPE:
                return self._string_escape(character)

    def _ground(self, character: str) -> str:
        if character == _ESC:
            self._state = _State.ESCAPE
            return ""
        return self._begin_string(_C1_INTRODUCERS[character]) if character in _C1_INTRODUCERS else character

    def _escape(self, character: str) -> str:
        if character in _ESC_INTRODUCERS:
            return self._begin_string(_ESC_INTRODUCERS[character])
        if character in _C1_INTRODUCERS:
            return self._begin_string(_C1_INTRODUCERS[character])
        if character == _ESC:
            return ""
        if character in _CANCEL:
            self._state = _State.GROUND
            return character
        if character < _FIRST_PRINTABLE or character == _DELETE:
            # A terminal obeys a control character here and goes on with the sequence; so do we, or a line
            # feed between ESC and its bracket would smuggle the string past.
            return character
        self._state = _State.GROUND
        return _ESC + character

    def _string(self, character: str) -> str:
        if character == _ESC:
            self._state = _State.STRING_ESCAPE
        elif character in _STRING_END or character in _CANCEL or (character == _BEL and self._ends_with_bel):
            self._state = _State.GROUND
        return ""

    def _string_escape(self, character: str) -> str:
        if character == "\\":
            self._state = _State.GROUND
            return ""
        self._state = _State.ESCAPE
        return self._escape(character)

    def _begin_string(self, ends_with_bel: bool) -> str:
        self._state = _State.STRING
        self._ends_with_bel = ends_with_bel
        return ""
