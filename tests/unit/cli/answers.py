"""Answers of a daemon, complete as the API has them. Used by the tests in this folder."""

from __future__ import annotations

from typing import Any

STARTED = "2025-01-02T03:04:05.678Z"


def agent(name: str, **fields: Any) -> dict[str, Any]:
    """Return a row of `ps`."""
    usual = {
        "name": name,
        "parent": None,
        "state": "running",
        "desired": "running",
        "container_id": "ab" * 32,
        "started_at": STARTED,
        "reason": "started by the operator",
        "needs_update": False,
        "degraded": False,
    }
    return usual | fields


def full_agent(name: str, **fields: Any) -> dict[str, Any]:
    """Return what `show` gets."""
    more = {
        "description": "counts things",
        "uid": 1900000001,
        "incarnation": "0f" * 16,
        "created_at": STARTED,
        "children": [],
        "image": "hive-agent:latest",
        "command": ["python3", "/config/main.py"],
        "applied_commit": "ab" * 20,
        "main_commit": "ab" * 20,
        "spec": "v1:" + "9" * 64,
        "limits": {"memory_bytes": 1 << 30, "cpus": 1.5, "pids": 256, "tmp_bytes": 256 << 20},
        "network": "none",
        "differing": [],
        "degraded_reason": None,
        "exits": [],
        "container_name": f"h-{name}",
        "desired_reason": "spawned by the operator",
    }
    return agent(name) | more | fields


def status(**fields: Any) -> dict[str, Any]:
    """Return the daemon's status."""
    usual = {
        "pid": 77,
        "version": "0.1.0",
        "hive": "default",
        "phase": "running",
        "engine": {"state": "ok", "version": "20.10.24"},
        "roster": {"state": "present", "shape": "tree", "agents": 3},
        "last_pass": {"age_s": 4.2, "duration_s": 0.0123, "actions": 0},
        "problems": [],
    }
    return usual | fields


def change(state: str = "running", *agents: tuple[str, str, str], **fields: Any) -> dict[str, Any]:
    """Return a change; each agent is (name, state, text)."""
    rows = [{"name": name, "state": agent_state, "text": text} for name, agent_state, text in agents]
    usual = {
        "id": "c12",
        "kind": "stop",
        "state": state,
        "agents": rows,
        "started_at": STARTED,
        "finished_at": None if state == "running" else STARTED,
        "error": None,
    }
    return usual | fields


def event(seq: int, **fields: Any) -> dict[str, Any]:
    """Return an event."""
    usual = {"seq": seq, "at": STARTED, "kind": "started", "agent": "bob", "text": f"event {seq}"}
    return usual | fields
