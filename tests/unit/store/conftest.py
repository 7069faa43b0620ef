from collections.abc import Iterator
from pathlib import Path

import pytest

from hive_core.adapters.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the test's database is."""
    return tmp_path / "hive.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """A new store."""
    opened = Store(path)
    yield opened
    opened.close()
