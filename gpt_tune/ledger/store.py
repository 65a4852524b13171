"""Owns the ledger file: runs, their jobs, polls and findings, in SQLite."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from gpt_tune import resources
from gpt_tune.errors import UserError
from gpt_tune.ledger import file_system, schema
from gpt_tune.ledger.record import OPEN_PHASES, JobRecord, KeptFinding, KeptJudgement, Poll, RunRecord
from gpt_tune.schedulers.local_files import LocalFiles

_BUSY_SECONDS = 10.0  # another process holds the write lock for milliseconds
_JSON = frozenset({"job_ids", "log_paths", "plan", "prediction", "shape", "tags", "user_tags", "extra"})
_TUPLES = frozenset({"job_ids", "log_paths", "tags", "user_tags"})

Row = TypeVar("Row", RunRecord, JobRecord, KeptFinding, KeptJudgement, Poll)


class Ledger:
    """What gpt-tune knows about its runs. One file a user, safe for several processes and threads."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.RLock()
        self._depth = 0  # of nested writes

    @classmethod
    def open(cls, path: Path | None = None) -> Ledger:
        """Open or create it. UserError says what is wrong with the file or its folder."""
        path = path or default_path()
        LocalFiles().make_dir(str(path.parent))
        with _in_words(path):
            _create_private(path)
            connection = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            with ExitStack() as unless_ready:
                unless_ready.callback(connection.close)
                _prepare(connection, path)
                unless_ready.pop_all()
        return cls(path, connection)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- runs -------------------------------------------------------------------------------------
    def add(self, record: RunRecord) -> None:
        """Write a new run. It is on disk when this returns."""
        with self._write() as connection:
            _insert(connection, "runs", record)

    def update(self, run_id: str, *, if_open: bool = False, **changes: Any) -> RunRecord:
        """Change fields of a run; the run as it is now. UserError when there is none.

        if_open: leave a run alone that has ended meanwhile (another process may have seen that first).
        """
        with self._write() as connection:
            record = self._get(run_id)
            if if_open and record.phase not in OPEN_PHASES:
                return record
            record = replace(record, **changes)
            if changes:
                names = ", ".join(f"{name} = ?" for name in changes)
                values = [_to_column(name, getattr(record, name)) for name in changes]
                connection.execute(f"UPDATE runs SET {names} WHERE run_id = ?", (*values, run_id))
        return record

    def get(self, run_id: str) -> RunRecord:
        with self._read():
            return self._get(run_id)

    def runs(self, open_only: bool = False, limit: int | None = None) -> list[RunRecord]:
        """Runs, newest first. open_only: those that may still change, or that nobody knows about."""
        marks = ",".join("?" * len(OPEN_PHASES))
        where = f"WHERE phase IN ({marks})" if open_only else "WHERE phase != 'refused'"
        values: tuple[Any, ...] = OPEN_PHASES if open_only else ()
        with self._read() as connection:
            rows = connection.execute(
                f"SELECT * FROM runs {where} ORDER BY created_at DESC, run_id DESC LIMIT ?",
                (*values, -1 if limit is None else limit),
            )
            return [_from_row(RunRecord, row) for row in rows]

    def matching(self, text: str) -> list[RunRecord]:
        """Runs whose run id or any job id is `text`; when there is none, those whose run id begins with it."""
        with self._read() as connection:
            exact = connection.execute(
                "SELECT * FROM runs WHERE run_id = :text OR run_id IN (SELECT run_id FROM jobs WHERE job_id = :text)"
                " ORDER BY created_at DESC",
                {"text": text},
            ).fetchall()
            rows = (
                exact
                or connection.execute(
                    "SELECT * FROM runs WHERE substr(run_id, 1, ?) = ? ORDER BY created_at DESC",
                    (len(text), text),
                ).fetchall()
            )
            return [_from_row(RunRecord, row) for row in rows]

    def remove(self, run_id: str) -> None:
        """Forget a run that never became a job."""
        with self._write() as connection:
            connection.execute("DELETE FROM runs WHERE run_id = ?", (run_id,))

    # -- jobs -------------------------------------------------------------------------------------
    def put_job(self, job: JobRecord) -> None:
        """Add or replace one job of a run; the run's job_ids follow."""
        with self._write() as connection:
            _insert(connection, "jobs", job, "OR REPLACE")
            rows = connection.execute(
                "SELECT job_id FROM jobs WHERE run_id = ? ORDER BY ordinal", (job.run_id,)
            )
            ids = json.dumps([row["job_id"] for row in rows])
            connection.execute("UPDATE runs SET job_ids = ? WHERE run_id = ?", (ids, job.run_id))

    def jobs(self, run_id: str) -> list[JobRecord]:
        with self._read() as connection:
            rows = connection.execute("SELECT * FROM jobs WHERE run_id = ? ORDER BY ordinal", (run_id,))
            return [_from_row(JobRecord, row) for row in rows]

    # -- polls and findings -----------------------------------------------------------------------
    def poll(self, cluster: str) -> Poll:
        with self._read() as connection:
            row = connection.execute("SELECT * FROM polls WHERE cluster = ?", (cluster,)).fetchone()
            return _from_row(Poll, row) if row else Poll(cluster)

    def put_poll(self, poll: Poll) -> None:
        with self._write() as connection:
            _insert(connection, "polls", poll, "OR REPLACE")

    def take_requests(self, cluster: str, number: int, at: float, *, most: int, seconds: float) -> bool:
        """Count requests that are about to be made; False when all gpt-tunes of this user together would make more than
        `most` of them in so many seconds. at: seconds since 1970."""
        with self._write() as connection:
            connection.execute(
                "DELETE FROM requests WHERE cluster = ? AND (at <= ? OR at > ?)",
                (cluster, at - seconds, at + seconds),
            )
            row = connection.execute("SELECT count(*) FROM requests WHERE cluster = ?", (cluster,)).fetchone()
            if row[0] + number > most:
                return False
            connection.executemany("INSERT INTO requests VALUES (?, ?)", [(cluster, at)] * number)
            return True

    def put_findings(self, findings: Iterable[KeptFinding]) -> None:
        """Keep findings; one that is there already (same run, id and text) stays as it is."""
        with self._write() as connection:
            for finding in findings:
                _insert(connection, "findings", finding, "OR IGNORE")

    def findings(self, run_id: str) -> list[KeptFinding]:
        with self._read() as connection:
            rows = connection.execute("SELECT * FROM findings WHERE run_id = ? ORDER BY found_at", (run_id,))
            return [_from_row(KeptFinding, row) for row in rows]

    def put_judgement(self, judgement: KeptJudgement) -> None:
        """Keep what the user says of a finding; the last word counts."""
        with self._write() as connection:
            _insert(connection, "judgements", judgement, "OR REPLACE")

    def remove_judgement(self, run_id: str, identity: str) -> bool:
        """Take a word back; whether there was one."""
        with self._write() as connection:
            done = connection.execute(
                "DELETE FROM judgements WHERE run_id = ? AND id = ?", (run_id, identity)
            )
            return done.rowcount > 0

    def judgements(self, run_id: str) -> list[KeptJudgement]:
        with self._read() as connection:
            rows = connection.execute("SELECT * FROM judgements WHERE run_id = ? ORDER BY at", (run_id,))
            return [_from_row(KeptJudgement, row) for row in rows]

    # -- inside -----------------------------------------------------------------------------------
    def _get(self, run_id: str) -> RunRecord:
        row = self._connection.execute("SELECT * FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if row is None:
            raise UserError(f"There is no run {run_id!r} in the ledger.", "`gpt-tune jobs` lists them.")
        return _from_row(RunRecord, row)

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _in_words(self.path):
            yield self._connection

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Make all changes inside at once, with one wait for the disk. Ask no scheduler inside: others wait."""
        with self._write():
            yield

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _in_words(self.path):
            if self._depth == 0:
                self._connection.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield self._connection
                if self._depth == 1:
                    self._connection.execute("COMMIT")
            finally:
                self._depth -= 1
                if self._depth == 0 and self._connection.in_transaction:  # no room for it, say, or Ctrl-C
                    self._connection.execute("ROLLBACK")


def default_path() -> Path:
    return resources.state_dir() / "ledger.sqlite3"


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")  # an intent must survive a power cut
    # Write-ahead logs need memory shared between processes, which network file systems do not have.
    wanted = "delete" if file_system.is_network(path) else "wal"
    current = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
    if current != wanted:
        connection.execute(f"PRAGMA journal_mode = {wanted}")
    schema.migrate(connection, str(path))


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise file_system.error_for(error, path) from error


def _create_private(path: Path) -> None:
    """Create the file for its owner alone where it is missing. OSError when one that exists cannot be used.

    One that exists is never opened here: closing any descriptor of a file drops every lock this process holds
    on it (POSIX), also those of a connection that is open, and another process would then delete the
    write-ahead log under that connection.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path)) from None
        if not os.access(path, os.R_OK | os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)) from None


def _insert(connection: sqlite3.Connection, table: str, record: Any, conflict: str = "") -> None:
    names = [f.name for f in fields(record)]
    values = [_to_column(name, getattr(record, name)) for name in names]
    marks = ",".join("?" * len(names))
    connection.execute(f"INSERT {conflict} INTO {table} ({','.join(names)}) VALUES ({marks})", values)


def _to_column(name: str, value: Any) -> Any:
    return json.dumps(value) if name in _JSON and value is not None else value


def _from_row(kind: type[Row], row: sqlite3.Row) -> Row:
    values: dict[str, Any] = {}
    for f in fields(kind):
        value = row[f.name]
        if f.name in _JSON and value is not None:
            value = json.loads(value)
            value = tuple(value) if f.name in _TUPLES else value
        values[f.name] = bool(value) if f.type == "bool" else value
    return kind(**values)
