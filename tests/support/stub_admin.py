"""A small real HTTP server on a Unix socket, for tests of the client and the CLI.

It answers what a test put in its table, over real sockets and threads, and remembers what it was asked. It
knows nothing of hive: what a route answers is the test's business.
"""

from __future__ import annotations

import json
import shutil
import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it came in; `path` is still percent-encoded, `key` is its idempotency key."""

    method: str
    path: str
    query: dict[str, str]
    content: bytes
    key: str | None = None

    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: JSON unless `content` is bytes; with `pieces` a stream of chunks instead.

    `is_cut`: the connection is closed instead, or, with `pieces`, after them and before the stream's end.
    """

    content: Any = None
    status: int = 200
    pieces: Iterable[bytes] | None = None
    is_cut: bool = False


Route = Callable[[Received], Reply]


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    admin: StubAdmin


class StubAdmin:
    """The table of routes and the list of requests of one server."""

    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path
        self.requests: list[Received] = []
        self._routes: dict[tuple[str, str], Route] = {}
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen at the socket."""
        self._server = _Server(str(self.socket_path), _Handler)
        self._server.admin = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening and leave no socket, as a daemon that ends; may be called twice."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None
        self.socket_path.unlink(missing_ok=True)

    def on(self, method: str, path: str, answer: Any = None, *, status: int = 200) -> None:
        """Answer `path` always alike; an exact path, without its query."""
        self.route(method, path, lambda _: Reply(answer, status))

    def route(self, method: str, path: str, route: Route) -> None:
        """Let `route` answer `path`."""
        self._routes[method, path] = route

    def refuse(self, method: str, path: str, status: int, code: str, message: str, hint: str = "") -> None:
        """Answer `path` with the error envelope."""
        self.on(method, path, {"error": {"code": code, "message": message, "hint": hint}}, status=status)

    def asked(self, method: str, path: str) -> list[Received]:
        """Return the requests for `path` so far."""
        return [request for request in self.requests if (request.method, request.path) == (method, path)]

    def answer(self, request: Received) -> Reply:
        self.requests.append(request)
        route = self._routes.get((request.method, unquote(request.path)))
        if route is None:
            return Reply({"error": {"code": "not_found", "message": "no such route", "hint": ""}}, 404)
        return route(request)


@contextmanager
def stub_admin() -> Iterator[StubAdmin]:
    """Yield a running server on a socket of its own, with a path short enough for any tmp directory."""
    directory = Path(tempfile.mkdtemp(prefix="hive-stub-"))
    admin = StubAdmin(directory / "admin.sock")
    admin.start()
    try:
        yield admin
    finally:
        admin.stop()
        shutil.rmtree(directory)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a test reads `requests` instead."""

    def address_string(self) -> str:
        return "unix"

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        key = self.headers.get("Idempotency-Key")
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        received = Received(str(self.command), parts.path, dict(parse_qsl(parts.query)), content, key)
        reply = self.server.admin.answer(received)
        self.close_connection = True
        if reply.pieces is not None:
            self._stream(reply.pieces, is_cut=reply.is_cut)
            return
        if reply.is_cut:
            return
        body = reply.content if isinstance(reply.content, bytes) else json.dumps(reply.content).encode()
        self.send_response(reply.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, pieces: Iterable[bytes], *, is_cut: bool) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            if piece:
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        if not is_cut:
            self.wfile.write(b"0\r\n\r\n")

    do_GET = _serve
    do_POST = _serve
    do_PUT = _serve
    do_DELETE = _serve
