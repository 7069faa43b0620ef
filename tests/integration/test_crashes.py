"""Programs that end, hang, crash and eat memory: how hive names it, waits, gives up, and stops them."""

from __future__ import annotations

import time
from functools import partial

import pytest

from tests.support.live_hive import LiveHive

pytestmark = pytest.mark.integration

# Ignores SIGTERM, and so does everything it starts.
DEAF = ("sh", "-c", "trap '' TERM; echo deaf; sleep 600")
SLACK_S = 4.0  # what a loaded machine may add


def test_a_program_that_cannot_be_found_is_a_crash_with_its_words_in_the_log(hive: LiveHive) -> None:
    hive.init("typo", "/no/such/program")
    try:
        hive.hivectl("spawn", "typo", expect=None)
        hive.wait_state("typo", "crash-looping")
        assert hive.show("typo")["exits"][-1]["exit_code"] == 127
        assert "/no/such/program" in hive.hivectl("logs", "typo").stdout
    finally:
        hive.remove("typo")


def test_five_quick_crashes_are_a_loop_until_start(hive: LiveHive) -> None:
    hive.init("crash", "sh", "-c", "echo run >> /state/runs; exit 3")
    try:
        hive.hivectl("spawn", "crash", expect=None)
        row = hive.wait_state("crash", "crash-looping")
        assert "exit code 3" in row["reason"]
        assert "hivectl start crash" in row["reason"]
        assert row["desired"] == "running"
        assert "crash_looping" in hive.problems()
        assert "crash-looping" in hive.hivectl("ps").stdout
        exits = hive.show("crash")["exits"]
        assert [(one["kind"], one["exit_code"]) for one in exits] == [("crash", 3)] * 5
        assert _runs(hive) == 5
        hive.reconcile()
        assert _runs(hive) == 5
        seq = hive.last_seq()
        hive.hivectl("start", "crash", expect=None)
        hive.wait_event("started", "crash", seq)
        hive.wait_for(lambda: _runs(hive) == 10, "five more runs")
        hive.wait_state("crash", "crash-looping")
        assert len(hive.containers("crash")) == 1
    finally:
        hive.remove("crash")


def _runs(hive: LiveHive) -> int:
    marks = hive.data / "agents" / "crash" / "state" / "runs"
    return len(marks.read_text().splitlines()) if marks.exists() else 0


def test_a_crash_loop_can_be_stopped_and_outlives_the_daemon(hive: LiveHive) -> None:
    hive.init("crash", "sh", "-c", "exit 4")
    try:
        hive.hivectl("spawn", "crash", expect=None)
        hive.wait_state("crash", "crash-looping")
        started = len(hive.events("started", "crash"))
        hive.restart().settle()
        assert hive.row("crash")["state"] == "crash-looping"
        assert len(hive.events("started", "crash")) == started
        hive.hivectl("stop", "crash")
        assert hive.row("crash")["state"] == "stopped"
    finally:
        hive.remove("crash")


def test_running_out_of_memory_is_named(hive: LiveHive) -> None:
    hive.init("hungry", "python3", "-c", "x = bytearray(1 << 30)", memory="32m")
    try:
        hive.hivectl("spawn", "hungry", expect=None)
        hive.wait_for(lambda: hive.events("exited", "hungry"), "its end")
        assert "out of memory" in hive.events("exited", "hungry")[0]["text"]
        hive.wait_state("hungry", "crash-looping")
        last = hive.show("hungry")["exits"][-1]
        assert last["oom_killed"] is True
        assert "out of memory" in last["text"]
        assert "out of memory" in hive.row("hungry")["reason"]
    finally:
        hive.remove("hungry")


def test_a_program_that_ignores_the_stop_is_forced_after_the_grace(hive: LiveHive) -> None:
    hive.spawn("deaf", *DEAF)
    try:
        hive.wait_for(lambda: "deaf" in hive.hivectl("logs", "deaf").stdout, "its deafness")
        began = time.monotonic()
        said = hive.hivectl("stop", "deaf").stdout
        took_s = time.monotonic() - began
        assert "forced after the grace" in said
        assert 5 <= took_s < 5 + SLACK_S
        assert hive.row("deaf")["state"] == "stopped"
        assert "forced" in hive.events("stopped", "deaf")[-1]["text"]
        hive.verb("start", "deaf")
        began = time.monotonic()
        hive.hivectl("stop", "deaf", "--now")
        assert time.monotonic() - began < SLACK_S
    finally:
        hive.remove("deaf")


def _is_deaf(hive: LiveHive, name: str) -> bool:
    return "deaf" in hive.hivectl("logs", name).stdout


def test_many_stops_take_one_grace(hive: LiveHive) -> None:
    names = [f"deaf{number}" for number in range(6)]
    for name in names:
        hive.init(name, *DEAF)
    try:
        hive.verb("spawn", *names)
        for name in names:
            hive.wait_for(partial(_is_deaf, hive, name), f"{name}'s deafness")
        began = time.monotonic()
        hive.hivectl("stop", *names)
        assert time.monotonic() - began < 5 + SLACK_S + 2
        assert {row["state"] for row in hive.rows().values()} == {"stopped"}
    finally:
        hive.remove(*names)


def test_the_next_run_begins_only_after_the_last_one_is_gone(hive: LiveHive) -> None:
    program = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "os.close(os.open('/state/lock', os.O_CREAT | os.O_EXCL))\n"
        "print('alone', flush=True)\n"
        "deadline = time.monotonic() + 600\n"
        "while time.monotonic() < deadline:\n"
        "    signal.sigtimedwait([signal.SIGTERM], 0.5) and time.sleep(1.5)\n"
    )
    hive.spawn("solo", "python3", "-c", "import signal; signal.pthread_sigmask(0, [15])\n" + program)
    lock = hive.data / "agents" / "solo" / "state" / "lock"
    try:
        hive.wait_for(lock.exists, "its lock")
        seq = hive.last_seq()
        lock.unlink()
        hive.hivectl("restart", "solo")
        stopped = hive.wait_event("stopped", "solo", seq)
        started = hive.wait_event("started", "solo", seq)
        assert stopped["seq"] < started["seq"]
        hive.wait_for(lock.exists, "the next run's lock")
        assert hive.events("exited", "solo") == []
    finally:
        hive.remove("solo")
