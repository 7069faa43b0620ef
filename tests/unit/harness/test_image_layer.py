import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.unit.harness.child import DEADLINE_S

CHECKOUT = Path(__file__).parents[3]
WIRE_FILES = ("hive_api/__init__.py", "hive_api/errors.py", "hive_api/client.py")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the layer is made from, with modes no image should take over."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("hive_agent", "image"):
        shutil.copytree(CHECKOUT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "hive_api").mkdir()
    for name in WIRE_FILES:
        (copy / name).write_text(f"NAME = {name!r}\n")
    for path in copy.rglob("*.py"):
        path.chmod(0o600)
    return copy


def layer(source: Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, str(CHECKOUT / "image/layer.py"), str(source)]
    return subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)


@pytest.fixture(scope="module")
def members(source: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(layer(source).stdout)) as archive:
        return {member.name: member for member in archive}


@pytest.fixture(scope="module")
def root(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("root")
    subprocess.run(["tar", "-x", "-C", folder], input=layer(source).stdout, timeout=DEADLINE_S, check=True)
    return folder


@pytest.mark.parametrize(
    "name", ["state", "home/agent", "config", "agents", "meta", "run/hive", "run/hive-secrets"]
)
def test_has_every_mount_point(members: dict[str, tarfile.TarInfo], name: str) -> None:
    assert members[name].isdir()
    assert members[name].mode == 0o755


def test_everything_belongs_to_root_and_only_root_may_write(members: dict[str, tarfile.TarInfo]) -> None:
    assert {(member.uid, member.gid) for member in members.values()} == {(0, 0)}
    assert {member.mode for member in members.values()} == {0o755, 0o644}
    assert [name for name, member in members.items() if member.isfile() and member.mode == 0o755] == [
        "usr/local/bin/hive-agent"
    ]


def test_equal_sources_make_an_equal_layer(source: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(source, tmp_path / "copy", copy_function=shutil.copyfile)
    (copy / "hive_agent/__pycache__").mkdir()
    (copy / "hive_agent/__pycache__/harness.cpython-311.pyc").write_bytes(b"not a source")
    assert layer(copy).stdout == layer(source).stdout
    (copy / "hive_agent/harness.py").write_text("changed\n")
    assert layer(copy).stdout != layer(source).stdout


def test_a_missing_source_is_named(source: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(source, tmp_path / "copy")
    (copy / "hive_api/client.py").unlink()
    result = layer(copy)
    assert (result.returncode, result.stdout) == (1, b"")
    assert (
        result.stderr.decode()
        == f"layer.py: cannot read {copy}/hive_api/client.py: No such file or directory\n"
    )


def test_the_wire_files_are_in_the_checkout() -> None:
    assert [name for name in WIRE_FILES if not (CHECKOUT / name).is_file()] == []


def test_git_trusts_the_meta_repo(root: Path) -> None:
    command = ["git", "config", "--file", str(root / "etc/gitconfig"), "--get-all", "safe.directory"]
    assert subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=True).stdout == b"/meta\n"


def test_the_launcher_runs_only_the_harness_of_the_image(root: Path, tmp_path: Path) -> None:
    for name in ("hive_agent", "enum"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('replaced')\n")
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('replaced')\n")
    launcher = root / "usr/local/bin/hive-agent"
    options = launcher.read_text().splitlines()[0].removeprefix("#!/usr/bin/python3 ")
    result = subprocess.run(
        [sys.executable, options, str(launcher), "sh", "-c", "exit 9"],
        cwd=tmp_path,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(tmp_path),
            "PYTHONSTARTUP": str(tmp_path / "enum.py"),
        },
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (result.returncode, result.stderr) == (9, b"")
