"""What every job script does, seen on the smoke recipe: marks, exit codes, signals, ranks."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import recipes
from gpt_tune.errors import UserError
from gpt_tune.profiles.schema import Profile, Smoke
from tests.recipes import stubs
from tests.recipes.specs import job, put, with_environment

TINY = Smoke(steps=4, layers=1, hidden=16, heads=2, seq_length=16, micro_batch_size=2)


def smoke_script(run_dir: Path, smoke: Smoke = TINY, **changes: Any) -> Path:
    spec = job(run_dir, Profile(name="try out", recipe="smoke", smoke=smoke), **changes)
    return put(recipes.render(spec), run_dir)


def run(script: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
    return subprocess.run(
        ["bash", str(script)],
        env={**clean, "PYTHON": sys.executable, **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def wait_for(what: Callable[[], bool], words: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"never: {words}"
        time.sleep(0.05)


def alive(group: int) -> bool:
    """Whether a process group still has members."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "runs of o'brien #1" / "r1"


def test_a_job_leaves_its_marks(run_dir: Path) -> None:
    done = run(smoke_script(run_dir), GPT_TUNE_JOB_ID="local-7")
    assert done.returncode == 0, done.stderr
    started = [json.loads(line) for line in (run_dir / "started").read_text().splitlines()]
    assert [(s["token"], s["job_id"]) for s in started] == [("tok-1234", "local-7")]
    assert started[0]["time"].endswith("Z")
    assert (run_dir / "exit_code").read_text() == "0\n"
    assert not list(run_dir.glob(".exit_code*"))
    assert not list((run_dir / "state").iterdir())
    assert " iteration        4/       4 |" in done.stdout


def test_a_second_start_adds_a_mark_and_a_new_exit_code(run_dir: Path) -> None:
    script = smoke_script(run_dir)
    run(script, GPT_TUNE_JOB_ID="local-7")
    (run_dir / "exit_code").write_text("9\n")
    done = run(script, GPT_TUNE_JOB_ID="local-8")
    ids = [json.loads(line)["job_id"] for line in (run_dir / "started").read_text().splitlines()]
    assert ids == ["local-7", "local-8"]
    assert (run_dir / "exit_code").read_text() == "0\n"
    assert "all 4 iterations are done already" in done.stdout


def test_every_rank_starts_and_ends_with_rank_0(run_dir: Path) -> None:
    done = run(smoke_script(run_dir, gpus=3, gpus_per_node=3))
    assert done.returncode == 0
    for rank in range(3):
        assert f"rank {rank} of 3 on " in done.stdout


@pytest.mark.parametrize(
    "ranks", ["1025", "1000000", "9" * 23, "0", "-1", "07", "1e3", "two", "x[$(touch hacked)]"]
)
def test_one_machine_refuses_a_slip_in_the_number_of_ranks(run_dir: Path, ranks: str) -> None:
    done = run(smoke_script(run_dir), RANKS=ranks)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"RANKS is '{ranks}'; this machine starts 1 to " in line
    assert "rank 0" not in done.stdout
    assert (run_dir / "exit_code").read_text() == "2\n"
    assert not (run_dir / "hacked").exists()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT])
def test_a_warning_or_a_cancel_saves_and_ends_every_rank(run_dir: Path, number: signal.Signals) -> None:
    long = Smoke(steps=100_000, layers=1, hidden=16, heads=2, seq_length=16, micro_batch_size=2)
    script = smoke_script(run_dir, long, gpus=2, gpus_per_node=2)
    log = run_dir / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            ["bash", str(script)],
            env={**os.environ, "PYTHON": sys.executable},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_for(
            lambda: b" iteration " in log.read_bytes() and log.read_bytes().count(b"of 2 on") == 2, "a step"
        )
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    text = log.read_text()
    assert f"received {number.name}, telling the trainer" in text
    assert "exiting program after receiving SIGTERM" in text
    assert (run_dir / "exit_code").read_text() == "0\n"
    assert (run_dir / "checkpoints" / "latest_checkpointed_iteration.txt").exists()
    wait_for(lambda: not alive(process.pid), "the end of all its processes")


def test_a_failed_rank_stops_the_others_and_its_code_counts(tmp_path: Path, run_dir: Path) -> None:
    script = smoke_script(run_dir, gpus=3, gpus_per_node=3)
    program = tmp_path / "trainer"
    program.write_text("#!/bin/bash\n[[ $1 != -c ]] || exit 0\n[[ $RANK != 2 ]] || exit 41\nexec sleep 600\n")
    program.chmod(0o755)
    begin = time.monotonic()
    done = run(script, PYTHON=str(program))
    assert done.returncode == 41
    assert time.monotonic() - begin < 60
    assert (run_dir / "exit_code").read_text() == "41\n"


def test_without_any_numpy_the_code_says_so(tmp_path: Path, run_dir: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/bash\nexec {shlex.quote(sys.executable)} -S -I "$@"\n')
    bare.chmod(0o755)
    done = run(smoke_script(run_dir), PYTHON=str(bare))
    assert done.returncode == 69
    assert "NumPy is not installed for" in done.stdout


def test_a_missing_python_is_one_sentence(run_dir: Path) -> None:
    done = run(smoke_script(run_dir), PYTHON="/nowhere/python3")
    assert done.returncode == 69
    assert done.stderr.strip().endswith(
        "/nowhere/python3 is missing or older than 3.8; set PYTHON to a newer one that has NumPy."
    )


def test_the_interpreter_with_numpy_is_found_by_itself(tmp_path: Path, run_dir: Path) -> None:
    script = smoke_script(run_dir)
    without = tmp_path / "bin"
    without.mkdir()
    (without / "python3").write_text(f'#!/bin/bash\nexec {shlex.quote(sys.executable)} -S -I "$@"\n')
    (without / "python3").chmod(0o755)
    done = run(script, PYTHON="", PATH=f"{without}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stdout + done.stderr  # falls back to the one gpt-tune runs on


def test_numbers_can_be_overridden(run_dir: Path) -> None:
    done = run(smoke_script(run_dir), TRAIN_ITERS="2", HIDDEN_SIZE="32", NUM_LAYERS="2")
    assert " iteration        2/       2 |" in done.stdout
    assert "  hidden_size ..................................... 32" in done.stdout


def test_a_bad_override_is_refused_by_the_trainer_before_it_starts(run_dir: Path) -> None:
    done = run(smoke_script(run_dir), HIDDEN_SIZE="30", NUM_HEADS="4")
    assert done.returncode == 2
    assert "--hidden 30 is not a multiple of --heads 4" in done.stderr


def test_slurm_and_one_machine_differ_in_the_launch_only(tmp_path: Path, run_dir: Path) -> None:
    script = smoke_script(run_dir, gpus=16, gpus_per_node=8, nodes=2)
    inside = stubs.run(script, tmp_path / "a", slurm=True)
    outside = stubs.run(script, tmp_path / "b", RANKS="2")
    assert (inside.code, outside.code) == (0, 0), inside.output + outside.output
    (options,) = inside.calls("srun")
    assert options[:2] == ["--kill-on-bad-exit=1", "--distribution=block"]

    def command(outcome: stubs.Outcome) -> list[str]:
        words = next(s for s in outcome.ranks["0"] if "-c" not in s.arguments).arguments
        return [w for w in words if "/state/" not in w]

    assert command(inside) == command(outside)
    env = next(s for s in inside.ranks["0"] if "-c" not in s.arguments).environment
    assert (env["WORLD_SIZE"], env["MASTER_ADDR"], env["MASTER_PORT"]) == ("16", "node1", "24711")
    env = next(s for s in outside.ranks["1"] if "-c" not in s.arguments).environment
    assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"], env["MASTER_ADDR"]) == (
        "1",
        "1",
        "2",
        "127.0.0.1",
    )


def test_a_task_bound_to_one_gpu_is_its_device_0(tmp_path: Path, run_dir: Path) -> None:
    script = smoke_script(run_dir, gpus=16, gpus_per_node=8, nodes=2)
    rank = tmp_path / "rank"
    rank.write_text('#!/bin/bash\necho "$RANK $LOCAL_RANK"\n')
    rank.chmod(0o755)
    for visible, local in (("3", "0"), ("0,1,2,3,4,5,6,7", "5"), ("", "5")):
        done = subprocess.run(
            ["bash", str(script.parent / "rank.sh"), str(rank)],
            env={**os.environ, "GPT_TUNE_LAUNCH": "srun", "SLURM_PROCID": "13", "SLURM_LOCALID": "5",
                 "SLURM_NTASKS": "16", "CUDA_VISIBLE_DEVICES": visible},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout == f"13 {local}\n"


@pytest.mark.parametrize(
    ("smoke", "words"),
    [
        (Smoke(hidden=65, heads=4), "smoke.hidden 65 is not a multiple of smoke.heads 4; 64 would be."),
        (Smoke(layers=0), "smoke.layers is 0; it must be at least 1."),
        (Smoke(seconds=0), "smoke.seconds is 0"),
        (Smoke(steps=0), "smoke.steps is 0"),
        (Smoke(seconds=10**9), "at most 86400"),
    ],
)
def test_choices_that_cannot_run_are_refused(run_dir: Path, smoke: Smoke, words: str) -> None:
    profile = Profile(recipe="smoke", smoke=smoke)
    assert any(words in p for p in recipes.get("smoke").problems(profile))
    with pytest.raises(UserError):
        recipes.render(job(run_dir, profile))


def test_the_prediction_says_what_it_is(run_dir: Path) -> None:
    spec = job(run_dir, Profile(recipe="smoke", smoke=TINY))
    prediction = recipes.render(spec).prediction
    assert prediction.step_seconds is not None
    assert prediction.step_low is not None
    assert prediction.step_high is not None
    assert prediction.step_low < prediction.step_seconds < prediction.step_high
    assert prediction.total_steps == 4
    assert prediction.tokens_per_step == 32
    assert "timed on this machine" in prediction.source


def test_unknown_recipes_name_the_nearest(run_dir: Path) -> None:
    with pytest.raises(UserError, match="smok") as caught:
        recipes.get("smok")
    assert "'smoke'" in caught.value.hint
    assert recipes.names() == [
        "megatron-deepspeed", "megatron-lm", "llama2-finetune", "qlora", "acs", "smoke", "custom",
    ]  # fmt: skip
    assert [n for n in recipes.names() if recipes.planned(n)] == [
        "megatron-deepspeed", "megatron-lm", "llama2-finetune", "qlora",
    ]  # fmt: skip
    assert [n for n in recipes.names() if recipes.plan_optional(n)] == ["qlora"]


def test_an_environment_variable_the_user_asks_for_wins(tmp_path: Path, run_dir: Path) -> None:
    spec = job(run_dir, Profile(recipe="smoke", smoke=TINY), gpus=16, gpus_per_node=8, nodes=2)
    spec = with_environment(spec, kind="host", variables={"NCCL_SOCKET_IFNAME": "eth0", "MINE": "a b $HOME"})
    outcome = stubs.run(put(recipes.render(spec), run_dir), tmp_path / "x", slurm=True, MINE="theirs")
    env = next(s for s in outcome.ranks["0"] if "-c" not in s.arguments).environment
    assert env["NCCL_SOCKET_IFNAME"] == "eth0"
    assert env["MINE"] == "a b $HOME"
