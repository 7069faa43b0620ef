import stat
from dataclasses import replace
from pathlib import Path

import pytest

from hive_core.adapters.host_facts import Account, Entry
from hive_core.engine import checks_access
from hive_core.engine.checks import Finding
from hive_core.engine.checks_access import Wanted

OK, FAIL = Finding.OK, Finding.FAIL
OPERATORS = 994
SOCKET = Entry(Path("/run/hive/admin.sock"), stat.S_IFSOCK | 0o660, 0, OPERATORS)
SETTINGS = Entry(Path("/etc/hive/hive.toml"), stat.S_IFREG | 0o644, 0, 0)
STATE = Wanted(Path("/d/agents/bob/state"), 0o700, 7, 7)
GIT = Account("hive-git", 999, 995, frozenset({"hive-git"}))
REPOS = Path("/d/repos")


def _state(mode: int = stat.S_IFDIR | 0o700, uid: int = 7, gid: int = 7) -> Entry:
    return Entry(STATE.path, mode, uid, gid)


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (_state(), ""),
        (None, "is missing"),
        (_state(stat.S_IFDIR | 0o755), "has mode 0755 instead of 0700"),
        (_state(stat.S_IFDIR | 0o1700), "has mode 1700 instead of 0700"),
        (_state(uid=8), "belongs to 8:7 instead of 7:7"),
        (_state(gid=0), "belongs to 7:0 instead of 7:7"),
        (_state(stat.S_IFLNK | 0o777), "is a symbolic link"),
        (_state(stat.S_IFREG | 0o700), "is a regular file"),
    ],
)
def test_directories(found: Entry | None, fault: str) -> None:
    check = checks_access.directories([(STATE, found)])
    assert check.status is (FAIL if fault else OK)
    assert check.text == f"{STATE.path} {fault}" or not fault


def test_what_need_not_be_there_may_be_missing() -> None:
    assert checks_access.directories([(replace(STATE, is_required=False), None)]).status is OK


def test_many_faults_are_counted() -> None:
    check = checks_access.directories([(STATE, None)] * 7)
    assert check.text.count("is missing") == 4
    assert check.text.endswith(", and 3 more")


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        (SOCKET, OK, "0660"),
        (None, FAIL, "missing"),
        (replace(SOCKET, mode=stat.S_IFSOCK | 0o666), FAIL, "mode 0666"),
        (replace(SOCKET, mode=stat.S_IFSOCK | 0o600), FAIL, "mode 0600"),
        (replace(SOCKET, mode=stat.S_IFREG | 0o660), FAIL, "a regular file"),
        (replace(SOCKET, uid=1000), FAIL, "belongs to 1000:994"),
        (replace(SOCKET, gid=0), FAIL, "belongs to 0:0"),
    ],
)
def test_admin_socket(found: Entry | None, status: Finding, words: str) -> None:
    check = checks_access.admin_socket(SOCKET.path, found, OPERATORS)
    assert check.status is status
    assert words in check.text


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        (SETTINGS, OK, "root alone"),
        (None, OK, "default"),
        (replace(SETTINGS, uid=1000), FAIL, "uid 1000"),
        (replace(SETTINGS, mode=stat.S_IFREG | 0o664), FAIL, "mode 0664"),
        (replace(SETTINGS, mode=stat.S_IFREG | 0o646), FAIL, "mode 0646"),
        (replace(SETTINGS, mode=stat.S_IFIFO | 0o644), FAIL, "a FIFO"),
    ],
)
def test_settings_file(found: Entry | None, status: Finding, words: str) -> None:
    check = checks_access.settings_file(SETTINGS.path, found)
    assert check.status is status
    assert words in check.text


def test_operators_are_listed() -> None:
    assert "nobody may drive" in checks_access.operators("hive", []).text
    assert "ann, joe may drive" in checks_access.operators("hive", ["ann", "joe"]).text


@pytest.mark.parametrize(
    ("account", "can_enter", "status", "words"),
    [
        (GIT, True, OK, "uid 999"),
        (GIT, False, FAIL, "cannot enter /d/repos"),
        (replace(GIT, uid=0), True, FAIL, "is root"),
        (replace(GIT, gid=0), True, FAIL, "is root"),
        (replace(GIT, groups=frozenset({"hive-git", "hive"})), True, FAIL, "group hive:"),
        (replace(GIT, groups=frozenset({"docker"})), True, FAIL, "group docker:"),
        (replace(GIT, groups=frozenset({"users"})), True, OK, ""),
    ],
)
def test_git_account(account: Account, can_enter: bool, status: Finding, words: str) -> None:
    check = checks_access.git_account(account, "hive", REPOS, can_enter=can_enter)
    assert check.status is status
    assert words in check.text
