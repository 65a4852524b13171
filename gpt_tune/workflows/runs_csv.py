"""Owns reading measured runs from a CSV: one row becomes a model, a node, a trainer and a layout."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from gpt_tune.errors import UserError
from gpt_tune.hardware.catalogue import node_for
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts.layout import Fusions, Granularity, Layout, Method, Recompute, Trainer
from gpt_tune.models.shape import ModelShape

# A row without these says nothing that could be predicted.
REQUIRED = (
    "id",
    "series",
    "framework",
    "gpu",
    "gpus",
    "hidden",
    "layers",
    "heads",
    "ffn",
    "seq_length",
    "vocab",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "micro_batch_size",
    "global_batch_size",
    "recompute",
    "precision",
    "step_seconds",
    "memory_gb",
    "memory_kind",
    "oom",
)
OPTIONAL = (
    "source",
    "gpu_mem_gb",
    "kv_heads",
    "virtual_pipeline",
    "context_parallel",
    "expert_parallel",
    "sequence_parallel",
    "zero_stage",
    "step_is_derived",
    "notes",
    "gradient_accumulation_steps",
    "flash_attention",
    "fused_softmax",
    "pipeline_engine",
    "dropout",
    "gradient_accumulation_dtype",
    "allocated_gib",
    "reserved_gib",
    "outside_allocator_gib",
    "busy_watts",
    "logged_tflops",
)

# Below this power an H200 waits for its host, and repeats differ by 15-50 %.
BUSY_WATTS = 550.0

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run. Seconds and memory are None where the row does not state them.

    memory_gib is of the kind the row names: allocated | reserved | device | unknown; allocated_gib and
    reserved_gib are the further columns of our own runs. busy_watts is the idlest rank's;
    host_bound: the row's file states power, and this row none or a low one.
    """

    id: str
    series: str
    framework: str
    model: ModelShape
    node: Node
    trainer: Trainer
    layout: Layout
    seq_length: int
    step_seconds: float | None
    memory_gib: float | None
    memory_kind: str
    allocated_gib: float | None
    reserved_gib: float | None
    oom: bool
    busy_watts: float | None
    host_bound: bool
    notes: str


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a file, the rows that could not be used with the reason, and columns that were ignored."""

    runs: tuple[Run, ...]
    skipped: tuple[tuple[str, str], ...]
    ignored_columns: tuple[str, ...]


def read(path: Path) -> Runs:
    """All rows of a CSV. Raises UserError when the file or its columns are unusable."""
    rows = _rows(path)
    runs: list[Run] = []
    skipped: list[tuple[str, str]] = []
    for number, row in enumerate(rows.rows, start=2):
        name = row.get("id") or f"line {number}"
        try:
            runs.append(to_run(row))
        except UserError as error:
            skipped.append((name, error.message))
    return Runs(tuple(runs), tuple(skipped), rows.ignored)


@dataclass(frozen=True, slots=True)
class _Rows:
    rows: tuple[Row, ...]
    ignored: tuple[str, ...]


def _rows(path: Path) -> _Rows:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {path}: {error}.", "Give the path of a CSV file of runs.") from error
    reader = csv.DictReader(text.splitlines())
    names = [name.strip() for name in reader.fieldnames or []]
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise UserError(
            f"{path} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}.",
            "The columns of a runs file are those of `gpt-tune results export`.",
        )
    reader.fieldnames = names
    ignored = tuple(n for n in names if n not in REQUIRED and n not in OPTIONAL and n)
    rows = tuple({k: (v or "").strip() for k, v in row.items() if isinstance(k, str)} for row in reader)
    return _Rows(rows, ignored)


def to_run(row: Row) -> Run:
    """One row. Raises UserError with the reason when it cannot be predicted."""
    model = _model(row)
    framework = row["framework"]
    layout = _layout(row, framework)
    if layout.gpus != _int(row, "gpus"):
        raise UserError(
            f"{row['gpus']} GPUs are not tensor x pipeline x context x data parallel = {layout.gpus}."
        )
    memory = _float(row, "memory_gb")
    return Run(
        id=row["id"],
        series=row["series"],
        framework=framework,
        model=model,
        node=_node(row),
        trainer=_trainer(row, framework),
        layout=layout,
        seq_length=_int(row, "seq_length"),
        step_seconds=_float(row, "step_seconds"),
        memory_gib=memory,
        memory_kind=row["memory_kind"] if memory is not None else "",
        allocated_gib=_float(row, "allocated_gib"),
        reserved_gib=_float(row, "reserved_gib"),
        oom=row["oom"] == "1",
        busy_watts=_watts(row.get("busy_watts", "")) or None,
        host_bound="busy_watts" in row and _watts(row["busy_watts"]) <= BUSY_WATTS,
        notes=row.get("notes", ""),
    )


def _model(row: Row) -> ModelShape:
    hidden, layers = _int(row, "hidden"), _int(row, "layers")
    heads = _int(row, "heads", _nearest_heads(hidden, _int(row, "tensor_parallel")))
    if hidden % heads:
        raise UserError(f"hidden {hidden} is not divisible by heads {heads}.")
    kv_heads = _int(row, "kv_heads", heads)
    ffn, vocab = _int(row, "ffn"), _int(row, "vocab")
    llama = _is_llama(row, hidden, ffn, vocab)
    return ModelShape(
        id=f"{layers}x{hidden}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        ffn=ffn,
        vocab=vocab,
        seq_length=_int(row, "seq_length"),
        head_size=hidden // heads,
        gated_mlp=llama,
        norm="rmsnorm" if llama else "layernorm",
        linear_bias=not llama,
        qkv_bias=not llama,
        positions=_positions(row, llama),
        tied_embeddings=_tied(row, llama),
        embedding_norm="embed LN" in row.get("notes", ""),
    )


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
        return _int(row, "hidden") < 4096
    if "Llama-3.2-3B" in notes or "llama3.2-1b" in notes or "llama3.2-3b" in notes:
        return True
    return not llama and "nemotron" not in notes


def _layout(row: Row, framework: str) -> Layout:
    micro, whole, data = (
        _int(row, "micro_batch_size"),
        _int(row, "global_batch_size"),
        _int(row, "data_parallel"),
    )
    steps = _int(row, "gradient_accumulation_steps", max(1, whole // (micro * data)))
    context = _int(row, "context_parallel", 1)
    tensor = _int(row, "tensor_parallel")
    name = _trainer_name(framework)
    sequence = row.get("sequence_parallel", "")
    # NeMo and Megatron-Core recipes turn it on with tensor parallelism; the rows do not always say so.
    modern = name == "megatron-lm" and "2020" not in framework and framework != "Megatron-LM"
    pipeline = _int(row, "pipeline_parallel")
    return Layout(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        virtual_pipeline=_virtual(row, pipeline),
        context_parallel=context,
        context_method=_context_method(row, context),
        expert_parallel=_int(row, "expert_parallel", 1),
        data_parallel=data,
        sequence_parallel=tensor > 1 and (sequence == "1" or (sequence == "" and modern)),
        zero_stage=_int(row, "zero_stage", _usual_zero_stage(row, modern)),
        micro_batch_size=micro,
        gradient_accumulation_steps=steps,
        global_batch_size=micro * steps * data,
        recompute=_recompute(row),
        precision=_precision(row["precision"]),
        flash_attention=_flash(row, framework),
        fusions=Fusions(masked_softmax=row.get("fused_softmax", "") != "0"),
    )


def _usual_zero_stage(row: Row, modern: bool) -> int:
    """Where it is not stated: recipes shard the optimizer, and so must vTrain's runs (3.6B at TP 1 fitted)."""
    return 1 if modern or row["series"].startswith("vtrain") else 0


def _virtual(row: Row, pipeline: int) -> int:
    stated = re.search(r"interleave m=(\d+)", row.get("notes", ""))
    if stated:
        return int(stated[1]) if pipeline > 1 else 1
    return _int(row, "virtual_pipeline", 1) if pipeline > 1 else 1


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


def _trainer(row: Row, framework: str) -> Trainer:
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
        dropout=_float(row, "dropout"),
        expandable_segments="expandable_segments:True" in row.get("notes", ""),
    )


def _node(row: Row) -> Node:
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


def _watts(text: str) -> float:
    """Power while busy; "520/427" is rank 0 and rank 1, and the idler one counts. 0: not stated."""
    values = [float(x) for x in text.split("/") if x]
    return min(values, default=0.0)


def _int(row: Row, key: str, default: int | None = None) -> int:
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


def _float(row: Row, key: str) -> float | None:
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
