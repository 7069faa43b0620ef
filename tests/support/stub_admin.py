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
    """One request as it came in; `path` is still percent-encoded."""

    method: str
    path: str
    query: dict[str, str]
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: JSON unless `content` is bytes; with `pieces` a stream of chunks instead."""

    content: Any = None
    status: int = 200
    pieces: Iterable[bytes] | None = None


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
    server = _Server(str(admin.socket_path), _Handler)
    server.admin = admin
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield admin
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
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
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        received = Received(str(self.command), parts.path, dict(parse_qsl(parts.query)), content)
        reply = self.server.admin.answer(received)
        self.close_connection = True
        if reply.pieces is not None:
            self._stream(reply.pieces)
            return
        body = reply.content if isinstance(reply.content, bytes) else json.dumps(reply.content).encode()
        self.send_response(reply.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, pieces: Iterable[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            if piece:
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    do_GET = _serve
    do_POST = _serve
    do_PUT = _serve
    do_DELETE = _serve
