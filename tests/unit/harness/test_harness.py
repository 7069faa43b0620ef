import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.harness.child import DEADLINE_S, Child

CHECKOUT = Path(__file__).parents[3]
HARNESS = (sys.executable, "-m", "hive_agent")

# Prints the name of every signal it gets; SIGTERM ends it with a code of its own.
REPORTER = """
import signal, sys
names = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, names)
print("ready", flush=True)
while True:
    got = signal.Signals(signal.sigwaitinfo(names).si_signo)
    print("got", got.name, flush=True)
    if got == signal.SIGTERM:
        sys.exit(42)
"""


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*HARNESS, *command],
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )


def in_python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


@pytest.mark.parametrize(
    ("script", "code"),
    [
        pytest.param("exit 0", 0, id="success"),
        pytest.param("exit 3", 3, id="failure"),
        pytest.param("exit 255", 255, id="largest code"),
        pytest.param("kill -TERM $$", 143, id="ended by SIGTERM"),
        pytest.param("kill -KILL $$", 137, id="ended by SIGKILL"),
        pytest.param("ulimit -c 0; kill -SEGV $$", 139, id="crashed"),
        pytest.param("kill -USR1 $$", 138, id="ended by a signal the harness forwards"),
    ],
)
def test_exits_as_the_command_did(script: str, code: int) -> None:
    result = run("sh", "-c", script)
    assert (result.returncode, result.stderr) == (code, b"")


@pytest.fixture
def unusable(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    for name, content, mode in (
        ("plain", "text", 0o644),
        ("text", "neither program nor script", 0o755),
        ("orphan", "#!/nowhere/interpreter\n", 0o755),
    ):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(mode)
    return tmp_path


@pytest.mark.parametrize(
    ("program", "code", "reason"),
    [
        pytest.param("no-such-program", 127, "not found in PATH", id="not in PATH"),
        pytest.param("", 127, "the name is empty", id="empty name"),
        pytest.param("{}/missing", 127, "there is no such file", id="no file"),
        pytest.param(
            "{}/orphan", 127, "the interpreter named in its first line is missing", id="no interpreter"
        ),
        pytest.param("orphan", 127, "the interpreter named in its first line is missing", id="same, in PATH"),
        pytest.param("{}/plain/x", 127, "part of its path is not a directory", id="below a file"),
        pytest.param("{}/plain", 126, "it is not executable", id="not executable"),
        pytest.param("plain", 126, "it is not executable", id="not executable, in PATH"),
        pytest.param("{}/folder", 126, "it is a directory", id="directory"),
        pytest.param("{}/text", 126, "it is neither a program nor a script with a #! line", id="no format"),
    ],
)
def test_says_why_a_command_cannot_start(unusable: Path, program: str, code: int, reason: str) -> None:
    program = program.format(unusable)
    result = run(program, PATH=f"{os.environ['PATH']}:{unusable}")
    assert result.stderr.decode() == f"hive-agent: cannot start {program!r}: {reason}\n"
    assert (result.returncode, result.stdout) == (code, b"")


def test_no_command_is_wrong_usage() -> None:
    result = run()
    assert result.returncode == 64
    assert result.stderr == b"hive-agent: no command given\nusage: hive-agent COMMAND [ARGUMENT...]\n"


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(option: str) -> None:
    result = run(option)
    assert (result.returncode, result.stdout) == (0, b"usage: hive-agent COMMAND [ARGUMENT...]\n")


def test_a_failed_start_shows_neither_arguments_nor_environment() -> None:
    result = run("no-such-program", "--token=hunter2", SECRET="correct-horse")
    assert b"hunter2" not in result.stderr
    assert b"horse" not in result.stderr


def test_a_hostile_program_name_is_shown_harmless_and_short() -> None:
    result = run("\x1b[31m\n" + "x" * 5000)
    assert result.returncode in (126, 127)
    assert result.stderr.startswith(b"hive-agent: cannot start '\\x1b[31m\\nxxx")
    assert result.stderr.count(b"\n") == 1
    assert len(result.stderr) < 400


def test_arguments_environment_and_directory_reach_the_command_unchanged() -> None:
    code = (
        "import os, sys; print(ascii([os.fsencode(a) for a in sys.argv[1:]]), os.getcwd(), os.environ['KEY'])"
    )
    arguments = ["", "two words", "new\nline", "-h", "--", "$HOME", os.fsdecode(b"\xff\xfe")]
    result = run(*in_python(code, *arguments), KEY="value")
    expected = f"{[os.fsencode(one) for one in arguments]!a} {CHECKOUT} value\n"
    assert (result.stdout.decode(), result.stderr) == (expected, b"")


def test_the_command_leads_a_session_of_its_own() -> None:
    assert (
        run(*in_python("import os; print(os.getsid(0) == os.getpgid(0) == os.getpid())")).stdout == b"True\n"
    )


def test_the_command_starts_with_every_signal_at_its_default() -> None:
    # grep changes no signal's action, so it shows what it was given; Python would ignore SIGPIPE.
    words = run("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status").stdout.split()
    blocked, ignored = int(words[1], 16), int(words[3], 16)
    # Signals 32 and 33 belong to the C library.
    assert (blocked, ignored & ~(0b11 << 31)) == (0, 0)


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_forwards(name: str) -> None:
    with Child([*HARNESS, *in_python(REPORTER)], cwd=CHECKOUT) as harness:
        harness.wait_for("ready")
        harness.signal(signal.Signals[name])
        harness.wait_for(f"got {name}")
        harness.signal(signal.SIGTERM)
        harness.wait_for("got SIGTERM")
        assert harness.wait() == 42


def test_forwards_the_same_signal_as_often_as_it_comes() -> None:
    with Child([*HARNESS, *in_python(REPORTER)], cwd=CHECKOUT) as harness:
        harness.wait_for("ready")
        for _ in range(3):
            harness.signal(signal.SIGUSR1)
            harness.wait_for("got SIGUSR1")
        harness.signal(signal.SIGTERM)
        assert harness.wait() == 42


def test_a_signal_reaches_the_whole_group_of_the_command() -> None:
    # The shell waits for its child, which is the one that reports the signal.
    script = 'trap : USR1; "$@" & while kill -0 $! 2>/dev/null; do wait $!; done'
    command = [*HARNESS, "sh", "-c", script, "sh", *in_python(REPORTER)]
    with Child(command, cwd=CHECKOUT) as harness:
        harness.wait_for("ready")
        harness.signal(signal.SIGUSR1)
        harness.wait_for("got SIGUSR1")
        harness.signal(signal.SIGTERM)
        harness.wait_for("got SIGTERM")
        assert harness.wait() == 143


def test_a_signal_from_before_the_command_exists_is_not_lost() -> None:
    # Blocked and pending signals survive exec, so the harness starts with one waiting for it.
    early = (
        "import os, signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    with Child(in_python(early, *HARNESS, "sh", "-c", "while :; do wait; done"), cwd=CHECKOUT) as harness:
        assert harness.wait() == 143


def test_the_exit_code_survives_an_inherited_ignored_sigchld() -> None:
    careless = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    with Child(in_python(careless, *HARNESS, "sh", "-c", "exit 7"), cwd=CHECKOUT) as harness:
        assert harness.wait() == 7


def test_a_stopped_and_continued_command_is_no_ended_one() -> None:
    script = "echo $$; kill -STOP $$; echo continued; exit 5"
    with Child([*HARNESS, "sh", "-c", script], cwd=CHECKOUT) as harness:
        pid = int(harness.wait_for(""))
        # Returns once the child has stopped, whoever's child it is.
        while not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" T"):
            os.sched_yield()
        os.kill(pid, signal.SIGCONT)
        harness.wait_for("continued")
        assert harness.wait() == 5
