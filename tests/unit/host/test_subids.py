from __future__ import annotations

import fcntl
import os
import re
import stat
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from hive_core.adapters import subids
from hive_core.domain.errors import HostUnsuitable, UnsafePath

START, COUNT = 1_900_000_000, 65536
LINE = f"root:{START}:{COUNT}"
DEBIAN = "debian:100000:65536\nci:165536:65536\n"


@dataclass(frozen=True)
class Etc:
    """The account files of an imagined host."""

    directory: Path

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    def text(self, name: str) -> str:
        return (self.directory / name).read_text()

    @property
    def subids(self) -> tuple[Path, Path]:
        return self.directory / "subuid", self.directory / "subgid"

    @property
    def accounts(self) -> tuple[Path, Path]:
        return self.directory / "passwd", self.directory / "group"

    def require_free(self, *, ours: bool = False) -> None:
        subids.require_free(START, COUNT, ours=ours, subids=self.subids, accounts=self.accounts)

    def reserve(self, *, ours: bool = False) -> None:
        lock = self.directory / "lock"
        subids.reserve(START, COUNT, ours=ours, subids=self.subids, accounts=self.accounts, lock=lock)

    def release(self) -> None:
        subids.release(START, COUNT, subids=self.subids, lock=self.directory / "lock")

    def is_reserved(self) -> bool:
        return subids.is_reserved(START, COUNT, subids=self.subids)


@pytest.fixture
def etc(tmp_path: Path) -> Etc:
    made = Etc(tmp_path)
    made.write("subuid", DEBIAN)
    made.write("subgid", DEBIAN)
    made.write("passwd", "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n")
    made.write("group", "root:x:0:\nnogroup:x:65534:\n")
    return made


OVERLAPS = [
    pytest.param("subuid", f"alice:{START}:{COUNT}", id="same"),
    pytest.param("subuid", f"alice:{START + COUNT - 1}:1", id="last-id"),
    pytest.param("subuid", f"alice:{START - 1}:2", id="first-id"),
    pytest.param("subuid", f"alice:{START + 5}:10", id="inside"),
    pytest.param("subuid", "alice:1:4000000000", id="around"),
    pytest.param("subuid", f"1000:{START}:{COUNT}", id="numeric-user"),
    pytest.param("subuid", f"0:{START}:{COUNT}", id="root-by-number"),
    pytest.param("subuid", f"root:{START}:{COUNT - 1}", id="root-shorter"),
    pytest.param("subuid", f"root:{START + 1}:{COUNT}", id="root-shifted"),
    pytest.param("subgid", f"alice:{START}:{COUNT}", id="in-subgid"),
    pytest.param("subgid", f"  alice:{START}:{COUNT}  ", id="with-blanks"),
]


@pytest.mark.parametrize("ours", [False, True])
@pytest.mark.parametrize(("file", "line"), OVERLAPS)
def test_a_range_somebody_else_has_is_refused_with_a_free_one(
    etc: Etc, file: str, line: str, ours: bool
) -> None:
    etc.write(file, DEBIAN + line + "\n")
    before = {path.name: path.read_bytes() for path in etc.subids}
    with pytest.raises(HostUnsuitable) as refused:
        etc.reserve(ours=ours)
    end = START + COUNT - 1
    assert f"uid range {START}-{end}: it overlaps '{line}' in {etc.directory / file}" in refused.value.message
    assert "if that line is left over from a removed hive, delete it" in refused.value.hint
    assert {path.name: path.read_bytes() for path in etc.subids} == before


@pytest.mark.parametrize(
    ("file", "line", "named"),
    [
        ("passwd", f"alice:x:{START}:100:Alice A:/home/alice:/bin/sh", "alice"),
        ("passwd", f"alice:x:{START + COUNT - 1}:100::/:/bin/sh", "alice"),
        ("group", f"staff:x:{START + 7}:alice,bob", "staff"),
    ],
)
def test_an_account_in_the_range_is_refused(etc: Etc, file: str, line: str, named: str) -> None:
    etc.write(file, line + "\n")
    with pytest.raises(HostUnsuitable, match=f"overlaps '{named}' with id") as refused:
        etc.require_free()
    assert "left over" not in refused.value.hint
    assert "uids.start = " in refused.value.hint


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("subuid", f"alice:{START + COUNT}:{COUNT}"),
        ("subuid", f"alice:{START - COUNT}:{COUNT}"),
        ("subuid", f"# alice:{START}:{COUNT} no more"),
        ("subuid", f"alice:{START}"),
        ("subuid", f"alice:{START}:many"),
        ("subuid", f"alice:{START}:0"),
        ("passwd", f"alice:x:{START - 1}:{START}::/:/bin/sh"),
        ("passwd", "+::::::"),
        ("group", f"staff:x:{START + COUNT}:"),
    ],
)
def test_what_only_looks_near_is_no_overlap(etc: Etc, file: str, line: str) -> None:
    etc.write(file, line + "\n")
    etc.require_free()


def test_the_free_range_it_names_is_free(etc: Etc) -> None:
    etc.write("subuid", f"alice:{START + 10}:{COUNT}\nbob:{START + 2 * COUNT}:{COUNT}\n")
    etc.write("passwd", f"carol:x:{START + 3 * COUNT + 100}:1::/:/bin/sh\n")
    with pytest.raises(HostUnsuitable) as refused:
        etc.require_free()
    found = re.search(r"uids.start = (\d+)", refused.value.hint)
    assert found
    free = int(found[1])
    assert free == START + 3 * COUNT + 101
    subids.require_free(free, COUNT, ours=False, subids=etc.subids, accounts=etc.accounts)


def test_a_host_without_any_free_range_says_so(etc: Etc) -> None:
    etc.write("subuid", "alice:1:4294967290\n")
    with pytest.raises(HostUnsuitable) as refused:
        etc.require_free()
    assert refused.value.hint.endswith("else free some ids")


def test_our_own_line_is_an_overlap_only_while_it_is_not_recorded(etc: Etc) -> None:
    etc.reserve()
    assert etc.is_reserved()
    with pytest.raises(HostUnsuitable, match=f"overlaps '{LINE}'"):
        etc.require_free()
    etc.require_free(ours=True)
    etc.reserve(ours=True)
    assert etc.text("subuid") == etc.text("subgid") == f"{DEBIAN}{LINE}\n"


def test_reserve_completes_what_was_interrupted_or_edited_away(etc: Etc) -> None:
    etc.write("subuid", f"{DEBIAN}{LINE}\n")
    assert not etc.is_reserved()
    etc.reserve(ours=True)
    assert etc.is_reserved()
    assert etc.text("subuid").count(LINE) == 1


def test_reserve_keeps_bytes_and_mode(etc: Etc) -> None:
    odd = b"# caf\xe9\n\ndebian:100000:65536"
    etc.subids[0].write_bytes(odd)
    etc.subids[0].chmod(0o640)
    etc.subids[1].unlink()
    etc.reserve()
    assert etc.subids[0].read_bytes() == odd + b"\n" + LINE.encode() + b"\n"
    assert stat.S_IMODE(etc.subids[0].stat().st_mode) == 0o640
    assert etc.text("subgid") == f"{LINE}\n"
    assert stat.S_IMODE(etc.subids[1].stat().st_mode) == 0o644
    assert {path.name for path in etc.directory.iterdir()} == {"subuid", "subgid", "passwd", "group", "lock"}


def test_release_takes_out_our_line_and_nothing_else(etc: Etc) -> None:
    etc.reserve()
    with etc.subids[0].open("a") as file:
        file.write("later:300000:65536\n")
    for _ in range(2):
        etc.release()
    assert etc.text("subuid") == DEBIAN + "later:300000:65536\n"
    assert etc.text("subgid") == DEBIAN
    assert not etc.is_reserved()


def test_a_linked_subuid_is_not_followed(etc: Etc) -> None:
    etc.subids[0].rename(etc.directory / "real")
    etc.subids[0].symlink_to("real")
    with pytest.raises(UnsafePath, match="is a symbolic link"):
        etc.reserve()
    assert etc.text("real") == DEBIAN


def test_reserve_waits_for_who_edits_the_accounts(etc: Etc) -> None:
    lock = etc.directory / "lock"
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin
        assert holder.stdout
        assert holder.stdout.readline() == "locked\n"
        reserving = threading.Thread(target=etc.reserve)
        reserving.start()
        reserving.join(0.2)
        assert reserving.is_alive()
        assert not etc.is_reserved()
        holder.stdin.close()
        reserving.join(10)
    assert etc.is_reserved()
    # And it lets go afterwards.
    fd = os.open(lock, os.O_WRONLY)
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
