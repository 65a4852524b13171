"""Owns hypothesis strategies for model shapes."""

from __future__ import annotations

from hypothesis import strategies as st

from gpt_tune.models.check import checked
from gpt_tune.models.shape import ModelShape


@st.composite
def model_shapes(draw: st.DrawFn, moe: bool | None = None) -> ModelShape:
    """Possible shapes of every kind, small enough to count tensor by tensor."""
    kv_heads = draw(st.sampled_from([1, 2, 4]))
    heads = kv_heads * draw(st.sampled_from([1, 2, 4]))
    head_size = draw(st.sampled_from([8, 16, 24]))
    layers = draw(st.integers(1, 13))
    experts = 0
    if moe or (moe is None and draw(st.booleans())):
        experts = draw(st.sampled_from([2, 4, 8]))
    return checked(
        ModelShape(
            id="drawn",
            layers=layers,
            hidden=draw(st.sampled_from([heads * head_size, 64])),
            heads=heads,
            kv_heads=kv_heads,
            ffn=draw(st.sampled_from([32, 96, 256])),
            vocab=draw(st.integers(100, 1000)),
            seq_length=draw(st.sampled_from([16, 64])),
            head_size=head_size,
            gated_mlp=draw(st.booleans()),
            norm=draw(st.sampled_from(["layernorm", "rmsnorm"])),
            linear_bias=draw(st.booleans()),
            qkv_bias=draw(st.booleans()),
            qk_norm=draw(st.booleans()),
            positions=draw(st.sampled_from(["learned", "rotary", "alibi", "none"])),
            tied_embeddings=draw(st.booleans()),
            embedding_norm=draw(st.booleans()),
            norms_per_layer=draw(st.sampled_from([1, 2, 4])),
            experts=experts,
            experts_per_token=draw(st.integers(1, experts)) if experts else 0,
            expert_ffn=draw(st.sampled_from([16, 48])) if experts else 0,
            shared_expert_ffn=draw(st.sampled_from([0, 32])) if experts else 0,
            shared_expert_gate=draw(st.booleans()) if experts else False,
            dense_layers=draw(st.integers(0, layers - 1)) if experts else 0,
        )
    )
