"""The pages hold together and say what is so: links, commands, examples, and the lists that code decides."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

from hive_core.domain.names import AgentName
from hive_core.domain.observed import ImageFacts
from hive_core.domain.roster import Present, Shape, decode, encode
from hive_core.manifest import parse_manifest
from hive_core.planning.container import Layout, build_spec
from hive_core.settings import Container, parse_settings
from hivectl.application import COMMANDS
from tests.unit.docs.console_blocks import blocks

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"])
ALL = [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in PAGES]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"#{1,6} (.+)")
CODE = re.compile(r"`[^`]*`")
# Also `.venv/bin/hivectl` and `hivectl -o json ps` are mentions; options come after the command here.
MENTION = re.compile(r"\bhivectl (?:--socket \S+ )?([a-z]+)")
SCRIPT = re.compile(r"\bscripts/([a-z-]+)\b(?!/)")
# What has no place in prose: how the project came about, and where. In halves, to keep the rule itself.
FORBIDDEN = re.compile(
    "|".join(
        ["/wo" + "rk/", "DES" + r"IGN\.md", r"\bissue " + r"#?\d", "/ro" + "ot/", "py" + "pi", "TO" + "DO"]
    )
)


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _prose(page: Path) -> str:
    """The page without its fenced blocks."""
    inside, kept = False, []
    for line in _text(page).splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def _anchors(page: Path) -> set[str]:
    found = (HEADING.fullmatch(line) for line in _prose(page).splitlines())
    return {_anchor(one[1]) for one in found if one}


def _anchor(heading: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")


@pytest.mark.parametrize("page", ALL)
def test_links_resolve(page: Path) -> None:
    broken = []
    for link in LINK.findall(CODE.sub("", _prose(page))):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert not broken


def test_every_page_is_in_the_index() -> None:
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in LINK.findall(_prose(DOCS / "README.md"))}
    assert set(DOCS.rglob("*.md")) - {DOCS / "README.md"} <= linked


@pytest.mark.parametrize("page", ALL)
def test_every_command_that_is_mentioned_exists(page: Path) -> None:
    code = "\n".join([*CODE.findall(_prose(page)), *_code_lines(page)])
    unknown = {word for word in MENTION.findall(code) if word not in COMMANDS}
    assert not unknown


def _code_lines(page: Path) -> Iterator[str]:
    """Lines of fenced and indented code, without their comments."""
    inside = False
    for line in _text(page).splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
        elif inside or line.startswith("    "):
            yield line.split(" # ")[0]


@pytest.mark.parametrize("page", ALL)
def test_every_script_that_is_mentioned_exists(page: Path) -> None:
    missing = {name for name in SCRIPT.findall(_text(page)) if not (ROOT / "scripts" / name).exists()}
    assert not missing


@pytest.mark.parametrize("page", ALL)
def test_the_project_speaks_of_itself_alone(page: Path) -> None:
    found = [line for line in _text(page).splitlines() if FORBIDDEN.search(line)]
    assert not found


@pytest.mark.parametrize("page", ALL)
def test_examples_are_valid(page: Path) -> None:
    """Each TOML block is a whole settings file or a whole manifest; those that are named say which."""
    for _, label, content in blocks(re.sub(r"(?m)^ +(?=```)", "", _text(page))):
        if label.split(" ")[0] != "toml":
            continue
        text = "\n".join(one.strip() for one in content)
        if "command" in text:
            _read_manifest(text)
        else:
            parse_settings(text)


def _read_manifest(text: str) -> None:
    """Parse a manifest; one shown without its name is given one."""
    named = re.search(r'^name = "([a-z]+)"', text, re.MULTILINE)
    name = named[1] if named else "carol"
    whole = text if named else f'name = "{name}"\n{text}'
    parse_manifest(whole.encode(), AgentName(name))


def test_the_example_roster_is_a_valid_map() -> None:
    content = (ROOT / "topology.json.example").read_bytes()
    found = decode(content)
    assert isinstance(found, Present)
    assert found.roster.shape is Shape.TREE
    assert not found.notes
    assert encode(found.roster) == content


def test_the_rosters_of_the_reference_are_valid_and_of_both_shapes() -> None:
    shown = [content for _, label, content in blocks(_text(DOCS / "reference/roster.md")) if label == "json"]
    rosters = [decode("\n".join(content).encode()) for content in shown]
    assert [one.roster.shape for one in rosters if isinstance(one, Present)] == [Shape.TREE, Shape.FLAT]


def test_generated_pages_are_fresh() -> None:
    argv = [sys.executable, str(ROOT / "scripts/generate-reference"), "--check"]
    ended = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_generator_refuses_an_unknown_option() -> None:
    argv = [sys.executable, str(ROOT / "scripts/generate-reference"), "--chekc"]
    assert subprocess.run(argv, check=False, capture_output=True, timeout=60).returncode == 2


# ---- lists that code decides ------------------------------------------------------------------------------


def _first_cells(page: str, heading: str) -> set[str]:
    """The words set as code in the first column of the tables below a heading."""
    part = _text(DOCS / page).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


@dataclass(frozen=True)
class _Call:
    """A call in the daemon's source: what is called, as `a.b`, and the texts written out as its arguments."""

    name: str
    texts: tuple[str, ...]


def _calls(*folders: str) -> Iterator[_Call]:
    for folder in folders:
        for path in sorted((ROOT / "hive_core" / folder).glob("*.py")):
            yield from _calls_of(ast.parse(_text(path)))


def _calls_of(module: ast.Module) -> Iterator[_Call]:
    constants = {
        target.id: node.value
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            values = [constants.get(one.id, one) if isinstance(one, ast.Name) else one for one in node.args]
            texts = tuple(one.value if isinstance(one, ast.Constant) else "" for one in values)
            yield _Call(ast.unparse(node.func).removeprefix("self."), tuple(map(str, texts)))


def test_every_kind_of_event_is_documented() -> None:
    # Each way to write one, and where in the call its kind stands.
    ways = {"_events.add": 0, "events.add": 0, "_done": 1, "News": 0}
    kinds = {call.texts[ways[call.name]] for call in _calls("engine") if call.name in ways} - {""}
    assert {"roster_repaired", "started", "needs_update"} <= kinds
    assert _first_cells("reference/events.md", "Events") == kinds


def test_every_problem_is_documented() -> None:
    codes = {call.texts[0] for call in _calls("engine", "planning", ".") if call.name == "Problem"} - {""}
    assert {"foreign_container", "roster_not_published"} <= codes
    # Two more are made from the states of the same names.
    assert _first_cells("reference/events.md", "Problems") == codes | {"crash_looping", "failed"}


def test_every_mount_is_documented() -> None:
    layout = Layout("default", PurePosixPath("/d/agents"), PurePosixPath("/r"))
    targets = {mount.target for mount in layout.mounts(AgentName("bob"), "0" * 40)}
    shown = _first_cells("reference/layout.md", "In a container")
    assert targets | {"/tmp"} == {cell for cell in shown if cell.startswith("/")}


def test_every_label_is_documented() -> None:
    source = _text(ROOT / "hive_core/domain/spec.py")
    labels = set(re.findall(r'"(dev\.hive\.[a-z]+)"', source))
    shown = _first_cells("reference/layout.md", "In a container")
    assert labels == {cell for cell in shown if cell.startswith("dev.")}


def test_every_variable_is_documented() -> None:
    bob = AgentName("bob")
    manifest = parse_manifest(b'name = "bob"\n[container]\ncommand = ["true"]', bob)
    layout = Layout("default", PurePosixPath("/d/agents"), PurePosixPath("/r"))
    spec = build_spec(bob, 1, manifest, "0" * 40, ImageFacts("sha256:0", (), ()), Container(), layout)
    assert {name for name, _ in spec.env} == _first_cells("reference/layout.md", "Environment")
