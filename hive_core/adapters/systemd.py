"""Tells systemd how the daemon is doing, over the notification socket it passes in the environment.

Called by the daemon's main loop. Without systemd the variable is unset and every call does nothing, so the
daemon runs the same way from a shell, in a test and as a unit.
"""

from __future__ import annotations

import os
import socket

_SEND_LIMIT_S = 1.0


def notify_ready() -> bool:
    """Say that the daemon is up: units ordered after it may start."""
    return _notify("READY=1")


def notify_watchdog() -> bool:
    """Say that the daemon still works; due every `watchdog_period_s`."""
    return _notify("WATCHDOG=1")


def notify_stopping() -> bool:
    """Say that the daemon has begun to shut down."""
    return _notify("STOPPING=1")


def notify_status(text: str) -> bool:
    """Show one line in `systemctl status`."""
    return _notify("STATUS=" + " ".join(text.split()))


def watchdog_period_s() -> float | None:
    """Return how often `notify_watchdog` is due, half of what systemd tolerates; None if unwatched."""
    untrusted_pid = os.environ.get("WATCHDOG_PID", "")
    if untrusted_pid and untrusted_pid != str(os.getpid()):
        return None
    untrusted_usec = os.environ.get("WATCHDOG_USEC", "")
    if not (untrusted_usec.isascii() and untrusted_usec.isdigit()) or int(untrusted_usec) == 0:
        return None
    return int(untrusted_usec) / 1_000_000 / 2


def _notify(assignment: str) -> bool:
    """Send one assignment; return whether systemd has it. A lost notice never harms the daemon."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    # "@" stands for the zero byte that begins an abstract address.
    target = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(_SEND_LIMIT_S)
            sender.sendto(assignment.encode(), target)
    except OSError:
        return False
    return True
