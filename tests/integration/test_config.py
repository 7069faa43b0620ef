"""Configs that cannot be used, and names that are none: who suffers, what is said, and how it heals."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from hive_api.client import ApiError
from hive_api.errors import ErrorCode
from tests.support.live_hive import LiveHive, config, raw_connection, wire

pytestmark = pytest.mark.integration

GOOD = config("bob")["agent.toml"]
UNUSABLE = [
    pytest.param({"agent.toml": b"name = "}, "agent.toml", id="no-toml"),
    pytest.param({"agent.toml": b'name = "bob"\n'}, "container", id="no-container"),
    pytest.param({"README": b"hello"}, "agent.toml", id="missing"),
    pytest.param({"agent.toml": b"\xff\xfe\x00"}, "UTF-8", id="not-utf8"),
    pytest.param(config("eve"), "eve", id="another-name"),
    pytest.param(config("bob", privileged=True), "privileged", id="privileged"),
    pytest.param(config("bob", network="host"), "network", id="host-network"),
    pytest.param(config("bob", network="egress"), "egress", id="egress"),
    pytest.param(config("bob", user="0"), "user", id="user"),
    pytest.param(config("bob", devices=["/dev/kvm"]), "devices", id="devices"),
    pytest.param(config("bob", env={"LD_PRELOAD": "/state/x.so"}), "LD_PRELOAD", id="preload"),
    pytest.param(config("bob", memory="1 elephant"), "memory", id="no-size"),
    pytest.param({"agent.toml": b'grants = ["MetaRead"]\n' + GOOD}, "capability", id="capability"),
]  # fmt: skip


@pytest.fixture
def pair(hive: LiveHive) -> Iterator[LiveHive]:
    """The shared hive with bob and carol running in it, and without them afterwards."""
    hive.spawn("bob")
    hive.spawn("carol")
    yield hive
    hive.remove("bob", "carol")


def test_what_cannot_be_used_degrades_its_agent_alone(pair: LiveHive) -> None:
    """One after the other on one hive: whatever is pushed, bob runs on untouched and a good push heals."""
    before, lives = pair.show("bob"), pair.lives()
    for case in UNUSABLE:
        files, word = case.values
        assert isinstance(files, dict)
        assert isinstance(word, str)
        if "agent.toml" in files:
            refused = pair.hivectl("push", "bob", str(pair.folder("bob", files)), expect=1)
            assert word in refused.stderr
            assert refused.stderr.count("\n") == 1
        else:
            pair.hivectl("push", "bob", str(pair.folder("bob", files)), expect=2)
            assert word in pair.push("bob", files, "failed")["error"]["message"]
        row = pair.wait_for(lambda: row if (row := pair.row("bob"))["degraded"] else None, "degraded")
        assert row["state"] == "running"
        shown = pair.show("bob")
        assert str(word) in shown["degraded_reason"]
        assert shown["main_commit"] != before["main_commit"]
        assert shown["applied_commit"] == before["applied_commit"]
        assert pair.hivectl("update", "bob", expect=None).status != 0
    assert pair.problems()["degraded"]
    assert not pair.row("carol")["degraded"]
    assert pair.lives() == lives
    pair.raw.kill(before["container_id"])
    pair.wait_for(lambda: pair.row("bob")["started_at"] not in (None, before["started_at"]), "a new run")
    assert pair.wait_state("bob", "running")["degraded"]
    pair.push("bob", config("bob", ("sleep", "700")))
    healed = pair.wait_for(lambda: row if not (row := pair.row("bob"))["degraded"] else None, "healed")
    assert healed["needs_update"]
    pair.hivectl("update", "bob")
    assert pair.show("bob")["command"] == ["sleep", "700"]
    assert pair.status()["problems"] == []


OVERSIZED = {"agent.toml": b"#" * (64 * 1024 + 1)}


def test_an_oversized_manifest_is_not_taken_at_all(pair: LiveHive) -> None:
    before = pair.show("bob")
    assert "65536" in pair.hivectl("push", "bob", str(pair.folder("bob", OVERSIZED)), expect=2).stderr
    assert pair.show("bob") == before
    assert (
        "65536" in pair.hivectl("init", "dave", "--from", str(pair.folder("d", OVERSIZED)), expect=2).stderr
    )
    assert "dave" not in pair.rows()


def test_an_oversized_manifest_on_main_degrades(pair: LiveHive) -> None:
    """Put there with git by hand, past the daemon's own checks."""
    before, lives = pair.show("bob"), pair.lives()
    repo = pair.data / "repos" / "bob.git"
    folder = pair.folder("bob", OVERSIZED)
    by_hand = ["git", f"--git-dir={repo}", f"--work-tree={folder}", "-c", f"safe.directory={repo}"]
    named = ["-c", "user.name=test", "-c", "user.email=test@invalid"]
    index = {**os.environ, "GIT_INDEX_FILE": str(pair.root / "index")}
    for arguments in (["add", "."], ["commit", "-q", "-m", "large"]):
        subprocess.run([*by_hand, *named, *arguments], env=index, check=True, timeout=20)
    # What root's git made in there belongs to git's account, like everything beside it.
    for folder in (repo / "objects").glob("[0-9a-f][0-9a-f]"):
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, "hive-git", "hive-git")
    pair.reconcile()
    shown = pair.wait_for(lambda: one if (one := pair.show("bob"))["degraded"] else None, "degraded")
    assert "65536" in shown["degraded_reason"]
    assert shown["main_commit"] != before["main_commit"]
    assert pair.hivectl("update", "bob", expect=1).stderr.count("\n") == 1
    assert pair.lives() == lives
    pair.push("bob", config("bob"))
    pair.wait_for(lambda: not pair.row("bob")["degraded"], "healed")


@pytest.mark.parametrize(("files", "word"), UNUSABLE)
def test_init_with_an_unusable_config_makes_nothing(
    hive: LiveHive, files: dict[str, bytes], word: str
) -> None:
    events = hive.last_seq()
    refused = hive.hivectl("init", "bob", "--from", str(hive.folder("bob", files)), expect=None)
    assert refused.status in (1, 2)
    assert word in refused.stderr
    assert hive.rows() == {}
    assert not (hive.data / "repos" / "bob.git").exists()
    assert not (hive.data / "agents" / "bob").exists()
    assert [one for one in hive.events() if one["seq"] > events and one["kind"] == "created"] == []


def test_an_image_that_is_not_there_is_named(pair: LiveHive) -> None:
    lives = pair.lives()
    pair.push("bob", config("bob", image="no-such-image:latest"))
    assert "no-such-image" in pair.hivectl("update", "bob", expect=1).stderr
    pair.wait_for(lambda: pair.row("bob")["degraded"], "degraded")
    assert pair.lives() == lives


HOSTILE = [
    "", "Bob", "bob ", " bob", "bob\n", "b" * 10, "-bob", "9bob", "b_b", "b.b", "..", ".", "/", "a/../b",
    "%2e%2e", "bob\x00", "bob\x1b[2J", "böb", "\uff42ob", "b\u202eo", "root", "hive", "operator", "none",
    "--help", "-x", "ext::sh -c id", "$(id)", "`id`", "x" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:12]))
def test_no_route_takes_a_hostile_name(hive: LiveHive, name: str) -> None:
    body = {"name": name, "parent": None, "top_level": True, "files": wire(config("bob"))}
    with pytest.raises(ApiError) as refused:
        hive.api.post("/v1/agents", body)
    assert refused.value.code is ErrorCode.INVALID_NAME
    assert "\x1b" not in refused.value.message
    for verb in ("spawn", "start", "stop", "restart", "update"):
        with pytest.raises(ApiError) as refused:
            hive.api.post(f"/v1/lifecycle/{verb}", {"names": [name]})
        assert refused.value.code is ErrorCode.INVALID_NAME
    body = {"name": "bob", "parent": name, "top_level": False, "files": wire(config("bob"))}
    with pytest.raises(ApiError) as refused:
        hive.api.post("/v1/agents", body)
    assert refused.value.code is ErrorCode.INVALID_NAME
    assert hive.rows() == {}


@pytest.mark.parametrize("name", ["Bob", "..", "%2e%2e%2f", "bob%00", "bob%1b%5b2J", "b%c3%b6b", "%ff%fe"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/agents/{}"),
        ("GET", "/v1/agents/{}/logs"),
        ("DELETE", "/v1/agents/{}?purge=true"),
        ("PUT", "/v1/agents/{}/config"),
    ],
)
def test_no_path_leads_out_of_the_agents(hive: LiveHive, name: str, method: str, path: str) -> None:
    body = b'{"files": []}' if method == "PUT" else b""
    head = f"{method} {path.format(name)} HTTP/1.1\r\nHost: hive\r\nContent-Length: {len(body)}\r\n"
    with raw_connection(hive.socket) as wire_:
        wire_.sendall(f"{head}Content-Type: application/json\r\nConnection: close\r\n\r\n".encode() + body)
        answer = b"".join(iter(lambda: wire_.recv(65536), b""))
    status = int(answer.split(b" ", 2)[1])
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert status in (400, 404, 405)
    assert error["code"] in ("invalid_name", "not_found", "invalid_request")
    assert hive.answers()


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "/etc/passwd",
        "a/../../b",
        ".git/config",
        "a/.git/x",
        "a//b",
        "",
        ".",
        "a\x00b",
        "x/" * 3000 + "y",
    ],
    ids=lambda path: ascii(path[:12]),
)
def test_no_file_is_put_outside_a_config(hive: LiveHive, path: str) -> None:
    files = {**config("bob"), path: b"x"}
    with pytest.raises(ApiError) as refused:
        hive.api.post("/v1/agents", {"name": "bob", "top_level": True, "files": wire(files)})
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert hive.rows() == {}
