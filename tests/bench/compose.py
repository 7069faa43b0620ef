"""The same containers by docker-compose, to compare with: its file, made from hive's own specs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hive_core.domain.spec import ContainerSpec, normal_form

PROGRAM = "docker-compose"
_LIMIT_S = 600


class Compose:
    """One docker-compose project against one engine."""

    def __init__(self, folder: Path, engine_socket: Path, label: str, specs: Sequence[ContainerSpec]) -> None:
        self._file = folder / "docker-compose.json"
        self._engine_socket = engine_socket
        services = {f"s{number}": _service(spec, label) for number, spec in enumerate(specs)}
        self._file.write_text(json.dumps({"version": "2.4", "services": services}))

    def run(self, *arguments: str) -> None:
        """Run one command of the project to its end."""
        environment = {
            "PATH": os.environ["PATH"],
            "DOCKER_HOST": f"unix://{self._engine_socket}",
            "COMPOSE_PARALLEL_LIMIT": "64",
        }
        command = [PROGRAM, "--project-name", "hivebench", "--file", str(self._file), *arguments]
        subprocess.run(command, check=True, env=environment, capture_output=True, timeout=_LIMIT_S)


def _service(spec: ContainerSpec, label: str) -> dict[str, object]:
    form = normal_form(spec)
    limits = spec.limits
    return {
        "image": form["image"],
        "entrypoint": form["entrypoint"],
        "command": form["command"],
        "user": f"{spec.uid}:{spec.gid}",
        "working_dir": form["working_dir"],
        "environment": dict(spec.env),
        "labels": {label: "1"},
        "network_mode": spec.network,
        "read_only": True,
        "init": True,
        "cap_drop": ["ALL"],
        "security_opt": form["security_opt"],
        "mem_limit": limits.memory_bytes,
        "memswap_limit": limits.memory_bytes,
        "cpus": limits.cpus,
        "pids_limit": limits.pids,
        "ulimits": {"nofile": limits.nofile},
        "tmpfs": [f"/tmp:{form['tmp_options']},size={limits.tmp_bytes},uid={spec.uid},gid={spec.gid}"],
        "restart": "no",
        "volumes": [
            {
                "type": "bind",
                "source": mount.source,
                "target": mount.target,
                "read_only": mount.read_only,
                "bind": {"propagation": mount.propagation.value},
            }
            for mount in spec.mounts
        ],
    }
