r"""Makes text that others wrote safe to print. Every command prints through it, by way of hivectl.output.

An agent chooses its description, its log and the reasons it gives; a terminal obeys what it reads. So nothing
invisible or directive is ever printed: control, format, surrogate, private-use and unassigned characters and
the two Unicode line separators appear as `\xNN`, `\uXXXX` or `\UXXXXXXXX`. There is no markup to interpret.
"""

from __future__ import annotations

import codecs
import unicodedata

_BYTE_MAX = 0xFF
_BMP_MAX = 0xFFFF
# Bytes that were no UTF-8 arrive as these surrogates (PEP 383); the byte is what the reader wants to see.
_RAW_BYTE_FIRST = 0xDC80
_RAW_BYTE_LAST = 0xDCFF


def escape(text: str) -> str:
    """Return `text` as one harmless line; a line feed becomes visible too."""
    if text.isprintable():
        return text
    return "".join(character if _is_harmless(character) else _visible(character) for character in text)


def escape_lines(text: str) -> str:
    """Return `text` harmless, its line feeds kept."""
    return "\n".join(map(escape, text.split("\n")))


class StreamEscaper:
    """Escapes bytes that come in pieces, line feeds kept; a character cut in two waits for its other half."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def feed(self, piece: bytes) -> bytes:
        """Return the printable form of the next piece."""
        return self._printable(self._decoder.decode(piece))

    def finish(self) -> bytes:
        """Return what is left of a character that never became whole."""
        return self._printable(self._decoder.decode(b"", final=True))

    @staticmethod
    def _printable(text: str) -> bytes:
        return escape_lines(text).encode("utf-8")


def width(text: str) -> int:
    """Return the number of terminal columns of escaped text."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def clip(text: str, columns: int) -> str:
    """Return escaped `text`, shortened with dots to at most `columns` terminal columns."""
    if width(text) <= columns:
        return text
    kept: list[str] = []
    left = columns - len("...")
    for character in text:
        left -= _columns(character)
        if left < 0:
            break
        kept.append(character)
    return "".join(kept) + "..."


def _is_harmless(character: str) -> bool:
    # isprintable() is false for the categories C*, Zl and Zp, and for the spaces other than U+0020.
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _visible(character: str) -> str:
    point = ord(character)
    if _RAW_BYTE_FIRST <= point <= _RAW_BYTE_LAST:
        point -= 0xDC00
    if point <= _BYTE_MAX:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= _BMP_MAX else f"\\U{point:08x}"


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
