"""scripts/install and scripts/uninstall in a tree of their own, and the installed daemon on a real engine."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hive_core.adapters.mountinfo import read_mounts
from hive_core.settings import Settings, load_settings
from tests.support.live_hive import Finished, LiveHive
from tests.support.own_engine import OwnEngine
from tests.support.paths import make_root, remove_root

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
PARTS = ("hive_api", "hive_core", "hivectl", "hive_agent", "scripts", "packaging")
FILES = ("pyproject.toml", "requirements.txt", "README.md", "LICENSE")
CHANGED = "hive_api/__init__.py"
LIMIT_S = 90
UNIT = "etc/systemd/system/hived.service"
COMPLETION = "usr/share/bash-completion/completions/hivectl"


@dataclass(slots=True)
class Host:
    """A checkout that may be changed, and the tree its scripts work on instead of the host."""

    root: Path
    first: Finished | None = None
    pristine: dict[str, tuple[int, int, str]] = field(default_factory=dict)

    @property
    def checkout(self) -> Path:
        """The copy of the project."""
        return self.root / "checkout"

    @property
    def tree(self) -> Path:
        """What takes the place of the host's root directory."""
        return self.root / "tree"

    @property
    def prefix(self) -> Path:
        """Where versions are."""
        return self.tree / "opt" / "hive"

    @property
    def settings(self) -> Path:
        """The installed settings file."""
        return self.tree / "etc" / "hive" / "hive.toml"

    @property
    def current(self) -> str:
        """The version that is installed."""
        return os.readlink(self.prefix / "current")

    def versions(self) -> set[str]:
        """The versions that are there."""
        return {path.name for path in self.prefix.iterdir() if not path.is_symlink()}

    def run(self, script: str, *arguments: str, expect: int = 0, stdin: int = subprocess.DEVNULL) -> Finished:
        """Run a script of the checkout; `expect` is the status it must end with."""
        done = subprocess.run(
            [str(self.checkout / "scripts" / script), *arguments],
            # Compiling every package takes half the time of an installation, and tests nothing of ours.
            env={**os.environ, "HIVE_INSTALL_ROOT": str(self.tree), "PIP_NO_COMPILE": "1"},
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        said = f"{script} {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        assert done.returncode == expect, said
        return Finished(done.returncode, done.stdout, done.stderr)

    def change(self) -> None:
        """Change a source file of the checkout."""
        with (self.checkout / CHANGED).open("a", encoding="utf-8") as file:
            file.write("# A change.\n")

    def restore(self, source: Path, target: Path) -> None:
        """Copy a whole tree; of the versions, which nothing changes in place, only the directories."""
        versions = str(self.prefix.relative_to(self.tree))
        shutil.copytree(source, target, symlinks=True, ignore=lambda at, _: _versions_in(at, versions))
        for version in (source / versions).glob(f"{VERSION}-*"):
            subprocess.run(["cp", "-al", str(version), str(target / versions)], check=True)
        # Adding the versions touched it.
        shutil.copystat(source / versions, target / versions)

    def snapshot(self) -> dict[str, tuple[int, int, str]]:
        """Everything in the tree but libraries, with what would tell that it was touched."""
        found = {}
        for folder, folders, names in os.walk(self.tree):
            folders[:] = [name for name in folders if name != "lib" or folder == str(self.tree / "var")]
            for path in (Path(folder, name) for name in (*folders, *names)):
                stat = path.lstat()
                target = os.readlink(path) if path.is_symlink() else ""
                found[str(path.relative_to(self.tree))] = (stat.st_mode, stat.st_mtime_ns, target)
        return found


@pytest.fixture(scope="module")
def built() -> Iterator[Host]:
    """A host with one version installed, and a copy put aside: building it is what takes long."""
    if os.geteuid() != 0:
        pytest.skip("needs root, like the installation")
    host = Host(make_root())
    try:
        host.checkout.mkdir()
        for name in PARTS:
            shutil.copytree(ROOT / name, host.checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in FILES:
            shutil.copy2(ROOT / name, host.checkout / name)
        host.tree.mkdir()
        host.first = host.run("install")
        host.pristine = host.snapshot()
        host.restore(host.tree, host.root / "pristine")
        yield host
    finally:
        remove_root(host.root)


@pytest.fixture
def host(built: Host) -> Host:
    """The same, as it was freshly installed."""
    shutil.copy2(ROOT / CHANGED, built.checkout / CHANGED)
    if built.snapshot() != built.pristine:
        shutil.rmtree(built.tree)
        built.restore(built.root / "pristine", built.tree)
    return built


def _versions_in(folder: str, versions: str) -> list[str]:
    """What of a folder is left out of a copy."""
    is_prefix = folder.endswith(f"/{versions}")
    return [path.name for path in Path(folder).glob(f"{VERSION}-*")] if is_prefix else []


def _run(*argv: str | Path) -> str:
    done = subprocess.run([str(one) for one in argv], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---- install ---------------------------------------------------------------------------------------------


def test_it_installs_programs_that_run(host: Host) -> None:
    assert host.first is not None
    assert "is installed below" in host.first.stdout
    assert re.fullmatch(re.escape(VERSION) + "-[0-9a-f]{12}", host.current)
    hived = host.tree / "usr/local/sbin/hived"
    assert "settings are valid" in _run(hived, "--settings", host.settings, "check")
    assert _run(host.tree / "usr/local/bin/hivectl", "--version") == f"hivectl {VERSION}\n"
    where = "import hive_core, os, sys; print(hive_core.__file__, os.path.realpath(sys.executable))"
    module, interpreter = _run(host.prefix / "current/bin/python", "-I", "-c", where).split()
    assert Path(module).resolve().is_relative_to((host.prefix / host.current).resolve()), (
        "the checkout may go away"
    )
    assert interpreter.startswith("/usr/"), "members of the operator group could not run it"


def test_it_installs_the_files_of_the_host(host: Host) -> None:
    assert load_settings(host.settings) == Settings()
    assert "_HIVECTL_COMPLETE" in (host.tree / COMPLETION).read_text()
    for path in (host.settings, host.tree / COMPLETION, host.tree / UNIT):
        assert path.stat().st_mode & 0o7777 == 0o644
        assert path.parent.stat().st_mode & 0o022 == 0
    _run("bash", "-n", host.tree / COMPLETION)


def test_systemd_accepts_the_unit(host: Host) -> None:
    unit = host.tree / UNIT
    assert f"ExecStart={host.prefix}/current/bin/hived\n" in unit.read_text()
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "hived.service" not in done.stderr


def test_a_second_run_changes_nothing_and_says_so(host: Host) -> None:
    before = host.snapshot()
    again = host.run("install")
    assert again.stdout == f"nothing to change: hive {host.current} is installed\n"
    assert host.snapshot() == before


def test_a_version_that_cannot_start_is_not_switched_to(host: Host) -> None:
    host.settings.write_text("[hive]\nrutless = true\n")
    before = host.current
    host.change()
    refused = host.run("install", expect=1)
    assert "rutless" in refused.stderr
    assert "nothing was switched" in refused.stderr
    assert host.current == before
    (built,) = host.versions() - {before}
    # As if the build had been interrupted.
    (host.prefix / built / ".hive-complete").unlink()
    (host.prefix / built / "bin" / "hived").unlink()
    host.settings.write_text("[hive]\nruthless = true\n")
    host.run("install")
    assert (host.current, os.readlink(host.prefix / "previous")) == (built, before)
    _run(host.prefix / "current/bin/hived", "--version")
    host.run("install", "--back")
    assert (host.current, os.readlink(host.prefix / "previous")) == (before, built)
    assert host.settings.read_text() == "[hive]\nruthless = true\n", "an operator's file is never touched"


@pytest.mark.parametrize("script", ["install", "uninstall"])
def test_a_daemon_from_elsewhere_is_left_alone(host: Host, script: str) -> None:
    lock = host.tree / "var/lib/hive/lock"
    lock.parent.mkdir(parents=True)
    lock.write_text(f"{os.getpid()}\n")
    before = host.snapshot()
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        refused = host.run(script, expect=1)
    assert f"pid {os.getpid()}" in refused.stderr
    assert "scripts/down" in refused.stderr
    assert host.snapshot() == before


def test_a_program_of_somebody_else_is_not_replaced(host: Host) -> None:
    link = host.tree / "usr/local/bin/hivectl"
    link.unlink()
    link.write_text("somebody's")
    assert str(link) in host.run("install", expect=1).stderr
    assert link.read_text() == "somebody's"


@pytest.mark.parametrize("prefix", ["opt/hive", "/opt/../hive", "/", "/opt/my hive", "/elsewhere"])
def test_a_prefix_that_cannot_be_used_is_refused(host: Host, prefix: str) -> None:
    before = host.snapshot()
    assert "cannot install below" in host.run("install", "--prefix", prefix, expect=1).stderr
    assert host.snapshot() == before


def test_a_prefix_others_can_write_is_refused(host: Host) -> None:
    host.prefix.parent.chmod(0o777)
    assert "changed by others" in host.run("install", expect=1).stderr


# ---- the installed daemon --------------------------------------------------------------------------------


@dataclass(slots=True)
class InstalledHive(LiveHive):
    """A hive whose daemon is the installed one, started the way the unit starts it."""

    program: Path = Path()
    notices: socket.socket = field(default_factory=lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))

    def daemon_argv(self, *arguments: str) -> list[str]:
        """Return the command line, with what the unit takes away taken away."""
        dropped = "-sys_boot,-sys_module,-sys_rawio,-sys_time"
        hardened = ["setpriv", "--no-new-privs", f"--bounding-set={dropped}"]
        return [*hardened, str(self.program), "--settings", str(self.settings_file), *arguments]

    def listen(self) -> None:
        """Be systemd: take the daemon's notices."""
        address = str(self.root / "notify")
        self.notices.bind(address)
        self.notices.settimeout(30)
        self.environment |= {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"}

    def wait_notice(self, wanted: str) -> None:
        """Return once the daemon has said it; a timeout of the socket fails the test."""
        while self.notices.recv(4096).decode() != wanted:
            pass


@pytest.fixture
def installed_hive(host: Host, own_engine: OwnEngine, agent_image: str) -> Iterator[InstalledHive]:
    """A hive of the installed program; its settings are the installed ones."""
    hive = InstalledHive(
        own_engine.socket, agent_image, own_engine.client(), {"container": {"stop_grace_s": 1}}
    )
    hive.program = host.prefix / "current/bin/hived"
    with closing(hive), closing(hive.notices):
        hive.listen()
        shutil.copy(hive.settings_file, host.settings)
        yield hive


def test_agents_survive_upgrades(host: Host, installed_hive: InstalledHive) -> None:
    hive, first = installed_hive, host.current
    hive.start()
    hive.wait_notice("READY=1")
    hive.wait_notice("WATCHDOG=1")
    hive.spawn("ann")
    before = hive.lives()
    host.change()
    host.run("install")
    second = host.current
    host.change()
    host.run("install")
    third = host.current
    assert host.versions() == {first, second, third}, "the oldest still runs"
    assert hive.status()["phase"] == "running", "without systemd it is left to the operator to restart"
    hive.restart().settle()
    hive.wait_notice("READY=1")
    assert hive.process is not None
    assert f"/{third}/".encode() in Path(f"/proc/{hive.process.pid}/cmdline").read_bytes()
    assert hive.lives() == before
    host.run("install")
    assert host.versions() == {second, third}


# ---- uninstall -------------------------------------------------------------------------------------------


def test_uninstalling_keeps_data_and_settings(host: Host) -> None:
    data = host.tree / "var/lib/hive"
    data.mkdir(parents=True)
    (data / "hive.db").write_text("kept")
    done = host.run("uninstall")
    assert "data is kept" in done.stderr
    left = {name for name, (mode, _, _) in host.snapshot().items() if not os.path.isdir(host.tree / name)}
    assert left == {"etc/hive/hive.toml", "var/lib/hive/hive.db"}
    assert not host.prefix.exists()
    host.run("uninstall")


def test_uninstalling_leaves_what_is_not_from_hive(host: Host) -> None:
    (host.prefix / "notes").write_text("mine")
    link = host.tree / "usr/local/bin/hivectl"
    link.unlink()
    link.write_text("somebody's")
    host.run("uninstall")
    assert (host.prefix / "notes").read_text() == "mine"
    assert link.read_text() == "somebody's"


def test_purging_asks_first(host: Host) -> None:
    before = host.snapshot()
    assert "--yes" in host.run("uninstall", "--purge", expect=2).stderr
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"n\n")
        assert "nothing was removed" in host.run("uninstall", "--purge", expect=1, stdin=theirs).stderr
    finally:
        os.close(ours)
        os.close(theirs)
    assert host.snapshot() == before


def test_purging_refuses_a_directory_that_is_no_hive(host: Host) -> None:
    host.settings.write_text(f"[paths]\ndata = {json.dumps(str(host.checkout))}\n")
    assert "no store of a hive" in host.run("uninstall", "--purge", "--yes", expect=1).stderr
    assert (host.checkout / "README.md").exists()


def test_purging_waits_for_agents_then_deletes_everything(host: Host, installed_hive: InstalledHive) -> None:
    hive = installed_hive
    hive.start().spawn("ann")
    deep = "import os\nfor _ in range(1500):\n os.mkdir('d'); os.chdir('d')"
    hive.hivectl("exec", "ann", "--", "python3", "-c", deep)
    settings = load_settings(host.settings)
    line = f"root:{settings.uids.start}:{settings.uids.count}\n"
    for name in ("subuid", "subgid"):
        (host.tree / "etc" / name).write_text(f"somebody:100000:65536\n{line}")
    host.settings.write_text(host.settings.read_text().replace("reserve = false", "reserve = true"))
    refused = host.run("uninstall", "--purge", "--yes", expect=1)
    assert hive.container("ann") in refused.stderr
    assert hive.status()["phase"] == "running", "refused before anything was stopped"
    hive.terminate()
    host.run("uninstall", "--purge", "--yes", expect=1)
    _run(*hive.daemon_argv("down"))
    host.run("uninstall", "--purge", "--yes")
    assert not hive.containers()
    assert not [one for one in read_mounts().mounts if hive.run_dir in one.target.parents]
    assert not hive.data.exists()
    assert not hive.run_dir.exists()
    assert not host.settings.parent.exists()
    assert not host.prefix.exists()
    assert (host.tree / "etc" / "subuid").read_text() == "somebody:100000:65536\n"
    assert (host.tree / "etc" / "subgid").read_text() == "somebody:100000:65536\n"
