"""What goes wrong between hive and the engine, as the two errors of the port.

Used by the Docker adapter's modules around every exchange with the engine. Its client library lets the errors
of three others through (requests, urllib3, the socket itself) and they say nothing of what was being done;
here each becomes "cannot start 4f2a…: reason".
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager

import requests
import urllib3
from docker.errors import APIError, DockerException

from hive_core.domain.errors import EngineRefused, EngineUnavailable

_REASON_MAX = 300
_UNAVAILABLE_HINT = "check that the container engine runs; hive goes on by itself once it answers"
_HUNG_HINT = "the engine is overloaded or stuck; hive goes on by itself once it answers"
_TRANSPORT = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    DockerException,
    OSError,
)
_NO_ANSWER_IN_TIME = (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)


def short(container_id: str) -> str:
    """Return the form of an id that people read and the engine's own tools print."""
    return container_id[:12]


@contextmanager
def engine_call(deed: str) -> Iterator[None]:
    """Turn every failure inside into the port's errors; `deed` completes the sentence "cannot <deed>"."""
    try:
        yield
    except APIError as fault:
        raise refusal(deed, _status(fault), _explanation(fault)) from fault
    except _TRANSPORT as fault:
        raise unavailable(deed, fault) from fault
    except (ValueError, KeyError, TypeError) as fault:
        raise EngineUnavailable(
            f"cannot {deed}: the engine's answer makes no sense ({type(fault).__name__})", _UNAVAILABLE_HINT
        ) from fault


def refusal(deed: str, status: int, explanation: str) -> EngineRefused:
    """Return the error for an answer that says no."""
    return EngineRefused(f"cannot {deed}: {_one_line(explanation)}", status=status)


def unavailable(deed: str, fault: BaseException) -> EngineUnavailable:
    """Return the error for an answer that did not come."""
    if is_timeout(fault):
        return EngineUnavailable(f"cannot {deed}: the engine did not answer in time", _HUNG_HINT, hung=True)
    return EngineUnavailable(f"cannot {deed}: {_reason(fault)}", _UNAVAILABLE_HINT)


def is_timeout(fault: BaseException) -> bool:
    """Whether silence ended the exchange: the libraries wrap a timeout in their own errors, as argument."""
    wrapped = [argument for argument in fault.args if isinstance(argument, BaseException)]
    return isinstance(fault, _NO_ANSWER_IN_TIME) or any(is_timeout(inner) for inner in wrapped)


def _reason(fault: BaseException) -> str:
    for inner in _chain(fault):
        if isinstance(inner, OSError) and inner.strerror:
            return f"the engine does not answer ({inner.strerror.lower()})"
    return "the engine broke off the connection"


def _chain(fault: BaseException) -> Iterator[BaseException]:
    yield fault
    for argument in fault.args:
        if isinstance(argument, BaseException):
            yield from _chain(argument)


def _status(fault: APIError) -> int:
    status = fault.status_code
    return status if isinstance(status, int) else 500


def _explanation(fault: APIError) -> str:
    return str(fault.explanation or fault)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REASON_MAX else f"{line[:_REASON_MAX]}…"
