"""The pins: complete, by hash, from nowhere in particular, and the same for running and for testing."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.source_tree import ROOT

_LOCKS = ("requirements.txt", "requirements-dev.txt")
_PIN = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.!+]+)(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)"
)


def _statements(lock: str) -> list[str]:
    """The file's lines without comments, continued lines joined to one."""
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", "", text)
    return [line.strip() for line in joined.splitlines() if line.strip()]


def _pins(lock: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Name -> (version, hashes)."""
    pins: dict[str, tuple[str, frozenset[str]]] = {}
    for statement in _statements(lock):
        match = _PIN.fullmatch(statement)
        assert match, f"{lock}: not a pin with hashes: {statement[:100]}"
        pins[canonicalize_name(match["name"])] = (match["version"], frozenset(match["hashes"].split()))
    return pins


def _requirements(*, dev: bool) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [
        Requirement(text)
        for text in [*project["dependencies"], *(project["optional-dependencies"]["dev"] if dev else [])]
    ]


@pytest.mark.parametrize("lock", _LOCKS)
def test_every_line_is_a_pin_with_hashes(lock: str) -> None:
    assert len(_pins(lock)) > 10


@pytest.mark.parametrize("lock", _LOCKS)
def test_no_line_says_where_from(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert not [line for line in text.splitlines() if line.startswith(("-", "/", "."))]


@pytest.mark.parametrize(
    ("lock", "dev"), [pytest.param(_LOCKS[0], False, id="runtime"), pytest.param(_LOCKS[1], True, id="dev")]
)
def test_pins_satisfy_the_project(lock: str, dev: bool) -> None:
    pins = _pins(lock)
    for requirement in _requirements(dev=dev):
        version, _ = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), (
            f"{requirement} is pinned to {version}"
        )


def test_what_runs_is_what_is_tested() -> None:
    runtime, dev = _pins(_LOCKS[0]), _pins(_LOCKS[1])
    assert {name: dev.get(name) for name in runtime} == runtime


def test_the_build_backend_is_pinned() -> None:
    """Installing the project reaches for no package that is not pinned."""
    assert "hatchling" in _pins(_LOCKS[0])
