import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from hivectl import folder
from hivectl.failure import CommandError, UsageError
from hivectl.folder import read_folder


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A folder that can be sent."""
    root = tmp_path / "config"
    root.mkdir()
    (root / "agent.toml").write_bytes(b"x")
    return root


def test_regular_files_come_in_order_with_their_bytes_and_the_executable_bit(config: Path) -> None:
    (config / "bin").mkdir()
    (config / "empty").mkdir()
    (config / "bin/run").write_bytes(b"\x00\xff")
    (config / "bin/run").chmod(0o755)
    content = read_folder(config)
    found = [(entry.path, entry.content, entry.is_executable) for entry in content.files]
    assert found == [("agent.toml", b"x", False), ("bin/run", b"\x00\xff", True)]
    assert content.notes == []


def test_git_at_the_top_is_left_out_and_said(config: Path) -> None:
    (config / ".git").mkdir()
    (config / ".git/config").write_bytes(b"secret")
    (config / ".gitignore").write_bytes(b"y")
    content = read_folder(config)
    assert [entry.path for entry in content.files] == [".gitignore", "agent.toml"]
    assert content.notes == [".git was left out: only the files are sent"]


def _symlink(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _folder_link(path: Path) -> None:
    path.symlink_to("/etc")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _nested_git(path: Path) -> None:
    (path / ".git").mkdir(parents=True)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(_symlink, "lib/odd is a symbolic link", id="symlink"),
        pytest.param(_folder_link, "lib/odd is a symbolic link", id="symlink-to-folder"),
        pytest.param(os.mkfifo, "lib/odd is a FIFO", id="fifo"),
        pytest.param(_socket, "lib/odd is a socket", id="socket"),
        pytest.param(_nested_git, "lib/odd/.git is another repository", id="nested-git"),
    ],
)
def test_what_cannot_be_config_is_refused_by_name(
    config: Path, make: Callable[[Path], None], said: str
) -> None:
    (config / "lib").mkdir()
    make(config / "lib/odd")
    with pytest.raises(UsageError, match=said):
        read_folder(config)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a device")
def test_a_device_is_refused(config: Path) -> None:
    os.mknod(config / "null", 0o600 | 0o020000, os.makedev(1, 3))
    with pytest.raises(UsageError, match="null is a device"):
        read_folder(config)


def test_a_name_that_is_no_text_is_refused(config: Path) -> None:
    Path(os.fsdecode(bytes(config) + b"/\xff")).write_bytes(b"")
    with pytest.raises(UsageError, match="not valid UTF-8"):
        read_folder(config)


def test_a_folder_without_manifest_is_refused(config: Path) -> None:
    (config / "agent.toml").unlink()
    with pytest.raises(UsageError, match=r"has no agent\.toml"):
        read_folder(config)


def test_a_file_is_no_folder(config: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        read_folder(config / "agent.toml")


def test_too_many_files_are_refused(config: Path) -> None:
    for number in range(folder.MAX_FILES):
        (config / f"f{number}").touch()
    with pytest.raises(UsageError, match="more than 2000 files"):
        read_folder(config)
    (config / "f0").unlink()
    assert len(read_folder(config).files) == folder.MAX_FILES


def test_too_much_is_refused_without_reading_it_all(config: Path) -> None:
    with (config / "big").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(UsageError, match="larger than 16 MiB"):
        read_folder(config)
    with (config / "big").open("wb") as stream:
        stream.truncate(folder.MAX_BYTES - 1)
    assert read_folder(config).size_bytes == folder.MAX_BYTES


def test_endless_depth_is_refused(config: Path) -> None:
    (config / "/".join(["d"] * (folder.MAX_DEPTH + 2))).mkdir(parents=True)
    with pytest.raises(UsageError, match="folders deep"):
        read_folder(config)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_an_unreadable_file_is_named(config: Path) -> None:
    (config / "secret").touch(0o600)
    for above in (config, *config.parents[:-2]):
        above.chmod(0o755)
    os.seteuid(65534)
    try:
        with pytest.raises(CommandError, match="secret cannot be read: Permission denied") as caught:
            read_folder(config)
    finally:
        os.seteuid(0)
    assert caught.value.status == 1
