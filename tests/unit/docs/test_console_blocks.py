"""The steps of the pages are found, and output that departs from what is shown is noticed."""

from pathlib import Path

import pytest

from tests.unit.docs.console_blocks import Command, WrittenFile, difference, steps

PAGE = """\
Text with a `$ command` in it.

```console
$ cd /tmp
$ hivectl ps
NAME    STATE
bob     running
```

```toml file=agent.toml
name = "bob"

[container]
```

```sh
hivectl logs bob -f
```

```console
$ hivectl start nobody
hivectl: cannot start nobody: there is no agent 'nobody'
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    return page


def test_steps_in_order(page: Path) -> None:
    assert steps(page) == (
        Command(4, "cd /tmp", ()),
        Command(5, "hivectl ps", ("NAME    STATE", "bob     running")),
        WrittenFile(10, "agent.toml", 'name = "bob"\n\n[container]\n'),
        Command(21, "hivectl start nobody", ("hivectl: cannot start nobody: there is no agent 'nobody'",)),
    )


def test_a_command_that_shows_an_error_fails(page: Path) -> None:
    assert [step.fails for step in steps(page) if isinstance(step, Command)] == [False, False, True]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("```console\n$ ls\n", id="no-end"),
        pytest.param("```console\nls\n```\n", id="no-prompt"),
        pytest.param("```console\n```\n", id="empty"),
    ],
)
def test_a_block_that_cannot_be_run_is_refused(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match="line 1"):
        steps(page)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        pytest.param(["bob is running"], ["bob is stopped"], id="another-word"),
        pytest.param(["bob is running"], [], id="nothing"),
        pytest.param([], ["bob is running"], id="something-unshown"),
        pytest.param(["a", "b"], ["a"], id="a-line-less"),
        pytest.param(["a"], ["a", "b"], id="a-line-more"),
        pytest.param(["a", "..."], ["b"], id="before-the-gap"),
        pytest.param(["...", "b"], ["b", "c"], id="after-the-gap"),
        pytest.param(["exit code 137"], ["exit code unknown"], id="word-for-number"),
    ],
)
def test_a_difference_is_noticed(shown: list[str], printed: list[str]) -> None:
    assert difference(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        pytest.param([], ["", ""], id="blank-lines"),
        pytest.param(["bob     running   3s ago"], ["bob   running   12m ago"], id="age-and-columns"),
        pytest.param(["config  54f0765f2132"], ["config  1bd96403777a"], id="id"),
        pytest.param(["17,984 primes below 200,000"], ["3 primes below 7"], id="numbers"),
        pytest.param(["5s ago (2026-11-30T14:10:50.378Z)"], ["1h ago (2027-01-02T03:04:05.006Z)"], id="time"),
        pytest.param(["a", "...", "d"], ["a", "b", "c", "d"], id="gap"),
        pytest.param(["a", "...", "d"], ["a", "d"], id="empty-gap"),
    ],
)  # fmt: skip
def test_what_differs_from_run_to_run_is_no_difference(shown: list[str], printed: list[str]) -> None:
    assert not difference(shown, printed)
