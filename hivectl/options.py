"""The arguments and options that several commands share, declared once so that they read alike everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from hivectl.completion import complete_name
from hivectl.output import Format

Name = Annotated[str, typer.Argument(metavar="NAME", help="The agent's name.", autocompletion=complete_name)]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="The new agent's name.")]
Names = Annotated[
    list[str], typer.Argument(metavar="NAME", help="The agents' names.", autocompletion=complete_name)
]
Output = Annotated[
    Format,
    typer.Option("-o", "--output", help="How to write the result.", show_default=True),
]
OptionalNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="The agents' names.", autocompletion=complete_name),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Print the id of the change and return; it goes on by itself.")
]
