"""Encoding: from the engine layer's objects to the wire contract. No decisions, nothing asked."""

from __future__ import annotations

from hive_api.models import (
    AgentAnswer,
    ChangeAnswer,
    CheckBody,
    DiskStatus,
    DoctorAnswer,
    DryRunAnswer,
    EngineStatus,
    ErrorBody,
    EventBody,
    ExitBody,
    JsonObject,
    LastPass,
    LimitsBody,
    PartBody,
    PlannedAction,
    ProblemBody,
    RosterStatus,
    StatusAnswer,
    StepBody,
)
from hive_core import __version__
from hive_core.domain.changes import Change, Part
from hive_core.domain.errors import HiveError
from hive_core.domain.events import Event, timestamp
from hive_core.engine.doctor import Check
from hive_core.engine.hive import Hive, Portrait
from hive_core.planning.actions import AgentView, Plan, Problem


def error(fault: HiveError) -> JsonObject:
    """Return the error envelope."""
    body = ErrorBody(code=fault.code.value, message=fault.message, hint=fault.hint)
    return {"error": body.model_dump()}


def status(hive: Hive) -> StatusAnswer:
    """Return the daemon's status, from the snapshot alone."""
    seen = hive.snapshot
    age_s = hive.age_s()
    return StatusAnswer.model_validate(
        {
            "pid": hive.pid,
            "version": __version__,
            "hive": hive.settings.hive.id,
            "phase": seen.phase.value,
            "engine": EngineStatus(state=seen.engine.value, version=seen.engine_version),
            "roster": RosterStatus.model_validate(
                {"state": seen.roster_state, "shape": seen.shape.value, "agents": len(seen.views)}
            ),
            "last_pass": LastPass(
                age_s=None if age_s is None else round(age_s, 3),
                duration_s=None if seen.duration_s is None else round(seen.duration_s, 4),
                actions=seen.actions,
            ),
            "disk": _disk(hive),
            "problems": [problem(one) for one in seen.problems],
        }
    )


def _disk(hive: Hive) -> DiskStatus:
    facts = hive.disk()
    return DiskStatus(
        free_bytes=facts.free.free_bytes,
        free_inodes=facts.free.inodes,
        is_low=facts.is_low,
        store_bytes=facts.store_bytes,
        audit_bytes=facts.audit_bytes,
    )


def problem(one: Problem) -> ProblemBody:
    """Return a problem."""
    return ProblemBody(code=one.code, text=one.text, agent=one.agent)


def row(view: AgentView) -> JsonObject:
    """Return one line of `ps`, as plain JSON values: this is the hot answer."""
    return {
        "name": view.name,
        "parent": view.parent,
        "state": view.state.value,
        "desired": view.desired.value,
        "container_id": view.container_id,
        "started_at": timestamp(view.started_at),
        "reason": view.reason,
        "needs_update": view.needs_update,
        "degraded": view.degraded,
    }


def portrait(one: Portrait) -> AgentAnswer:
    """Return everything about one agent."""
    record, applied = one.record, one.record.applied
    limits = None
    if applied is not None:
        limits = LimitsBody(
            memory_bytes=applied.limits.memory_bytes,
            cpus=applied.limits.cpus,
            pids=applied.limits.pids,
            tmp_bytes=applied.limits.tmp_bytes,
        )
    return AgentAnswer.model_validate(
        {
            **row(one.view),
            "description": one.manifest.description if one.manifest is not None else None,
            "uid": record.uid,
            "incarnation": record.incarnation,
            "created_at": timestamp(record.created_at),
            "children": list(one.children),
            "image": applied.image_id if applied is not None else None,
            "command": list(applied.command) if applied is not None else None,
            "applied_commit": record.applied_commit,
            "main_commit": one.main,
            "spec": record.applied_hash,
            "limits": limits,
            "network": applied.network if applied is not None else None,
            "differing": list(one.view.differing),
            "degraded_reason": one.view.fault or None,
            "exits": [
                ExitBody(
                    started_at=timestamp(gone.started_at),
                    finished_at=timestamp(gone.finished_at) or "",
                    exit_code=gone.exit_code,
                    oom_killed=gone.oom_killed,
                    kind=gone.kind.value,
                    text=gone.text,
                )
                for gone in record.exits
            ],
            "disk_bytes": None if one.usage is None else one.usage.used_bytes,
            "disk_inodes": None if one.usage is None else one.usage.inodes,
            "container_name": one.container_name,
            "desired_reason": record.desired_reason,
        }
    )


def event(one: Event) -> EventBody:
    """Return an event."""
    return EventBody.model_validate(
        {
            **one.fields,
            "seq": one.seq,
            "at": timestamp(one.at),
            "kind": one.kind,
            "agent": one.agent,
            "text": one.text,
        }
    )


def doctor(checks: tuple[Check, ...]) -> DoctorAnswer:
    """Return the checks."""
    return DoctorAnswer(
        checks=[
            CheckBody(name=one.name, status=one.status.value, text=one.text, hint=one.hint) for one in checks
        ]
    )


def change(one: Change, steps: tuple[Event, ...] | None = None) -> ChangeAnswer:
    """Return a change, with its steps where they are asked for."""
    failure = None
    if one.error is not None:
        failure = ErrorBody(code=one.error.code.value, message=one.error.message, hint=one.error.hint)
    return ChangeAnswer.model_validate(
        {
            "id": one.id,
            "kind": one.kind,
            "state": one.state.value,
            "agents": [_part(part) for part in one.parts],
            "started_at": timestamp(one.started_at),
            "finished_at": timestamp(one.finished_at),
            "error": failure,
            "steps": None if steps is None else [_step(step) for step in steps],
        }
    )


def _step(one: Event) -> StepBody:
    return StepBody(at=timestamp(one.at) or "", agent=one.agent, kind=one.kind, text=one.text)


def _part(one: Part) -> PartBody:
    return PartBody.model_validate({"name": one.name, "state": one.state.value, "text": one.text})


def dry_run(plan: Plan) -> DryRunAnswer:
    """Return what a pass would do."""
    actions = [
        PlannedAction(agent=action.agent, action=type(action).__name__, reason=action.reason)
        for action in plan.actions
    ]
    if plan.roster is not None:
        actions.append(PlannedAction(agent=None, action="PublishRoster", reason=plan.roster.reason))
    return DryRunAnswer(actions=actions, problems=[problem(one) for one in plan.problems])
