"""Tests of what comes after a run: results, resubmission, and the doctor before it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from gpt_tune import planner
from gpt_tune.jobs import resolved_log_paths
from gpt_tune.ledger import Ledger, RunRecord, default_path
from gpt_tune.planner.types import Plan
from gpt_tune.profiles.build import to_dict
from gpt_tune.profiles.schema import LayoutChoice, Profile
from gpt_tune.toml import dump
from gpt_tune.workflows import doctor
from gpt_tune.workflows.resubmit import again, flat_layout
from tests.cli.conftest import Run

FRAGMENTED = (
    "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.06 GiB. GPU 2 has a total capacity of "
    "79.25 GiB of which 6.96 GiB is free. Including non-PyTorch memory, this process has 72.27 GiB memory in use. Of "
    "the allocated memory 55.56 GiB is allocated by PyTorch, and 14.14 GiB is reserved by PyTorch but unallocated. If "
    "reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"
)
TINY = ("--set", "smoke.layers=1", "--set", "smoke.hidden=16")


def ran(gpt_tune: Run, steps: int) -> str:
    """A short run that has ended; its id."""
    run_id = str(gpt_tune("submit", "smoke", *TINY, "--set", f"smoke.steps={steps}", "--json").json["run_id"])
    assert gpt_tune("watch", run_id, "--json").code == 0
    return run_id


def record_of(profile: Profile, plan: Plan) -> RunRecord:
    """A run as the ledger keeps it, that never ran."""
    return RunRecord(
        run_id="r1", token="t", cluster="dev", scheduler="slurm", name="old", recipe=profile.recipe, run_dir="/x/r1",
        script="/x/r1/job", created_at="2026-11-30T00:00:00Z", profile=dump(to_dict(profile)), plan=plan.to_json(),
    )  # fmt: skip


def test_results(gpt_tune: Run, tmp_path: Path) -> None:
    assert gpt_tune("results", "--json").json == {"schema": "gpt-tune/results/1", "results": []}
    first, second = ran(gpt_tune, 4), ran(gpt_tune, 8)
    rows = gpt_tune("results", "list", "--json").json["results"]
    assert [r["run_id"] for r in rows] == [second, first]
    assert [r["steps"] for r in rows] == [8, 4]
    assert rows[0]["median_step_time_ms"] > 0
    assert second in gpt_tune("results").out
    table = list(csv.DictReader(io.StringIO(gpt_tune("results", "export").out)))
    assert [r["steps"] for r in table] == ["8", "4"]
    out = tmp_path / "bench.json"
    assert gpt_tune("results", "export", first, "--format", "benchmark", "--out", out).code == 0
    assert '"total_steps": 4' in out.read_text()
    different = {d["key"]: d for d in gpt_tune("results", "compare", first, second, "--json").json["results"]}
    assert (different["smoke.steps"]["a"], different["smoke.steps"]["b"]) == (4, 8)
    assert different["steps"]["ratio"] == 2
    assert "smoke.steps" in gpt_tune("results", "compare", first, second).out
    assert gpt_tune("results", "compare", first, "nothing", "--json").error["code"] == 2


def test_results_whose_log_is_gone(gpt_tune: Run) -> None:
    run_id = ran(gpt_tune, 2)
    for path in Ledger.open().get(run_id).log_paths:
        for file in Path(path).parent.glob("*"):
            file.unlink()
    (row,) = gpt_tune("results", "--json").json["results"]
    assert (row["steps"], row["median_step_time_ms"]) == (2, None)  # how far it came is known without it
    assert "gone" in gpt_tune("results", "export", run_id, "--format", "benchmark", "--json").error["message"]


def test_resubmit(gpt_tune: Run) -> None:
    run_id = ran(gpt_tune, 3)
    done = gpt_tune("resubmit", run_id, "--set", "smoke.steps=5", "--dry-run", "--json")
    assert (done.code, done.json["state"]) == (0, "DRY_RUN")
    assert "smoke.steps=5" in done.err
    done = gpt_tune("resubmit", run_id, "--json")
    assert done.json["run_id"] != run_id
    assert gpt_tune("watch", done.json["run_id"], "--json").code == 0
    assert gpt_tune("resubmit", "nothing", "--json").error["code"] == 2


def test_resubmitting_keeps_the_layout(home: Path) -> None:
    request = planner.build_request("gpt-1.3b", 8, gpu="h100", top=3)
    plan = planner.search(request).plans[2]
    profile = Profile(layout=LayoutChoice(fixed={"zero_stage": plan.layout.zero_stage}))
    old = record_of(profile, plan)
    new = again(old, more=("training.iterations=7",))
    assert new.profile.layout.fixed == flat_layout(plan.layout.to_json())
    assert new.profile.training.iterations == 7
    again_request = planner.build_request("gpt-1.3b", 8, gpu="h100", fix=new.profile.layout.fixed)
    assert planner.search(again_request).plans[0].layout == plan.layout


def test_the_fix_of_what_the_log_says(gpt_tune: Run) -> None:
    record = Ledger.open().get(ran(gpt_tune, 2))
    (path,) = resolved_log_paths(record)
    with Path(path).open("a") as file:
        file.write(FRAGMENTED)
    done = gpt_tune("resubmit", record.run_id, "--with-fix", "--dry-run", "--json")
    assert done.code == 0
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in done.err
    script = gpt_tune("resubmit", record.run_id, "--with-fix", "--dry-run").out
    assert "expandable_segments:True" in script


@pytest.mark.parametrize(
    ("change", "kept"),
    [("training.iterations=7", True), ("resources.gpus=16", False), ("layout.fixed.zero_stage=1", False)],
)
def test_a_layout_is_planned_anew_when_it_rests_on_what_changed(
    gpt_tune: Run, change: str, kept: bool
) -> None:
    plan = planner.search(planner.build_request("gpt-1.3b", 8, gpu="h100", top=1)).plans[0]
    old = record_of(Profile(), plan)
    fixed = again(old, more=(change,)).profile.layout.fixed
    assert ("tensor_parallel" in fixed) == kept


def test_doctor_on_this_machine(gpt_tune: Run) -> None:
    done = gpt_tune("doctor", "--json")
    assert done.json["schema"] == "gpt-tune/doctor/1"
    checks = {c["check"]: c for c in done.json["doctor"]}
    assert {"python", "installation", "settings", "state", "ledger", "slurm"} <= set(checks)
    assert all(set(c) == {"check", "status", "text", "fix"} for c in done.json["doctor"])
    assert done.code == int(any(c["status"] in ("warning", "error") for c in done.json["doctor"]))
    assert "next:" in gpt_tune("doctor").out


def test_doctor_names_a_damaged_ledger(gpt_tune: Run) -> None:
    ledger = default_path()
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(b"nonsense" * 1000)
    done = gpt_tune("doctor", "--json")
    assert done.code == 1
    assert {c["check"] for c in done.json["doctor"] if c["status"] == "error"} == {"ledger"}
    assert done.json["next_step"]


def test_doctor_says_when_the_terminal_is_no_utf8(gpt_tune: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locale.getpreferredencoding", lambda _: "ANSI_X3.4-1968")
    done = gpt_tune("doctor", "--json")
    assert done.code == 1
    assert [c["check"] for c in done.json["doctor"] if c["status"] == "warning"] == ["terminal"]


def test_the_file_system_is_that_of_the_longest_mount() -> None:
    mounts = (
        "a / ext4 rw 0 0\nb /shared nfs4 rw 0 0\nc /shared/fast lustre rw 0 0\nd /sharedother xfs rw 0 0\n"
    )
    for path, kind in (
        ("/shared/x", "nfs4"),
        ("/shared/fast/y", "lustre"),
        ("/sharedother", "xfs"),
        ("/home", "ext4"),
    ):
        assert doctor._file_system(Path(path), lambda: mounts) == kind


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert doctor._write_trouble(file / "below") == "it is no folder"
    assert doctor._write_trouble(tmp_path / "new" / "deep") == ""


# Two runs of the 1.3B model on one H200 (micro batches 4 and 2, ZeRO-1), and one that ran out of memory.
RUNS = """id,series,source,framework,gpu,gpu_mem_gb,gpus,hidden,layers,heads,kv_heads,ffn,seq_length,vocab,\
tensor_parallel,pipeline_parallel,virtual_pipeline,context_parallel,expert_parallel,data_parallel,sequence_parallel,\
zero_stage,micro_batch_size,global_batch_size,recompute,precision,step_seconds,step_is_derived,memory_gb,memory_kind,\
oom,notes,colour
a,one,own,Megatron-DeepSpeed,H200,141,1,2048,24,16,16,8192,2048,50304,1,1,1,1,1,1,0,1,4,4,none,bf16,0.29,0,46,device,0,,red
b,one,own,Megatron-DeepSpeed,H200,141,1,2048,24,16,16,8192,2048,50304,1,1,1,1,1,1,0,1,2,2,none,bf16,0.16,0,36,device,0,,
c,two,own,Megatron-DeepSpeed,H200,141,1,8192,40,64,64,32768,2048,50304,1,1,1,1,1,1,0,0,4,4,none,bf16,,0,,,1,,
"""


def test_validate(gpt_tune: Run, tmp_path: Path) -> None:
    runs, out = tmp_path / "runs.csv", tmp_path / "out.csv"
    runs.write_text(RUNS)
    done = gpt_tune("validate", runs, "--csv", out, "--json")
    assert done.code == 0, done.err
    data = done.json
    assert {"schema", "rows", "skipped", "fitted_rows", "memory", "time", "oom", "per_series"} <= set(data)
    assert (data["schema"], data["rows"], data["fitted_rows"]) == ("gpt-tune/validate/1", 3, 0)
    assert {"rows", "mape", "median", "worst", "covered_90"} <= set(data["time"])
    assert data["time"]["mape"] < 0.25
    assert (data["oom"]["rows"], data["oom"]["caught"]) == (1, 1)
    assert done.err.count("colour") == 1, "a column that is ignored is named once"
    assert len(out.read_text().splitlines()) == 4
    assert "step time" in gpt_tune("validate", runs).out


@pytest.mark.parametrize(
    ("text", "words"),
    [("id,series\na,b\n", "hidden"), ("", ""), (RUNS.replace("H200", "H2000"), "")],
)
def test_validate_of_a_bad_file(gpt_tune: Run, tmp_path: Path, text: str, words: str) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text(text)
    done = gpt_tune("validate", runs, "--json")
    assert done.code in (0, 2)
    if done.code == 2:
        assert words in str(done.error)
    else:
        assert len(done.json["skipped"]) == 3, "runs that cannot be predicted are named with the reason"


def test_validate_without_a_file(gpt_tune: Run, tmp_path: Path) -> None:
    assert gpt_tune("validate", "nowhere.csv", "--json").error["code"] == 2
    runs = tmp_path / "runs.csv"
    runs.write_text(RUNS)
    assert gpt_tune("validate", runs, "--fit", "nowhere.csv", "--json").error["code"] == 2
    assert gpt_tune("validate", runs, "--csv", tmp_path / "no" / "out.csv", "--json").error["code"] == 2


def test_a_site_reached_by_ssh(gpt_tune: Run) -> None:
    done = gpt_tune("site", "far", "--set", "ssh=me@login.far", "--set", "run_root=/scratch/me", "--json")
    assert (done.code, done.json["site"][0]["ssh"]) == (0, "me@login.far")
    assert gpt_tune("site", "far2", "--set", "run_root=/scratch/me", "--json").error["code"] == 2
