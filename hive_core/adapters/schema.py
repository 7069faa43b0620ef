"""The store's schema: one step per version, applied in order, never edited once released.

Used by `adapters.store` when it opens a database. Adding a step is described in CONTRIBUTING.md.
"""

from __future__ import annotations

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE facts (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;

    -- One row per incarnation. A name is live at most once; ended rows keep their uid from being reused.
    CREATE TABLE agents (
        incarnation TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        uid INTEGER NOT NULL,
        parent TEXT,
        is_root INTEGER NOT NULL,
        created_at TEXT NOT NULL,
        ended_at TEXT,
        is_purged INTEGER NOT NULL DEFAULT 0,
        desired TEXT NOT NULL,
        desired_reason TEXT NOT NULL,
        intent TEXT,
        intent_at TEXT,
        intent_grace_s INTEGER,
        intent_purge INTEGER,
        applied_spec TEXT,
        applied_hash TEXT,
        applied_commit TEXT,
        crashes_reset_at TEXT
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX agents_live_name ON agents (name) WHERE ended_at IS NULL;
    CREATE UNIQUE INDEX agents_live_uid ON agents (uid) WHERE ended_at IS NULL;

    -- Creates, journalled before they are made; id is null until the engine's answer is known.
    CREATE TABLE containers (
        nonce TEXT PRIMARY KEY,
        incarnation TEXT NOT NULL REFERENCES agents (incarnation),
        id TEXT UNIQUE,
        created_at TEXT NOT NULL,
        stop_requested_at TEXT
    ) WITHOUT ROWID;

    CREATE TABLE exits (
        container_id TEXT NOT NULL,
        finished_at TEXT NOT NULL,
        incarnation TEXT NOT NULL REFERENCES agents (incarnation),
        started_at TEXT,
        exit_code INTEGER NOT NULL,
        oom_killed INTEGER NOT NULL,
        kind TEXT NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (container_id, finished_at)
    ) WITHOUT ROWID;
    CREATE INDEX exits_incarnation ON exits (incarnation, finished_at);

    CREATE TABLE outages (lost_at TEXT PRIMARY KEY, returned_at TEXT) WITHOUT ROWID;

    CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        at TEXT NOT NULL,
        kind TEXT NOT NULL,
        agent TEXT,
        text TEXT NOT NULL,
        fields TEXT NOT NULL
    );
    """,
    """
    ALTER TABLE agents ADD COLUMN previous_spec TEXT;
    ALTER TABLE agents ADD COLUMN quarantined_at TEXT;

    CREATE TABLE changes (
        id TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        asked_by TEXT NOT NULL,
        key TEXT UNIQUE,
        state TEXT NOT NULL,
        parts TEXT NOT NULL,
        error TEXT,
        started_at TEXT NOT NULL,
        finished_at TEXT
    ) WITHOUT ROWID;
    CREATE INDEX changes_started ON changes (started_at);

    ALTER TABLE events ADD COLUMN change_id TEXT;
    CREATE INDEX events_change ON events (change_id) WHERE change_id IS NOT NULL;
    CREATE INDEX events_agent ON events (agent, seq) WHERE agent IS NOT NULL;

    -- What is kept of a container before it is removed; its log is a file.
    CREATE TABLE evidence (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        incarnation TEXT NOT NULL REFERENCES agents (incarnation),
        container_id TEXT NOT NULL,
        kept_at TEXT NOT NULL,
        exit_code INTEGER NOT NULL,
        oom_killed INTEGER NOT NULL,
        reason TEXT NOT NULL,
        differing TEXT NOT NULL,
        log_file TEXT
    );
    CREATE INDEX evidence_incarnation ON evidence (incarnation, id);
    """,
)
