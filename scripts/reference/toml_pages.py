"""The pages of the two files people write: the daemon's settings and an agent's manifest.

Everything in the tables comes from the models that read the files, so a page cannot name a key, default or
limit that is not real.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Union, cast, get_args, get_origin

import annotated_types
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from hive_core.domain.names import RESERVED, RULE, AgentName
from hive_core.domain.sizes import RULE as SIZE_RULE
from hive_core.manifest import MAX_BYTES, REFUSED_ENV, ContainerSection, Manifest
from hive_core.settings import DEFAULT_PATH, Settings
from reference.markdown import code, codes, page, table

_UNITS = (("g", 1024**3), ("m", 1024**2), ("k", 1024))
_PLAIN = {bool: "`true` or `false`", int: "whole number", float: "number", str: "text", Path: "absolute path"}

SETTINGS_INTRODUCTION = f"""\
The daemon reads `{DEFAULT_PATH}` once, when it starts; without that file every default below applies.
`hived --settings FILE` reads another one. The file is TOML; every table and every key may be left out, an
unknown key is refused by name with the nearest known one.

    hived check                     # valid? are accounts and uids in order? changes nothing
    hived check --settings FILE

Sizes are {SIZE_RULE}; k, m and g are powers of 1024.
How to change settings of a hive that runs, and what that does to its agents:
[change settings](../how-to/change-settings.md).

For example:

```toml
[hive]
ruthless = true

[container]
memory = "512m"
stop_grace_s = 30
```
"""

MANIFEST_INTRODUCTION = f"""\
`agent.toml` lies at the top of an agent's config and says what runs in its container and with which limits.
It is TOML, UTF-8, at most {MAX_BYTES // 1024} KiB. It can ask for a program, an image and limits, and
for nothing that gives the agent more authority:

- An unknown key is refused by name, with the nearest known one.
- The name of a capability anywhere in it is refused: only the operator grants one (not available yet).
- `network = "egress"` is refused as not available yet.

When it is wrong, `init` makes nothing. `push` moves the agent's main branch all the same, exits 1 with the
reason, and the agent is *degraded*: it runs on with its last good commit until a better one is pushed.
"""


def settings_page() -> str:
    """Return settings.md."""
    parts = [SETTINGS_INTRODUCTION]
    for name, field in Settings.model_fields.items():
        section = cast(type[BaseModel], field.annotation)
        parts += [f"## [{name}]", section.__doc__ or "", _fields(section.model_fields)]
    return page("Settings", *parts)


def manifest_page() -> str:
    """Return manifest.md."""
    top = {name: field for name, field in Manifest.model_fields.items() if name != "container"}
    refused = [word.replace(".*", "*") for word in REFUSED_ENV.pattern.strip("()").split("|")]
    template = (files("hive_core") / "templates" / "agent" / "agent.toml").read_text(encoding="utf-8")
    return page(
        "The manifest: agent.toml",
        MANIFEST_INTRODUCTION,
        "## Top level",
        _fields(top),
        f"{RULE[0].upper()}{RULE[1:]}. Reserved: {codes(sorted(RESERVED))}.",
        "## [container]",
        ContainerSection.__doc__ or "",
        _fields(ContainerSection.model_fields),
        f"Sizes are {SIZE_RULE}. The hive's defaults are the table [container] of the "
        "[settings](settings.md); each limit is always set.",
        "## Environment",
        f"These names are refused in `env`, because hive sets them or because they change how programs are "
        f"loaded: {codes(refused)}. What every agent gets is listed in [layout](layout.md#environment).",
        "## What `hivectl init NAME` begins with",
        f"```toml\n{template.replace('@NAME@', 'carol')}```",
    )


def _fields(fields: dict[str, FieldInfo]) -> str:
    rows = [
        (code(name), _type(name, field), _default(field), field.description or "")
        for name, field in fields.items()
    ]
    return table(("key", "type and limits", "default", "what and why"), rows)


def _type(name: str, field: FieldInfo) -> str:
    said = _type_word(field.annotation, field.metadata)
    if name.endswith("_s"):
        said = "whole seconds" if field.annotation is int else "seconds"
    limits = _limits(field.metadata, is_size=said == "size")
    return f"{said}, {limits}" if limits else said


def _type_word(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _type_word(inner, more)
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(_type_word(one) for one in get_args(annotation) if one is not type(None))
    if get_origin(annotation) is list:
        return f"list of {_type_word(get_args(annotation)[0])}"
    if get_origin(annotation) is dict:
        return "table of name = text"
    if any(isinstance(one, BeforeValidator) and one.func.__name__ == "_size" for one in metadata):
        return "size"
    if any(isinstance(one, BeforeValidator) and one.func.__name__ == "checked" for one in metadata):
        return "name"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return codes(member.value for member in annotation)
    return _PLAIN[annotation]


def _limits(metadata: Iterable[Any], *, is_size: bool) -> str:
    said = [_limit(one, is_size) for one in metadata]
    return ", ".join(filter(None, said))


def _limit(rule: Any, is_size: bool) -> str:
    match rule:
        case annotated_types.Ge(ge=value):
            return f"at least {_number(value, is_size)}"
        case annotated_types.Gt(gt=value):
            return f"more than {_number(value, is_size)}"
        case annotated_types.Le(le=value):
            return f"at most {_number(value, is_size)}"
        case annotated_types.MinLen(min_length=length):
            return f"not shorter than {length}"
        case annotated_types.MaxLen(max_length=length):
            return f"not longer than {length}"
        case _:
            return ""


def _number(value: Any, is_size: bool) -> str:
    if not is_size:
        return f"{value:,}".replace(",", " ") if isinstance(value, int) else f"{value:g}"
    return next((f"{value // unit}{sign}" for sign, unit in _UNITS if value % unit == 0), str(value))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "the hive's"
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, int) and _type_word(field.annotation, field.metadata) == "size":
        return code(f'"{_number(value, True)}"')
    if isinstance(value, str | Path | AgentName):
        return code(f'"{value}"')
    return code("{}") if value == {} else code(value)
