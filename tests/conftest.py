"""Fixtures of every test."""

import os

# Set by whoever runs the tests on several processors; a program under test asks its own terminal.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

pytest_plugins = ["tests.support.engine_fixtures", "tests.support.hive_fixtures"]
