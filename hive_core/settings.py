"""The daemon's own settings: `/etc/hive/hive.toml`, or the file given with `--settings`.

Read once at start by `daemon.main`, and by `hived check`. Every field has a unit in its name or its text, a
default that suits one machine, and the reason it can be changed; `docs/reference/settings.md` is generated
from here.
"""

from __future__ import annotations

import os
import stat
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from hive_core.domain.errors import HiveError, InvalidSettings
from hive_core.domain.names import AgentName, parse_hive_id, parse_name
from hive_core.domain.sizes import MIN_CPUS, parse_size
from hive_core.toml_model import TomlModel, parse_toml, validate

DEFAULT_PATH = Path("/etc/hive/hive.toml")
_MAX_BYTES = 1024 * 1024

# The highest uid is no uid: to the kernel it says "leave the owner as it is".
_UID_LIMIT = 2**32 - 1


def _size(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else value


def _absolute(value: object) -> object:
    path = Path(value) if isinstance(value, str) else value
    if not isinstance(path, Path) or not path.is_absolute() or ".." in path.parts:
        raise ValueError("must be an absolute path without '..'")
    return path


def _owned_error(parse: object) -> BeforeValidator:
    def checked(value: object) -> object:
        try:
            return parse(value)  # type: ignore[operator]  # one of the two parsers below
        except HiveError as fault:
            raise ValueError(f"{fault.message}; {fault.hint}") from None

    return BeforeValidator(checked)


SizeBytes = Annotated[int, BeforeValidator(_size)]
AbsolutePath = Annotated[Path, BeforeValidator(_absolute), PlainSerializer(str)]
HiveId = Annotated[str, _owned_error(parse_hive_id)]
Name = Annotated[str, _owned_error(parse_name), AfterValidator(AgentName)]


class RosterShape(StrEnum):
    """`auto` keeps the shape of the file found at first start, else uses a tree."""

    AUTO = "auto"
    TREE = "tree"
    FLAT = "flat"


class Hive(TomlModel):
    """Which hive this is, and who is at its top."""

    id: HiveId = Field(
        "default",
        description="Name of this hive on its host. Part of container names unless `default`; several "
        "hives on one host need different ids, roots and uid ranges.",
    )
    root_agent: Name = Field(
        AgentName("ruth"),
        description="Name of the agent made from the built-in template when it does not exist.",
    )
    ruthless: bool = Field(
        False, description="True: make no root agent; agents made without a parent are top-level."
    )
    roster_shape: Annotated[RosterShape, Field(strict=False)] = Field(
        RosterShape.AUTO,
        description="How topology.json is written. `flat` knows no parents; a change of shape never loses "
        "stored edges.",
    )


class Paths(TomlModel):
    """Where the hive keeps its things. Everything above these paths must belong to root alone."""

    data: AbsolutePath = Field(
        Path("/var/lib/hive"),
        description="Durable state: store, repos, agents. Needs a file system with id-mapped mounts "
        "(ext4, xfs, btrfs).",
    )
    run: AbsolutePath = Field(
        Path("/run/hive"),
        description="Sockets and live mounts, rebuilt at every boot. Short: the longest socket path below "
        "it must fit 107 bytes.",
    )


class Admin(TomlModel):
    """Who may drive the hive."""

    group: str = Field(
        "hive",
        min_length=1,
        max_length=32,
        description="Members of this group may use the admin socket. They can run code as any agent and "
        "read every agent's state, but are not root on the host.",
    )


class EngineSettings(TomlModel):
    """The container engine."""

    socket: AbsolutePath = Field(Path("/var/run/docker.sock"), description="The engine's Unix socket.")
    call_timeout_s: float = Field(
        10.0,
        ge=1,
        le=120,
        description="Seconds one engine call may take before the engine counts as hung. Higher on slow "
        "disks.",
    )
    event_window_s: float = Field(
        60.0,
        ge=5,
        le=600,
        description="Seconds after which the event stream is renewed; a silent, dead stream is noticed "
        "after this long at the latest.",
    )


class Reconcile(TomlModel):
    """How often the hive looks by itself, and how much it does at once."""

    interval_s: float = Field(
        30.0,
        ge=0.2,
        le=3600,
        description="Seconds between timed passes (10 % jitter). Events wake passes sooner; this is the "
        "safety net when they are lost.",
    )
    start_workers: int = Field(
        4,
        ge=1,
        le=32,
        description="Containers started at once. More only adds latency: a start is CPU work of the engine.",
    )
    stop_workers: int = Field(
        64,
        ge=1,
        le=256,
        description="Containers stopped or removed at once. Stopping is mostly waiting for programs to end: "
        "with fewer, a whole hive goes down in several graces instead of one.",
    )


class Crashes(TomlModel):
    """What happens when an agent's program ends by itself."""

    backoff_initial_s: float = Field(
        1.0,
        ge=0.05,
        le=60,
        description="Seconds before the first restart after a crash; doubles with each further one.",
    )
    backoff_max_s: float = Field(
        300.0, ge=1, le=3600, description="Longest wait between restarts, in seconds."
    )
    stable_s: float = Field(
        60.0, ge=1, le=3600, description="A run at least this long, in seconds, ends a series of crashes."
    )
    loop_count: int = Field(
        5,
        ge=2,
        le=100,
        description="This many crashes within `loop_window_s` make an agent crash-looping: it stays down "
        "until started.",
    )
    loop_window_s: float = Field(
        600.0, ge=10, le=86400, description="The window for `loop_count`, in seconds."
    )


class Uids(TomlModel):
    """The host uids given to agents: one per incarnation, never used twice."""

    start: int = Field(
        1_900_000_000,
        ge=100_000,
        le=4_294_900_000,
        description="First uid of the range. The default is above what useradd and systemd hand out.",
    )
    count: int = Field(
        65_536,
        ge=16,
        le=1_000_000,
        description="Size of the range: how many incarnations this hive can ever have.",
    )
    reserve: bool = Field(
        True,
        description="Reserve the range in /etc/subuid and /etc/subgid, so that no other tool hands it "
        "out. False only for throw-away hives.",
    )

    @model_validator(mode="after")
    def _within_range(self) -> Uids:
        if self.start + self.count > _UID_LIMIT:
            raise ValueError(f"start + count must be at most {_UID_LIMIT}: the kernel has no uid beyond it")
        return self


class Git(TomlModel):
    """Git on config repos runs as a user of its own, so that a bad repo harms nothing else."""

    user: str = Field(
        "hive-git",
        min_length=1,
        max_length=32,
        description="System user that every git process on a config repo runs as.",
    )
    timeout_s: float = Field(10.0, ge=1, le=300, description="Seconds one git process may take.")


class Disk(TomlModel):
    """How much disk agents may fill, and what is kept for the hive itself."""

    budget: SizeBytes = Field(
        10 * 1024**3,
        ge=1024**2,
        description="What one agent's state and home may hold together; over it the agent is stopped.",
    )
    budget_inodes: int = Field(
        1_000_000,
        ge=100,
        description="Files one agent's state and home may hold; over it the agent is stopped.",
    )
    low_water: SizeBytes = Field(
        1024**3,
        ge=0,
        description="With less than this free on the host, no agent is made, spawned or pushed to.",
    )
    low_water_inodes: int = Field(10_000, ge=0, description="The same, for free inodes.")
    interval_s: float = Field(
        60.0, ge=1, le=86_400, description="Seconds between measurements of what agents hold."
    )


class AuditSettings(TomlModel):
    """How much of the audit log is kept."""

    keep_segments: int = Field(
        250,
        ge=2,
        le=100_000,
        description="Segments of 4 MiB that are kept; with a new one the oldest goes. `hivectl audit verify` "
        "says with which record the log then begins.",
    )


class Container(TomlModel):
    """Defaults for containers; a manifest may set image, memory, cpus, pids and tmp itself."""

    image: str = Field(
        "hive-agent:latest",
        min_length=1,
        max_length=255,
        description="Image of agents whose manifest names none.",
    )
    memory: SizeBytes = Field(1024**3, ge=16 * 1024**2, description="Memory limit (no swap on top).")
    cpus: float = Field(1.0, ge=MIN_CPUS, le=1024, description="CPU limit, in cores.")
    pids: int = Field(256, ge=16, le=65_536, description="Process limit.")
    nofile: int = Field(4096, ge=64, le=1_048_576, description="Open files limit.")
    tmp: SizeBytes = Field(256 * 1024**2, ge=1024**2, description="Size of /tmp.")
    log: SizeBytes = Field(10 * 1024**2, ge=64 * 1024, description="Size of one log file.")
    log_files: int = Field(3, ge=1, le=20, description="Log files kept per container.")
    stop_grace_s: int = Field(
        10, ge=0, le=3600, description="Seconds between SIGTERM and SIGKILL when an agent is stopped."
    )


class Settings(TomlModel):
    """All settings; every table may be left out."""

    hive: Hive = Hive()
    paths: Paths = Paths()
    admin: Admin = Admin()
    engine: EngineSettings = EngineSettings()
    reconcile: Reconcile = Reconcile()
    crashes: Crashes = Crashes()
    uids: Uids = Uids()
    git: Git = Git()
    disk: Disk = Disk()
    audit: AuditSettings = AuditSettings()
    container: Container = Container()


def parse_settings(untrusted_text: str, origin: str = "settings") -> Settings:
    """Return the settings written in TOML text, or raise `InvalidSettings` naming the key at fault."""
    document = parse_toml(untrusted_text, origin, InvalidSettings)
    return validate(Settings, document, origin, InvalidSettings)


def _read_trusted(path: Path) -> str:
    """Return the text of a file that only root, or whoever runs this, can write; never waits on a FIFO.

    The settings name the engine's socket and the account git runs as: their author is as good as root.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise InvalidSettings(f"settings file {path} is no regular file", "check --settings")
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise InvalidSettings(
                f"settings file {path} can be written by others", f"chown root {path} && chmod go-w {path}"
            )
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise InvalidSettings(f"settings file {path} is larger than {_MAX_BYTES} bytes", "check --settings")
    return content.decode("utf-8")


def load_settings(path: Path | None) -> Settings:
    """Read the settings file. Without a path the default one is read if it exists, else defaults apply."""
    chosen = path or DEFAULT_PATH
    try:
        text = _read_trusted(chosen)
    except FileNotFoundError:
        if path is None:
            return Settings()
        raise InvalidSettings(f"settings file {path} does not exist", "check --settings") from None
    except (OSError, UnicodeDecodeError) as fault:
        raise InvalidSettings(f"cannot read settings file {chosen}: {fault}") from None
    return parse_settings(text, str(chosen))
