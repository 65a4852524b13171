"""Jobs of every kind, crossed with ways to find software and with sites: what the tests of all combinations render."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from gpt_tune import planner
from gpt_tune.errors import UserError
from gpt_tune.planner.types import Plan
from gpt_tune.profiles.schema import (
    Custom,
    Environment,
    Finetune,
    Preflight,
    Profile,
    Site,
    Smoke,
    TrainerChoice,
    Training,
)
from gpt_tune.recipes.base import JobSpec
from tests.recipes.plans import training_job
from tests.recipes.specs import job
from tests.recipes.test_llama2 import llama_job
from tests.recipes.test_qlora import qlora_job

SEED = 20261130
PLANS = 48  # different layouts of pretraining with Megatron-DeepSpeed
LM_PLANS = 24  # and with Megatron-LM

ENVIRONMENTS = (
    Environment(),
    Environment(kind="venv", path="/fsx/my envs/it's", variables={"HF_HOME": "/fsx/hf cache"}),
    Environment(kind="conda", path="/fsx/conda"),
    Environment(kind="modules", modules=("cuda/12.8", "nccl")),
    Environment(kind="pyxis", image="/fsx/apps/im age.sqsh", mounts=("/fsx", "/data:/in")),
    Environment(kind="pyxis", image="nvcr.io#nvidia/pytorch:25.04-py3"),
    Environment(kind="apptainer", image="/fsx/apps/image.sif", mounts=("/fsx",), variables={"NCCL_DEBUG": "WARN"}),
)  # fmt: skip
SITES = (
    Site(),
    Site(partition="dev", account="team", time_limit="1:00:00", node="p6-b200", network_profile="efa"),
    Site(partition="long", time_limit="7-00:00:00", node="dgx-h100", group="ml", exclude_nodes=("n1", "n[3-4]")),
    Site(partition="a b", account="it's", qos="high", network_profile="none", extra_sbatch=("--constraint=a&b",)),
    Site(time_limit="90", node="p5en", extra_sbatch=("--reservation=week 7", "--nice=100")),
    Site(partition="dev", network_profile="infiniband", time_limit="UNLIMITED"),
)  # fmt: skip
MODELS = (
    ("gpt2", 4), ("gpt-125m", 1), ("gpt-350m", 2), ("gpt-1.3b", 8), ("gpt-1.3b", 16), ("gpt-2.7b", 8), ("gpt-13b", 16),
    ("gpt-13b", 32), ("gpt-103b", 64), ("gpt-145b", 64), ("gpt-175b", 128), ("llama-2-7b", 8), ("llama-2-7b", 16),
    ("llama-3.1-8b", 16), ("llama-3-8b", 8), ("llama-2-70b", 64), ("mistral-7b", 16), ("llama-3.2-1b", 8),
)  # fmt: skip
GPUS = ("h200", "b200", "h100", "a100-80")
TRAINERS = (
    "megatron-deepspeed",
    "megatron-deepspeed@deepspeed-0.16.4",
    "megatron-deepspeed@deepspeed-0.19.8",
)
CHOICES = (
    (), ("zero_stage=0",), ("zero_stage=1",), ("zero_stage=2",), ("zero_stage=3",), ("tensor_parallel=2",),
    ("tensor_parallel=4", "sequence_parallel=true"), ("pipeline_parallel=2",),
    ("tensor_parallel=8", "pipeline_parallel=2"),
    ("context_parallel=2",), ("recompute=full",), ("recompute=selective",), ("flash_attention=false",),
    ("precision=fp16",), ("micro_batch_size=1",), ("micro_batch_size=4", "recompute=full"),
    ("fusions.bias_gelu=false", "fusions.bias_dropout=false"),
    ("recompute.granularity=full", "recompute.method=block", "recompute.layers=2"),
    ("virtual_pipeline=2", "pipeline_parallel=4"),
)  # fmt: skip
TRAININGS = (
    Training(),
    Training(checkpoint_interval=100, iterations=1000),
    Training(data="/data/the pile_text_document", tokenizer="huggingface", tokenizer_model="/fsx/to k", tokens=1e9),
    Training(checkpoint_interval=10, checkpoint_dir="/fsx/sa ve", load="/fsx/old run", lr_decay_style="linear"),
    Training(data="/data/x", vocab_file="/v/vocab.json", merge_file="/v/merges.txt", dropout=0.1, eval_iterations=5),
)  # fmt: skip

# A job in a folder, before its software and site are decided.
Core = Callable[[Path], JobSpec]


@cache
def plans(trainers: tuple[str, ...] = TRAINERS, wanted: int = PLANS) -> tuple[tuple[str, str, Plan], ...]:
    """(model, GPU, plan), all different: the planner's answers to random requests, the same in every run."""
    chance = random.Random(f"{SEED} {trainers}")
    found: dict[str, tuple[str, str, Plan]] = {}
    for _ in range(wanted * 6):
        if len(found) == wanted:
            break
        (model, gpus), gpu = chance.choice(MODELS), chance.choice(GPUS)
        fix = (*chance.choice(CHOICES), *chance.choice(CHOICES))
        trainer = chance.choice(trainers)
        try:
            request = planner.build_request(model, gpus, gpu=gpu, fix=fix, trainer=trainer, top=1)
            answer = planner.search(request).plans
        except UserError:
            continue  # choices that exclude each other
        if answer:
            found.setdefault(f"{model} {gpu} {answer[0].layout} {answer[0].trainer}", (model, gpu, answer[0]))
    return tuple(found.values())


def pretraining(recipe: str, trainers: tuple[str, ...], wanted: int) -> Iterator[Core]:
    """Jobs of one recipe for all those plans, each with other training choices."""

    def core(index: int, model: str, gpu: str, plan: Plan) -> Core:
        profile: dict[str, Any] = {
            "recipe": recipe,
            "trainer": TrainerChoice(
                path="" if index % 5 == 0 else "/fsx/code/Mega tron",
                extra_arguments=("--timing-log-level", "1") if index % 7 == 0 else (),
            ),
            "preflight": (Preflight(), Preflight(run="on"), Preflight(run="off"))[index % 3],
        }
        training = TRAININGS[index % len(TRAININGS)]
        return lambda folder: training_job(folder, plan, model, gpu, training=training, profile=profile)

    for index, (model, gpu, plan) in enumerate(plans(trainers, wanted)):
        yield core(index, model, gpu, plan)


def _on_nodes(profile: Profile, nodes: int, run: Path) -> JobSpec:
    return job(run, profile, scheduler="slurm", gpus=8 * nodes, gpus_per_node=8, nodes=nodes)


def _tuned(tune: Finetune, gpus: int, run: Path) -> JobSpec:
    return qlora_job(run, tune, gpus=gpus)


def _moved(spec: JobSpec, run: Path) -> JobSpec:
    return dataclasses.replace(spec, run_dir=str(run))


_RUN: tuple[tuple[int, Any], ...] = ((1, "off"), (2, "on"), (8, "auto"))


def smoke(folder: Path) -> Iterator[Core]:
    for nodes, preflight in _RUN:
        profile = Profile(
            name="smoke", recipe="smoke", smoke=Smoke(steps=5), preflight=Preflight(run=preflight)
        )
        yield partial(_on_nodes, profile, nodes)


def custom(folder: Path) -> Iterator[Core]:
    theirs = folder / "own.sbatch"
    theirs.write_text("#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\nsrun python train.py\n")
    for own in (
        Custom(script=str(theirs)),
        Custom(command="python3 'train it.py' --lr 1e-4", log_format="auto"),
    ):
        for _, run in _RUN[1:]:
            profile = Profile(name="mine", recipe="custom", custom=own, preflight=Preflight(run=run))
            yield partial(_on_nodes, profile, 2)


def qlora(folder: Path) -> Iterator[Core]:
    tunes = (
        Finetune(weights="Qwen/Qwen3-8B", data="some/data", data_config="en"),
        Finetune(weights="/fsx/wei ghts", data="/fsx/da ta.jsonl", strategy="zero2", epochs=1.5),
        Finetune(weights="/fsx/w", data="/fsx/d", strategy="zero3", base_weights="16bit", optimizer="adamw"),
    )
    for tune in tunes:
        for gpus in (0, 1, 8, 16):
            yield partial(_tuned, tune, gpus)


def llama2(folder: Path) -> Iterator[Core]:
    weights = folder / "wei ghts"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    (weights / "data.json").write_text("[]")
    shapes: tuple[tuple[int, tuple[str, ...], str], ...] = (
        (8, (), "llama-2-7b"),
        (8, ("tensor_parallel=2", "zero_stage=1"), "llama-2-7b"),
        (16, ("tensor_parallel=2", "pipeline_parallel=2"), "llama-2-13b"),
        (64, (), "llama-2-70b"),
    )
    for gpus, fix, model in shapes:
        for export in (False, True):
            first = llama_job(folder / "run", weights, gpus, fix, model=model, finetune={"export": export})
            yield partial(_moved, first)


def cores(folder: Path) -> dict[str, list[Core]]:
    """Every recipe's jobs."""
    return {
        "megatron-deepspeed": list(pretraining("megatron-deepspeed", TRAINERS, PLANS)),
        "megatron-lm": list(pretraining("megatron-lm", ("megatron-lm",), LM_PLANS)),
        "llama2-finetune": list(llama2(folder)),
        "qlora": list(qlora(folder)),
        "smoke": list(smoke(folder)),
        "custom": list(custom(folder)),
    }


def combined(core: Core, run_dir: Path, environment: Environment, site: Site) -> JobSpec:
    """The job with its software and at its site."""
    spec = core(run_dir)
    return dataclasses.replace(
        spec, site=dataclasses.replace(site, run_root=str(run_dir.parent), environment=environment)
    )
