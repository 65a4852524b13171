"""Owns asking the planner's legality rules about a script, as far as its numbers are fixed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpt_tune.lint.documents import Document
from gpt_tune.lint.training import MEGATRON_DEEPSPEED, MEGATRON_LM, Training

if TYPE_CHECKING:
    from gpt_tune.layouts.layout import Layout
    from gpt_tune.layouts.rule import Setting

_TP, _PP = "tensor-model-parallel-size", "pipeline-model-parallel-size"
# Which facts a legality rule speaks about, and the flags to point at. Rules not named here need more than a
# script fixes.
_NEEDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gpus": (("gpus", "tensor_parallel", "pipeline_parallel", "context_parallel"), (_TP, _PP)),
    "heads-tp": (("heads", "tensor_parallel"), (_TP,)),
    "kv-heads-tp": (("kv_heads", "tensor_parallel"), (_TP,)),
    "ffn-tp": (("ffn", "tensor_parallel"), (_TP,)),
    "stages-layers": (("layers", "pipeline_parallel"), (_PP,)),
    "stages-even": (("layers", "pipeline_parallel"), (_PP,)),
    "global-batch": (
        (
            "gpus",
            "global_batch_size",
            "micro_batch_size",
            "tensor_parallel",
            "pipeline_parallel",
            "context_parallel",
        ),
        ("global-batch-size",),
    ),
    "sp-seq": (("seq_length", "tensor_parallel"), ("sequence-parallel",)),
    "zero-pipeline": (("zero_stage", "pipeline_parallel"), ("zero-stage",)),
    "zero-engine": (("zero_stage", "context_parallel"), ("zero-stage",)),
    "no-pipeline-stages": (("pipeline_parallel",), (_PP,)),
    "ulysses-alone": (
        ("context_parallel", "tensor_parallel", "pipeline_parallel"),
        ("ds-sequence-parallel-size",),
    ),
    "ulysses-heads": (("heads", "context_parallel"), ("ds-sequence-parallel-size",)),
}
# Flags that split layers, heads or batches in ways not counted here.
_OTHER_SPLITS = re.compile(
    r"--(?:decoder-(?:first|last)-pipeline|account-for-(?:embedding|loss)|pipeline-model-parallel-(?:layout|split)|"
    r"num-layers-per-virtual|num-virtual-stages|uneven|standalone-embedding|encoder-|expert-model-parallel|"
    r"num-experts|rampup-batch-size|pp-partition-method|transformer-pipeline-model|mtp-num-layers|use-torch-fsdp2|vision-)"
)


# Every tensor rank keeps the one head of this option whole.
_ONE_KEY_VALUE_HEAD = re.compile(r"--attention-head-type[= ]+[\"']?multiquery\b")
# Trainers from before Megatron-DeepSpeed built its model for the pipeline engine.
_OLD = re.compile(r"pretrain_gpt2\.py|Megatron-LM-v1|--model-parallel-size|eval_harness|evaluate\.py")


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule. flags: those it is about."""

    rule: str
    text: str
    fix: str
    flags: tuple[str, ...]


def problems_of(document: Document, training: Training) -> list[Problem]:
    """What stops the trainer, judged by the numbers the script fixes."""
    if training.trainer not in (MEGATRON_DEEPSPEED, MEGATRON_LM) or _OTHER_SPLITS.search(document.text):
        return []
    if training.tensor_parallel is None and training.pipeline_parallel is None:
        return []
    from gpt_tune.layouts import legality

    question = _question(training)
    if question is None:
        return []
    found: list[Problem] = []
    for violation in legality.problems(*question):
        needs = _NEEDS.get(violation.rule)
        if violation.rule == "kv-heads-tp" and _ONE_KEY_VALUE_HEAD.search(document.text):
            continue
        if needs is None or any(getattr(training, fact) is None for fact in needs[0]):
            continue
        if violation.rule in ("zero-engine", "no-pipeline-stages") and (
            training.no_pipeline is None or _OLD.search(document.text)
        ):
            continue
        found.append(Problem(violation.rule, violation.text, _in_flags(violation.fix), needs[1]))
    return found


def _question(training: Training) -> tuple[Layout, Setting] | None:
    """The script's layout and what it is judged in; None where its numbers are none of a layout."""
    from gpt_tune.hardware.catalogue import node_for
    from gpt_tune.layouts.layout import Layout, Trainer
    from gpt_tune.layouts.rule import Setting
    from gpt_tune.models.shape import ModelShape

    tensor, stages = training.tensor_parallel or 1, training.pipeline_parallel or 1
    context = training.context_parallel or 1
    if training.trainer is None or min(tensor, stages, context) < 1:
        return None
    group = tensor * stages * context
    gpus = training.gpus if training.gpus and training.gpus > 0 else group
    data = max(1, gpus // group)
    micro = training.micro_batch_size or 1
    batch = training.global_batch_size or micro * data
    deepspeed = training.trainer == MEGATRON_DEEPSPEED
    layers = training.layers or stages
    # Where heads, widths or the sequence are not fixed, numbers that divide stand in; rules about them are dropped.
    heads = training.heads or tensor * context
    shape = training.shape() or ModelShape(
        id="script", layers=layers, hidden=heads * 128, heads=heads, kv_heads=training.kv_heads or heads,
        ffn=training.ffn or heads * 512, vocab=50257, seq_length=2048, head_size=128,
    )  # fmt: skip
    layout = Layout(
        tensor_parallel=tensor,
        pipeline_parallel=stages,
        context_parallel=context,
        context_method=None if context == 1 else "ulysses" if deepspeed else "ring",
        data_parallel=data,
        sequence_parallel=training.sequence_parallel and tensor > 1,
        zero_stage=min(max(training.zero_stage or 0, 0), 3) if deepspeed else 0,
        micro_batch_size=micro,
        gradient_accumulation_steps=max(1, batch // (micro * data)),
        global_batch_size=batch,
    )
    setting = Setting(
        shape,
        node_for("h100"),
        Trainer(
            training.trainer, deepspeed="0.16.4" if deepspeed else None, pipeline_engine=_engine(training)
        ),
        gpus,
        training.seq_length or 2048,
    )
    return layout, setting


def _engine(training: Training) -> bool | None:
    """Whether the pipeline engine runs: it does in Megatron-DeepSpeed unless the script says otherwise."""
    if training.trainer != MEGATRON_DEEPSPEED or (training.context_parallel or 1) > 1:
        return None
    return not training.no_pipeline


_WORDS = {
    "tensor_parallel": "--tensor-model-parallel-size", "pipeline_parallel": "--pipeline-model-parallel-size",
    "context_parallel": "--context-parallel-size", "micro_batch_size": "--micro-batch-size",
    "global_batch_size": "--global-batch-size", "zero_stage": "--zero-stage",
}  # fmt: skip


def _in_flags(fix: str) -> str:
    """The planner's fix in the words of the trainer's flags."""
    for key, flag in _WORDS.items():
        fix = re.sub(rf"\b{key}=", f"{flag} ", fix)
    return fix[:1].upper() + fix[1:] if fix and not fix.startswith("--") else f"Use {fix}."
