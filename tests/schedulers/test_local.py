"""Jobs on this machine: states, logs, cancel, and survival of whoever started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.schedulers import local_runner
from gpt_tune.schedulers.base import ENDED, JobStatus, SubmitRequest
from gpt_tune.schedulers.local import Local
from tests.cluster import wait_until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run_dir(home: Path) -> Path:
    folder = home / "runs" / "with blank"
    folder.mkdir(parents=True)
    return folder


def submit(run_dir: Path, body: str, options: str = "#SBATCH --output=log\n") -> str:
    script = run_dir / "job.sh"
    script.write_text(f"#!/bin/bash\n{options}{body}\n")
    return Local(grace_seconds=1).submit(SubmitRequest(str(script), str(run_dir), "test", "token-1"))


def status(job_id: str) -> JobStatus:
    return Local().statuses([job_id])[job_id]


def wait_for(job_id: str, *states: str, seconds: float = 20) -> JobStatus:
    wait_until(lambda: status(job_id).state in states, seconds, f"{job_id} in {states}")
    return status(job_id)


def wait_for_text(path: Path, text: str) -> None:
    wait_until(lambda: path.exists() and text in path.read_text(), 20, f"{text!r} in {path.name}")


def test_a_job_runs_and_completes(run_dir: Path) -> None:
    job_id = submit(
        run_dir, "echo out; echo err >&2; pwd; echo id=$GPT_TUNE_JOB_ID slurm=${SLURM_JOB_ID-none}"
    )
    done = wait_for(job_id, *ENDED)
    assert (done.state, done.exit_code, done.reason) == ("COMPLETED", 0, "")
    assert (run_dir / "log").read_text().splitlines() == [
        "out",
        "err",
        str(run_dir),
        f"id={job_id} slurm=none",
    ]
    assert done.started_at is not None
    assert done.ended_at is not None
    assert done.log_paths == (str(run_dir / "log"),)


@pytest.mark.parametrize(
    ("body", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("kill -SEGV $$", 139), ("no-such-program", 127)]
)
def test_a_failure_keeps_its_exit_code(run_dir: Path, body: str, code: int) -> None:
    done = wait_for(submit(run_dir, body), *ENDED)
    assert (done.state, done.exit_code, done.reason) == ("FAILED", code, f"exit code {code}")


def test_log_names_follow_the_script(run_dir: Path) -> None:
    options = "#SBATCH -J my-run\n#SBATCH --output=out-%x-%j-%A_%a-%u-%N-%4t-%%.txt\n#SBATCH -e err.%j\n"
    job_id = submit(run_dir, "echo out; echo err >&2", options)
    out, err = map(Path, wait_for(job_id, *ENDED).log_paths)
    host = os.uname().nodename.split(".")[0]
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    assert out.name == f"out-my-run-{job_id}-{job_id}_4294967294-{user}-{host}-0000-%.txt"
    assert (out.read_text(), err.read_text()) == ("out\n", "err\n")
    assert status(job_id).name == "my-run"


def test_without_an_output_line_the_log_is_slurms_default(run_dir: Path) -> None:
    job_id = submit(run_dir, "echo hello", "")
    wait_for(job_id, *ENDED)
    assert (run_dir / f"slurm-{job_id}.out").read_text() == "hello\n"


def test_cancel_ends_the_whole_tree(run_dir: Path) -> None:
    body = (
        "sleep 600 &\n(setsid sleep 601 & setsid --fork sleep 602)\n"
        "bash -c 'trap \"\" TERM; while :; do read -t 1 < <(:) ; done' &\necho ready\nwait"
    )
    job_id = submit(run_dir, body)
    wait_for_text(run_dir / "log", "ready")
    state = json.loads((run_dir / f".{job_id}.json").read_text())
    assert len(local_runner.job_processes(state["state_file"], state["pid"])) >= 4
    Local().cancel(job_id)
    done = wait_for(job_id, *ENDED)
    assert (done.state, done.exit_code) == ("CANCELLED", None)
    assert local_runner.job_processes(state["state_file"], state["pid"]) == []
    Local().cancel(job_id)  # again: nothing to do, no error


def test_what_a_finished_script_leaves_behind_is_ended(run_dir: Path) -> None:
    job_id = submit(run_dir, "setsid sleep 600 &\nexit 0")
    done = wait_for(job_id, *ENDED)
    assert done.state == "COMPLETED"
    assert local_runner.job_processes(str(run_dir / f".{job_id}.json"), -1) == []


def test_a_job_outlives_the_killed_process_that_started_it(run_dir: Path) -> None:
    (run_dir / "job.sh").write_text(
        "#!/bin/bash\n#SBATCH -o log\necho begun\nread -r line < go\necho $line\n"
    )
    os.mkfifo(run_dir / "go")
    code = (
        "import os, signal, sys\n"
        "from gpt_tune.schedulers.local import Local\n"
        "from gpt_tune.schedulers.base import SubmitRequest\n"
        f"d = {str(run_dir)!r}\n"
        "print(Local().submit(SubmitRequest(d + '/job.sh', d, 'x', 't')), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    job_id = done.stdout.strip()
    assert status(job_id).state == "RUNNING"
    (run_dir / "go").write_text("went on\n")
    assert wait_for(job_id, *ENDED).state == "COMPLETED"
    assert (run_dir / "log").read_text() == "begun\nwent on\n"


def test_a_killed_runner_loses_neither_state_nor_cancel(run_dir: Path) -> None:
    job_id = submit(run_dir, "echo ready; sleep 600")
    wait_for_text(run_dir / "log", "ready")
    state = json.loads((run_dir / f".{job_id}.json").read_text())
    os.kill(state["runner"], signal.SIGKILL)
    wait_until(lambda: local_runner.process_start(state["runner"]) is None, 10, "the runner's end")
    assert status(job_id).state == "RUNNING"
    Local().cancel(job_id)
    assert status(job_id).state == "CANCELLED"
    assert local_runner.process_start(state["pid"]) is None


def test_everything_killed_is_a_failure_and_the_scripts_own_code_counts(run_dir: Path) -> None:
    job_id = submit(run_dir, "echo ready; sleep 600")
    wait_for_text(run_dir / "log", "ready")
    state = json.loads((run_dir / f".{job_id}.json").read_text())
    os.kill(state["runner"], signal.SIGKILL)
    local_runner.kill_job(state["state_file"], state["pid"], grace=0)
    assert status(job_id).state == "FAILED"
    assert "vanished" in status(job_id).reason
    (run_dir / "exit_code").write_text("0\n")
    assert status(job_id).state == "COMPLETED"


@pytest.mark.parametrize(
    ("change", "state", "reason"),
    [
        ({"boot_id": "another"}, "FAILED", "restarted"),
        ({"pid_start": "1", "runner_start": "1"}, "FAILED", "vanished"),  # the numbers belong to others now
        ({"host": "elsewhere"}, "UNKNOWN", "runs on elsewhere"),
    ],
)
def test_a_recycled_pid_a_reboot_and_another_host_are_noticed(
    run_dir: Path, change: dict[str, str], state: str, reason: str
) -> None:
    job_id = submit(run_dir, "echo ready; sleep 600")
    wait_for_text(run_dir / "log", "ready")
    path = run_dir / f".{job_id}.json"
    true_state = path.read_text()
    path.write_text(json.dumps({**json.loads(true_state), **change}))
    found = status(job_id)
    path.write_text(true_state)
    Local().cancel(job_id)
    assert found.state == state
    assert reason in found.reason


def test_ids_are_unique_among_processes_and_threads(run_dir: Path) -> None:
    ids: list[str] = []
    (run_dir / "job.sh").write_text("#!/bin/bash\n#SBATCH -o /dev/null\n")
    request = SubmitRequest(str(run_dir / "job.sh"), str(run_dir), "x", "t")
    threads = [threading.Thread(target=lambda: ids.append(Local().submit(request))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids) == sorted(f"local-{i}" for i in range(1, 13))
    for job_id in ids:
        wait_for(job_id, "COMPLETED")
    assert len(Local().my_jobs()) == 12


@pytest.mark.parametrize("output", ["missing/folder/log", "/proc/log"])
def test_a_log_that_cannot_be_made_fails_the_job(run_dir: Path, output: str) -> None:
    done = wait_for(submit(run_dir, "echo never", f"#SBATCH --output={output}\n"), *ENDED)
    assert (done.state, done.exit_code) == ("FAILED", 127)


def test_a_vanished_run_folder_is_refused_and_leaves_no_record(home: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        Local().submit(SubmitRequest(str(home / "gone/job.sh"), str(home / "gone"), "x", "t"))
    assert Local().my_jobs() == []


def test_unknown_jobs(home: Path) -> None:
    assert Local().statuses(["local-99"]) == {}
    with pytest.raises(SchedulerError, match="local-99"):
        Local().cancel("local-99")


def test_an_allocations_variables_do_not_reach_the_job(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_JOB_ID", "SBATCH_PARTITION", "SLURM_NTASKS", "SLURMD_NODENAME"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("OWN", "kept")
    wait_for(submit(run_dir, "env | grep -c '^SLURM_[JN]\\|^SBATCH\\|^SLURMD'; echo $OWN"), *ENDED)
    assert (run_dir / "log").read_text() == "0\nkept\n"


def test_discover_without_gpus(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    cluster = Local().discover()
    (group,) = cluster.partitions[0].groups
    assert (cluster.name, cluster.scheduler, group.gpus_per_node, group.gpu) == ("local", "local", 0, "")
    assert group.cpus_per_node >= 1
    assert group.memory_mib_per_node > 100


@pytest.mark.parametrize(
    ("answer", "kind", "total", "free", "notes"),
    [
        ("NVIDIA H200, 4\nNVIDIA H200, 130000\n", "nvidia_h200", 2, 1, 0),
        ("NVIDIA B200, [N/A]\n", "nvidia_b200", 1, 1, 0),
        (
            "NVIDIA A100-SXM4-80GB, 0\nNVIDIA A100-SXM4-80GB, 0\nNVIDIA T4, 0\n",
            "nvidia_a100-sxm4-80gb",
            2,
            2,
            1,
        ),
        ("exit 9", "", 0, 0, 1),
    ],
)
def test_discover_asks_nvidia_smi(
    home: Path, monkeypatch: pytest.MonkeyPatch, answer: str, kind: str, total: int, free: int, notes: int
) -> None:
    fake = home / "bin" / "nvidia-smi"
    fake.parent.mkdir()
    command = "echo NVIDIA-SMI has failed >&2; exit 9" if answer == "exit 9" else f"printf '{answer}'"
    fake.write_text(f"#!/bin/sh\n{command}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    cluster = Local().discover()
    (group,) = cluster.partitions[0].groups
    assert (group.gpu, group.gpus_per_node, group.gpus_free, len(cluster.notes)) == (kind, total, free, notes)
