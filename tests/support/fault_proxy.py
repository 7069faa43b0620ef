"""A proxy before an engine's socket that breaks what a test tells it to.

Used by the fault tests: fail, delay, cut, swallow or repeat an answer by method and path, and count what was
asked. It reads each request's head and otherwise passes bytes on, so attached streams work through it. One
request a connection: what is broken then never spills over into the next call.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

_HEAD_MAX_BYTES = 65_536
_PIECE_BYTES = 65_536
_END_OF_HEAD = b"\r\n\r\n"
_JOIN_DEADLINE_S = 5.0
_VERSION_PREFIX = re.compile(r"^/v\d+\.\d+")


class Fault(Enum):
    """What happens to a matching request."""

    REFUSE = "answered with `status`, the engine never sees it"
    REFUSE_AFTER = "the engine does it, the answer is `status` all the same"
    DELAY = "passed on after `delay_s`"
    CUT = "the connection ends after `pass_bytes` bytes of the answer"
    SWALLOW = "never answered, the engine never sees it"
    SILENCE = "after the head and `pass_bytes` bytes of the answer nothing comes, the connection stays open"
    STALE = "the first answer is repeated for every later request of the same target"


_ANSWERED_HERE = frozenset({Fault.REFUSE, Fault.REFUSE_AFTER, Fault.STALE})


@dataclass(slots=True)
class Rule:
    """One fault for requests whose method and target (path and query, without version) match."""

    fault: Fault
    method: str = ""
    path: str = ""
    times: int | None = None
    status: int = 500
    message: str = "refused by the test"
    delay_s: float = 0.0
    pass_bytes: int = 0
    hits: int = 0
    answers: dict[str, bytes] = field(default_factory=dict)

    def matches(self, method: str, target: str) -> bool:
        """Whether this rule is for such a request and not used up."""
        is_left = self.times is None or self.hits < self.times
        return is_left and self.method in ("", method) and re.search(self.path, target) is not None


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    target: str
    raw: bytes
    is_upgrade: bool


class FaultProxy:
    """Listens at `path` for the engine at `upstream`. Rules may come and go while it runs."""

    def __init__(self, path: Path, upstream: Path) -> None:
        self.path = path
        self._upstream = upstream
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._seen: list[tuple[str, str]] = []
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self._stopped = threading.Event()

    def add(self, rule: Rule) -> Rule:
        """Apply a rule from now on, before the rules there are."""
        with self._lock:
            self._rules.insert(0, rule)
        return rule

    def clear(self) -> None:
        """Forget all rules; what they hold stays held until it is cut."""
        with self._lock:
            self._rules.clear()

    def count(self, method: str = "", path: str = "") -> int:
        """Return how many requests there were with this method and a target that the pattern is found in."""
        with self._lock:
            return sum(1 for seen, target in self._seen if method in ("", seen) and re.search(path, target))

    def start(self) -> None:
        """Listen; also again after `stop`, as an engine that comes back does."""
        self._stopped.clear()
        self.path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.path))
        listener.listen(256)
        self._listener = listener
        self._spawn(lambda: self._accept(listener))

    def cut(self) -> None:
        """End every connection there is; new ones are served."""
        with self._lock:
            for wire in self._open:
                with suppress(OSError):
                    wire.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """End every connection, and be gone: nobody answers and there is no socket file."""
        self._stopped.set()
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        self.path.unlink(missing_ok=True)
        self.cut()
        for thread in self._threads:
            thread.join(_JOIN_DEADLINE_S)
        self._threads = [thread for thread in self._threads if thread.is_alive()]

    def _spawn(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work, daemon=True)
        self._threads = [known for known in self._threads if known.is_alive()]
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self, listener: socket.socket) -> None:
        while not self._stopped.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._spawn(lambda wire=client: self._serve(wire))  # type: ignore[misc]

    def _serve(self, client: socket.socket) -> None:
        with self._tracked(client), suppress(OSError):
            request = _read_request(client)
            if request is not None:
                self._answer(client, request, self._rule_for(request))

    def _rule_for(self, request: _Request) -> Rule | None:
        with self._lock:
            self._seen.append((request.method, request.target))
            for rule in self._rules:
                if rule.matches(request.method, request.target):
                    rule.hits += 1
                    return rule
        return None

    def _answer(self, client: socket.socket, request: _Request, rule: Rule | None) -> None:
        if rule is None:
            self._pass(client, request)
        elif rule.fault in _ANSWERED_HERE:
            client.sendall(self._own_answer(request, rule))
        else:
            self._disturb(client, request, rule)

    def _own_answer(self, request: _Request, rule: Rule) -> bytes:
        if rule.fault is Fault.STALE:
            return self._first_answer(request, rule)
        if rule.fault is Fault.REFUSE_AFTER:
            self._whole_answer(request)
        return _refusal(rule.status, rule.message)

    def _disturb(self, client: socket.socket, request: _Request, rule: Rule) -> None:
        if rule.fault is Fault.DELAY:
            self._stopped.wait(rule.delay_s)
            self._pass(client, request)
        if rule.fault in (Fault.CUT, Fault.SILENCE):
            self._pass(client, request, rule.pass_bytes, is_silence=rule.fault is Fault.SILENCE)
        if rule.fault is Fault.SWALLOW:
            self._hold(client)

    def _first_answer(self, request: _Request, rule: Rule) -> bytes:
        with self._lock:
            known = rule.answers.get(request.target)
        if known is None:
            known = self._whole_answer(request)
            with self._lock:
                known = rule.answers.setdefault(request.target, known)
        return known

    def _whole_answer(self, request: _Request) -> bytes:
        with self._connected() as engine:
            engine.sendall(request.raw)
            return b"".join(iter(lambda: engine.recv(_PIECE_BYTES), b""))

    def _pass(
        self,
        client: socket.socket,
        request: _Request,
        limit: int | None = None,
        is_silence: bool = False,
    ) -> None:
        """Pass bytes both ways until the engine ends, or `limit` bytes of its answer have gone through."""
        with self._connected() as engine:
            engine.sendall(request.raw)
            if request.is_upgrade:
                self._spawn(lambda: _pump(client, engine))
            if is_silence:
                client.sendall(_read_head(engine))
            left = limit
            while left is None or left > 0:
                piece = engine.recv(_PIECE_BYTES if left is None else min(left, _PIECE_BYTES))
                if not piece:
                    break
                client.sendall(piece)
                left = None if left is None else left - len(piece)
            if is_silence:
                self._hold(client)

    def _hold(self, client: socket.socket) -> None:
        """Keep the connection open and silent until the client or a cut ends it."""
        while client.recv(_PIECE_BYTES):
            pass

    @contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        engine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with self._tracked(engine):
            engine.connect(str(self._upstream))
            yield engine

    @contextmanager
    def _tracked(self, wire: socket.socket) -> Iterator[None]:
        with self._lock:
            self._open.add(wire)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(wire)
            with suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)
            wire.close()


@contextmanager
def fault_proxy(path: Path, upstream: Path) -> Iterator[FaultProxy]:
    """Run a proxy for the length of a `with`."""
    proxy = FaultProxy(path, upstream)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Pass one direction on, its end included, until either side is gone."""
    with suppress(OSError):
        while piece := source.recv(_PIECE_BYTES):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)


def _read_head(engine: socket.socket) -> bytes:
    """Read an answer's head and not a byte more."""
    head = b""
    while not head.endswith(_END_OF_HEAD):
        piece = engine.recv(1)
        if not piece:
            break
        head += piece
    return head


def _read_request(client: socket.socket) -> _Request | None:
    """Read one request whole; None when the client left first."""
    received = b""
    while _END_OF_HEAD not in received:
        piece = client.recv(_PIECE_BYTES)
        if not piece or len(received) > _HEAD_MAX_BYTES:
            return None
        received += piece
    head, _, body = received.partition(_END_OF_HEAD)
    lines = head.decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ", 2)
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
    }
    while len(body) < int(headers.get("content-length", "0")):
        body += client.recv(_PIECE_BYTES)
    is_upgrade = "upgrade" in headers
    if not is_upgrade:
        kept = [line for line in lines if not line.lower().startswith("connection:")]
        head = "\r\n".join([*kept, "Connection: close"]).encode("latin-1")
    return _Request(method, _VERSION_PREFIX.sub("", target), head + _END_OF_HEAD + body, is_upgrade)


def _refusal(status: int, message: str) -> bytes:
    body = json.dumps({"message": message}).encode()
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
