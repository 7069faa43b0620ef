"""A room for evidence over a new store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hive_core.adapters.store import Store
from tests.support.paths import root_dir

__all__ = ["root_dir"]


@pytest.fixture
def store() -> Iterator[Store]:
    """A new store."""
    opened = Store(Path(":memory:"))
    yield opened
    opened.close()
