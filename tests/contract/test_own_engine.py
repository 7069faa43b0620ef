"""The tests' own engine leaves nothing behind, however a test ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.engine_fixtures import EngineImages
from tests.support.host_processes import all_pids, command_line, is_alive
from tests.support.own_engine import OwnEngine, OwnEngineError, sweep
from tests.support.own_engine import own_engine as run_own_engine
from tests.support.tiny_image import import_image

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]


def traces(directory: Path) -> list[str]:
    """Return what still exists of an engine: its directory, mounts below it, processes that name it."""
    found = [str(directory)] if directory.exists() else []
    found += [
        line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"{directory}/" in line
    ]
    commands = [" ".join(command_line(pid)) for pid in all_pids() if pid != os.getpid()]
    return found + [command for command in commands if f"{directory}/" in command]


def run_container(engine: OwnEngine) -> int:
    """Start a container that ignores being asked to stop, and return its host pid."""
    client = engine.client()
    try:
        import_image(client, EngineImages().usual)
        made = client.create_container(
            EngineImages().usual,
            ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
            host_config=client.create_host_config(network_mode="none"),
        )
        client.start(made["Id"])
        return int(client.inspect_container(made["Id"])["State"]["Pid"])
    finally:
        client.close()


@pytest.mark.parametrize("is_killed", [False, True], ids=["running", "killed"])
def test_it_takes_everything_with_it_when_a_test_fails(own_engine: OwnEngine, is_killed: bool) -> None:
    def fail() -> None:
        with run_own_engine() as engine:
            seen.append(engine)
            pids.append(run_container(engine))
            if is_killed:
                engine.kill()
            raise ValueError("the test failed")

    seen: list[OwnEngine] = []
    pids: list[int] = []
    with pytest.raises(ValueError, match="the test failed"):
        fail()
    assert traces(seen[0].directory) == []
    assert not is_alive(pids[0]), "the container's process is gone"
    assert own_engine.answers(), "the engine beside it is not disturbed"


def test_an_engine_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    engine = OwnEngine(tmp_path / "engine")
    engine.directory.mkdir()
    (engine.directory / "data").write_text("not a directory")
    try:
        with pytest.raises(OwnEngineError, match=r"(?s)dockerd ended with status 1:.*data"):
            engine.start()
    finally:
        engine.stop()
    assert traces(engine.directory) == []


def test_what_a_killed_test_run_left_goes_with_the_next_one(own_engine: OwnEngine) -> None:
    script = (
        "import time\n"
        "from tests.support.own_engine import own_engine\n"
        "with own_engine() as engine:\n"
        "    print(engine.directory, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as other:
        assert other.stdout is not None
        directory = Path(other.stdout.readline().strip())
        sweep()
        left = OwnEngine(directory)
        pid = run_container(left)
        assert left.answers(), "a live run's engine is left alone"
        other.kill()
    assert left.answers()
    sweep()
    assert traces(directory) == []
    assert not is_alive(pid)
    assert own_engine.answers()
