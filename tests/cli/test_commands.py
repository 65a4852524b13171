"""Tests of each command on this machine: shapes of the JSON, words for people, bad input."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import STEP_LINE, Run

PLAN = ("--model", "gpt-1.3b", "--gpus", "8", "--gpu", "h100")
LAYOUT_KEYS = {
    "tensor_parallel", "pipeline_parallel", "virtual_pipeline", "context_parallel", "context_method",
    "expert_parallel", "data_parallel", "sequence_parallel", "zero_stage", "micro_batch_size",
    "gradient_accumulation_steps", "global_batch_size", "recompute", "precision", "flash_attention", "fusions",
}  # fmt: skip
MEMORY_KEYS = {
    "allocated_gib", "reserved_gib", "device_gib", "low_gib", "high_gib", "limit_gib", "oom_probability",
    "peak_phase", "stages", "not_modelled",
}  # fmt: skip
STEP_KEYS = {
    "seconds", "low", "high", "compute", "tensor_parallel", "context_parallel", "expert_parallel", "pipeline_bubble",
    "pipeline_p2p", "data_parallel", "optimizer", "other", "model_tflops", "hardware_tflops", "mfu", "hfu",
    "tokens_per_second_per_gpu",
}  # fmt: skip


# -- catalogues -------------------------------------------------------------------------------------


def test_models(gpt_tune: Run) -> None:
    data = gpt_tune("models", "--json").json
    assert len(data["models"]) >= 30
    assert {"id", "parameters", "layers", "hidden", "heads", "source"} <= set(data["models"][0])
    (seed,) = gpt_tune("models", "aws-gpt-103b", "--json").json["models"]
    assert seed["id"] == "gpt-145b"
    assert 145e9 < seed["parameters"] < 146e9
    assert "145.6B" in gpt_tune("models", "gpt-145b").out
    (own,) = gpt_tune("models", "layers=2,hidden=64,heads=4", "--json").json["models"]
    assert own["layers"] == 2


def test_unknown_model(gpt_tune: Run) -> None:
    done = gpt_tune("models", "gpt-175", "--json")
    assert (done.code, "gpt-175b" in done.error["hint"]) == (2, True)


def test_hardware(gpt_tune: Run) -> None:
    data = gpt_tune("hardware", "--json").json
    kinds = {h["kind"] for h in data["hardware"]}
    assert kinds == {"gpu", "node"}
    (h200,) = gpt_tune("hardware", "h200", "--json").json["hardware"]
    assert (h200["memory_mib_driver"], h200["memory_gib_torch"]) == (143771, 139.8)
    assert "measured" in gpt_tune("hardware", "h200").out
    assert gpt_tune("hardware", "p6-b200", "--json").json["hardware"][0]["gpu"] == "b200"
    assert "unknown" in gpt_tune("hardware", "gh200-144").out
    assert "b200" in gpt_tune("hardware", "b20", "--json").error["hint"]


# -- planning ---------------------------------------------------------------------------------------


def check_plan(plan: dict[str, Any]) -> None:
    assert set(plan["layout"]) == LAYOUT_KEYS
    assert set(plan["memory"]) >= MEMORY_KEYS
    assert set(plan["step"]) >= STEP_KEYS
    assert set(plan["reasons"][0]) == {"rule", "text", "source"}


def test_plan(gpt_tune: Run) -> None:
    done = gpt_tune("plan", *PLAN, "--top", "3", "--json")
    data = done.json
    assert (done.code, data["schema"]) == (0, "gpt-tune/plan/1")
    assert {"model", "gpus", "searched", "seconds", "plans", "rejected", "rejected_count"} <= set(data)
    assert [p["rank"] for p in data["plans"]] == [1, 2, 3]
    for plan in data["plans"]:
        check_plan(plan)


def test_plan_for_people(gpt_tune: Run) -> None:
    out = gpt_tune("plan", *PLAN).out
    for words in ("why number 1", "rejected, nearest first", "how sure", "TFLOPS", "OOM risk"):
        assert words in out
    assert "\x1b" not in out


def test_plan_with_fixed_keys(gpt_tune: Run) -> None:
    done = gpt_tune("plan", *PLAN, "--fix", "tensor_parallel=1", "--fix", "tensor_parallel=2", "--json")
    assert {p["layout"]["tensor_parallel"] for p in done.json["plans"]} == {2}


def test_nothing_fits_is_a_finding(gpt_tune: Run) -> None:
    done = gpt_tune("plan", "--model", "gpt-175b", "--gpus", "8", "--gpu", "a100-40", "--json")
    assert (done.code, done.json["plans"]) == (1, [])
    assert done.json["rejected"]
    assert "Nothing fits" in gpt_tune("plan", "--model", "gpt-175b", "--gpus", "8", "--gpu", "a100-40").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "gpt-1.3b", "--gpus", "63", "--gpu", "b200"), ("56", "64")),
        (("--model", "gpt-1.3b", "--gpus", "0", "--gpu", "b200"), ("0",)),
        (("--model", "gpt-1.3b", "--gpus", "-8", "--gpu", "b200"), ("-8",)),
        (("--model", "gpt-1.3b", "--gpus", "12", "--gpu", "b200", "--gpus-per-node", "8"), ("8", "16")),
        (("--model", "gpt-1.3", "--gpus", "8", "--gpu", "b200"), ("gpt-1.3b",)),
        (("--model", "gpt-1.3b", "--gpus", "8", "--gpu", "b20"), ("b200",)),
        ((*PLAN, "--fix", "tensor_paralel=2"), ("tensor_parallel",)),
        ((*PLAN, "--fix", "tensor_parallel"), ("KEY=VALUE",)),
        ((*PLAN, "--fix", "precision=fp16", "--precision", "bf16"), ("disagree",)),
        ((*PLAN, "--fix", "global_batch_size=8", "--global-batch-size", "16"), ("disagree",)),
        ((*PLAN, "--trainer", "megatron-deepsped"), ("megatron-deepspeed",)),
        ((*PLAN, "--trainer", "megatron-deepspeed@deepspeed-x"), ("version",)),
        ((*PLAN, "--seq-length", "0"), ("sequence length",)),
        ((*PLAN, "--top", "0"), ("plans",)),
        ((*PLAN, "--partition", "dev"), ("--cluster",)),
        (("--model", "layers=4,hidden=100,heads=3", "--gpus", "8", "--gpu", "b200"), ("100",)),
    ],
)
@pytest.mark.parametrize("command", ["plan", "estimate"])
def test_bad_questions(
    gpt_tune: Run, command: str, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    if command == "estimate" and "--top" in arguments:
        pytest.skip("estimate has no --top")
    done = gpt_tune(command, *arguments, "--json")
    assert done.code == 2
    for word in words:
        assert word in done.error["message"] + done.error["hint"]


def test_estimate_of_a_legal_layout(gpt_tune: Run) -> None:
    done = gpt_tune("estimate", *PLAN, "--fix", "zero_stage=1", "--fix", "micro_batch_size=4", "--json")
    assert (done.code, done.json["legal"], done.json["problems"]) == (0, True, [])
    check_plan(done.json["plan"])
    out = gpt_tune("estimate", *PLAN, "--fix", "zero_stage=1", "--fix", "micro_batch_size=4").out
    assert "stage" in out
    assert "compute" in out


def test_estimate_of_an_illegal_layout_explains_and_exits_0(gpt_tune: Run) -> None:
    fixes = ("--fix", "zero_stage=2", "--fix", "pipeline_parallel=2")
    done = gpt_tune("estimate", *PLAN, *fixes, "--json")
    assert (done.code, done.json["legal"]) == (0, False)
    assert {"rule", "text", "fix"} <= set(done.json["problems"][0])
    assert "not legal" in gpt_tune("estimate", *PLAN, *fixes).out


# -- clusters and sites -----------------------------------------------------------------------------


def test_clusters_without_slurm(gpt_tune: Run) -> None:
    data = gpt_tune("clusters", "--json").json
    (local,) = data["clusters"]
    assert (local["name"], local["scheduler"]) == ("local", "local")
    assert "local" in gpt_tune("clusters").out
    assert gpt_tune("clusters", "nowhere", "--json").error["code"] == 2


def test_site_is_guessed_then_kept(gpt_tune: Run, home: Path) -> None:
    (guessed,) = gpt_tune("site", "--json").json["site"]
    assert (guessed["cluster"], guessed["kept"]) == ("local", False)
    done = gpt_tune(
        "site", "local", "--set", "run_root=/tmp/runs", "--set", "site.environment.kind=host", "--json"
    )
    assert (done.json["site"][0]["run_root"], done.json["site"][0]["kept"]) == ("/tmp/runs", True)
    kept = home / ".config/gpt-tune/sites/local.toml"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert gpt_tune("site", "local", "--json").json["site"][0]["kept"] is True
    assert "/tmp/runs" in gpt_tune("site").out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("run_rot=/x", "run_root"),
        ("run_root=relative", "absolute"),
        ("environment.variables.HF_TOKEN=x", "secret"),
        ("time_limit=soon", "notation"),
        ("account", "="),
    ],
)
def test_bad_site_settings_keep_nothing(gpt_tune: Run, home: Path, change: str, words: str) -> None:
    done = gpt_tune("site", "local", "--set", change, "--json")
    assert done.code == 2
    assert words in str(done.error)
    assert not (home / ".config/gpt-tune/sites/local.toml").exists()


# -- profiles ---------------------------------------------------------------------------------------


def test_profiles(gpt_tune: Run, tmp_path: Path) -> None:
    names = [p["name"] for p in gpt_tune("profiles", "--json").json["profiles"]]
    assert names == [p["name"] for p in gpt_tune("profiles", "list", "--json").json["profiles"]]
    assert "smoke" in names
    assert gpt_tune("profiles", "save", "mine", "--from", "smoke", "--set", "smoke.seconds=20").code == 0
    again = gpt_tune("profiles", "save", "mine", "--json")
    assert "already exists" in again.error["message"]
    (shown,) = gpt_tune("--json", "profiles", "show", "mine", "--set", "smoke.steps=3").json["profiles"]
    assert shown["profile"]["smoke"]["seconds"] == 20
    assert shown["origins"]["smoke.seconds"] == "profile mine"
    assert shown["origins"]["smoke.steps"] == "command line"
    text = gpt_tune("profiles", "show", "mine").out
    assert "smoke.seconds" in text
    assert "training.data" not in text
    assert "training.data" in gpt_tune("profiles", "show", "mine", "--all").out
    file = tmp_path / "one.toml"
    assert gpt_tune("profiles", "export", "mine", "--out", file).code == 0
    assert gpt_tune("profiles", "import", file, "--name", "copy").code == 0
    assert gpt_tune("profiles", "edit", "copy", "--set", "description=a copy").code == 0
    assert 'description = "a copy"' in gpt_tune("profiles", "show", "copy", "--toml").out
    assert gpt_tune("profiles", "remove", "copy", "--json").json["removed"] == "copy"
    assert gpt_tune("profiles", "show", "copy").code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "smok"), "smoke"),
        (("save", "a/b"), "name"),
        (("save", "x", "--set", "trainig.data=y"), "training.data"),
        (("save", "x", "--set", "site.environment.variables.WANDB_API_KEY=y"), "WANDB_API_KEY"),
        (("remove", "smoke"), "starter"),
        (("import", "nowhere.toml"), "nowhere.toml"),
        (("export", "nothing"), "nothing"),
    ],
)
def test_bad_profile_commands(gpt_tune: Run, arguments: tuple[str, ...], words: str) -> None:
    done = gpt_tune("profiles", *arguments, "--json")
    assert done.code == 2
    assert words in str(done.error)


# -- jobs -------------------------------------------------------------------------------------------

TINY = ("--set", "smoke.steps=3", "--set", "smoke.layers=1", "--set", "smoke.hidden=16")


def test_render_writes_and_submits_nothing(gpt_tune: Run, tmp_path: Path) -> None:
    out = tmp_path / "rendered here"
    done = gpt_tune("render", "smoke", "--out", out, *TINY, "--json")
    assert done.code == 0
    listed = {f["path"] for f in done.json["render"]}
    on_disk = {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}
    assert listed == on_disk
    assert Path(done.json["script"]).is_file()
    assert gpt_tune("jobs", "--json").json["jobs"] == []
    assert "not empty" in gpt_tune("render", "smoke", "--out", out, "--json").error["message"]
    assert gpt_tune("render", "smoke", "--out", out, "--force").code == 0
    assert "is a file" in gpt_tune("render", "smoke", "--out", done.json["script"], "--json").error["message"]


def test_render_for_a_cluster_that_is_not_here(gpt_tune: Run, tmp_path: Path) -> None:
    elsewhere = ("--set", "cluster=faraway", "--set", "resources.gpus=16")
    done = gpt_tune(
        "render", "smoke", *elsewhere, "--set", "resources.node=p6-b200", "--out", tmp_path / "a", "--json"
    )
    assert done.code == 0, done.err
    script = Path(done.json["script"]).read_text()
    assert "#SBATCH --nodes=2" in script
    assert gpt_tune("jobs", "--json").json["jobs"] == []
    done = gpt_tune("render", "smoke", *elsewhere, "--out", tmp_path / "b", "--json")
    assert (done.code, "resources.node" in done.error["hint"]) == (2, True)
    assert not (tmp_path / "b").exists()
    done = gpt_tune(
        "render", "smoke", *elsewhere, "--set", "resources.node=p6-b20", "--out", tmp_path / "b", "--json"
    )
    assert "p6-b200" in done.error["hint"]


@pytest.mark.parametrize("number", ["1025", "100000", "99999999999999999999999"])
@pytest.mark.parametrize("command", [("submit", "smoke", "--dry-run"), ("render", "smoke")])
def test_too_many_local_processes_are_refused(gpt_tune: Run, command: tuple[str, ...], number: str) -> None:
    done = gpt_tune(*command, "--set", f"resources.gpus={number}")
    assert (done.code, done.out) == (2, "")
    assert "this machine has" in done.err or "at most 18 digits" in done.err


def test_dry_run_writes_nothing(gpt_tune: Run, home: Path) -> None:
    done = gpt_tune("submit", "smoke", "--dry-run", "--json")
    assert (done.code, done.json["state"], done.json["job_id"]) == (0, "DRY_RUN", None)
    assert not Path(done.json["run_dir"]).exists()
    assert gpt_tune("jobs", "--json").json["jobs"] == []
    assert gpt_tune("submit", "smoke", "--dry-run").out.startswith("#!")


def test_the_whole_path_on_this_machine(gpt_tune: Run) -> None:
    done = gpt_tune("submit", "smoke", *TINY, "--json")
    assert done.code == 0
    data = done.json
    assert {"schema", "run_id", "cluster", "scheduler", "job_id", "job_ids", "state", "run_dir", "log_paths",
            "script"} <= set(data)  # fmt: skip
    assert (data["schema"], data["cluster"]) == ("gpt-tune/submit/1", "local")
    followed = gpt_tune("watch", data["run_id"], "--json")
    assert followed.code == 0
    events = [json.loads(line) for line in followed.out.splitlines()]
    assert {"state", "step", "log", "end"} <= {e["event"] for e in events}
    assert all(e["schema"] == "gpt-tune/watch/1" and e["run_id"] == data["run_id"] for e in events)
    assert [e["iteration"] for e in events if e["event"] == "step"][-1] == 3
    assert events[-1]["event"] == "end"
    assert events[-1]["state"] == "COMPLETED"
    (job,) = gpt_tune("jobs", "--json").json["jobs"]
    assert {"run_id", "job_id", "cluster", "name", "state", "reason", "reason_text", "nodes", "gpus", "submitted_at",
            "started_at", "ended_at", "exit_code", "log_paths", "last_iteration"} <= set(job)  # fmt: skip
    assert (job["state"], job["exit_code"], job["last_iteration"]) == ("COMPLETED", 0, 3)
    for identity in (data["run_id"], data["job_id"], data["log_paths"][0]):
        parsed = gpt_tune("parse", identity, "--json").json
        assert parsed["summary"]["steps"] == 3, identity
        assert gpt_tune("watch", "--once", identity).code == 0
    assert data["run_id"] in gpt_tune("jobs").out
    assert gpt_tune("watch", "--once").out.startswith("smoke")
    cancelled = gpt_tune("cancel", data["job_id"], "--json").json["cancel"][0]
    assert cancelled["state"] == "COMPLETED", "cancelling what has ended changes nothing"


@pytest.mark.parametrize("key", ["site.partition", "resources.partition"])
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_submit_to_a_partition_that_is_not_here(gpt_tune: Run, key: str, more: tuple[str, ...]) -> None:
    error = gpt_tune("submit", "smoke", "--set", f"{key}=nosuch", *more, "--json").error
    assert (error["code"], "'nosuch'" in error["message"], "local" in error["hint"]) == (2, True, True)
    assert gpt_tune("jobs", "--json").json["jobs"] == []


def test_watch_several_at_once(gpt_tune: Run, log: Path) -> None:
    runs = [gpt_tune("submit", "smoke", "--set", "smoke.steps=2", "--json").json for _ in range(2)]
    for run in runs:
        gpt_tune("watch", run["run_id"])
    done = gpt_tune("watch", runs[0]["run_id"], log, runs[1]["job_id"], "--once", "--json")
    ends = [e for e in map(json.loads, done.out.splitlines()) if e["event"] == "end"]
    assert done.code == 0
    assert [e["run_id"] for e in ends] == [runs[0]["run_id"], None, runs[1]["run_id"]]
    wrong = gpt_tune("watch", runs[0]["run_id"], "nosuch", "--once")
    assert (wrong.code, wrong.out, "nosuch" in wrong.err) == (2, "", True)
    assert "--once" in gpt_tune("watch", *(r["run_id"] for r in runs)).err


def test_cancel_ends_a_job_and_watch_says_it_failed(gpt_tune: Run) -> None:
    data = gpt_tune("submit", "smoke", "--set", "smoke.seconds=600", "--json").json
    assert gpt_tune("cancel", data["run_id"]).code == 0
    done = gpt_tune("watch", data["run_id"], "--json")
    assert done.code == 1
    assert json.loads(done.out.splitlines()[-1])["state"] == "CANCELLED"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("submit", "smok"), "smoke"),
        (("submit", "smoke", "--set", "resources.gpu=b20"), "b200"),
        (("submit", "smoke", "--set", "smoke.seconds=0"), "smoke.seconds"),
        (("submit", "smoke", "--set", "cluster=nowhere"), "nowhere"),
        (("submit", "smoke", "--cluster", "nowhere"), "nowhere"),
        (("submit", "smoke", "--set", "recipe=smokey"), "smoke"),
        (("submit", "gpt-1.3b-1node"), ""),
        (("submit", "smoke", "--set", "site.run_root=not/absolute"), "absolute"),
        (("submit", "smoke", "--set", "site.run_root=/proc/nowhere"), "/proc/nowhere"),
        (("render", "smok"), "smoke"),
        (("cancel", "r1"), "r1"),
        (("watch", "r1"), "r1"),
        (("watch", "nowhere.log"), "nowhere.log"),
        (("watch",), "no run"),
        (("parse", "nowhere.log"), "nowhere.log"),
        (("parse", "/"), "folder"),
        (("parse", "a.log", "4711"), "a.log"),
    ],
)
def test_bad_jobs_leave_nothing_behind(
    gpt_tune: Run, home: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = gpt_tune(*arguments, "--json")
    assert done.code == 2
    assert words in str(done.error)
    assert gpt_tune("jobs", "--json").json["jobs"] == []
    runs = home / ".local/state/gpt-tune/runs"
    assert not runs.exists() or not any(runs.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_unwritable_run_folder(gpt_tune: Run, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    done = gpt_tune("submit", "smoke", "--set", f"site.run_root={closed}", "--json")
    assert (done.code, str(closed) in str(done.error)) == (2, True)


# -- logs -------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of two steps with a hostile line between them."""
    path = tmp_path / "run.log"
    path.write_bytes(
        STEP_LINE.encode() + b"\x1b]0;owned\x07\x1b[2J evil \xff\n" + STEP_LINE.replace("1/", "2/").encode()
    )
    return path


def test_parse(gpt_tune: Run, log: Path) -> None:
    data = gpt_tune("parse", log, "--json").json
    assert {"schema", "trainer", "runs", "steps", "memory", "summary"} <= set(data)
    assert [s["iteration"] for s in data["steps"]] == [1, 2]
    header, first, *_ = gpt_tune("parse", log, "--csv").out.splitlines()
    assert header.startswith("iteration,step_time_ms,loss")
    assert first.startswith("1,712.3,")
    assert gpt_tune("parse", log, "--format", "csv").out == gpt_tune("parse", log, "--csv").out
    assert "2 steps" in gpt_tune("parse", log).out
    bench = gpt_tune("parse", log, "--format", "benchmark").json
    assert {"metadata", "summary", "steps"} <= set(bench)
    assert bench["summary"]["total_steps"] == 2


def test_parse_without_steps_is_done(gpt_tune: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty.log"
    empty.write_text("nothing here\n")
    done = gpt_tune("parse", empty, "--json")
    assert (done.code, done.json["steps"]) == (0, [])


def test_foreign_text_never_commands_the_terminal(gpt_tune: Run, log: Path) -> None:
    for arguments in (("watch", "--once", log), ("watch", "--once", "--json", log), ("parse", log)):
        done = gpt_tune(*arguments)
        assert done.code == 0
        assert "\x1b" not in done.out
        assert "\x07" not in done.out


def test_watch_once_of_a_log(gpt_tune: Run, log: Path) -> None:
    events = [json.loads(line) for line in gpt_tune("watch", "--once", "--json", log).out.splitlines()]
    steps = [e for e in events if e["event"] == "step"]
    assert {"iteration", "step_time_ms", "loss", "model_tflops", "run_id", "time"} <= set(steps[0])
    assert events[-1]["event"] == "end"


OOM = (
    "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.06 GiB. GPU 2 has a total capacity of "
    "79.25 GiB of which 6.96 GiB is free. Including non-PyTorch memory, this process has 72.27 GiB memory in use. Of "
    "the allocated memory 70.00 GiB is allocated by PyTorch, and 0.14 GiB is reserved by PyTorch but unallocated.\n"
)


def test_diagnose(gpt_tune: Run, tmp_path: Path, log: Path) -> None:
    healthy = gpt_tune("diagnose", log, "--json")
    assert (healthy.code, healthy.json["root_cause"]) == (0, None)
    bad = tmp_path / "oom.log"
    bad.write_text(STEP_LINE + OOM)
    done = gpt_tune("diagnose", bad, "--json")
    assert (done.code, done.json["schema"], done.json["status"]) == (1, "gpt-tune/diagnose/1", "failed")
    assert {"id", "severity", "line", "rank", "host", "text", "fix", "echo_of"} <= set(
        done.json["root_cause"]
    )
    assert done.json["root_cause"]["rank"] == 2
    assert "root cause" in gpt_tune("diagnose", bad).out
    assert gpt_tune("watch", "--once", bad).code == 1
    assert gpt_tune("diagnose", "nowhere.log", "--json").error["code"] == 2


def test_diagnose_a_run_that_was_cancelled(gpt_tune: Run) -> None:
    run_id = gpt_tune("submit", "smoke", "--set", "smoke.seconds=600", "--json").json["run_id"]
    gpt_tune("cancel", run_id, "--json")
    gpt_tune("watch", run_id, "--json")
    told = gpt_tune("diagnose", run_id, "--json").json
    assert (told["status"], [f["id"] for f in told["findings"]]) == ("warning", ["F77"])
    done = gpt_tune("resubmit", run_id, "--with-fix", "--json")
    assert (done.code, len(gpt_tune("jobs", "--json").json["jobs"])) == (2, 1)
