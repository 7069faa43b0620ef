"""What goes wrong in hivectl, and how it is said. Used by hivectl.main, and raised by every command.

One place turns any exception into a code, a sentence, a way out and an exit status, so that each error is one
line on stderr, or one JSON line when the command was asked for JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb

from hive_api.client import ApiError, ClientError, NoAnswer
from hive_api.errors import EXIT_FAILED, EXIT_TIMED_OUT, EXIT_UNREACHABLE, EXIT_USAGE, ErrorCode, exit_code
from hivectl.escape import escape


class CommandError(Exception):
    """A command that cannot do what it was asked to; exits with `status`."""

    status = EXIT_FAILED
    code: str = ErrorCode.FAILED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(CommandError):
    """The request itself is wrong; nothing was done."""

    status = EXIT_USAGE
    code = ErrorCode.INVALID_REQUEST


class ChangeFailed(CommandError):
    """A change ended as failed; its code and exit status are those of the change's own error."""

    def __init__(self, code: ErrorCode, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.code = code
        self.status = exit_code(code)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error ready to be shown."""

    status: int
    code: str
    message: str
    hint: str = ""

    def line(self) -> str:
        """Return the one line for people."""
        hint = f" ({escape(self.hint)})" if self.hint else ""
        return f"hivectl: {escape(self.message)}{hint}"

    def json_line(self) -> str:
        """Return the one line for programs."""
        return json.dumps({"error": {"code": self.code, "message": self.message, "hint": self.hint}})


def describe(error: Exception, purpose: str) -> Failure:
    """Return `error` as it is shown; `purpose` completes "cannot …" where the error does not say it."""
    match error:
        case CommandError():
            return Failure(error.status, error.code, _sentence(purpose, error.message), error.hint)
        case ApiError():
            return Failure(exit_code(error.code), error.code, _sentence(purpose, error.message), error.hint)
        case NoAnswer():
            return Failure(EXIT_TIMED_OUT, ErrorCode.TIMED_OUT, error.message, error.hint)
        case ClientError():
            return Failure(EXIT_UNREACHABLE, ErrorCode.UNREACHABLE.value, error.message, error.hint)
        case _:
            return _defect(error, purpose)


def _sentence(purpose: str, message: str) -> str:
    return message if message.startswith("cannot ") else f"cannot {purpose}: {message}"


def _defect(error: Exception, purpose: str) -> Failure:
    # The text of an unforeseen exception may hold anything, a secret too: only its type and place are shown.
    frames = extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
    message = f"cannot {purpose}: unexpected {type(error).__name__} at {place}"
    return Failure(EXIT_FAILED, ErrorCode.INTERNAL, message, "this is a defect of hivectl; please report it")
