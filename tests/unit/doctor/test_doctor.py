"""The examination as a whole, on the fake engine: complete, in order, bounded, and no fault ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hive_core.adapters.run_dirs import RunDirs
from hive_core.adapters.store import Store
from hive_core.domain.errors import EngineUnavailable
from hive_core.engine.checks import Check, CheckName, Finding
from hive_core.engine.doctor import LIMIT_S, Doctor
from hive_core.settings import Settings, parse_settings
from tests.support.fake_engine import FakeEngine
from tests.support.paths import root_dir

__all__ = ["root_dir"]

IMAGE = "hive-agent:latest"


@pytest.fixture
def settings(root_dir: Path) -> Settings:
    """A hive below a fresh root, with a store and nothing else."""
    for leaf in ("d", "r"):
        (root_dir / leaf).mkdir(mode=0o755)
    Store(root_dir / "d" / "hive.db").close()
    return parse_settings(
        f'[paths]\ndata = "{root_dir}/d"\nrun = "{root_dir}/r"\n'
        f'[engine]\nsocket = "{root_dir}/none.sock"\n[uids]\nreserve = false\nstart = 1950000000\n'
    )


@pytest.fixture
def engine() -> FakeEngine:
    """An engine that has the image."""
    made = FakeEngine()
    made.add_image(IMAGE)
    return made


def _doctor(settings: Settings, engine: FakeEngine, problem: str = "", limit_s: float = LIMIT_S) -> Doctor:
    return Doctor(settings, engine, RunDirs(settings.paths.run), lambda: problem, limit_s=limit_s)


def _by_name(checks: tuple[Check, ...]) -> dict[CheckName, Check]:
    return {one.name: one for one in checks}


def test_every_check_is_there_once_and_in_order(settings: Settings, engine: FakeEngine) -> None:
    checks = _doctor(settings, engine).examine()
    assert [one.name for one in checks] == list(CheckName)
    assert all(one.text and "\n" not in one.text for one in checks)
    assert all(one.hint for one in checks if one.status is not Finding.OK)


def test_one_engine_call_serves_every_check_of_the_engine(settings: Settings, engine: FakeEngine) -> None:
    _doctor(settings, engine).examine()
    assert engine.calls["version"] == 1


def test_an_engine_that_is_away_fails_its_checks_and_no_other(settings: Settings, engine: FakeEngine) -> None:
    engine.go_away()
    checks = _by_name(_doctor(settings, engine).examine())
    for name in (CheckName.ENGINE, CheckName.SECCOMP, CheckName.IMAGE, CheckName.CLOCK, CheckName.DISK):
        assert (checks[name].status, checks[name].text) == (
            Finding.FAIL,
            "cannot reach the engine: it does not answer",
        )
    assert checks[CheckName.SAFE_PATHS].status is Finding.OK
    assert checks[CheckName.STORE].status is Finding.OK


@pytest.mark.parametrize("fault", [EngineUnavailable("gone", "start it"), RuntimeError("odd"), KeyError()])
def test_a_look_that_breaks_is_a_failed_check(
    settings: Settings, engine: FakeEngine, fault: Exception
) -> None:
    engine.before_call = lambda method, _target: _raise(fault) if method == "resolve_image" else None
    check = _by_name(_doctor(settings, engine).examine())[CheckName.IMAGE]
    assert check.status is Finding.FAIL
    assert check.text == (str(fault) or "KeyError")
    assert check.hint


def _raise(fault: Exception) -> None:
    raise fault


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Lets what hangs go on, at the latest after the test."""
    event = threading.Event()
    yield event
    event.set()


def test_what_hangs_is_waited_for_no_longer_than_the_limit(
    settings: Settings, engine: FakeEngine, release: threading.Event
) -> None:
    def hang(method: str, _target: str) -> None:
        if method == "version":
            release.wait(60)

    engine.before_call = hang
    began = time.monotonic()
    checks = _by_name(_doctor(settings, engine, limit_s=1.5).examine())
    assert time.monotonic() - began < 3
    assert checks[CheckName.ENGINE].text == "no answer within 1.5 s"
    assert checks[CheckName.SECCOMP].status is Finding.FAIL
    assert checks[CheckName.IMAGE].status is Finding.OK


def test_an_image_that_is_gone_is_named(settings: Settings, engine: FakeEngine) -> None:
    engine.remove_image(IMAGE)
    check = _by_name(_doctor(settings, engine).examine())[CheckName.IMAGE]
    assert check.status is Finding.FAIL
    assert IMAGE in check.text


def test_a_damaged_store_is_said(settings: Settings, engine: FakeEngine) -> None:
    (settings.paths.data / "hive.db").write_bytes(b"no database" * 400)
    check = _by_name(_doctor(settings, engine).examine())[CheckName.STORE]
    assert check.status is Finding.FAIL
    assert "cannot open the store" in check.text


def test_what_is_missing_below_the_roots_is_named(settings: Settings, engine: FakeEngine) -> None:
    checks = _by_name(_doctor(settings, engine).examine())
    assert f"{settings.paths.data} has mode 0755 instead of 0711" in checks[CheckName.DIRECTORIES].text
    assert "is not a shared mount" in checks[CheckName.GRANTS].text
    assert "is missing" in checks[CheckName.ADMIN_SOCKET].text
    assert "cannot connect" in checks[CheckName.MOUNT_NAMESPACE].text


def test_the_watchs_problem_is_a_warning(settings: Settings, engine: FakeEngine) -> None:
    check = _by_name(_doctor(settings, engine, problem="it polls").examine())[CheckName.FILE_WATCH]
    assert (check.status, check.text) == (Finding.WARN, "it polls")
