import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hive_api.client import Absent, AdminClient, ApiError, Cut, NoAnswer, Unreachable, connect, segment
from hive_api.errors import ErrorCode
from tests.support.stub_admin import Received, Reply, StubAdmin

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def client(admin: StubAdmin) -> AdminClient:
    return AdminClient(str(admin.socket_path))


@contextmanager
def answering(directory: Path, *pieces: bytes, then_hold: bool = False) -> Iterator[AdminClient]:
    """Yield a client of a socket that sends these bytes, whatever it is asked."""
    path = str(directory / "raw.sock")
    done = threading.Event()

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(65536)
            for piece in pieces:
                peer.sendall(piece)
            if then_hold:
                done.wait(10)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield AdminClient(path, 0.5)
        finally:
            done.set()
            thread.join(5)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param([OK + b"Content-Length: 3\r\n\r\n[1]"], [1], id="length"),
        pytest.param([OK + b"content-length:3\r\n\r", b"\n[", b"1]"], [1], id="cut-anywhere"),
        pytest.param([OK + b"\r\n[1]"], [1], id="until-the-end"),
        pytest.param(
            [OK + b"Transfer-Encoding: chunked\r\n\r\n1;x=y\r\n[\r\n2\r", b"\n1]\r\n0\r\n\r\n"],
            [1],
            id="chunked",
        ),
    ],
)
def test_an_answer_is_read_in_every_framing(tmp_path: Path, pieces: list[bytes], expected: object) -> None:
    with answering(tmp_path, *pieces) as client:
        assert client.get("/v1/x") == expected


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        pytest.param([], "cut", id="closed-at-once"),
        pytest.param([OK + b"Content-Length: 9\r\n\r\n[1]"], "cut", id="short-body"),
        pytest.param([OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\n[1]"], "cut", id="short-chunk"),
        pytest.param([b"SSH-2.0-x\r\n"], "not HTTP", id="other-protocol"),
        pytest.param([b"x" * 70000], "not HTTP", id="endless-line"),
        pytest.param([OK + b"a: b\r\n" * 200], "not HTTP", id="endless-headers"),
        pytest.param([OK + b"Content-Length: -1\r\n\r\n"], "not HTTP", id="negative-length"),
        pytest.param([OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"], "not HTTP", id="bad-chunk-size"),
        pytest.param([OK + b"Content-Length: 3\r\n\r\nabc"], "not JSON", id="not-json"),
        pytest.param([OK + b"\r\n" + b"[" * 100000], "not JSON", id="deep-json"),
    ],
)
def test_a_bad_answer_is_unreachable(tmp_path: Path, pieces: list[bytes], reason: str) -> None:
    with answering(tmp_path, *pieces) as client, pytest.raises(Unreachable, match=reason):
        client.get("/v1/x")


def test_the_deadline_is_for_the_whole_exchange(tmp_path: Path) -> None:
    """A server that drips one byte at a time does not get a fresh deadline with each."""
    path, began = str(tmp_path / "drip.sock"), time.monotonic()

    def drip() -> None:
        peer, _ = listener.accept()
        with peer:
            try:
                while time.monotonic() < began + 10:
                    peer.sendall(b"H")
                    stop.wait(0.05)
            except OSError:
                return

    stop = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        with pytest.raises(NoAnswer, match=r"no answer within 0\.3 s"):
            AdminClient(path, 0.3).get("/v1/x")
        stop.set()
        thread.join(5)
    assert time.monotonic() - began < 3


def test_a_silent_daemon_with_a_full_queue_is_no_answer(tmp_path: Path) -> None:
    path = str(tmp_path / "full.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        with connect(path, 1.0), pytest.raises(NoAnswer):
            AdminClient(path, 0.2).get("/v1/x")


@pytest.mark.parametrize("kind", ["missing", "refused", "file", "folder", "too-long"])
def test_a_socket_that_is_none_is_unreachable(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    if kind == "refused":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    elif kind == "file":
        path.write_bytes(b"")
    elif kind == "folder":
        path.mkdir()
    elif kind == "too-long":
        path = tmp_path / ("x" * 120)
    with pytest.raises(Unreachable) as caught:
        AdminClient(str(path)).get("/v1/x")
    assert str(path) in caught.value.message
    assert not isinstance(caught.value, NoAnswer)
    assert caught.value.hint or kind == "too-long"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_permission_denied_names_the_group(admin: StubAdmin) -> None:
    admin.socket_path.parent.chmod(0o755)
    admin.socket_path.chmod(0o600)
    os.seteuid(65534)
    try:
        with pytest.raises(Unreachable, match="permission denied") as caught:
            AdminClient(str(admin.socket_path)).get("/v1/x")
    finally:
        os.seteuid(0)
    assert "group hive" in caught.value.hint


def test_the_envelope_becomes_the_error(admin: StubAdmin, client: AdminClient) -> None:
    admin.refuse("POST", "/v1/x", 409, "name_unavailable", "cannot init bob: it is taken", "choose another")
    with pytest.raises(ApiError) as caught:
        client.post("/v1/x", {"a": 1})
    error = caught.value
    assert (error.code, error.message, error.hint) == (
        ErrorCode.NAME_UNAVAILABLE,
        "cannot init bob: it is taken",
        "choose another",
    )


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        pytest.param(404, b"Not Found", ErrorCode.NOT_FOUND, id="no-json"),
        pytest.param(403, b'{"detail": "x"}', ErrorCode.DENIED, id="no-envelope"),
        pytest.param(409, b'{"error": "x"}', ErrorCode.CONFLICT, id="envelope-is-no-map"),
        pytest.param(500, b"[]", ErrorCode.INTERNAL, id="list"),
        pytest.param(
            504, b'{"error": {"code": "new_in_v9", "message": "m"}}', ErrorCode.TIMED_OUT, id="newer"
        ),
    ],
)
def test_an_error_without_a_known_code_goes_by_its_status(
    admin: StubAdmin, client: AdminClient, status: int, body: bytes, code: ErrorCode
) -> None:
    admin.on("GET", "/v1/x", body, status=status)
    with pytest.raises(ApiError) as caught:
        client.get("/v1/x")
    assert caught.value.code is code


def test_requests_carry_query_and_body(admin: StubAdmin, client: AdminClient) -> None:
    admin.on("GET", "/v1/x", [])
    admin.on("PUT", "/v1/x", {})
    admin.on("DELETE", "/v1/x", {})
    client.get("/v1/x", {"after": 3, "follow": True, "q": "a b&c"})
    client.put("/v1/x", {"name": "Zoë"})
    client.delete("/v1/x", {"purge": False})
    asked = [(request.method, request.query) for request in admin.requests]
    assert asked == [
        ("GET", {"after": "3", "follow": "true", "q": "a b&c"}),
        ("PUT", {}),
        ("DELETE", {"purge": "false"}),
    ]
    assert admin.requests[1].json() == {"name": "Zoë"}


@pytest.mark.parametrize("name", ["../x", "a/b?c#d", "\udcff", "a b\r\nX: y", "."])
def test_a_name_stays_one_path_segment(name: str) -> None:
    encoded = segment(name)
    assert encoded.isascii()
    assert not set(encoded) & set("/?# \r\n")


def test_a_stream_yields_pieces_as_they_come(admin: StubAdmin, client: AdminClient) -> None:
    first_seen = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"one"
        assert first_seen.wait(10)
        yield b"two"

    admin.route("GET", "/v1/x", lambda _: Reply(pieces=pieces()))
    with client.stream("/v1/x") as stream:
        assert next(stream) == b"one"
        first_seen.set()
        assert b"".join(stream) == b"two"


def test_a_stream_refused_is_the_error(admin: StubAdmin, client: AdminClient) -> None:
    admin.refuse("GET", "/v1/x", 404, "not_found", "there is no agent bob")
    with pytest.raises(ApiError, match="no agent bob"), client.stream("/v1/x"):
        raise AssertionError("the body must not be reached")


def test_a_large_body_refused_early_still_says_why(tmp_path: Path) -> None:
    refusal = b'{"error": {"code": "limit_exceeded", "message": "too much", "hint": ""}}'
    head = b"HTTP/1.1 413 x\r\nContent-Length: %d\r\n\r\n" % len(refusal)
    with answering(tmp_path, head + refusal) as client, pytest.raises((ApiError, Unreachable)) as caught:
        client.post("/v1/x", "x" * 8_000_000, timeout_s=5.0)
    assert "too much" in str(caught.value) or "cut" in str(caught.value)


def test_received_paths_are_what_was_asked(admin: StubAdmin, client: AdminClient) -> None:
    seen: list[Received] = []

    def route(request: Received) -> Reply:
        seen.append(request)
        return Reply({})

    admin.route("GET", "/v1/agents/a/b", route)
    client.get(f"/v1/agents/{segment('a/b')}")
    assert seen[0].path == "/v1/agents/a%2Fb"


def test_a_key_is_sent_only_where_there_is_one(admin: StubAdmin, client: AdminClient) -> None:
    admin.on("POST", "/v1/x", {})
    client.send("POST", "/v1/x", body={"a": 1}, key="k" * 32)
    client.post("/v1/x", {"a": 1})
    assert [request.key for request in admin.requests] == ["k" * 32, None]


def test_nobody_there_and_a_cut_are_told_apart(admin: StubAdmin, client: AdminClient) -> None:
    admin.route("GET", "/v1/x", lambda _: Reply(is_cut=True))
    with pytest.raises(Cut):
        client.get("/v1/x")
    admin.stop()
    with pytest.raises(Absent):
        client.get("/v1/x")
