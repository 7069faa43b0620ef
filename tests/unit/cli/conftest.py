from collections.abc import Iterator

import pytest

from tests.support.stub_admin import StubAdmin, stub_admin
from tests.unit.cli.command_line import CommandLine


@pytest.fixture
def admin() -> Iterator[StubAdmin]:
    """A daemon's admin socket that answers what the test says."""
    with stub_admin() as server:
        yield server


@pytest.fixture
def hivectl(admin: StubAdmin) -> CommandLine:
    """The CLI, pointed at the stub."""
    return CommandLine(admin.socket_path)
