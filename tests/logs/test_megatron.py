"""Step lines of the Megatron family, over its versions, its branches and the damage lines suffer."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gpt_tune.logs.clean import split_lines
from gpt_tune.logs.parse import LogParser, step_json
from gpt_tune.logs.types import Step

TAIL = "number of skipped iterations:   0 | number of nan iterations:   0 |"
V1 = " iteration       10/    1000 | elapsed time per iteration (ms): 3171.3 | learning rate: 1.000E-04 |"
V2 = (
    " iteration       20/    1000 | consumed samples:           80 | elapsed time per iteration (ms): 1572.7 |"
    " learning rate: 3.750E-05 | global batch size:     4 | lm loss: 1.210588E+01 | loss scale: 32768.0 |"
)
CORE_16 = (
    " [2026-01-20 08:00:01.123456] iteration        7/     100 | consumed samples:          896 |"
    " skipped samples:           16 | elapsed time per iteration (ms): 5408.3 |"
    " throughput per GPU (TFLOP/s/GPU): 241.5 | energy per GPU (J/iter/GPU): 3000.1 | power per GPU (W/GPU): 550.2 |"
    " learning rate: 1.400000E-05 | global batch size:   128 | lm loss: 1.811991E+00 | z_loss: 3.0E-03 |"
    f" loss scale: 1.0 | grad norm: 1.480 | num zeros: 0 | params norm: 100.100 | {TAIL}"
)
MDS = (
    " iteration      199/     600 | consumed samples:        50944 | consumed tokens:    208666624 |"
    " elapsed time per iteration (ms): 14288.1 | learning rate: 2.400E-04 | global batch size:   768 |"
    " lm loss: 5.908000E+00 | loss scale: 8192.0 | grad norm: 1.250 | actual seqlen:  4096 |"
    f" {TAIL} samples per second: 53.700 | tokens per gpu per second (tgs): 1146.700 | TFLOPs: 69.85 |"
)
NEOX = (
    " samples/sec: 1.698 | iteration        1/   55000 | elapsed time per iteration (ms): 18851.2 |"
    " learning rate: 1.212E-09 | approx flops per GPU: {flops} | lm_loss: 2.301109E+00 |"
    f" {TAIL}"
)


def read(*lines: str) -> list[Step]:
    parser = LogParser()
    clean, _ = split_lines("\n".join(lines).encode())
    parser.feed(clean)
    parser.finish()
    return list(parser.best.steps())


def one(*lines: str) -> Step:
    steps = read(*lines)
    assert len(steps) == 1, steps
    return steps[0]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            V1 + " lm loss: 1.210588E+01 | loss scale: 8388608.0 |",
            {
                "step_time_ms": 3171.3,
                "loss": 12.10588,
                "loss_scale": 8388608.0,
                "consumed_samples": None,
                "skipped": None,
            },
        ),
        (V1 + " lm loss: 1.210588E+01 |", {"loss": 12.10588, "loss_scale": None}),
        (
            V2 + f" {TAIL}",
            {"loss": 12.10588, "global_batch_size": 4, "grad_norm": None, "skipped": 0, "nan": 0},
        ),
        (V2 + f" grad norm: 2.500 | num zeros: 0.0 | params norm: 9.000 | {TAIL}", {"grad_norm": 2.5}),
        (
            CORE_16,
            {
                "step_time_ms": 5408.3,
                "loss": 1.811991,
                "logged_tflops": 241.5,
                "logged_tflops_kind": "model",
                "consumed_samples": 896,
                "grad_norm": 1.48,
            },
        ),
        (CORE_16 + " max_load: 3.10 | load_balance: 1.02 |", {"loss": 1.811991}),
        (CORE_16.replace(" learning rate: 1.400000E-05 |", ""), {"learning_rate": None, "loss": 1.811991}),
        (
            CORE_16.replace(" learning rate", " decoupled learning rate: 1.0E-03 | learning rate"),
            {"learning_rate": 1.4e-05},
        ),
        (
            MDS,
            {
                "logged_tflops": 69.85,
                "logged_tflops_kind": "hardware",
                "tokens_per_second_per_gpu": 1146.7,
                "samples_per_second": 53.7,
            },
        ),
        (
            MDS.replace(
                "actual seqlen:",
                "curriculum seqlen:   512 | random ltd reserved length:   128 | actual seqlen:",
            ),
            {"loss": 5.908, "grad_norm": 1.25},
        ),
        (
            MDS.replace("TFLOPs: 69.85 |", "TFLOPs: 69.85 | params(B): 1.30 | moe params(B): 5.20|"),
            {"logged_tflops": 69.85},
        ),
        (MDS.replace("iteration (ms): 14288.1", "iteration (s): 14.29"), {"step_time_ms": 14290.0}),
        (
            NEOX.format(flops="5.7TFLOPS"),
            {
                "logged_tflops": 5.7,
                "samples_per_second": 1.698,
                "loss": 2.301109,
                "logged_tflops_kind": "hardware",
            },
        ),
        (NEOX.format(flops="912.6GFLOPS"), {"logged_tflops": 0.9126}),
        (
            NEOX.format(flops="1.1PFLOPS | MFU: 31.20% | HFU: 40.00%"),
            {"logged_tflops": 1100.0, "loss": 2.301109},
        ),
        (V2.replace("1.210588E+01", "INF") + f" {TAIL}", {"loss": math.inf}),
        (
            V2.replace("1572.7", "1572,7").replace("1.210588E+01", "1,210588E+01") + f" {TAIL}",
            {"step_time_ms": 1572.7, "loss": 12.10588},
        ),
        (
            V2.replace("loss scale: 32768.0", "loss scale: -1.0 | grad norm: 0.000") + f" {TAIL}",
            {"loss_scale": -1.0, "grad_norm": 0.0},
        ),
    ],
)
def test_versions(line: str, wanted: dict[str, Any]) -> None:
    step = one(line)
    assert {name: getattr(step, name) for name in wanted} == wanted


@pytest.mark.parametrize("key", ["lm loss", "lm-loss", "lm_loss", "loss", "total loss", "my own loss", "nll"])
def test_any_name_of_the_loss(key: str) -> None:
    assert one(V2.replace("lm loss", key) + f" {TAIL}").loss == 12.10588


def test_the_main_loss_wins_over_auxiliary_ones() -> None:
    line = V2.replace(" lm loss", " load_balancing_loss: 1.000E+00 | moe loss: 2.0E-01 | lm loss")
    assert one(f"{line} {TAIL}").loss == 12.10588


@pytest.mark.parametrize(
    "auxiliary", ["", " load_balancing_loss: 1.012141E+00 |", " mtp_1 loss: 3.000000E+00 |"]
)
def test_a_loss_that_vanished_is_nan(auxiliary: str) -> None:
    line = V2.replace(" lm loss: 1.210588E+01 |", auxiliary)
    loss = one(f"{line} {TAIL}").loss
    assert loss is not None
    assert math.isnan(loss)
    assert step_json(one(f"{line} {TAIL}"))["loss"] is None


@pytest.mark.parametrize("lost", [" lm loss: 1.210588E+01 |", ""])
def test_a_skipped_interval_has_no_loss(lost: str) -> None:
    line = V2.replace(" lm loss: 1.210588E+01 |", "" if lost else " lm loss: 0.000000E+00 |")
    step = one(f"{line} {TAIL.replace('skipped iterations:   0', 'skipped iterations:  10')}")
    assert step.loss is None
    assert step.skipped == 10


def test_tflops_on_a_line_of_their_own() -> None:
    cut = MDS.replace(" TFLOPs: 69.85 |", "")
    assert one(cut, " TeraFLOPs: 70.25 | params(B): 1.30 | moe params(B): 5.20|").logged_tflops == 70.25
    effective = "Effective Tera Flops per GPU: 41.31 and total parameters 52.005 B"
    steps = read(V2 + f" {TAIL}", "time (ms) | forward: 1.0", f"0: {effective}", "other")
    assert [(s.iteration, s.logged_tflops, s.logged_tflops_kind) for s in steps] == [(20, 41.31, "hardware")]


def test_validation_and_timers_are_no_steps() -> None:
    assert read(
        " validation loss at iteration 1000 | lm loss value: 3.801000E+00 | lm loss PPL: 4.474590E+01 | ",
        "-" * 80,
        "time (ms) | forward-compute: 264.79 | optimizer: 82.95",
        "    forward-compute ................................: (264.79, 270.01)",
    ) == []  # fmt: skip


PREFIXES = (
    "", "1: ", " 7: ", "00: ", "P0 3: ", "[default7]:", "[rank0]:", "[rank0]:[rank0]:", "node01: ", "10.0.0.35: ",
    "[1,31]<stdout>:", "(pretraining, pid=4112) ", "(Worker pid=123, ip=10.0.0.2) ", "jobname/0 ", "[80746] ",
    "2023-09-15T05:12:40.917701119Z ", "18:11:06.680 ", "ining-demo/0 [default0]:", "3: [rank0]:[default1]:",
    "\x1b[32m", "  | 2025-05-16T16:39:55.210-07:00 ",
)  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("line", [V2 + f" {TAIL}", MDS, CORE_16])
def test_prefixes(prefix: str, line: str) -> None:
    assert step_json(one(prefix + line)) == step_json(one(line))


@pytest.mark.parametrize("ending", ["\r", "\r\n", " ", "\x00", "\x1b[0m"])
def test_line_endings(ending: str) -> None:
    assert step_json(one(MDS + ending)) == step_json(one(MDS))


@pytest.mark.parametrize("width", [60, 80, 100, 116, 132, 200])
@pytest.mark.parametrize("line", [MDS, CORE_16, V2 + f" {TAIL}"])
def test_hard_wrapped(width: int, line: str) -> None:
    pieces = [line[i : i + width] for i in range(0, len(line), width)]
    steps = read(*pieces, "something else")
    assert [step_json(s) for s in steps] == [step_json(one(line))]


@pytest.mark.parametrize("cut", range(60, len(MDS) - 2, 7))
def test_cut_by_srun_at_any_byte(cut: int) -> None:
    """srun labels both pieces of a partial write; other ranks may write between them."""
    (step,) = read(f"63: {MDS[:cut]}", "12: node03:1:1 [0] NCCL INFO noise", f"63: {MDS[cut:]}")
    whole = step_json(one(MDS))
    if MDS[:cut].rstrip().endswith("|") and "lm loss" in MDS[:cut]:
        # Nothing tells that more belongs to it; what is there is right.
        whole = {k: v if getattr(step, k) is not None else None for k, v in whole.items()}
    assert step_json(step) == whole


@pytest.mark.parametrize("cut", range(0, len(MDS), 11))
def test_unfinished_last_line_gives_no_wrong_number(cut: int) -> None:
    whole = step_json(one(MDS))
    for step in read(MDS[:cut]):
        for name, value in step_json(step).items():
            assert value is None or value == whole[name]


def test_two_records_on_one_line() -> None:
    second = MDS.replace("199/", "200/").replace("5.908", "5.906")
    assert [(s.iteration, s.loss) for s in read(MDS + second)] == [(199, 5.908), (200, 5.906)]
    assert len(read(MDS + MDS)) == 1


def test_a_record_inside_another_never_mixes() -> None:
    outer = MDS.replace("199/", "300/").replace("5.908", "9.999")
    steps = read(outer[:90] + MDS + outer[90:])
    assert {s.iteration for s in steps} <= {199, 300}
    inner = next(s for s in steps if s.iteration == 199)
    assert inner.loss == 5.908


def test_another_ranks_memory_inside() -> None:
    intruder = (
        "[Rank 9] (after 20 iterations) memory (MB) | allocated: 17694.361328125 | max allocated: 20044.5126953125 |"
        " reserved: 24118.0 | max reserved: 24118.0"
    )
    for cut in (40, 70, 100, 200):
        steps = read(MDS[:cut] + intruder, MDS[cut:])
        assert [step_json(s) for s in steps] in ([], [step_json(one(MDS))])


def test_an_engine_and_a_trainer_print_one_step() -> None:
    parser = LogParser()
    for text in (
        "0: steps: 199 loss: 5.9080 iter time (s): 14.288 samples/sec: 53.751",
        "0: [2024-03-08 15:27:15,063] [INFO] [logging.py:96:log_dist] [Rank 0] step=199, skipped=4, lr=[0.00024],"
        " mom=[(0.9, 0.999)]",
        f"63: {MDS}",
    ):
        parser.feed([text])
    (step,) = parser.best.steps()
    assert (step.loss, step.step_time_ms, step.samples_per_second) == (5.908, 14288.1, 53.7)
    assert parser.trainer == "megatron-deepspeed"


def test_cumulative_skips_become_those_of_the_interval() -> None:
    line = "[Rank 0] step={}, skipped={}, lr=[9.65e-07], mom=[(0.9, 0.95)]"
    steps = read(line.format(0, 0), line.format(10, 6), line.format(20, 6), line.format(30, 8))
    assert [(s.iteration, s.skipped) for s in steps] == [(10, 6), (20, 0), (30, 2)]
    assert read(line.format(500, 6))[0].skipped is None


def test_model_tflops_from_the_argument_dump() -> None:
    dump = [
        "------------------------ arguments ------------------------",
        "  global_batch_size ............................... 768",
        "  hidden_size ..................................... 2048",
        "  num_attention_heads ............................. 16",
        "  num_layers ...................................... 24",
        "  seq_length ...................................... 4096",
        "  vocab_size ...................................... 50257",
        "  world_size ...................................... 192",
        "-------------------- end of arguments ---------------------",
    ]
    parser = LogParser()
    parser.feed([*dump, MDS])
    (step,) = parser.best.steps()
    assert parser.facts.gpus == 192
    assert parser.facts.shape is not None
    assert step.model_tflops is not None
    tokens = 768 * 4096
    # Six FLOPs a parameter and token, and attention on top.
    assert step.model_tflops > 6 * 1.2e9 * tokens / 14.2881 / 192 / 1e12
    assert step.logged_tflops_kind == "hardware"


def test_the_trainers_figure_is_named_wrong_for_grouped_queries() -> None:
    values = {
        "num_layers": 24,
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "world_size": 8,
    }
    dump = [f"  {name} ..................... {value}" for name, value in values.items()]
    parser = LogParser()
    parser.feed([*dump, MDS])
    assert next(iter(parser.best.steps())).logged_tflops_kind == "gqa_wrong"


def test_memory_reports() -> None:
    line = (
        "[Rank {}] (after 20 iterations) memory (MB) | allocated: 1024.0 | max allocated: 2048.0 |"
        " reserved: 3072.0 | max reserved: 4096.0"
    )
    newer = line.format(3).replace("1024.0", "1536.00") + " | total device memory used: 9.00"
    parser = LogParser()
    parser.feed([line.format(3) + line.format(5), newer])
    found = {
        m.rank: (m.allocated_gib, m.max_allocated_gib, m.reserved_gib, m.max_reserved_gib)
        for m in parser.memory
    }
    assert found == {5: (1.0, 2.0, 3.0, 4.0), 3: (1.5, 2.0, 3.0, 4.0)}
