"""Answers of the engine that do not end by themselves: events, followed logs, and exec's two-way stream.

Used by the Docker adapter. The client library offers these too, but passes no timeout, cannot be ended from
another thread before the answer's head has come, and may lose output that arrives together with that head. So
they are spoken here, each on a connection of its own: no pool that a hundred followers could empty.
"""

from __future__ import annotations

import http
import http.client
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from hive_core.adapters.docker_faults import engine_call, refusal

READ_BYTES = 65_536
_FRAME_HEAD = struct.Struct(">BxxxL")
_LINE_MAX_BYTES = 1_048_576
_REFUSAL_MAX_BYTES = 65_536
T = TypeVar("T")


class _UnixConnection(http.client.HTTPConnection):
    """An HTTP connection to a Unix socket, with a bound on connecting and on the answer's head."""

    def __init__(self, socket_path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self.wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.wire.settimeout(timeout_s)
        self._socket_path = socket_path

    def connect(self) -> None:
        self.wire.connect(self._socket_path)
        self.sock = self.wire


class EngineStream:
    """One open answer. `close` may be called by any thread, and ends a read that waits in another."""

    def __init__(self, connection: _UnixConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self._is_raw = response.status == http.HTTPStatus.SWITCHING_PROTOCOLS
        self.is_closed = False

    def read(self, timeout_s: float | None) -> bytes:
        """Return the next bytes, b"" at the end; TimeoutError when none come in time (None waits on)."""
        self._connection.wire.settimeout(timeout_s)
        source = self._response.fp if self._is_raw else self._response
        return source.read1(READ_BYTES)

    def write(self, content: bytes) -> None:
        """Send bytes the other way, on a stream that goes both ways; waits as long as they are not taken."""
        self._connection.wire.settimeout(None)
        self._connection.wire.sendall(content)

    def end_writing(self) -> None:
        """Close the way out only; what the engine still has to say can be read."""
        self._connection.wire.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the stream early. Idempotent."""
        self.is_closed = True
        with suppress(OSError):  # not connected any more
            self._connection.wire.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Give the connection back, once nobody reads any more. Idempotent."""
        self._response.close()
        self._connection.close()
        self._connection.wire.close()


@dataclass(frozen=True, slots=True)
class Wire:
    """Where the engine listens, how long it may take to answer, and the API version agreed on."""

    socket_path: str
    timeout_s: float
    api_version: str

    def open(
        self,
        method: str,
        path: str,
        *,
        deed: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> EngineStream:
        """Send a request and return its open answer; a `body` asks for a stream that goes both ways.

        Raises the port's errors, with `deed` completing the sentence "cannot <deed>".
        """
        target = f"/v{self.api_version}{path}" + (f"?{urlencode(query)}" if query else "")
        connection = _UnixConnection(self.socket_path, self.timeout_s)
        try:
            with engine_call(deed):
                connection.request(method, target, *_request(body))
                response = connection.getresponse()
                if response.status >= http.HTTPStatus.BAD_REQUEST:
                    raise refusal(deed, response.status, _explanation(response))
        except BaseException:
            connection.close()
            connection.wire.close()
            raise
        return EngineStream(connection, response)


def _request(body: Mapping[str, Any] | None) -> tuple[bytes | None, dict[str, str]]:
    if body is None:
        return None, {}
    headers = {"Content-Type": "application/json", "Connection": "Upgrade", "Upgrade": "tcp"}
    return json.dumps(body).encode(), headers


def _explanation(response: http.client.HTTPResponse) -> str:
    untrusted_text = response.read(_REFUSAL_MAX_BYTES).decode(errors="replace")
    try:
        return str(json.loads(untrusted_text)["message"])
    except (ValueError, KeyError, TypeError):
        return untrusted_text or f"status {response.status}"


def deframe(chunks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield (1 or 2 for stdout or stderr, bytes) from the engine's framing, in whatever pieces come.

    Ends at the end of the chunks; EOFError when that is inside a frame.
    """
    pending = bytearray()
    stream = left = 0
    for chunk in chunks:
        pending += chunk
        while pending:
            if not left:
                if len(pending) < _FRAME_HEAD.size:
                    break
                stream, left = _FRAME_HEAD.unpack_from(pending)
                del pending[: _FRAME_HEAD.size]
                continue
            piece = bytes(pending[:left])
            del pending[: len(piece)]
            left -= len(piece)
            yield stream, piece
    if left or pending:
        raise EOFError("the stream ended inside a frame")


def json_lines(chunks: Iterator[bytes]) -> Iterator[Any]:
    """Yield the JSON documents of a stream that has one a line."""
    pending = b""
    for chunk in chunks:
        *lines, pending = (pending + chunk).split(b"\n")
        if len(pending) > _LINE_MAX_BYTES:
            raise ValueError(f"a line of more than {_LINE_MAX_BYTES} bytes")
        for line in lines:
            if line.strip():
                yield json.loads(line)


class ClosableIterator(Iterator[T]):
    """Items of a stream. `close` may be called by any thread, also while another waits for the next item.

    The connection is given back at the end, on an error, on `close`, or when nobody holds this any more.
    """

    def __init__(self, stream: EngineStream, items: Callable[[EngineStream], Iterator[T]]) -> None:
        self._stream = stream
        self._items = items(stream)
        self._reading = threading.Lock()

    def __next__(self) -> T:
        with self._reading:
            try:
                return next(self._items)
            except StopIteration:
                self._stream.release()
                raise
            except Exception:
                self._stream.release()
                if self._stream.is_closed:
                    raise StopIteration from None
                raise

    def close(self) -> None:
        """End the iteration, here or in the thread that waits for the next item."""
        self._stream.close()
        if self._reading.acquire(blocking=False):
            self._stream.release()
            self._reading.release()

    def __del__(self) -> None:
        self._stream.release()
