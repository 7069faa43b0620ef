"""Strict TOML: what `settings` and `manifest` share.

Both are files a person writes, so an unknown key is refused by name with the nearest known one, and the
first fault is told as one sentence that says where it is, never as pydantic's own report.
"""

from __future__ import annotations

import difflib
import tomllib
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from hive_core.domain.errors import HiveError


class TomlModel(BaseModel):
    """A frozen model that takes no unknown key and converts no types on the quiet."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


M = TypeVar("M", bound=TomlModel)


def parse_toml(untrusted_text: str, what: str, error: type[HiveError]) -> dict[str, Any]:
    """Return the TOML document, or raise `error` with the line at fault."""
    try:
        return tomllib.loads(untrusted_text)
    except RecursionError:
        raise error(f"{what}: not TOML: nested too deeply") from None
    except ValueError as fault:  # a number of thousands of digits is a plain one
        raise error(f"{what}: not TOML: {ascii(str(fault))[1:-1]}") from None


def validate(model: type[M], untrusted_document: dict[str, Any], what: str, error: type[HiveError]) -> M:
    """Return the validated model, or raise `error` for the first fault, naming key and reason."""
    try:
        return model.model_validate(untrusted_document)
    except ValidationError as fault:
        raise error(*_sentence(model, fault, what)) from None


def _sentence(model: type[BaseModel], fault: ValidationError, what: str) -> tuple[str, str]:
    first = min(fault.errors(), key=lambda one: one["type"] != "extra_forbidden")
    location = [str(part) for part in first["loc"]]
    where = ascii(".".join(location))[1:-1][:120]
    if first["type"] == "extra_forbidden":
        return f"{what}: unknown key '{where}'", _nearest(model, location)
    if first["type"] == "missing":
        return f"{what}: '{where}' is missing", f"add {location[-1]} = …"
    reason = first["msg"].removeprefix("Value error, ")
    return f"{what}: '{where}': {ascii(reason)[1:-1][:300]}", ""


def _nearest(model: type[BaseModel], location: list[str]) -> str:
    """Say which known key was probably meant, walking the model down to the table at fault."""
    table: type[BaseModel] = model
    for part in location[:-1]:
        field = table.model_fields.get(part)
        annotation = field.annotation if field else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            break
        table = annotation
    known = sorted(table.model_fields)
    close = difflib.get_close_matches(location[-1], known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known here: {', '.join(known)}"
