"""Where the tests of the audit log keep theirs: below a root-owned directory, as the product demands."""

from pathlib import Path

import pytest

from tests.support.paths import root_dir

__all__ = ["root_dir"]


@pytest.fixture
def directory(root_dir: Path) -> Path:
    """The audit directory, not made yet."""
    return root_dir / "audit"
