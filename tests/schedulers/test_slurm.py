"""The command line of a real Slurm: what it offers, refuses, and does when its controller is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpt_tune import clusters
from gpt_tune.errors import EXIT_SCHEDULER, SchedulerError, UserError
from gpt_tune.schedulers import hostlist, refusals
from gpt_tune.schedulers.base import ENDED, SubmitRequest, SubmitUnknown, Unreachable
from gpt_tune.schedulers.slurm_cli import SlurmCli
from tests import cluster as private_cluster
from tests.cluster import SlurmCluster, wait_until

pytestmark = pytest.mark.slurm


def request(
    tmp_path: Path, *options: str, body: str = "true", variables: dict[str, str] | None = None
) -> SubmitRequest:
    lines = "".join(f"#SBATCH {o}\n" for o in ("--output=/dev/null", *options))
    (tmp_path / "job.sh").write_text(f"#!/bin/bash\n{lines}{body}\n")
    return SubmitRequest(str(tmp_path / "job.sh"), str(tmp_path), "x", "token-1", variables or {})


def test_what_the_test_cluster_offers(slurm: SlurmCluster) -> None:
    cluster = SlurmCli().discover()
    assert (cluster.name, cluster.scheduler) == ("testbed", "slurm")
    dev, long = cluster.partitions
    assert (dev.name, dev.default, dev.time_limit_seconds, dev.default_time_seconds) == (
        "dev",
        True,
        7200,
        3600,
    )
    assert (long.name, long.default, long.time_limit_seconds) == ("long", False, 7 * 86400)
    assert (dev.gpus_total, dev.gpus_free, long.gpus_total, long.gpus_free) == (64, 64, 96, 88)
    assert {g.gpu: g.names for g in long.groups} == {"b200": "b200-[1-8]", "h100": "h100-[1-4]"}
    assert dict(long.groups[1].nodes_by_state) == {"drained": 1, "idle": 3}


def test_gpus_of_running_jobs_are_not_free(slurm: SlurmCluster, tmp_path: Path) -> None:
    scheduler = SlurmCli()
    job_id = scheduler.submit(request(tmp_path, "-N3", "--gres=gpu:b200:5", body="sleep 600"))
    slurm.wait_for_state(job_id, "RUNNING")
    assert scheduler.discover().partitions[0].gpus_free == 64 - 15
    assert scheduler.statuses([job_id])[job_id].gpus == 15


# Row of the failure catalogue, options, words of Slurm, words of our hint.
REFUSED = [
    ("F80", ["--partition=nosuch"], "Invalid partition name", "gpt-tune clusters"),
    ("F81", ["--nodes=1", "--mincpus=400"], "CPU count per node", "No node"),
    ("F81", ["--nodes=1", "--mem=9000G"], "emory", "No node"),
    ("F81", ["--gres=gpu:b200:9"], "Requested node configuration is not available", "No node"),
    ("F82", ["--gres=tpu:1"], "Invalid generic resource", "GPUs under that name"),
    ("F84", ["--constraint=nosuch"], "Invalid feature specification", "--constraint"),
    ("F81", ["--nodelist=h100-1", "--partition=dev"], "Requested node configuration is not available", "No node"),
    ("F84", ["--nodelist=nosuch-1"], "Invalid node name", "does not exist"),
    ("F84", ["--time=soon"], "ime", "time_limit"),
    ("F85", ["--mem=1G", "--mem-per-cpu=1G"], "mutually exclusive", "unset"),
    ("F201", ["--reservation=nosuch"], "eservation", "reservation"),
    ("F202", ["--dependency=afterok:99999x"], "ependency", "dependency"),
    ("F207", ["--no-such-option"], "option", "extra_sbatch"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "options", "words", "hint"), REFUSED, ids=lambda v: str(v)[:40])
def test_refusals_say_why_and_what_to_do(
    slurm: SlurmCluster, tmp_path: Path, row: str, options: list[str], words: str, hint: str
) -> None:
    with pytest.raises(SchedulerError) as caught:
        SlurmCli().submit(request(tmp_path, *options))
    error = caught.value
    assert not isinstance(error, (SubmitUnknown, Unreachable))
    assert error.exit_code == EXIT_SCHEDULER
    assert words in error.message
    assert hint in error.hint
    assert "\n" not in error.message
    known = refusals.fix_for(error.message)
    assert known is not None
    assert known.id == row
    assert slurm.run("squeue", "-h") == ""


def test_a_partition_that_is_down_and_limits_that_are_enforced(slurm: SlurmCluster, tmp_path: Path) -> None:
    slurm.run("scontrol", "update", "partitionname=long", "state=inactive")
    try:
        with pytest.raises(SchedulerError, match="partition"):
            SlurmCli().submit(request(tmp_path, "--partition=long"))
        assert SlurmCli().discover().partitions[1].state != "up"
    finally:
        slurm.run("scontrol", "update", "partitionname=long", "state=up")


@pytest.mark.parametrize(
    ("words", "row"),
    [
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates "
         "accounting/QOS policy (job submit limit, user's size and/or time limits)", "F83"),
        ("sbatch: error: AssocMaxWallDurationPerJobLimit\nsbatch: error: Batch job submission failed: Job violates "
         "accounting/QOS policy (job submit limit, user's size and/or time limits)", "F83"),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
         "F84"),
        ("sbatch: error: Batch job submission failed: Requested nodes not in this partition", "F84"),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", "F84"),
        ("sbatch: error: Batch job submission failed: User's group not permitted to use this partition", "F84"),
        ("sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some "
         "limit)", "F84"),
        ("sbatch: error: Batch job submission failed: Node count specification invalid", "F84"),
        ("sbatch: error: Batch job submission failed: More processors requested than permitted", "F84"),
        ("sbatch: error: You must always specify a type when requesting gpu GRES", "F82"),
        ("sbatch: error: ERROR: Cannot find GPU specification, you may not submit a GPU job without it", "F82"),
        ("sbatch: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.", "F85"),
    ],
    ids=lambda v: str(v)[-50:],
)  # fmt: skip
def test_refusals_that_need_accounting_are_known(words: str, row: str) -> None:
    error = refusals.refused(words)
    assert type(error) is SchedulerError
    found = refusals.fix_for(words)
    assert found is not None
    assert found.id == row
    assert error.hint == found.fix


def test_the_name_of_the_limit_is_kept() -> None:
    words = "sbatch: error: QOSMaxNodePerUserLimit\nsbatch: error: Batch job submission failed: Job violates policy"
    assert "QOSMaxNodePerUserLimit; Job violates policy" in refusals.refused(words).message


@pytest.mark.parametrize(
    "words",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
        "sbatch: error: Batch job submission failed: Transport endpoint is not connected",
    ],
)
def test_a_broken_connection_is_no_refusal(words: str) -> None:
    assert isinstance(refusals.refused(words), SubmitUnknown)
    assert isinstance(refusals.failed("squeue", words), Unreachable)


def test_controller_down(slurm: SlurmCluster, tmp_path: Path) -> None:
    with slurm.controller_down():
        assert clusters.available() == ["local"]
        assert list(clusters.silent()) == ["testbed"]
        scheduler = clusters.connect("testbed")  # no call needed
        assert scheduler.cluster == "testbed"
        with pytest.raises(Unreachable, match="does not answer") as caught:
            scheduler.discover()
        assert caught.value.exit_code == EXIT_SCHEDULER
        assert "\n" not in str(caught.value)
        with pytest.raises(Unreachable):
            scheduler.statuses(["1", "2"])
    assert clusters.available() == ["testbed", "local"]
    assert clusters.silent() == {}


def test_a_frozen_controller_is_given_up_on(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_tune.schedulers.slurm_cli._SUBMIT_SECONDS", 1.0)
    monkeypatch.setattr("gpt_tune.schedulers.slurm_cli._PING_SECONDS", 1.0)
    with slurm.controller_frozen():
        with pytest.raises(Unreachable, match="no answer within 1 s"):
            SlurmCli().check_reachable()
        with pytest.raises(SubmitUnknown, match="no answer within 1 s"):
            SlurmCli().submit(request(tmp_path))


def test_names_of_clusters(slurm: SlurmCluster) -> None:
    assert clusters.connect().cluster == "testbed"
    assert clusters.connect("local").cluster == "local"
    with pytest.raises(UserError, match="Unknown cluster 'tesbed'") as caught:
        clusters.connect("tesbed")
    assert "Did you mean 'testbed'?" in caught.value.hint


def test_a_machine_without_slurm_has_local_only(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once with commands but no configuration, once with neither."""
    assert clusters.available() == ["local"]
    assert clusters.silent() == {}
    assert clusters.connect().cluster == "local"
    monkeypatch.setenv("PATH", str(home))
    assert clusters.available() == ["local"]
    assert clusters.connect().cluster == "local"
    with pytest.raises(UserError, match="not installed"):
        clusters.connect("testbed")


def test_the_users_own_settings_do_not_bend_what_is_read(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "SQUEUE_STATES": "CANCELLED", "SQUEUE_FORMAT": "%i", "SINFO_PARTITION": "nosuch", "SINFO_FORMAT": "%n",
        "SQUEUE_PARTITION": "nosuch", "SLURM_TIME_FORMAT": "relative", "LC_ALL": "de_DE.UTF-8",
        "SBATCH_PARTITION": "long", "SBATCH_TIMELIMIT": "5", "SLURM_MEM_PER_NODE": "1", "SLURM_MEM_PER_CPU": "1",
        "LOGNAME": "nobody", "SQUEUE_USERS": "nobody",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    scheduler = SlurmCli()
    job_id = scheduler.submit(request(tmp_path, "--partition=dev", "--hold", body="true"))
    status = scheduler.statuses([job_id])[job_id]
    assert (status.partition, status.state, status.reason) == ("dev", "PENDING", "JobHeldUser")
    assert status.submitted_at is not None
    assert status.submitted_at.endswith("Z")
    assert len(scheduler.discover().partitions) == 2
    # The script says no time limit, so the user's own default for it counts.
    assert "TimeLimit=00:05:00" in slurm.run("scontrol", "show", "job", job_id)


def test_a_job_gets_the_users_environment_and_language(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("OWN", "kept")
    body = 'echo "$LC_ALL $OWN $ADDED ${SLURM_TIME_FORMAT-unset}"'
    options = [f"--output={tmp_path}/log"]
    job_id = SlurmCli().submit(request(tmp_path, *options, body=body, variables={"ADDED": "given"}))
    slurm.wait_for_state(job_id, "COMPLETED")
    assert (tmp_path / "log").read_text() == "C.UTF-8 kept given unset\n"


def test_a_comment_of_the_users_own_stays(slurm: SlurmCluster, tmp_path: Path) -> None:
    scheduler = SlurmCli()
    job_id = scheduler.submit(request(tmp_path, "--hold", "--comment='project 7'"))
    assert scheduler.statuses([job_id])[job_id].comment == "project 7 token-1"


def test_an_arrays_base_id_stands_for_its_tasks(slurm: SlurmCluster, tmp_path: Path) -> None:
    scheduler = SlurmCli()
    job_id = scheduler.submit(request(tmp_path, "--array=1-3", body="[ $SLURM_ARRAY_TASK_ID != 2 ]"))
    assert scheduler.statuses([job_id])[job_id].job_id == job_id
    wait_until(lambda: scheduler.statuses([job_id])[job_id].state in ENDED, 30, "the array's end")
    assert scheduler.statuses([job_id])[job_id].state == "FAILED"
    tasks = scheduler.statuses([f"{job_id}_1", f"{job_id}_2"])
    assert {k: v.state for k, v in tasks.items()} == {f"{job_id}_1": "COMPLETED", f"{job_id}_2": "FAILED"}


def test_a_heterogeneous_job_is_one_with_all_its_parts(slurm: SlurmCluster, tmp_path: Path) -> None:
    scheduler = SlurmCli()
    parts = ["-N1", "--gres=gpu:b200:2", "hetjob", "-N3", "--gres=gpu:b200:4"]
    job_id = scheduler.submit(request(tmp_path, *parts, body="sleep 600"))
    wait_until(lambda: scheduler.statuses([job_id])[job_id].state == "RUNNING", 60, "its start")
    whole = scheduler.statuses([job_id])[job_id]
    assert (whole.job_id, whole.nodes, whole.gpus) == (job_id, 4, 2 + 3 * 4)
    assert len(hostlist.expand(whole.node_list)) == 4
    assert {s.job_id for s in scheduler.my_jobs()} >= {f"{job_id}+0", f"{job_id}+1"}
    scheduler.cancel(job_id)
    wait_until(lambda: scheduler.statuses([job_id])[job_id].state == "CANCELLED", 30, "its end")


def test_the_commands_on_the_path_are_listed_without_a_shell(slurm: SlurmCluster, tmp_path: Path) -> None:
    """A hostile name reaches sbatch as one argument."""
    folder = tmp_path / "a; touch pwned; $(touch pwned) `touch pwned`"
    folder.mkdir()
    scheduler = SlurmCli()
    (folder / "job.sh").write_text("#!/bin/bash\n#SBATCH --output=/dev/null\n#SBATCH --hold\ntrue\n")
    job_id = scheduler.submit(SubmitRequest(str(folder / "job.sh"), str(folder), "x", "t"))
    assert scheduler.statuses([job_id])[job_id].work_dir == str(folder)
    assert not [p for p in (Path.cwd(), tmp_path, folder) if (p / "pwned").exists()]


def test_a_missing_command_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(SchedulerError, match="'scontrol' is not installed here"):
        SlurmCli().check_reachable()
    (home / "scontrol").write_text("")
    (home / "scontrol").chmod(0o644)
    with pytest.raises(SchedulerError, match="scontrol"):
        SlurmCli().check_reachable()


@pytest.mark.parametrize(
    ("options", "words", "hint"),
    [
        (["--time=3:00:00"], "Requested time limit is invalid", "site.time_limit"),
        (["--nodes=9"], "Node count specification invalid", "fewer GPUs"),
        (["--partition=tiny", "--nodes=2"], "Node count specification invalid", "fewer GPUs"),
        (["--nodes=1", "--ntasks-per-node=4000"], "More processors requested than permitted", "fewer tasks"),
    ],
)
def test_a_cluster_that_enforces_its_limits_at_once(
    strict_cluster: SlurmCluster, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    options: list[str], words: str, hint: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("SLURM_CONF", str(strict_cluster.conf))
    monkeypatch.setenv("PATH", strict_cluster.env["PATH"])
    with pytest.raises(SchedulerError) as caught:
        SlurmCli().submit(request(tmp_path, *options))
    assert words in caught.value.message
    assert hint in caught.value.hint


@pytest.fixture(scope="module")
def strict_cluster(slurm_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """One with EnforcePartLimits, and a partition that limits the nodes of a job."""
    extra = "EnforcePartLimits=ALL\nPartitionName=tiny Nodes=b200-[1-8] MaxNodes=1"
    cluster = private_cluster.start(extra=extra, name="strict")
    yield cluster
    cluster.stop()
