"""The admin application: FastAPI on the admin socket, errors as one envelope, OpenAPI included."""

from __future__ import annotations

import logging
from http import HTTPStatus

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from hive_api.errors import ErrorCode
from hive_api.models import ErrorAnswer
from hive_core import __version__
from hive_core.domain.errors import HiveError, InvalidRequest, NotFound
from hive_core.domain.operations import OPERATIONS
from hive_core.engine.hive import Hive
from hive_core.surfaces.audited import audited
from hive_core.surfaces.bindings import ADMIN, WEBSOCKET
from hive_core.surfaces.encode import error
from hive_core.surfaces.gate import Gate

log = logging.getLogger(__name__)

STATUS: dict[ErrorCode, int] = {
    ErrorCode.INVALID_REQUEST: HTTPStatus.BAD_REQUEST,
    ErrorCode.INVALID_NAME: HTTPStatus.BAD_REQUEST,
    ErrorCode.INVALID_MANIFEST: HTTPStatus.BAD_REQUEST,
    ErrorCode.INVALID_ROSTER: HTTPStatus.BAD_REQUEST,
    ErrorCode.DENIED: HTTPStatus.FORBIDDEN,
    ErrorCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorCode.CONFLICT: HTTPStatus.CONFLICT,
    ErrorCode.NAME_UNAVAILABLE: HTTPStatus.CONFLICT,
    ErrorCode.IMAGE_UNUSABLE: HTTPStatus.CONFLICT,
    ErrorCode.REPO_DAMAGED: HTTPStatus.CONFLICT,
    ErrorCode.LIMIT_EXCEEDED: HTTPStatus.TOO_MANY_REQUESTS,
    ErrorCode.STOPPING: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.ENGINE_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.TIMED_OUT: HTTPStatus.GATEWAY_TIMEOUT,
}


def admin_app(hive: Hive, operator_gid: int) -> FastAPI:
    """Return the application for one hive; only the peers the gate lets in reach a route."""
    app = FastAPI(
        title="hive admin API",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        redirect_slashes=False,
        responses={"default": {"model": ErrorAnswer, "description": "a refusal or a failure"}},
    )
    app.state.hive = hive
    for route in ADMIN:
        if route.method == WEBSOCKET:
            app.add_api_websocket_route(route.path, route.handler)
            continue
        operation = OPERATIONS[route.operation]
        app.add_api_route(
            route.path,
            route.handler,
            dependencies=[Depends(audited(operation))] if operation.mutates else None,
            methods=[route.method],
            status_code=route.status,
            summary=operation.summary,
            operation_id=f"{route.operation}_{route.handler.__name__}",
            **({"response_model": route.model} if route.model is not None else {}),
        )
    _add_error_handlers(app)
    app.add_middleware(Gate, operator_gid=operator_gid, hive=hive)
    return app


def _add_error_handlers(app: FastAPI) -> None:
    app.exception_handler(HiveError)(_owned)
    app.exception_handler(RequestValidationError)(_malformed)
    app.exception_handler(HTTPException)(_unrouted)
    app.exception_handler(Exception)(_internal)


async def _owned(request: Request, fault: HiveError) -> JSONResponse:
    return JSONResponse(error(fault), STATUS.get(fault.code, HTTPStatus.INTERNAL_SERVER_ERROR))


async def _malformed(request: Request, fault: RequestValidationError) -> JSONResponse:
    first = fault.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    known = InvalidRequest(
        f"invalid request: {ascii(where)[1:-1][:100] or 'body'}: {first['msg'][:200]}",
        "see the API reference",
    )
    return JSONResponse(error(known), HTTPStatus.BAD_REQUEST)


async def _unrouted(request: Request, fault: HTTPException) -> JSONResponse:
    if fault.status_code == HTTPStatus.NOT_FOUND:
        known: HiveError = NotFound("there is no such route", "the client may be newer than the daemon")
    else:
        known = InvalidRequest(f"invalid request: {fault.detail}"[:200])
    return JSONResponse(error(known), fault.status_code)


async def _internal(request: Request, fault: Exception) -> JSONResponse:
    log.error("a request broke", exc_info=fault)
    known = HiveError("internal error", "the daemon's log has the details", code=ErrorCode.INTERNAL)
    return JSONResponse(error(known), HTTPStatus.INTERNAL_SERVER_ERROR)
