"""What other ranks say after one of them failed never hides why it failed; what is only mentioned alarms nobody."""

from __future__ import annotations

import random

import pytest

from gpt_tune.diagnosis import diagnose_lines
from gpt_tune.diagnosis.signatures import signatures
from tests.diagnosis.test_signatures import SAID
from tests.diagnosis.test_stragglers import TIMEOUT
from tests.logs.test_timer_blocks import step

STEPS = [step(i, 1000.0, total=100_000) for i in range(1, 31)]
MORE = [step(i, 1000.0, total=100_000) for i in range(31, 61)]
ECHOES = [
    "{other}: [rank{other}]:[E1130 10:10:00 ProcessGroupNCCL.cpp:1895] ncclRemoteError: A call failed possibly due to a"
    " network error or a remote process exiting prematurely.",
    "{other}: node02:1:2 [1] misc/socket.cc:69 NCCL WARN socketProgress: Connection closed by remote peer n1<45678>",
    "{other}: [rank{other}]:[E1130 10:10:00 ProcessGroupNCCL.cpp:1414] [PG ID 0 Rank {other}] Received a dump signal"
    " due to a collective timeout from rank 5 and we will try our best to dump the debug info.",
    "W1130 10:10:01 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 4242 closing signal SIGTERM",
    "slurmstepd: error: *** STEP 4711.0 ON node01 CANCELLED AT 2026-11-30T10:10:02 DUE TO TASK FAILURE ***",
    "srun: error: node01: task 3: Exited with exit code 1",
]
ROLES = {s.id: s.role for s in signatures()}
TIERS = {s.id: s.tier for s in signatures()}
# What names a cause by itself, on one rank, in the middle of a run.
CAUSES = [
    (identity, lines)
    for identity, lines in SAID
    if ROLES.get(identity) == "first"
    and TIERS[identity] in ("hardware", "host_memory", "gpu_memory", "software", "network")
    and next(s for s in signatures() if s.id == identity).severity == "error"
]


def run(lines: list[str], echoes_first: bool, seed: int) -> list[str]:
    """A run in which rank 3 says something, and the others complain of it (before its text came through, too)."""
    rng = random.Random(seed)
    ranks = [r for r in range(8) if r != 3]
    after = [f"{r}: " + TIMEOUT.format(rank=r) for r in ranks]
    after += [echo.format(other=rng.choice(ranks)) for echo in ECHOES]
    said = [f"3: {line}" for line in lines]
    return [*STEPS, *(after[:4] if echoes_first else []), *said, *(after[4:] if echoes_first else after)]


@pytest.mark.parametrize("echoes_first", [False, True])
def test_the_cause_is_found_among_its_echoes(echoes_first: bool) -> None:
    wrong = []
    for number, (identity, lines) in enumerate(CAUSES):
        if identity in ("F5", "F24", "F31"):
            continue
        got = diagnose_lines(run(lines, echoes_first, number))
        root = got.root_cause.id if got.root_cause is not None else None
        if root != identity or got.status not in ("failed", "hung"):
            wrong.append((identity, root, got.status))
    assert len(CAUSES) > 60
    assert wrong == []


@pytest.mark.parametrize(
    "line",
    [
        # Retried, or only spoken of: with and without steps behind it nothing has failed.
        "WARNING:urllib3.connectionpool:Retrying (Retry(total=4, connect=None)) after connection broken by"
        " 'ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out.\")': /api/models",
        "HTTP Error 429 thrown while requesting GET https://huggingface.co/api/models/x; Retrying in 1s [Retry 1/5].",
        "nvidia-fabricmanager[912]: 0 errors found, version 570.86.15 matches the driver",
        "UserWarning: NVIDIA B200 with CUDA capability sm_100 is not compatible with the current PyTorch installation.",
        "FutureWarning: You are using `torch.load` with `weights_only=False`; in a later release it will be flipped.",
        "wandb: WARNING Path /scratch/wandb wasn't writable, using system temp directory",
        "[12345.678901] mlx5_core 0000:1a:00.0 ib0: Link up",
        "nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 12028, Non-fatal, Link 33 egress non-posted PRIV error",
        "node01:1:2 [0] NCCL INFO NVLS multicast support is available on dev 0",
        "node01:1:2 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0.",
        "Filesystem shm mounted on /dev/shm, 512G free",
        "  num_workers ..................................... 4 (DataLoader timeout 600 seconds)",
        "TRITON_CACHE_DIR=/tmp/.triton/cache is used for compiled kernels",
        "OMP: Info #276: omp_set_nested routine deprecated, please use omp_set_max_active_levels instead.",
        "INFO: environment variable MASTER_ADDR is node01; RANK is set by torchrun",
        "tokenizers>=0.21,<0.22 is required; found tokenizers 0.21.4",
        "STRAGGLER DETECTION: all GPUs have a relative performance above the threshold",
        "INFO checkpoint weights only load took 12 s",
        "[INFO] FlashAttention is available and used",
        "run.sh: line 12:  4711 Killed                  nvidia-smi dmon > gpu.log",
        "ulimit -l: RLIMIT_MEMLOCK is unlimited",
    ],
)
@pytest.mark.parametrize("behind", [[], MORE])
def test_a_mention_is_no_failure(line: str, behind: list[str]) -> None:
    for before in ([], STEPS):
        got = diagnose_lines([*before, line, *behind])
        assert not got.alarming, [f.id for f in got.findings]
        assert [f for f in got.findings if f.severity != "info"] == []


SURVIVED = ("F276", "F298", "F299", "F300", "F301", "F303", "F307", "F310")


@pytest.mark.parametrize(("identity", "lines"), [(i, x) for i, x in SAID if i in SURVIVED])
def test_what_a_run_survives_is_a_note(identity: str, lines: list[str]) -> None:
    got = diagnose_lines([*STEPS, *lines, *MORE])
    assert not got.alarming
    assert [f.severity for f in got.findings if f.id == identity] == ["info"]
