from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hive_core.adapters import systemd


@pytest.fixture(params=["path", "abstract"])
def received(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    named = f"@hive-test-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(named.replace("@", "\0"))
        listener.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", named)
        yield listener


@pytest.mark.parametrize(
    ("send", "text"),
    [
        (systemd.notify_ready, b"READY=1"),
        (systemd.notify_watchdog, b"WATCHDOG=1"),
        (systemd.notify_stopping, b"STOPPING=1"),
        (lambda: systemd.notify_status("3 agents,\nSTOPPING=1"), b"STATUS=3 agents, STOPPING=1"),
    ],
    ids=["ready", "watchdog", "stopping", "status-is-one-line"],
)
def test_each_notice_arrives(received: socket.socket, send: Callable[[], bool], text: bytes) -> None:
    assert send()
    assert received.recv(4096) == text


@pytest.mark.parametrize(
    "address", [None, "", "relative", "vsock:2:1234", "/nonexistent/notify", "@", "/" + "x" * 200]
)
def test_without_a_listener_nothing_happens(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if address is None:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    else:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert systemd.notify_ready() is False


@pytest.mark.parametrize(
    ("usec", "pid", "period_s"),
    [
        (None, None, None),
        ("30000000", None, 15.0),
        pytest.param("30000000", str(os.getpid()), 15.0, id="for-this-process"),
        ("30000000", "1", None),
        ("0", None, None),
        ("", None, None),
        ("-5", None, None),
        ("²", None, None),
        ("soon", None, None),
    ],
)
def test_the_watchdog_period_is_half_the_limit(
    usec: str | None, pid: str | None, period_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WATCHDOG_USEC", usec), ("WATCHDOG_PID", pid)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert systemd.watchdog_period_s() == period_s
