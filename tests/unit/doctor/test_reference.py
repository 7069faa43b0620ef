import re
from pathlib import Path

from hive_core.engine.checks import CheckName

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "doctor.md"


def test_the_page_lists_every_check_in_the_order_it_is_shown() -> None:
    listed = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert listed == [str(name) for name in CheckName]
