"""The other trainers' lines, after the rules of their sources rather than after examples."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gpt_tune.logs.clean import split_lines
from gpt_tune.logs.parser import LogParser
from gpt_tune.logs.types import Step
from gpt_tune.models import catalogue
from gpt_tune.models.flops import model_flops


def parse(text: str) -> LogParser:
    parser = LogParser()
    lines, _ = split_lines(text.encode())
    for line in lines:  # one at a time, as they come while a job runs
        parser.feed([line])
    parser.finish()
    return parser


def steps_of(text: str) -> list[Step]:
    return list(parse(text).best.steps())


def rows(text: str, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(step, name) for name in names) for step in steps_of(text)]


def bar(now: int, total: int, what: str = "") -> str:
    return f"\r{what} {100 * now // total:2d}%|███       | {now}/{total} [00:10<01:00,  2.80s/it]"


def test_huggingface_dicts_get_the_bars_step() -> None:
    text = bar(9, 100) + bar(10, 100)
    text += "\n{'loss': 2.0491, 'grad_norm': 1.41, 'learning_rate': 5e-05, 'epoch': 0.28}\n"
    text += (
        bar(10, 100)
        + bar(19, 100)
        + "\n{'loss': 1.5, 'learning_rate': 4e-05, 'epoch': 0.5}\n"
        + bar(24, 100)
        + "\n"
    )
    found = {s.iteration: s.loss for s in steps_of(text)}
    assert found == {9: None, 10: 2.0491, 19: None, 20: 1.5, 24: None}
    assert all(s.step_time_ms is None for s in steps_of(text))  # a bar's rate is a moving average


def test_huggingface_quoted_figures_and_nan() -> None:
    text = "{'loss': '1.873', 'grad_norm': '2.41', 'learning_rate': '1.8e-05', 'epoch': '0.02'}\n"
    text += "{'loss': nan, 'grad_norm': inf, 'learning_rate': 1e-05, 'epoch': 0.06}\n"
    text += "{'eval_loss': 1.0, 'eval_runtime': 12.1, 'epoch': 0.06}\n"
    text += "{'train_runtime': 10.0, 'train_samples_per_second': 1.0, 'train_loss': 1.2, 'epoch': 1.0}\n"
    first, second = steps_of(text)
    assert (first.iteration, first.loss, first.grad_norm, first.learning_rate) == (1, 1.873, 2.41, 1.8e-05)
    assert second.loss is not None
    assert math.isnan(second.loss)
    assert parse(text).events[-1].kind == "ended"


def test_other_bars_are_no_steps() -> None:
    text = bar(2, 4, "Loading checkpoint shards:") + "\n" + bar(1, 100) + bar(2, 100) + "\n"
    text += bar(3, 7) + "\n"  # an evaluation of 7 batches
    text += "Map: 100%|██████████| 1000/1000 [00:01<00:00, 500.0 examples/s]\n" + bar(3, 100) + "\n"
    assert [s.iteration for s in steps_of(text)] == [1, 2, 3]


def test_a_bar_drawn_by_every_rank_counts_once() -> None:
    text = "".join(bar(i, 8) for i in range(9)) + "\n"
    assert [s.iteration for s in steps_of(text * 4)] == list(range(1, 9))


def test_logger_text_glued_to_a_bar() -> None:
    text = bar(381, 2724) + "[2023-06-08 21:24:00,018] [INFO] [loss_scaler.py:181:update_scale] OVERFLOW!\n"
    assert [s.iteration for s in steps_of(text)] == [381]


@pytest.mark.parametrize(
    ("pairs", "wanted"),
    [
        ("'iteration': '5/100', 'train_speed(s/it)': 7.46, 'memory(GiB)': 71.2", (5, 7460.0, 100)),
        ("'global_step/max_steps': '5/100', 'train_speed(iter/s)': 0.5", (5, 2000.0, 100)),
        ("'current_steps': 5, 'total_steps': 100", (5, None, 100)),
    ],
)
def test_dialects_of_the_dict(pairs: str, wanted: tuple[int, float | None, int]) -> None:
    text = f"18:02:50.120 {{'loss': 0.6, 'grad_norm': 0.4, {pairs}}}\n"
    assert rows(text, "iteration", "step_time_ms", "total_iterations") == [wanted]


def test_axolotl_memory() -> None:
    parser = parse(
        "{'loss': 4.7, 'memory/max_mem_allocated(gib)': 25.44, 'memory/device_mem_reserved(gib)': 30.21,"
        " 'epoch': 1.0}\n"
        "{'loss': 0.9, 'memory/max_allocated (GiB)': 34.88, 'memory/device_reserved (GiB)': 41.25,"
        " 'tokens/train_per_sec_per_gpu': 3120.4, 'epoch': 3.0}\n"
    )
    assert [(m.allocated_gib, m.reserved_gib) for m in parser.memory] == [(34.88, 41.25)]
    assert parser.trainer == "axolotl"


TITAN = "[titan] 2026-02-25 08:16:{second:02d},{ms:03d} - root - INFO - step: {step:2d}  {rest}\n"


def test_torchtitan_over_its_periods() -> None:
    old = "loss:  1.6121  memory: 26.51GiB(33.52%)  wps: 1,770  mfu: 10.32%"
    new = "loss:  7.63011  grad_norm: 26.7500  memory: 66.91GiB(37.51%)  tps: 10,050  tflops: 1,012.30  mfu: N/A"
    text = TITAN.format(second=1, ms=0, step=1, rest=old) + TITAN.format(second=21, ms=500, step=10, rest=new)
    first, second = steps_of(text)
    assert (first.tokens_per_second_per_gpu, first.logged_tflops, first.grad_norm) == (1770.0, None, None)
    assert (second.tokens_per_second_per_gpu, second.logged_tflops, second.loss) == (10050.0, 1012.3, 7.63011)
    assert first.step_time_ms is None
    assert second.step_time_ms == pytest.approx(20500 / 9, abs=0.01)
    assert parse(text).memory[0].reserved_gib == 66.91


def test_torchtitan_ranks_mix_and_validation() -> None:
    """Buffered writers let their lines out late; the step has a loss on the last pipeline stage only."""
    lines = []
    for rank in range(4):
        for step in (1, 10, 20):
            loss = "-1.00000" if rank < 3 else f"{9 - step / 10:.5f}"
            rest = f"loss: {loss}  grad_norm: 1.0  memory: 1.00GiB(1.00%)  tps: 10{rank}  tflops: 1.0{rank}  mfu: 1.00%"
            lines.append(TITAN.format(second=step, ms=rank, step=step, rest=rest))
    text = (
        "".join(lines)
        + TITAN.format(second=40, ms=0, step=20, rest="").replace(" step:", " validate step:").rstrip()
        + "loss:  7.9  memory: 1.00GiB(1.00%)  tps: 9,911\n"
    )
    parser = parse(text)
    assert [(s.iteration, s.loss) for s in parser.best.steps()] == [(1, 8.9), (10, 8.0), (20, 7.0)]
    assert len(parser.table.segments) == 1


def test_nemo2_uses_the_global_step() -> None:
    text = (
        "Training epoch 1, iteration 0/999 | lr: 2.999e-06 | global_batch_size: 512 | global_step: 19 |"
        " reduced_train_loss: 11.03 | train_step_timing in s: 46.86 | consumed_samples: 10240 | TFLOPS_per_GPU: 401.2 |"
        " val_loss: 4.106\nValidation: iteration 1/32\n"
    )
    assert rows(text, "iteration", "step_time_ms", "loss", "consumed_samples", "logged_tflops") == [
        (19, 46860.0, 11.03, 10240, 401.2)
    ]


def test_lightning_bar() -> None:
    text = (
        "Epoch 0:   3%|▎         | 34103/1100000 [5:28:58<171:22:21,  1.73it/s, loss=2.52, v_num=,"
        " reduced_train_loss=2.510, global_step=3.1e+4, consumed_samples=2.54e+8, val_loss=2.510]\r"
        "Epoch 0: :   0%|          | 34109/1100000 [1:03:17<317:00:58, v_num=, reduced_train_loss=2.600,"
        " global_step=2e+3, consumed_samples=9984.0, train_step_timing in s=1.900]dation DataLoader 0: : 51it [00:20]\n"
    )
    found = rows(text, "iteration", "loss", "step_time_ms", "consumed_samples")
    assert found == [(34103, 2.51, None, None), (34109, 2.6, 1900.0, 9984)]


def test_megatron_bridge_step_time_joins_the_iteration_line() -> None:
    iteration = (
        " [2025-12-23 15:18:33] iteration       50/      60 | consumed samples:        25600 |"
        " elapsed time per iteration (ms): 9118.0 | learning rate: 3.0E-05 | global batch size:   512 |"
        " lm loss: 8.120214E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )
    before = "Step Time : 9.12s GPU utilization: 661.3MODEL_TFLOP/s/GPU\n"
    for text in (before + iteration, iteration + before):
        assert rows(text, "iteration", "step_time_ms", "logged_tflops", "logged_tflops_kind") == [
            (50, 9118.0, 661.3, "model")
        ]
    zero = "Step Time : 5.01s GPU utilization: 0.0MODEL_TFLOP/s/GPU\n"
    old = "Step Time : 5.00s GPU utilization: 541.9TFLOP/s/GPU\n"
    assert rows(zero + old, "iteration", "step_time_ms", "logged_tflops", "logged_tflops_kind") == [
        (1, 5010.0, None, None),
        (2, 5000.0, 541.9, "unknown"),
    ]


def test_composer_blocks() -> None:
    text = (
        "2023-07-08 10:00:00,000: rank0[1234][MainThread]: INFO: composer: starting\n"
        "[epoch=2][batch=3/50]:\n"
        "\t Train time/batch: 52\n"
        "\t Train loss/train/total: 2.5000\n"
        "\t Train throughput/batches_per_sec: 0.1000\n"
        "\t Train throughput/device/tokens_per_sec: 7000.5000\n"
        "\t Train memory/peak_reserved_mem: 30.5000\n"
        "\t Train lr-DecoupledAdamW/group0: 0.0006\n"
        "[Eval batch=1/16] Eval on eval data\n"
        "         Train loss/train/total: 9.0\n"
        "[epoch=2][batch=4/50]:\n"
        "         Train LanguageCrossEntropy: 2.4\n"
    )
    assert rows(text, "iteration", "loss", "step_time_ms", "tokens_per_second_per_gpu", "learning_rate") == [
        (53, 2.5, 10000.0, 7000.5, 0.0006),
        (54, 2.4, None, None, None),
    ]


@pytest.mark.parametrize(
    "prefix",
    [
        "01/17/2024 14:02:16 [INFO|DP=0|PP=0|TP=0|node]: ",
        "08/11 14:20:33 [INFO|DP=0]: \x1b[2;3m",
    ],
)
def test_nanotron(prefix: str) -> None:
    text = (
        f"{prefix}iteration: 991 / 1000 | consumed_tokens: 634K | time_per_iteration_ms: 11.6K |"
        " tokens_per_sec: 2.35K |"
        " tokens_per_sec_per_gpu: 294 | global_batch_size: 1.05M | lm_loss: 9.63 | lr: 1e-05 |"
        " model_tflops_per_gpu: 0.00744 | hardware_tflops_per_gpu: 0.0075 | grad_norm: 1.11 | eta: 0:44:26\n"
        "36.7 | hardware_tflops_per_gpu: 36.7 | elapsed_time_per_iteration_ms: 1 | grad_norm: 1.26\n"
    )
    assert rows(
        text, "iteration", "step_time_ms", "loss", "grad_norm", "logged_tflops", "global_batch_size"
    ) == [(991, 11600.0, 9.63, 1.11, 0.00744, None)]


def test_torchtune() -> None:
    text = "1|101|Loss: 0.1396:  22%|██▏       | 101/460 [1:54:39<6:58:37, 69.96s/it]INFO:torchtune:Saving\n"
    text += "Step 102 | loss:1.23 lr:2e-05 tokens_per_second_per_gpu:812.3 peak_memory_active:18.2 \n"
    assert rows(text, "iteration", "loss", "tokens_per_second_per_gpu") == [
        (101, 0.1396, None),
        (102, 1.23, 812.3),
    ]


def test_small_trainers() -> None:
    assert rows(
        "iter 0: loss 10.9, time 40112.10ms\nstep 2000: train loss 3.80, val loss 3.81\n"
        "iter 10: loss nan, time 561.94ms, mfu 31.20%\n",
        "iteration", "step_time_ms",
    ) == [(0, 40112.1), (10, 561.94)]  # fmt: skip
    assert rows(
        "epoch 001:    100 / 167138 loss=15.073, nll_loss=14.9, ppl=30000, wps=4004.3, ups=4.08, num_updates=100,"
        " lr=1e-06, gnorm=7.216, loss_scale=128, train_wall=24\n",
        "iteration", "loss", "grad_norm", "loss_scale", "step_time_ms",
    ) == [(100, 15.073, 7.216, 128.0, 1000 / 4.08)]  # fmt: skip
    assert rows(
        "0: 2025-06-17 16:24:52 I [train.py:103] Batch 0 Loss: 11.61653, Speed: 4.88 samples/sec, lr: 0.000100\n",
        "iteration", "loss", "samples_per_second", "learning_rate", "step_time_ms",
    ) == [(0, 11.61653, 4.88, 0.0001, None)]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "iteration", "rate", "memory"),
    [
        ("0/10, SamplesPerSec=1.8825260836384787", 10, 1.8825260836384787, None),
        ("0/10, SamplesPerSec=1.5, MemAllocated=4.34GB, MaxMemAllocated=14.1GB", 10, 1.5, 4.34),
        (
            "epoch=0/micro_step=34/global_step=34, RunningAvgSamplesPerSec=7.8, CurrSamplesPerSec=8.01,"
            " MemAllocated=59.61GB, MaxMemAllocated=63.29GB",
            34,
            8.01,
            59.61,
        ),
        (
            "epoch=0/micro_step=1/global_step=1, RunningAvgSamplesPerSec=-inf, CurrSamplesPerSec=-inf",
            1,
            None,
            None,
        ),
    ],
)
def test_deepspeed_timer(line: str, iteration: int, rate: float | None, memory: float | None) -> None:
    parser = parse(f"[2023-07-26 20:03:17,270] [INFO] [timer.py:215:stop] {line}\n")
    assert [(s.iteration, s.samples_per_second) for s in parser.best.steps()] == [(iteration, rate)]
    assert [m.allocated_gib for m in parser.memory] == ([memory] if memory else [])


def test_deepspeed_usage_only_when_no_rank_reported() -> None:
    usage = "MA 10.2 GB         Max_MA 12.1 GB         CA 13.0 GB         Max_CA 13 GB \n"
    assert [(m.allocated_gib, m.max_reserved_gib) for m in parse(usage).memory] == [(10.2, 13.0)]
    report = (
        "[Rank 1] (after 1 iterations) memory (MB) | allocated: 1024.0 | reserved: 1.0 | max reserved: 1.0\n"
    )
    assert [m.rank for m in parse(usage + report).memory] == [1]


def test_pipeline_engine_with_more_losses() -> None:
    text = (
        "steps: 30 loss: 6.2210 lm_loss: 6.1100 aux_loss: 0.1110 iter time (s): 0.389 samples/sec: 658.098\n"
    )
    assert rows(text, "iteration", "loss", "step_time_ms") == [(30, 6.221, 389.0)]


@pytest.mark.parametrize(
    ("lines", "nodes"),
    [
        (["  max_nodes        : 8", "  nproc_per_node   : 8"], 8),
        (
            [
                "[2026-01-01 10:00:00,123] [INFO] [launch.py:146:main] nnodes=4, num_local_procs=8, node_rank=0"
            ],
            4,
        ),
        (["job 4711: ranks 16, nodes 2, start 0, first node b200-1"], 2),
        (
            ["  world_size ................................. 64", "  max_nodes        : 7"],
            None,
        ),  # it cannot be
        (["max_nodes is 8 here", "nothing"], None),
    ],
)
def test_nodes_as_launchers_say(lines: list[str], nodes: int | None) -> None:
    parser = LogParser()
    parser.feed(lines)
    assert parser.facts.nodes == nodes


def test_arguments_of_gpt_neox() -> None:
    """They say behind each value whether the user set it; a pipeline of 0 or 1 is none."""
    values = {
        "num_layers": 44, "hidden_size": 6144, "num_attention_heads": 64, "seq_length": 2048, "train_batch_size": 1536,
        "model_parallel_size": 2, "pipe_parallel_size": 4, "global_num_gpus": 96, "train_micro_batch_size_per_gpu": 4,
        "padded_vocab_size": 50432,
    }  # fmt: skip
    parser = LogParser()
    parser.feed(
        [f"  {k} {'.' * (32 - len(k))} {v}...........................updated" for k, v in values.items()]
    )
    facts = parser.facts
    assert facts.shape is not None
    assert (facts.shape.layers, facts.shape.hidden, facts.gpus) == (44, 6144, 96)
    assert (facts.tensor_parallel, facts.pipeline_parallel, facts.global_batch_size) == (2, 4, 1536)
    assert facts.micro_batch_size == 4


def test_the_qlora_trainer_of_ours() -> None:
    """Lines of a real run on two GPUs: step time, memory and batch are there, so speed can be compared."""
    lines = [
        "job local-2088: ranks 2, nodes 1, start 0, first node vm",
        "job local-2088: 2 ranks x 4 examples x 2 accumulation steps = 16 examples a step",
        "***** Running training *****",
        "{'loss': 6.468335151672363, 'grad_norm': 5.790730953216553, 'learning_rate': 0.0, 'epoch': 0.02, 'step': 1,"
        " 'total_steps': 12, 'step_time_s': 2.9712, 'allocated_gib': 1.26, 'reserved_gib': 1.39}",
        "{'loss': 6.403369903564453, 'grad_norm': 5.502997398376465, 'learning_rate': 0.0002, 'epoch': 0.05, 'step': 2,"
        " 'total_steps': 12, 'step_time_s': 0.6785, 'allocated_gib': 1.27, 'reserved_gib': 1.4}",
        "{'eval_loss': 1.95, 'eval_runtime': 1.097, 'epoch': 0.3333, 'step': 2, 'total_steps': 12}",
        "checkpoint /runs/q/checkpoint-2 is whole",
        "Training completed. Adapter in /runs/q/final after 2 steps",
    ]
    shape = catalogue.get("llama-3.1-8b")
    parser = LogParser(shape, gpus=2, seq_length=1024)
    parser.feed(lines)
    first, second = parser.best.steps()
    assert (first.iteration, first.step_time_ms, first.total_iterations) == (1, 2971.2, 12)
    assert (second.step_time_ms, second.loss) == (678.5, 6.403369903564453)
    expected = model_flops(shape, 1024, 1024) * 16 / 0.6785 / 2 / 1e12
    assert second.model_tflops == pytest.approx(expected)
    assert [(m.allocated_gib, m.reserved_gib) for m in parser.memory] == [(1.27, 1.4)]
    assert [(e.kind, e.iteration) for e in parser.events if e.kind == "saved"] == [("saved", 2)]
    assert parser.events[-1].kind == "ended"
