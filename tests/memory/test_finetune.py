"""Tests the memory of fine-tuning jobs against counts by hand."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpt_tune.errors import UserError
from gpt_tune.hardware.catalogue import node_for
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout, Recompute, Trainer
from gpt_tune.memory import MemoryEstimate, finetune
from gpt_tune.memory.finetune import FineTune, Tuning, adapter_parameters, estimate_finetune
from gpt_tune.models import catalogue, parameters
from gpt_tune.planner.finetune_time import estimate_many
from gpt_tune.units import GIB
from tests.memory import support


def test_adapters_count_rank_times_in_plus_out() -> None:
    model = catalogue.get("llama-2-7b")
    job = FineTune("lora", lora_rank=8, lora_targets=("q_proj", "v_proj"))
    # The published figure for LoRA of rank 8 on q and v of Llama-2-7B.
    assert adapter_parameters(model, job) == 4_194_304


def test_a_plain_mlp_has_no_gate_to_adapt() -> None:
    model = support.gpt()
    both = FineTune("lora", lora_targets=("gate_proj", "up_proj"))
    assert adapter_parameters(model, both) == adapter_parameters(
        model, replace(both, lora_targets=("up_proj",))
    )


def test_double_quantisation_saves_what_its_paper_says() -> None:
    """0.5 bits a weight for fp32 scales of blocks of 64, 0.127 bits with double quantisation."""
    single, double = (finetune.quantised_bytes_per_weight(d) for d in (False, True))
    assert (single - 0.5) * 8 == pytest.approx(0.5)
    assert (double - 0.5) * 8 == pytest.approx(0.127, abs=0.001)


def test_weights_of_each_method() -> None:
    model = catalogue.get("llama-2-7b")
    total = parameters.total(model)

    def weights(method: str) -> float:
        job = FineTune(method, "ddp", 1)  # type: ignore[arg-type]
        return estimate_finetune(model, support.node(), job).stages[0].parameters * GIB

    adapters = 4 * adapter_parameters(model, FineTune("lora"))
    assert weights("full") == pytest.approx(4 * total)
    assert weights("lora") == pytest.approx(2 * total + adapters)
    tables = 2 * 32000 * 4096 + 65 * 4096
    assert weights("qlora") == pytest.approx(0.516 * (total - tables) + 4 * tables + adapters, rel=0.001)


@pytest.mark.parametrize("gpus", [2, 8])
@pytest.mark.parametrize("strategy", ["zero2", "zero3"])
def test_full_weights_follow_the_zero_stages(strategy: str, gpus: int) -> None:
    model = catalogue.get("llama-2-7b")
    total = parameters.total(model)
    s = estimate_finetune(model, support.node(), FineTune("full", strategy, gpus)).stages[0]  # type: ignore[arg-type]
    held = (s.parameters + s.gradients + s.optimizer) * GIB
    expected = 2 * total + 14 * total / gpus if strategy == "zero2" else 16 * total / gpus
    assert held == pytest.approx(expected)


def test_orders_that_must_hold() -> None:
    model, node = catalogue.get("llama-2-7b"), support.node()

    def device(job: FineTune) -> float:
        return estimate_finetune(model, node, job).device_gib

    for method in ("full", "lora", "qlora"):
        job = FineTune(method, "zero3", 8, 4, 2048)
        assert device(job) < device(replace(job, strategy="zero2")) <= device(replace(job, strategy="ddp"))
        assert device(job) < device(replace(job, gradient_checkpointing=False))
        assert device(job) < device(replace(job, micro_batch_size=8))
    one = FineTune("lora", "ddp", 1, 1, 1024)
    assert device(replace(one, method="qlora")) < device(one) < device(replace(one, method="full"))


RUNS = json.loads((Path(__file__).parents[1] / "data" / "memory" / "finetune_h200.json").read_text())["runs"]
FIGURES = ("allocated_gib", "reserved_gib", "device_gib", "step_seconds")


def _predicted(run: dict[str, Any]) -> MemoryEstimate:
    keys = {k: v for k, v in run.items() if k not in ("name", "model", "layers", *FIGURES)}
    model = replace(catalogue.get(run["model"]), layers=run["layers"])
    return estimate_finetune(model, node_for("h200"), FineTune(**keys))


@pytest.mark.parametrize("run", RUNS, ids=[r["name"] for r in RUNS])
def test_measured_jobs(run: dict[str, Any]) -> None:
    found = _predicted(run)
    assert found.allocated_gib == pytest.approx(run["allocated_gib"], rel=0.03)
    assert found.device_gib == pytest.approx(run["device_gib"], rel=0.10)
    assert found.low_gib < run["device_gib"] < found.high_gib


def test_measured_jobs_on_average() -> None:
    errors = [abs(_predicted(r).allocated_gib / r["allocated_gib"] - 1) for r in RUNS]
    assert sum(errors) / len(errors) < 0.012
    outside = [abs(_predicted(r).device_gib / r["device_gib"] - 1) for r in RUNS]
    assert sum(outside) / len(outside) < 0.03


@pytest.mark.parametrize(
    ("method", "strategy", "checkpointing"),
    list(itertools.product(("full", "lora", "qlora"), ("ddp", "zero2", "zero3"), (True, False))),
)
def test_terms_add_up(method: str, strategy: str, checkpointing: bool) -> None:
    job = FineTune(method, strategy, 4, 2, 2048, checkpointing)  # type: ignore[arg-type]
    e = estimate_finetune(catalogue.get("llama-3-8b"), support.node(), job)
    s = e.stages[0]
    allocated = s.parameters + s.gradients + s.optimizer + s.activations + s.logits + s.buffers + s.transient
    assert allocated == pytest.approx(e.allocated_gib)
    assert e.allocated_gib + s.reserved_gap == pytest.approx(e.reserved_gib)
    assert e.reserved_gib + s.context == pytest.approx(e.device_gib)
    assert e.low_gib < e.device_gib < e.high_gib
    assert min(allocated, s.reserved_gap, s.context) > 0


def test_the_qlora_case_fits_its_24_gb_card() -> None:
    """Qwen3-8B, 1536 tokens, on 24 GB cards: it trains, also on one of them."""
    node = replace(support.node(), gpu=support.gpu(23028.0, (8, 6)))
    for strategy, gpus in (("ddp", 1), ("zero2", 4), ("zero3", 4)):
        job = FineTune("qlora", strategy, gpus, 1, 1536, True, "paged_adamw_8bit")  # type: ignore[arg-type]
        chance = estimate_finetune(catalogue.get("qwen3-8b"), node, job).oom_probability
        assert chance is not None
        assert chance < 0.05
    full = FineTune("full", "ddp", 1, 1, 1536, True, "paged_adamw_8bit")
    assert estimate_finetune(catalogue.get("qwen3-8b"), node, full).oom_probability == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (FineTune(gpus=0), "gpus"),
        (FineTune(micro_batch_size=0), "micro_batch_size"),
        (FineTune(seq_length=-1), "seq_length"),
        (FineTune("lora", lora_rank=0), "lora_rank"),
        (FineTune("lora", lora_targets=()), "target"),
        (FineTune("lora", lora_targets=("q_prj",)), "q_proj"),
    ],
)
def test_a_job_that_cannot_be_is_refused(job: FineTune, words: str) -> None:
    with pytest.raises(UserError, match=words):
        estimate_finetune(support.llama(), support.node(), job)


def test_experts_are_not_quantised() -> None:
    with pytest.raises(UserError, match="experts"):
        estimate_finetune(support.moe(), support.node(), FineTune("qlora"))


# Own runs on two H200 through the recipe's own job: a Llama of 974M with random weights and 320 words, nf4, rank 16,
# examples of 392 tokens, 2 micro batches of 4; torch 2.11, bitsandbytes 0.50.2, DeepSpeed 0.19.8. GiB of rank 0.
TWO_GPUS = [
    ("ddp", True, "paged_adamw_8bit", 1.27, 1.40, (0.70, 0.95)),
    ("zero2", False, "adamw", 4.405, 4.486, (0.594, 0.641)),
    ("zero3", False, "adamw", 4.715, 4.758, (1.709, 1.769)),
]
LLAMA_1B = (
    "layers=16,hidden=2048,heads=32,kv_heads=8,ffn=8192,gated_mlp=true,norm=rmsnorm,positions=rotary,vocab=320,"
    "linear_bias=false,tied_embeddings=false"
)


@pytest.mark.parametrize("run", TWO_GPUS, ids=lambda run: str(run[0]))
def test_measured_jobs_on_two_gpus(run: tuple[Any, ...]) -> None:
    strategy, checkpointing, optimizer, allocated, reserved, seconds = run
    model = catalogue.get(LLAMA_1B)
    job = FineTune("qlora", strategy, 2, 4, 392, checkpointing, optimizer)
    found = estimate_finetune(model, node_for("h200", 2), job)
    assert parameters.total(model) == 974_456_832
    assert found.allocated_gib == pytest.approx(allocated, rel=0.05)
    assert found.reserved_gib == pytest.approx(reserved, rel=0.07)
    layout = Layout(
        data_parallel=2,
        zero_stage={"ddp": 0, "zero2": 2, "zero3": 3}[strategy],
        micro_batch_size=4,
        gradient_accumulation_steps=2,
        global_batch_size=16,
        recompute=Recompute("full", "uniform", 1) if checkpointing else Recompute(),
    )
    trainer, tuning = Trainer("qlora", deepspeed=None), Tuning(optimizer=optimizer)
    (step,) = estimate_many(model, node_for("h200", 2), trainer, LayoutBatch.of([layout]), 392, tuning)
    for measured in seconds:
        assert step.low < measured < step.high


def test_a_4_bit_model_must_load_whole_before_zero3_splits_it() -> None:
    """More GPUs make the split smaller and not what each holds while it loads; 16-bit weights are read in pieces."""
    model, node = catalogue.get("llama-3.1-405b"), node_for("h200")
    held = [
        estimate_finetune(model, node, FineTune("qlora", "zero3", gpus, 1, 1536)) for gpus in (8, 64, 512)
    ]
    for estimate in held:
        assert estimate.peak_phase == "initialisation"
        assert estimate.stages[0].parameters > 0.5 * 405e9 / GIB
        assert (estimate.oom_probability or 0) > 0.99
        assert estimate.allocated_gib == pytest.approx(held[0].allocated_gib)
        s = estimate.stages[0]
        assert s.parameters + s.transient == pytest.approx(estimate.allocated_gib)
    split = [
        estimate_finetune(model, node, FineTune("lora", "zero3", gpus, 1, 1536)).stages[0].parameters
        for gpus in (8, 64)
    ]
    assert split[1] < split[0] / 7
    # Where training holds more than loading, loading is no peak.
    assert estimate_finetune(
        catalogue.get("qwen3-8b"), node, FineTune("qlora", "zero3", 8, 4, 1536)
    ).peak_phase != ("initialisation")
