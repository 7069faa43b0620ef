import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[3]
EXAMPLES = sorted(path.parent for path in (CHECKOUT / "examples").glob("*/agent.toml"))
TEMPLATES = sorted(path.parent for path in (CHECKOUT / "hive_core/templates").glob("*/agent.toml"))
ALL = [pytest.param(folder, id=folder.name) for folder in EXAMPLES + TEMPLATES]

CONTAINER_KEYS = {"image", "command", "memory", "cpus", "pids", "tmp", "network", "env"}


def manifest(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "agent.toml").read_text())


def test_finds_every_folder() -> None:
    assert [folder.name for folder in EXAMPLES] == ["alice", "bob"]
    assert [folder.name for folder in TEMPLATES] == ["agent", "root"]


@pytest.mark.parametrize("folder", ALL)
def test_has_only_keys_a_manifest_knows(folder: Path) -> None:
    read = manifest(folder)
    assert read.keys() == {"name", "description", "container"}
    assert read["container"].keys() <= CONTAINER_KEYS


@pytest.mark.parametrize("folder", ALL)
def test_values_have_the_shape_a_manifest_wants(folder: Path) -> None:
    container = manifest(folder)["container"]
    assert container["command"] == ["python3", "/config/main.py"]
    assert container["network"] == "none"
    assert all(re.fullmatch("[0-9]+[kmg]", container[key]) for key in ("memory", "tmp"))
    assert 0 < container["cpus"] <= 1
    assert type(container["pids"]) is int
    assert all(type(value) is str for value in container["env"].values())


@pytest.mark.parametrize("folder", ALL)
def test_every_variable_set_is_one_the_program_reads(folder: Path) -> None:
    program = (folder / "main.py").read_text()
    assert [name for name in manifest(folder)["container"]["env"] if f'"{name}"' not in program] == []


@pytest.mark.parametrize("folder", [pytest.param(folder, id=folder.name) for folder in EXAMPLES])
def test_an_example_is_named_like_its_folder(folder: Path) -> None:
    assert manifest(folder)["name"] == folder.name
    assert (folder / "README.md").read_text().startswith(f"# {folder.name}\n")


@pytest.mark.parametrize("folder", [pytest.param(folder, id=folder.name) for folder in TEMPLATES])
def test_a_template_leaves_the_name_open_once(folder: Path) -> None:
    assert manifest(folder)["name"] == "@NAME@"
    assert (folder / "agent.toml").read_text().count("@NAME@") == 1
