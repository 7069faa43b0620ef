"""From manifest to container spec.

Called by `engine.config` for every config commit it considers. Pure: paths come in as a `Layout`, the
image as the facts the engine told. The mounts of every agent are the same list from its first day, empty
where nothing fills them yet, so that what fills them later changes no spec.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from hive_core.domain.errors import ImageUnusable
from hive_core.domain.names import AgentName, container_name
from hive_core.domain.observed import ImageFacts
from hive_core.domain.spec import CONFIG, HOME, STATE, BindMount, ContainerSpec, Limits, Propagation
from hive_core.manifest import REFUSED_ENV, Manifest
from hive_core.settings import Container

_PATH = f"{HOME}/.local/bin:/usr/local/bin:/usr/bin:/bin"
_IMAGE_ENV = re.compile(REFUSED_ENV)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where an agent's mount sources are: the agents directory below data, and the run directory."""

    hive_id: str
    agents: PurePosixPath
    run: PurePosixPath

    def mounts(self, agent: AgentName, commit: str) -> tuple[BindMount, ...]:
        """Return every bind mount of an agent's container, config at `commit`."""
        own = self.agents / agent
        return (
            BindMount(STATE, str(own / "state")),
            BindMount(HOME, str(own / "home")),
            BindMount(CONFIG, str(own / "config" / commit), read_only=True),
            BindMount("/etc/passwd", str(own / "etc" / "passwd"), read_only=True),
            BindMount("/etc/group", str(own / "etc" / "group"), read_only=True),
            BindMount("/run/hive", str(self.run / "agents" / agent), read_only=True),
            BindMount("/agents", str(self.run / "grants" / agent), propagation=Propagation.SLAVE),
            BindMount("/meta", str(self.run / "grants" / ".meta" / agent), propagation=Propagation.SLAVE),
            BindMount("/run/hive-secrets", str(self.run / "secrets" / agent), read_only=True),
        )


def build_spec(
    agent: AgentName,
    uid: int,
    manifest: Manifest,
    commit: str,
    image: ImageFacts,
    defaults: Container,
    layout: Layout,
) -> ContainerSpec:
    """Return the spec of an agent at a config commit; `ImageUnusable` for an image that asks too much."""
    section = manifest.container
    if image.volumes:
        raise ImageUnusable(
            f"image {section.image or defaults.image} declares volumes ({', '.join(image.volumes)})",
            "rebuild it without VOLUME: agents keep data in /state",
        )
    env = _environment(agent, layout.hive_id, section.env)
    names = {name for name, _ in env}
    return ContainerSpec(
        name=container_name(layout.hive_id, agent),
        image_id=image.id,
        command=tuple(section.command),
        env=env,
        drop_env=tuple(name for name in image.env_names if _IMAGE_ENV.fullmatch(name) and name not in names),
        uid=uid,
        gid=uid,
        commit=commit,
        mounts=layout.mounts(agent, commit),
        limits=Limits(
            memory_bytes=section.memory or defaults.memory,
            cpus=section.cpus or defaults.cpus,
            pids=section.pids or defaults.pids,
            nofile=defaults.nofile,
            tmp_bytes=section.tmp or defaults.tmp,
            log_bytes=defaults.log,
            log_files=defaults.log_files,
        ),
        network=section.network,
        stop_grace_s=defaults.stop_grace_s,
    )


def _environment(agent: AgentName, hive_id: str, declared: dict[str, str]) -> tuple[tuple[str, str], ...]:
    own = {
        "HIVE_AGENT": agent,
        "HIVE_ID": hive_id,
        "HIVE_SOCKET": "/run/hive/hive.sock",
        "HIVE_STATE": STATE,
        "HOME": HOME,
        "PATH": _PATH,
        "PYTHONUNBUFFERED": "1",
        "GIT_AUTHOR_NAME": agent,
        "GIT_AUTHOR_EMAIL": f"{agent}@{hive_id}.hive.invalid",
        "GIT_COMMITTER_NAME": agent,
        "GIT_COMMITTER_EMAIL": f"{agent}@{hive_id}.hive.invalid",
    }
    return tuple({"LANG": "C.UTF-8", **declared, **own}.items())
