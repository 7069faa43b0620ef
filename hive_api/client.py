"""A small HTTP client over a Unix socket: what the CLI and the programs in containers call the daemon with.

Standard library only, and no word about terminals or exit codes: the agent image carries this file, and the
CLI's fast commands import it. That is also why it speaks HTTP/1.1 itself, one request a connection:
`http.client` loads the mail and TLS packages, which took a fifth of the time of `hivectl ps` (28 of 144 ms).
Every call has a deadline for the whole exchange, not for each read, so that a daemon that hangs, or answers
one byte at a time, cannot hold its caller.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote, urlencode

from hive_api.errors import ErrorCode

READ_TIMEOUT_S = 5.0
WRITE_TIMEOUT_S = 15.0
POLL_TIMEOUT_S = 30.0  # the daemon ends a long poll after 25 s
PIECE_BYTES = 65536
MAX_LINE_BYTES = 65536
MAX_HEADERS = 100
_RETRY_PAUSE_S = 0.02

_START_HINT = "is hived running? start it with scripts/up or systemctl start hived"
_GROUP_HINT = "you are not in group hive; run as root, or: usermod -aG hive YOU, then log in again"
_HUNG_HINT = "hived may be busy or hung; look with systemctl status hived"

_STATUS_CODES = {
    400: ErrorCode.INVALID_REQUEST,
    401: ErrorCode.DENIED,
    403: ErrorCode.DENIED,
    404: ErrorCode.NOT_FOUND,
    409: ErrorCode.CONFLICT,
    413: ErrorCode.LIMIT_EXCEEDED,
    422: ErrorCode.INVALID_REQUEST,
    429: ErrorCode.LIMIT_EXCEEDED,
    503: ErrorCode.STOPPING,
    504: ErrorCode.TIMED_OUT,
}
_ERROR_STATUS = 400


class ClientError(Exception):
    """A call that brought no result: `message` says what is wrong, `hint` the way out ("" if none)."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ApiError(ClientError):
    """The daemon answered, and the answer is an error of the closed list."""

    def __init__(self, code: ErrorCode, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.code = code


class Unreachable(ClientError):
    """No answer could be had from the socket at `path`; `reason` says how far it got."""

    def __init__(self, path: str, reason: str, hint: str = "") -> None:
        super().__init__(f"cannot reach hived at {path}: {reason}", hint)
        self.path = path
        self.reason = reason


class Absent(Unreachable):
    """Nobody listens at the socket: nothing was sent, so nothing was done."""


class NoAnswer(Unreachable):
    """The socket is there, but the deadline passed. A mutation may have taken effect all the same."""


class Cut(Unreachable):
    """The connection ended before the answer was whole. A mutation may have taken effect all the same."""


class AdminClient:
    """Calls one daemon. Each call opens its own connection, so an instance may be shared by threads."""

    def __init__(self, socket_path: str, timeout_s: float = READ_TIMEOUT_S) -> None:
        self.socket_path = socket_path
        self.timeout_s = timeout_s

    def get(
        self, path: str, query: Mapping[str, object] | None = None, timeout_s: float | None = None
    ) -> Any:
        """Return the decoded JSON of `path`."""
        return self._json(self._exchange("GET", path, query=query, timeout_s=timeout_s))

    def get_bytes(self, path: str) -> bytes:
        """Return the body of `path` exactly as sent."""
        return self._exchange("GET", path)

    def post(self, path: str, body: object, timeout_s: float | None = None) -> Any:
        """Send `body` as JSON and return the decoded JSON answer."""
        return self.send("POST", path, body=body, timeout_s=timeout_s)

    def put(self, path: str, body: object, timeout_s: float | None = None) -> Any:
        """Send `body` as JSON and return the decoded JSON answer."""
        return self.send("PUT", path, body=body, timeout_s=timeout_s)

    def delete(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """Return the decoded JSON answer."""
        return self.send("DELETE", path, query=query)

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        timeout_s: float | None = None,
        key: str = "",
    ) -> Any:
        """Make a mutating request and return the decoded JSON answer.

        Requests with the same `key` (ASCII, one word) are one and the same to the daemon: a second one does
        nothing and gets the first one's answer.
        """
        bound_s = timeout_s or WRITE_TIMEOUT_S
        return self._json(self._exchange(method, path, query=query, body=body, timeout_s=bound_s, key=key))

    @contextmanager
    def stream(self, path: str, query: Mapping[str, object] | None = None) -> Iterator[Iterator[bytes]]:
        """Yield the body's pieces as they come, without a deadline once the answer has begun."""
        with _own_errors(self.socket_path, self.timeout_s):
            exchange = _Exchange(self.socket_path, self.timeout_s)
        try:
            with _own_errors(self.socket_path, self.timeout_s):
                exchange.ask("GET", _target(path, query), None)
                if exchange.status >= _ERROR_STATUS:
                    raise decode_error(exchange.status, exchange.body())
                exchange.wait_for_ever()
            yield self._pieces(exchange)
        finally:
            exchange.close()

    def _pieces(self, exchange: _Exchange) -> Iterator[bytes]:
        with _own_errors(self.socket_path, self.timeout_s):
            yield from exchange.pieces()

    def _exchange(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        timeout_s: float | None = None,
        key: str = "",
    ) -> bytes:
        bound_s = timeout_s or self.timeout_s
        content = None if body is None else json.dumps(body).encode("ascii")
        with _own_errors(self.socket_path, bound_s):
            exchange = _Exchange(self.socket_path, bound_s)
            try:
                exchange.ask(method, _target(path, query), content, key)
                answer = exchange.body()
            finally:
                exchange.close()
        if exchange.status >= _ERROR_STATUS:
            raise decode_error(exchange.status, answer)
        return answer

    def _json(self, untrusted_answer: bytes) -> Any:
        try:
            return json.loads(untrusted_answer)
        except (ValueError, RecursionError):
            raise Unreachable(self.socket_path, "the answer is not JSON", "is this hived's socket?") from None


def segment(name: str) -> str:
    """Return `name` as one path segment, whatever it holds; bytes that are no UTF-8 stay what they were."""
    return quote(os.fsencode(name), safe="")


def decode_error(status: int, untrusted_body: bytes) -> ApiError:
    """Return the error of an answer; without the envelope it gets the code its HTTP status stands for."""
    fallback = _STATUS_CODES.get(status, ErrorCode.INTERNAL)
    try:
        envelope = json.loads(untrusted_body)["error"]
        message, hint = str(envelope["message"]), str(envelope.get("hint") or "")
        untrusted_code = str(envelope["code"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ApiError(fallback, f"hived answered HTTP {status} without saying why")
    try:
        return ApiError(ErrorCode(untrusted_code), message, hint)
    except ValueError:  # a daemon newer than this client
        return ApiError(fallback, message, hint)


def connect(path: str, timeout_s: float) -> socket.socket:
    """Return a socket connected to `path`; `Unreachable` or `NoAnswer` when there is none to be had."""
    with _own_errors(path, timeout_s):
        return _connect(path, time.monotonic() + timeout_s)


class _NotHttp(Exception):
    """What came back is no HTTP answer."""


class _Short(Exception):
    """The connection ended before the answer was complete."""


class _Exchange:
    """One request and its answer on a connection of their own, up to a deadline (None waits for ever)."""

    def __init__(self, path: str, timeout_s: float) -> None:
        self._deadline: float | None = time.monotonic() + timeout_s
        self._peer = _connect(path, self._deadline)
        self._unread = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self.status = 0

    def ask(self, method: str, target: str, content: bytes | None, key: str = "") -> None:
        """Send the request and read the answer's status and headers."""
        head = f"{method} {target} HTTP/1.1\r\nHost: hive\r\nConnection: close\r\n"
        if content is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        if key:
            head += f"Idempotency-Key: {key}\r\n"
        # A server that refuses a body early closes on us while we send; its answer says why.
        with suppress(BrokenPipeError):
            self._peer.sendall(head.encode("ascii") + b"\r\n" + (content or b""))
        version, _, rest = self._line().partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise _NotHttp
        self.status = int(rest[:3])
        for _ in range(MAX_HEADERS):
            line = self._line()
            if not line:
                return
            name, _, value = line.partition(b":")
            self._headers[name.strip().lower()] = value.strip().lower()
        raise _NotHttp

    def wait_for_ever(self) -> None:
        """Lift the deadline: what follows comes when it comes."""
        self._deadline = None

    def body(self) -> bytes:
        """Return the whole body."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it comes."""
        if self._headers.get(b"transfer-encoding") == b"chunked":
            return self._chunks()
        if b"content-length" in self._headers:
            return self._exactly(_number(self._headers[b"content-length"], 10))
        return self._rest()

    def close(self) -> None:
        """End the connection."""
        self._peer.close()

    def _chunks(self) -> Iterator[bytes]:
        while size_bytes := _number(self._line().split(b";")[0].strip(), 16):
            yield from self._exactly(size_bytes)
            if self._line():
                raise _NotHttp

    def _exactly(self, left_bytes: int) -> Iterator[bytes]:
        while left_bytes:
            if not self._unread and not self._fill():
                raise _Short
            piece = bytes(self._unread[:left_bytes])
            del self._unread[:left_bytes]
            left_bytes -= len(piece)
            yield piece

    def _rest(self) -> Iterator[bytes]:
        while self._unread or self._fill():
            piece = bytes(self._unread)
            self._unread.clear()
            yield piece

    def _line(self) -> bytes:
        while (end := self._unread.find(b"\r\n")) < 0:
            if len(self._unread) > MAX_LINE_BYTES:
                raise _NotHttp
            if not self._fill():
                raise _NotHttp if self._unread else _Short
        line = bytes(self._unread[:end])
        del self._unread[: end + 2]
        return line

    def _fill(self) -> bool:
        """Read what there is; False at the connection's end."""
        self._peer.settimeout(None if self._deadline is None else _left_s(self._deadline))
        piece = self._peer.recv(PIECE_BYTES)
        self._unread += piece
        return bool(piece)


def _number(untrusted_digits: bytes, base: int) -> int:
    if not untrusted_digits.isalnum():
        raise _NotHttp
    try:
        return int(untrusted_digits, base)
    except ValueError:
        raise _NotHttp from None


def _connect(path: str, deadline: float) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _connect_before(peer, path, deadline)
        peer.settimeout(_left_s(deadline))
    except BaseException:
        peer.close()
        raise
    return peer


def _connect_before(peer: socket.socket, path: str, deadline: float) -> None:
    while True:
        peer.settimeout(_left_s(deadline))
        try:
            return peer.connect(path)
        except BlockingIOError:
            # The queue of a daemon that accepts nobody is full: Linux says so at once instead of waiting.
            time.sleep(_RETRY_PAUSE_S)


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _target(path: str, query: Mapping[str, object] | None) -> str:
    if not query:
        return path
    return f"{path}?{urlencode({key: _query_value(value) for key, value in query.items()})}"


def _query_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def _own_errors(path: str, timeout_s: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise NoAnswer(path, f"no answer within {timeout_s:g} s", _HUNG_HINT) from None
    except (_Short, ConnectionResetError):
        raise Cut(path, "the connection was cut before the answer was complete", _HUNG_HINT) from None
    except _NotHttp:
        raise Unreachable(path, "the answer is not HTTP", "is this hived's socket?") from None
    except OSError as failure:
        raise _unreachable(path, failure) from None


def _unreachable(path: str, failure: OSError) -> Unreachable:
    match failure.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return Absent(path, "no such socket", _START_HINT)
        case errno.EACCES | errno.EPERM:
            return Unreachable(path, "permission denied", _GROUP_HINT)
        case errno.ECONNREFUSED:
            return Absent(path, "connection refused: nothing listens there", _START_HINT)
        case errno.EPROTOTYPE | errno.ENOTSOCK:
            return Unreachable(path, "it is not hived's socket")
        case _:
            return Unreachable(path, failure.strerror or str(failure))
