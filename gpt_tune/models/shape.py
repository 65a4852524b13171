"""Owns the shape of a model: the numbers everything else is computed from. It counts nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Positions = Literal["learned", "rotary", "alibi", "none"]
Norm = Literal["layernorm", "rmsnorm"]


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder-only transformer.

    ffn is the width of one MLP matrix (for a gated MLP: of each of gate and up). head_size is usually
    hidden / heads. seq_length is the default training length, and for learned positions also the
    number of positions. source says where the figures stand; notes are sentences for the user.
    """

    id: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq_length: int
    head_size: int
    gated_mlp: bool = False
    norm: Norm = "layernorm"
    linear_bias: bool = True
    qkv_bias: bool = True
    qk_norm: bool = False
    positions: Positions = "learned"
    tied_embeddings: bool = True
    embedding_norm: bool = False
    # Mixture of experts; experts == 0 means dense. dense_layers is the number of leading layers without experts.
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_expert_ffn: int = 0
    dense_layers: int = 0
    shared_expert_gate: bool = False
    # Norms of hidden width in a layer: 1 where attention and MLP share one (Falcon 7B), 4 in Gemma 2 and 3.
    norms_per_layer: int = 2
    # Rows of a learned position table; 0 means seq_length.
    position_slots: int = 0
    # Rotary positions: the base of their angles, the share of a head that turns, and how the angles are scaled
    # for longer texts (models/rope.py reads it; "" for not at all).
    rope_theta: float = 10000.0
    rotary_share: float = 1.0
    rope_scaling: str = ""
    # The published exact parameter count this shape was checked against; 0 when none is known.
    public_total: int = 0
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    source: str = ""

    @property
    def moe(self) -> bool:
        return self.experts > 0
