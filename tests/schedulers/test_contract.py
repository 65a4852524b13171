"""What every way to a scheduler promises: one suite, run against each of them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from gpt_tune.errors import SchedulerError
from gpt_tune.schedulers.base import ENDED, Scheduler, SignalTarget, SubmitRequest
from gpt_tune.schedulers.local import Local
from gpt_tune.schedulers.slurm_cli import SlurmCli
from tests.cluster import wait_until

WAYS: dict[str, Callable[[], Scheduler]] = {"slurm_cli": SlurmCli, "local": Local}


@pytest.fixture(params=[pytest.param("slurm_cli", marks=pytest.mark.slurm), "local"])
def scheduler(request: pytest.FixtureRequest) -> Scheduler:
    request.getfixturevalue("slurm" if request.param.startswith("slurm") else "home")
    return WAYS[request.param]()


def submit(
    scheduler: Scheduler, tmp_path: Path, body: str, name: str = "contract", token: str = "token-1"
) -> str:
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    script = folder / f"{name}.sh"
    script.write_text(
        f"#!/bin/bash\n#SBATCH --job-name={name}\n#SBATCH --output={folder}/%x-%j.out\n{body}\n"
    )
    return scheduler.submit(SubmitRequest(str(script), str(folder), name, token))


def wait_for(scheduler: Scheduler, job_id: str, *states: str) -> None:
    wait_until(lambda: scheduler.statuses([job_id])[job_id].state in states, 30, f"{job_id} in {states}")


def test_discover_offers_partitions_with_nodes(scheduler: Scheduler) -> None:
    cluster = scheduler.discover()
    assert cluster.name == scheduler.cluster
    assert cluster.version
    assert [p for p in cluster.partitions if p.default]
    for partition in cluster.partitions:
        assert partition.state == "up"
        for group in partition.groups:
            assert sum(group.nodes_by_state.values()) == group.nodes
            assert 0 <= group.gpus_free <= group.nodes * group.gpus_per_node


def test_a_job_from_submit_to_end(scheduler: Scheduler, tmp_path: Path) -> None:
    job_id = submit(scheduler, tmp_path, 'echo "cwd $PWD"; exit 5')
    wait_for(scheduler, job_id, *ENDED)
    status = scheduler.statuses([job_id])[job_id]
    assert (status.job_id, status.name, status.state, status.exit_code) == (job_id, "contract", "FAILED", 5)
    assert None not in (status.submitted_at, status.started_at, status.ended_at)
    assert status.work_dir == str(tmp_path / "run")
    assert (tmp_path / "run" / f"contract-{job_id}.out").read_text() == f"cwd {tmp_path}/run\n"


def test_a_job_is_found_by_its_token(scheduler: Scheduler, tmp_path: Path) -> None:
    token = f"gpt-tune-{secrets.token_hex(4)}"  # the cluster may remember jobs of earlier tests
    job_id = submit(scheduler, tmp_path, "sleep 600", token=token)
    assert [j.job_id for j in scheduler.my_jobs() if token in j.comment] == [job_id]
    scheduler.cancel(job_id)


def test_a_token_behind_a_long_comment_of_the_users_own(scheduler: Scheduler, tmp_path: Path) -> None:
    token = f"gpt-tune-{secrets.token_hex(4)}"
    job_id = submit(scheduler, tmp_path, f"#SBATCH --comment={'c' * 990}\nsleep 600", token=token)
    assert [j.job_id for j in scheduler.my_jobs() if token in j.comment] == [job_id]
    scheduler.cancel(job_id)
    if scheduler.kind != "local":
        with pytest.raises(SchedulerError, match="too long") as caught:
            submit(scheduler, tmp_path, f"#SBATCH --comment={'c' * 1100}\nsleep 600")
        assert "comment" in caught.value.hint


def test_cancel(scheduler: Scheduler, tmp_path: Path) -> None:
    job_id = submit(scheduler, tmp_path, "sleep 600")
    wait_for(scheduler, job_id, "RUNNING")
    scheduler.cancel(job_id)
    wait_for(scheduler, job_id, *ENDED)
    status = scheduler.statuses([job_id])[job_id]
    assert status.state == "CANCELLED"
    assert status.exit_code != 0
    scheduler.cancel(job_id)  # ended already: no error


def test_many_jobs_cost_one_call(scheduler: Scheduler, tmp_path: Path) -> None:
    ids = [submit(scheduler, tmp_path, "exit 0", f"j{i}") for i in range(4)]
    before = scheduler.calls
    assert set(scheduler.statuses([*ids, "987654", "local-987654"])) == set(ids)
    assert scheduler.calls - before <= 1


@pytest.mark.parametrize("ids", [[], ["987654"], ["987654", "987655"]])
def test_what_is_not_known_is_left_out(scheduler: Scheduler, ids: list[str]) -> None:
    assert scheduler.statuses(ids) == {}


def test_history_without_accounting_is_empty(scheduler: Scheduler) -> None:
    assert scheduler.history(["1"], "2026-01-01T00:00:00Z") == {}


@pytest.mark.parametrize("name", ["plain", "with blank", "grüße|x", "50%"])
def test_names_come_back_whole(scheduler: Scheduler, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "job.sh").write_text(
        f'#!/bin/bash\n#SBATCH --job-name="{name}"\n#SBATCH --output=/dev/null\ntrue\n'
    )
    job_id = scheduler.submit(SubmitRequest(str(folder / "job.sh"), str(folder), name, "t"))
    assert scheduler.statuses([job_id])[job_id].name == name


def test_tasks_of_an_array_that_wait(scheduler: Scheduler, tmp_path: Path) -> None:
    if scheduler.kind == "local":
        pytest.skip("this machine has no arrays")
    (tmp_path / "run").mkdir()
    script = tmp_path / "run" / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --array=1-12:5%1\n#SBATCH --output=/dev/null\nsleep 600\n")
    job_id = scheduler.submit(SubmitRequest(str(script), str(tmp_path / "run"), "arr", "t"))
    tasks = [f"{job_id}_{n}" for n in (1, 6, 11)]
    wait_until(
        lambda: "RUNNING" in {s.state for s in scheduler.statuses(tasks).values()}, 30, "the first task"
    )
    found = scheduler.statuses([*tasks, f"{job_id}_2", job_id])
    assert set(found) == {*tasks, job_id}
    assert sorted(found[t].state for t in tasks) == ["PENDING", "PENDING", "RUNNING"]
    assert found[job_id].state == "RUNNING"
    scheduler.cancel(job_id)


def test_hold_and_release(scheduler: Scheduler, tmp_path: Path) -> None:
    if scheduler.kind == "local":
        job_id = submit(scheduler, tmp_path, "sleep 600")
        with pytest.raises(SchedulerError, match="no queue"):
            scheduler.hold(job_id)
        scheduler.release(job_id)  # not held: fine
        scheduler.cancel(job_id)
        return
    job_id = submit(scheduler, tmp_path, "#SBATCH --begin=now+1hour\nsleep 600")
    scheduler.hold(job_id)
    assert scheduler.statuses([job_id])[job_id].reason == "JobHeldUser"  # its owner may release it
    scheduler.release(job_id)
    assert scheduler.statuses([job_id])[job_id].reason != "JobHeldUser"
    scheduler.release(job_id)  # again: fine
    scheduler.cancel(job_id)


def test_only_what_waits_is_held(scheduler: Scheduler, tmp_path: Path) -> None:
    job_id = submit(scheduler, tmp_path, "sleep 600")
    wait_for(scheduler, job_id, "RUNNING")
    with pytest.raises(SchedulerError, match=r"RUNNING: only a waiting job|no queue"):
        scheduler.hold(job_id)
    scheduler.cancel(job_id)


def test_requeue(scheduler: Scheduler, tmp_path: Path) -> None:
    job_id = submit(scheduler, tmp_path, "#SBATCH --requeue\necho >> times; sleep 600")
    wait_for(scheduler, job_id, "RUNNING")
    if scheduler.kind == "local":
        with pytest.raises(SchedulerError, match="no queue"):
            scheduler.requeue(job_id)
    else:
        scheduler.requeue(job_id)
        wait_for(scheduler, job_id, "PENDING")
    scheduler.cancel(job_id)
    wait_for(scheduler, job_id, *ENDED)


def test_a_job_that_may_not_be_requeued(scheduler: Scheduler, tmp_path: Path) -> None:
    job_id = submit(scheduler, tmp_path, "#SBATCH --no-requeue\nsleep 600")
    wait_for(scheduler, job_id, "RUNNING")
    with pytest.raises(SchedulerError) as caught:
        scheduler.requeue(job_id)
    assert "resubmit" in caught.value.hint
    assert scheduler.statuses([job_id])[job_id].state == "RUNNING"
    scheduler.cancel(job_id)


@pytest.mark.parametrize("target", ["script", "all"])
def test_a_signal_reaches_the_script(scheduler: Scheduler, tmp_path: Path, target: SignalTarget) -> None:
    body = "trap 'echo saved > saved; exit 3' USR1\ntouch ready\nwhile :; do read -t 0.1 <> <(:) || :; done"
    job_id = submit(scheduler, tmp_path, body)
    ready = tmp_path / "run" / "ready"
    wait_until(ready.exists, 30, "the script's trap")
    scheduler.signal(job_id, "USR1", target)
    wait_for(scheduler, job_id, *ENDED)
    assert (tmp_path / "run" / "saved").read_text() == "saved\n"
    assert scheduler.statuses([job_id])[job_id].exit_code == 3
    with pytest.raises(SchedulerError):
        scheduler.signal(job_id, "USR1", target)  # it has ended


@pytest.mark.parametrize("do", ["hold", "release", "requeue", "signal"])
def test_what_is_done_to_an_unknown_job_is_refused_in_words(scheduler: Scheduler, do: str) -> None:
    job_id = "local-987654" if scheduler.kind == "local" else "987654"
    with pytest.raises(SchedulerError) as caught:
        getattr(scheduler, do)(job_id, *(["USR1"] if do == "signal" else []))
    assert caught.value.hint
    assert "\n" not in caught.value.message
