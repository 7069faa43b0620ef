"""Disk tests measure real trees below a root-owned directory."""

from tests.support.paths import root_dir

__all__ = ["root_dir"]
