"""Fixtures that give tests a whole hive, and put its daemon's log into the report of a failed test.

Loaded by tests/conftest.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack

import pytest

from tests.support.live_hive import LiveHive, Settings, live_hive
from tests.support.own_engine import OwnEngine

MakeHive = Callable[..., LiveHive]


@pytest.fixture
def make_hive(own_engine: OwnEngine, agent_image: str) -> Iterator[MakeHive]:
    """Makes hives that nobody else uses, not started; all are gone after the test."""
    with ExitStack() as stack:

        def make(settings: Settings | None = None, *, with_proxy: bool = False) -> LiveHive:
            return stack.enter_context(live_hive(own_engine, agent_image, settings, with_proxy=with_proxy))

        yield make


@pytest.fixture(scope="module")
def hive(own_engine: OwnEngine, agent_image: str) -> Iterator[LiveHive]:
    """A running hive without a root agent, shared by a module: leave no agent of yours behind."""
    with live_hive(own_engine, agent_image) as shared:
        yield shared.start().settle()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs of a failed test's daemons to its report."""
    report = yield
    if report.when == "call" and report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, LiveHive):
                report.sections.append((f"log of hived ({value.id})", value.log()[-6000:]))
    return report
