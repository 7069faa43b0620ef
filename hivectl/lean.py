"""Typer commands that need no validation library. Used by hivectl.application for every command.

Typer converts each value with pydantic, which costs more time than all the rest of `hivectl ps`. The values
of this CLI are words, paths, whole numbers and a few choices, so they are converted here instead. A test
holds the fast commands to it: if a later Typer asks for the conversion in another way, that test says so.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class Conversion:
    """Converts the values of one parameter; stands where Typer would build its own."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value as its annotation says; `BadParameter` if it cannot be."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if isinstance(value, (list, tuple)):
            return tuple(value)
        if not isinstance(value, str):
            return value
        if isinstance(self._annotation, type) and issubclass(self._annotation, Enum):
            return self._choice(self._annotation, value, param, ctx)
        if self._annotation is Path:
            return Path(value)
        return self._number(value, param, ctx) if self._annotation is int else value

    @staticmethod
    def _choice(choices: type[Enum], value: str, param: Any, ctx: Any) -> Enum:
        try:
            return choices(value)
        except ValueError:
            known = ", ".join(str(choice.value) for choice in choices)
            raise typer.BadParameter(f"{value!r} is not one of {known}", ctx=ctx, param=param) from None

    @staticmethod
    def _number(value: str, param: Any, ctx: Any) -> int:
        if not (value.isascii() and value.isdigit() and len(value) <= len("1000000000")):
            raise typer.BadParameter(
                f"{value!r} is not a whole number from 0 to 9999999999", ctx=ctx, param=param
            )
        return int(value)


class LeanCommand(TyperCommand):
    """A command whose parameters convert without pydantic."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, lightened."""
        return _lightened(super().get_params(ctx))


class LeanGroup(TyperGroup):
    """A group of commands whose own parameters convert without pydantic."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, lightened."""
        return _lightened(super().get_params(ctx))


def _lightened(params: list[Any]) -> list[Any]:
    for param in params:
        conversion = Conversion(param.type_descriptor.annotation)
        param.get_runtime_param = lambda conversion=conversion: conversion
    return params
