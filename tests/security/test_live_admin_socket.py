"""Who gets through the admin socket of a live daemon, and what at its path keeps one from starting."""

from __future__ import annotations

import grp
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hive_api.client import ApiError
from hive_api.errors import ErrorCode
from tests.support.hive_fixtures import MakeHive
from tests.support.live_hive import LiveHive
from tests.support.other_users import as_user

pytestmark = [pytest.mark.integration, pytest.mark.security]

NOBODY = 65534
OPERATORS = "hive"


@pytest.fixture
def open_to_all(hive: LiveHive) -> Iterator[LiveHive]:
    """The shared hive with its socket opened to everybody by mistake: only the daemon's own check is left."""
    hive.socket.chmod(0o666)
    yield hive
    hive.socket.chmod(0o660)


def _gid() -> int:
    return grp.getgrnam(OPERATORS).gr_gid


def _code(hive: LiveHive, uid: int, gid: int, groups: list[int]) -> str:
    """Return "ok" or the code of the refusal that a user gets."""

    def ask() -> str:
        try:
            hive.status()
        except ApiError as refused:
            return refused.code.value
        return "ok"

    return as_user(uid, gid, groups, ask)


# ---- who gets in ------------------------------------------------------------------------------------------


def test_the_socket_is_for_root_and_the_operators_group(hive: LiveHive) -> None:
    found = hive.socket.lstat()
    assert stat.S_ISSOCK(found.st_mode)
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, _gid(), 0o660)
    assert stat.S_IMODE(hive.run_dir.stat().st_mode) == 0o755
    assert sorted(os.listdir(hive.run_dir)) == ["admin.sock", "agents", "grants", "secrets"]


def test_a_stranger_cannot_even_connect(hive: LiveHive) -> None:
    def connect() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
            wire.connect(str(hive.socket))

    with pytest.raises(PermissionError):
        as_user(NOBODY, NOBODY, [], connect)


@pytest.mark.parametrize("uid", [NOBODY, 1, 1_900_000_000])
def test_a_stranger_who_connects_is_denied(open_to_all: LiveHive, uid: int) -> None:
    assert _code(open_to_all, uid, uid, []) == ErrorCode.DENIED
    assert _code(open_to_all, uid, uid, [_gid() + 1, 0]) == ErrorCode.DENIED


def test_a_stranger_is_denied_every_route_and_learns_nothing(open_to_all: LiveHive) -> None:
    def ask(request: Callable[[], object]) -> str:
        with pytest.raises(ApiError) as refused:
            as_user(NOBODY, NOBODY, [], request)
        return f"{refused.value.code} {refused.value.message}"

    api = open_to_all.api
    answers = {
        ask(lambda: api.get("/v1/agents/nobody")),
        ask(lambda: api.get("/v1/no/such/route")),
        ask(lambda: api.get("/v1/openapi.json")),
        ask(lambda: api.post("/v1/lifecycle/stop", {"names": ["x"]})),
        ask(lambda: api.delete("/v1/agents/x")),
    }
    assert len(answers) == 1
    assert answers.pop().startswith("denied ")


def test_members_of_the_operator_group_get_in(hive: LiveHive) -> None:
    assert _code(hive, NOBODY, NOBODY, [_gid()]) == "ok"
    assert _code(hive, NOBODY, _gid(), []) == "ok"
    assert _code(hive, NOBODY, NOBODY, [*range(70_000, 70_300), _gid()]) == "ok"
    assert _code(hive, 0, 0, []) == "ok"


_ASK = (
    "import sys; from hive_api.client import AdminClient, ApiError\n"
    "sys.stdin.readline()\n"
    "try: AdminClient(sys.argv[1], 10.0).get('/v1/status'); print('ok')\n"
    "except ApiError as refused: print(refused.code.value, refused.message)\n"
)


def _join(pid: int, of_pid: int) -> None:
    """Move a process into the control groups of another one, whatever their version."""
    for line in Path(f"/proc/{of_pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        roots = [
            f"/sys/fs/cgroup/{controllers.removeprefix('name=')}",
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/unified",
        ]
        for root in roots:
            procs = Path(f"{root}{path}/cgroup.procs")
            if procs.exists():
                procs.write_text(str(pid))
                break


def test_root_inside_a_managed_container_is_denied(hive: LiveHive) -> None:
    """As if the socket had been mounted into it by mistake and its program had become root."""
    hive.spawn("bob", memory="128m")
    asking = subprocess.Popen(
        [sys.executable, "-c", _ASK, str(hive.socket)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        _join(asking.pid, hive.inspect("bob")["State"]["Pid"])
        said, _ = asking.communicate("go\n", timeout=20)
        assert said.startswith("denied ")
        assert "containers" in said
        outside = subprocess.run(
            [sys.executable, "-c", _ASK, str(hive.socket)],
            input="go\n",
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
            cwd=Path(__file__).parents[2],
        )
        assert outside.stdout == "ok\n"
    finally:
        asking.kill()
        asking.communicate()
        hive.remove("bob")


# ---- what is at its path ----------------------------------------------------------------------------------


def _refused(hive: LiveHive) -> str:
    """Start the daemon, demand that it ends with status 1, and return the one line it says."""
    ended = subprocess.run(hive.daemon_argv(), capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1, ended.stderr
    line = ended.stderr.splitlines()[-1]
    assert line.startswith("hived: ")
    assert "Traceback" not in ended.stderr
    return line


def _symlink(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _symlink_to_a_socket(path: Path) -> None:
    target = path.with_name("other.sock")
    with socket.socket(socket.AF_UNIX) as wire:
        wire.bind(str(target))
    path.symlink_to(target)


def _file(path: Path) -> None:
    path.write_bytes(b"mine")


@pytest.mark.parametrize("put", [_symlink, _symlink_to_a_socket, _file, Path.mkdir, os.mkfifo])
def test_what_is_no_socket_is_left_untouched(make_hive: MakeHive, put: Callable[[Path], None]) -> None:
    hive = make_hive()
    hive.run_dir.mkdir(mode=0o755)
    put(hive.socket)
    before = hive.socket.lstat()
    assert str(hive.socket) in _refused(hive)
    after = hive.socket.lstat()
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (
        before.st_ino,
        before.st_mode,
        before.st_mtime_ns,
    )


def test_a_live_socket_of_somebody_else_is_left_to_them(make_hive: MakeHive) -> None:
    hive = make_hive()
    hive.run_dir.mkdir(mode=0o755)
    with socket.socket(socket.AF_UNIX) as theirs, socket.socket(socket.AF_UNIX) as client:
        theirs.bind(str(hive.socket))
        theirs.listen(4)
        assert "another process listens" in _refused(hive)
        client.connect(str(hive.socket))


def test_a_stale_socket_is_replaced(make_hive: MakeHive) -> None:
    hive = make_hive()
    hive.run_dir.mkdir(mode=0o755)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(hive.socket))
    before = hive.socket.stat().st_ino
    hive.start()
    assert hive.socket.stat().st_ino != before or hive.answers()
    assert stat.S_IMODE(hive.socket.stat().st_mode) == 0o660


@pytest.mark.parametrize("length", [108, 200])
def test_a_path_that_is_too_long_is_refused_with_the_numbers(make_hive: MakeHive, length: int) -> None:
    hive = make_hive()
    run = hive.root / ("r" * (length - len(f"{hive.root}/admin.sock") - 1))
    assert len(str(run / "admin.sock")) == length
    hive.write_settings({"paths": {"run": str(run)}})
    said = _refused(hive)
    assert "107" in said
    assert str(length) in said
    assert "shorter" in said


def test_a_path_of_107_bytes_works(make_hive: MakeHive) -> None:
    hive = make_hive()
    run = hive.root / ("r" * (107 - len(f"{hive.root}/admin.sock") - 1))
    hive.write_settings({"paths": {"run": str(run)}})
    (hive.root / "r").symlink_to(run)
    hive.start()
    assert hive.answers()
