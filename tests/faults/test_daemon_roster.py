"""topology.json broken in every way while agents run: it costs authority for a moment, and never any work."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hive_core.adapters.clock import Clock
from hive_core.adapters.meta import MetaRepo
from hive_core.adapters.store import Store
from hive_core.domain.names import AgentName
from hive_core.domain.roster import Roster, Shape, encode
from hive_core.engine.event_log import EventLog
from hive_core.engine.publish import FILE_NAME, Publisher
from hive_core.planning.actions import PublishRoster
from tests.support.live_hive import LiveHive
from tests.support.paths import root_dir

__all__ = ["root_dir"]

AGENTS = 20
MIB = 1 << 20

BROKEN: dict[str, bytes] = {
    "empty": b"",
    "half-written": b'{"a0": null, "a1": "a',
    "duplicate-key": b'{"a0": null, "a0": "a1", "a1": null}',
    "duplicate-name": b'["a0", "a0"]',
    "mixed": b'["a0", {"a1": "a0"}]',
    "null-root": b"null",
    "number-root": b"7",
    "string-root": b'"a0"',
    "nested-list": b'[["a0"]]',
    "nan": b'{"a0": NaN}',
    "number-parent": b'{"a0": 1}',
    "bom": b'\xef\xbb\xbf{"a0": null}',
    "utf-16": '{"a0": null}'.encode("utf-16"),
    "bad-utf-8": b'{"a0": "\xff"}',
    "lone-surrogate": b'{"a0": "\\ud800"}',
    "nul": b'{"a0": null}\0',
    "deep": b"[" * 100_000,
    "huge-number": b'{"a0": ' + b"9" * 5000 + b"}",
    "too-large": b'["a0"' + b" " * (2 * MIB) + b"]",
    "trailing": b'["a0"]["a1"]',
    "glued": b'{"a0": null}{"a0": null}',
    "self-parent": b'{"a0": "a0"}',
    "two-cycle": b'{"a0": "a1", "a1": "a0"}',
    "five-cycle": b'{"a0": "a1", "a1": "a2", "a2": "a3", "a3": "a4", "a4": "a0"}',
    "invalid-name": b'{"../a0": null}',
    "reserved-name": b'{"operator": null}',
    "unknown-agent": b'{"mallory": null, "a0": "mallory"}',
    "fewer-agents": b'{"a0": null}',
    "other-edges": b'{"a1": null, "a0": "a1"}',
    "the-other-shape": b'["a0", "a1"]',
    "only-a-space-more": b'{"a0":  null}',
}


# Each takes the place of the roster and puts something else there.
def _symlink(path: Path) -> None:
    other = path.parent.parent / "other.json"
    other.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(other)


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _sparse(path: Path) -> None:
    os.truncate(path, 100 * MIB)


ODD: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "symlink": _symlink,
    "fifo": _fifo,
    "sparse-100-mib": _sparse,
}


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(".test-new")
    temporary.write_bytes(content)
    temporary.rename(path)


# ---- a live hive ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(hive: LiveHive) -> Iterator[LiveHive]:
    """The shared hive with twenty agents running in it."""
    names = [f"a{number}" for number in range(AGENTS)]
    for name in names:
        hive.init(name, parent=None if name == "a0" else "a0", memory="16m")
    hive.verb("spawn", *names)
    yield hive
    hive.remove(*names)


def _break_and_watch(hive: LiveHive, break_it: Callable[[Path], None]) -> None:
    good, lives, seq = hive.roster_file.read_bytes(), hive.lives(), hive.last_seq()
    break_it(hive.roster_file)
    repaired = hive.wait_event("roster_repaired", after=seq, limit_s=10)
    assert "published again" in repaired["text"]
    assert not hive.roster_file.is_symlink()
    assert hive.roster_file.read_bytes() == good
    assert hive.hivectl("roster", "-o", "json").stdout.encode() == good
    assert hive.lives() == lives
    assert {row["state"] for row in hive.rows().values()} == {"running"}
    assert [one["kind"] for one in hive.events() if one["seq"] > seq] == ["roster_repaired"]
    hive.wait_for(lambda: hive.status()["roster"]["state"] == "present", "roster present")


@pytest.mark.integration
@pytest.mark.faults
@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_roster_stops_nobody_and_is_published_again(many: LiveHive, content: bytes) -> None:
    _break_and_watch(many, lambda path: _replace(path, content))


@pytest.mark.integration
@pytest.mark.faults
@pytest.mark.parametrize("break_it", ODD.values(), ids=ODD.keys())
def test_a_roster_that_is_no_file_any_more(many: LiveHive, break_it: Callable[[Path], None]) -> None:
    _break_and_watch(many, break_it)


@pytest.mark.integration
@pytest.mark.faults
def test_a_roster_whose_place_is_taken_by_a_directory(many: LiveHive) -> None:
    """What is in the directory is somebody's: hive says what is in its way, works on, and publishes later."""
    good, lives = many.roster_file.read_bytes(), many.lives()
    many.roster_file.unlink()
    many.roster_file.mkdir()
    (many.roster_file / "mine").write_bytes(b"keep")
    many.wait_for(lambda: many.status()["phase"] == "degraded", "phase degraded")
    assert "directory" in " ".join(many.problems().values())
    assert many.lives() == lives
    assert (many.roster_file / "mine").read_bytes() == b"keep"
    assert json.loads(many.hivectl("roster", "-o", "json").stdout) == json.loads(good)
    shutil.rmtree(many.roster_file)
    many.wait_for(many.roster_file.is_file, "the roster", limit_s=10)
    assert many.roster_file.read_bytes() == good
    many.wait_for(lambda: many.status()["phase"] == "running", "phase running")
    assert many.lives() == lives


@pytest.mark.integration
@pytest.mark.faults
def test_five_replacements_are_five_repairs(many: LiveHive) -> None:
    """The timer is far too slow for this: only the watch can see them, the fifth like the first."""
    for round_ in range(5):
        seq = many.last_seq()
        _replace(many.roster_file, f'["round{round_}"]'.encode())
        many.wait_event("roster_repaired", after=seq, limit_s=5)


@pytest.mark.integration
@pytest.mark.faults
def test_a_roster_lost_while_the_daemon_is_away_adds_and_takes_nothing(many: LiveHive) -> None:
    good, lives = many.roster_file.read_bytes(), many.lives()
    for content in (None, b"", b'{"mallory": null}', b'["a0"]'):
        many.kill9()
        if content is None:
            many.roster_file.unlink()
        else:
            many.roster_file.write_bytes(content)
        many.start().settle()
        assert many.roster_file.read_bytes() == good
        assert many.lives() == lives


# ---- the authority that hangs on it -----------------------------------------------------------------------


@pytest.fixture
def publisher(root_dir: Path) -> Iterator[Publisher]:
    """A publisher on real files that has published two agents."""
    store = Store(root_dir / "hive.db")
    meta = MetaRepo(root_dir / "meta")
    meta.prepare()
    made = Publisher(store, meta, root_dir / "meta" / FILE_NAME, EventLog(store, Clock()))
    assert made.authority() is None
    made.publish(_due())
    assert made.authority() == ROSTER
    yield made
    store.close()


ROSTER = Roster(Shape.TREE, {AgentName("a0"): None, AgentName("a1"): AgentName("a0")})


def _due() -> PublishRoster:
    return PublishRoster(ROSTER, encode(ROSTER), False, "a test")


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_nobody_has_authority_on_a_broken_roster(
    root_dir: Path, publisher: Publisher, content: bytes
) -> None:
    _replace(root_dir / "meta" / FILE_NAME, content)
    assert publisher.authority() is None
    publisher.publish(_due())
    assert publisher.authority() == ROSTER


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("break_it", [*ODD.values(), _directory], ids=[*ODD.keys(), "directory"])
def test_nobody_has_authority_on_what_is_no_roster_file(
    root_dir: Path, publisher: Publisher, break_it: Callable[[Path], None]
) -> None:
    break_it(root_dir / "meta" / FILE_NAME)
    assert publisher.authority() is None


def test_the_same_roster_in_other_bytes_gives_no_authority(root_dir: Path, publisher: Publisher) -> None:
    path = root_dir / "meta" / FILE_NAME
    _replace(path, path.read_bytes().replace(b", ", b",  "))
    assert publisher.authority() is None
    _replace(path, encode(ROSTER))
    assert publisher.authority() == ROSTER
