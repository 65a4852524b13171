# ruff: noqa: E501 (log lines are as long as they are)
"""Root cause before echoes, quiet on healthy logs, recovered runs, wrapped text, what the scheduler adds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpt_tune.diagnosis import Diagnoser, Diagnosis, diagnose, diagnose_json, diagnose_lines
from gpt_tune.logs.parse import LogParser
from tests.logs.test_table import line

OOM = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.06 GiB. GPU 2 has a total capacity of 79.25 GiB of which 6.96 GiB is free."
TIMEOUT = "[rank{}]:[E321 02:07:09.4 ProcessGroupNCCL.cpp:607] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
SIGTERM = "W0331 21:37:33.860000 155011 site-packages/torch/distributed/elastic/multiprocessing/api.py:897] Sending process 155026 closing signal SIGTERM"
CHILD = "E0331 21:37:34.807000 155011 site-packages/torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 155027) of binary: /opt/venv/bin/python3.11"
TIME_LIMIT = "slurmstepd: error: *** JOB 7 ON node02 CANCELLED AT 2021-05-27T21:42:11 DUE TO TIME LIMIT ***"
REMOTE = (
    "[rank5]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting."
)
XID = "NVRM: Xid (PCI:0000:0a:00): 79, GPU has fallen off the bus."
STEPS = [line(i) for i in range(1, 30)]


def root(*lines: str) -> str | None:
    found = diagnose_lines(list(lines)).root_cause
    return found.id if found is not None else None


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ((SIGTERM, CHILD, OOM), "F1"),
        ((REMOTE, TIMEOUT.format(0, 0), XID), "F47"),
        ((TIMEOUT.format(0, 0), OOM), "F1"),
        ((REMOTE, REMOTE, "srun: error: Node failure on node17"), "F74"),
        ((TIME_LIMIT, SIGTERM, REMOTE, TIMEOUT.format(1, 1)), "F72"),
        ((TIMEOUT.format(1, 1), TIME_LIMIT), "F19"),
        ((OOM, TIME_LIMIT), "F1"),
        (("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.", OOM), "F8"),
        ((CHILD, SIGTERM), "F71"),
        ((REMOTE,), "F25"),
    ],
)
def test_causes_before_echoes(lines: tuple[str, ...], cause: str) -> None:
    got = diagnose_lines([*STEPS, *lines])
    assert got.root_cause is not None
    assert got.root_cause.id == cause
    assert got.findings[0] == got.root_cause
    echoes = {f.id: f.echo_of for f in got.findings if f.id in ("F25", "F70", "F71") and f.id != cause}
    assert set(echoes.values()) <= {cause}


def test_a_limit_counts_once_for_step_and_job() -> None:
    got = diagnose_lines([*STEPS, TIME_LIMIT.replace("JOB 7", "STEP 7.0"), TIME_LIMIT])
    assert [(f.id, f.count) for f in got.findings] == [("F72", 2)]


def test_sixty_four_ranks_say_the_same() -> None:
    got = diagnose_lines([TIMEOUT.format(r, r) for r in range(64) if r != 17])
    (finding,) = got.findings
    assert finding.count == 63
    assert "rank 17 did not" in finding.text


def test_json_is_the_contract() -> None:
    data = json.loads(json.dumps(diagnose_json(diagnose_lines([*STEPS, OOM, SIGTERM]))))
    assert data["schema"] == "gpt-tune/diagnose/1"
    assert data["status"] == "failed"
    assert data["root_cause"]["id"] == "F1"
    keys = {"id", "severity", "line", "rank", "host", "text", "fix", "echo_of"}
    assert all(keys <= set(finding) for finding in data["findings"])
    assert data["root_cause"]["line"] == 30
    assert data["root_cause"]["rank"] == 2


PLACEHOLDERS = (
    [line(i).replace("loss scale: 1.0", "loss scale: -1.0") for i in range(1, 40)],
    [line(i).replace("loss scale: 1.0", "loss scale: 4294967296.0") for i in range(1, 40)],
    [line(i).replace("grad norm: 1.000", "grad norm: 0.000") for i in range(1, 40)],
    [line(i, 60_000 if i == 1 else 1500) for i in range(1, 40)],
    [
        line(i)
        .replace(" lm loss: 5.000000E+00 |", "")
        .replace("skipped iterations:   0", "skipped iterations:   1")
        if i < 17
        else line(i)
        for i in range(1, 40)
    ],
    [
        *(
            f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {2.0**i}, reducing to {2.0 ** (i - 1)}"
            for i in range(32, 15, -1)
        ),
        *STEPS,
    ],
    [
        "node01:1:1 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
        "node01:1:1 [0] NCCL INFO Using network Socket",
        *STEPS,
    ],
    ["[launch.py:315:sigkill_handler] Killing subprocess 123 is a function name", *STEPS],
    [line(i, loss=5 - i / 10) for i in range(1, 40)],
    [line(i, loss=[0.9, 2.1, 0.4, 1.7, 0.6][i % 5]) for i in range(1, 60)],
    [
        line(i).replace("grad norm: 1.000", "grad norm: inf" if i == 7 else "grad norm: 1.000")
        for i in range(1, 40)
    ],
    [*STEPS, "torch/distributed/run.py: WARNING: Setting OMP_NUM_THREADS environment variable to 1"],
    [
        "[W socket.cpp:601] [c10d] The IPv6 network addresses of (node01, 5) cannot be retrieved (gai error: -2",
        *STEPS,
    ],
    ["ModuleNotFoundError: No module named 'amp_C'", *STEPS],
    [f"{{'loss': 0.0, 'grad_norm': 0.1, 'learning_rate': 1e-06, 'epoch': {i / 10}}}" for i in range(1, 20)],
    [*STEPS, "[exiting program after receiving SIGTERM.] datetime: 2025-08-20 11:00:00 ", SIGTERM],
)


@pytest.mark.parametrize("lines", PLACEHOLDERS)
def test_never_infer_a_failure(lines: list[str]) -> None:
    got = diagnose_lines(lines)
    assert not got.alarming, [(f.id, f.severity, f.text) for f in got.findings]
    assert got.root_cause is None


@pytest.mark.parametrize(
    ("lines", "cause", "status"),
    [
        ([*STEPS, line(30).replace(" lm loss: 5.000000E+00 |", "")], "F13", "failed"),
        ([*STEPS, line(30).replace("5.000000E+00", "NAN")], "F13", "failed"),
        ([*STEPS, line(30).replace(" lm loss: 5.000000E+00 |", ""), line(31), line(32)], "F13", "warning"),
        ([line(i).replace("grad norm: 1.000", "grad norm: nan" if i > 20 else "grad norm: 1.0") for i in range(1, 30)], "F13", "failed"),
        ([*STEPS, *(line(i, loss=30.0) for i in range(30, 40))], "F18", "warning"),
        ([*STEPS, line(30, loss=30.0), *(line(i) for i in range(31, 70))], "F18", "warning"),
        ([*STEPS, *(line(i, loss=0.0) for i in range(30, 33))], "F17", "warning"),
        ([line(i).replace("loss scale: 1.0", f"loss scale: {max(1.0, 2.0 ** (10 - i))}").replace("skipped iterations:   0", "skipped iterations:   1") for i in range(1, 20)], "F15", "failed"),
        ([f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {a}, reducing to {b}" for a, b in ((4, 2), (2, 1), (1, 1), (1, 1))], "F15", "failed"),
    ],
)  # fmt: skip
def test_numbers_gone_wrong(lines: list[str], cause: str, status: str) -> None:
    got = diagnose_lines(lines)
    assert got.root_cause is not None
    assert (got.root_cause.id, got.status) == (cause, status)


def test_a_run_that_went_on_is_a_warning_at_most() -> None:
    again = [line(i, 200 + i) for i in range(20, 40)]
    got = diagnose_lines([*STEPS, OOM, "3/3 attempts left; will restart worker group", *again])
    assert (got.status, got.root_cause.id if got.root_cause else None) == ("warning", "F1")
    crashed = diagnose_lines([*STEPS, OOM, *again, "RuntimeError: No CUDA GPUs are available"])
    assert crashed.root_cause is not None
    assert (crashed.status, crashed.root_cause.id) == ("failed", "F57")


@pytest.mark.parametrize("width", [72, 80, 100, 116, 140])
@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (TIMEOUT.format(3, 3), "F19"),
        ("[rank6]:[E206 18:11:06.37 ProcessGroupNCCL.cpp:1870] [PG ID 12 Rank 4] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives. This typically indicates a hang", "F20"),
        ("AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 * 8 * 1", "F63"),
        ("RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).", "F41"),
        ("AssertionError: global batch size (96) is not divisible by micro batch size (4) times data parallel size (16)", "F64"),
    ],
)  # fmt: skip
def test_hard_wrapped_anywhere(width: int, text: str, cause: str) -> None:
    pieces = [text[i : i + width] for i in range(0, len(text), width)]
    assert root("before", *pieces, "after") == cause


def test_wrapped_at_words_in_a_box() -> None:
    lines = (
        "╭───────────────────────── Traceback (most recent call last) ─────────────────────────╮",
        '│ ❱ 891 │   │   │   f"Check batch related parameters. train_batch_si                  │',
        "╰──────────────────────────────────────────────────────────────────────────────────────╯",
        "AssertionError: Check batch related parameters. train_batch_size is not",
        "equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 *",
        "8 * 1",
    )
    got = diagnose_lines(list(lines))
    assert got.root_cause is not None
    assert got.root_cause.text == "The batch sizes do not multiply: 64 is not 4 x 8 x 1."


def test_the_elastic_summary_names_rank_and_host() -> None:
    got = diagnose_lines(
        [
            "Root Cause (first observed failure):", "[0]:", "  time      : 2025-05-22_15:43:03", "  host      : node01",
            "  rank      : 3 (local_rank: 3)", "  exitcode  : -9 (pid: 812917)", "  error_file: <N/A>",
        ]
    )  # fmt: skip
    assert got.root_cause is not None
    assert (got.root_cause.id, got.root_cause.rank, got.root_cause.host) == ("F9", 3, "node01")


def test_exceptions_name_the_last_of_a_chain() -> None:
    got = diagnose_lines(
        [
            "TypeError: got an unexpected keyword", "", "During handling of the above exception, another exception occurred:",
            "", "Traceback (most recent call last):", "RuntimeError: view size is not compatible",
        ]
    )  # fmt: skip
    assert got.root_cause is not None
    assert "view size" in got.root_cause.text
    assert got.root_cause.line == 6


@pytest.mark.parametrize(
    ("state", "status", "cause"),
    [
        ("RUNNING", "running", None),
        ("COMPLETED", "completed", None),
        ("OUT_OF_MEMORY", "failed", "F8"),
        ("TIMEOUT", "failed", "F72"),
        ("NODE_FAIL", "failed", "F74"),
        ("PREEMPTED", "warning", "F73"),
        ("CANCELLED", "warning", "F77"),
        ("FAILED", "failed", "F218"),
    ],
)
def test_what_only_the_scheduler_says(tmp_path: Path, state: str, status: str, cause: str | None) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(STEPS) + "\n")
    got = diagnose([path], state=state)
    assert (got.status, got.root_cause.id if got.root_cause else None) == (status, cause)


@pytest.mark.parametrize(
    ("code", "words"), [(139, "segmentation fault"), (1, "exit code 1"), (137, "SIGKILL")]
)
def test_a_failed_job_always_gets_a_finding(tmp_path: Path, code: int, words: str) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join([*STEPS, "loading the next shard"]) + "\n")
    got = diagnose([path], state="FAILED", exit_code=code)
    assert got.root_cause is not None
    assert (got.status, got.root_cause.id) == ("failed", "F218")
    assert words in got.root_cause.text
    assert "loading the next shard" in got.root_cause.fix
    better = diagnose_lines([*STEPS, OOM])
    assert [f.id for f in better.findings] == ["F1"]


def test_a_job_that_waits() -> None:
    def waiting(reason: str) -> Diagnosis:
        return Diagnoser().conclude(LogParser(), "PENDING", reason=reason)

    assert waiting("Priority").root_cause is None
    held = waiting("(JobHeldUser)")
    assert held.status == "pending"
    assert held.root_cause is not None
    assert held.root_cause.id == "P-JobHeldUser"


def test_several_files_of_one_job(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("\n".join(STEPS) + "\n")
    (tmp_path / "err").write_text(f"{SIGTERM}\n{OOM}\n")
    got = diagnose([tmp_path / "out", tmp_path / "err"])
    assert got.root_cause is not None
    assert (got.root_cause.id, got.root_cause.line, Path(got.root_cause.source).name) == ("F1", 2, "err")


def test_a_big_log_is_searched_whole_with_right_line_numbers(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as file:
        for i in range(1, 9001):
            file.write(f"{line(i, total=9000)}\nnode01:1:2 [0] NCCL INFO Channel 00/02 : 0 1\n")
            if i == 4500:
                file.write("[rank7]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    got = diagnose([path])
    (finding,) = got.findings
    assert (finding.id, finding.line, finding.rank, finding.severity) == ("F48", 9001, 7, "warning")


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("compile_error", "F216"),
        ("e_unfused", "F215"),
        ("segfault_139", "F217"),
        ("zero2-pipeline-assert", "F62"),
    ],
)
def test_own_runs_that_failed(name: str, cause: str) -> None:
    folder = Path(__file__).resolve().parent.parent / "data" / "logs"
    got = diagnose([folder / f"h200-{name}.log"])
    assert got.root_cause is not None
    assert (got.status, got.root_cause.id) == ("failed", cause)
    if cause == "F215":
        assert "compute_70" in got.root_cause.text
        assert got.root_cause.changes == {"layout.fixed.fusions.masked_softmax": "false"}


@pytest.mark.parametrize(
    "state", ["CANCELLED", "PREEMPTED", "TIMEOUT", "FAILED", "OUT_OF_MEMORY", "NODE_FAIL"]
)
def test_a_last_step_does_not_make_a_bad_end_completed(tmp_path: Path, state: str) -> None:
    log = tmp_path / "run.log"
    log.write_text("\n".join(line(i, total=3) for i in (1, 2, 3)) + "\n")
    assert diagnose([log], "COMPLETED").status == "completed"
    assert diagnose([log], state).status in ("failed", "warning")
