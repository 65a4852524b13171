"""Owns exact parameter counts: of a whole model, of one layer, and of the ends of the pipeline.

Every function that takes tensor_parallel, expert_parallel or layer counts also takes NumPy arrays of them,
so that a search counts thousands of layouts at once.
Formulas: Narayanan et al. 2104.04473 for the GPT terms, checked term by term against published totals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from gpt_tune.models.shape import ModelShape

Ints = NDArray[np.int64]
Counts = NDArray[np.float64]
_Number = TypeVar("_Number", int, Ints)

# Megatron's --make-vocab-size-divisible-by.
VOCAB_MULTIPLE = 128


@dataclass(frozen=True, slots=True)
class LayerParameters:
    """Parameters of one layer by how they are spread.

    sharded: divided by tensor parallel ranks. replicated: whole on each of them (norms, biases of
    row-parallel matrices, router). experts: of all experts together, divided by tensor and expert ranks.
    """

    sharded: int
    replicated: int
    experts: int = 0

    @property
    def total(self) -> int:
        return self.sharded + self.replicated + self.experts


@overload
def padded_vocab(shape: ModelShape, tensor_parallel: int) -> int: ...
@overload
def padded_vocab(shape: ModelShape, tensor_parallel: Ints) -> Ints: ...
def padded_vocab(shape: ModelShape, tensor_parallel: int | Ints) -> int | Ints:
    """The vocabulary rounded up to a multiple of 128 * tensor_parallel, as Megatron does."""
    multiple = VOCAB_MULTIPLE * tensor_parallel
    return -(-shape.vocab // multiple) * multiple


def position_rows(shape: ModelShape, seq_length: int | None = None) -> int:
    """Rows of the learned position table (0 without one); it grows when a longer sequence is trained."""
    if shape.positions != "learned":
        return 0
    return max(shape.position_slots or shape.seq_length, seq_length or 0)


def norm_parameters(shape: ModelShape, width: int | None = None) -> int:
    """Parameters of one norm: scale and shift for LayerNorm, scale alone for RMSNorm."""
    return (2 if shape.norm == "layernorm" else 1) * (shape.hidden if width is None else width)


def attention(shape: ModelShape) -> LayerParameters:
    """Attention of one layer. Query, key and value are column-parallel; the projection row-parallel."""
    query = shape.heads * shape.head_size
    keys_values = 2 * shape.kv_heads * shape.head_size
    sharded = shape.hidden * (query + keys_values) + query * shape.hidden
    if shape.qkv_bias:
        sharded += query + keys_values
    replicated = shape.hidden if shape.linear_bias else 0
    if shape.qk_norm:
        replicated += 2 * norm_parameters(shape, shape.head_size)
    return LayerParameters(sharded, replicated)


def mlp(shape: ModelShape, width: int) -> LayerParameters:
    """An MLP of the given width: gate and up (or up alone) column-parallel, down row-parallel."""
    inputs = 2 if shape.gated_mlp else 1
    sharded = (inputs + 1) * shape.hidden * width
    if not shape.linear_bias:
        return LayerParameters(sharded, 0)
    return LayerParameters(sharded + inputs * width, shape.hidden)


def layer(shape: ModelShape, with_experts: bool = False) -> LayerParameters:
    """One transformer layer: attention, norms, and an MLP or (with_experts) router and experts."""
    part = attention(shape)
    norms = shape.norms_per_layer * norm_parameters(shape)
    if not with_experts:
        dense = mlp(shape, shape.ffn)
        return LayerParameters(part.sharded + dense.sharded, part.replicated + dense.replicated + norms)
    router = shape.hidden * shape.experts + (shape.hidden if shape.shared_expert_gate else 0)
    shared = mlp(shape, shape.shared_expert_ffn) if shape.shared_expert_ffn else LayerParameters(0, 0)
    return LayerParameters(
        part.sharded + shared.sharded,
        part.replicated + shared.replicated + norms + router,
        shape.experts * mlp(shape, shape.expert_ffn).total,
    )


def expert_layers(shape: ModelShape) -> int:
    """How many layers hold experts."""
    return shape.layers - shape.dense_layers if shape.moe else 0


def embedding(shape: ModelShape, vocab: int | None = None, seq_length: int | None = None) -> int:
    """What stands before the first layer: token and position tables, and their norm."""
    words = (shape.vocab if vocab is None else vocab) * shape.hidden
    positions = position_rows(shape, seq_length) * shape.hidden
    return words + positions + (norm_parameters(shape) if shape.embedding_norm else 0)


def head(shape: ModelShape, vocab: int | None = None) -> int:
    """What stands behind the last layer: the final norm, and the output matrix when it is not tied."""
    words = 0 if shape.tied_embeddings else (shape.vocab if vocab is None else vocab) * shape.hidden
    return norm_parameters(shape) + words


def total(shape: ModelShape) -> int:
    """Exact parameters of the model with its own vocabulary, unpadded, each tensor counted once."""
    sparse = expert_layers(shape)
    body = (shape.layers - sparse) * layer(shape).total
    if sparse:
        body += sparse * layer(shape, with_experts=True).total
    return embedding(shape) + body + head(shape)


def active(shape: ModelShape) -> int:
    """Parameters one token passes through: `total` without the experts it is not routed to."""
    if not shape.moe:
        return total(shape)
    idle = shape.experts - shape.experts_per_token
    return total(shape) - expert_layers(shape) * idle * mlp(shape, shape.expert_ffn).total


@dataclass(frozen=True, slots=True)
class RankParameters:
    """Parameters held by one GPU of a pipeline stage before any ZeRO, as arrays or single numbers.

    dense is replicated over data-parallel ranks; experts only over data_parallel / expert_parallel of them.
    embedding is the part of `dense` that belongs to word tables (both copies when the stage holds both).
    """

    dense: Counts
    experts: Counts
    embedding: Counts

    @property
    def total(self) -> Counts:
        return self.dense + self.experts


def on_rank(
    shape: ModelShape,
    tensor_parallel: int | Ints,
    layers: int | Ints,
    first: bool | NDArray[np.bool_],
    last: bool | NDArray[np.bool_],
    expert_parallel: int | Ints = 1,
    first_layer: int | Ints = 0,
    seq_length: int | None = None,
) -> RankParameters:
    """Parameters on one GPU of a stage with `layers` layers, counted from layer number `first_layer`.

    first and last say whether the stage holds the embedding and the output end. A tied table is held twice
    when these are different stages (Megatron and DeepSpeed both keep a copy on the last) and once otherwise.
    All arguments broadcast against each other.
    """
    t, n, is_first, is_last, ep, start = np.broadcast_arrays(
        *(np.asarray(x) for x in (tensor_parallel, layers, first, last, expert_parallel, first_layer))
    )
    plain = layer(shape)
    sparse_here = _expert_layers_between(shape, start, n)
    dense = (n - sparse_here) * (plain.sharded / t + plain.replicated)
    experts = np.zeros(dense.shape)
    if shape.moe:
        sparse = layer(shape, with_experts=True)
        dense = dense + sparse_here * (sparse.sharded / t + sparse.replicated)
        experts = sparse_here * (sparse.experts / t / ep)
    words = padded_vocab(shape, np.asarray(t, dtype=np.int64)) * (shape.hidden / t)
    second_table = is_last & (~is_first | (not shape.tied_embeddings))
    tables = words * (is_first.astype(np.int64) + second_table)
    ends = is_first * embedding(shape, 0, seq_length) + is_last * norm_parameters(shape)
    return RankParameters(
        dense=np.asarray(dense + tables + ends, dtype=np.float64),
        experts=np.asarray(experts, dtype=np.float64),
        embedding=np.asarray(tables, dtype=np.float64),
    )


def _expert_layers_between(shape: ModelShape, start: NDArray[np.int64], n: NDArray[np.int64]) -> Ints:
    """Layers with experts among layers start .. start + n - 1."""
    if not shape.moe:
        return np.zeros(np.shape(n), dtype=np.int64)
    dense = np.clip(shape.dense_layers - start, 0, n)
    return np.asarray(n - dense, dtype=np.int64)
