"""The WebSocket side of `exec`: stdin and window sizes go out, output and the exit code come in.

Used by hivectl.commands.exec, and loaded only there, since the WebSocket library is slow to import. The main
thread receives; one other thread does all the sending, so that a signal handler never has to.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus
from websockets.sync.client import ClientConnection, unix_connect

from hive_api.client import READ_TIMEOUT_S, ApiError, NoAnswer, Unreachable, connect, decode_error, segment
from hive_api.errors import ErrorCode
from hivectl.failure import CommandError
from hivectl.terminal import size

PIECE_BYTES = 32768
MAX_FRAME_BYTES = 4 << 20
CLOSE_TIMEOUT_S = 2.0
STDIN, STDOUT, STDERR = 0, 1, 2
_STOP, _RESIZED = b"s", b"r"
_ERROR_STATUS = 400

# Unhandled, the library's records of cut connections would reach stderr, with a traceback.
logging.getLogger("websockets").addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Request:
    """What to run, whether it gets a terminal, and whether in a container made for it."""

    name: str
    argv: tuple[str, ...]
    has_tty: bool
    is_rescue: bool = False


@contextmanager
def dial(socket_path: str, name: str) -> Iterator[ClientConnection]:
    """Yield an open WebSocket to the agent's exec route; a refusal is raised as the daemon's own error."""
    with closing(connect(socket_path, READ_TIMEOUT_S)) as peer:
        peer.settimeout(None)
        with _handshake(peer, socket_path, name) as connection:
            yield connection


def _handshake(peer: socket.socket, socket_path: str, name: str) -> ClientConnection:
    uri = f"ws://hive/v1/agents/{segment(name)}/exec"
    try:
        return unix_connect(
            sock=peer,
            uri=uri,
            compression=None,
            open_timeout=READ_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            max_size=MAX_FRAME_BYTES,
        )
    except InvalidStatus as refusal:
        response = refusal.response
        raise decode_error(response.status_code, bytes(response.body or b"")) from None
    except TimeoutError:
        raise NoAnswer(socket_path, f"no answer within {READ_TIMEOUT_S:g} s") from None
    except (InvalidHandshake, InvalidMessage, EOFError, OSError):
        raise Unreachable(
            socket_path, "it does not answer as hived does", "is this hived's socket?"
        ) from None


def converse(connection: ClientConnection, request: Request, deliver: Callable[[int, bytes], None]) -> int:
    """Run the command to its end and return its exit code; `deliver` gets each (channel, bytes)."""
    rows, columns = size()
    opening = {"argv": list(request.argv), "tty": request.has_tty, "rows": rows, "columns": columns}
    if request.is_rescue:
        opening["rescue"] = True
    with _lost_as_error():
        connection.send(json.dumps(opening))
    with _Sender(connection, watch_size=request.has_tty), _lost_as_error():
        return _receive(connection, deliver)


def _receive(connection: ClientConnection, deliver: Callable[[int, bytes], None]) -> int:
    for frame in connection:
        if isinstance(frame, bytes):
            if frame[:1] in (b"\x01", b"\x02"):
                deliver(frame[0], frame[1:])
            continue
        message = _message(frame)
        if "error" in message:
            raise _refusal(message["error"])
        if "exit" in message:
            return int(message["exit"])
    raise CommandError("the connection ended before the command did", "see hivectl events")


def _message(untrusted_frame: str) -> dict[str, Any]:
    try:
        message = json.loads(untrusted_frame)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _refusal(error: dict[str, Any]) -> ApiError:
    return decode_error(_ERROR_STATUS, json.dumps({"error": error}).encode())


@contextmanager
def _lost_as_error() -> Iterator[None]:
    try:
        yield
    except ConnectionClosed:
        raise ApiError(
            ErrorCode.FAILED, "the connection to hived was cut", "the command was ended with it"
        ) from None


class _Sender:
    """The sending thread: stdin until its end, and the window's size whenever it changes."""

    def __init__(self, connection: ClientConnection, *, watch_size: bool) -> None:
        self._connection = connection
        self._watch_size = watch_size
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="exec-sender", daemon=True)
        self._previous: Any = None

    def __enter__(self) -> _Sender:
        if self._watch_size:
            self._previous = signal.signal(signal.SIGWINCH, lambda *_: self._wake(_RESIZED))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._watch_size:
            signal.signal(signal.SIGWINCH, self._previous)
        self._wake(_STOP)
        self._thread.join(CLOSE_TIMEOUT_S)

    def _wake(self, reason: bytes) -> None:
        os.write(self._wake_write, reason)

    def _run(self) -> None:
        sources = [self._wake_read, STDIN]
        with suppress(ConnectionClosed):
            while True:
                ready, _, _ = select.select(sources, (), ())
                if self._wake_read in ready:
                    if _STOP in (reasons := os.read(self._wake_read, PIECE_BYTES)):
                        return
                    self._send_size(reasons)
                if STDIN in ready and not self._forward():
                    sources.remove(STDIN)

    def _send_size(self, reasons: bytes) -> None:
        if _RESIZED in reasons:
            self._connection.send(json.dumps({"resize": list(size())}))

    def _forward(self) -> bool:
        """Send one piece of stdin; False at its end."""
        try:
            piece = os.read(STDIN, PIECE_BYTES)
        except OSError:  # closed, or a terminal that hung up
            piece = b""
        if not piece:
            self._connection.send(json.dumps({"stdin": "eof"}))
            return False
        self._connection.send(bytes([STDIN]) + piece)
        return True
