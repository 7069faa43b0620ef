"""Checks of the containers that exist: each is still what its spec says.

Called by `engine.doctor`; pure, over recorded specs and the engine's inspect. A container can be changed
behind hive's back (docker update, an edited file of a stopped engine), and its label would still say the old
hash: so every field that was sent at its creation is compared, and whatever else would weaken it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hive_core.adapters.docker_body import create_body
from hive_core.domain.agents import AgentRecord
from hive_core.domain.names import AgentName
from hive_core.domain.spec import LABEL_SPEC, ContainerSpec, spec_hash
from hive_core.engine.checks import Check, CheckName, fail, ok, warn

_SHOWN_DIFFERENCES = 6
_SHOWN_VALUE = 60
# Compared by other means, or not the container's alone: the engine merges the image's own into them.
_APART = frozenset({"HostConfig", "Env", "Labels", "Image", "NetworkDisabled", "Hostname"})
# What hive never sends. A value here is a way out of the container, or into somebody else's.
_NEVER_SET = (
    "Binds",
    "CapAdd",
    "Cgroup",
    "CgroupParent",
    "DeviceCgroupRules",
    "DeviceRequests",
    "Devices",
    "ExtraHosts",
    "GroupAdd",
    "Links",
    "OomKillDisable",
    "OomScoreAdj",
    "PidMode",
    "PortBindings",
    "PublishAllPorts",
    "StorageOpt",
    "Sysctls",
    "UTSMode",
    "UsernsMode",
    "VolumeDriver",
    "VolumesFrom",
)
# The engine fills these in; an empty one shows the container what the others hide.
_ALWAYS_SET = ("MaskedPaths", "ReadonlyPaths")


@dataclass(frozen=True, slots=True)
class Subject:
    """An agent's container: the engine's account of it, and the spec it was made from, None if unknown."""

    agent: AgentName
    spec: ContainerSpec | None
    inspected: Mapping[str, Any]


def spec_of(record: AgentRecord, inspected: Mapping[str, Any]) -> ContainerSpec | None:
    """Return which of an agent's recorded specs its container was made from, by the label."""
    label = (inspected["Config"].get("Labels") or {}).get(LABEL_SPEC)
    if record.applied is not None and label == record.applied_hash:
        return record.applied
    if record.previous is not None and label == spec_hash(record.previous):
        return record.previous
    return None


def containers(subjects: Sequence[Subject]) -> Check:
    """Judge every container at once: one that differs is named with the fields."""
    name = CheckName.CONTAINERS
    found = [(one, tuple(differences(one.spec, one.inspected))) for one in subjects if one.spec is not None]
    altered = [(one, fields) for one, fields in found if fields]
    if altered:
        text = "; ".join(f"{_shown_name(one)}: {_shortened(fields)}" for one, fields in altered)
        names = " ".join(one.agent for one, _ in altered)
        return fail(name, f"not as made: {text}", f"find out who changed it, then: hivectl update {names}")
    unknown = [one for one in subjects if one.spec is None]
    if unknown:
        shown = ", ".join(_shown_name(one) for one in unknown)
        text = f"made from a spec that is no longer recorded, so not compared: {shown}"
        return warn(name, text, f"hivectl update {' '.join(one.agent for one in unknown)}")
    return ok(name, f"all containers are as they were made ({len(subjects)})")


def _shown_name(subject: Subject) -> str:
    return str(subject.inspected["Name"]).removeprefix("/")


def _shortened(fields: Sequence[str]) -> str:
    more = len(fields) - _SHOWN_DIFFERENCES
    return ", ".join(fields[:_SHOWN_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")


def differences(spec: ContainerSpec, inspected: Mapping[str, Any]) -> Iterator[str]:
    """Yield in words each field of a container that is not what its spec makes it."""
    config, host = inspected["Config"], inspected["HostConfig"]
    wanted = create_body(spec, config.get("Labels") or {})
    for key in sorted(wanted.keys() - _APART):
        yield from _unequal(key, wanted[key], config.get(key))
    yield from _unequal("Image", spec.image_id, inspected["Image"])
    yield from _environment(spec, config.get("Env") or ())
    for key, value in sorted(wanted["HostConfig"].items()):
        yield from _unequal(
            key, _plain(key, value), _plain(key, _without_defaults(key, value, host.get(key)))
        )
    for key in _NEVER_SET:
        if host.get(key):
            yield f"{key} is {_value(host[key])}"
    for key in _ALWAYS_SET:
        if not host.get(key):
            yield f"{key} is empty"
    yield from _seen_from_inside(spec, inspected)


def _unequal(key: str, wanted: object, found: object) -> Iterator[str]:
    if wanted != found and (wanted or found):
        yield f"{key} is {_value(found)} instead of {_value(wanted)}"


def _value(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}…"


def _without_defaults(key: str, wanted: Any, found: Any) -> Any:
    """Leave out what the engine adds to a container's own from its configuration; it widens nothing."""
    if key == "Ulimits":
        names = {one["Name"] for one in wanted}
        return [one for one in found or () if one["Name"] in names]
    if key == "LogConfig" and found:
        options = found.get("Config") or {}
        return {**found, "Config": {name: options[name] for name in wanted["Config"] if name in options}}
    return found


def _plain(key: str, value: Any) -> object:
    """Return a value of the host config in a form that compares: lists whose order means nothing sorted."""
    if key == "Mounts":
        return sorted(_mount(one) for one in value or ())
    if key in ("Ulimits", "CapDrop", "SecurityOpt"):
        return sorted(map(str, map(_sorted_pairs, value or ())))
    return value


def _sorted_pairs(value: object) -> object:
    return sorted(value.items()) if isinstance(value, dict) else value


def _mount(mount: Mapping[str, Any]) -> tuple[str, str, str, bool, str]:
    propagation = (mount.get("BindOptions") or {}).get("Propagation") or "rprivate"
    return mount["Target"], mount["Type"], mount["Source"], bool(mount.get("ReadOnly")), propagation


def _environment(spec: ContainerSpec, found: Sequence[str]) -> Iterator[str]:
    """The image adds variables of its own; ours have to be there, and those we drop must not."""
    pairs = dict(entry.partition("=")[::2] for entry in found)
    ours = dict(spec.env)
    # The names alone: values are not for a report.
    yield from (f"Env {key} was changed" for key, value in ours.items() if pairs.get(key) != value)
    dropped = (key for key in spec.drop_env if key in pairs and key not in ours)
    yield from (f"Env {key} is set" for key in dropped)


def _seen_from_inside(spec: ContainerSpec, inspected: Mapping[str, Any]) -> Iterator[str]:
    """Compare what is really mounted and connected, which need not be what was asked for."""
    wanted = {mount.target: mount for mount in spec.mounts}
    for mount in inspected.get("Mounts") or ():
        target = mount.get("Destination")
        if mount.get("Type") == "tmpfs":
            continue
        if target not in wanted:
            yield f"Mounts has {_value(target)}"
        elif mount.get("RW") and wanted[target].read_only:
            yield f"Mounts has {_value(target)} writable"
    networks = (inspected.get("NetworkSettings") or {}).get("Networks") or {}
    yield from (f"Networks has {_value(one)}" for one in sorted(networks) if one != spec.network)
