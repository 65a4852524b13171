"""Owns what one row of a runs file means: its model, node, trainer and layout.

Published tables leave much unsaid; each guess stands beside its reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, cast

from gpt_tune.errors import UserError
from gpt_tune.hardware.catalogue import node_for
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.layout import Fusions, Granularity, Layout, Method, Recompute, Trainer
from gpt_tune.models.shape import ModelShape

Row = Mapping[str, str]


def model_of(row: Row) -> ModelShape:
    hidden, layers = whole(row, "hidden"), whole(row, "layers")
    heads = whole(row, "heads", _unstated_heads(row, hidden))
    if hidden % heads:
        raise UserError(f"hidden {hidden} is not divisible by heads {heads}.")
    kv_heads = whole(row, "kv_heads", heads)
    if heads % kv_heads:
        raise UserError(f"heads {heads} is not divisible by kv_heads {kv_heads}.")
    ffn, vocab = whole(row, "ffn"), whole(row, "vocab")
    llama = _is_llama(row, hidden, ffn, vocab)
    return ModelShape(
        id=f"{layers}x{hidden}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        ffn=ffn,
        vocab=vocab,
        seq_length=whole(row, "seq_length"),
        head_size=hidden // heads,
        gated_mlp=llama,
        norm="rmsnorm" if llama else "layernorm",
        linear_bias=not llama,
        qkv_bias=not llama,
        positions=_positions(row, llama),
        tied_embeddings=_tied(row, llama),
        embedding_norm="embed LN" in row.get("notes", ""),
    )


def _unstated_heads(row: Row, hidden: int) -> int:
    """Heads where the printed count cannot be right.

    BigScience's prose says of its tables up to there "all NHEADS=64 (above too)"; the same layout took 123.7 s there
    and 123.8 s where 64 is printed.
    """
    tensor = whole(row, "tensor_parallel")
    if row["series"].startswith("tr11") and hidden % 64 == 0 and 64 % tensor == 0:
        return 64
    return _nearest_heads(hidden, tensor)


def _nearest_heads(hidden: int, tensor_parallel: int) -> int:
    """Heads of size 128 or the next larger size that divides, for rows whose printed count cannot be right."""
    for size in range(128, hidden + 1):
        if hidden % size == 0 and (hidden // size) % tensor_parallel == 0:
            return hidden // size
    return 1


def _is_llama(row: Row, hidden: int, ffn: int, vocab: int) -> bool:
    """Gated MLP, RMSNorm, rotary: told by an MLP width that is not 4 hidden (few KV heads do not tell it)."""
    notes = (row.get("notes", "") + row["id"]).lower()
    if "nemotron" in notes:
        return False
    # Llama-70B's width is 3.5 hidden, Llama-8B's too; every plain GPT here has exactly 4.
    return ffn != 4 * hidden or "llama" in notes


def _positions(row: Row, llama: bool) -> Literal["learned", "rotary", "alibi", "none"]:
    notes = row.get("notes", "")
    if "no position embedding" in notes:
        return "none"
    if "ALiBi" in notes or "MPT" in notes:
        return "alibi"
    return "rotary" if llama or "nemotron" in notes else "learned"


def _tied(row: Row, llama: bool) -> bool:
    """Llama and Nemotron are not tied but for the small ones; GPT and MPT are."""
    notes = row.get("notes", "")
    if row["framework"].startswith("nanotron"):
        return whole(row, "hidden") < 4096
    if "Llama-3.2-3B" in notes or "llama3.2-1b" in notes or "llama3.2-3b" in notes:
        return True
    return not llama and "nemotron" not in notes


def layout_of(row: Row, framework: str) -> Layout:
    micro, batch = whole(row, "micro_batch_size"), whole(row, "global_batch_size")
    data = whole(row, "data_parallel")
    steps = whole(row, "gradient_accumulation_steps", batch // (micro * data))
    if micro * steps * data != batch or steps < 1:
        raise UserError(
            f"global_batch_size {batch} is not micro_batch_size {micro} x data_parallel {data} times a whole number."
        )
    context = whole(row, "context_parallel", 1)
    tensor = whole(row, "tensor_parallel")
    name = _trainer_name(framework)
    sequence = row.get("sequence_parallel", "")
    # NeMo and Megatron-Core recipes turn it on with tensor parallelism; the rows do not always say so.
    modern = name == "megatron-lm" and "2020" not in framework and framework != "Megatron-LM"
    pipeline = whole(row, "pipeline_parallel")
    _check(row, tensor, pipeline)
    return Layout(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        virtual_pipeline=_virtual(row, pipeline),
        context_parallel=context,
        context_method=_context_method(row, context),
        expert_parallel=whole(row, "expert_parallel", 1),
        data_parallel=data,
        sequence_parallel=tensor > 1 and (sequence == "1" or (sequence == "" and modern)),
        zero_stage=whole(row, "zero_stage", _usual_zero_stage(row, modern)),
        micro_batch_size=micro,
        gradient_accumulation_steps=steps,
        global_batch_size=micro * steps * data,
        recompute=_recompute(row),
        precision=_precision(row["precision"]),
        flash_attention=_flash(row, framework),
        fusions=Fusions(masked_softmax=row.get("fused_softmax", "") != "0"),
    )


def _check(row: Row, tensor: int, pipeline: int) -> None:
    """Layouts that cannot have run. BigScience's split counts embedding and output as layers, hence the 2."""
    layers = whole(row, "layers")
    if pipeline > layers + 2:
        raise UserError(f"pipeline_parallel {pipeline} is more than the {layers} layers.")
    heads = row.get("heads", "")
    if heads and whole(row, "heads") % tensor:
        raise UserError(f"heads {heads} is not divisible by tensor_parallel {tensor}.")
    if row.get("zero_stage", "") not in ("", "0", "1", "2", "3"):
        raise UserError(f"zero_stage {row['zero_stage']} is none of 0, 1, 2, 3.")


def _usual_zero_stage(row: Row, modern: bool) -> int:
    """Where it is not stated: recipes shard the optimizer, and so must vTrain's runs (3.6B at TP 1 fitted)."""
    return 1 if modern or row["series"].startswith("vtrain") else 0


def _virtual(row: Row, pipeline: int) -> int:
    stated = re.search(r"interleave m=(\d+)", row.get("notes", ""))
    if stated:
        return int(stated[1]) if pipeline > 1 else 1
    return whole(row, "virtual_pipeline", 1) if pipeline > 1 else 1


def _context_method(row: Row, context: int) -> Literal["ring", "ulysses"] | None:
    if context == 1:
        return None
    notes = row.get("notes", "")
    return "ulysses" if "ulysses" in notes or "a2a" in notes else "ring"


def _recompute(row: Row) -> Recompute:
    word = row["recompute"]
    stated = re.search(r"full recompute of (\d+)", row.get("notes", ""))
    if stated and not word:
        return Recompute("full", "block", int(stated[1]))
    if word not in ("", "none", "selective", "full"):
        raise UserError(f"recompute {word!r} is none of none, selective, full.")
    granularity = cast(Granularity, word or "none")
    method: Method | None = "uniform" if granularity == "full" else None
    return Recompute(granularity, method, 1 if method else None)


def _precision(word: str) -> Literal["bf16", "fp16", "fp32", "fp8"]:
    if "fp8" in word:
        return "fp8"
    if word in ("bf16", "fp16", "fp32"):
        return cast(Literal["bf16", "fp16", "fp32"], word)
    raise UserError(f"precision {word!r} is none of bf16, fp16, fp32, fp8.")


def _flash(row: Row, framework: str) -> bool:
    """Stated, or by the trainer's time: Megatron-DeepSpeed and Megatron-LM of 2020-22 had none."""
    stated = row.get("flash_attention", "")
    if stated:
        return stated == "1"
    return not (
        framework in ("Megatron-DeepSpeed", "Megatron-LM", "DeepSpeed+Megatron") or "2020" in framework
    )


def _trainer_name(framework: str) -> str:
    word = framework.lower()
    if "megatron-deepspeed" in word or "deepspeed+megatron" in word:
        return "megatron-deepspeed"
    if any(part in word for part in ("foundry", "maxtext", "automodel", "fsdp")):
        return "fsdp"
    return "megatron-lm"


# Word in the framework's name -> the variant whose defaults and calibration differ.
_VARIANTS = (
    ("AutoModel", "automodel"),
    ("NeMo", "nemo"),
    ("Megatron-Bridge", "nemo"),
    ("InternEvo", "internevo"),
    ("nanotron", "nanotron"),
    ("llm-foundry", "llm-foundry"),
    ("MaxText", "maxtext"),
)


def _trainer_version(row: Row, framework: str) -> str | None:
    """The variant of a trainer: NVIDIA's tuned recipes, BigScience's fork, and other programs of its kind."""
    if _bigscience(row):
        return "bigscience"
    return next((variant for word, variant in _VARIANTS if word in framework), None)


def _bigscience(row: Row) -> bool:
    """tr11 and BLOOM ran a fork of early 2022, with the DeepSpeed of that time."""
    return row["series"].startswith(("tr11", "bloom"))


def trainer_of(row: Row, framework: str) -> Trainer:
    version = re.search(r"DeepSpeed (\d+\.\d+\.\d+)", framework)
    dtype = row.get("gradient_accumulation_dtype", "")
    engine = row.get("pipeline_engine", "")
    if not dtype and "fp32 gradient accumulation" in row.get("notes", ""):
        dtype = "fp32"
    elif not dtype and _trainer_version(row, framework) == "nemo":
        dtype = "bf16"  # NVIDIA's performance recipes set grad_reduce_in_fp32=False
    return Trainer(
        name=_trainer_name(framework),
        version=_trainer_version(row, framework),
        deepspeed=version[1] if version else "0.6.0" if _bigscience(row) else None,
        gradient_accumulation_dtype=cast(Literal["fp32", "bf16", "fp16"], dtype) if dtype else None,
        pipeline_engine=engine == "1" if engine else None,
        dropout=number(row, "dropout"),
        expandable_segments="expandable_segments:True" in row.get("notes", ""),
    )


def node_of(row: Row) -> Node:
    """The catalogue's node for the row's GPU, with the network the row states."""
    words = row["gpu"]
    gpu = words.split(" ")[0].split("(")[0]
    if "Jean Zay" in words or _bigscience(row):
        return node_for("jean-zay-a100")
    if gpu == "A100":
        gpu = "a100-80"
    node = node_for(gpu)
    stated = re.search(r"(\d+)x(\d+) ?Gb/s", words)
    if stated:
        per_gpu = int(stated[1]) * int(stated[2]) / 8 / node.gpus_per_node
        return replace(node, network_gbs_per_gpu=per_gpu)
    return node


def watts(text: str) -> float:
    """Power while busy; "520/427" is rank 0 and rank 1, and the idler one counts. 0: not stated."""
    values = [float(x) for x in text.split("/") if x]
    return min(values, default=0.0)


def whole(row: Row, key: str, default: int | None = None) -> int:
    text = row.get(key, "")
    if text == "" and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{key} is {text!r}, not a number." if text else f"{key} is not stated.") from None
    if not value.is_integer() or value < (0 if key == "zero_stage" else 1):
        raise UserError(f"{key} is {text}, not a whole number above 0.")
    return int(value)


def number(row: Row, key: str) -> float | None:
    text = row.get(key, "")
    if text == "":
        return None
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{key} is {text!r}, not a number.") from None
    if not math.isfinite(value) or value < 0:
        raise UserError(f"{key} is {text}, not a number of 0 or more.")
    return value
