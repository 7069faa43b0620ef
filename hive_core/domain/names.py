"""Agent names: the one validator, used for files, arguments, labels, paths and sockets alike.

A name becomes a directory, a container name, a socket path and an environment value, so its alphabet is the
intersection of what all of those take without quoting. Nine characters keep the longest socket path of a
hive below the kernel's 107 bytes.
"""

from __future__ import annotations

import re

from hive_core.domain.errors import InvalidName

MAX_LENGTH = 9
_NAME = re.compile(rf"[a-z][a-z0-9-]{{0,{MAX_LENGTH - 1}}}")
RULE = f"a name is 1 to {MAX_LENGTH} characters: a lower-case letter, then a-z, 0-9 or '-'"

# Words that mean something else where a name is expected: recipients, sentinels, or parts of hive itself.
RESERVED = frozenset(
    {"admin", "agent", "agents", "all", "daemon", "default", "hive", "hived", "hivectl", "meta", "none",
     "null", "operator", "root", "self", "system"}
)  # fmt: skip


class AgentName(str):
    """A valid agent name. Only `parse_name` makes one, so holding it is proof."""

    __slots__ = ()


def parse_name(untrusted_name: object) -> AgentName:
    """Return the name, or raise `InvalidName` saying which rule it breaks."""
    if not isinstance(untrusted_name, str):
        raise InvalidName(f"invalid agent name: expected text, got {type(untrusted_name).__name__}", RULE)
    if not _NAME.fullmatch(untrusted_name):
        shown = ascii(untrusted_name[:40])
        raise InvalidName(f"invalid agent name {shown}", RULE)
    if untrusted_name in RESERVED:
        raise InvalidName(f"invalid agent name '{untrusted_name}': it is reserved", "choose another name")
    return AgentName(untrusted_name)


_HIVE_ID = re.compile(r"[a-z][a-z0-9]{0,11}")


def parse_hive_id(untrusted_id: object) -> str:
    """Return a hive id (it becomes part of container names), or raise `InvalidName`."""
    rule = "1 to 12 characters: a lower-case letter, then a-z or 0-9"
    if not isinstance(untrusted_id, str):
        raise InvalidName(f"invalid hive id: expected text, got {type(untrusted_id).__name__}", rule)
    if not _HIVE_ID.fullmatch(untrusted_id):
        raise InvalidName(f"invalid hive id {untrusted_id[:40]!a}", rule)
    return untrusted_id


def container_name(hive_id: str, agent: AgentName) -> str:
    """Return the deterministic name of the agent's container: `h-bob`, or `h-<hive>-bob`."""
    return f"h-{agent}" if hive_id == "default" else f"h-{hive_id}-{agent}"
