"""Every operation and its admin route, in one table.

Imported by `surfaces.admin`, which adds the routes. An operation of the table in `domain.operations` that has
no route here, or a route without an operation, stops the import: a verb cannot be half there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hive_api.models import AgentRow, ChangeAnswer
from hive_core.domain.operations import OPERATIONS, Surface
from hive_core.surfaces import admin_backup, admin_exec, admin_reads, admin_writes

Handler = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Route:
    """One route. `status` is that of success; `model` documents answers that are encoded by hand."""

    operation: str
    method: str
    path: str
    handler: Handler
    status: int = 200
    model: Any = None


WEBSOCKET = "WEBSOCKET"

ADMIN: tuple[Route, ...] = (
    Route("status", "GET", "/v1/status", admin_reads.status),
    Route("list_containers", "GET", "/v1/agents", admin_reads.agents, model=list[AgentRow]),
    Route("show", "GET", "/v1/agents/{name}", admin_reads.show),
    Route("names", "GET", "/v1/names", admin_reads.names),
    Route("roster", "GET", "/v1/roster", admin_reads.roster),
    Route("events", "GET", "/v1/events", admin_reads.events),
    Route("doctor", "GET", "/v1/doctor", admin_reads.doctor),
    Route("why", "GET", "/v1/agents/{name}/why", admin_reads.why),
    Route("explain", "GET", "/v1/explain", admin_reads.explain),
    Route("audit", "GET", "/v1/audit", admin_reads.audit),
    Route("audit", "GET", "/v1/audit/verify", admin_reads.audit_verify),
    Route("changes", "GET", "/v1/changes", admin_reads.changes),
    Route("changes", "GET", "/v1/changes/{change_id}", admin_reads.change),
    Route("backup", "GET", "/v1/backup", admin_backup.backup),
    Route("get_logs", "GET", "/v1/agents/{name}/logs", admin_reads.logs),
    Route("init", "POST", "/v1/agents", admin_writes.init, 202),
    Route("push", "PUT", "/v1/agents/{name}/config", admin_writes.push, 202),
    Route("remove", "DELETE", "/v1/agents/{name}", admin_writes.remove, 202),
    Route("spawn", "POST", "/v1/lifecycle/spawn", admin_writes.spawn, 202),
    Route("start", "POST", "/v1/lifecycle/start", admin_writes.start, 202),
    Route("kill", "POST", "/v1/lifecycle/stop", admin_writes.stop, 202),
    Route("kill", "POST", "/v1/lifecycle/stop-all", admin_writes.stop_all, 202),
    Route("quarantine", "POST", "/v1/lifecycle/quarantine", admin_writes.quarantine, 202),
    Route("release", "POST", "/v1/lifecycle/release", admin_writes.release, 202),
    Route("pause", "POST", "/v1/pause", admin_writes.pause),
    Route("resume", "POST", "/v1/resume", admin_writes.resume),
    Route("restart", "POST", "/v1/lifecycle/restart", admin_writes.restart, 202),
    Route("update", "POST", "/v1/lifecycle/update", admin_writes.update, 202),
    Route("reconcile", "POST", "/v1/reconcile", admin_writes.reconcile, 202, ChangeAnswer),
    Route("exec", WEBSOCKET, "/v1/agents/{name}/exec", admin_exec.exec_),
)


def unbound(routes: tuple[Route, ...]) -> tuple[str, ...]:
    """Return the faults of a route table: operations without a route, routes without an operation."""
    wanted = {name for name, operation in OPERATIONS.items() if Surface.ADMIN in operation.surfaces}
    bound = {route.operation for route in routes}
    return tuple(
        [f"operation {name} has no route" for name in sorted(wanted - bound)]
        + [f"route for unknown operation {name}" for name in sorted(bound - wanted)]
    )


_faults = unbound(ADMIN)
if _faults:
    raise ImportError("; ".join(_faults))
