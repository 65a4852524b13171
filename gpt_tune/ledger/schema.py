"""Owns the tables and how an older file becomes a newer one."""

from __future__ import annotations

import sqlite3

from gpt_tune.errors import UserError

# Each entry takes the file one version further. Never edit an entry that was released: add one.
MIGRATIONS = (
    """
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY,
        token TEXT NOT NULL UNIQUE,
        cluster TEXT NOT NULL,
        scheduler TEXT NOT NULL,
        name TEXT NOT NULL,
        recipe TEXT NOT NULL,
        run_dir TEXT NOT NULL,
        script TEXT NOT NULL,
        created_at TEXT NOT NULL,
        phase TEXT NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        job_ids TEXT NOT NULL,
        log_paths TEXT NOT NULL,
        profile TEXT NOT NULL,
        plan TEXT,
        prediction TEXT,
        shape TEXT,
        gpus INTEGER NOT NULL,
        nodes INTEGER NOT NULL,
        node_list TEXT NOT NULL,
        partition TEXT NOT NULL,
        submitted_at TEXT,
        started_at TEXT,
        ended_at TEXT,
        expected_start TEXT,
        seen_at TEXT,
        exit_code INTEGER,
        last_iteration INTEGER,
        cancel_requested INTEGER NOT NULL,
        tags TEXT NOT NULL,
        submitter_host TEXT NOT NULL,
        submitter_pid INTEGER NOT NULL,
        submitter_start TEXT NOT NULL,
        missing_since TEXT
    );
    CREATE INDEX runs_by_phase ON runs (phase, created_at);
    CREATE TABLE jobs (
        run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
        job_id TEXT NOT NULL,
        ordinal INTEGER NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        submitted_at TEXT,
        started_at TEXT,
        ended_at TEXT,
        exit_code INTEGER,
        node_list TEXT NOT NULL,
        PRIMARY KEY (run_id, job_id)
    );
    CREATE INDEX jobs_by_id ON jobs (job_id);
    CREATE TABLE polls (
        cluster TEXT PRIMARY KEY,
        asked_at TEXT,
        answered_at TEXT,
        failures INTEGER NOT NULL,
        error TEXT NOT NULL
    );
    CREATE TABLE findings (
        run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
        id TEXT NOT NULL,
        severity TEXT NOT NULL,
        text TEXT NOT NULL,
        fix TEXT NOT NULL,
        line INTEGER,
        rank INTEGER,
        host TEXT,
        found_at TEXT NOT NULL,
        extra TEXT NOT NULL,
        PRIMARY KEY (run_id, id, text)
    );
    """,
    """
    ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN user_tags TEXT NOT NULL DEFAULT '[]';
    """,
    """
    CREATE TABLE judgements (
        run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
        id TEXT NOT NULL,
        replaced_by TEXT,
        why TEXT NOT NULL,
        at TEXT NOT NULL,
        PRIMARY KEY (run_id, id)
    );
    """,
    """
    CREATE TABLE requests (
        cluster TEXT NOT NULL,
        at REAL NOT NULL
    );
    CREATE INDEX requests_by_cluster ON requests (cluster, at);
    """,
)


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the file to the newest version, whole or not at all."""
    if _version(connection) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)  # another process may have done it meanwhile
        if version > len(MIGRATIONS):
            raise UserError(
                f"The ledger {path} was written by a newer gpt-tune (version {version}, this one knows "
                f"{len(MIGRATIONS)}).",
                "Update gpt-tune, or set XDG_STATE_HOME to another folder.",
            )
        for number, statements in enumerate(MIGRATIONS[version:], version + 1):
            for statement in filter(str.strip, statements.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:  # not committed: whatever stopped it
            connection.execute("ROLLBACK")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
