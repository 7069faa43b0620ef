"""The roster: which agents this hive has and who is whose parent.

The one reader and the one writer of `topology.json`. The file is a permission boundary, so the reader is
strict where `json` is lenient: a duplicate key would give one name two parents depending on who reads it.
Its result is present, absent or unreadable; callers must not treat the last two as an empty hive.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, assert_never

from hive_core.domain.errors import InvalidName, InvalidRoster
from hive_core.domain.names import AgentName, parse_name

MAX_BYTES = 1024 * 1024
_MAX_DEPTH = 1


class Shape(StrEnum):
    """How a roster is written: `tree` is a map of name to parent, `flat` an array without parents."""

    TREE = "tree"
    FLAT = "flat"


@dataclass(frozen=True, slots=True)
class Roster:
    """Names and their parents. Cannot exist with a cycle, a self-parent or an unknown parent.

    `parents` maps each name to its parent or None, in name order.
    """

    shape: Shape
    parents: Mapping[AgentName, AgentName | None]

    def __post_init__(self) -> None:
        ordered = dict(sorted(self.parents.items()))
        for name, parent in ordered.items():
            if parent is not None and parent not in ordered:
                raise InvalidRoster(f"roster: parent '{parent}' of '{name}' is not in the roster")
        _refuse_cycles(ordered)
        object.__setattr__(self, "parents", MappingProxyType(ordered))

    def __iter__(self) -> Iterator[AgentName]:
        return iter(self.parents)

    def __len__(self) -> int:
        return len(self.parents)

    def __contains__(self, name: object) -> bool:
        return name in self.parents

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Roster)
            and self.shape is other.shape
            and dict(self.parents) == dict(other.parents)
        )

    def __hash__(self) -> int:
        return hash((self.shape, tuple(self.parents.items())))

    def parent(self, name: AgentName) -> AgentName | None:
        """Return the parent of a name, None for a top-level or unknown one."""
        return self.parents.get(name)

    def ancestors(self, name: AgentName) -> tuple[AgentName, ...]:
        """Return the parent, its parent and so on, nearest first."""
        chain: list[AgentName] = []
        above = self.parents.get(name)
        while above is not None:
            chain.append(above)
            above = self.parents.get(above)
        return tuple(chain)

    def children(self, name: AgentName) -> tuple[AgentName, ...]:
        """Return the direct children in name order."""
        return tuple(child for child, parent in self.parents.items() if parent == name)

    def subtree(self, name: AgentName) -> frozenset[AgentName]:
        """Return a name and everything below it; empty when the name is not in the roster.

        In a flat hive nobody is below anybody, so it is the name alone.
        """
        if name not in self.parents:
            return frozenset()
        return frozenset(other for other in self.parents if other == name or name in self.ancestors(other))


def _refuse_cycles(parents: Mapping[AgentName, AgentName | None]) -> None:
    """Raise for the first name that is its own ancestor; linear, since a file may hold one long chain."""
    cleared: set[AgentName] = set()
    for start in parents:
        chain: set[AgentName] = set()
        name: AgentName | None = start
        while name is not None and name not in cleared:
            if name in chain:
                raise InvalidRoster(f"roster: '{name}' is its own ancestor")
            chain.add(name)
            name = parents[name]
        cleared |= chain


EMPTY = Roster(Shape.TREE, {})


@dataclass(frozen=True, slots=True)
class Present:
    """A roster file that could be read: its roster, its exact bytes, and what was repaired while reading."""

    roster: Roster
    content: bytes
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no roster file."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A roster file exists but says nothing that can be relied on; `reason` names the fault."""

    reason: str


RosterFile = Present | Absent | Unreadable


def state_word(found: RosterFile) -> str:
    """Return `present`, `absent` or `unreadable`, the words of `hivectl status`."""
    match found:
        case Present():
            return "present"
        case Absent():
            return "absent"
        case Unreadable():
            return "unreadable"
    assert_never(found)


def encode(roster: Roster) -> bytes:
    """Return the exact bytes published for a roster: one line of JSON in name order."""
    match roster.shape:
        case Shape.TREE:
            document: Any = dict(roster.parents)
        case Shape.FLAT:
            document = list(roster.parents)
        case _:
            assert_never(roster.shape)
    return (json.dumps(document, ensure_ascii=True) + "\n").encode("ascii")


def decode(untrusted_content: bytes) -> Present | Unreadable:
    """Parse the bytes of a roster file in either shape; never raises.

    A parent that is not a key reads as no parent and is noted. Everything else that is odd makes the
    whole file unreadable: half a permission boundary is none.
    """
    try:
        roster, notes = _decode(untrusted_content)
    except (InvalidRoster, InvalidName) as fault:
        return Unreadable(fault.message)
    except RecursionError:
        return Unreadable("nested too deeply")
    except ValueError as fault:
        return Unreadable(f"not JSON: {ascii(str(fault))[1:-1][:200]}")
    return Present(roster, untrusted_content, notes)


def _decode(untrusted_content: bytes) -> tuple[Roster, tuple[str, ...]]:
    if len(untrusted_content) > MAX_BYTES:
        raise InvalidRoster(f"larger than {MAX_BYTES} bytes")
    if untrusted_content.startswith(b"\xef\xbb\xbf"):
        raise InvalidRoster("starts with a byte order mark")
    untrusted_text = untrusted_content.decode("utf-8")
    _refuse_depth(untrusted_text)
    untrusted_document = json.loads(
        untrusted_text, object_pairs_hook=_unique_pairs, parse_constant=_refuse_constant
    )
    if isinstance(untrusted_document, list):
        return _from_array(untrusted_document), ()
    if isinstance(untrusted_document, dict):
        return _from_map(untrusted_document)
    raise InvalidRoster("neither an array of names nor a map of name to parent")


def _refuse_depth(untrusted_text: str) -> None:
    """Refuse nesting before the parser recurses. Brackets in strings count: no valid name has one."""
    depth = 0
    for character in untrusted_text:
        if character in "[{":
            depth += 1
            if depth > _MAX_DEPTH:
                raise InvalidRoster("nested: a roster is one array or one map")
        elif character in "]}":
            depth -= 1


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidRoster(f"the name {key[:40]!a} appears twice")
        found[key] = value
    return found


def _refuse_constant(constant: str) -> None:
    raise InvalidRoster(f"{constant} is not JSON")


def _from_array(untrusted_names: list[Any]) -> Roster:
    parents: dict[AgentName, AgentName | None] = {}
    for untrusted_name in untrusted_names:
        name = parse_name(untrusted_name)
        if name in parents:
            raise InvalidRoster(f"the name '{name}' appears twice")
        parents[name] = None
    return Roster(Shape.FLAT, parents)


def _from_map(untrusted_map: dict[str, Any]) -> tuple[Roster, tuple[str, ...]]:
    names = {parse_name(untrusted_name): untrusted_map[untrusted_name] for untrusted_name in untrusted_map}
    parents: dict[AgentName, AgentName | None] = {}
    notes: list[str] = []
    for name, untrusted_parent in names.items():
        parent = None if untrusted_parent is None else parse_name(untrusted_parent)
        if parent == name:
            raise InvalidRoster(f"'{name}' is its own parent")
        if parent is not None and parent not in names:
            notes.append(f"parent '{parent}' of '{name}' is not in the roster; read as no parent")
            parent = None
        parents[name] = parent
    return Roster(Shape.TREE, parents), tuple(notes)
