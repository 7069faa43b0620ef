"""The pages of the admin API: operations, routes, errors.

Written from the operations table, the routes bound to it and the OpenAPI document that the daemon itself
serves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from hive_api.errors import ErrorCode, exit_code
from hive_core.domain.errors import HiveError, Retryable
from hive_core.domain.operations import OPERATIONS, Operation, Reach, Surface
from hive_core.engine.hive import Hive
from hive_core.surfaces.admin import STATUS, admin_app
from hive_core.surfaces.bindings import ADMIN, WEBSOCKET
from reference.markdown import code, page, table

Schema = dict[str, Any]

OPERATIONS_INTRODUCTION = """\
Every verb hive knows, in one table: who may ask for it and about whom. The daemon decides each request with
this table and nothing else; a verb that is not here cannot be reached.

- The **operator** is whoever the admin socket lets in: root, or a member of the operator group. The operator
  reaches every agent.
- An **agent** will ask over a socket of its own, which identifies it. Those sockets are not available yet;
  the table and the decision are, so what agents will be able to reach is settled here. An agent reaches its
  *subtree*: itself and everything below it. In a flat hive that is itself alone.
- What an agent cannot reach is answered exactly as what does not exist: `not_found`.
"""

OPERATIONS_CLOSING = """\
*Widened by* names the capability that makes an agent's reach the whole hive. Only the operator can grant a
capability, and granting is not available yet.
"""

ERRORS_INTRODUCTION = """\
Every error has a *code* to branch on, a *message* that names the thing (`cannot start bob: …`) and, where
there is one, a *hint* with the way out. A code is never renamed; new ones may be added.

`hivectl` prints `hivectl: MESSAGE (HINT)` on stderr, or the JSON envelope under `-o json`, and exits with the
status below. The status of `hivectl exec` is the command's own, or 125 when hive failed;
[hivectl](cli.md#exit-status) lists them all.
"""

API_INTRODUCTION = """\
HTTP/1.1 with JSON over the Unix socket `/run/hive/admin.sock`; `hivectl` uses nothing else. The daemon serves
its OpenAPI document at `/v1/openapi.json`:

    curl --unix-socket /run/hive/admin.sock http://hive/v1/status

- Times are RFC 3339 in UTC with milliseconds and `Z`. What is unknown is `null`.
- An error is `{"error": {"code", "message", "hint"}}`; the codes are in [errors](errors.md).
- A request that changes something answers 202 with a *change* to wait for, `GET /v1/changes/{change_id}`.
  Hanging up cancels nothing. Only what is known at once (an unknown name, a verb that makes no sense in that
  state) is refused directly, and then nothing is done to any of the agents named.
- A body is at most 32 MiB, announced with Content-Length.
"""

EXEC = """\
A WebSocket. The client's first text frame says what to run:
`{"argv": [...], "tty": false, "rows": 24, "columns": 80}`.

| frame | direction | meaning |
|---|---|---|
| binary, first byte 0 | to the daemon | input of the command |
| binary, first byte 1 or 2 | to the client | its output, its error output |
| text `{"resize": [ROWS, COLUMNS]}` | to the daemon | the terminal has another size |
| text `{"stdin": "eof"}` | to the daemon | the input has ended |
| text `{"started": true}` | to the client | the command runs |
| text `{"exit": N}` | to the client | it ended; then the connection is closed |
| text `{"error": {...}}` | to the client | hive failed; then the connection is closed |

The command runs as the agent's own user. When the client goes away, the command is ended.
"""

MEANINGS = {
    ErrorCode.INVALID_REQUEST: "the request is malformed, or its parts exclude each other",
    ErrorCode.INVALID_NAME: "not an agent name",
    ErrorCode.INVALID_MANIFEST: "`agent.toml` cannot be used; the message names the key",
    ErrorCode.INVALID_SETTINGS: "the settings cannot be used; the daemon does not start",
    ErrorCode.INVALID_ROSTER: "a roster that cannot exist: a cycle, a name twice",
    ErrorCode.NOT_FOUND: "no such agent, change or route, or none the caller can reach",
    ErrorCode.NAME_UNAVAILABLE: "the name is taken",
    ErrorCode.DENIED: "the caller may not use this socket, or not this operation",
    ErrorCode.CONFLICT: "not possible in the present state; the hint names what is",
    ErrorCode.REPO_DAMAGED: "the config repo cannot be read; the agent runs on with its last good commit",
    ErrorCode.IMAGE_UNUSABLE: "the image is absent, or asks for what no agent may have",
    ErrorCode.UNSAFE_PATH: "a path that somebody else could replace, or that is not what it has to be",
    ErrorCode.HOST_UNSUITABLE: "the host lacks something hive stands on; the daemon does not start",
    ErrorCode.ENGINE_UNAVAILABLE: "the container engine does not answer; hive goes on once it does",
    ErrorCode.ENGINE_REFUSED: "the engine answered, with a refusal",
    ErrorCode.STORE_UNUSABLE: "the store is damaged, from a newer hive, or another hive's",
    ErrorCode.TIMED_OUT: "it took longer than its limit",
    ErrorCode.LIMIT_EXCEEDED: "more than is allowed at once",
    ErrorCode.STOPPING: "the daemon is stopping; ask again once it is back",
    ErrorCode.UNREACHABLE: "the daemon cannot be reached; said by `hivectl` itself",
    ErrorCode.FAILED: "it failed for another reason; the message says which",
    ErrorCode.INTERNAL: "a defect of hive; the daemon's log has the details",
}


def operations_page() -> str:
    """Return operations.md."""
    rows = [_operation_row(operation) for operation in OPERATIONS.values()]
    header = ("operation", "what", "operator", "agents", "changes something", "route")
    return page(
        "Operations",
        OPERATIONS_INTRODUCTION,
        table(header, rows),
        OPERATIONS_CLOSING,
    )


def _operation_row(operation: Operation) -> tuple[str, ...]:
    routes = [code(f"{one.method} {one.path}") for one in ADMIN if one.operation == operation.name]
    return (
        code(operation.name),
        operation.summary,
        "yes" if Surface.ADMIN in operation.surfaces else "no",
        _agents(operation),
        "yes" if operation.mutates else "no",
        ", ".join(routes),
    )


def _agents(operation: Operation) -> str:
    if Surface.AGENT not in operation.surfaces or operation.reach is Reach.OPERATOR:
        return "no"
    said = "own subtree" if operation.reach is Reach.SUBTREE else "yes"
    if operation.tool_group is not None:
        said += f"; tool group {operation.tool_group.value}"
    if operation.widened_by is not None:
        said += f"; widened by {operation.widened_by.value}"
    return said


def errors_page() -> str:
    """Return errors.md."""
    retryable = _retryable_codes()
    rows = [
        (
            code(one.value),
            MEANINGS[one],
            int(STATUS.get(one, 500)),
            exit_code(one),
            "yes" if one in retryable else "no",
        )
        for one in ErrorCode
    ]
    return page(
        "Errors",
        ERRORS_INTRODUCTION,
        table(("code", "meaning", "HTTP status", "exit status", "may pass by itself"), rows),
    )


def _retryable_codes() -> set[ErrorCode]:
    return {one.code for one in _subclasses(HiveError) if issubclass(one, Retryable) and one is not Retryable}


def _subclasses(base: type[HiveError]) -> Iterator[type[HiveError]]:
    for one in base.__subclasses__():
        yield one
        yield from _subclasses(one)


def api_page() -> str:
    """Return api.md."""
    # The document is made from the routes alone: nothing of a hive is asked, so none has to run.
    stand_in = cast(Hive, SimpleNamespace(is_managed=lambda cgroup_text: False))
    document = admin_app(stand_in, operator_gid=0).openapi()
    parts = [API_INTRODUCTION, "## Routes", _overview()]
    for route in ADMIN:
        parts.append(f"### {route.method} {route.path}")
        if route.method == WEBSOCKET:
            parts += [f"{OPERATIONS[route.operation].summary.capitalize()}.", EXEC]
        else:
            parts += _route(document["paths"][route.path][route.method.lower()])
    parts.append("## Bodies")
    for name, schema in sorted(document["components"]["schemas"].items()):
        if name not in ("HTTPValidationError", "ValidationError"):
            parts += [f"### {name}", schema.get("description", ""), _properties(schema)]
    return page("Admin API", *filter(None, parts))


def _overview() -> str:
    rows = [(code(f"{one.method} {one.path}"), OPERATIONS[one.operation].summary) for one in ADMIN]
    return table(("route", "what"), rows)


def _route(described: Schema) -> list[str]:
    parts = [described.get("description", "")]
    parameters = [
        (code(one["name"]), one["in"], _type(one["schema"]), _default(one["schema"]))
        for one in described.get("parameters", ())
    ]
    if parameters:
        parts.append(table(("parameter", "in", "type", "default"), parameters))
    body = described.get("requestBody")
    if body is not None:
        parts.append(f"Request: {_type(body['content']['application/json']['schema'])}.")
    for status, answer in described["responses"].items():
        if status.startswith("2"):
            schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
            parts.append(f"Answer {status}: {_type(schema) if schema else 'bytes'}.")
    return parts


def _properties(schema: Schema) -> str:
    rows = [
        (code(name), _type(one), "required" if name in schema.get("required", ()) else _default(one))
        for name, one in schema.get("properties", {}).items()
    ]
    return table(("field", "type", "default"), rows)


def _default(schema: Schema) -> str:
    if "default" not in schema:
        return ""
    return code(json.dumps(schema["default"]))


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(code(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if schema.get("format") in ("base64", "binary"):
        return "base64 text"
    return _limited(schema)


def _limited(schema: Schema) -> str:
    kind = str(schema.get("type", "JSON"))
    word = "text" if kind == "string" else kind
    limits = [(key, schema[key]) for key in ("minimum", "maximum") if key in schema]
    return f"{word}, " + ", ".join(f"{key} {value}" for key, value in limits) if limits else word
