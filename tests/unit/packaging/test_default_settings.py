"""The settings file a new installation begins with."""

import re
import runpy
from pathlib import Path

from hive_core.settings import Settings, parse_settings

SCRIPT = Path(__file__).resolve().parents[3] / "packaging" / "default_settings.py"
TEXT = str(runpy.run_path(str(SCRIPT), run_name="default_settings")["render"]())
SWITCHED_ON = re.sub(r"^#(?=\S)", "", TEXT, flags=re.MULTILINE)


def test_as_it_is_it_changes_nothing() -> None:
    assert parse_settings(TEXT) == Settings()


def test_it_has_every_key_with_its_default() -> None:
    settings = parse_settings(SWITCHED_ON)
    assert settings == Settings()
    for name, field in Settings.model_fields.items():
        section = getattr(settings, name)
        assert section.model_fields_set == set(section.__class__.model_fields), name
        assert field.annotation is not None


def test_every_line_fits_a_screen() -> None:
    assert max(map(len, TEXT.splitlines())) <= 110
