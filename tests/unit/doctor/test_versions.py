import pytest

from hive_core.engine.versions import (
    ENGINE_ARCHIVE,
    FINAL,
    GIT_SUBMODULES,
    RUNC_LEAKED_FD,
    RUNC_REDIRECTS,
    Hole,
    parse_release,
)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("1.1.5+ds1", (1, 1, 5, FINAL)),
        ("v1.3.0-0-g4ca628d1", (1, 3, 0, FINAL)),
        ("1.4.0-rc.2", (1, 4, 0, 2)),
        ("1.4.0~rc.3+ds1", (1, 4, 0, 3)),
        ("1.0.0-rc93", (1, 0, 0, 93)),
        ("20.10.24+dfsg1", (20, 10, 24, FINAL)),
        ("2.50", (2, 50, 0, FINAL)),
        ("", None),
        ("unknown", None),
        ("library-import", None),
    ],
)
def test_a_release_is_what_the_text_begins_with(text: str, release: tuple[int, ...] | None) -> None:
    assert parse_release(text) == release


@pytest.mark.parametrize(
    ("hole", "version", "is_in"),
    [
        (RUNC_LEAKED_FD, "1.0.0-rc93", True),
        (RUNC_LEAKED_FD, "1.1.11", True),
        (RUNC_LEAKED_FD, "1.1.12", False),
        (RUNC_LEAKED_FD, "1.2.0", False),
        (RUNC_REDIRECTS, "1.1.15", True),
        (RUNC_REDIRECTS, "1.2.7", True),
        (RUNC_REDIRECTS, "1.2.8", False),
        (RUNC_REDIRECTS, "1.3.0", True),
        (RUNC_REDIRECTS, "1.3.2", True),
        (RUNC_REDIRECTS, "1.3.3", False),
        (RUNC_REDIRECTS, "1.4.0-rc.2", True),
        (RUNC_REDIRECTS, "1.4.0-rc.3", False),
        (RUNC_REDIRECTS, "1.4.0", False),
        (RUNC_REDIRECTS, "1.5.0-rc.1", False),
        (RUNC_REDIRECTS, "", None),
        (ENGINE_ARCHIVE, "20.10.24+dfsg1", True),
        (ENGINE_ARCHIVE, "29.6.9", True),
        (ENGINE_ARCHIVE, "29.7.0", False),
        (ENGINE_ARCHIVE, "30.0.0", False),
        (GIT_SUBMODULES, "2.39.5", True),
        (GIT_SUBMODULES, "2.43.6", True),
        (GIT_SUBMODULES, "2.43.7", False),
        (GIT_SUBMODULES, "2.47.2", True),
        (GIT_SUBMODULES, "2.47.3", False),
        (GIT_SUBMODULES, "2.50.0", True),
        (GIT_SUBMODULES, "2.50.1", False),
        (GIT_SUBMODULES, "2.51.0", False),
        (GIT_SUBMODULES, "2.50.0.windows.1", True),
    ],
)
def test_a_hole_is_mended_branch_by_branch(hole: Hole, version: str, is_in: bool | None) -> None:
    assert hole.is_in(version) is is_in
