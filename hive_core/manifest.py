"""The manifest: `agent.toml` at the top of an agent's config repo.

Parsed whenever a config commit is considered. It is written by whoever may push config, in time by agents,
so it is untrusted: it can ask for a program, an image and limits, and for nothing that widens authority. A
capability named anywhere in it is refused outright, because a reader might take it for granted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from hive_core.domain.errors import HiveError, InvalidManifest
from hive_core.domain.names import AgentName, parse_name
from hive_core.domain.operations import Capability
from hive_core.domain.sizes import MIN_CPUS, parse_size
from hive_core.toml_model import TomlModel, parse_toml, validate

FILE_NAME = "agent.toml"
MAX_BYTES = 64 * 1024
_MAX_DOTS = 200
_MAX_DEPTH = 16

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:@-]{0,254}")
# Environment the harness, the loader or git act on before the agent's program does.
REFUSED_ENV = re.compile(
    r"(HIVE_.*|LD_.*|GLIBC_TUNABLES|DOCKER_.*|PYTHON.*|GIT_.*|BASH_ENV|ENV|HOME|PATH|USER"
    r"|NODE_OPTIONS|PERL5.*|RUBYOPT)"
)
_CAPABILITY_WORDS = frozenset({"capability", "capabilities", "grant", "grants", "caps"})
_CAPABILITY_NAMES = frozenset(capability.value.lower() for capability in Capability)


def _size(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be text like '256m'")
    return parse_size(value)


Size = Annotated[int, BeforeValidator(_size)]


class ContainerSection(TomlModel):
    """`[container]`: what runs and how much it may use. What is left out takes the hive's default."""

    image: str | None = Field(
        None, description="Image reference known to the engine, as in `hive-agent:latest`."
    )
    command: list[str] = Field(
        min_length=1,
        max_length=256,
        description="Program and arguments, run by the harness in /state.",
    )
    memory: Size | None = Field(None, ge=16 * 1024**2, le=1024**4, description="Memory limit, as in `512m`.")
    cpus: float | None = Field(None, ge=MIN_CPUS, le=1024, description="CPU limit in cores, as in `0.5`.")
    pids: int | None = Field(None, ge=16, le=65_536, description="Process limit.")
    tmp: Size | None = Field(None, ge=1024**2, le=64 * 1024**3, description="Size of /tmp, as in `64m`.")
    network: str = Field("none", description="`none`: no network but loopback.")
    env: dict[str, str] = Field(
        default_factory=dict,
        max_length=64,
        description="Extra environment. Never a place for secrets: "
        "it can be read by anybody who can inspect the container.",
    )

    @field_validator("command")
    @classmethod
    def _plain_arguments(cls, command: list[str]) -> list[str]:
        if not command[0]:
            raise ValueError("the program is empty")
        if any("\0" in part or len(part) > 4096 for part in command):
            raise ValueError("an argument holds a NUL byte or is longer than 4096 characters")
        return command

    @field_validator("image")
    @classmethod
    def _plain_image(cls, image: str | None) -> str | None:
        # The reference becomes a part of a path in the engine's API, where ".." would lead elsewhere.
        if image is not None and (not _IMAGE.fullmatch(image) or ".." in image or "//" in image):
            raise ValueError(f"{image[:60]!a} is no image reference")
        return image

    @field_validator("cpus", mode="before")
    @classmethod
    def _whole_cpus(cls, cpus: object) -> object:
        try:
            return float(cpus) if type(cpus) is int else cpus
        except OverflowError:
            raise ValueError("is too large") from None

    @field_validator("network")
    @classmethod
    def _known_network(cls, network: str) -> str:
        if network == "egress":
            raise ValueError("'egress' is not available yet; only 'none' is")
        if network != "none":
            raise ValueError(f"{network[:40]!a} is not a network a manifest can ask for; only 'none' is")
        return network

    @field_validator("env")
    @classmethod
    def _plain_env(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not _ENV_NAME.fullmatch(name):
                raise ValueError(f"{name[:40]!a} is no environment name")
            if REFUSED_ENV.fullmatch(name):
                raise ValueError(
                    f"{name} is set by hive or changes how programs are loaded; use another name"
                )
            if "\0" in value or len(value) > 8192:
                raise ValueError(f"the value of {name} holds a NUL byte or is longer than 8192 characters")
        return env


class Manifest(TomlModel):
    """An agent's declared configuration."""

    name: str = Field(description="The agent's name; must be the name of its config repo.")
    description: str = Field("", max_length=500, description="One line for people.")
    container: ContainerSection = Field(description="What runs, and with which limits.")


def parse_manifest(untrusted_content: bytes, agent: AgentName) -> Manifest:
    """Return the manifest of `agent`, or raise `InvalidManifest` naming the key at fault."""
    if len(untrusted_content) > MAX_BYTES:
        raise InvalidManifest(f"{FILE_NAME}: larger than {MAX_BYTES} bytes")
    try:
        text = untrusted_content.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidManifest(f"{FILE_NAME}: not UTF-8") from None
    _refuse_long_keys(text)
    document = parse_toml(text, FILE_NAME, InvalidManifest)
    _refuse_capabilities(document)
    manifest = validate(Manifest, document, FILE_NAME, InvalidManifest)
    try:
        declared = parse_name(manifest.name)
    except HiveError as fault:
        raise InvalidManifest(f"{FILE_NAME}: 'name': {fault.message}", fault.hint) from None
    if declared != agent:
        raise InvalidManifest(
            f"{FILE_NAME}: 'name' is '{declared}' in the config repo of '{agent}'", f'set name = "{agent}"'
        )
    return manifest


def _refuse_long_keys(untrusted_text: str) -> None:
    """Refuse keys like `a.a.a...` before the parser, which takes minutes for one of 64 KiB.

    A key cannot go over a line's end, so dots in a line bound the length of the keys in it.
    """
    if any(line.count(".") > _MAX_DOTS for line in untrusted_text.split("\n")):
        raise InvalidManifest(
            f"{FILE_NAME}: a line has more than {_MAX_DOTS} dots", "break it up, or move it to a file"
        )


def _refuse_capabilities(document: dict[str, Any]) -> None:
    for path, word in _words(document, ()):
        if word.lower() in _CAPABILITY_NAMES or (
            path and path[-1] == word and word.lower() in _CAPABILITY_WORDS
        ):
            where = ascii(".".join(path))[1:-1][:80]
            raise InvalidManifest(
                f"{FILE_NAME}: '{where}' names a capability",
                "no config can ask for a capability; only the operator grants one",
            )


def _words(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every key (as the last part of its own path) and every text value with where it stands."""
    if len(path) > _MAX_DEPTH:
        raise InvalidManifest(f"{FILE_NAME}: tables are nested more than {_MAX_DEPTH} deep")
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key), key
            yield from _words(inner, (*path, key))
    elif isinstance(value, list):
        for inner in value:
            yield from _words(inner, path)
    elif isinstance(value, str):
        yield path, value
