"""The 22 faults of the seed system, on files rebuilt from its description; and their absence once mended."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpt_tune.lint.finding import Finding
from gpt_tune.lint.report import lint
from tests.lint.support import DATA

SCRIPT, PARSER, README = "pretrain_gpt_103b.sbatch", "parse_results.py", "README.md"
# Fault of the reference: what lint says about it, as (rule, file, text in the message).
FAULTS: dict[int, list[tuple[str, str, str]]] = {
    1: [("size-label", SCRIPT, "145.6B"), ("size-label", README, "145.6B"), ("size-label", PARSER, "145.6B")],
    2: [("tflops-formula", PARSER, "9.0 times too low"), ("shape-built-in", PARSER, "hidden_size=12288")],
    3: [("layout-invented", PARSER, "pp=2")],
    4: [
        ("effective-stages", SCRIPT, "06_zero2"), ("recorded-stages", "sweep_runner.sh", "ZeRO-2"),
        ("make-input", "Makefile", "jobs_done.csv"), ("layout-invented", PARSER, "tp=8"),
    ],
    5: [("unknown-variable", SCRIPT, "NCCL_BUFFERSIZE")],
    6: [
        ("override-lost", SCRIPT, "NCCL_TUNER_PLUGIN"), ("override-lost", SCRIPT, "NCCL_P2P_NET_CHUNKSIZE"),
        ("override-lost", SCRIPT, "NCCL_BUFFERSIZE"),
    ],
    7: [("sp-needs-cdmc", SCRIPT, "CUDA_DEVICE_MAX_CONNECTIONS=1")],
    8: [("data-prefix", README, "text_document_text_document"), ("enroot-no-mount", README, "/fsx")],
    9: [("log-folder", SCRIPT, "inside the job")],
    10: [("shared-file", SCRIPT, "ds_config_run.json"), ("export-twice", "sweep_runner.sh", "--export")],
    11: [("unused-file", SCRIPT, "hostfile"), ("no-trap", SCRIPT, "hostfile")],
    12: [("decay-fixed", SCRIPT, "TRAIN_ITERS")],
    13: [("host-address", SCRIPT, "hostname --ip-address")],
    14: [
        ("example-partition", README, "--partition"), ("version-drift", README, "4.44.2"),
        ("final-newline", "1.build-image.sbatch", ""), ("clone-unpinned", README, "Megatron-DeepSpeed"),
    ],
    15: [("log-name", PARSER, "sweep_"), ("sweep-unnamed", "sweep_runner_v2.sh", "--job-name")],
    16: [("sweep-confounded", "sweep_runner.sh", "04_larger_mbs, 05_pp4_zero1")],
    17: [("known-bad-version", "0.deepspeed.dockerfile", "1.47.0")],
    18: [("nan-steps-missed", PARSER, "nan iterations")],
    19: [("old-variable", SCRIPT, "TORCH_NCCL_ASYNC_ERROR_HANDLING")],
    20: [("precedence-claim", README, "command line beats")],
    21: [("no-save", SCRIPT, "--save"), ("nccl-debug-unset", SCRIPT, "NCCL_DEBUG")],
    22: [("unchecked-layout", SCRIPT, "divide the GPUs")],
}  # fmt: skip
ALSO = {
    "nccl-tree-on-efa": "sweep_runner.sh", "deepspeed-range": "0.deepspeed.dockerfile", "random-port": SCRIPT,
    "outside-mounts": SCRIPT, "ds-accumulation": SCRIPT,
}  # fmt: skip


@pytest.fixture(scope="module")
def found() -> tuple[Finding, ...]:
    return lint([str(DATA / "seed")]).findings


@pytest.mark.parametrize("fault", FAULTS)
def test_fault(fault: int, found: tuple[Finding, ...]) -> None:
    for rule, file, words in FAULTS[fault]:
        assert any(f.rule == rule and f.file.endswith(f"/{file}") and words in f.message for f in found), (
            rule,
            words,
        )


@pytest.mark.parametrize("rule", ALSO)
def test_the_rest_of_the_list(rule: str, found: tuple[Finding, ...]) -> None:
    assert any(f.rule == rule and f.file.endswith(ALSO[rule]) for f in found)


def replace(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change


# One change of one file that mends a fault, and the rule that must then be silent about that file.
MENDED: list[tuple[str, str, str, str]] = [
    ("size-label", "gpt/slurm/pretrain_gpt_103b.sbatch", "NUM_LAYERS:=80", "NUM_LAYERS:=57"),
    ("tflops-formula", "gpt/parse_results.py", "= 8 * batch", "= 72 * batch"),
    ("unknown-variable", "gpt/slurm/pretrain_gpt_103b.sbatch", "NCCL_BUFFERSIZE=8388608", "NCCL_BUFFSIZE=8388608"),
    ("sp-needs-cdmc", "gpt/slurm/pretrain_gpt_103b.sbatch", "export FI_PROVIDER",
    "export CUDA_DEVICE_MAX_CONNECTIONS=1\nexport FI_PROVIDER"),
    ("data-prefix", "README.md", "--output-prefix BookCorpusDataset_text_document",
    "--output-prefix BookCorpusDataset"),
    ("enroot-no-mount", "README.md", "enroot start --rw", "enroot start --mount /fsx --rw"),
    ("shared-file", "gpt/slurm/pretrain_gpt_103b.sbatch", "ds_config_run.json", "ds_config_$SLURM_JOB_ID.json"),
    ("export-twice", "sweep_runner.sh", 'cmd+=" --export=ALL,${given},${extra}"', 'given+=",${extra}"'),
    ("decay-fixed", "gpt/slurm/pretrain_gpt_103b.sbatch", "--lr-decay-iters 50", '--lr-decay-iters "$TRAIN_ITERS"'),
    ("host-address", "gpt/slurm/pretrain_gpt_103b.sbatch", "hostname --ip-address",
    'scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1'),
    ("example-partition", "README.md", "sbatch --nodes=8", "sbatch --partition=dev --nodes=8"),
    ("version-drift", "README.md", "4.44.2", "4.52.0"),
    ("sweep-confounded", "sweep_runner.sh", "128", "64"),
    ("known-bad-version", "0.deepspeed.dockerfile", "1.47.0", "1.49.0"),
    ("nan-steps-missed", "gpt/parse_results.py", "WARMUP = 5", 'WARMUP = 5\nNAN = re.compile(r"nan iterations: (.*)")'),
    ("old-variable", "gpt/slurm/pretrain_gpt_103b.sbatch", "NCCL_ASYNC_ERROR", "TORCH_NCCL_ASYNC_ERROR"),
    ("precedence-claim", "README.md", "`#SBATCH` directives override the command line",
    "the command line overrides `#SBATCH` lines"),
    ("no-save", "gpt/slurm/pretrain_gpt_103b.sbatch", "--data-impl mmap",
    "--data-impl mmap --save /fsx/ckpt --save-interval 500"),
    ("nccl-debug-unset", "gpt/slurm/pretrain_gpt_103b.sbatch", "export FI_PROVIDER",
    "export NCCL_DEBUG=INFO\nexport FI_PROVIDER"),
    ("unchecked-layout", "gpt/slurm/pretrain_gpt_103b.sbatch", "mkdir -p configs",
    "(( GLOBAL_BATCH_SIZE % MICRO_BATCH_SIZE == 0 )) || exit 2\nmkdir -p configs"),
    ("deepspeed-range", "0.deepspeed.dockerfile", "deepspeed>=0.16,<1.0", "deepspeed==0.16.4"),
    ("make-input", "Makefile", "jobs_done.csv", "sweep_jobs.csv"),
    ("unused-file", "gpt/slurm/pretrain_gpt_103b.sbatch", "--distributed-backend nccl",
    '--distributed-backend nccl --hostfile "$HOSTFILE"'),
    ("no-trap", "gpt/slurm/pretrain_gpt_103b.sbatch", "MODEL_ARGS=(", "trap 'rm -f \"$HOSTFILE\"' EXIT\nMODEL_ARGS=("),
    ("recorded-stages", "sweep_runner.sh", "submit 06_zero2      8 2 2", "submit 06_zero2      8 1 2"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "file", "old", "new"), MENDED, ids=[m[0] for m in MENDED])
def test_a_mended_fault_is_found_no_more(rule: str, file: str, old: str, new: str, tmp_path: Path) -> None:
    folder = tmp_path / "case"
    shutil.copytree(DATA / "seed", folder)
    path = folder / file
    assert any(f.rule == rule and f.file == str(path) for f in lint([str(folder)]).findings)
    path.write_text(replace(old, new)(path.read_text()))
    assert [f.message for f in lint([str(folder)]).findings if f.rule == rule and f.file == str(path)] == []


def test_one_script_alone_is_judged_by_the_readme_beside_it() -> None:
    only = lint([str(DATA / "seed" / "gpt" / "slurm" / SCRIPT)])
    assert [Path(f).name for f in only.files] == [SCRIPT]
    assert {"size-label", "unknown-variable", "sp-needs-cdmc"} <= {f.rule for f in only.findings}
    readme = [f for f in only.findings if f.file.endswith("README.md")]
    assert {f.rule for f in readme} >= {"data-prefix", "example-partition"}
    assert not {f.rule for f in readme} & {"clone-unpinned", "size-label"}
