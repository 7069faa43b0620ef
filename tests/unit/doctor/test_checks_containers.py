"""Every field of a container that hive decides is compared; every way to weaken one is seen."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from hive_core.adapters.docker_body import create_body
from hive_core.domain.observed import ImageFacts
from hive_core.domain.spec import LABEL_AGENT, LABEL_SPEC, ContainerSpec, spec_hash
from hive_core.engine.checks import Check, Finding
from hive_core.engine.checks_containers import Subject, containers, differences
from hive_core.manifest import parse_manifest
from hive_core.planning.container import build_spec
from hive_core.settings import Container
from tests.support.plan_inputs import COMMIT, LAYOUT, name

BOB, RUTH = name("bob"), name("ruth")
IMAGE = ImageFacts("sha256:" + "1" * 64, ("LD_PRELOAD", "FROM_IMAGE"), ())
Tamper = Callable[[dict[str, Any]], object]


def _spec() -> ContainerSpec:
    text = 'name = "bob"\n[container]\ncommand = ["python3", "main.py"]\n'
    return build_spec(
        BOB, 1_900_000_042, parse_manifest(text.encode(), BOB), COMMIT, IMAGE, Container(), LAYOUT
    )


SPEC = _spec()


def _inspected() -> dict[str, Any]:
    """Return what an engine tells of a container as it was made: its own words, and what it fills in."""
    body = copy.deepcopy(create_body(SPEC, {LABEL_AGENT: "bob", LABEL_SPEC: spec_hash(SPEC)}))
    host = body.pop("HostConfig")
    host |= {"CapAdd": None, "Binds": None, "Devices": [], "PidMode": "", "OomKillDisable": False}
    host |= {"MaskedPaths": ["/proc/kcore"], "ReadonlyPaths": ["/proc/sys"], "Runtime": "runc"}
    body["Env"] = [entry for entry in body["Env"] if "=" in entry] + ["FROM_IMAGE=1"]
    mounts = [
        {"Type": "bind", "Destination": one.target, "Source": one.source, "RW": not one.read_only}
        for one in SPEC.mounts
    ]
    return {
        "Name": "/h-bob",
        "Image": SPEC.image_id,
        "Config": body,
        "HostConfig": host,
        "Mounts": [*mounts, {"Type": "tmpfs", "Destination": "/tmp", "RW": True}],
        "NetworkSettings": {"Networks": {"none": {}}},
    }


def _set(*path: Any) -> Tamper:
    """Return a change: the last of `path` is put at the place that the others lead to."""
    *keys, last, value = path

    def change(inspected: Any) -> None:
        for key in keys:
            inspected = inspected[key]
        inspected[last] = value

    return change


def _swapped(inspected: dict[str, Any]) -> None:
    inspected["HostConfig"]["Mounts"].reverse()


def _judged(*subjects: Subject) -> Check:
    return containers(subjects)


def test_a_container_as_it_was_made_has_no_difference() -> None:
    assert list(differences(SPEC, _inspected())) == []


@pytest.mark.parametrize(
    ("tamper", "field"),
    [
        (_set("Image", "sha256:" + "2" * 64), "Image"),
        (_set("Config", "User", "0:0"), "User is '0:0'"),
        (_set("Config", "User", ""), "User"),
        (_set("Config", "Entrypoint", ["sh"]), "Entrypoint"),
        (_set("Config", "Cmd", None), "Cmd"),
        (_set("Config", "WorkingDir", "/"), "WorkingDir"),
        (_set("Config", "StopTimeout", 999), "StopTimeout"),
        (_set("Config", "Healthcheck", {"Test": ["CMD", "x"]}), "Healthcheck"),
        (_set("Config", "Env", []), "Env HIVE_AGENT was changed"),
        (_set("HostConfig", "Privileged", True), "Privileged is True"),
        (_set("HostConfig", "CapDrop", None), "CapDrop"),
        (_set("HostConfig", "CapAdd", ["SYS_ADMIN"]), "CapAdd is ['SYS_ADMIN']"),
        (_set("HostConfig", "SecurityOpt", ["no-new-privileges", "seccomp=unconfined"]), "SecurityOpt"),
        (_set("HostConfig", "SecurityOpt", None), "SecurityOpt"),
        (_set("HostConfig", "NetworkMode", "host"), "NetworkMode is 'host' instead of 'none'"),
        (_set("HostConfig", "PidMode", "host"), "PidMode is 'host'"),
        (_set("HostConfig", "IpcMode", "host"), "IpcMode"),
        (_set("HostConfig", "CgroupnsMode", "host"), "CgroupnsMode"),
        (_set("HostConfig", "UTSMode", "host"), "UTSMode"),
        (_set("HostConfig", "UsernsMode", "host"), "UsernsMode"),
        (_set("HostConfig", "ReadonlyRootfs", False), "ReadonlyRootfs"),
        (_set("HostConfig", "Memory", 0), "Memory is 0 instead of 1073741824"),
        (_set("HostConfig", "MemorySwap", -1), "MemorySwap"),
        (_set("HostConfig", "NanoCpus", 0), "NanoCpus"),
        (_set("HostConfig", "PidsLimit", None), "PidsLimit"),
        (_set("HostConfig", "Ulimits", []), "Ulimits"),
        (_set("HostConfig", "Ulimits", [{"Name": "nofile", "Soft": 1, "Hard": 1}]), "Ulimits"),
        (_set("HostConfig", "RestartPolicy", {"Name": "always", "MaximumRetryCount": 0}), "RestartPolicy"),
        (_set("HostConfig", "LogConfig", {"Type": "none", "Config": {}}), "LogConfig"),
        (_set("HostConfig", "LogConfig", "Config", {"max-file": "3"}), "LogConfig"),
        (_set("HostConfig", "Tmpfs", {"/tmp": "exec,suid"}), "Tmpfs"),
        (_set("HostConfig", "Devices", [{"PathOnHost": "/dev/sda"}]), "Devices"),
        (_set("HostConfig", "Binds", ["/:/host"]), "Binds is ['/:/host']"),
        (_set("HostConfig", "VolumesFrom", ["h-ruth"]), "VolumesFrom"),
        (_set("HostConfig", "GroupAdd", ["0"]), "GroupAdd"),
        (_set("HostConfig", "OomKillDisable", True), "OomKillDisable"),
        (_set("HostConfig", "MaskedPaths", []), "MaskedPaths is empty"),
        (_set("HostConfig", "ReadonlyPaths", None), "ReadonlyPaths is empty"),
        (_set("HostConfig", "Mounts", 0, "Source", "/etc"), "Mounts"),
        (_set("HostConfig", "Mounts", 1, "ReadOnly", False), "Mounts"),
        (_set("HostConfig", "Mounts", 0, "BindOptions", {"Propagation": "rshared"}), "Mounts"),
        (_set("Mounts", 0, "Destination", "/stray"), "Mounts has '/stray'"),
        (_set("Mounts", 1, "RW", True), "Mounts has '/config' writable"),
        (_set("NetworkSettings", "Networks", {"none": {}, "bridge": {}}), "Networks has 'bridge'"),
    ],
)  # fmt: skip
def test_each_weakening_is_named(tamper: Tamper, field: str) -> None:
    inspected = _inspected()
    tamper(inspected)
    assert field in ", ".join(differences(SPEC, inspected))


def test_a_variable_of_the_image_that_is_dropped_must_stay_away() -> None:
    inspected = _inspected()
    assert "LD_PRELOAD" in SPEC.drop_env
    inspected["Config"]["Env"].append("LD_PRELOAD=/evil.so")
    assert list(differences(SPEC, inspected)) == ["Env LD_PRELOAD is set"]


@pytest.mark.parametrize(
    "tamper",
    [
        _swapped,
        _set("HostConfig", "Ulimits", [{"Hard": 4096, "Soft": 4096, "Name": "nofile"}, {"Name": "core"}]),
        _set("HostConfig", "LogConfig", "Config", "labels", "x"),
        _set("HostConfig", "ExtraHosts", None),
        _set("NetworkSettings", "Networks", None),
    ],
    ids=["order", "default-ulimit", "default-log-option", "null", "stopped"],
)
def test_what_weakens_nothing_is_no_difference(tamper: Tamper) -> None:
    inspected = _inspected()
    tamper(inspected)
    assert list(differences(SPEC, inspected)) == []


def test_a_value_that_differs_is_not_printed_when_it_may_be_a_secret() -> None:
    inspected = _inspected()
    inspected["Config"]["Env"] = [
        entry.replace("HIVE_AGENT=bob", "HIVE_AGENT=hunter2") for entry in inspected["Config"]["Env"]
    ]
    assert list(differences(SPEC, inspected)) == ["Env HIVE_AGENT was changed"]


def test_the_container_and_its_fields_are_in_the_sentence() -> None:
    altered = _inspected()
    altered["HostConfig"] |= {"Privileged": True, "Memory": 0}
    check = _judged(Subject(RUTH, SPEC, _inspected()), Subject(BOB, SPEC, altered))
    assert check.status is Finding.FAIL
    assert check.text.startswith("not as made: h-bob: ")
    assert "Privileged" in check.text
    assert "Memory" in check.text
    assert check.hint.endswith("hivectl update bob")


def test_a_flood_of_differences_is_cut() -> None:
    altered = _inspected()
    altered["HostConfig"] = {"PidMode": "\x1b[2J" + "x" * 500}
    check = _judged(Subject(BOB, SPEC, altered))
    assert len(check.text) < 1200
    assert "\x1b" not in check.text
    assert "more" in check.text


def test_a_container_of_an_unknown_spec_is_a_warning_unless_another_is_altered() -> None:
    unknown = Subject(RUTH, None, _inspected())
    assert _judged(unknown).status is Finding.WARN
    altered = _inspected()
    altered["HostConfig"]["Privileged"] = True
    assert _judged(unknown, Subject(BOB, SPEC, altered)).status is Finding.FAIL
    assert _judged().status is Finding.OK
