"""Owns a second count of parameters, tensor by tensor, to hold the formulas against."""

from __future__ import annotations

from math import prod

from gpt_tune.models.shape import ModelShape

# name -> (shape, which dimension tensor parallelism splits: 0, 1, or None for whole on every rank)
Tensors = dict[str, tuple[tuple[int, ...], int | None]]


def norm(name: str, width: int, shape: ModelShape) -> Tensors:
    tensors: Tensors = {f"{name}.weight": ((width,), None)}
    if shape.norm == "layernorm":
        tensors[f"{name}.bias"] = ((width,), None)
    return tensors


def attention(shape: ModelShape) -> Tensors:
    h, d = shape.hidden, shape.head_size
    widths = {"q": shape.heads * d, "k": shape.kv_heads * d, "v": shape.kv_heads * d}
    tensors: Tensors = {f"{n}.weight": ((w, h), 0) for n, w in widths.items()}
    if shape.qkv_bias:
        tensors |= {f"{n}.bias": ((w,), 0) for n, w in widths.items()}
    tensors["o.weight"] = ((h, widths["q"]), 1)
    if shape.linear_bias:
        tensors["o.bias"] = ((h,), None)
    if shape.qk_norm:
        tensors |= norm("q_norm", d, shape) | norm("k_norm", d, shape)
    return tensors


def mlp(name: str, width: int, shape: ModelShape) -> Tensors:
    inputs = ("gate", "up") if shape.gated_mlp else ("up",)
    tensors: Tensors = {f"{name}.{n}.weight": ((width, shape.hidden), 0) for n in inputs}
    tensors[f"{name}.down.weight"] = ((shape.hidden, width), 1)
    if shape.linear_bias:
        tensors |= {f"{name}.{n}.bias": ((width,), 0) for n in inputs}
        tensors[f"{name}.down.bias"] = ((shape.hidden,), None)
    return tensors


def layer(number: int, shape: ModelShape) -> Tensors:
    tensors = attention(shape)
    for i in range(shape.norms_per_layer):
        tensors |= norm(f"norm{i}", shape.hidden, shape)
    if not shape.experts or number < shape.dense_layers:
        tensors |= mlp("mlp", shape.ffn, shape)
    else:
        tensors["router.weight"] = ((shape.experts, shape.hidden), None)
        if shape.shared_expert_ffn:
            tensors |= mlp("shared", shape.shared_expert_ffn, shape)
        if shape.shared_expert_gate:
            tensors["shared_gate.weight"] = ((1, shape.hidden), None)
        for e in range(shape.experts):
            tensors |= mlp(f"expert{e}", shape.expert_ffn, shape)
    return {f"layer{number}.{name}": tensor for name, tensor in tensors.items()}


def whole_model(shape: ModelShape) -> Tensors:
    tensors: Tensors = {"words.weight": ((shape.vocab, shape.hidden), 0)}
    if shape.positions == "learned":
        tensors["positions.weight"] = ((shape.position_slots or shape.seq_length, shape.hidden), None)
    if shape.embedding_norm:
        tensors |= norm("embedding_norm", shape.hidden, shape)
    for number in range(shape.layers):
        tensors |= layer(number, shape)
    tensors |= norm("final_norm", shape.hidden, shape)
    if not shape.tied_embeddings:
        tensors["head.weight"] = ((shape.vocab, shape.hidden), 0)
    return tensors


def count(tensors: Tensors) -> int:
    return sum(prod(size) for size, _ in tensors.values())


def count_on_rank(tensors: Tensors, tensor_parallel: int, expert_parallel: int = 1) -> float:
    """Elements on one tensor-parallel rank; an expert's also divided by expert_parallel, on average.

    Every rank holds a slice of each expert matrix, and all of its biases are split as in `mlp`.
    """
    found = 0.0
    for name, (size, split) in tensors.items():
        part = float(prod(size))
        if split is not None or ".expert" in name:
            part /= tensor_parallel
        found += part / expert_parallel if ".expert" in name else part
    return found
