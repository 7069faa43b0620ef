import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stub_admin import Reply, StubAdmin
from tests.unit.cli import answers
from tests.unit.cli.command_line import CommandLine
from tests.unit.cli.nobody import run_as_nobody

ROOT = Path(__file__).resolve().parents[3]
TAR = bytes(range(256)) * 9000
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gets as far")


@pytest.fixture
def archive(admin: StubAdmin) -> StubAdmin:
    """A daemon that streams an archive."""
    admin.route("GET", "/v1/backup", lambda _: Reply(pieces=[TAR[:70000], TAR[70000:]]))
    return admin


def test_a_backup_is_the_exact_bytes_for_its_owner_only(
    archive: StubAdmin, hivectl: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "hive.tar"
    ended = hivectl.run("backup", str(file))
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout == f"wrote {file}, 2.2 MiB\n".encode()
    assert file.read_bytes() == TAR
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["hive.tar"]
    assert archive.requests[0].query == {"state": "true"}


def test_what_is_left_out_or_taken_in_is_asked_for(
    archive: StubAdmin, hivectl: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "hive.tar"
    ended = hivectl.run("backup", str(file), "--no-state", "--with-secrets", "-o", "json")
    assert json.loads(ended.stdout) == {
        "file": str(file),
        "bytes": len(TAR),
        "state": False,
        "secrets": True,
    }
    assert archive.requests[0].query == {"state": "false", "with_secrets": "true"}


def test_a_refusal_leaves_nothing(admin: StubAdmin, hivectl: CommandLine, tmp_path: Path) -> None:
    admin.refuse("GET", "/v1/backup", 400, "invalid_request", "secrets cannot be backed up yet", "leave them")
    ended = hivectl.run("backup", str(tmp_path / "x"), "--with-secrets")
    assert ended.returncode == 2
    assert b"secrets cannot be backed up yet (leave them)" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_is_cut_leaves_the_old_file_and_no_partial_one(
    admin: StubAdmin, hivectl: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "hive.tar"
    file.write_bytes(b"old")
    admin.route("GET", "/v1/backup", lambda _: Reply(pieces=[TAR], is_cut=True))
    ended = hivectl.run("backup", str(file), "--force")
    assert ended.returncode == 3
    assert b"cut before the answer was complete" in ended.stderr
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("kind", ["file", "link", "folder", "pipe", "no-folder"])
def test_what_is_there_is_not_overwritten(
    archive: StubAdmin, hivectl: CommandLine, tmp_path: Path, kind: str
) -> None:
    place = tmp_path / "x"
    match kind:
        case "file":
            place.write_bytes(b"old")
        case "link":
            place.symlink_to(tmp_path / "nowhere")
        case "folder":
            place.mkdir()
        case "pipe":
            os.mkfifo(place)
        case _:
            place = place / "y"
    before = sorted(tmp_path.iterdir())
    for options in ([], ["--force"] if kind != "file" else []):
        ended = hivectl.run("backup", str(place), *options)
        assert (ended.returncode, ended.stdout) == (2, b"")
        assert ended.stderr.startswith(b"hivectl: cannot back up to ")
    assert archive.requests == []
    assert sorted(tmp_path.iterdir()) == before


def test_force_replaces_a_file_and_its_mode(archive: StubAdmin, hivectl: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "hive.tar"
    file.write_bytes(b"old")
    file.chmod(0o666)
    (tmp_path / "hive.tar.partial").write_bytes(b"left by a power cut")
    assert hivectl.run("backup", str(file), "--force").returncode == 0
    assert file.read_bytes() == TAR
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_cannot_be_written_says_so(archive: StubAdmin, hivectl: CommandLine) -> None:
    ended = hivectl.run("backup", "/proc/x.tar")
    assert ended.returncode == 1
    assert b"cannot back up to /proc/x.tar: /proc/x.tar.partial: " in ended.stderr
    assert ended.stderr.count(b"\n") == 1


class Restore:
    """hivectl with a hived of the test's own, on PATH or beside it, which writes down how it was called."""

    def __init__(self, folder: Path, socket_path: Path) -> None:
        self.folder = folder
        self.said = folder / "said"
        self.archive = folder / "hive.tar"
        self.archive.write_bytes(TAR)
        self.line = CommandLine(socket_path)
        self._programs = folder / "bin"
        self._programs.mkdir()

    def install(self, folder: Path, word: str) -> None:
        program = folder / "hived"
        program.write_text(f'#!/bin/sh\necho {word} "$@" >{self.said}\nexit 9\n')
        program.chmod(0o755)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        self.install(self._programs, "path")
        environment = os.environ | {
            "HIVE_ADMIN_SOCKET": str(self.line.socket_path),
            "PATH": f"{self._programs}:{os.environ['PATH']}",
        }
        argv = [sys.executable, "-m", "hivectl", "restore", *arguments]
        return subprocess.run(
            argv, check=False, env=environment, capture_output=True, stdin=subprocess.DEVNULL, timeout=20
        )


@pytest.fixture
def restore(admin: StubAdmin, tmp_path: Path) -> Restore:
    admin.stop()
    return Restore(tmp_path, admin.socket_path)


@needs_root
def test_restore_becomes_hived(restore: Restore) -> None:
    ended = restore.run(str(restore.archive), "--yes")
    assert (ended.returncode, ended.stderr) == (9, b"")
    assert restore.said.read_text() == f"path restore {restore.archive}\n"
    restore.run(str(restore.archive), "--yes", "--settings", "/etc/hive/other.toml")
    assert restore.said.read_text() == f"path --settings /etc/hive/other.toml restore {restore.archive}\n"


@needs_root
def test_the_hived_beside_hivectl_comes_first(restore: Restore, tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    restore.install(beside, "beside")
    program = beside / "hivectl"
    program.write_text(f"#!{sys.executable}\nfrom hivectl.main import main\nmain()\n")
    program.chmod(0o755)
    environment = os.environ | {
        "HIVE_ADMIN_SOCKET": str(restore.line.socket_path),
        "PYTHONPATH": str(ROOT),
    }
    argv = [str(program), "restore", str(restore.archive), "--yes"]
    ended = subprocess.run(argv, check=False, env=environment, capture_output=True, timeout=20)
    assert ended.returncode == 9, ended.stderr
    assert restore.said.read_text() == f"beside restore {restore.archive}\n"


@needs_root
@pytest.mark.parametrize("answer", ["status", "error", "cut"])
def test_a_daemon_that_answers_in_any_way_exits_6(admin: StubAdmin, restore: Restore, answer: str) -> None:
    match answer:
        case "status":
            admin.on("GET", "/v1/status", answers.status())
        case "error":
            admin.refuse("GET", "/v1/status", 503, "stopping", "it is stopping")
        case _:
            admin.route("GET", "/v1/status", lambda _: Reply(is_cut=True))
    admin.start()
    ended = restore.run(str(restore.archive), "--yes")
    assert ended.returncode == 6
    assert b"scripts/down, or systemctl stop hived" in ended.stderr
    assert not restore.said.exists()


@needs_root
def test_restore_asks_and_without_a_terminal_exits_2(restore: Restore) -> None:
    ended = restore.run(str(restore.archive))
    assert ended.returncode == 2
    assert b"add --yes" in ended.stderr
    restore.install(restore.folder, "path")
    for keys, status in ((b"n\n", 1), (b"y\n", 9)):
        with restore.line.terminal("restore", str(restore.archive), first_on_path=restore.folder) as terminal:
            terminal.wait_for(b"[y/N] ")
            os.write(terminal.outer, keys)
            screen = terminal.end()
        assert screen.status == status
        assert b"leave the hive paused" in screen.screen
        assert restore.said.exists() == (status == 9)


@needs_root
def test_restore_without_hived_says_so(restore: Restore) -> None:
    environment = os.environ | {"HIVE_ADMIN_SOCKET": str(restore.line.socket_path), "PATH": "/nowhere"}
    argv = [sys.executable, "-m", "hivectl", "restore", str(restore.archive), "--yes"]
    ended = subprocess.run(argv, check=False, env=environment, capture_output=True, timeout=20)
    assert ended.returncode == 1
    assert b"hived is neither beside hivectl nor on PATH" in ended.stderr


def test_restore_from_nowhere_exits_2(restore: Restore) -> None:
    ended = restore.run("/nowhere.tar", "--yes")
    assert ended.returncode == 2
    assert b"there is no such file" in ended.stderr


@needs_root
def test_only_root_may_restore(restore: Restore) -> None:
    ended = run_as_nobody("restore", "/etc/hostname", "--yes")
    assert ended.returncode == 5
    assert b"only root can do that" in ended.stderr
