"""The ledger: what is written comes back, two processes share it, and every broken file is told in words."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpt_tune.errors import UserError
from gpt_tune.ledger import JobRecord, KeptFinding, Ledger, Poll, RunRecord, default_path, file_system, schema
from gpt_tune.workflows import doctor

ROOT = Path(__file__).resolve().parents[2]


def run(number: int = 1, **changes: object) -> RunRecord:
    plain = RunRecord(
        run_id=f"r20261130-07151{number}-aaaa", token=f"token-{number}", cluster="testbed", scheduler="slurm", name="x",
        recipe="smoke", run_dir="/r", script="/r/job.sh", created_at=f"2026-11-30T07:15:1{number}Z",
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_a_run_comes_back_as_it_was_written(home: Path) -> None:
    record = run(
        plan={"layout": {"tensor_parallel": 8}}, prediction={"step_seconds": 3.7}, log_paths=("/r/%x-%j.out",),
        tags=("a", "b"), exit_code=0, last_iteration=7, cancel_requested=True, profile='name = "grüße"\n',
    )  # fmt: skip
    with Ledger.open() as ledger:
        ledger.add(record)
    with Ledger.open() as ledger:
        assert ledger.get(record.run_id) == record
        assert ledger.runs() == [record]


def test_update_changes_only_what_it_is_told(home: Path) -> None:
    with Ledger.open() as ledger:
        ledger.add(run())
        changed = ledger.update(run().run_id, state="RUNNING", plan={"a": 1})
        assert changed == replace(run(), state="RUNNING", plan={"a": 1})
        assert ledger.get(run().run_id) == changed
        with pytest.raises(UserError, match="no run 'nosuch'"):
            ledger.update("nosuch", state="RUNNING")


def test_a_run_is_a_chain_of_jobs(home: Path) -> None:
    with Ledger.open() as ledger:
        ledger.add(run())
        for ordinal, job_id in enumerate(["9", "11", "10"]):
            ledger.put_job(JobRecord(run().run_id, job_id, ordinal))
        ledger.put_job(JobRecord(run().run_id, "9", 0, "FAILED", exit_code=1))
        assert ledger.get(run().run_id).job_ids == ("9", "11", "10")
        assert ledger.get(run().run_id).job_id == "10"
        assert [(j.job_id, j.state) for j in ledger.jobs(run().run_id)] == [
            ("9", "FAILED"), ("11", "UNKNOWN"), ("10", "UNKNOWN"),
        ]  # fmt: skip


def test_matching(home: Path) -> None:
    with Ledger.open() as ledger:
        for number in (1, 2):
            ledger.add(run(number))
            ledger.put_job(JobRecord(run(number).run_id, "4711" if number == 1 else "47", 0))
        assert [r.token for r in ledger.matching("47")] == ["token-2"]
        assert [r.token for r in ledger.matching("4711")] == ["token-1"]
        assert [r.token for r in ledger.matching("r2026")] == ["token-2", "token-1"]
        assert [r.token for r in ledger.matching(run(1).run_id)] == ["token-1"]
        assert ledger.matching("%") == ledger.matching("r2_26") == []


def test_open_runs_are_those_that_may_change(home: Path) -> None:
    with Ledger.open() as ledger:
        for number, phase in enumerate(["intent", "submitted", "ended", "lost", "refused"], 1):
            ledger.add(run(number, phase=phase))
        assert [r.phase for r in ledger.runs(open_only=True)] == ["lost", "submitted", "intent"]
        assert [r.phase for r in ledger.runs(limit=2)] == ["lost", "ended"]
        ledger.remove(run(1).run_id)
        assert len(ledger.runs()) == 3


def test_polls_and_findings(home: Path) -> None:
    with Ledger.open() as ledger:
        assert ledger.poll("testbed") == Poll("testbed")
        poll = Poll("testbed", "2026-11-30T07:15:10Z", None, 3, "down")
        ledger.put_poll(poll)
        assert ledger.poll("testbed") == poll
        ledger.add(run())
        finding = KeptFinding(
            run().run_id, "F1", "error", "out of memory", rank=3, found_at="2026-11-30T07:15:10Z"
        )
        ledger.put_findings([finding, replace(finding, found_at="later")])
        assert ledger.findings(run().run_id) == [finding]


def test_a_token_is_used_once(home: Path) -> None:
    with Ledger.open() as ledger:
        ledger.add(run())
        with pytest.raises(UserError, match="UNIQUE"):
            ledger.add(run(2, token="token-1"))
        assert len(ledger.runs()) == 1


def test_only_the_owner_may_read_it(home: Path) -> None:
    os.umask(0o000)
    with Ledger.open() as ledger:
        ledger.add(run())
        folder = ledger.path.parent
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()}
    os.umask(0o022)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert modes
    assert set(modes.values()) == {0o600}


def test_threads_share_one_ledger(home: Path) -> None:
    with Ledger.open() as ledger:

        def add(thread: int) -> None:
            for i in range(20):
                ledger.add(replace(run(), run_id=f"r{thread}-{i}", token=f"t{thread}-{i}"))
                ledger.update(f"r{thread}-{i}", state="RUNNING")

        threads = [threading.Thread(target=add, args=(n,)) for n in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [r.state for r in ledger.runs()] == ["RUNNING"] * 100


def test_a_late_answer_does_not_open_an_ended_run_again(home: Path) -> None:
    with Ledger.open() as ledger:
        ledger.add(run(phase="ended", state="CANCELLED"))
        assert (
            ledger.update(run().run_id, if_open=True, phase="submitted", state="RUNNING").state == "CANCELLED"
        )
        assert ledger.get(run().run_id).phase == "ended"


def test_processes_share_one_file_and_a_killed_one_breaks_nothing(home: Path) -> None:
    """Eight writers at once from the first moment, each killed without closing."""
    code = (
        "import os, signal, sys\n"
        "from gpt_tune.ledger import Ledger\n"
        "from tests.ledger.test_store import run\n"
        "from dataclasses import replace\n"
        "ledger = Ledger.open()\n"
        "for i in range(15):\n"
        "    ledger.add(replace(run(), run_id=f'r{sys.argv[1]}-{i}', token=f't{sys.argv[1]}-{i}'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(n)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for n in range(8)
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == -9, errors
    with Ledger.open() as ledger:
        assert len(ledger.runs()) == 120


# -- what can be wrong with the file --------------------------------------------------------------
def open_and_write() -> None:
    with Ledger.open() as ledger:
        ledger.add(run())


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file(home: Path, content: bytes) -> None:
    default_path().parent.mkdir(parents=True)
    default_path().write_bytes(content)
    with pytest.raises(UserError, match="is damaged") as caught:
        open_and_write()
    assert str(default_path()) in caught.value.message
    assert "Move it away" in caught.value.hint
    assert default_path().read_bytes() == content


def test_a_file_of_a_newer_version(home: Path) -> None:
    default_path().parent.mkdir(parents=True)
    with sqlite3.connect(default_path()) as connection:
        connection.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) + 5}")
    with pytest.raises(UserError, match="newer gpt-tune"):
        Ledger.open()


def test_a_second_opening_keeps_the_locks_of_the_first(home: Path) -> None:
    """Another process that ends must not take the write-ahead log away under a connection that is open."""
    other = (
        "from gpt_tune.ledger import Ledger\n"
        "with Ledger.open() as ledger: print([known.run_id for known in ledger.runs()])"
    )

    def runs_seen_elsewhere() -> str:
        done = subprocess.run([sys.executable, "-c", other], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    with Ledger.open() as first:
        Ledger.open().close()
        with Ledger.open():
            runs_seen_elsewhere()
            first.add(run())
            assert run().run_id in runs_seen_elsewhere()
            assert first.runs() == [run()]


def test_a_folder_where_the_file_should_be(home: Path) -> None:
    default_path().mkdir(parents=True)
    with pytest.raises(UserError, match=r"Cannot use the ledger .*: Is a directory"):
        Ledger.open()


def test_a_file_where_the_folder_should_be(home: Path) -> None:
    default_path().parent.parent.mkdir(parents=True, exist_ok=True)
    default_path().parent.write_text("")
    with pytest.raises(UserError, match="Cannot create the folder"):
        Ledger.open()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written(home: Path) -> None:
    open_and_write()
    default_path().chmod(0o400)
    with pytest.raises(UserError, match="ledger"):
        Ledger.open()


def test_a_full_disk(home: Path) -> None:
    """SQLite's own limit of pages gives the same error as a disk without room."""
    with Ledger.open() as ledger:
        ledger.add(run())
        pages = ledger._connection.execute("PRAGMA page_count").fetchone()[0]
        ledger._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(UserError, match="is full") as caught:
            ledger.add(run(2, profile="x" * 1_000_000))
        assert "Free some space" in caught.value.hint
        assert ledger.get(run().run_id) == run()


@pytest.mark.parametrize(("free", "words"), [(0, "is full"), (10**9, "read or write properly")])
def test_an_io_error_on_a_full_disk_is_called_full(
    free: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has no room for the memory that processes share, and calls that an I/O error."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    error = file_system.error_for(sqlite3.OperationalError("disk I/O error"), tmp_path / "l")
    assert words in error.message


def test_requests_are_counted_for_all_of_this_users(home: Path) -> None:
    with Ledger.open() as ours, Ledger.open() as theirs:
        assert ours.take_requests("c", 1, 100.0, most=2, seconds=60.0)
        assert theirs.take_requests("c", 1, 110.0, most=2, seconds=60.0)
        assert not ours.take_requests("c", 1, 159.9, most=2, seconds=60.0)
        assert ours.take_requests("another", 2, 159.9, most=2, seconds=60.0)
        assert not theirs.take_requests("c", 2, 165.0, most=2, seconds=60.0)
        assert ours.take_requests("c", 1, 160.1, most=2, seconds=60.0)
        assert theirs.take_requests(
            "c", 2, 20.0, most=2, seconds=60.0
        )  # the clock was put back: no lock for ever


def test_a_lock_that_is_never_released(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_tune.ledger.store._BUSY_SECONDS", 0.1)
    with Ledger.open() as ledger:
        other = sqlite3.connect(ledger.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UserError, match="locked"):
            ledger.add(run())
        other.execute("ROLLBACK")
        other.close()
        ledger.add(run())


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/u/.local/state/gpt-tune/l", True),
        ("/home", True),
        ("/homes/u/l", False),
        ("/scratch/x y/l", True),
        ("/scratch/l", False),
        ("/tmp/l", False),
        ("/data/l", False),
        ("/sshfs/l", True),
    ],
)
def test_network_file_systems(path: str, expected: bool) -> None:
    mounts = (
        "/dev/sda / ext4 rw 0 0\nserver:/h /home nfs4 rw 0 0\nl:/ /scratch/x\\040y lustre rw 0 0\n"
        "tmpfs /tmp tmpfs rw 0 0\na:/d /data nfs rw 0 0\n/dev/sdb /data xfs rw 0 0\nu@h: /sshfs fuse.sshfs rw 0 0\n"
    )
    assert file_system.is_network(Path(path), mounts) is expected


def test_on_a_network_file_system_no_shared_memory_is_used(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_and_write()
    monkeypatch.setattr(file_system, "is_network", lambda path: True)
    with Ledger.open() as ledger:
        ledger.update(run().run_id, state="RUNNING")
        assert ledger._connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
        assert {p.name for p in ledger.path.parent.iterdir()} == {ledger.path.name}


def test_every_table_survives_from_the_first_version(home: Path) -> None:
    """A file of version 1 opens with all its rows; this grows with the migrations."""
    default_path().parent.mkdir(parents=True)
    connection = sqlite3.connect(default_path(), isolation_level=None)
    for statement in filter(str.strip, schema.MIGRATIONS[0].split(";")):
        connection.execute(statement)
    connection.execute("PRAGMA user_version = 1")
    connection.execute(
        "INSERT INTO runs (run_id, token, cluster, scheduler, name, recipe, run_dir, script, created_at, phase, state,"
        " reason, job_ids, log_paths, profile, gpus, nodes, node_list, partition, cancel_requested, tags,"
        " submitter_host, submitter_pid, submitter_start) VALUES ('r1','t','c','slurm','n','smoke','/r','/r/j','2026',"
        " 'ended','COMPLETED','','[\"7\"]','[]','',8,1,'','dev',0,'[]','',0,'')"
    )
    connection.close()
    with Ledger.open() as ledger:
        assert ledger.get("r1").job_id == "7"
        assert ledger.get("r1").state == "COMPLETED"


def test_a_batch_is_written_whole_or_not_at_all(home: Path) -> None:
    with Ledger.open() as ledger, Ledger.open() as other:
        with ledger.batch():
            ledger.add(run(1))
            ledger.update(run(1).run_id, state="RUNNING")
            assert other.runs() == []
        assert [r.state for r in other.runs()] == ["RUNNING"]

        def half() -> None:
            with ledger.batch():
                ledger.add(run(2))
                ledger.update("nosuch", state="RUNNING")

        with pytest.raises(UserError, match="no run"):
            half()
        assert len(other.runs()) == 1
        ledger.add(run(3))
        assert len(other.runs()) == 2


def test_doctor_names_a_network_file_system(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> list[str]:
        return [c.text for c in doctor._ledger()]

    assert not any("network" in text for text in told())
    monkeypatch.setattr(file_system, "is_network", lambda *_: True)
    assert any("network file system" in text and "ledger.sqlite3" in text for text in told())
