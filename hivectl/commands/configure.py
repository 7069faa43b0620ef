"""`hivectl init` and `hivectl push`: make an agent, and give an agent a new config.

Both read the folder here, with the operator's own rights, and send what is in it: the daemon opens no path
that a client names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hive_api.client import POLL_TIMEOUT_S, segment
from hivectl.asking import ask
from hivectl.completion import complete_name
from hivectl.folder import read_folder
from hivectl.options import Name, NewName, NoWait, Output
from hivectl.output import Format, note
from hivectl.session import begin, checked_name
from hivectl.waiting import finish

TOP_LEVEL = "none"

From = Annotated[
    Path | None,
    typer.Option("--from", metavar="DIR", help="Take the config from this folder, not the template."),
]
Parent = Annotated[
    str | None,
    typer.Option(
        "--parent",
        metavar="P",
        help="The agent that manages it; none for the top level. Default: the root agent.",
        autocompletion=complete_name,
    ),
]
AdoptState = Annotated[
    bool, typer.Option("--adopt-state", help="Take back the state of the retired agent of this name.")
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder with agent.toml.")]


def init(
    context: typer.Context,
    name: NewName,
    folder: From = None,
    parent: Parent = None,
    adopt_state: AdoptState = False,
    output: Output = Format.TABLE,
    no_wait: NoWait = False,
) -> None:
    """Make a new agent from a folder or the template.

    It is not started: see spawn.
    """
    session = begin(context, f"init {name}")
    body = {
        "name": checked_name(name),
        "parent": None if parent in (None, TOP_LEVEL) else checked_name(str(parent)),
        "top_level": parent == TOP_LEVEL,
        "adopt_state": adopt_state,
        "files": None if folder is None else _files(folder),
    }
    change = ask(session, "POST", "/v1/agents", body=body, timeout_s=POLL_TIMEOUT_S)
    finish(session, change, output, no_wait)


def push(
    context: typer.Context,
    name: Name,
    folder: Folder,
    output: Output = Format.TABLE,
    no_wait: NoWait = False,
) -> None:
    """Make a folder the agent's config.

    An agent that runs already takes it with update.
    """
    session = begin(context, f"push to {name}")
    path = f"/v1/agents/{segment(checked_name(name))}/config"
    change = ask(session, "PUT", path, body={"files": _files(folder)}, timeout_s=POLL_TIMEOUT_S)
    finish(session, change, output, no_wait)


def _files(folder: Path) -> list[dict[str, Any]]:
    content = read_folder(folder)
    for remark in content.notes:
        note(remark)
    return [entry.as_json() for entry in content.files]
