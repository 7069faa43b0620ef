"""Versions with known holes, and whether a given version still has them.

Used by the checks of the engine, its runtime and git. A hole is mended in several release branches at once,
so "older than" is asked within the branch, and only for a branch without a mend against the newest of all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

# Major, minor, patch, and the number of the release candidate: a final release is after all of them.
Release: TypeAlias = tuple[int, int, int, int]
FINAL = 1_000_000
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-~]?rc[.-]?(\d+))?")


@dataclass(frozen=True, slots=True)
class Hole:
    """Known holes that the same releases mended, one release a branch."""

    ids: tuple[str, ...]
    mended: tuple[Release, ...]

    def is_in(self, version: str) -> bool | None:
        """Whether a version has it; None for a text that is no version."""
        release = parse_release(version)
        if release is None:
            return None
        own_branch = [mend for mend in self.mended if mend[:2] == release[:2]]
        return release < (own_branch or [max(self.mended)])[0]


def parse_release(version: str) -> Release | None:
    """Return the release a version text begins with; whatever a packager appended is left out."""
    found = _VERSION.match(version)
    if found is None:
        return None
    major, minor, patch, candidate = found.groups()
    return int(major), int(minor), int(patch or 0), FINAL if candidate is None else int(candidate)


ENGINE_ARCHIVE = Hole(
    ("CVE-2026-41567", "CVE-2026-42306", "CVE-2026-41568", "CVE-2026-17106"), ((29, 7, 0, FINAL),)
)
RUNC_LEAKED_FD = Hole(("CVE-2024-21626",), ((1, 1, 12, FINAL),))
RUNC_REDIRECTS = Hole(
    ("CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"),
    ((1, 2, 8, FINAL), (1, 3, 3, FINAL), (1, 4, 0, 3)),
)
GIT_SUBMODULES = Hole(
    ("CVE-2025-48384",),
    (
        (2, 43, 7, FINAL),
        (2, 44, 4, FINAL),
        (2, 45, 4, FINAL),
        (2, 46, 4, FINAL),
        (2, 47, 3, FINAL),
        (2, 48, 2, FINAL),
        (2, 49, 1, FINAL),
        (2, 50, 1, FINAL),
    ),
)
RUNC_HOLES = (*RUNC_LEAKED_FD.ids, *RUNC_REDIRECTS.ids)
