"""The sampler of a job's nodes: on this machine and on a real Slurm, from start to end of the job."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger
from gpt_tune.schedulers.local_runner import process_start
from gpt_tune.workflows.nodes import sampler, sampling
from tests.cli.conftest import Run
from tests.cluster import SlurmCluster, wait_until

SMI = """#!/bin/sh
printf '0, 97, 81000, 183359, 812.44, 61\\n1, [N/A], 70000, 183359, ERR!, 58\\n'
"""


def node_processes(folder: str) -> list[int]:
    """Samplers that still run for a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            except OSError:
                continue
            if f"{folder}/sampler.py" in words and "srun" not in words[0] and process_start(int(entry.name)):
                found.append(int(entry.name))
    return found


def smi(folder: Path, script: str = SMI) -> dict[str, str]:
    """An environment in which nvidia-smi says what the script says."""
    folder.mkdir(exist_ok=True)
    (folder / "nvidia-smi").write_text(script)
    (folder / "nvidia-smi").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "SLURMD_NODENAME": "n\x1b1/../x"}


def test_a_sample_from_nvidia_smi_and_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in smi(tmp_path / "bin").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sampler, "NVML_NAMES", ())
    one = sampler.Sampler(str(tmp_path), 1.0, None, 0.0)
    sample = one.sample()
    assert sample["node"] == "n_1_.._x"
    assert sample["gpus"] == [[0, 97, 81000, 183359, 812, 61], [1, None, 70000, 183359, None, 58]]
    used, total = sampler.memory_mib()
    assert used is not None
    assert total is not None
    assert 0 < used < total


@pytest.mark.parametrize(
    "script", ["#!/bin/sh\nexit 9\n", "#!/bin/sh\nprintf 'Unable to determine'\nexit 15\n"]
)
def test_a_sick_gpu_is_said_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    for name, value in smi(tmp_path / "bin", script).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sampler, "NVML_NAMES", ())
    sample = sampler.Sampler(str(tmp_path), 1.0, None, 0.0).sample()
    assert str(sample["problem"]).startswith("nvidia-smi failed")
    assert sample["memory"]


@pytest.mark.parametrize(
    ("script", "words"), [("#!/bin/sh\nexit 0\n", "may not see"), (None, "neither NVML nor nvidia-smi")]
)
def test_gpus_that_cannot_be_seen_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, words: str
) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(sampler, "DEVICES", f"{tmp_path}/nvidia[0-9]*")
    monkeypatch.setattr(sampler, "NVML_NAMES", ())
    environment = smi(tmp_path / "bin", script) if script else {"PATH": str(tmp_path / "empty")}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert words in str(sampler.Sampler(str(tmp_path), 1.0, None, 0.0).sample()["problem"])


def test_kernel_records() -> None:
    found = sampler.XID.search(b"3,1,99,-;NVRM: Xid (PCI:0000:65:00): 79, pid=1, GPU has fallen off the bus.")
    assert found is not None
    assert found.groups() == (b"0000:65:00", b"79")
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    assert sampler._kernel_time(b"3,1,5000000,-;x") == pytest.approx(boot + 5, abs=1)
    assert sampler._kernel_time(b"garbage") == pytest.approx(boot, abs=1)


def test_it_ends_with_its_process_and_when_told(tmp_path: Path) -> None:
    job = subprocess.Popen(["sleep", "600"])
    argv = [
        sys.executable,
        "-I",
        "-S",
        sampler.__file__,
        str(tmp_path),
        "--interval",
        "1",
        "--pid",
        str(job.pid),
    ]
    runs = subprocess.Popen(argv)
    wait_until(lambda: any(tmp_path.glob("*.jsonl")), 20, "the first sample")
    assert runs.poll() is None
    job.kill()
    job.wait()
    assert runs.wait(timeout=20) == 0
    (tmp_path / "stop").touch()
    assert subprocess.run(argv[:-2], timeout=20, check=False).returncode == 0


def test_a_local_run(gpt_tune: Run, home: Path) -> None:
    run_id = gpt_tune("submit", "smoke", "--set", "smoke.seconds=600", "--json").json["run_id"]
    done = gpt_tune("nodes", run_id, "--sample", "--interval", "1", "--json")
    assert done.code == 0, done.err
    (row,) = done.json["nodes"]
    assert done.json["problem"] is None
    assert row["sample"]["memory_total_gib"] > 0.1
    record = Ledger.open().get(run_id)
    folder = sampling.folder_of(record)
    assert len(node_processes(folder)) == 1
    gpt_tune("nodes", run_id, "--sample", "--interval", "1")  # a second one is not started
    assert len(node_processes(folder)) == 1
    assert "node" in gpt_tune("nodes", run_id).out
    gpt_tune("cancel", run_id, "--yes", "--json")
    wait_until(lambda: not node_processes(folder), 30, "the sampler's end")
    refused = gpt_tune("nodes", run_id, "--sample", "--json")
    assert (refused.code, "CANCELLED" in refused.error["message"]) == (2, True)
    assert gpt_tune("nodes", run_id, "--json").json["nodes"][0]["sample"]["memory_total_gib"] > 0.1


@pytest.mark.parametrize("options", [["--sample", "--stop"], ["--sample", "--interval", "0"], ["--sample"]])
def test_wrong_use(gpt_tune: Run, options: list[str]) -> None:
    run_id = gpt_tune("submit", "smoke", "--set", "smoke.steps=1", "--json").json["run_id"]
    gpt_tune("watch", run_id, "--json")
    done = gpt_tune("nodes", run_id, *options, "--json")
    assert done.code == 2
    assert done.error["hint"]


@pytest.mark.slurm
def test_eight_nodes_of_a_real_slurm(gpt_tune: Run, slurm: SlurmCluster, tmp_path: Path) -> None:
    root = tmp_path / "shared runs"
    assert gpt_tune("site", "--set", f"run_root={root}", "--json").code == 0
    changes = ("--set", "resources.gpus=64", "--set", "smoke.seconds=600")
    data = gpt_tune("submit", "smoke", *changes, "--yes", "--json").json
    slurm.wait_for_state(data["job_id"], "RUNNING")
    done = gpt_tune("nodes", data["run_id"], "--sample", "--interval", "1", "--json")
    assert (done.code, done.json["problem"]) == (0, None), done.err
    rows = done.json["nodes"]
    assert [r["node"] for r in rows] == [f"b200-{i}" for i in range(1, 9)]
    assert all(r["sample"]["memory_total_gib"] > 0 for r in rows)
    assert [r["ranks"] for r in rows][1] == list(range(8, 16))
    steps = slurm.run("squeue", "--steps", "-h", "-j", data["job_id"], "-o", "%j")
    assert steps.split().count("gpt-tune-nodes") == 1
    record = Ledger.open().get(data["run_id"])
    folder = sampling.folder_of(record)
    assert len(node_processes(folder)) == 8
    assert gpt_tune("nodes", data["run_id"], "--stop").code == 0
    wait_until(lambda: not node_processes(folder), 30, "the samplers' end")
    assert slurm.job_state(data["job_id"]) == "RUNNING"
    again = gpt_tune("nodes", data["run_id"], "--sample", "--interval", "1", "--json").json
    assert all(r["sample"] for r in again["nodes"])
    gpt_tune("cancel", data["run_id"], "--yes", "--json")
    wait_until(lambda: not node_processes(folder), 60, "the end with the job")


@pytest.mark.slurm
def test_a_step_that_slurm_refuses_is_explained(gpt_tune: Run, slurm: SlurmCluster, tmp_path: Path) -> None:
    assert gpt_tune("site", "--set", f"run_root={tmp_path / 'runs'}", "--json").code == 0
    data = gpt_tune("submit", "smoke", "--set", "smoke.seconds=600", "--yes", "--json").json
    slurm.wait_for_state(data["job_id"], "RUNNING")
    gpt_tune("jobs", "--json")
    with Ledger.open() as ledger:
        record = ledger.update(data["run_id"], nodes=5)  # more than it has
    started = sampling.start(record, 1.0)
    wait_until(lambda: (started.poll(), started.problem)[1] != "", 30, "the refusal")
    assert "could not run" in started.problem
    assert started.problem.isprintable()


def test_only_running_jobs_have_samplers(gpt_tune: Run, home: Path) -> None:
    run_id = gpt_tune("submit", "smoke", "--set", "smoke.steps=1", "--json").json["run_id"]
    gpt_tune("watch", run_id, "--json")
    with pytest.raises(UserError, match="only the nodes of a running job"):
        sampling.start(Ledger.open().get(run_id))


def test_rows_of_a_log_file(gpt_tune: Run, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("node1: step: 7  loss: 2\nnode2: step: 5  loss: 2\nhello\n")
    done = gpt_tune("nodes", log, "--json")
    assert done.code == 0, done.err
    assert [(r["node"], r["iteration"], r["lag"]) for r in done.json["nodes"]] == [
        ("node1", 7, 0),
        ("node2", 5, 2),
    ]
    assert gpt_tune("nodes", log, "--sample", "--json").code == 2
    log.write_text("nothing\n")
    silent = gpt_tune("nodes", log)
    assert (silent.code, "no line" in silent.err) == (0, True)
    assert gpt_tune("nodes", "no-such", "--json").code == 2
