"""Trainers and forks of Megatron as they print today, with the right values known by construction."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gpt_tune.diagnosis import diagnose_lines
from gpt_tune.logs.parser import LogParser
from gpt_tune.logs.types import Step
from tests.logs.test_timer_blocks import step

PRIMUS = (
    "[20251121 12:10:29][rank-31/32][INFO ] [--------trainer.py:2488] :  iteration {i:8d}/   36000 |"
    " consumed samples: {c:12d} |"
)
TAIL = "learning rate: {lr} | global batch size:   256 |{loss} loss scale: 1.0 | grad norm: {norm} |"
ENDS = " number of skipped iterations:   0 | number of nan iterations:   0 |"


def steps(*lines: str) -> list[Step]:
    parser = LogParser()
    parser.feed(list(lines), "log")
    parser.finish()
    return list(parser.best.steps())


def tail(loss: str = " lm loss: 2.352391E+00 |", norm: str = "0.132", lr: str = "1.5E-04") -> str:
    return TAIL.format(loss=loss, norm=norm, lr=lr) + ENDS


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "primus": (
        PRIMUS.format(i=12125, c=3104000)
        + " elapsed time per iteration (ms): 2701.3/2712.7 | hip mem usage/free/total/usage_ratio:"
        " 227.35GB/28.63GB/255.98GB/88.81% | throughput per GPU (TFLOP/s/GPU): 210.5/217.3 |"
        " tokens per GPU (tokens/s/GPU): 12130.4/12525.5 | " + tail(),
        {"iteration": 12125, "step_time_ms": 2701.3, "logged_tflops": 210.5, "loss": 2.352391, "grad_norm": 0.132,
         "tokens_per_second_per_gpu": 12130.4, "consumed_samples": 3104000},
    ),
    "primus of 2026": (
        PRIMUS.format(i=7, c=1792)
        + " elapsed time per iteration (ms): 2701.3 (avg 2712.7) | compute per GPU (TFLOP/s/GPU): 615.5 (avg 614.1) |"
        " tokens/s/GPU inst/harmonic mean: 11941.8/11940.2 | " + tail(),
        {"iteration": 7, "step_time_ms": 2701.3, "logged_tflops": 615.5, "logged_tflops_kind": "model",
         "tokens_per_second_per_gpu": 11941.8, "loss": 2.352391},
    ),
    "rocm": (
        "[2026-09-24 09:43:42] iteration        2/      20 | consumed samples:           32 | elapsed time per"
        " iteration (ms): 658.3 | mem usages: 0.5462 | throughput per GPU (TFLOP/s/GPU): 1441.4 | Tokens per second"
        " per GPU (Tok/s/GPU): 2645.8 | " + tail(),
        {"iteration": 2, "step_time_ms": 658.3, "logged_tflops": 1441.4, "tokens_per_second_per_gpu": 2645.8,
         "loss": 2.352391},
    ),
    "a loss before the time": (
        " iteration 10/ 1000 | lm loss: 2.5E+00 | learning rate: 1E-4 | elapsed time per iteration (ms): 1234.5 |"
        " grad norm: 1.2 | consumed samples: 640 | global batch size: 64 |" + ENDS,
        {"loss": 2.5, "step_time_ms": 1234.5, "learning_rate": 1e-4, "grad_norm": 1.2, "global_batch_size": 64},
    ),
    "numpy in a dict": (
        "{'loss': np.float64(2.0491), 'grad_norm': np.float32(1.41), 'learning_rate': 5e-05, 'epoch': 0.28}",
        {"loss": 2.0491, "grad_norm": 1.41, "learning_rate": 5e-05},
    ),
    "tensors in a dict": (
        "{'loss': tensor(2.0491, device='cuda:0'), 'grad_norm': tensor(1.41), 'learning_rate': 5e-05, 'epoch': 0.28}",
        {"loss": 2.0491, "grad_norm": 1.41, "learning_rate": 5e-05},
    ),
    "maxtext": (
        "I0804 08:14:00.000000 1 metric_logger.py:196] completed step: 5, seconds: 1.234, TFLOP/s/device: 412.3,"
        " Tokens/s/device: 1234.5, total_weights: 65536, loss: 10.800, lm_loss: 10.7, perplexity: 44316.0",
        {"iteration": 5, "step_time_ms": 1234.0, "loss": 10.8, "tokens_per_second_per_gpu": 1234.5,
         "logged_tflops": 412.3},
    ),
    "litgpt": (
        "Epoch 1 | iter 10 step 5 | loss train: 1.234, val: n/a | iter time: 123.45 ms (step) remaining time: 0:00:10",
        {"iteration": 5, "loss": 1.234, "step_time_ms": None},
    ),
    "lightning": (
        "Epoch 1:  10%|█         | 10/100 [00:10<01:30,  1.00it/s, v_num=3, train_loss_step=2.310,"
        " train_loss_epoch=2.5]",
        {"iteration": 110, "loss": 2.31, "step_time_ms": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_line(name: str) -> None:
    line, wanted = CASES[name]
    (got,) = steps(line)
    assert {key: getattr(got, key) for key in wanted} == wanted
    assert diagnose_lines([line]).findings == ()


@pytest.mark.parametrize("prefix", ["", "0: ", "[default7]:", "\x1b[36m"])
def test_behind_a_prefix_in_bulk(prefix: str) -> None:
    """Many lines of one shape, as raw bytes: the same figures as one by one."""
    lines = []
    for i in range(1, 60):
        head = PRIMUS.format(i=i, c=256 * i)
        lines.append(
            f"{prefix}{head} elapsed time per iteration (ms): {2000 + i}.5/2712.7 | mem usages: 0.5 | {tail()}"
        )
    parser = LogParser()
    parser.feed_block(("\n".join(lines) + "\n").encode(), "log")
    parser.finish()
    assert [(s.iteration, s.step_time_ms, s.loss) for s in parser.best.steps()] == [
        (i, 2000.5 + i, 2.352391) for i in range(1, 60)
    ]


@pytest.mark.parametrize(
    "extra", ["mem usages: 0.5462", "core attn ratio (%): 12.5", "memory(GiB): 35.1", "bubble: 0.2"]
)
def test_another_figure_is_no_loss(extra: str) -> None:
    """The loss is NaN, so its field is missing: no other figure takes its place."""
    line = (
        f" iteration        9/      20 | elapsed time per iteration (ms): 658.3 | {extra} | {tail(loss='')}"
    )
    (got,) = steps(line)
    assert got.loss is not None
    assert math.isnan(got.loss)


@pytest.mark.parametrize(
    ("printed", "value"),
    [("nan", math.nan), ("NAN", math.nan), ("NaN", math.nan), ("inf", math.inf), ("INF", math.inf), ("-inf", -math.inf),
     ("Infinity", math.inf), ("-Infinity", -math.inf), ("2.5E+00", 2.5), ("2,5E+00", 2.5), ("-1.25", -1.25)],
)  # fmt: skip
def test_spellings_of_a_loss(printed: str, value: float) -> None:
    loss = tail(loss=f" lm loss: {printed} |")
    line = f" iteration        9/      20 | elapsed time per iteration (ms): 658.3 | {loss}"
    (got,) = steps(line)
    assert got.loss is not None
    assert got.loss == value or (math.isnan(got.loss) and math.isnan(value))


TITAN = (
    "[titan] 2025-11-30 {clock},000 - root - INFO - step: {i:2}  loss:  2.50000  memory: 40.10GiB(50.30%)"
    "  tps: 7,282  mfu: 41.00%"
)


def test_a_clock_that_was_set_gives_no_step_time() -> None:
    clocks = ["10:00:10", "10:00:20", "10:00:30", "11:00:40", "11:00:50", "10:30:00", "10:30:10"]
    got = steps(*(TITAN.format(clock=clock, i=i) for i, clock in enumerate(clocks, 1)))
    assert [s.step_time_ms for s in got] == [None, 10000.0, 10000.0, None, 10000.0, None, 10000.0]


def test_another_batch_size_is_no_set_clock() -> None:
    """A time that stays ten times as long is believed from the second step on."""
    clocks = ["10:00:10", "10:00:20", "10:00:30", "10:02:10", "10:03:50", "10:05:30"]
    got = steps(*(TITAN.format(clock=clock, i=i) for i, clock in enumerate(clocks, 1)))
    assert [s.step_time_ms for s in got] == [None, 10000.0, 10000.0, None, None, 100000.0]


def test_a_clock_that_is_set_back_is_no_other_run() -> None:
    lines = [
        f" [2025-08-20 {(22 - 8 * (i > 20)):02d}:{i:02d}:00.123456]{step(i, 60_000.0)}" for i in range(1, 41)
    ]
    for feed in ("lines", "block"):
        parser = LogParser()
        if feed == "lines":
            parser.feed(lines, "log")
        else:
            parser.feed_block(("\n".join(lines) + "\n").encode(), "log")
        parser.finish()
        assert [(s.first, s.last) for s in parser.best.segments] == [(1, 40)]
        assert {s.step_time_ms for s in parser.best.steps()} == {60_000.0}
