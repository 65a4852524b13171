"""Owns turning what a user typed into a checked PlanRequest, and the defaults of what they left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpt_tune.errors import UserError
from gpt_tune.hardware.catalogue import node_for
from gpt_tune.hardware.parts import Node
from gpt_tune.hardware.sizes import nodes_of
from gpt_tune.layouts import choices
from gpt_tune.layouts.batch import PRECISIONS
from gpt_tune.layouts.layout import Trainer
from gpt_tune.layouts.legality_precision import before_ampere
from gpt_tune.layouts.trainers import features, is_finetune, parse_trainer
from gpt_tune.memory.finetune import Tuning
from gpt_tune.models.catalogue import get
from gpt_tune.models.check import whole_number
from gpt_tune.models.shape import ModelShape
from gpt_tune.planner.objective import batch_sizes, checked
from gpt_tune.planner.types import PlanRequest

# GPT-3's smallest model trains on 0.5 M tokens a step (arXiv 2005.14165, table 2.1).
DEFAULT_BATCH_TOKENS = 2**19
# Sequences of a fine-tuning step: the AWS QLoRA case's 4 GPUs x 4 accumulated steps of one.
DEFAULT_FINETUNE_BATCH = 16
# Larger ones are typing errors, and products of them leave 64 bits.
_LARGEST_GPUS = 1_000_000
_LARGEST_SEQUENCE = 10_000_000


def default_global_batch(gpus: int, seq_length: int) -> int:
    """Sequences a step when nothing is asked: about 0.5 M tokens, the GPUs times a power of two.

    A multiple of the GPUs is divisible by every possible number of data-parallel ranks, and a power of two for each
    of them by every usual micro batch: 264 on 24 GPUs would leave micro batches of 1 and 11.
    """
    each = DEFAULT_BATCH_TOKENS / seq_length / gpus
    return gpus << max(0, round(math.log2(each)))


def _default_batch(trainer: Trainer, gpus: int, seq_length: int) -> int:
    if is_finetune(trainer):
        return -(-max(gpus, DEFAULT_FINETUNE_BATCH) // gpus) * gpus
    return default_global_batch(gpus, seq_length)


def build_request(
    model: str | ModelShape,
    gpus: Any,
    *,
    gpu: str | None = None,
    node: Node | None = None,
    gpus_per_node: Any = None,
    seq_length: Any = None,
    global_batch_size: Any = None,
    trainer: str | Trainer = "megatron-deepspeed",
    precision: str | None = None,
    fix: Iterable[str] | Mapping[str, Any] = (),
    top: Any = 10,
    cluster: str | None = None,
    objective: str = "step",
    target_seconds: Any = None,
    within: Any = 0.05,
    tuning: Tuning | None = None,
) -> PlanRequest:
    """A checked request. gpu: a GPU or node type of the hardware catalogue; node: one found otherwise.

    global_batch_size: a number, or text such as 256..1024 or 256,512 to compare several. tuning: of a fine-tuning
    trainer.

    Raises UserError for anything unknown, impossible or contradictory, with the nearest legal value.
    """
    shape = get(model) if isinstance(model, str) else model
    machine = _node(gpu, node, gpus_per_node)
    count = _number(gpus, "GPUs", _LARGEST_GPUS)
    nodes_of(count, machine.gpus_per_node)
    fixed = choices.check_fixed(fix) if isinstance(fix, Mapping) else choices.parse_fix(fix)
    sizes = _sizes(global_batch_size, count, fixed)
    batch = sizes[0] if sizes else None
    aim, target, share = checked(objective, target_seconds, within)
    tokens = _optional(seq_length, "sequence length", _LARGEST_SEQUENCE) or shape.seq_length
    if precision is not None and precision not in PRECISIONS:
        raise UserError(f"Precision {precision!r} is unknown.", f"Use {', '.join(PRECISIONS)}.")
    both = choices.agree(fixed, {"precision": precision, "global_batch_size": batch})
    chosen = parse_trainer(trainer) if isinstance(trainer, str) else trainer
    request = PlanRequest(
        model=shape,
        gpus=count,
        node=machine,
        seq_length=tokens,
        global_batch_size=both.get("global_batch_size") or _default_batch(chosen, count, tokens),
        trainer=chosen,
        precision=both.get("precision") or default_precision(machine),
        fixed=both,
        top=_number(top, "number of plans", 1000),
        cluster=cluster,
        objective=aim,
        target_seconds=target,
        within=share,
        global_batch_sizes=sizes if len(sizes) > 1 else (),
        tuning=tuning or Tuning(),
    )
    return normalised(request)


def _sizes(asked: Any, gpus: int, fixed: Mapping[str, Any]) -> tuple[int, ...]:
    """The batch sizes to compare, none where none is asked. UserError where a fixed one stands against several."""
    sizes = () if asked is None else batch_sizes(asked, gpus)
    if len(sizes) > 1 and "global_batch_size" in fixed:
        one = fixed["global_batch_size"]
        raise UserError(
            f"--global-batch-size {asked} and --fix global_batch_size={one} disagree.", "Give one of them."
        )
    return sizes


def normalised(request: PlanRequest) -> PlanRequest:
    """The request with its fixed keys checked and brought in line with its own fields.

    Trainer keys among the fixed ones move into the trainer. Idempotent.
    """
    features(request.trainer)
    fixed = choices.check_fixed(request.fixed)
    flags = {"precision": request.precision, "global_batch_size": request.global_batch_size}
    fixed = choices.agree(fixed, choices.check_fixed(flags))
    trainer = choices.apply_to_trainer(request.trainer, fixed)
    nodes_of(_number(request.gpus, "GPUs", _LARGEST_GPUS), request.node.gpus_per_node)
    return replace(
        request,
        trainer=trainer,
        fixed={key: value for key, value in fixed.items() if not key.startswith("trainer.")},
    )


def default_precision(node: Node) -> str:
    """bf16, or fp16 on a GPU without bf16 units."""
    return "bf16" if node.gpu.bf16_tflops > 0 and not before_ampere(node) else "fp16"


def _node(gpu: str | None, node: Node | None, gpus_per_node: Any) -> Node:
    wanted = _optional(gpus_per_node, "GPUs per node", 10_000)
    if node is None and not gpu:
        raise UserError(
            "Nothing says which GPUs to plan for.",
            "Give --gpu (for example b200, or a node type such as p6-b200) or --cluster.",
        )
    if node is None or gpu:
        return node_for(gpu or "", wanted)
    return replace(node, gpus_per_node=wanted) if wanted else node


def _optional(value: Any, name: str, largest: int) -> int | None:
    return None if value is None else _number(value, name, largest)


def _number(value: Any, name: str, largest: int) -> int:
    what = f"The number of {name}" if name.startswith("GPUs") else f"The {name}"
    number = whole_number(value, what)
    if number > largest:
        raise UserError(f"{what} is {number}, above {largest}.", f"Use {largest} or less.")
    return number
