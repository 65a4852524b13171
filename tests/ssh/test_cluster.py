"""A whole Slurm cluster behind a login node: found, submitted to, followed, cancelled, and lost on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import clusters, jobs
from gpt_tune.errors import SchedulerError
from gpt_tune.jobs import polling
from gpt_tune.ledger import Ledger
from gpt_tune.profiles import sites
from gpt_tune.profiles.schema import Site
from gpt_tune.schedulers import ssh
from gpt_tune.schedulers.base import ENDED, SubmitUnknown, Unreachable
from gpt_tune.schedulers.ssh import Connection, LoginNeeded, Target
from gpt_tune.schedulers.ssh_slurm import SshSlurm, guess_run_root
from gpt_tune.workflows import records, told
from gpt_tune.workflows.asking import Asking
from tests.cluster import SlurmCluster, wait_until
from tests.jobs.helpers import prepared, refreshed_until, rendered
from tests.schedulers import test_contract as contract
from tests.ssh.server import HOST, SshServer

pytestmark = pytest.mark.slurm


@pytest.fixture
def laptop(
    slurm_cluster: SlurmCluster, sshd: SshServer, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SshSlurm]:
    """A machine without a cluster of its own that knows one by ssh, under another name than its own."""
    profile = f"export SLURM_CONF={slurm_cluster.conf}\nexport PATH={slurm_cluster.env['PATH']}\n"
    (sshd.folder / "profile").write_text(profile)
    monkeypatch.setattr(clusters, "_away", {})
    sites.save(Site(cluster="faraway", scheduler="slurm", ssh=HOST, run_root=str(tmp_path / "runs")))
    scheduler = clusters.connect("faraway")
    assert isinstance(scheduler, SshSlurm)
    yield scheduler
    slurm_cluster.cancel_all()
    scheduler.connection.close()


@pytest.fixture
def scheduler(laptop: SshSlurm) -> SshSlurm:
    """What the contract suite asks for."""
    return laptop


# The whole contract suite, through ssh.
for _name in dir(contract):
    if _name.startswith("test_"):
        globals()[_name] = getattr(contract, _name)


def test_it_is_found_under_its_own_name(laptop: SshSlurm) -> None:
    assert clusters.available() == ["faraway", "local"]
    assert clusters.silent() == {}
    assert clusters.connect().cluster == "faraway"  # the only one there is
    found = clusters.discover("faraway")
    assert found.name == "faraway"
    assert found.partitions[0].gpus_total == 64
    assert "by ssh through login" in found.notes[0]
    assert guess_run_root(laptop).startswith("/")


def test_submit_follow_and_end(laptop: SshSlurm, tmp_path: Path) -> None:
    ledger = Ledger.open()
    spec = prepared(laptop, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "echo bye"), laptop, ledger)
    assert record.cluster == "faraway"
    ended = refreshed_until(ledger, record.run_id, lambda r: r.state in ENDED)
    assert (ended.state, ended.exit_code) == ("COMPLETED", 0)
    [log] = jobs.resolved_log_paths(ended, laptop.files)
    assert laptop.files.read(log) == b"hello\nbye\n"
    assert laptop.files.list(record.run_dir) == sorted(p.name for p in Path(record.run_dir).iterdir())


def test_beginning_and_end_show_through_the_channel_of_the_log(
    laptop: SshSlurm, slurm_cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No poll is due, and no file is looked at from here: the line that brings the log brings them, too."""
    spec = prepared(laptop, tmp_path / "runs")
    body = "for i in {1..600}; do [ -e go ] && exit 3; read -t 0.05 <> <(:) || :; done"
    record = jobs.submit(spec, rendered(spec, body, "--hold"), laptop, Ledger.open())
    assert record.job_id is not None
    monkeypatch.setattr(told, "on_this_machine", None)
    watch = records.watch_of(record)
    source = watch._state_source
    assert isinstance(source, Asking)
    for _ in range(polling.QUICK_POLLS):
        watch.poll()
        source.pacer._due, watch._asked = 0.0, 0.0
    source.pacer.polled(["PENDING"], files_tell=True)
    asked = source.pacer.due_at
    slurm_cluster.run("scontrol", "release", record.job_id)
    wait_until(Path(record.run_dir, "started").exists, 20, "the job's first action")
    wait_until(lambda: watch.poll().state == "RUNNING", 5, "its beginning on screen")
    Path(record.run_dir, "go").touch()
    wait_until(lambda: watch.poll().state == "FAILED", 5, "its end on screen")
    assert source.pacer.due_at == asked or not Ledger.open().get(record.run_id).active
    watch.close()


def test_cancel_from_here(laptop: SshSlurm, tmp_path: Path) -> None:
    ledger = Ledger.open()
    spec = prepared(laptop, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "sleep 600"), laptop, ledger)
    refreshed_until(ledger, record.run_id, lambda r: r.state == "RUNNING")
    jobs.cancel(record.run_id, ledger)
    assert refreshed_until(ledger, record.run_id, lambda r: r.state in ENDED).state == "CANCELLED"


def test_a_refusal_leaves_nothing_over_there(laptop: SshSlurm, tmp_path: Path) -> None:
    spec = prepared(laptop, tmp_path / "runs")
    with pytest.raises(SchedulerError, match="Invalid feature"):
        jobs.submit(spec, rendered(spec, "true", "--constraint=nosuch"), laptop, Ledger.open())
    assert not Path(spec.run_dir).exists()
    assert Ledger.open().runs() == []


def test_the_line_breaks_while_sbatch_decides(
    laptop: SshSlurm, slurm_cluster: SlurmCluster, sshd: SshServer, tmp_path: Path
) -> None:
    """The job exists, nobody here heard so: it is found again, and never submitted twice."""
    folder = sshd.folder / "slow"
    folder.mkdir(exist_ok=True)
    real = next(p for d in slurm_cluster.env["PATH"].split(":") if (p := Path(d, "sbatch")).exists())
    (folder / "sbatch").write_text(
        f'#!/bin/sh\n{real} "$@" >{tmp_path}/answer\ntouch {tmp_path}/done\nsleep 30\ncat {tmp_path}/answer\n'
    )
    (folder / "sbatch").chmod(0o755)
    with (sshd.folder / "profile").open("a") as profile:
        profile.write(f"export PATH={folder}:$PATH\n")
    ledger = Ledger.open()
    spec = prepared(laptop, tmp_path / "runs")
    outcome: list[BaseException | str] = []

    def submit() -> None:
        try:
            outcome.append(jobs.submit(spec, rendered(spec, "true", "--hold"), laptop, ledger).job_id or "")
        except SubmitUnknown as error:
            outcome.append(error)

    thread = threading.Thread(target=submit)
    thread.start()
    wait_until((tmp_path / "done").exists, 40, "sbatch's work")
    assert laptop.still_submitting(spec.run_dir)
    sshd.kill_connections()
    thread.join(60)
    answer = (tmp_path / "answer").read_text().strip()
    if isinstance(outcome[0], SubmitUnknown):
        wait_until(lambda: not laptop.still_submitting(spec.run_dir), 60, "the end of sbatch over there")
        refreshed_until(ledger, spec.run_id, lambda r: r.job_id is not None)
    assert ledger.get(spec.run_id).job_ids == (answer,)
    assert len(slurm_cluster.run("squeue", "-h", "-t", "all", "-o", "%k").split(spec.token)) == 2


def test_nothing_is_sent_without_a_connection(laptop: SshSlurm, sshd: SshServer, tmp_path: Path) -> None:
    spec = prepared(laptop, tmp_path / "runs")
    sshd.stop()
    try:
        with pytest.raises(Unreachable) as caught:
            jobs.submit(spec, rendered(spec), laptop, Ledger.open())
        assert not isinstance(caught.value, SubmitUnknown)
        assert Ledger.open().runs() == []
        assert clusters.available() == ["local"]
        assert "refused" in str(clusters.silent()["faraway"])
    finally:
        sshd.start()


def test_a_monitor_survives_a_cut(laptop: SshSlurm, sshd: SshServer, tmp_path: Path) -> None:
    """No crash and no false end: the last state stands until the line is back."""
    ledger = Ledger.open()
    spec = prepared(laptop, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "sleep 600"), laptop, ledger)
    refreshed_until(ledger, record.run_id, lambda r: r.state == "RUNNING")
    sshd.stop()
    try:
        jobs.refresh(ledger)
        assert ledger.get(record.run_id).state == "RUNNING"
        assert ledger.poll("faraway").failures == 1
    finally:
        sshd.start()
    jobs.refresh(ledger)
    assert ledger.poll("faraway").failures == 0
    assert ledger.get(record.run_id).state == "RUNNING"


def test_a_login_that_asks_is_no_crash(sshd: SshServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_away", {})
    sites.save(Site(cluster="secret", scheduler="slurm", ssh="stranger", run_root="/tmp"))
    assert clusters.available() == ["local"]
    assert isinstance(clusters.silent()["secret"], LoginNeeded)
    assert "ssh" in clusters.silent()["secret"].hint


def test_slurm_missing_over_there(sshd: SshServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool in ("sh", "env"):
        (home / tool).symlink_to(f"/usr/bin/{tool}")
    (sshd.folder / "profile").write_text(f"export PATH={home}\n")
    monkeypatch.setattr(clusters, "_away", {})
    scheduler = SshSlurm("x", Target(HOST))
    try:
        with pytest.raises(SchedulerError, match="not on the PATH of login"):
            scheduler.check_reachable()
    finally:
        scheduler.connection.close()


def test_a_killed_gpt_tune_is_noticed_as_still_submitting(sshd: SshServer, connection: Connection) -> None:
    """ssh outlives it: the submission is on its way as long as that ssh lives."""
    connection.ensure()
    process = subprocess.Popen(
        connection.argv("sleep 60", "nonce"),
        env={**os.environ, "GPT_TUNE_MARK": "/runs/r1"},
        stdin=subprocess.DEVNULL,
    )
    try:
        assert ssh.in_flight("/runs/r1")
        assert not ssh.in_flight("/runs/r2")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    assert not ssh.in_flight("/runs/r1")


def test_the_whole_path_by_hand(laptop: SshSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """site --set ssh=..., submit, watch, parse and cancel, as a person types them."""
    assert cli("site", "uni", "--set", f"ssh={HOST}", "--set", f"run_root={tmp_path}/uni")["site"][0]["kept"]
    submitted = cli(
        "submit", "smoke", "--cluster", "uni", "--set", "resources.gpus=1", "--set", "smoke.steps=20", "--yes"
    )
    assert submitted["cluster"] == "uni"
    assert submitted["run_dir"].startswith(f"{tmp_path}/uni/")
    run_id = submitted["run_id"]
    lines = cli_lines("watch", run_id)
    assert lines[-1]["event"] == "end"
    assert lines[-1]["state"] == "COMPLETED", lines[-20:]
    assert max(e["iteration"] for e in lines if e["event"] == "step") == 20
    assert len(cli("parse", run_id)["steps"]) == 20
    assert cli("jobs")["jobs"][0]["state"] == "COMPLETED"


def cli(*arguments: str) -> dict[str, Any]:
    """One command's JSON object."""
    return cli_lines(*arguments)[-1]


def cli_lines(*arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tui", *arguments, "--json"],
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
        cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return [json.loads(line) for line in done.stdout.splitlines()]
