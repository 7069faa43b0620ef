"""What only a real engine can show: what is really inside a container, its streams, and its numbers."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker.types import LogConfig

from hive_core.adapters.docker import DockerEngine
from hive_core.adapters.docker_exec import DockerExec
from hive_core.domain.errors import EngineRefused
from hive_core.domain.observed import EngineState
from hive_core.domain.ports import ExecRequest
from hive_core.domain.spec import BindMount, Propagation
from tests.support.engine_fixtures import EngineImages
from tests.support.engine_rig import LIMITS, SLEEP, UID, RealRig
from tests.support.own_engine import OwnEngine
from tests.support.paths import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture
def rig(own_engine: OwnEngine, docker_engine: DockerEngine, engine_images: EngineImages) -> Iterator[RealRig]:
    real = RealRig(own_engine, docker_engine)
    try:
        yield real
    finally:
        real.remove_everything()


def start_command(rig: RealRig, container_id: str, *argv: str, tty: bool = False) -> DockerExec:
    engine = rig.engine
    assert isinstance(engine, DockerEngine)
    request = ExecRequest(argv, UID, UID, (("GIVEN", "a b"),), "/", tty=tty, rows=30, columns=90)
    return engine.exec(container_id, request)


def output_of(session: DockerExec) -> tuple[bytes, bytes]:
    out, err = b"", b""
    while (piece := session.read()) is not None:
        stream, content = piece
        out, err = (out + content, err) if stream == 1 else (out, err + content)
    return out, err


def run(rig: RealRig, container_id: str, script: str) -> str:
    """Run a shell script in the container and return what it printed, both streams."""
    session = start_command(rig, container_id, "sh", "-c", f"exec 2>&1; {script}")
    return output_of(session)[0].decode()


def last_line(rig: RealRig, container_id: str) -> bytes:
    return b"".join(rig.engine.logs(container_id, 1, follow=False))


def inspected(rig: RealRig, container_id: str) -> dict[str, Any]:
    found: dict[str, Any] = rig.client.inspect_container(container_id)
    return found


def processes_named(marker: str) -> list[int]:
    """Return the host pids whose command line has this argument."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                argv = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if marker.encode() in argv:
                found.append(int(entry))
    return found


def test_the_engine_stored_every_default(rig: RealRig) -> None:
    host = inspected(rig, rig.make(EngineState.CREATED))["HostConfig"]
    expected = {
        "Binds": None,
        "Privileged": False,
        "AutoRemove": False,
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "CapAdd": None,
        "SecurityOpt": ["no-new-privileges"],
        "NetworkMode": "none",
        "IpcMode": "private",
        "PidMode": "",
        "UTSMode": "",
        "CgroupnsMode": "private",
        "Init": True,
        "Memory": LIMITS.memory_bytes,
        "MemorySwap": LIMITS.memory_bytes,
        "NanoCpus": 1_000_000_000,
        "PidsLimit": LIMITS.pids,
        "Ulimits": [{"Name": "nofile", "Soft": LIMITS.nofile, "Hard": LIMITS.nofile}],
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "1048576", "max-file": "2"}},
        "Devices": None,
    }
    assert {key: host[key] for key in expected} == expected


def test_the_engine_stored_who_runs_what(rig: RealRig) -> None:
    config = inspected(rig, rig.make(EngineState.CREATED))["Config"]
    assert config["User"] == f"{UID}:{UID}"
    assert config["Hostname"] == "bob"
    assert config["Entrypoint"] == ["/usr/local/bin/hive-agent"]
    assert config["Cmd"] == list(SLEEP)
    assert config["WorkingDir"] == "/state"
    assert config["StopTimeout"] == 10
    assert (config["Tty"], config["OpenStdin"]) == (False, False)


def test_a_process_has_no_privilege_and_cannot_get_any(rig: RealRig) -> None:
    one = rig.make(EngineState.RUNNING)
    status = dict(line.split(":\t", 1) for line in run(rig, one, "cat /proc/1/status").splitlines())
    assert {key: int(status[key], 16) for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {
        "CapInh": 0, "CapPrm": 0, "CapEff": 0, "CapBnd": 0, "CapAmb": 0,
    }  # fmt: skip
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert status["Uid"].split() == [str(UID)] * 4
    assert status["Gid"].split() == [str(UID)] * 4
    for line in ("CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert line in run(rig, one, "cat /proc/self/status"), "an exec has no more than the container"


def test_only_tmp_is_writable_and_it_runs_programs(rig: RealRig) -> None:
    one = rig.make(EngineState.RUNNING)
    for path in ("/x", "/bin/x", "/etc/x", "/state/x", "/proc/sys/kernel/core_pattern"):
        assert run(rig, one, f"echo x > {path} && echo written").find("written") == -1, path
    script = "printf '#!/bin/sh\\necho ran' > /tmp/p; chmod 755 /tmp/p; /tmp/p"
    assert run(rig, one, script) == "ran\n"
    (mount,) = [line for line in run(rig, one, "cat /proc/mounts").splitlines() if " /tmp " in line]
    options = mount.split()[3].split(",")
    assert {"rw", "nosuid", "nodev", "size=8192k", f"uid={UID}", f"gid={UID}"} <= set(options)
    assert "noexec" not in options


def test_the_limits_hold_inside(rig: RealRig) -> None:
    one = rig.make(EngineState.RUNNING)
    limits = run(rig, one, "cat /proc/self/limits")
    (nofile,) = [line.split() for line in limits.splitlines() if line.startswith("Max open files")]
    assert nofile[3:5] == ["512", "512"]
    assert run(rig, one, "ls /sys/class/net").split() == ["lo"]
    assert run(rig, one, "head -c 20000000 /dev/zero > /tmp/big; ls -s /tmp/big").find("No space") > 0
    forks = run(rig, one, "i=0; while [ $i -lt 100 ]; do sleep 5 & i=$((i+1)); done")
    assert "Cannot fork" in forks or "Resource temporarily unavailable" in forks


def test_using_more_memory_than_allowed_is_told_as_out_of_memory(rig: RealRig) -> None:
    one = rig.make(EngineState.RUNNING, command=("sh", "-c", "x=a; while :; do x=$x$x; done"))
    wait_until(lambda: rig.state(one) is EngineState.EXITED, "the kernel to end it")
    detail = rig.engine.inspect(one)
    assert (detail.exit_code, detail.oom_killed) == (137, True)


def test_the_environment_is_the_spec_s_and_the_image_s_less_what_is_dropped(rig: RealRig) -> None:
    one = rig.make(EngineState.RUNNING)
    environment = run(rig, one, "env")
    assert "HIVE=yes\n" in environment
    assert "PATH=/usr/local/bin:/bin\n" in environment
    assert "GIVEN=a b\n" in environment
    assert "FROM_IMAGE" not in environment


def test_mounts_are_where_they_should_be_and_read_only_where_asked(rig: RealRig, tmp_path: Path) -> None:
    for name in ("state", "config"):
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, UID, UID)
    mounts = (
        BindMount("/state", f"{tmp_path}/state"),
        BindMount("/config", f"{tmp_path}/config", read_only=True),
    )
    one = rig.engine.create(rig.spec(mounts=mounts), rig.labels)
    rig.engine.start(one)
    assert run(rig, one, "echo kept > /state/x && cat /state/x") == "kept\n"
    assert (tmp_path / "state/x").stat().st_uid == UID
    assert "Read-only file system" in run(rig, one, "echo lost > /config/x")
    stored = {mount["Destination"]: mount for mount in inspected(rig, one)["Mounts"]}
    assert {(key, mount["RW"], mount["Propagation"]) for key, mount in stored.items()} == {
        ("/state", True, "rprivate"),
        ("/config", False, "rprivate"),
    }


def test_live_mounts_need_a_shared_source_and_the_engine_says_so(rig: RealRig, tmp_path: Path) -> None:
    live = BindMount("/agents", str(tmp_path), propagation=Propagation.SLAVE)
    one = rig.engine.create(rig.spec(mounts=(live,)), rig.labels)
    assert inspected(rig, one)["HostConfig"]["Mounts"][0]["BindOptions"] == {"Propagation": "rslave"}
    with pytest.raises(EngineRefused, match="not a shared or slave mount"):
        rig.engine.start(one)


def test_a_program_that_ignores_the_signal_is_killed_after_the_grace(rig: RealRig) -> None:
    one = rig.make(
        EngineState.RUNNING, command=("sh", "-c", "trap '' TERM; echo set; while :; do sleep 1; done")
    )
    wait_until(lambda: b"set" in last_line(rig, one), "the trap")
    began = time.monotonic()
    rig.engine.stop(one, 1)
    assert 0.9 < time.monotonic() - began < 5
    assert (rig.state(one), rig.engine.inspect(one).exit_code) == (EngineState.EXITED, 137)


def test_stopping_many_costs_about_one_grace(rig: RealRig) -> None:
    stubborn = ("sh", "-c", "trap '' TERM; echo set; while :; do sleep 1; done")
    made = [rig.make(EngineState.RUNNING, f"s{number}", stubborn) for number in range(6)]
    wait_until(lambda: all(b"set" in last_line(rig, one) for one in made), "the traps")
    began = time.monotonic()
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda one: rig.engine.stop(one, 2), made))
    assert time.monotonic() - began < 6, "six graces of 2 s one after the other would be 12"


def test_a_log_comes_raw_both_streams_and_only_the_tail(rig: RealRig) -> None:
    raw = rb"printf '\033]0;pwn\007\377\376\000nul\n'; echo err >&2; seq 1 30000"
    one = rig.make(EngineState.RUNNING, command=("sh", "-c", raw.decode("ascii")))
    wait_until(lambda: rig.state(one) is EngineState.EXITED, "its end")
    tails = {tail: b"".join(rig.engine.logs(one, tail, follow=False)) for tail in (-1, 0, 3, 10**9)}
    assert tails[-1] == tails[0] == b""
    assert tails[3] == b"29998\n29999\n30000\n"
    assert tails[10**9].count(b"\n") == 10_000, "clamped"


def test_a_log_keeps_bytes_that_are_no_text(rig: RealRig) -> None:
    script = r"printf '\033]0;pwn\007\377\376\000nul\n'; echo err >&2"
    one = rig.make(EngineState.RUNNING, command=("sh", "-c", script))
    wait_until(lambda: rig.state(one) is EngineState.EXITED, "its end")
    assert b"".join(rig.engine.logs(one, 10, follow=False)).startswith(b"\x1b]0;pwn\x07")
    assert b"nul\nerr\n" in b"".join(rig.engine.logs(one, 10, follow=False))


def test_a_long_line_comes_in_bounded_pieces(rig: RealRig) -> None:
    one = rig.make(EngineState.RUNNING, command=("sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x; echo"))
    wait_until(lambda: rig.state(one) is EngineState.EXITED, "its end")
    pieces = list(rig.engine.logs(one, 100, follow=False))
    assert sum(len(piece) for piece in pieces) == 300_001
    assert max(len(piece) for piece in pieces) <= 65_536


@pytest.mark.parametrize("tty", [False, True])
def test_terminal_and_plain_logs_have_the_same_text(rig: RealRig, tty: bool) -> None:
    made = rig.client.create_container(
        EngineImages().usual,
        ["sh", "-c", "echo one; echo two"],
        tty=tty,
        labels=rig.labels,
        host_config=rig.client.create_host_config(network_mode="none"),
    )
    rig.client.start(made["Id"])
    rig.client.wait(made["Id"], timeout=10)
    text = b"".join(rig.engine.logs(made["Id"], 10, follow=False))
    assert text.replace(b"\r\n", b"\n") == b"one\ntwo\n"


def test_a_log_that_nobody_keeps_is_said_to_be_none(rig: RealRig) -> None:
    made = rig.client.create_container(
        EngineImages().usual,
        list(SLEEP),
        labels=rig.labels,
        host_config=rig.client.create_host_config(network_mode="none", log_config=LogConfig(type="none")),
    )
    with pytest.raises(EngineRefused, match="none is kept"):
        rig.engine.logs(made["Id"], 10, follow=False)


def test_a_foreign_restart_policy_is_seen(rig: RealRig) -> None:
    one = rig.make(EngineState.RUNNING)
    rig.client.update_container(one, restart_policy={"Name": "always"})
    assert rig.engine.inspect(one).restart_policy == "always"


def test_a_follower_gets_lines_as_they_come_and_can_be_closed(rig: RealRig) -> None:
    one = rig.make(EngineState.RUNNING, command=("sh", "-c", "echo first; sleep 600"))
    engine = rig.engine
    assert isinstance(engine, DockerEngine)
    stream = engine.logs(one, tail=10, follow=True)
    pieces: list[bytes] = []
    reader = threading.Thread(target=lambda: pieces.extend(stream), daemon=True)
    reader.start()
    wait_until(lambda: b"".join(pieces) == b"first\n", "the first line")
    stream.close()
    reader.join(5)
    assert not reader.is_alive()
    assert rig.state(one) is EngineState.RUNNING


def test_sixty_followers_do_not_keep_a_stop_waiting(rig: RealRig) -> None:
    one, other = rig.make(EngineState.RUNNING, "one"), rig.make(EngineState.RUNNING, "two")
    engine = rig.engine
    assert isinstance(engine, DockerEngine)
    with ThreadPoolExecutor(64) as threads:
        streams = [engine.logs(one, tail=10, follow=True) for _ in range(60)]
        try:
            followers = [threads.submit(list, stream) for stream in streams]
            began = time.monotonic()
            engine.stop(other, 5)
            assert time.monotonic() - began < 2
        finally:
            for stream in streams:
                stream.close()
        assert [follower.result(timeout=10) for follower in followers] == [[]] * 60


def test_sixty_four_threads_share_one_adapter(rig: RealRig) -> None:
    made = [rig.make(EngineState.CREATED, f"m{number}") for number in range(32)]
    with ThreadPoolExecutor(64) as threads:
        states = list(threads.map(rig.state, made * 10))
    assert states == [EngineState.CREATED] * 320


def test_a_command_s_streams_exit_code_and_user(rig: RealRig) -> None:
    one = rig.make(EngineState.RUNNING)
    session = start_command(rig, one, "sh", "-c", "id -u; echo err >&2; exit 7")
    assert output_of(session) == (f"{UID}\n".encode(), b"err\n")
    assert session.exit_code() == 7
    session.terminate()


def test_a_command_that_does_not_exist_ends_with_126_and_says_so(rig: RealRig) -> None:
    session = start_command(rig, rig.make(EngineState.RUNNING), "nonesuch")
    out, err = output_of(session)
    assert b"executable file not found" in out + err
    assert session.exit_code() in (126, 127)


def test_a_command_reads_its_input_to_the_end(rig: RealRig) -> None:
    session = start_command(rig, rig.make(EngineState.RUNNING), "cat")
    payload = bytes(range(256)) * 4000

    def feed() -> None:
        session.write(payload)
        session.close_stdin()

    writer = threading.Thread(target=feed, daemon=True)
    writer.start()
    assert output_of(session)[0] == payload
    writer.join(5)
    assert session.exit_code() == 0


def test_a_terminal_has_the_size_it_was_given(rig: RealRig) -> None:
    one = rig.make(EngineState.RUNNING)
    session = start_command(rig, one, "sh", "-c", "while read x; do stty size; done", tty=True)
    seen = b""
    try:
        session.resize(40, 100)
        for _ in range(20):
            session.write(b"\n")
            piece = session.read()
            assert piece is not None
            seen += piece[1]
            if b"40 100" in seen:
                break
        assert b"40 100" in seen
    finally:
        session.terminate()
    session.resize(50, 100)


def test_ending_a_command_ends_everything_it_started_and_nothing_else(rig: RealRig) -> None:
    one = rig.make(EngineState.RUNNING)
    mine, other = f"3{time.monotonic_ns() % 10**8}", f"4{time.monotonic_ns() % 10**8}"
    kept = start_command(rig, one, "sleep", other)
    session = start_command(rig, one, "sh", "-c", f"sleep {mine} & sleep {mine} & trap '' TERM; wait")
    try:
        wait_until(lambda: len(processes_named(mine)) == 2 and processes_named(other), "the commands")
        session.terminate()
        wait_until(lambda: not processes_named(mine), "their end", 2)
        assert processes_named(other)
        assert rig.state(one) is EngineState.RUNNING
        session.terminate()
        assert session.read() is None
    finally:
        kept.terminate()
    wait_until(lambda: not processes_named(other), "its end", 2)


def test_what_a_finished_command_left_behind_in_its_session_ends_too(rig: RealRig) -> None:
    one = rig.make(EngineState.RUNNING)
    mine = f"5{time.monotonic_ns() % 10**8}"
    session = start_command(rig, one, "sh", "-c", f"sleep {mine} </dev/null >/dev/null 2>&1 & exit 0")
    assert output_of(session) == (b"", b"")
    assert session.exit_code() == 0
    assert processes_named(mine)
    session.terminate()
    assert not processes_named(mine)


def test_a_reader_in_another_thread_returns_when_the_command_is_ended(rig: RealRig) -> None:
    session = start_command(rig, rig.make(EngineState.RUNNING), *SLEEP)
    seen: list[object] = []
    reader = threading.Thread(target=lambda: seen.append(session.read()), daemon=True)
    reader.start()
    session.terminate()
    reader.join(5)
    assert seen == [None]


def test_a_hundred_containers_are_listed_in_little_time(rig: RealRig) -> None:
    spec = rig.spec()
    for number in range(100):
        rig.engine.create(replace(spec, name=rig.name(f"l{number}")), rig.labels)
    costs = []
    for _ in range(20):
        began = time.perf_counter()
        assert len(rig.engine.list_containers(rig.hive_id)) == 100
        costs.append(time.perf_counter() - began)
    print(json.dumps({"list_100_ms_best": round(min(costs) * 1000, 2)}))  # noqa: T201  # a figure, shown by -s
    assert min(costs) < 0.05


def test_events_close_from_another_thread(rig: RealRig) -> None:
    engine = rig.engine
    assert isinstance(engine, DockerEngine)
    with closing(engine.events(rig.hive_id, 60)) as stream:
        seen: list[object] = []
        reader = threading.Thread(target=lambda: seen.extend(stream), daemon=True)
        reader.start()
        stream.close()
        reader.join(5)
        assert not reader.is_alive()
