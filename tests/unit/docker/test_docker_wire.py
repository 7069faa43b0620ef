from __future__ import annotations

import http.client
import struct
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import urllib3
from docker.errors import APIError, DockerException
from hypothesis import given
from hypothesis import strategies as st

from hive_core.adapters.docker_answers import container_detail, engine_event, is_id_prefix, listed_container
from hive_core.adapters.docker_body import create_body
from hive_core.adapters.docker_faults import engine_call
from hive_core.adapters.docker_streams import deframe, json_lines
from hive_core.domain.errors import EngineRefused, EngineUnavailable
from hive_core.domain.observed import EngineEvent, EngineState
from hive_core.domain.spec import LABEL_AGENT, LABEL_HIVE, BindMount, ContainerSpec, Limits


def in_pieces(content: bytes, sizes: list[int]) -> Iterator[bytes]:
    """Cut content into pieces of these sizes, the rest last."""
    for size in sizes:
        piece, content = content[:size], content[size:]
        if piece:
            yield piece
    if content:
        yield content


def framed(frames: list[tuple[int, bytes]]) -> bytes:
    return b"".join(struct.pack(">BxxxL", stream, len(content)) + content for stream, content in frames)


@given(
    frames=st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50)), max_size=6),
    sizes=st.lists(st.integers(1, 20), max_size=60),
)
def test_frames_come_out_whole_however_the_bytes_arrive(
    frames: list[tuple[int, bytes]], sizes: list[int]
) -> None:
    for stream in (1, 2):
        expected = b"".join(content for number, content in frames if number == stream)
        pieces = list(deframe(in_pieces(framed(frames), sizes)))
        assert b"".join(content for number, content in pieces if number == stream) == expected
        assert all(content for _, content in pieces)


@given(content=st.binary(min_size=1, max_size=30), cut=st.integers(1, 37))
def test_a_frame_that_is_cut_off_is_an_error_and_no_quiet_end(content: bytes, cut: int) -> None:
    whole = framed([(1, content)])
    with pytest.raises(EOFError):
        list(deframe(iter([whole[: max(1, len(whole) - cut)]])))


def test_a_huge_frame_is_never_held_whole() -> None:
    head = struct.pack(">BxxxL", 1, 2**32 - 1)
    pieces = deframe(iter([head, *[b"x" * 1000] * 5]))
    assert [len(next(pieces)[1]) for _ in range(5)] == [1000] * 5


@given(sizes=st.lists(st.integers(1, 9), max_size=20))
def test_json_documents_come_out_however_the_bytes_arrive(sizes: list[int]) -> None:
    assert list(json_lines(in_pieces(b'{"a": 1}\n\r\n{"b": "\xc3\xbc"}\n', sizes))) == [{"a": 1}, {"b": "ü"}]


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="a line of more than"):
        list(json_lines(iter([b"x" * 600_000] * 2)))


TIMEOUT = urllib3.exceptions.ReadTimeoutError(urllib3.HTTPConnectionPool("localhost"), "/", "read timed out")


@pytest.mark.parametrize(
    "fault",
    [
        requests.ReadTimeout(),
        requests.ConnectTimeout(),
        TimeoutError(),
        TIMEOUT,
        requests.ConnectionError(TIMEOUT),
    ],
    ids=["read", "connect", "socket", "urllib3", "wrapped"],
)
def test_silence_is_a_hung_engine(fault: Exception) -> None:
    with (
        pytest.raises(EngineUnavailable, match="cannot look: the engine did not answer in time") as found,
        engine_call("look"),
    ):
        raise fault
    assert found.value.hung


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (
            ConnectionRefusedError(111, "Connection refused"),
            "the engine does not answer (connection refused)",
        ),
        (
            requests.ConnectionError(
                urllib3.exceptions.ProtocolError("Aborted.", FileNotFoundError(2, "No such file"))
            ),
            "the engine does not answer (no such file)",
        ),
        (http.client.IncompleteRead(b""), "the engine broke off the connection"),
        (DockerException("odd"), "the engine broke off the connection"),
        (KeyError("Id"), "the engine's answer makes no sense (KeyError)"),
    ],
    ids=["refused", "missing", "cut", "library", "nonsense"],
)
def test_a_broken_exchange_is_an_engine_away(fault: Exception, reason: str) -> None:
    with pytest.raises(EngineUnavailable) as found, engine_call("look"):
        raise fault
    assert found.value.message == f"cannot look: {reason}"
    assert not found.value.hung
    assert found.value.hint


def test_a_refusal_is_one_short_line_with_its_status() -> None:
    response = requests.Response()
    response.status_code = 409
    with pytest.raises(EngineRefused) as found, engine_call("look"):
        raise APIError("409 Client Error", response=response, explanation="so\nmany\twords " + "x" * 1000)
    assert found.value.status == 409
    assert found.value.message.startswith("cannot look: so many words xxx")
    assert len(found.value.message) < 330


def row(**changes: Any) -> dict[str, Any]:
    return {
        "Id": "a" * 64, "Names": ["/h-bob"], "State": "running", "Status": "Up", "Labels": None,
        "ImageID": "i",
    } | changes  # fmt: skip


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["/h-bob"], "h-bob"), (["/other/alias", "/h-bob"], "h-bob"), ([], ""), (None, "")],
)
def test_a_listed_container_s_own_name_is_found(names: list[str] | None, expected: str) -> None:
    assert listed_container(row(Names=names)).name == expected


def test_a_state_nobody_knows_is_nonsense() -> None:
    with pytest.raises(EngineUnavailable, match="makes no sense"), engine_call("list"):
        listed_container(row(State="dancing"))


def test_what_has_not_happened_has_no_time() -> None:
    state = {
        "Status": "created", "StartedAt": "0001-01-01T00:00:00Z", "FinishedAt": "0001-01-01T00:00:00Z",
        "ExitCode": 0, "OOMKilled": False, "Error": "", "Pid": 0,
    }  # fmt: skip
    inspected = {
        "Id": "a" * 64, "Name": "/h-bob", "State": state, "Config": {"Labels": None},
        "Created": "2024-05-01T12:00:00.123456789Z", "HostConfig": {"RestartPolicy": {"Name": ""}},
    }  # fmt: skip
    detail = container_detail(inspected)
    assert (detail.started_at, detail.finished_at, detail.state) == (None, None, EngineState.CREATED)
    assert detail.created_at.isoformat() == "2024-05-01T12:00:00.123456+00:00"
    assert (detail.restart_policy, detail.labels) == ("no", {})


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            {"Type": "container", "Action": "die", "Actor": {"ID": "c", "Attributes": {LABEL_HIVE: "mine"}}},
            "die",
        ),
        (
            {"Type": "container", "Action": "die", "Actor": {"ID": "c", "Attributes": {LABEL_HIVE: "other"}}},
            None,
        ),
        ({"Type": "container", "Action": "die", "Actor": {"ID": "c"}}, None),
        (
            {
                "Type": "container",
                "Action": "exec_die",
                "Actor": {"ID": "c", "Attributes": {LABEL_HIVE: "mine"}},
            },
            None,
        ),
        ({"Type": "image", "Action": "tag", "Actor": {"ID": "c"}}, "tag"),
        ({"Type": "network", "Action": "create", "Actor": {"ID": "c"}}, None),
        ({}, None),
    ],
)
def test_only_events_that_concern_this_hive_count(message: dict[str, Any], expected: str | None) -> None:
    event = engine_event(message, "mine")
    assert event == (None if expected is None else EngineEvent(message["Type"], expected, "c"))


@pytest.mark.parametrize(
    ("reference", "expected"),
    [("cafe", True), ("sha256:cafe", True), ("cafe" * 16, False), ("sha256:" + "cafe" * 16, False),
     ("cafeca", False), ("hive-agent", False)],
)  # fmt: skip
def test_the_first_digits_of_an_image_s_id_are_no_name(reference: str, expected: bool) -> None:
    inspected = {"Id": "sha256:" + "cafe" * 16, "RepoTags": ["cafeca:latest"]}
    assert is_id_prefix(reference, inspected) is expected


def test_a_variable_that_is_set_is_not_taken_away_again() -> None:
    spec = ContainerSpec(
        name="h-bob", image_id="sha256:i", command=("a",),
        env=(("KEPT", "1"), ("SET", "2")), drop_env=("GONE", "SET"),
        uid=5, gid=6, commit="c", mounts=(BindMount("/state", "/s"),), limits=Limits(1, 0.5, 2, 3, 4, 5, 6),
    )  # fmt: skip
    body = create_body(spec, {LABEL_AGENT: "bob"})
    assert body["Env"] == ["KEPT=1", "SET=2", "GONE"]
    assert body["HostConfig"]["Mounts"] == [
        {"Type": "bind", "Source": "/s", "Target": "/state", "ReadOnly": False,
         "BindOptions": {"Propagation": "rprivate"}}
    ]  # fmt: skip
    assert "Binds" not in body["HostConfig"]
