"""The closed list of error codes, shared by the daemon, the CLI and what runs in containers.

Standard library only: the agent image and the CLI's fast commands import it. A code is a promise: scripts
branch on it, so one may be added but never renamed. `EXIT_CODES` is the only place where a code becomes a
process exit status.
"""

from __future__ import annotations

from enum import StrEnum


class ErrorCode(StrEnum):
    """What went wrong, as a word a program can branch on."""

    INVALID_REQUEST = "invalid_request"
    INVALID_NAME = "invalid_name"
    INVALID_MANIFEST = "invalid_manifest"
    INVALID_SETTINGS = "invalid_settings"
    INVALID_ROSTER = "invalid_roster"
    NOT_FOUND = "not_found"
    NAME_UNAVAILABLE = "name_unavailable"
    DENIED = "denied"
    CONFLICT = "conflict"
    REPO_DAMAGED = "repo_damaged"
    IMAGE_UNUSABLE = "image_unusable"
    UNSAFE_PATH = "unsafe_path"
    HOST_UNSUITABLE = "host_unsuitable"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    ENGINE_REFUSED = "engine_refused"
    STORE_UNUSABLE = "store_unusable"
    TIMED_OUT = "timed_out"
    LIMIT_EXCEEDED = "limit_exceeded"
    STOPPING = "stopping"
    UNREACHABLE = "unreachable"
    FAILED = "failed"
    INTERNAL = "internal"


EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_NOT_FOUND = 4
EXIT_DENIED = 5
EXIT_CONFLICT = 6
EXIT_TIMED_OUT = 7
EXIT_WAITING = 8
EXIT_EXEC_FAILED = 125

EXIT_CODES: dict[ErrorCode, int] = {
    ErrorCode.INVALID_REQUEST: EXIT_USAGE,
    ErrorCode.INVALID_NAME: EXIT_USAGE,
    ErrorCode.NOT_FOUND: EXIT_NOT_FOUND,
    ErrorCode.NAME_UNAVAILABLE: EXIT_CONFLICT,
    ErrorCode.DENIED: EXIT_DENIED,
    ErrorCode.CONFLICT: EXIT_CONFLICT,
    ErrorCode.TIMED_OUT: EXIT_TIMED_OUT,
    ErrorCode.STOPPING: EXIT_UNREACHABLE,
    ErrorCode.UNREACHABLE: EXIT_UNREACHABLE,
}


def exit_code(code: ErrorCode) -> int:
    """Return the process exit status of an error code; a code without its own status is 1."""
    return EXIT_CODES.get(code, EXIT_FAILED)
