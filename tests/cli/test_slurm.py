"""Tests of the command line on a real Slurm: one job's whole life, and every refusal in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import STEP_LINE, Run
from tests.cluster import SlurmCluster

pytestmark = pytest.mark.slurm


@pytest.fixture
def site(gpt_tune: Run, slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kept site of the private cluster; its run folder."""
    root = tmp_path / "shared runs"
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    done = gpt_tune("site", "--set", f"run_root={root}", "--json")
    assert done.code == 0, done.err
    assert done.json["site"][0]["node"] == "p6-b200"
    return str(root)


def test_clusters(gpt_tune: Run, site: str) -> None:
    slurm, local = gpt_tune("clusters", "--json").json["clusters"]
    assert (slurm["scheduler"], local["name"]) == ("slurm", "local")
    partitions = {p["name"]: p for p in slurm["partitions"]}
    assert partitions["dev"]["gpus_total"] == 64
    out = gpt_tune("clusters").out
    assert "dev*" in out
    assert "drained" in out


def test_plan_for_the_cluster(gpt_tune: Run, site: str) -> None:
    name = gpt_tune("clusters", "--json").json["clusters"][0]["name"]
    done = gpt_tune("plan", "--model", "gpt-145b", "--gpus", "64", "--cluster", name, "--top", "1", "--json")
    assert done.code == 0
    h100 = ("--cluster", name, "--partition", "long", "--gpu", "h100")
    done = gpt_tune("plan", "--model", "gpt-1.3b", "--gpus", "8", *h100, "--json")
    assert done.json["plans"][0]["memory"]["limit_gib"] < 81
    wrong = gpt_tune(
        "plan", "--model", "gpt-1.3b", "--gpus", "8", "--cluster", name, "--partition", "deb", "--json"
    )
    assert (wrong.code, "dev" in wrong.error["hint"]) == (2, True)


def test_a_job_over_eight_nodes(gpt_tune: Run, site: str, slurm: SlurmCluster) -> None:
    changes = ("--set", "resources.gpus=64", "--set", "smoke.seconds=600", "--set", "name=try it")
    done = gpt_tune("submit", "smoke", *changes, "--yes", "--json")
    assert done.code == 0, done.err
    data = done.json
    assert data["scheduler"] == "slurm"
    assert data["run_dir"].startswith(f"{site}/")
    slurm.wait_for_state(data["job_id"], "RUNNING")
    (job,) = gpt_tune("jobs", "--json").json["jobs"]
    assert (job["job_id"], job["nodes"], job["gpus"], job["state"]) == (data["job_id"], 8, 64, "RUNNING")
    once = gpt_tune("watch", data["job_id"], "--once", "--json")
    assert once.code == 0
    assert json.loads(once.out.splitlines()[-1])["state"] == "RUNNING"
    assert gpt_tune("cancel", data["job_id"], "--yes", "--json").code == 0
    slurm.wait_for_state(data["job_id"], "CANCELLED", "")
    (job,) = gpt_tune("jobs", "--json").json["jobs"]
    assert job["state"] == "CANCELLED"
    assert gpt_tune("watch", data["run_id"], "--once").code == 1


@pytest.mark.parametrize(
    ("profile", "gpus"), [("gpt-1.3b-1node", 8), ("aws-gpt-145b-b200", 64), ("llama-3.1-8b", 8)]
)
def test_training_starters_are_planned_and_rendered(
    gpt_tune: Run, site: str, profile: str, gpus: int
) -> None:
    done = gpt_tune("submit", profile, "--set", "trainer.path=/opt/Megatron-DeepSpeed", "--dry-run", "--json")
    assert done.code == 0, done.err
    layout = done.json["plan"]["layout"]
    used = (
        layout["tensor_parallel"]
        * layout["pipeline_parallel"]
        * layout["data_parallel"]
        * layout["context_parallel"]
    )
    assert used == gpus
    assert done.json["gpu_hours"] > 0
    out = gpt_tune("submit", profile, "--set", "trainer.path=/opt/Megatron-DeepSpeed", "--dry-run")
    assert f"#SBATCH --nodes={gpus // 8}" in out.out
    assert "GPU-hours" in out.err


def test_training_that_cannot_fit_is_refused_before_anything_is_written(gpt_tune: Run, site: str) -> None:
    done = gpt_tune(
        "submit", "gpt-1.3b-1node", "--set", "model.id=gpt-1t", "--set", "resources.gpus=8", "--json"
    )
    assert (done.code, "gpt-1t" in done.error["message"]) == (2, True)
    fixed = ("--set", "layout.fixed.tensor_paralel=2")
    done = gpt_tune("submit", "gpt-1.3b-1node", *fixed, "--json")
    assert (done.code, "tensor_parallel" in done.error["hint"]) == (2, True)
    assert gpt_tune("jobs", "--json").json["jobs"] == []


def test_a_short_job_is_followed_to_its_end(gpt_tune: Run, site: str) -> None:
    data = gpt_tune("submit", "smoke", "--set", "resources.gpus=1", "--set", "smoke.steps=4", "--json").json
    followed = gpt_tune("watch", data["run_id"], "--json")
    events = [json.loads(line) for line in followed.out.splitlines()]
    assert (followed.code, events[-1]["state"]) == (0, "COMPLETED")
    assert max(e["iteration"] for e in events if e["event"] == "step") == 4
    assert gpt_tune("parse", data["job_id"], "--json").json["summary"]["steps"] == 4


def test_a_job_that_gpt_tune_did_not_submit(
    gpt_tune: Run, site: str, slurm: SlurmCluster, tmp_path: Path
) -> None:
    script = tmp_path / "mine.sh"
    script.write_text(f"#!/bin/bash\ncat <<'END'\n{STEP_LINE}{STEP_LINE.replace('1/', '2/')}END\nexit 3\n")
    log = tmp_path / "mine-%j.log"
    job_id = slurm.run("sbatch", "--parsable", "--wait", f"--output={log}", str(script), check=False).strip()
    done = gpt_tune("watch", job_id, "--json")
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [e["iteration"] for e in events if e["event"] == "step"] == [1, 2]
    assert (done.code, events[-1]["state"]) == (1, "FAILED")


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("resources.gpus=63", 2, ("56", "64")),
        ("resources.gpus=72", 2, ("64",)),
        ("resources.partition=deb", 2, ("dev", "long")),
        ("resources.gpu=h200", 2, ("h200",)),
        ("site.time_limit=5:00:00", 2, ("2:00:00",)),
        ("site.time_limit=soon", 2, ("notation",)),
        ("site.run_root=/proc/none", 2, ("/proc/none",)),
        ("site.extra_sbatch=--constraint=moon", 3, ("constraint",)),
    ],
)
def test_refusals_leave_no_job_and_no_folder(
    gpt_tune: Run, site: str, slurm: SlurmCluster, change: str, code: int, words: tuple[str, ...]
) -> None:
    done = gpt_tune("submit", "smoke", "--set", change, "--json")
    assert done.code == code
    for word in words:
        assert word in str(done.error), done.error
    assert slurm.run("squeue", "--noheader").strip() == ""
    assert gpt_tune("jobs", "--json").json["jobs"] == []
    assert not Path(site).exists() or not any(Path(site).iterdir())


def test_controller_down(gpt_tune: Run, site: str, slurm: SlurmCluster) -> None:
    data = gpt_tune("submit", "smoke", "--set", "smoke.seconds=600", "--json").json
    slurm.wait_for_state(data["job_id"], "RUNNING")
    assert gpt_tune("jobs", "--json").json["jobs"][0]["state"] == "RUNNING"
    with slurm.controller_down():
        for command in (("clusters",), ("submit", "smoke"), ("cancel", data["run_id"])):
            done = gpt_tune(*command, "--json")
            assert done.code == 3, command
            assert done.error["message"]
        stale = gpt_tune("jobs", "--json")
        assert stale.code == 0
        assert [j["state"] for j in stale.json["jobs"]] == ["RUNNING"], "no false end while nobody answers"
        assert stale.json["stale_seconds"] > 0
    assert len(gpt_tune("jobs", "--json").json["jobs"]) == 1
