"""The engine's JSON answers as observed values.

Used by the Docker adapter; pure, so that a list of hundreds of containers costs next to nothing. Anything
that does not have the documented shape raises ValueError, KeyError or TypeError, which the adapter reports as
an engine whose answer makes no sense.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hive_core.domain.observed import (
    ContainerDetail,
    EngineEvent,
    EngineState,
    EngineVersion,
    ImageFacts,
    ListedContainer,
)
from hive_core.domain.spec import LABEL_HIVE

# Not "oom": an agent can have its children killed many times a second; if it ends of that, "die" says so.
CONTAINER_ACTIONS = frozenset(
    {"create", "destroy", "die", "kill", "pause", "rename", "restart", "start", "stop", "unpause",
     "update"}
)  # fmt: skip
IMAGE_ACTIONS = frozenset({"delete", "import", "load", "pull", "tag", "untag"})
LIMITS = {"memory": "MemoryLimit", "swap": "SwapLimit", "processes": "PidsLimit", "cpus": "CpuCfsQuota"}
_NEVER = "0001-01-01"  # the engine's way to say that something has not happened


def listed_container(row: Mapping[str, Any]) -> ListedContainer:
    """Return one row of the container list."""
    return ListedContainer(
        id=row["Id"],
        name=_own_name(row.get("Names") or ()),
        state=EngineState(row["State"]),
        status=row["Status"],
        labels=row.get("Labels") or {},
        image_id=row["ImageID"],
    )


def _own_name(names: list[str] | tuple[str, ...]) -> str:
    """A linked container is listed under "/other/alias" too; one that is just going has no name left."""
    for name in names:
        if name.count("/") == 1:
            return name[1:]
    return ""


def container_detail(inspected: Mapping[str, Any]) -> ContainerDetail:
    """Return what an inspect tells."""
    state = inspected["State"]
    return ContainerDetail(
        id=inspected["Id"],
        name=inspected["Name"].removeprefix("/"),
        state=EngineState(state["Status"]),
        labels=inspected["Config"].get("Labels") or {},
        created_at=datetime.fromisoformat(inspected["Created"]).astimezone(UTC),
        started_at=_time(state["StartedAt"]),
        finished_at=_time(state["FinishedAt"]),
        exit_code=state["ExitCode"],
        oom_killed=state["OOMKilled"],
        error=state["Error"],
        restart_policy=inspected["HostConfig"]["RestartPolicy"]["Name"] or "no",
        pid=state["Pid"],
    )


def _time(text: str) -> datetime | None:
    return None if text.startswith(_NEVER) else datetime.fromisoformat(text).astimezone(UTC)


def image_facts(inspected: Mapping[str, Any]) -> ImageFacts:
    """Return what an image is and would add to a container."""
    config = inspected.get("Config") or {}
    names = (entry.partition("=")[0] for entry in config.get("Env") or ())
    return ImageFacts(
        id=inspected["Id"], env_names=tuple(sorted(names)), volumes=tuple(sorted(config.get("Volumes") or ()))
    )


def is_id_prefix(reference: str, inspected: Mapping[str, Any]) -> bool:
    """Whether the engine took a name nobody has for the first digits of this image's id."""
    digits = inspected["Id"].removeprefix("sha256:")
    tags = inspected.get("RepoTags") or ()
    asked = reference.removeprefix("sha256:")
    return len(asked) < len(digits) and digits.startswith(asked) and f"{reference}:latest" not in tags


def engine_version(version: Mapping[str, Any], summary: Mapping[str, Any]) -> EngineVersion:
    """Return what the engine is, from its version and its system summary."""
    components = {part["Name"]: part for part in version.get("Components") or ()}
    runtime = components.get("runc") or components.get("crun") or {}
    said_at = summary.get("SystemTime") or ""
    return EngineVersion(
        engine=version["Version"],
        api=version["ApiVersion"],
        runtime=runtime.get("Version") or "",
        runtime_build=(runtime.get("Details") or {}).get("GitCommit") or "",
        default_runtime=summary.get("DefaultRuntime") or "",
        live_restore=bool(summary.get("LiveRestoreEnabled")),
        security_options=tuple(summary.get("SecurityOptions") or ()),
        cgroup_version=summary.get("CgroupVersion") or "",
        missing_limits=tuple(word for word, key in LIMITS.items() if summary.get(key) is False),
        storage_driver=summary.get("Driver") or "",
        root_dir=summary.get("DockerRootDir") or "",
        kernel=summary.get("KernelVersion") or "",
        time=_time(said_at) if said_at else None,
    )


def engine_event(message: Mapping[str, Any], hive_id: str) -> EngineEvent | None:
    """Return an event about this hive's containers or about an image, None for any other."""
    kind, action, actor = message.get("Type"), message.get("Action"), message.get("Actor") or {}
    is_ours = (actor.get("Attributes") or {}).get(LABEL_HIVE) == hive_id
    if kind == "container" and action in CONTAINER_ACTIONS and is_ours:
        return EngineEvent(kind, action, actor["ID"])
    if kind == "image" and action in IMAGE_ACTIONS:
        return EngineEvent(kind, action, actor["ID"])
    return None
