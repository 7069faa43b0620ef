"""Fixtures of every test."""

pytest_plugins = ["tests.support.engine_fixtures", "tests.support.hive_fixtures"]
