"""Plans as text, compared with the files beside this one.

A changed plan shows as a changed file, to be read by a person. To write the files anew, look at the
difference, and commit it if it is what was meant:

    HIVE_UPDATE_GOLDEN=1 .venv/bin/python -m pytest tests/golden
"""

import os
from pathlib import Path

import pytest

from hive_core.planning.plan import plan
from tests.golden.rendering import rendered
from tests.golden.scenarios import SCENARIOS
from tests.support.plan_inputs import NOW

PLANS = Path(__file__).with_name("plans")
UPDATE = "HIVE_UPDATE_GOLDEN"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_plan(scenario: str) -> None:
    title, desired, observed = SCENARIOS[scenario]()
    text = rendered(title, desired, observed, plan(desired, observed, NOW))
    golden = PLANS / f"{scenario}.txt"
    if os.environ.get(UPDATE) == "1":
        golden.write_text(text, encoding="utf-8")
    assert golden.is_file(), f"no golden file for {scenario}; write it with {UPDATE}=1"
    assert text == golden.read_text(encoding="utf-8")


def test_every_golden_file_has_its_scenario() -> None:
    assert {path.stem for path in PLANS.iterdir()} == set(SCENARIOS)
