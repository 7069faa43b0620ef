"""The daemon's one tree of errors.

Raised by every layer, turned into the `{"error": {"code", "message", "hint"}}` envelope by the surfaces.
`message` names the thing and reads "cannot start bob: container is paused"; `hint` says the way out.
Whether a failure may pass by itself is its type: `Retryable` is tried again with backoff, everything else
waits for somebody to change something.
"""

from __future__ import annotations

from hive_api.errors import ErrorCode


class HiveError(Exception):
    """An error hive owns: it has a code, a sentence and, where there is one, a way out."""

    code: ErrorCode = ErrorCode.FAILED

    def __init__(self, message: str, hint: str = "", *, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def about(self, deed: str) -> HiveError:
        """Return this error told as the reason why a deed failed: "cannot start bob: …"."""
        return HiveError(f"{deed}: {self.message}", self.hint, code=self.code)


class Retryable(HiveError):
    """May pass by itself; the caller may try again later."""


class InvalidName(HiveError):
    code = ErrorCode.INVALID_NAME


class InvalidRequest(HiveError):
    code = ErrorCode.INVALID_REQUEST


class InvalidManifest(HiveError):
    code = ErrorCode.INVALID_MANIFEST


class InvalidSettings(HiveError):
    code = ErrorCode.INVALID_SETTINGS


class InvalidRoster(HiveError):
    code = ErrorCode.INVALID_ROSTER


class NotFound(HiveError):
    code = ErrorCode.NOT_FOUND


class NameUnavailable(HiveError):
    code = ErrorCode.NAME_UNAVAILABLE


class Denied(HiveError):
    code = ErrorCode.DENIED


class Conflict(HiveError):
    code = ErrorCode.CONFLICT


class RepoDamaged(HiveError):
    """A config repo cannot be read; the agent keeps running on its last good commit."""

    code = ErrorCode.REPO_DAMAGED


class ImageUnusable(HiveError):
    """The image is absent, or asks for something no agent may have."""

    code = ErrorCode.IMAGE_UNUSABLE


class UnsafePath(HiveError):
    """A path that is, or is below, something others can replace; or that is not what it has to be."""

    code = ErrorCode.UNSAFE_PATH


class HostUnsuitable(HiveError):
    """The host lacks something hive stands on; the daemon does not start."""

    code = ErrorCode.HOST_UNSUITABLE


class StoreUnusable(HiveError):
    code = ErrorCode.STORE_UNUSABLE


class LimitExceeded(HiveError):
    """A bound that somebody set, or that the host has; the message names it."""

    code = ErrorCode.LIMIT_EXCEEDED


class EngineUnavailable(Retryable):
    """The engine did not answer: its state is unknown, so nothing may be concluded from silence."""

    code = ErrorCode.ENGINE_UNAVAILABLE

    def __init__(self, message: str, hint: str = "", *, hung: bool = False) -> None:
        super().__init__(message, hint)
        self.hung = hung


class EngineRefused(HiveError):
    """The engine answered with a refusal.

    `status` is its HTTP status: 404 gone, 409 name or state conflict, 400 bad spec, 5xx its own failure.
    """

    code = ErrorCode.ENGINE_REFUSED

    def __init__(self, message: str, hint: str = "", *, status: int) -> None:
        super().__init__(message, hint)
        self.status = status

    @property
    def is_gone(self) -> bool:
        """Whether the object no longer exists."""
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        """Whether another holder or the present state stands in the way."""
        return self.status == 409


class Stopping(Retryable):
    code = ErrorCode.STOPPING


class TimedOut(Retryable):
    code = ErrorCode.TIMED_OUT


def owned(fault: HiveError | OSError) -> HiveError:
    """Return an error of ours for a failed file operation, naming the file; ours stay as they are."""
    if isinstance(fault, HiveError):
        return fault
    return HiveError(
        f"{fault.filename or 'a file'}: {fault.strerror or fault}", "hivectl doctor checks the disk"
    )
