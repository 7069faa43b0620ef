"""Sizes and shares as people write them in manifests and settings: `256m`, `1g`, `0.5`."""

from __future__ import annotations

import re

_SIZE = re.compile(r"([0-9]{1,9})([kmg])")
_UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3}
# The smallest share the kernel's scheduler takes. Below a billionth, the engine would read "no limit".
MIN_CPUS = 0.01
RULE = "a whole number and one of k, m, g, as in 256m"


def parse_size(untrusted_size: str) -> int:
    """Return the size in bytes, or raise `ValueError` saying what a size looks like."""
    found = _SIZE.fullmatch(untrusted_size)
    if found is None:
        raise ValueError(f"{untrusted_size[:20]!a} is no size: {RULE}")
    return int(found[1]) * _UNITS[found[2]]
