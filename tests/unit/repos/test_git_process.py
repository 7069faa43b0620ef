"""The runner, with programs of the tests' own in git's place: nothing is inherited, everything ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hive_core.adapters.git_process import GitFailed, GitLimits, GitNotStarted, GitRunner
from hive_core.domain.errors import HostUnsuitable, TimedOut
from tests.support.paths import wait_until
from tests.support.repo_rig import Account

REPO = Path("/nonexistent/bob.git")


@pytest.fixture
def program(root_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place in front of PATH for a program named git."""
    monkeypatch.setenv("PATH", f"{root_dir}:{os.environ['PATH']}")
    return root_dir / "git"


def _runner(program: Path, script: str, account: Account, **limits: float) -> GitRunner:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return GitRunner(account.uid, account.gid, GitLimits(**limits))  # type: ignore[arg-type]


def _is_gone(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_nothing_of_the_daemons_environment_arrives(
    program: Path, git_account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_CONFIG_COUNT",
        "LD_PRELOAD",
        "SECRET",
        "XDG_CONFIG_HOME",
    ):
        monkeypatch.setenv(name, "" if name == "LD_PRELOAD" else "/canary")
    seen = _runner(program, "env", git_account).run(REPO, ["x"], max_output_bytes=10_000).decode()
    assert "canary" not in seen
    names = {line.partition("=")[0] for line in seen.splitlines()} - {"PWD", "OLDPWD", "SHLVL", "_"}
    assert names == {
        "PATH", "HOME", "LC_ALL", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL", "GIT_NO_LAZY_FETCH",
        "GIT_NO_REPLACE_OBJECTS", "GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS", "GIT_ALLOW_PROTOCOL",
    }  # fmt: skip


def test_it_has_no_privilege_and_cannot_gain_one(program: Path, git_account: Account) -> None:
    script = "grep -E '^(Uid|Gid|Groups|CapEff|CapPrm|NoNewPrivs):' /proc/self/status; umask; pwd"
    seen = _runner(program, script, git_account).run(REPO, ["x"], max_output_bytes=10_000).decode()
    fields = {line.split(":")[0]: line.split()[1:] for line in seen.splitlines() if ":" in line}
    assert set(fields["Uid"]) == {str(git_account.uid)}
    assert set(fields["Gid"]) == {str(git_account.gid)}
    assert fields["Groups"] == []
    assert {*fields["CapEff"], *fields["CapPrm"]} == {"0" * 16}
    assert fields["NoNewPrivs"] == ["1"]
    assert seen.splitlines()[-2:] == ["0022", "/"]


def test_exactly_its_repo_is_named_as_safe_and_settings_outrank_the_repos(
    program: Path, git_account: Account
) -> None:
    seen = (
        _runner(program, 'printf "%s\\n" "$@"', git_account)
        .run(REPO, ["x"], max_output_bytes=10_000)
        .decode()
    )
    arguments = seen.splitlines()
    assert f"--git-dir={REPO}" in arguments
    assert [word for word in arguments if word.startswith("safe.directory")] == [f"safe.directory={REPO}"]
    assert {"core.fsmonitor=false", "core.hooksPath=/dev/null", "protocol.allow=never", "gc.auto=0"} <= {
        *arguments
    }


def test_the_kernels_limits_are_set(program: Path, git_account: Account) -> None:
    script = "grep -E '^Max (cpu|file size|address|open|core)' /proc/self/limits"
    runner = _runner(
        program, script, git_account, cpu_s=3, memory_bytes=200 << 20, file_bytes=1 << 20, open_files=64
    )
    seen = runner.run(REPO, ["x"], max_output_bytes=10_000).decode()
    soft = {line[:25].strip(): line[25:].split()[0] for line in seen.splitlines()}
    assert soft == {
        "Max cpu time": "3",
        "Max file size": str(1 << 20),
        "Max address space": str(200 << 20),
        "Max open files": "64",
        "Max core file size": "0",
    }


def test_its_children_end_with_it_when_time_is_up(
    program: Path, git_account: Account, root_dir: Path
) -> None:
    pids = root_dir / "pids"
    pids.touch()
    os.chown(pids, git_account.uid, git_account.gid)
    script = f"sleep 60 & echo $! >> {pids}; echo $$ >> {pids}; wait"
    runner = _runner(program, script, git_account, wall_s=0.5)
    with pytest.raises(TimedOut, match=r"git x in /nonexistent/bob\.git: it took longer than 0\.5 s"):
        runner.run(REPO, ["x"], max_output_bytes=10)
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 2
    wait_until(lambda: all(_is_gone(pid) for pid in started), "git's processes to be gone")


def test_a_child_it_leaves_behind_ends_with_it(program: Path, git_account: Account) -> None:
    """Also when all went well, and although the child holds git's own output open."""
    seen = _runner(program, "sleep 60 & echo $!", git_account).run(REPO, ["x"], max_output_bytes=100)
    wait_until(lambda: _is_gone(int(seen)), "the left-over child to be gone")


def test_more_output_than_asked_for_ends_it(program: Path, git_account: Account) -> None:
    runner = _runner(program, "exec yes", git_account)
    with pytest.raises(GitFailed, match="wrote more than 1000 bytes"):
        runner.run(REPO, ["x"], max_output_bytes=1000)


def test_output_of_the_allowed_size_arrives_whole(program: Path, git_account: Account) -> None:
    runner = _runner(program, "head -c 3000000 /dev/zero", git_account)
    assert runner.run(REPO, ["x"], max_output_bytes=3_000_000) == bytes(3_000_000)


def test_much_input_goes_in_while_output_comes_out(program: Path, git_account: Account) -> None:
    content = os.urandom(1 << 16) * 40
    runner = _runner(program, "exec cat", git_account)
    assert runner.run(REPO, ["x"], stdin=content, max_output_bytes=len(content)) == content


def test_input_nobody_reads_is_no_error(program: Path, git_account: Account) -> None:
    runner = _runner(program, "echo done", git_account)
    assert runner.run(REPO, ["x"], stdin=bytes(1 << 20), max_output_bytes=100) == b"done\n"


def test_gits_own_words_are_kept_apart_from_the_message(program: Path, git_account: Account) -> None:
    runner = _runner(program, "echo 'fatal: root:$6$secret' >&2; exit 128", git_account)
    with pytest.raises(GitFailed, match="exit status 128") as failed:
        runner.run(REPO, ["x"], max_output_bytes=100)
    assert "secret" not in failed.value.message + failed.value.hint
    assert failed.value.detail == "fatal: root:$6$secret\n"


def test_a_flood_of_errors_costs_no_memory_and_no_time(program: Path, git_account: Account) -> None:
    runner = _runner(program, "head -c 50000000 /dev/zero >&2; exit 1", git_account)
    with pytest.raises(GitFailed) as failed:
        runner.run(REPO, ["x"], max_output_bytes=100)
    assert len(failed.value.detail) == 8 * 1024


def test_a_signal_is_named(program: Path, git_account: Account) -> None:
    with pytest.raises(GitFailed, match="killed by signal 11"):
        _runner(program, "kill -SEGV $$", git_account).run(REPO, ["x"], max_output_bytes=100)


def test_a_hundred_calls_leave_no_file_and_no_child(program: Path, git_account: Account) -> None:
    runner = _runner(program, "exit 1", git_account)
    before = sorted(os.listdir("/proc/self/fd"))
    children = _children()
    for _ in range(100):
        with pytest.raises(GitFailed):
            runner.run(REPO, ["x"], stdin=b"y", max_output_bytes=0)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert _children() <= children, "the tests' own engine may be a child too, and may end"


def _children() -> set[str]:
    """Return the pids of this process's children, those that ended and were not waited for included."""
    lists = Path("/proc/self/task").glob("*/children")
    return {pid for one in lists for pid in one.read_text(encoding="ascii").split()}


def test_a_git_that_cannot_start_says_nothing_about_the_repo(program: Path, git_account: Account) -> None:
    runner = _runner(program, "exit 0", git_account)
    runner._setpriv = "/nonexistent/setpriv"
    with pytest.raises(GitNotStarted, match="No such file"):
        runner.run(REPO, ["x"], max_output_bytes=0)


@pytest.mark.parametrize(("uid", "gid"), [(0, 1000), (1000, 0)], ids=["uid", "gid"])
def test_it_never_runs_as_root(uid: int, gid: int) -> None:
    with pytest.raises(HostUnsuitable, match="account is root's"):
        GitRunner(uid, gid)


def test_a_host_without_git_is_named(git_account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(HostUnsuitable, match="no 'git' on this host"):
        GitRunner(git_account.uid, git_account.gid)
