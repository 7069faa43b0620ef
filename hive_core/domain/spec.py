"""The container spec: everything about an agent's container that is decided before it is created.

Planning builds one, the engine adapter creates from it, the store keeps it whole, and its hash rides in a
label so that one engine list tells whether a running container is the declared one. All three use
`normal_form`, so there is nothing to hash that is not also created, and nothing created that is not hashed.

Order never matters: environment and mounts are sets by nature and are sorted here, once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

VERSION = "v1"

LABEL_HIVE = "dev.hive.id"
LABEL_AGENT = "dev.hive.agent"
LABEL_INCARNATION = "dev.hive.incarnation"
LABEL_SPEC = "dev.hive.spec"
LABEL_CREATE = "dev.hive.create"
LABEL_RESCUE = "dev.hive.rescue"

HARNESS = "/usr/local/bin/hive-agent"
HOME = "/home/agent"
STATE = "/state"
CONFIG = "/config"


class Propagation(StrEnum):
    """How mounts made later on the host reach the container: not at all, or live."""

    PRIVATE = "rprivate"
    SLAVE = "rslave"


@dataclass(frozen=True, slots=True, order=True)
class BindMount:
    """One host path at one container path.

    `source` is absolute and resolved; it is checked again before every create and start.
    """

    target: str
    source: str
    read_only: bool = False
    propagation: Propagation = Propagation.PRIVATE


@dataclass(frozen=True, slots=True)
class Limits:
    """What a container may use at most. Memory and swap are one number: there is no extra swap.

    `cpus` is kept in whole billionths, the engine's unit, so that equal hashes are equal specs.
    """

    memory_bytes: int
    cpus: float
    pids: int
    nofile: int
    tmp_bytes: int
    log_bytes: int
    log_files: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "cpus", round(self.cpus * 1e9) / 1e9)


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """The container of one agent, complete.

    `env` is sorted pairs; `drop_env` are names the image sets that must not arrive. `command` is what the
    harness runs. `commit` is the config commit mounted at /config. Fields that are the same for every
    agent of every hive (dropped capabilities, read-only root, no restarts by the engine, ...) are not
    choices and live in `FIXED`, inside the hash all the same.
    """

    name: str
    image_id: str
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    drop_env: tuple[str, ...]
    uid: int
    gid: int
    commit: str
    mounts: tuple[BindMount, ...]
    limits: Limits
    network: str = "none"
    stop_grace_s: int = 10

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", tuple(sorted(self.env)))
        object.__setattr__(self, "drop_env", tuple(sorted(self.drop_env)))
        object.__setattr__(self, "mounts", tuple(sorted(self.mounts)))


FIXED: Mapping[str, Any] = {
    "cap_drop": ["ALL"],
    "cgroupns": "private",
    "entrypoint": [HARNESS],
    "init": True,
    "ipc": "private",
    "log_driver": "json-file",
    "read_only_root": True,
    "restart": "no",
    "security_opt": ["no-new-privileges"],
    "tmp_options": "rw,exec,nosuid,nodev",
    "working_dir": STATE,
}


def normal_form(spec: ContainerSpec) -> dict[str, Any]:
    """Return the spec as plain JSON values, the only input of both `spec_hash` and the engine adapter."""
    limits = spec.limits
    return {
        **FIXED,
        "command": list(spec.command),
        "commit": spec.commit,
        "cpus_nano": round(limits.cpus * 1e9),
        "drop_env": list(spec.drop_env),
        "env": [list(pair) for pair in spec.env],
        "gid": spec.gid,
        "image": spec.image_id,
        "log_bytes": limits.log_bytes,
        "log_files": limits.log_files,
        "memory_bytes": limits.memory_bytes,
        "mounts": [
            {
                "propagation": mount.propagation.value,
                "read_only": mount.read_only,
                "source": mount.source,
                "target": mount.target,
            }
            for mount in spec.mounts
        ],
        "name": spec.name,
        "network": spec.network,
        "nofile": limits.nofile,
        "pids": limits.pids,
        "stop_grace_s": spec.stop_grace_s,
        "tmp_bytes": limits.tmp_bytes,
        "uid": spec.uid,
    }


def spec_hash(spec: ContainerSpec) -> str:
    """Return `v1:<sha256 of the normal form>`, the value of the `dev.hive.spec` label."""
    canonical = json.dumps(normal_form(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"{VERSION}:{hashlib.sha256(canonical.encode('ascii')).hexdigest()}"


def is_known_version(label: str) -> bool:
    """Whether a spec label was written by a version whose hash this daemon can compute."""
    return label.split(":", 1)[0] == VERSION


def dump(spec: ContainerSpec) -> str:
    """Return the spec as JSON text for the store."""
    return json.dumps(normal_form(spec), sort_keys=True)


def load(text: str) -> ContainerSpec:
    """Return the spec that `dump` wrote. Values of `FIXED` are this version's, not the stored ones."""
    stored = json.loads(text)
    return ContainerSpec(
        name=stored["name"],
        image_id=stored["image"],
        command=tuple(stored["command"]),
        env=tuple((key, value) for key, value in stored["env"]),
        drop_env=tuple(stored["drop_env"]),
        uid=stored["uid"],
        gid=stored["gid"],
        commit=stored["commit"],
        mounts=tuple(
            BindMount(
                target=mount["target"],
                source=mount["source"],
                read_only=mount["read_only"],
                propagation=Propagation(mount["propagation"]),
            )
            for mount in stored["mounts"]
        ),
        limits=Limits(
            memory_bytes=stored["memory_bytes"],
            cpus=stored["cpus_nano"] / 1e9,
            pids=stored["pids"],
            nofile=stored["nofile"],
            tmp_bytes=stored["tmp_bytes"],
            log_bytes=stored["log_bytes"],
            log_files=stored["log_files"],
        ),
        network=stored["network"],
        stop_grace_s=stored["stop_grace_s"],
    )


def differing_fields(old: ContainerSpec, new: ContainerSpec) -> tuple[str, ...]:
    """Return the names of the normal form's fields that differ, sorted.

    The mount of the config follows from the commit, so it alone is no difference of its own.
    """
    before, after = normal_form(old), normal_form(new)
    found = {key for key in after if before.get(key) != after[key]}
    if "commit" in found and _without_config(old) == _without_config(new):
        found.discard("mounts")
    return tuple(sorted(found))


def _without_config(spec: ContainerSpec) -> tuple[BindMount, ...]:
    return tuple(mount for mount in spec.mounts if mount.target != CONFIG)
