"""The body of a create call: a container spec in the engine's words.

Used by the Docker adapter. It reads `spec.normal_form` only, the same values that are hashed into the
container's label, so what is created and what is compared can never differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hive_core.domain.spec import LABEL_AGENT, ContainerSpec, normal_form


def create_body(spec: ContainerSpec, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON body that creates this container with these labels."""
    form = normal_form(spec)
    return {
        "Image": form["image"],
        "Hostname": labels.get(LABEL_AGENT, ""),
        "User": f"{form['uid']}:{form['gid']}",
        "WorkingDir": form["working_dir"],
        "Entrypoint": form["entrypoint"],
        "Cmd": form["command"],
        "Env": _environment(form),
        "Labels": dict(labels),
        # Left out, the image's own would count: the engine would run its check, and stop by its signal.
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGTERM",
        "StopTimeout": form["stop_grace_s"],
        "Tty": False,
        "OpenStdin": False,
        "NetworkDisabled": False,
        "HostConfig": _host_config(form),
    }


def _environment(form: Mapping[str, Any]) -> list[str]:
    """A bare name takes a variable of the image away; one that is also set here is simply set."""
    pairs = dict(form["env"])
    dropped = [name for name in form["drop_env"] if name not in pairs]
    return [f"{name}={value}" for name, value in pairs.items()] + dropped


def _host_config(form: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "Mounts": [_mount(mount) for mount in form["mounts"]],
        "Tmpfs": {"/tmp": _tmp_options(form)},
        "Init": form["init"],
        "ReadonlyRootfs": form["read_only_root"],
        "CapDrop": form["cap_drop"],
        "SecurityOpt": form["security_opt"],
        "NetworkMode": form["network"],
        "IpcMode": form["ipc"],
        "CgroupnsMode": form["cgroupns"],
        "RestartPolicy": {"Name": form["restart"], "MaximumRetryCount": 0},
        "Memory": form["memory_bytes"],
        "MemorySwap": form["memory_bytes"],
        "NanoCpus": form["cpus_nano"],
        "PidsLimit": form["pids"],
        "Ulimits": [{"Name": "nofile", "Soft": form["nofile"], "Hard": form["nofile"]}],
        "LogConfig": {
            "Type": form["log_driver"],
            "Config": {"max-size": str(form["log_bytes"]), "max-file": str(form["log_files"])},
        },
        "Privileged": False,
        "AutoRemove": False,
    }


def _mount(mount: Mapping[str, Any]) -> dict[str, Any]:
    """A mount with no source has to fail; a "Binds" entry would make a directory of root's instead."""
    return {
        "Type": "bind",
        "Source": mount["source"],
        "Target": mount["target"],
        "ReadOnly": mount["read_only"],
        "BindOptions": {"Propagation": mount["propagation"]},
    }


def _tmp_options(form: Mapping[str, Any]) -> str:
    """Where the image's own /tmp is 0755 the engine ignores the mode: the owner makes it writable there."""
    return f"{form['tmp_options']},size={form['tmp_bytes']},uid={form['uid']},gid={form['gid']},mode=1777"
