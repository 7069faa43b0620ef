"""Prints the settings file that a new installation begins with: every key, commented out, and its reason.

Run by scripts/install with the installed interpreter, once: a settings file that exists is never touched.
Keys, defaults and texts come from the model that reads the file, so nothing in it can be out of date.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from hive_core.settings import Settings

INTRODUCTION = """\
Settings of hived. Everything is optional: what is commented out shows the default. Check a change with
`hived check`; the daemon reads this file when it starts: `systemctl restart hived` (agents run on)."""
_WIDTH = 110
_UNITS = (("g", 1024**3), ("m", 1024**2), ("k", 1024))


def render() -> str:
    """Return the file's text."""
    lines = [*_comment(INTRODUCTION)]
    for name, field in Settings.model_fields.items():
        section = cast(type[BaseModel], field.annotation)
        lines += ["", *_comment(section.__doc__ or ""), f"[{name}]"]
        for key, inner in section.model_fields.items():
            lines += [*_comment(inner.description or ""), f"#{key} = {_value(inner)}"]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> Iterator[str]:
    """Prose gets `# `, a setting `#` alone: taking that one sign away switches it on."""
    for line in textwrap.wrap(" ".join(text.split()), _WIDTH - 2):
        yield f"# {line}"


def _value(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if isinstance(default, int) and _is_size(field):
        return next(f'"{default // unit}{sign}"' for sign, unit in _UNITS if default % unit == 0)
    return json.dumps(str(default) if isinstance(default, Path) else default)


def _is_size(field: FieldInfo) -> bool:
    return any(isinstance(one, BeforeValidator) and one.func.__name__ == "_size" for one in field.metadata)


if __name__ == "__main__":
    sys.stdout.write(render())
