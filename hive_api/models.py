"""The wire contract of the admin API, as pydantic models: what requests may hold and what answers do hold.

Imported by the surfaces and by the generator of the API reference, never by the CLI's fast commands.
Times are RFC 3339 UTC text with milliseconds; what is unknown is null.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Base64Bytes, BaseModel, ConfigDict, Field


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FileBody(_Request):
    """One regular file of a config: POSIX path from the top, content in base64."""

    path: str = Field(max_length=4096)
    content: Base64Bytes
    executable: bool = False


class InitRequest(_Request):
    """Make an agent. `files` null takes the template, `parent` null the default one unless `top_level`."""

    name: str
    parent: str | None = None
    top_level: bool = False
    adopt_state: bool = False
    files: list[FileBody] | None = None


class PushRequest(_Request):
    """Replace the config on an agent's main branch with these files."""

    files: list[FileBody]


class LifecycleRequest(_Request):
    """Apply a verb to all of the agents, or, if it is refused for one, to none. `now` skips the grace."""

    names: list[str]
    now: bool = False


class StopAllRequest(_Request):
    """Stop every agent that was spawned. `now` skips the grace."""

    now: bool = False


class QuarantineRequest(_Request):
    """Put agents into quarantine, or release them; with `subtree` those below them too."""

    names: list[str]
    subtree: bool = False


class PauseAnswer(_Request):
    """Whether automation is off now."""

    paused: bool


class ReconcileRequest(_Request):
    """Run a pass, or with `dry_run` only say what it would do."""

    dry_run: bool = False


class EngineStatus(_Answer):
    """How the engine answered last."""

    state: Literal["ok", "unreachable", "hung"]
    version: str | None


class RosterStatus(_Answer):
    """What topology.json was when last looked at, and how many agents the hive has."""

    state: Literal["present", "absent", "unreadable"]
    shape: Literal["tree", "flat"]
    agents: int


class LastPass(_Answer):
    """Age and length of the last pass in seconds, and the actions it decided on; null before the first."""

    age_s: float | None
    duration_s: float | None
    actions: int | None


class DiskStatus(_Answer):
    """Room left where the hive's data is, and what the hive's own records take."""

    free_bytes: int
    free_inodes: int
    is_low: bool
    store_bytes: int
    audit_bytes: int


class ProblemBody(_Answer):
    """Something an operator should know."""

    code: str
    text: str
    agent: str | None


class StatusAnswer(_Answer):
    """The daemon as a whole."""

    pid: int
    version: str
    hive: str
    phase: Literal["recovering", "running", "paused", "degraded", "stopping"]
    engine: EngineStatus
    roster: RosterStatus
    last_pass: LastPass
    disk: DiskStatus
    problems: list[ProblemBody]


State = Literal[
    "unspawned",
    "starting",
    "running",
    "paused",
    "stopping",
    "stopped",
    "backoff",
    "crash-looping",
    "failed",
    "removing",
    "unknown",
]


class AgentRow(_Answer):
    """One agent, as `hivectl ps` lists it."""

    name: str
    parent: str | None
    state: State
    desired: Literal["unspawned", "running", "stopped"]
    container_id: str | None
    started_at: str | None
    reason: str
    needs_update: bool
    degraded: bool


class ExitBody(_Answer):
    """One end of one run."""

    started_at: str | None
    finished_at: str
    exit_code: int
    oom_killed: bool
    kind: str
    text: str


class LimitsBody(_Answer):
    """Limits of the applied spec."""

    memory_bytes: int
    cpus: float
    pids: int
    tmp_bytes: int


class AgentAnswer(AgentRow):
    """Everything about one agent. `differing` are the spec fields an update would change; what it holds on
    disk is null until it was first measured.
    """

    description: str | None
    uid: int
    incarnation: str
    created_at: str
    children: list[str]
    image: str | None
    command: list[str] | None
    applied_commit: str | None
    main_commit: str | None
    spec: str | None
    limits: LimitsBody | None
    network: str | None
    differing: list[str]
    degraded_reason: str | None
    exits: list[ExitBody]
    disk_bytes: int | None
    disk_inodes: int | None
    container_name: str
    desired_reason: str


class EventBody(BaseModel):
    """One event; further fields depend on its kind."""

    model_config = ConfigDict(extra="allow")

    seq: int
    at: str
    kind: str
    agent: str | None
    text: str


class CheckBody(_Answer):
    """One check of `doctor`."""

    name: str
    status: Literal["ok", "warn", "fail"]
    text: str
    hint: str


class DoctorAnswer(_Answer):
    """What the host is like."""

    checks: list[CheckBody]


class PartBody(_Answer):
    """One agent's part of a change."""

    name: str
    state: Literal["pending", "done", "failed"]
    text: str


class ErrorBody(_Answer):
    """What went wrong: a code to branch on, a sentence, and the way out (may be empty)."""

    code: str
    message: str
    hint: str


class StepBody(_Answer):
    """One thing that was done for a change."""

    at: str
    agent: str | None
    kind: str
    text: str


class ChangeAnswer(_Answer):
    """A long-running mutation. `steps` is null in lists."""

    id: str
    kind: str
    state: Literal["running", "done", "failed"]
    agents: list[PartBody]
    started_at: str
    finished_at: str | None
    error: ErrorBody | None
    steps: list[StepBody] | None = None


class AuditAnswer(_Answer):
    """Audit records, oldest first, and the head to keep elsewhere as SEQ:HASH."""

    records: list[dict[str, Any]]
    head: str


class AuditVerdict(_Answer):
    """Whether the chain holds: its kept records, the first and the last (the head) of them, or the fault."""

    ok: bool
    records: int
    start: str | None
    head: str | None
    fault: str | None


class ExplainAnswer(_Answer):
    """A decision, the rule behind it, and what would allow it."""

    allowed: bool
    decision: str
    rule: str
    remedy: str


class WhyAnswer(_Answer):
    """The present state of an agent in one sentence, and how it came to it, oldest first."""

    summary: str
    sentences: list[str]


class PlannedAction(_Answer):
    """One action a pass would take."""

    agent: str | None
    action: str
    reason: str


class DryRunAnswer(_Answer):
    """What a pass would do now."""

    actions: list[PlannedAction]
    problems: list[ProblemBody]


class ErrorAnswer(_Answer):
    """The envelope of every refusal and failure."""

    error: ErrorBody


Seconds = Annotated[float, Field(ge=0, le=25)]
JsonObject = dict[str, Any]
